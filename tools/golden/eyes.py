#!/usr/bin/env python3
"""Makes tiny models that see, with random weights, pictures, and what a naive forward in float64 gives: tools/golden/eyes.py OUT [FAMILY...]

OUT/FAMILY has images/*.png, whose sizes are whole patches, so that nothing is resized; hf-bf16/ with config.json,
preprocessor_config.json, model.safetensors (bf16, Hugging Face's names) and vision.safetensors: NAME.vision_embeds, the vectors that
stand for a picture, and of each prompt input_ids, prompt_logits, greedy_ids and step_logits, whose row 0 is that of the last token;
and vision.json: which pictures a prompt has, and of many sizes of a picture the rows of the grid.  Written from Hugging Face's
semantics and not from weft's C, so that the two check each other.
"""
import json
import math
import os
import random
import struct
import sys
import zlib

import numpy as np

from make import write_safetensors
from naive import bf16

VOCAB, STEPS = 64, 12
CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
erf = np.vectorize(math.erf)


# ---- parts ----

def rms(x, gain, eps):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) * gain


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def turn(x, angle):
    """x [rows][heads][d]; halves of a head are pairs; angle [rows][d / 2]"""
    half = x.shape[-1] // 2
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def attend(q, k, v, seen):
    """[rows][heads][d]; queries share keys; seen [rows][rows]"""
    share, out = q.shape[1] // k.shape[1], []
    for h in range(q.shape[1]):
        z = q[:, h] @ k[:, h // share].T / math.sqrt(q.shape[-1])
        z = np.where(seen, z, -np.inf)
        p = np.exp(z - z.max(-1, keepdims=True))
        out.append(p / p.sum(-1, keepdims=True) @ v[:, h // share])
    return np.concatenate(out, -1)


def heads(x, n):
    return x.reshape(len(x), n, -1)


def text(w, c, x, angle, bias=False):
    """Logits of rows x of a llama, a mistral or a qwen2, whose angles are [rows][head / 2]."""
    n, m, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    rows = np.arange(len(x))
    seen = rows[None] <= rows[:, None]
    for i in range(c["num_hidden_layers"]):
        at = "layers.%d." % i
        u = rms(x, w[at + "input_layernorm.weight"], eps)
        q, k, v = (heads(u @ w[at + "self_attn.%s_proj.weight" % s].T + (w[at + "self_attn.%s_proj.bias" % s] if bias else 0), y)
                   for s, y in (("q", n), ("k", m), ("v", m)))
        x = x + attend(turn(q, angle), turn(k, angle), v, seen) @ w[at + "self_attn.o_proj.weight"].T
        u = rms(x, w[at + "post_attention_layernorm.weight"], eps)
        x = x + (silu(u @ w[at + "mlp.gate_proj.weight"].T) * (u @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return rms(x, w["norm.weight"], eps) @ w["lm_head.weight"].T


def text_shapes(c, prefix, head, bias=False):
    h, d, n, m = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    t = {prefix + "embed_tokens.weight": [VOCAB, h], prefix + "norm.weight": [h], head: [VOCAB, h]}
    for i in range(c["num_hidden_layers"]):
        at = prefix + "layers.%d." % i
        t[at + "input_layernorm.weight"] = t[at + "post_attention_layernorm.weight"] = [h]
        for s, k in (("q", n), ("k", m), ("v", m)):
            t[at + "self_attn.%s_proj.weight" % s] = [k * d, h]
            if bias:
                t[at + "self_attn.%s_proj.bias" % s] = [k * d]
        t[at + "self_attn.o_proj.weight"] = [h, n * d]
        for s in "gate", "up":
            t[at + "mlp.%s_proj.weight" % s] = [c["intermediate_size"], h]
        t[at + "mlp.down_proj.weight"] = [h, c["intermediate_size"]]
    return t


def under(w, prefix):
    return {n[len(prefix):]: v for n, v in w.items() if n.startswith(prefix)}


def normalised(rgb, mean, std):
    return (rgb / 255.0 - np.array(mean)) / np.array(std)


# ---- Pixtral 12B, a llava ----

def pixtral_size(w, h, longest, unit):
    """What PixtralImageProcessor resizes to, in units."""
    ratio = max(w / longest, h / longest)
    if ratio > 1:
        w, h = math.floor(w / ratio), math.floor(h / ratio)
    return (w - 1) // unit + 1, (h - 1) // unit + 1


def pixtral_tower(w, config, rgb):
    v, p = config["vision_config"], config["vision_config"]["patch_size"]
    rows, cols, n, d = rgb.shape[0] // p, rgb.shape[1] // p, v["num_attention_heads"], v["head_dim"]
    x = normalised(rgb, *CLIP).transpose(2, 0, 1).reshape(3, rows, p, cols, p).transpose(1, 3, 0, 2, 4).reshape(rows * cols, -1)
    x = rms(x @ w["vision_tower.patch_conv.weight"].reshape(v["hidden_size"], -1).T, w["vision_tower.ln_pre.weight"], 1e-5)
    f = v["rope_theta"] ** (-np.arange(0, d, 2) / d)
    row, col = np.divmod(np.arange(rows * cols), cols)
    angle = np.concatenate([np.outer(row, f[::2]), np.outer(col, f[1::2])], -1)
    for i in range(v["num_hidden_layers"]):
        t = under(w, "vision_tower.transformer.layers.%d." % i)
        u = rms(x, t["attention_norm.weight"], 1e-5)
        q, k, y = (heads(u @ t["attention.%s_proj.weight" % s].T, n) for s in "qkv")
        x = x + attend(turn(q, angle), turn(k, angle), y, np.full((len(x),) * 2, True)) @ t["attention.o_proj.weight"].T
        u = rms(x, t["ffn_norm.weight"], 1e-5)
        up = silu(u @ t["feed_forward.gate_proj.weight"].T) * (u @ t["feed_forward.up_proj.weight"].T)
        x = x + up @ t["feed_forward.down_proj.weight"].T
    t = under(w, "multi_modal_projector.")
    return gelu(x @ t["linear_1.weight"].T + t["linear_1.bias"]) @ t["linear_2.weight"].T + t["linear_2.bias"]


IMG, IMG_BREAK, IMG_END = 10, 12, 13     # Qwen's mark of an image's row is 10 too


def pixtral():
    """As the released checkpoint says it: what is a class's default is left out."""
    said = {"head_dim": 16, "hidden_size": 48, "intermediate_size": 64, "model_type": "mistral", "num_hidden_layers": 2,
            "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "sliding_window": None, "vocab_size": VOCAB}
    vision = {"head_dim": 16, "hidden_act": "silu", "hidden_size": 48, "image_size": 64, "intermediate_size": 80,
              "model_type": "pixtral", "num_attention_heads": 3, "num_hidden_layers": 2, "patch_size": 4, "rope_theta": 10000.0}
    config = {"architectures": ["LlavaForConditionalGeneration"], "image_seq_length": 1, "image_token_index": IMG, "model_type": "llava",
              "projector_hidden_act": "gelu", "text_config": said, "torch_dtype": "bfloat16", "vision_config": vision,
              "vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
    processor = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": CLIP[0],
                 "image_std": CLIP[1], "image_processor_type": "PixtralImageProcessor", "patch_size": {"height": 4, "width": 4},
                 "resample": 3, "size": {"longest_edge": 64}}
    c = dict(said, num_attention_heads=32, num_key_value_heads=8)
    h, out = vision["hidden_size"], said["hidden_size"]
    t = text_shapes(c, "language_model.model.", "language_model.lm_head.weight")
    t.update({"vision_tower.patch_conv.weight": [h, 3, 4, 4], "vision_tower.ln_pre.weight": [h],
              "multi_modal_projector.linear_1.weight": [out, h], "multi_modal_projector.linear_1.bias": [out],
              "multi_modal_projector.linear_2.weight": [out, out], "multi_modal_projector.linear_2.bias": [out]})
    for i in range(vision["num_hidden_layers"]):
        at = "vision_tower.transformer.layers.%d." % i
        t[at + "attention_norm.weight"] = t[at + "ffn_norm.weight"] = [h]
        for s in "qkvo":
            t[at + "attention.%s_proj.weight" % s] = [h, h]
        for s in "gate", "up":
            t[at + "feed_forward.%s_proj.weight" % s] = [vision["intermediate_size"], h]
        t[at + "feed_forward.down_proj.weight"] = [h, vision["intermediate_size"]]

    def forward(w, ids, vectors, grids):
        x = w["language_model.model.embed_tokens.weight"][ids]
        x[np.array(ids) == IMG] = np.concatenate(vectors)
        angle = np.outer(np.arange(len(ids)), c["rope_theta"] ** (-np.arange(0, 16, 2) / 16))
        return text({**under(w, "language_model.model."), "lm_head.weight": w["language_model.lm_head.weight"]}, c, x, angle)

    def layout(cols, rows):
        return [i for r in range(rows) for i in [IMG] * cols + [IMG_END if r == rows - 1 else IMG_BREAK]]
    return {"config": config, "processor": processor, "shapes": t, "forward": forward, "unit": 4, "layout": layout,
            "tower": lambda w, rgb: pixtral_tower(w, config, rgb), "size": lambda w, h: pixtral_size(w, h, 64, 4)}


# ---- Qwen2-VL ----

def qwen_size(w, h, unit, least, most):
    """What Qwen2VLImageProcessor resizes to, in units."""
    a, b = round(w / unit), round(h / unit)
    if a * b * unit ** 2 > most:
        by = math.sqrt(w * h / most)
        a, b = math.floor(w / by / unit), math.floor(h / by / unit)
    elif a * b * unit ** 2 < least:
        by = math.sqrt(least / (w * h))
        a, b = math.ceil(w * by / unit), math.ceil(h * by / unit)
    return a, b


def layer_norm(x, gain, bias, eps=1e-6):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) * gain + bias


def qwen2_vl_tower(w, config, rgb):
    v = config["vision_config"]
    w, p, h, n = under(w, "visual."), v["patch_size"], v["embed_dim"], v["num_heads"]
    rows, cols, quarter = rgb.shape[0] // p, rgb.shape[1] // p, v["embed_dim"] // n // 4
    x = normalised(rgb, *CLIP).transpose(2, 0, 1).reshape(3, rows, p, cols, p).transpose(1, 3, 0, 2, 4)
    x = np.repeat(x[:, :, :, None], 2, axis=3).reshape(rows * cols, -1)        # both frames are the picture
    x = x @ w["patch_embed.proj.weight"].reshape(h, -1).T
    f = 10000.0 ** (-np.arange(quarter) / quarter)
    row, col = np.divmod(np.arange(rows * cols), cols)
    angle = np.concatenate([np.outer(row, f), np.outer(col, f)], -1)
    for i in range(v["depth"]):
        t = under(w, "blocks.%d." % i)
        u = layer_norm(x, t["norm1.weight"], t["norm1.bias"])
        q, k, y = (heads(z, n) for z in np.split(u @ t["attn.qkv.weight"].T + t["attn.qkv.bias"], 3, -1))
        seen = np.full((len(x),) * 2, True)
        x = x + attend(turn(q, angle), turn(k, angle), y, seen) @ t["attn.proj.weight"].T + t["attn.proj.bias"]
        u = layer_norm(x, t["norm2.weight"], t["norm2.bias"]) @ t["mlp.fc1.weight"].T + t["mlp.fc1.bias"]
        x = x + (u / (1 + np.exp(-1.702 * u))) @ t["mlp.fc2.weight"].T + t["mlp.fc2.bias"]
    x = layer_norm(x, w["merger.ln_q.weight"], w["merger.ln_q.bias"])
    x = x.reshape(rows // 2, 2, cols // 2, 2, h).transpose(0, 2, 1, 3, 4).reshape(-1, 4 * h)
    x = gelu(x @ w["merger.mlp.0.weight"].T + w["merger.mlp.0.bias"])
    return x @ w["merger.mlp.2.weight"].T + w["merger.mlp.2.bias"]


def qwen_places(ids, grids):
    """Positions by time, row and column: those of a picture begin where it stands, and what follows stands behind its longer side."""
    out, at, i, left = [], 0, 0, list(grids)
    while i < len(ids):
        if ids[i] != IMG:
            out.append((at, at, at))
            at, i = at + 1, i + 1
            continue
        cols, rows = left.pop(0)
        out += [(at, at + r, at + c) for r in range(rows) for c in range(cols)]
        at, i = at + max(rows, cols), i + rows * cols
    return np.array(out)


def qwen2_vl():
    section, head = [2, 3, 3], 16
    vision = {"depth": 2, "embed_dim": 48, "hidden_act": "quick_gelu", "hidden_size": 48, "in_chans": 3, "mlp_ratio": 2, "model_type": "qwen2_vl",
              "num_heads": 3, "patch_size": 4, "spatial_merge_size": 2, "spatial_patch_size": 4, "temporal_patch_size": 2}
    c = {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 2,
         "hidden_act": "silu", "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "sliding_window": 1024,
         "use_sliding_window": False, "vocab_size": VOCAB, "tie_word_embeddings": False}
    config = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "bfloat16", **c,
              "rope_scaling": {"type": "mrope", "mrope_section": section}, "image_token_id": IMG, "vision_start_token_id": 12,
              "vision_end_token_id": 13, "video_token_id": 14, "vision_config": vision}
    processor = {"min_pixels": 64, "max_pixels": 4096, "patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "image_mean": CLIP[0],
                 "image_std": CLIP[1], "image_processor_type": "Qwen2VLImageProcessor"}
    c = dict(c, head_dim=head)
    h, joined = vision["embed_dim"], 4 * vision["embed_dim"]
    t = text_shapes(c, "model.", "lm_head.weight", bias=True)
    t.update({"visual.patch_embed.proj.weight": [h, 3, 2, 4, 4], "visual.merger.ln_q.weight": [h], "visual.merger.ln_q.bias": [h],
              "visual.merger.mlp.0.weight": [joined, joined], "visual.merger.mlp.0.bias": [joined],
              "visual.merger.mlp.2.weight": [c["hidden_size"], joined], "visual.merger.mlp.2.bias": [c["hidden_size"]]})
    for i in range(vision["depth"]):
        at, inner = "visual.blocks.%d." % i, vision["mlp_ratio"] * h
        for name, shape in (("norm1", [h]), ("norm2", [h]), ("attn.qkv", [3 * h, h]), ("attn.proj", [h, h]), ("mlp.fc1", [inner, h]),
                            ("mlp.fc2", [h, inner])):
            t[at + name + ".weight"], t[at + name + ".bias"] = shape, shape[:1]

    def forward(w, ids, vectors, grids):
        x = w["model.embed_tokens.weight"][ids]
        x[np.array(ids) == IMG] = np.concatenate(vectors)
        axis = np.repeat(np.arange(3), section)
        angle = qwen_places(ids, grids)[:, axis] * c["rope_theta"] ** (-np.arange(0, head, 2) / head)
        return text({**under(w, "model."), "lm_head.weight": w["lm_head.weight"]}, c, x, angle, bias=True)
    return {"config": config, "processor": processor, "shapes": t, "forward": forward, "unit": 8,
            "layout": lambda cols, rows: [12] + [IMG] * (cols * rows) + [13],
            "tower": lambda w, rgb: qwen2_vl_tower(w, config, rgb), "size": lambda w, h: qwen_size(w, h, 8, 64, 4096)}


# ---- written ----

FAMILIES = {"pixtral": pixtral, "qwen2_vl": qwen2_vl}
PICTURES = {"wide": (15, 4), "tall": (3, 11), "dot": (1, 1)}       # width, height, in the family's units
PROMPTS = {"one": ["wide"], "two": ["tall", "dot"]}
SIZES = [(8, 8), (9, 7), (12, 12), (37, 53), (64, 64), (65, 64), (64, 66), (200, 64), (640, 480), (481, 641), (1000, 40), (63, 9), (4000, 3999)]


def write_png(path, rgb):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    h, w = rgb.shape[:2]
    rows = b"".join(b"\0" + rgb[y].tobytes() for y in range(h))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def weights(shapes, rng):
    out = {}
    for name, shape in shapes.items():
        n, mean, by = math.prod(shape), 0.0, 1.3 * (math.prod(shape[1:]) or 1) ** -0.5
        if len(shape) == 1 and "norm" in name and name.endswith("weight") or name.endswith(("ln_pre.weight", "ln_q.weight")):
            mean, by = 1.0, 0.2
        elif len(shape) == 1:
            by = 0.3
        elif "embed_tokens" in name:
            by = 1.0
        elif name.endswith("lm_head.weight"):
            by = 3 * shape[1] ** -0.5
        out[name] = np.array([bf16(rng.gauss(mean, by)) for _ in range(n)]).reshape(shape)
        if name.endswith("lm_head.weight"):
            out[name][:16] = 0      # marks are no answers
    return out


def f32(x):
    x = np.ascontiguousarray(x, "<f4")
    return "F32", list(x.shape), x.tobytes()


def i32(x):
    return "I32", [len(x)], np.array(x, "<i4").tobytes()


def prompt(f, w, names, pictures, vectors, rng):
    """The tensors of one prompt, or None where the likeliest token leads by too little."""
    ids = [rng.randrange(16, VOCAB) for _ in range(5)]
    for name in names:
        ids += f["layout"](*PICTURES[name]) + [rng.randrange(16, VOCAB) for _ in range(4)]
    of, grids = [vectors[n] for n in names], [PICTURES[n] for n in names]
    logits = f["forward"](w, ids, of, grids)
    steps, greedy = [logits[-1]], []
    for i in range(STEPS):
        order = np.sort(steps[-1])
        if order[-1] - order[-2] < 0.02:
            return None
        greedy.append(int(steps[-1].argmax()))
        if greedy[-1] < 16:      # a mark
            return None
        if i + 1 < STEPS:
            steps.append(f["forward"](w, ids + greedy, of, grids)[-1])
    if len(set(greedy)) <= STEPS // 2:
        return None
    moved = np.abs(f["forward"](w, ids, [0 * v for v in of], grids)[-1] - logits[-1]).max()
    return {"input_ids": i32(ids), "prompt_logits": f32(logits), "greedy_ids": i32(greedy), "step_logits": f32(steps)}, moved


def make(out, family):
    f = FAMILIES[family]()
    for seed in range(1, 200):
        rng = random.Random("%s %d" % (family, seed))
        w = weights(f["shapes"], rng)
        pictures = {n: np.array([rng.randrange(256) for _ in range(3 * wide * high * f["unit"] ** 2)], "u1")
                    .reshape(high * f["unit"], wide * f["unit"], 3) for n, (wide, high) in PICTURES.items()}
        vectors = {n: f["tower"](w, p) for n, p in pictures.items()}
        made = {p: prompt(f, w, names, pictures, vectors, rng) for p, names in PROMPTS.items()}
        if all(made.values()):
            break
    else:
        sys.exit("%s: no seed gives clear answers" % family)
    folder, images = os.path.join(out, family, "hf-bf16"), os.path.join(out, family, "images")
    os.makedirs(folder, exist_ok=True)
    os.makedirs(images, exist_ok=True)
    for name, rgb in pictures.items():
        write_png(os.path.join(images, name + ".png"), rgb)
    for name, document in (("config.json", f["config"]), ("preprocessor_config.json", f["processor"]),
                           ("vision.json", {"pictures": PROMPTS, "sizes": [[*s, *f["size"](*s)] for s in SIZES]})):
        with open(os.path.join(folder, name), "w") as to:
            json.dump(document, to, indent=1)
            to.write("\n")
    write_safetensors(os.path.join(folder, "model.safetensors"),
                      {n: ("BF16", list(t.shape), (t.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()) for n, t in w.items()})
    golden = {n + ".vision_embeds": f32(v) for n, v in vectors.items()}
    golden.update({"%s.%s" % (p, n): t for p, (tensors, _) in made.items() for n, t in tensors.items()})
    write_safetensors(os.path.join(folder, "vision.safetensors"), golden)
    print("%s: seed %d; vectors up to %.1f; without the pictures, the last logits move by %s"
          % (family, seed, max(np.abs(v).max() for v in vectors.values()), ", ".join("%.1f" % m for _, m in made.values())))


def main():
    for family in sys.argv[2:] or FAMILIES:
        make(sys.argv[1], family)


if __name__ == "__main__":
    main()
