"""A model that sees in two GGUF files, its text and a projector, gives bit for bit the logits that its folder gives.

    projector_of_folder.py WEFT MODEL PICTURES [SHARED_GOLDEN]

MODEL is the bundled model, which gets a tower of random weights; SHARED_GOLDEN has folders of other families. Each folder is
written anew, with what files can say alone: one tokenizer, limits of sizes that projectors have keys for, and norms and decays
that stay themselves when a converter adds 1 or takes an exponential. What the converter does to names, values and metadata
stands here once more, apart from weft's own tables.
"""
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import wave

import numpy as np

from gguf_of_folder import File, NAMES, all_tensors, common, paired, text

MARK = 256      # the first id of the marks, behind those of the bytes


def bits(v):
    """bfloat16, cut."""
    return (np.ascontiguousarray(v, "<f4").view("<u4") >> 16).astype("<u2")


def numbers(*v):
    return b"".join(struct.pack("<i", i) for i in v)


# ---- a folder ----

def byte_names():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(extra)) for b in range(256)]


def words(marks, n):
    out = byte_names() + marks + ["un"]
    return out + ["unused%d" % i for i in range(len(out), n)]


def write_tokenizer(folder, marks, n):
    vocab = {w: i for i, w in enumerate(words(marks, n)) if w not in marks}
    added = [{"id": MARK + i, "content": m, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, m in enumerate(marks)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump({"added_tokens": added, "pre_tokenizer": level, "decoder": level,
                   "model": {"type": "BPE", "vocab": vocab, "merges": ["u n"]}}, f)


def put_tokenizer(f, marks, n):
    f.put("tokenizer.ggml.pre", "gpt-2")
    f.put("tokenizer.ggml.tokens", words(marks, n))
    f.put("tokenizer.ggml.token_type", numbers(*[3 if MARK <= i < MARK + len(marks) else 1 for i in range(n)]))
    f.put("tokenizer.ggml.merges", ["u n"])


def write_tensors(path, tensors, kind):
    """Matrices in the kind that files have, vectors and places in float32."""
    head, data = {}, b""
    for name, v in tensors.items():
        plain = kind == "F32" or v.ndim < 2 or is_place(name)
        part = (np.ascontiguousarray(v, "<f4") if plain else bits(v)).tobytes()
        head[name] = {"dtype": "F32" if plain else kind, "shape": list(v.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    said = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(said)) + said + data)


def is_place(name):
    """Or a kernel over mel bands, which is float32 in files too."""
    return "position_embedding" in name or "pos_embed" in name or "subsample_conv_projection.layer" in name or "depthwise_conv1d" in name


def rounded(v, steps):
    """Numbers whose sum with 1 loses nothing."""
    return (np.round(v * steps) / steps).astype("<f4")


class Seen:
    """A model: tensors and config of its folder; the two files are filled by its family."""

    def __init__(self, tensors, config, kind, arch, projector):
        self.tensors, self.config, self.kind = tensors, config, kind
        self.text, self.file = File(arch, "gpt2"), File("clip", None)
        self.inner = config.get("text_config", config)
        self.vision, self.marks, self.processor = config["vision_config"], [], {}
        self.sounds = False # it hears
        self.made = None    # a projector to be read in place of what is written here
        self.written = projector in ("pixtral", "gemma3", "gemma4v", "gemma4uv") or arch.startswith("qwen")      # weft writes such files
        self.file.put("vision.has_vision_encoder", True)
        self.file.put("general.type", "mmproj")
        self.pairs = {"projector_type": projector, "has_vision_encoder": True}

    def add(self, file, name, v):
        v = np.asarray(v)
        file.add(name, bits(v) if self.kind == "BF16" and v.ndim > 1 and not name.startswith("v.position") else v)

    def mark(self, *marks, **ids):
        self.marks = list(marks)
        for member, which in ids.items():
            self.config[member] = MARK + which

    def colours(self, mean, std):
        self.processor.update(image_mean=mean, image_std=std)
        self.pairs.update({"vision.image_mean": mean, "vision.image_std": std})

    def sizes(self, depth, heads, image):
        v = self.vision
        self.pairs.update({"vision.block_count": v[depth], "vision.embedding_length": v["hidden_size"],
                           "vision.feed_forward_length": v["intermediate_size"], "vision.attention.head_count": v[heads],
                           "vision.patch_size": v["patch_size"], "vision.image_size": image,
                           "vision.projection_dim": self.inner["hidden_size"]})

    def tower(self, name, names, block, made=lambda name, v: None):
        """Tensors whose name begins with one of names, or has `block` and a number before one of its names."""
        for hf, v in sorted(self.tensors.items()):
            at = re.search(re.escape(block) + r"(\d+)\.(.*)\.(\w+)$", hf)
            if made(hf, v):
                continue
            if at and at[2] in names:
                self.add(self.file, "v.blk.%s.%s.%s" % (at[1], names[at[2]], at[3]), v)
            for base, to in name.items():
                if hf.endswith(base):
                    self.add(self.file, to, v)

    def write(self, folder, text_path, projector):
        n = self.inner.get("vocab_size", self.config.get("vocab_size"))
        put_tokenizer(self.text, self.marks, n)
        for key, v in self.pairs.items():
            self.file.put(key, v)
        self.text.write(text_path)
        self.file.write(projector)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(self.config, f)
        with open(os.path.join(folder, "preprocessor_config.json"), "w") as f:
            json.dump(self.processor, f)
        write_tokenizer(folder, self.marks, n)
        write_tensors(os.path.join(folder, "model.safetensors"), self.tensors, self.kind)


def text_tensors(seen, names, top, change=lambda name, v: v, special=lambda f, layer, rest, v: False):
    for hf, v in sorted(seen.tensors.items()):
        hf = hf.replace("language_model.model.", "model.").replace("model.language_model.", "model.").replace("language_model.lm_head", "lm_head")
        if hf.startswith("model.layers."):
            _, _, layer, rest = hf.split(".", 3)
            base, _, kind = rest.rpartition(".")
            if special(seen, int(layer), rest, v):
                continue
            seen.add(seen.text, "blk.%s.%s.%s" % (layer, names[base], kind), change(rest, v))
        elif hf.rpartition(".")[0] in top:
            seen.add(seen.text, top[hf.rpartition(".")[0]] + ".weight", change(hf, v))


TOP = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}

# ---- Qwen ----

QWEN_TOP = {"visual.patch_embed.proj.bias": "v.patch_embd.bias", "visual.pos_embed.weight": "v.position_embd.weight",
            "visual.merger.norm.weight": "v.post_ln.weight", "visual.merger.norm.bias": "v.post_ln.bias",
            "visual.merger.ln_q.weight": "v.post_ln.weight", "visual.merger.ln_q.bias": "v.post_ln.bias"}
for n, i in (("linear_fc1", 0), ("linear_fc2", 2), ("mlp.0", 0), ("mlp.2", 2)):
    for k in "weight", "bias":
        QWEN_TOP["visual.merger.%s.%s" % (n, k)] = "mm.%d.%s" % (i, k)
QWEN_BLOCK = {"norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
              "mlp.linear_fc2": "ffn_down", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def qwen(s, split):
    def made(hf, v):
        at = re.search(r"visual\.blocks\.(\d+)\.attn\.qkv\.(\w+)$", hf)
        if hf.endswith("visual.patch_embed.proj.weight"):
            s.add(s.file, "v.patch_embd.weight", v[:, :, 0])
            s.add(s.file, "v.patch_embd.weight.1", v[:, :, 1] if v.shape[2] > 1 else np.zeros_like(v[:, :, 0]))
            return True
        if at and split:
            for which in split:
                s.add(s.file, "v.blk.%s.attn_%s.%s" % (at[1], which, at[2]), np.split(v, 3)["qkv".index(which)])
            return True
        at = re.search(r"visual\.deepstack_merger_list\.(\d+)\.(norm|linear_fc\d)\.(\w+)$", hf)
        if at:
            block = s.vision["deepstack_visual_indexes"][int(at[1])]
            s.add(s.file, "v.deepstack.%d.%s.%s" % (block, at[2].replace("linear_", ""), at[3]), v)
        return bool(at)
    s.tower(QWEN_TOP, QWEN_BLOCK, "visual.blocks.", made)
    s.mark("<|image_pad|>", image_token_id=0)
    s.sizes("depth", "num_heads", 448)
    s.pairs.update({"use_gelu": not split, "use_silu": bool(split), "vision.image_min_pixels": 4096,
                    "vision.image_max_pixels": 98304, "vision.spatial_merge_size": 2, "vision.attention.layer_norm_epsilon": 1e-6})
    s.processor.update(min_pixels=4096, max_pixels=98304)


def clip_colours(s):
    s.colours([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])


def qwen2_5(tensors, config, kind, split="qkv"):
    s = Seen(tensors, config, kind, "qwen2vl", "qwen2.5vl_merger")
    common(s.text, config)
    s.text.put("rope.dimension_sections", numbers(4, 6, 6, 0))
    text_tensors(s, NAMES, TOP)
    qwen(s, split)
    clip_colours(s)
    s.pairs["vision.n_wa_pattern"] = s.vision["fullatt_block_indexes"][0] + 1
    return s


def qwen2_5_apart(tensors, config, kind):
    """q, k and v do not lie one after the other."""
    return qwen2_5(tensors, config, kind, "qvk")


def qwen2_5_old(tensors, config, kind):
    """As files from before 2025: no inner width, and the matrices of MLPs under each other's names."""
    s = qwen2_5(tensors, config, kind)
    s.pairs["vision.feed_forward_length"] = 0
    swapped = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    s.file.tensors = [(re.sub("ffn_up|ffn_down", lambda m: swapped[m[0]], name), v) for name, v in s.file.tensors]
    return s


def many_rows(tensors, config, names):
    """As many rows of the embedding and the output matrix as the tokenizer of this test has tokens."""
    rng, n = np.random.default_rng(1), 320
    for name in names:
        v = tensors[name]
        tensors[name] = np.concatenate([v, rng.normal(size=(n - len(v), v.shape[1]))]).astype("<f4")
    config["vocab_size"] = n


def qwen2_vl(tensors, config, kind):
    many_rows(tensors, config, ("model.embed_tokens.weight", "lm_head.weight"))
    v = config["vision_config"]
    s = Seen(tensors, config, kind, "qwen2vl", "qwen2vl_merger")
    common(s.text, config)
    s.text.put("rope.dimension_sections", numbers(*config["rope_scaling"]["mrope_section"], 0))
    text_tensors(s, NAMES, TOP)
    v["intermediate_size"], out, v["hidden_size"] = v["mlp_ratio"] * v["embed_dim"], v["hidden_size"], v["embed_dim"]
    qwen(s, "qkv")
    del v["intermediate_size"]
    v["hidden_size"] = out
    clip_colours(s)
    for key in "use_gelu", "use_silu":       # the converter says neither
        del s.pairs[key]
    return s


def qwen2_5_omni(tensors, config, kind):
    """Qwen2.5-VL's tower beside one for sounds, another token, and the tower's type under its own key."""
    s = qwen2_5(tensors, config, kind)
    s.marks = ["<|IMAGE|>"]
    s.pairs["projector_type"] = "qwen2.5o"
    s.written = False       # its folders are not read
    s.pairs["has_audio_encoder"] = True
    s.file.add("a.blk.0.attn_q.weight", np.zeros((2, 2)))
    s.file.add("mm.a.fc.weight", np.zeros((2, 2)))
    return s


def qwen3(tensors, config, kind):
    s = Seen(tensors, config, kind, "qwen3vl", "qwen3vl_merger")
    common(s.text, config["text_config"])
    s.text.put("rope.dimension_sections", numbers(6, 5, 5, 0))
    text_tensors(s, NAMES, TOP)
    qwen(s, "")
    s.colours([0.5] * 3, [0.5] * 3)
    at = s.vision["deepstack_visual_indexes"]
    s.pairs["vision.is_deepstack_layers"] = [i in at for i in range(s.vision["depth"])]
    return s


def one_value_head(s):
    """As many value heads as key heads, since files have those in another order; decays of 1."""
    c, out = s.inner, {}
    keys, dim = c["linear_num_key_heads"], c["linear_value_head_dim"]
    c["linear_num_value_heads"] = keys
    most = 2 * keys * c["linear_key_head_dim"] + keys * dim
    for name, v in s.tensors.items():
        base = name.rpartition(".linear_attn.")[2]
        if base in ("in_proj_qkv.weight", "conv1d.weight"):
            v = v[:most]
        elif base == "in_proj_z.weight":
            v = v[:keys * dim]
        elif base == "out_proj.weight":
            v = v[:, :keys * dim]
        elif base in ("in_proj_a.weight", "in_proj_b.weight", "dt_bias", "A_log"):
            v = v[:keys] * (base != "A_log")
        out[name] = v
    s.tensors = out


DELTA = {"linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
         "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
         "post_attention_layernorm": "post_attention_norm"}


def qwen3_5(tensors, config, kind):
    s = Seen({n: v for n, v in tensors.items() if not n.startswith("mtp.")}, config, kind, "qwen35", "qwen3vl_merger")
    c = s.inner
    c["mtp_num_hidden_layers"] = 0
    one_value_head(s)
    common(s.text, c)
    for key, v in (("full_attention_interval", 4), ("ssm.conv_kernel", 4), ("ssm.state_size", c["linear_key_head_dim"]),
                   ("ssm.group_count", c["linear_num_key_heads"]), ("ssm.time_step_rank", c["linear_num_key_heads"]),
                   ("ssm.inner_size", c["linear_num_key_heads"] * c["linear_value_head_dim"])):
        s.text.put(key, v)
    s.text.pairs = [p for p in s.text.pairs if not p.startswith(text("qwen35.rope.dimension_count"))]
    s.text.put("rope.dimension_count", c["head_dim"] // 4)
    s.text.put("rope.dimension_sections", numbers(*c["rope_parameters"]["mrope_section"], 0))

    def special(s, layer, rest, v):
        to = {"linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}.get(rest)
        if to:
            s.text.add("blk.%d.%s" % (layer, to), -np.exp(v) if to == "ssm_a" else v.reshape(v.shape[0], -1) if v.ndim > 1 else v)
        return to

    def change(name, v):
        return v + np.float32(1) if name.endswith("norm.weight") and "linear_attn" not in name else v
    for name, v in s.tensors.items():
        if name.endswith("conv1d.weight"):      # float32 in files, so its values are those of bfloat16
            s.tensors[name] = (bits(v).astype("<u4") << 16).view("<f4")
    text_tensors(s, {**NAMES, **DELTA}, TOP, change, special)
    qwen(s, "")
    s.colours([0.5] * 3, [0.5] * 3)
    s.pairs["vision.is_deepstack_layers"] = [False] * s.vision["depth"]
    return s


def qwen3_5_one_frame(tensors, config, kind):
    """A tower for single pictures, as weft's key for it says; the other kernel is for programs that want two."""
    name = "model.visual.patch_embed.proj.weight"
    tensors[name] = tensors[name][:, :, :1]
    config["vision_config"]["temporal_patch_size"] = 1
    s = qwen3_5(tensors, config, kind)
    s.pairs["vision.temporal_patch_size"] = 1
    return s


def qwen3_5_made(tensors, config, kind):
    """Beside a projector that llama.cpp's converter wrote of the folder; it says no limits of sizes."""
    s = qwen3_5(tensors, config, "F32")
    s.made = os.path.join(sys.argv[4], "_gguf/models/qwen3_5_vl/mmproj-f32.gguf")
    for limit in "min_pixels", "max_pixels":
        del s.processor[limit], s.pairs["vision.image_" + limit]
    return s


def with_tower(tensors, config):
    """The bundled model with a tower of two blocks instead of its own."""
    for name in [n for n in tensors if n.startswith("model.visual.")]:
        del tensors[name]
    rng, width, inner, hidden = random.Random(1), 32, 64, config["text_config"]["hidden_size"]
    config["vision_config"] = {"depth": 2, "hidden_size": width, "intermediate_size": inner, "num_heads": 2, "patch_size": 16,
                               "out_hidden_size": hidden, "num_position_embeddings": 16, "deepstack_visual_indexes": []}
    shapes = {"patch_embed.proj": (width, 3, 2, 16, 16), "merger.linear_fc1": (4 * width, 4 * width),
              "merger.linear_fc2": (hidden, 4 * width), "merger.norm": (width,)}
    for i in range(2):
        shapes.update({"blocks.%d.%s" % (i, n): s for n, s in (("attn.qkv", (3 * width, width)), ("attn.proj", (width, width)),
                       ("mlp.linear_fc1", (inner, width)), ("mlp.linear_fc2", (width, inner)), ("norm1", (width,)), ("norm2", (width,)))})
    for name, shape in [*shapes.items(), ("pos_embed", (16, width))]:
        n = int(np.prod(shape))
        v = np.array([rng.gauss(len(shape) == 1, 0.3 if len(shape) == 1 else (n // shape[0]) ** -0.5) for _ in range(n)])
        tensors["model.visual.%s.weight" % name] = v.reshape(shape).astype("<f4")
        if name != "pos_embed":
            tensors["model.visual.%s.bias" % name] = np.array([rng.gauss(0, 0.1) for _ in range(shape[0])], "<f4")
    return tensors, config


# ---- Gemma ----

SIGLIP = {"layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
          "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
SIGLIP_TOP = {"vision_model.embeddings.position_embedding.weight": "v.position_embd.weight",
              "vision_model.embeddings.patch_embedding.bias": "v.patch_embd.bias",
              "vision_model.post_layernorm.weight": "v.post_ln.weight", "vision_model.post_layernorm.bias": "v.post_ln.bias"}
GEMMA = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}


def gemma3(tensors, config, kind):
    for name, v in tensors.items():
        if name.endswith("norm.weight") and "post_layernorm" not in name:
            tensors[name] = rounded(v, 4096)
    s = Seen(tensors, config, kind, "gemma3", "gemma3")
    c = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e6, **s.inner}
    config["text_config"] = s.inner = c
    common(s.text, {k: v for k, v in c.items() if k != "rope_scaling"})
    s.text.put("attention.sliding_window", c["sliding_window"])
    s.text.put("rope.scaling.type", "linear")
    s.text.put("rope.scaling.factor", c["rope_scaling"]["factor"])
    text_tensors(s, GEMMA, TOP, lambda name, v: v + np.float32(1) if name.endswith("norm.weight") else v)

    def made(hf, v):
        if hf.endswith("mm_soft_emb_norm.weight"):
            s.file.add("mm.soft_emb_norm.weight", v + np.float32(1))
    s.tower({**SIGLIP_TOP, "vision_model.embeddings.patch_embedding.weight": "v.patch_embd.weight",
             "mm_input_projection_weight": "mm.input_projection.weight"}, SIGLIP, "encoder.layers.", made)
    s.mark("\n\n", "<start_of_image>", "<end_of_image>", "<image_soft_token>", boi_token_index=1, eoi_token_index=2,
           image_token_index=3)
    s.sizes("num_hidden_layers", "num_attention_heads", s.vision["image_size"])
    s.colours([0.5] * 3, [0.5] * 3)
    s.pairs.update({"vision.projector.scale_factor": 2, "vision.attention.layer_norm_epsilon": 1e-6, "use_gelu": True})
    return s


GEMMA4 = {"input_layernorm": "ln1", "post_attention_layernorm": "attn_post_norm", "pre_feedforward_layernorm": "ln2",
          "post_feedforward_layernorm": "ffn_post_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
for n, to in (("self_attn.q", "attn_q"), ("self_attn.k", "attn_k"), ("self_attn.v", "attn_v"), ("self_attn.o", "attn_out"),
              ("mlp.gate", "ffn_gate"), ("mlp.up", "ffn_up"), ("mlp.down", "ffn_down")):
    GEMMA4[n + "_proj"] = GEMMA4[n + "_proj.linear"] = to
GEMMA4_TEXT = {**GEMMA, "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"}


def pixels(v):
    p = int((v.shape[1] // 3) ** 0.5)
    return v.reshape(v.shape[0], p, p, 3).transpose(0, 3, 1, 2)


def gemma4_text(s):
    c = s.inner
    local = [t == "sliding_attention" for t in c["layer_types"]]
    common(s.text, {**c, "rope_parameters": {"rope_theta": 1e6}, "head_dim": c["global_head_dim"]})
    own = ("attention.head_count_kv", "feed_forward_length")
    s.text.pairs = [p for p in s.text.pairs if not p.startswith(tuple(text("gemma4." + k) for k in own))]
    whole = c.get("num_global_key_value_heads") or c["num_key_value_heads"]
    s.text.put("attention.head_count_kv", numbers(*[c["num_key_value_heads"] if w else whole for w in local]))
    first = len(local) - c["num_kv_shared_layers"]
    s.text.put("feed_forward_length", numbers(*[c["intermediate_size"] * (1 + (c["use_double_wide_mlp"] and i >= first)) for i in range(len(local))]))
    s.text.put("attention.sliding_window", c["sliding_window"])
    s.text.put("attention.sliding_window_pattern", local)
    s.text.put("attention.shared_kv_layers", c["num_kv_shared_layers"])
    s.text.put("attention.key_length_swa", c["head_dim"])
    s.text.put("attention.value_length_swa", c["head_dim"])
    s.text.put("rope.freq_base_swa", 10000.0)
    s.text.put("embedding_length_per_layer_input", c["hidden_size_per_layer_input"])
    s.text.put("final_logit_softcapping", c["final_logit_softcapping"])
    turns = c["global_head_dim"] // 8
    s.text.add("rope_freqs.weight", [1.0] * turns + [1e30] * (c["global_head_dim"] // 2 - turns))

    def special(s, layer, rest, v):
        if rest == "layer_scalar":
            s.text.add("blk.%d.layer_output_scale.weight" % layer, v)
        return rest == "layer_scalar"
    text_tensors(s, GEMMA4_TEXT, {**TOP, "model.embed_tokens_per_layer": "per_layer_token_embd",
                 "model.per_layer_model_projection": "per_layer_model_proj",
                 "model.per_layer_projection_norm": "per_layer_proj_norm"}, special=special)


def gemma4(tensors, config, kind):
    s = Seen(tensors, config, kind, "gemma4", "gemma4v")
    v = s.vision
    gemma4_text(s)

    def made(hf, v):
        if hf.endswith("patch_embedder.input_proj.weight"):
            s.add(s.file, "v.patch_embd.weight", pixels(v))
    s.tower({"patch_embedder.position_embedding_table": "v.position_embd.weight", "vision_tower.std_bias": "v.std_bias",
             "vision_tower.std_scale": "v.std_scale", "embedding_projection.weight": "mm.input_projection.weight"},
            GEMMA4, "vision_tower.encoder.layers.", made)
    s.mark("<|image>", "<image|>", "<|image|>", image_token_id=2)
    s.sizes("num_hidden_layers", "num_attention_heads", 224)
    del v["default_output_length"]      # no key says it
    s.processor = {"image_processor": {"do_normalize": False}}
    s.pairs.update({"vision.image_mean": [0.0] * 3, "vision.image_std": [1.0] * 3, "vision.attention.layer_norm_epsilon": 1e-6})
    s.pairs["vision.projector_type"] = s.pairs.pop("projector_type")
    s.file.add("a.pre_encode.out.weight", np.zeros((2, 2)))      # beside a tower for sounds
    return s


CONFORMER = {"norm_pre_attn": "attn_pre_norm", "norm_post_attn": "attn_post_norm", "norm_out": "ln2", "self_attn.relative_k_proj": "attn_k_rel",
             "lconv1d.pre_layer_norm": "conv_norm", "lconv1d.conv_norm": "norm_conv", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.post": "attn_out", "lconv1d.linear_start": "conv_pw1", "lconv1d.linear_end": "conv_pw2"}
for n, to in ("1", ""), ("2", "_1"):
    CONFORMER.update({"feed_forward%s.%s" % (n, a): b + to for a, b in (("pre_layer_norm", "ffn_norm"), ("post_layer_norm", "ffn_post_norm"),
                      ("ffw_layer_1", "ffn_up"), ("ffw_layer_2", "ffn_down"))})
CONFORMER.update({n + ".linear": to for n, to in CONFORMER.items()})
CONFORMER_TOP = {"audio_tower.output_proj.weight": "a.pre_encode.out.weight", "audio_tower.output_proj.bias": "a.pre_encode.out.bias",
                 "embed_audio.embedding_projection.weight": "mm.a.input_projection.weight",
                 "input_proj_linear.weight": "a.input_projection.weight"}


def softplus(x):
    return np.log1p(np.exp(x.astype("<f8"))).astype("<f4")


def unsoftplus(y):
    y = y.astype("<f8")
    return (y + np.log(-np.expm1(-y))).astype("<f4")


def gemma4_hears(tensors, config, kind):
    """With the tower for sounds of another golden folder, and a projection as wide as this text."""
    ear = os.path.join(sys.argv[4], "gemma4_sound/hf-bf16")
    heard = {n: v for n, v in all_tensors(ear).items() if "audio" in n}
    with open(os.path.join(ear, "config.json")) as f:
        config["audio_config"] = c = json.load(f)["audio_config"]
    last = "model.embed_audio.embedding_projection.weight"
    heard[last] = np.random.default_rng(2).normal(size=(config["text_config"]["hidden_size"], heard[last].shape[1])).astype("<f4")
    s = gemma4(tensors, config, kind)
    s.file.tensors = [t for t in s.file.tensors if not t[0].startswith("a.")]
    for name, v in sorted(heard.items()):
        at = re.search(r"layers\.(\d+)\.(.*)\.(\w+)$", name)
        block = at and "a.blk.%s." % at[1]
        conv = re.search(r"layer(\d)\.(conv|norm)\.weight$", name)
        if name.endswith("per_dim_scale"):
            raised = softplus(v)
            heard[name] = unsoftplus(raised)        # which is not v to the last bit
            s.file.add(block + "per_dim_scale.weight", raised)
        elif name.endswith("depthwise_conv1d.weight"):
            s.file.add(block + "conv_dw.weight", v.reshape(v.shape[0], -1))
        elif at:
            s.add(s.file, block + CONFORMER[at[2]] + "." + at[3], v if v.ndim else v.reshape(1))
        elif conv:
            s.file.add("a.conv1d.%s.%sweight" % (conv[1], "norm." * (conv[2] == "norm")), v)
        else:
            s.add(s.file, next(to for hf, to in CONFORMER_TOP.items() if name.endswith(hf)), v)
    tensors.update(heard)
    s.mark("<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>", image_token_id=2, boa_token_id=3, eoa_token_id=4,
           audio_token_id=5)
    s.sounds = True
    s.pairs.update({"has_audio_encoder": True, "audio.projector_type": "gemma4a", "audio.num_mel_bins": 128,
                    "audio.embedding_length": c["hidden_size"], "audio.feed_forward_length": 4 * c["hidden_size"],
                    "audio.block_count": c["num_hidden_layers"], "audio.attention.head_count": c["num_attention_heads"],
                    "audio.attention.layer_norm_epsilon": 1e-6, "audio.projection_dim": config["text_config"]["hidden_size"]})
    return s


def planes(v):
    """Columns of patches, colour by colour."""
    n = v.shape[-1] // 3
    return v.reshape(-1, n, 3).swapaxes(1, 2).reshape(v.shape)


def gemma4_unified(tensors, config, kind):
    """A patch and a frame are a matrix away from a row; no block, and sounds in the same file."""
    many_rows(tensors, config["text_config"], ("model.language_model.embed_tokens.weight",))
    s = Seen(tensors, config, kind, "gemma4", "gemma4uv")
    gemma4_text(s)
    at, v = "model.vision_embedder.", s.vision
    tensors[at + "pos_embedding"] = np.concatenate([tensors[at + "pos_embedding"]] * 15)     # for as many patches as by default
    for i, name in enumerate(("patch_ln1", "patch_ln2", "pos_norm")):
        for k in "weight", "bias":
            x = tensors["%s%s.%s" % (at, name, k)]
            s.file.add("v.patch_norm.%d.%s" % (i + 1, k), x if i else planes(x))
    s.add(s.file, "v.patch_embd.weight", planes(tensors[at + "patch_dense.weight"]))
    s.file.add("v.patch_embd.bias", tensors[at + "patch_dense.bias"])
    s.file.add("v.position_embd.weight", tensors[at + "pos_embedding"].swapaxes(0, 1))
    s.add(s.file, "mm.input_projection.weight", tensors["model.embed_vision.embedding_projection.weight"])
    s.add(s.file, "mm.a.input_projection.weight", tensors["model.embed_audio.embedding_projection.weight"])
    s.mark("<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>", image_token_id=2, boa_token_id=3, eoa_token_index=4,
           audio_token_id=5)
    s.sounds = True
    del v["num_soft_tokens"]    # no key says it
    v["mm_posemb_size"] *= 15
    s.processor = {"image_processor": {"do_normalize": False}}
    s.pairs = {"has_vision_encoder": True, "has_audio_encoder": True, "vision.projector_type": "gemma4uv", "audio.projector_type": "gemma4ua",
               "vision.block_count": 0, "vision.feed_forward_length": 0, "vision.attention.head_count": 0,
               "vision.embedding_length": v["mm_embed_dim"], "vision.patch_size": v["patch_size"],
               "vision.projector.scale_factor": v["pooling_kernel_size"], "vision.attention.layer_norm_epsilon": 1e-6,
               "vision.projection_dim": s.inner["hidden_size"], "audio.block_count": 0}
    return s


# ---- LFM2, Pixtral ----

LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
        "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up"}


def lfm2(tensors, config, kind):
    for name, v in tensors.items():
        if name.endswith("conv.conv.weight"):       # float32 in files
            tensors[name] = (bits(v).astype("<u4") << 16).view("<f4")
    s = Seen(tensors, config, kind, "lfm2", "lfm2")
    c = s.inner
    common(s.text, {**c, "rms_norm_eps": c["norm_eps"]})
    s.text.pairs = [p for p in s.text.pairs if not p.startswith(text("lfm2.attention.head_count_kv"))]
    s.text.put("attention.head_count_kv", numbers(*[c["num_key_value_heads"] * (t != "conv") for t in c["layer_types"]]))
    s.text.put("shortconv.l_cache", c["conv_L_cache"])

    def special(s, layer, rest, v):
        if rest == "conv.conv.weight":
            s.text.add("blk.%d.shortconv.conv.weight" % layer, v.reshape(v.shape[0], -1))
        return rest == "conv.conv.weight"
    text_tensors(s, LFM2, {"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm"}, special=special)

    def made(hf, v):
        if hf.endswith("patch_embedding.weight"):
            s.add(s.file, "v.patch_embd.weight", pixels(v))
    s.tower({**SIGLIP_TOP, "layer_norm.weight": "mm.input_norm.weight", "layer_norm.bias": "mm.input_norm.bias",
             **{"linear_%d.%s" % (i, k): "mm.%d.%s" % (i, k) for i in (1, 2) for k in ("weight", "bias")}},
            SIGLIP, "encoder.layers.", made)
    s.mark("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<|img_row_1_col_1|>", image_token_id=0)
    for member in ("do_image_splitting", "max_image_tokens", "max_pixels_tolerance", "max_tiles", "min_image_tokens", "min_tiles",
                   "tile_size", "use_thumbnail"):
        del config[member]      # no key says it
    s.sizes("num_hidden_layers", "num_attention_heads", 256)
    s.colours([0.5] * 3, [0.5] * 3)
    s.pairs.update({"vision.projector.scale_factor": 2, "vision.attention.layer_norm_epsilon": 1e-6})
    return s


PIXTRAL = {"attention_norm": "ln1", "ffn_norm": "ln2", "attention.q_proj": "attn_q", "attention.k_proj": "attn_k",
           "attention.v_proj": "attn_v", "attention.o_proj": "attn_out", "feed_forward.gate_proj": "ffn_gate",
           "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down"}


def pixtral(tensors, config, kind, merge=2):
    s = Seen(tensors, config, kind, "llama", "pixtral")
    c = {"num_attention_heads": 32, "num_key_value_heads": 8, **s.inner}
    common(s.text, c)

    def turned(name, v):
        return paired(v, c["num_key_value_heads" if "k_proj" in name else "num_attention_heads"]) if "q_proj" in name or "k_proj" in name else v
    text_tensors(s, NAMES, TOP, turned)

    def made(hf, v):
        at = re.search(r"vision_tower\.transformer\.layers\.(\d+)\.attention\.([qk])_proj\.weight$", hf)
        if at:
            s.add(s.file, "v.blk.%s.attn_%s.weight" % (at[1], at[2]), paired(v, s.vision["num_attention_heads"]))
        return bool(at)
    s.tower({"vision_tower.patch_conv.weight": "v.patch_embd.weight", "vision_tower.ln_pre.weight": "v.pre_ln.weight",
             "projector.norm.weight": "mm.input_norm.weight", "patch_merger.merging_layer.weight": "mm.patch_merger.weight",
             **{"linear_%d.%s" % (i, k): "mm.%d.%s" % (i, k) for i in (1, 2) for k in ("weight", "bias")}}, PIXTRAL, "transformer.layers.", made)
    s.file.add("v.token_embd.img_break", np.zeros(c["hidden_size"]))
    s.mark("[IMG]", "[IMG_BREAK]", "[IMG_END]", image_token_index=0)
    s.sizes("num_hidden_layers", "num_attention_heads", s.vision["image_size"])
    clip_colours(s)
    s.pairs.update({"vision.attention.layer_norm_epsilon": 1e-5, "use_silu": True})
    if merge > 1:
        s.pairs["vision.spatial_merge_size"] = merge
    return s


def pixtral_12b(tensors, config, kind):
    """Without the matrix that merges patches."""
    many_rows(tensors, config["text_config"], ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"))
    return pixtral(tensors, config, kind, merge=1)


# ---- compared ----

FAMILIES = [(qwen3_5_made, "../qwen3_5_vl"), (qwen2_5, "qwen2_5_vl"), (qwen2_5_apart, "qwen2_5_vl"), (qwen2_5_old, "qwen2_5_vl"),
            (qwen2_5_omni, "qwen2_5_vl"), (qwen3, "qwen3_vl"), (gemma3, "gemma3"),
            (gemma4_hears, "gemma4_e"), (gemma4, "gemma4_dense"),
            (gemma4_unified, "../gemma4_unified"), (lfm2, "lfm2_vl"), (pixtral, "mistral3")]
TREE_FAMILIES = [(pixtral_12b, "pixtral"), (qwen2_vl, "qwen2_vl")]      # in the tree


def bmp(path, w, h):
    rows = random.Random(2).randbytes(h * (3 * w + -3 * w % 4))
    with open(path, "wb") as f:
        f.write(b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + len(rows), 0, 54, 40, w, h, 1, 24, 0, len(rows), 0, 0, 0, 0) + rows)
    return path


def tone(path):
    with wave.open(path, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(16000)
        w.writeframes((np.sin(np.arange(5000) * 0.2) * 9000).astype("<i2").tobytes())
    return path


def logits(weft, model, ids, arith, pictures, *more):
    out = ids + ".logits"
    given = [x for p in pictures for x in ("--sound" if p.endswith(".wav") else "--image", p)]
    p = subprocess.run([weft, "logits", model, "--ids", ids, "--arith", arith, "--out", out, "--threads", "2", *given, *more],
                       capture_output=True)
    if p.returncode or b"warn" in p.stderr.lower():
        return None, p.stderr.decode()
    with open(out, "rb") as f:
        return f.read(), p.stderr.decode()


def written(weft, folder, kind):
    """The folder's text and tower as weft itself writes them, in a folder; or why not."""
    own = folder + "-own"
    os.mkdir(own)
    p = subprocess.run([weft, "quantize", folder, "--type", kind, "--out", os.path.join(own, "model.gguf"),
                        "--mmproj-out", os.path.join(own, "mmproj-model.gguf")], capture_output=True)
    return own, p.stderr.decode() if p.returncode or b"warn" in p.stderr.lower() else None


def own_kernel(how, s, arith):
    """In files that weft writes the patch kernel is F32, which serving arithmetic multiplies otherwise than the folder's bfloat16."""
    return how == "written by weft" and s.kind == "BF16" and arith == "fast"


def near(a, b):
    """Logits, most of which differ by less than a hundredth of the largest."""
    if a is None or len(a) != len(b):
        return False
    n = struct.unpack("<Q", a[:8])[0]
    a, b = (np.frombuffer(x[8 + n:], "<f4") for x in (a, b))
    return np.sqrt(((a - b) ** 2).mean()) < 0.01 * np.abs(b).max()


def check(weft, tmp, s, name, kind, pictures):
    """The folder; the projector beside the text in a folder; and by its name."""
    folder, files, ids = (os.path.join(tmp, "%s-%s-%s" % (name, kind, x)) for x in ("folder", "files", "ids"))
    beside, alone = os.path.join(files, "mmproj-%s.gguf" % kind), os.path.join(tmp, "%s-%s.gguf" % (name, kind))
    os.mkdir(folder)
    os.mkdir(files)
    s.write(folder, os.path.join(files, "model.gguf"), beside)
    os.symlink(os.path.join(files, "model.gguf"), alone)
    mark = s.config.get("boi_token_index") or s.config.get("image_token_id") or s.config.get("image_token_index")
    pictures = pictures + [tone(os.path.join(tmp, "tone.wav"))] * s.sounds
    with open(ids, "w") as f:
        json.dump([5, 6, 7] + [x for p in pictures for x in (s.config["audio_token_id"] if p.endswith(".wav") else mark, 8, 9)], f)
    ways = [("beside", files, ()), ("named", alone, ("--mmproj", s.made or beside))]
    if s.written:
        own, why = written(weft, folder, s.kind)
        if why:
            return "weft quantize: " + why
        ways.append(("written by weft", own, ()))
    for arith in "f32", "fast":
        want, why = logits(weft, folder, ids, arith, pictures)
        for how, model, more in ways:
            got, why_not = logits(weft, model, ids, arith, pictures, *more)
            if want is None or got != want and not (own_kernel(how, s, arith) and near(got, want)):
                return "%s, %s: %s" % (arith, how, why or why_not or "other bits")
        if logits(weft, folder, ids, arith, pictures[::-1])[0] == want:
            return "%s: pictures make no difference" % arith
    return None


def main():
    weft, bundled, golden = sys.argv[1:4]
    shared = sys.argv[4] if len(sys.argv) > 4 else ""
    pictures = [os.path.join(golden, "rgb.png"), os.path.join(golden, "plain.jpg")]
    quick = "WEFT_TEST_QUICK" in os.environ  # a build with sanitizers
    failed = 0
    if not os.path.exists(os.path.join(bundled, "model.safetensors")):
        print("skipped: %s has no model.safetensors" % bundled)
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        large = [bmp(os.path.join(tmp, "large.bmp"), 790, 700), pictures[0]]
        tree = [(family, os.path.join(golden, "..", name, "hf-bf16")) for family, name in TREE_FAMILIES]
        only = sys.argv[5:]
        for family, name in [(qwen3_5, bundled), (qwen3_5_one_frame, bundled)] + tree + FAMILIES:
            if only and family.__name__ not in only:
                continue
            folder = name if os.path.isdir(name) else os.path.join(shared, "_vision2", name, "hf-f32")
            if name.startswith("../gemma4"):
                folder = os.path.join(shared, "_vision2", name, "hf-bf16")
            if not os.path.isdir(folder):
                print("skipped: no %s" % folder)
                continue
            for kind in ("BF16",) if quick else ("F32", "BF16"):
                with open(os.path.join(folder, "config.json")) as f:
                    config = json.load(f)
                tensors = all_tensors(folder)
                if name == bundled:
                    tensors, config = with_tower(tensors, config)
                s = family(tensors, config, kind)
                short = os.path.basename(name.removesuffix("/hf-bf16"))
                why = check(weft, tmp, s, "%s-%s" % (family.__name__, short), kind, large if family is lfm2 else pictures)
                failed += why is not None
                print("FAIL" if why else "ok  ", family.__name__, short, kind, why or "")
    print("%d failed" % failed)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
