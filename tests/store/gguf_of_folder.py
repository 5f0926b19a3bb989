"""GGUF files of families whose folders lie in tests/golden, as llama.cpp's converter writes them, say what the folders say.

    gguf_of_folder.py WEFT TESTS_GOLDEN [SHARED_GOLDEN]
    gguf_of_folder.py --write FOLDER OUT.gguf       the file alone, to hold against llama.cpp by hand
    gguf_of_folder.py --heads TEST_HEADS FOLDER...  the draft heads of such files guess as the folders' do
    gguf_of_folder.py --written WEFT TEST_HEADS FOLDER...  and those of files that `weft quantize` writes
    gguf_of_folder.py --support WEFT TEST_HEADS FOLDER  DeepSeek V4's in a file of its own, and as mtp.0.* in the model's
    gguf_of_folder.py --apart TEST_HEADS MODEL FOLDER...  draft heads in folders of their own, over MODEL, likewise
    gguf_of_folder.py --assistants TEST_ASSISTANT SHARED NAME...  Gemma 4's, likewise, in SHARED/golden/_draft (WEFT_SHARED names another
                                                    place); those that are not there are left out

What the converter does to names, values and metadata stands here once more, apart from weft's own tables.  All tensors
are written in float32, so the only difference is that of norms, which lose the last bit in w + 1 - 1.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np


def all_tensors(folder):
    out = {}
    for path in glob.glob(os.path.join(folder, "model*.safetensors")):
        out.update(safetensors(path))
    return out


def safetensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name == "__metadata__" or t["dtype"] == "BOOL":
            continue
        a, b = t["data_offsets"]
        if t["dtype"] == "I64":
            v = np.frombuffer(data[a:b], "<i8")
        elif t["dtype"] == "BF16":
            v = (np.frombuffer(data[a:b], "<u2").astype("<u4") << 16).view("<f4")
        else:
            v = np.frombuffer(data[a:b], {"F32": "<f4", "F16": "<f2"}[t["dtype"]]).astype("<f4")
        out[name] = v.reshape(t["shape"])
    return out


class File:
    def __init__(self, arch, tokenizer="none"):
        self.arch, self.pairs, self.tensors = arch, [], []
        self.put("general.architecture", arch)
        if tokenizer:
            self.put("tokenizer.ggml.model", tokenizer)

    def put(self, key, v):
        key = key if key.startswith(("general.", "tokenizer.", "xielu.")) else self.arch + "." + key
        if isinstance(v, bool):
            value = struct.pack("<I?", 7, v)
        elif isinstance(v, int):
            value = struct.pack("<II", 4, v)
        elif isinstance(v, float):
            value = struct.pack("<If", 6, v)
        elif isinstance(v, str):
            value = struct.pack("<I", 8) + text(v)
        elif isinstance(v, bytes):
            value = struct.pack("<IIQ", 9, 5, len(v) // 4) + v
        elif isinstance(v, bytearray):
            value = struct.pack("<IIQ", 9, 0, len(v)) + v
        elif isinstance(v[0], float):
            value = struct.pack("<IIQ", 9, 6, len(v)) + struct.pack("<%df" % len(v), *v)
        elif isinstance(v[0], str):
            value = struct.pack("<IIQ", 9, 8, len(v)) + b"".join(text(s) for s in v)
        else:
            value = struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
        self.pairs.append(text(key) + value)

    def add(self, name, v):
        """As float32; or as bfloat16, where its bits are given as 16-bit numbers; or as integers."""
        v = np.asarray(v)
        self.tensors.append((name, np.ascontiguousarray(v, v.dtype if v.dtype in ("<u2", "<i4", "<i8") else "<f4")))

    def write(self, path):
        at, infos = 0, b""
        for name, v in self.tensors:
            kind = {"<u2": 30, "<i4": 26, "<i8": 27}.get(v.dtype.str, 0)
            infos += text(name) + struct.pack("<I", v.ndim) + struct.pack("<%dQ" % v.ndim, *v.shape[::-1]) + struct.pack("<IQ", kind, at)
            at += -(-v.nbytes // 32) * 32
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.pairs)) + b"".join(self.pairs) + infos
        with open(path, "wb") as f:
            f.write(head + bytes(-len(head) % 32))
            for _, v in self.tensors:
                f.write(v.tobytes() + bytes(-v.nbytes % 32))


def text(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def paired(w, heads):
    """The rows of each head: j and d / 2 + j side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
         "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
         "mlp.shared_expert.down_proj": "ffn_down_shexp", "block_sparse_moe.gate": "ffn_gate_inp"}
AFTER = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
NEXT = {"eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm"}
SHARED = {"mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
          "mlp.shared_experts.down_proj": "ffn_down_shexp", **NEXT,
          "shared_head.norm": "nextn.shared_head_norm", "shared_head.head": "nextn.shared_head_head", "embed_tokens": "nextn.embed_tokens"}
LATENT = {**SHARED, "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
          "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm"}
INDEXER = {"self_attn.indexer.wq_b": "indexer.attn_q_b", "self_attn.indexer.wk": "indexer.attn_k", "self_attn.indexer.k_norm": "indexer.k_norm",
           "self_attn.indexer.weights_proj": "indexer.proj"}
OWN = {
    "glm4moe": {**SHARED, "post_attention_layernorm": "post_attention_norm"},
    "deepseek2": LATENT,
    "deepseek32": {**LATENT, **INDEXER},
    "glm-dsa": {**LATENT, **INDEXER},
    "gemma2": {**AFTER, "pre_feedforward_layernorm": "ffn_norm"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "olmo2": AFTER,
    "exaone4": AFTER,
    "seed_oss": {"post_attention_layernorm": "post_attention_norm"},
    "cohere2moe": SHARED,
    "ernie4_5-moe": SHARED,
    "hunyuan-dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "granitemoe": {"block_sparse_moe.router.layer": "ffn_gate_inp"},
    "afmoe": {**SHARED, **AFTER, "pre_mlp_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm", "self_attn.gate_proj": "attn_gate",
              "mlp.router.gate": "ffn_gate_inp"},
    "mimo2": {"self_attn.attention_sink_bias": "attn_sinks", **NEXT},
    "step35": {"self_attn.g_proj": "attn_gate", "moe.gate": "ffn_gate_inp", "moe.gate_proj": "ffn_gate_exps", "moe.up_proj": "ffn_up_exps",
               "moe.down_proj": "ffn_down_exps", "share_expert.gate_proj": "ffn_gate_shexp", "share_expert.up_proj": "ffn_up_shexp",
               "share_expert.down_proj": "ffn_down_shexp", **NEXT},
    "llama4": {"feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
               "feed_forward.router": "ffn_gate_inp", "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
               "feed_forward.shared_expert.up_proj": "ffn_up_shexp", "feed_forward.shared_expert.down_proj": "ffn_down_shexp"},
    "apertus": {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"},
    "mistral4": LATENT,
    "bailingmoe": {**SHARED, "attention.dense": "attn_output"},
    "bailingmoe3": {**SHARED, **{k.replace("self_attn", "attention"): v for k, v in LATENT.items()}, "attention.dense": "attn_output",
                    "attention.o_proj": "attn_output", "attention.q_proj": "attn_q", "attention.k_proj": "attn_k", "attention.v_proj": "attn_v",
                    "attention.f_proj": "ssm_f_a", "attention.b_proj": "ssm_beta", "attention.q_conv1d": "ssm_conv1d_q",
                    "attention.k_conv1d": "ssm_conv1d_k", "attention.v_conv1d": "ssm_conv1d_v", "attention.o_norm": "ssm_norm",
                    "final_layernorm": "layer_output_norm"},
    "mamba": {"norm": "attn_norm", "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt",
              "mixer.out_proj": "ssm_out"},
}
ARCH = {"mimo_v2_flash": "mimo2", "step3p5": "step35", "llama4_text": "llama4", "bailing_moe": "bailingmoe", "bailing_hybrid": "bailingmoe3",
        "mixtral": "llama", "cohere2_moe": "cohere2moe", "ernie4_5_moe": "ernie4_5-moe", "hunyuan_v1_dense": "hunyuan-dense",
        "falcon_mamba": "mamba", "olmo3": "olmo2", "ministral3": "mistral3", "qwen2_moe": "qwen2moe", "minimax_m2": "minimax-m2",
        "glm4_moe": "glm4moe", "deepseek_v3": "deepseek2",
        "deepseek_v32": "deepseek32", "glm_moe_dsa": "glm-dsa"}
PAIRED = ("smollm3", "granite", "mistral3", "llama", "granitemoe", "arcee")
TOP = {"model.embed_tokens": "token_embd", "model.word_embeddings": "token_embd", "lm_head": "output", "model.norm": "output_norm", "backbone.embeddings": "token_embd",
       "backbone.norm_f": "output_norm"}


def divisors(rope, base, dim):
    ctx, low, high, by = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "factor"))
    out = []
    for i in range(dim // 2):
        wave = 2 * np.pi * base ** (2 * i / dim)
        t = (ctx / wave - low) / (high - low)
        out.append(1.0 if wave < ctx / high else by if wave > ctx / low else 1 / ((1 - t) / by + t))
    return out


def slowed(f, c, rope, dim):
    """The divisors of Llama 3's scaling, and the two lists of longrope."""
    kind = rope.get("rope_type") or rope.get("type")
    if kind == "llama3" and f.arch == "step35":
        whole, half = (divisors(rope, c["rope_theta"][0], n) for n in (dim, dim // 2))
        f.add("rope_freqs.weight", whole if f.older else half + [1.0] * (dim // 2 - len(half)))
    elif kind == "llama3":
        f.add("rope_freqs.weight", divisors(rope, c["rope_theta"], dim))
    if kind == "longrope":
        f.put("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
        f.put("rope.scaling.attn_factor", rope["short_mscale"])
        for which in ("long", "short"):
            f.add("rope_factors_%s.weight" % which, rope[which + "_factor"])


def common(f, c):
    dim = c.get("head_dim") or c["hidden_size"] // c.get("num_attention_heads", 1)
    f.put("block_count", c["num_hidden_layers"] + (0 if f.arch == "ernie4_5-moe" else 1 if f.arch == "mimo2" else c.get("num_nextn_predict_layers", 0)))
    f.put("context_length", c.get("max_position_embeddings", 1 << 20))
    f.put("embedding_length", c["hidden_size"])
    if f.arch == "mamba":
        return mamba_keys(f, c)
    f.put("feed_forward_length", c.get("prefix_dense_intermediate_size") or c.get("intermediate_size_mlp") or c["intermediate_size"])
    if f.arch == "step35":
        return step_keys(f, c, dim)
    f.put("attention.head_count", c["num_attention_heads"])
    if c.get("rms_norm_eps") or c.get("layernorm_epsilon"):
        f.put("attention.layer_norm_rms_epsilon", c.get("rms_norm_eps") or c["layernorm_epsilon"])
    else:
        f.put("attention.layer_norm_epsilon", c["layer_norm_eps"])
    if "kv_lora_rank" in c:
        latent, dim = c["kv_lora_rank"], c["qk_rope_head_dim"]
        if c.get("q_lora_rank"):
            f.put("attention.q_lora_rank", c["q_lora_rank"])
        for key, n in (("head_count_kv", latent_layers(c)), ("kv_lora_rank", latent), ("key_length", latent + dim),
                       ("value_length", latent), ("key_length_mla", c["qk_nope_head_dim"] + dim), ("value_length_mla", c["v_head_dim"])):
            f.put("attention." + key, n)
    else:
        local = c.get("hybrid_layer_pattern")
        f.put("attention.head_count_kv", ints([c["swa_num_key_value_heads" if i else "num_key_value_heads"] for i in local + [1]]) if local else
              c["num_key_value_heads"])
        f.put("attention.key_length", dim)
        f.put("attention.value_length", c.get("v_head_dim", dim))
    f.put("vocab_size", c["vocab_size"])
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    base = float(rope.get("rope_theta", c.get("rope_theta")))
    if f.arch == "hunyuan-dense":
        base *= rope["alpha"] ** (dim / (dim - 2))
    f.put("rope.freq_base", base)
    slowed(f, c, rope, dim)
    f.put("rope.dimension_count", dim if "kv_lora_rank" in c else c.get("rotary_dim") or int(dim * c.get("partial_rotary_factor", 1)))
    if (rope.get("rope_type") or rope.get("type")) == "yarn":
        f.put("rope.scaling.type", "yarn")
        f.put("rope.scaling.factor", float(rope["factor"]))
        f.put("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
        f.put("rope.scaling.yarn_beta_fast", float(rope.get("beta_fast", 32)))
        f.put("rope.scaling.yarn_beta_slow", float(rope.get("beta_slow", 1)))
    return rope


def latent_layers(c):
    """1 for a layer of latent attention, 0 for one of delta rules; the draft head is of the first kind."""
    group, layers = c.get("layer_group_size", 1), c["num_hidden_layers"]
    return ints([(i + 1) % group == 0 or i >= layers // group * group for i in range(layers)] + [1]) if group > 1 else 1


def ints(v):
    return b"".join(struct.pack("<i", n) for n in v)


def step_keys(f, c, dim):
    other = c["attention_other_setting"]
    local = [t == "sliding_attention" for t in c["layer_types"]]
    f.put("attention.head_count", ints([(other if i else c)["num_attention_heads"] for i in local]))
    f.put("attention.head_count_kv", ints([(other if i else c)["num_attention_groups"] for i in local]))
    f.put("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    f.put("attention.key_length", dim)
    f.put("attention.value_length", dim)
    f.put("attention.sliding_window", c["sliding_window"])
    f.put("attention.sliding_window_pattern", local)
    f.put("rope.dimension_count", dim)
    f.put("rope.freq_base", c["rope_theta"][0])
    f.put("rope.freq_base_swa", c["rope_theta"][1])
    mixture(f, c, "moe_num_experts", "moe_top_k", "moe_intermediate_size")
    f.put("expert_shared_feed_forward_length", c["share_expert_dim"])
    f.put("expert_weights_scale", c["moe_router_scaling_factor"])
    f.put("expert_weights_norm", c["norm_expert_weight"])
    f.put("swiglu_clamp_exp", c["swiglu_limits"])
    f.put("swiglu_clamp_shexp", c["swiglu_limits_shared"])
    f.put("nextn_predict_layers", c["num_nextn_predict_layers"])
    slowed(f, c, c["rope_scaling"], dim)
    return {}


def mamba_keys(f, c):
    f.put("feed_forward_length", 0)
    f.put("attention.head_count", 0)
    f.put("attention.layer_norm_rms_epsilon", c["layer_norm_epsilon"])
    f.put("vocab_size", c["vocab_size"])
    f.put("ssm.conv_kernel", c["conv_kernel"])
    f.put("ssm.inner_size", c["intermediate_size"])
    f.put("ssm.state_size", c["state_size"])
    f.put("ssm.time_step_rank", c["time_step_rank"])
    f.put("ssm.dt_b_c_rms", c["model_type"] == "falcon_mamba")
    return {}


def mixture(f, c, count, used, inner):
    f.put("expert_count", c[count])
    f.put("expert_used_count", c[used])
    f.put("expert_feed_forward_length", c[inner])


def common_keys(f, c):
    """Windows, mixtures and factors beside what all have."""
    if f.arch in ("cohere2", "cohere2moe"):
        f.put("logit_scale", c["logit_scale"])
    if f.arch in ("cohere2", "cohere2moe", "afmoe", "exaone4") and c.get("sliding_window"):
        f.put("attention.sliding_window", c["sliding_window"])
        if "layer_types" in c and f.arch in ("cohere2moe", "exaone4"):
            f.put("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]])
    if f.arch in ("phimoe", "granitemoe") or c["model_type"] == "mixtral":
        mixture(f, c, "num_local_experts", "num_experts_per_tok", "intermediate_size")
    if f.arch == "granitemoe":
        for key, member in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                            ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            f.put(key, float(c[member]))
    if f.arch == "olmoe":
        mixture(f, c, "num_experts", "num_experts_per_tok", "intermediate_size")
    if f.arch == "cohere2moe":
        mixture(f, c, "num_experts", "num_experts_per_tok", "intermediate_size")
        f.put("leading_dense_block_count", sum(t == "dense" for t in c["mlp_layer_types"]))
        f.put("expert_weights_norm", c["norm_topk_prob"])
        f.put("expert_gating_func", 2)
    if f.arch == "ernie4_5-moe":
        mixture(f, c, "moe_num_experts", "moe_k", "moe_intermediate_size")
        f.put("interleave_moe_layer_step", c["moe_layer_interval"])
        f.put("leading_dense_block_count", c["moe_layer_start_index"])
    if f.arch == "mimo2":
        mixture(f, c, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
        f.put("nextn_predict_layers", 1)
        f.put("attention.sliding_window", c["sliding_window"])
        f.put("attention.sliding_window_pattern", ints(c["hybrid_layer_pattern"] + [1]))
        f.put("attention.value_scale", c["attention_value_scale"])
        f.put("rope.freq_base_swa", float(c["swa_rope_theta"]))
        f.put("expert_gating_func", 2)
    if f.arch == "llama4":
        mixture(f, c, "num_local_experts", "num_experts_per_tok", "intermediate_size")
        f.put("interleave_moe_layer_step", c["interleave_moe_layer_step"])
    if f.arch == "bailingmoe":
        mixture(f, c, "num_experts", "num_experts_per_tok", "moe_intermediate_size")
        f.put("leading_dense_block_count", c["first_k_dense_replace"])
        f.put("expert_shared_count", c["num_shared_experts"])
        f.put("expert_weights_scale", 1.0)
        f.put("expert_weights_norm", c["norm_topk_prob"])
    if f.arch == "bailingmoe3":
        mixture(f, c, "num_experts", "num_experts_per_tok", "moe_intermediate_size")
        for key, member in (("leading_dense_block_count", "first_k_dense_replace"), ("expert_weights_norm", "norm_topk_prob"),
                            ("expert_group_count", "n_group"), ("expert_group_used_count", "topk_group"), ("kda.head_dim", "head_dim"),
                            ("ssm.conv_kernel", "short_conv_kernel_size"), ("nextn_predict_layers", "num_nextn_predict_layers")):
            f.put(key, c[member])
        f.put("expert_gating_func", 2)
        f.put("expert_weights_scale", float(c["routed_scaling_factor"]))
        f.put("kda.safe_gate", c["kda_safe_gate"])
        f.put("kda.gate_lower_bound", float(c["kda_lower_bound"]))
        for key, member in (("swiglu_clamp_exp", "expert_swiglu_limit_list"), ("swiglu_clamp_shexp", "share_expert_swiglu_limit_list")):
            if c.get(member):
                f.put(key, [float(v or 0) for v in c[member]] + [0.0])
    if f.arch == "afmoe":
        mixture(f, c, "num_experts", "num_experts_per_tok", "moe_intermediate_size")
        f.put("leading_dense_block_count", c["num_dense_layers"])
        f.put("expert_weights_scale", float(c["route_scale"]))


def keys(f, c):
    rope = common(f, c)
    common_keys(f, c)
    if f.arch == "mistral3":
        f.put("rope.scaling.yarn_log_multiplier", rope["mscale_all_dim"])
        f.put("attention.temperature_scale", rope["llama_4_scaling_beta"])
    elif f.arch == "granite":
        f.put("attention.scale", c["attention_multiplier"])
        f.put("embedding_scale", c["embedding_multiplier"])
        f.put("residual_scale", c["residual_multiplier"])
        f.put("logit_scale", c["logits_scaling"])
    elif f.arch == "gemma2":
        f.put("attn_logit_softcapping", c["attn_logit_softcapping"])
        f.put("final_logit_softcapping", c["final_logit_softcapping"])
        f.put("attention.sliding_window", c["sliding_window"])
    elif f.arch == "phi3":
        f.put("attention.sliding_window", c.get("sliding_window") or 0)
        f.put("rope.scaling.original_context_length", c["original_max_position_embeddings"])
    elif f.arch == "olmo2" and c.get("sliding_window"):
        f.put("attention.sliding_window", c["sliding_window"])
        f.put("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]])
    elif f.arch == "qwen2moe":
        f.put("expert_count", c["num_experts"])
        f.put("expert_used_count", c["num_experts_per_tok"])
        f.put("expert_feed_forward_length", c["moe_intermediate_size"])
        f.put("expert_shared_feed_forward_length", c["shared_expert_intermediate_size"])
    elif f.arch == "minimax-m2":
        f.put("expert_count", c["num_local_experts"])
        f.put("expert_used_count", c["num_experts_per_tok"])
        f.put("expert_feed_forward_length", c["intermediate_size"])
        f.put("expert_gating_func", 2)
    elif f.arch in ("glm4moe", "deepseek2", "deepseek32", "glm-dsa", "mistral4"):
        f.put("nextn_predict_layers", c.get("num_nextn_predict_layers", 0))
        f.put("leading_dense_block_count", c["first_k_dense_replace"])
        f.put("expert_count", c["n_routed_experts"])
        f.put("expert_used_count", c["num_experts_per_tok"])
        f.put("expert_shared_count", c["n_shared_experts"])
        f.put("expert_feed_forward_length", c["moe_intermediate_size"])
        f.put("expert_group_count", c["n_group"])
        f.put("expert_group_used_count", c["topk_group"])
        f.put("expert_weights_scale", c["routed_scaling_factor"])
        f.put("expert_weights_norm", c["norm_topk_prob"])
        f.put("expert_gating_func", 1 if f.arch == "mistral4" else 2)
        if "llama_4_scaling_beta" in rope:
            f.put("attention.temperature_scale", rope["llama_4_scaling_beta"])
        if "index_topk" in c:
            for key, member in (("head_count", "index_n_heads"), ("key_length", "index_head_dim"), ("top_k", "index_topk")):
                f.put("attention.indexer." + key, c[member])
        if "indexer_types" in c:
            f.put("attention.indexer.types", [t == "full" for t in c["indexer_types"]])
        if rope.get("mscale_all_dim"):
            f.put("rope.scaling.yarn_log_multiplier", 0.1 * rope["mscale_all_dim"])
    elif f.arch == "qwen3vlmoe":
        f.put("expert_count", c["num_experts"])
        f.put("expert_used_count", c["num_experts_per_tok"])
        f.put("expert_feed_forward_length", c["moe_intermediate_size"])


def add_tensor(f, c, layer, rest, v, experts):
    base, _, kind = rest.rpartition(".")
    own = OWN.get(f.arch, {})
    if ".experts." in base:
        _, _, e, proj = base.rsplit(".", 3)
        which = {"w1": "gate", "w3": "up", "w2": "down"}.get(proj, proj.split("_")[0])
        experts.setdefault("blk.%d.ffn_%s_exps.weight" % (layer, which), {})[int(e)] = v
        return
    if rest.endswith(("input_linear.weight", "output_linear.weight")):
        halves = {"ffn_gate_exps": v[:, : v.shape[1] // 2], "ffn_up_exps": v[:, v.shape[1] // 2 :]} if "input" in rest else {"ffn_down_exps": v}
        for name, part in halves.items():
            f.add("blk.%d.%s.weight" % (layer, name), part)
        return
    if rest.startswith("feed_forward.experts."):
        halves = {"ffn_gate_exps": v[..., :v.shape[2] // 2], "ffn_up_exps": v[..., v.shape[2] // 2:]} if "gate_up" in rest else {"ffn_down_exps": v}
        for name, part in halves.items():
            f.add("blk.%d.%s.weight" % (layer, name), part.swapaxes(1, 2))
        return
    if rest.startswith("mlp.experts."):
        f.add("blk.%d.ffn_%s_exps.weight" % (layer, "gate_up" if "gate_up" in rest else "down"), v)
        return
    if rest == "attention.query_key_value.weight":
        q, kv, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        for name, part in (("q", paired(v[:q * d], q)), ("k", paired(v[q * d:(q + kv) * d], kv)), ("v", v[(q + kv) * d:])):
            f.add("blk.%d.attn_%s.weight" % (layer, name), part)
        return
    if rest == "attention.g_proj.weight":
        f.add("blk.%d.%s.weight" % (layer, "attn_gate" if len(v) == c["num_attention_heads"] else "ssm_g_a"), v)
        return
    if rest in ("attention.A_log", "attention.dt_bias"):
        f.add("blk.%d.%s" % (layer, "ssm_a" if rest.endswith("A_log") else "ssm_dt.bias"), np.exp(v).reshape(-1, 1) if rest.endswith("A_log") else v)
        return
    if rest.startswith("mlp.act_fn."):
        f.xielu.setdefault(rest.rpartition(".")[2], []).append(float(v.reshape(-1)[0]))
        return
    if rest in ("mixer.A_log", "mixer.D"):
        f.add("blk.%d.ssm_%s" % (layer, "d" if rest.endswith("D") else "a"), v if rest.endswith("D") else -np.exp(v))
        return
    if base == "mixer.conv1d" and kind == "weight":
        v = v[:, 0]
    if rest.endswith(("e_score_correction_bias", "mlp.expert_bias", "gate.expert_bias", "moe.router_bias")):
        f.add("blk.%d.exp_probs_b.bias" % layer, v)
        return
    if f.arch in PAIRED and base in ("self_attn.q_proj", "self_attn.k_proj"):
        v = paired(v, c["num_attention_heads"] if base.endswith("q_proj") else c["num_key_value_heads"])
    if base.endswith("kv_b_proj"):
        v = v.reshape(c["num_attention_heads"], -1, c["kv_lora_rank"])
        f.add("blk.%d.attn_k_b.weight" % layer, v[:, :c["qk_nope_head_dim"]].swapaxes(1, 2))
        f.add("blk.%d.attn_v_b.weight" % layer, v[:, c["qk_nope_head_dim"]:])
        return
    if rest == "self_attn.attention_sink_bias":
        base, kind = rest, "weight"
    if base == "mlp.shared_expert_gate":
        v = v.reshape(-1)
    f.add("blk.%d.%s.%s" % (layer, own.get(base) or NAMES[base], kind), v)


def convert(folder, path, arch=None, older=False):
    """older: as an earlier converter wrote the divisors of Step 3.5's rotation."""
    with open(os.path.join(folder, "config.json")) as at:
        c = json.load(at)
    c = c.get("text_config", c)
    f, experts = File(arch or ARCH.get(c["model_type"], c["model_type"])), {}
    f.older, f.xielu = older, {}
    keys(f, c)
    if f.arch.endswith(("vl", "vlmoe")):
        f.put("rope.dimension_sections", b"".join(struct.pack("<i", n) for n in (8, 12, 12, 0)))
    for name, v in sorted(all_tensors(folder).items()):
        name = name.replace("language_model.model.", "model.").replace("model.language_model.", "model.").replace("language_model.lm_head", "lm_head")
        if f.arch in ("gemma", "gemma2", "step35") and name.endswith("norm.weight"):
            v = v + 1
        if name.startswith("model.mtp_"):
            continue
        if name == "lm_head.weight" and c.get("norm_head"):
            v = v / (np.sqrt((v * v).sum(0)) + 1e-7)
        name = name.replace("model.mtp.layers.0.", "model.layers.%d." % c["num_hidden_layers"])
        if name.startswith(("model.layers.", "backbone.layers.")):
            _, _, layer, rest = name.split(".", 3)
            add_tensor(f, c, int(layer), rest, v, experts)
        elif name.rpartition(".")[0] in TOP:
            f.add(TOP[name.rpartition(".")[0]] + "." + name.rpartition(".")[2], v)
    for name, of in f.xielu.items():
        f.put("xielu." + name, of)
    for name, of in experts.items():
        f.add(name, np.stack([of[e] for e in sorted(of)]))
    f.write(path)


# ---- draft heads in files of their own ----

HEAD_TOP = {"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm", "lm_head": "output", "embed_tokens": "token_embd",
            "candidate_selector.predecessor_codebook": "selector_predecessor", "candidate_selector.successor_codebook": "selector_successor",
            "candidate_selector.hidden_projection": "selector_hidden", "markov_head.markov_w1": "markov_w1", "markov_head.markov_w2": "markov_w2",
            "pre_projection": "nextn.pre_projection", "post_projection": "nextn.post_projection", "masked_embedding.centroids": "masked_embd_centroids"}
HEAD_BLOCK = {"hidden_norm": "attn_norm_2", "attention_conv.kernel_projection": "attn_conv_proj", "mlp_conv.kernel_projection": "ffn_conv_proj"}
GEMMA = {**AFTER, "pre_feedforward_layernorm": "ffn_norm", "layer_scalar": "layer_output_scale"}


def i32(*v):
    return struct.pack("<%di" % len(v), *v)


def head_keys(f, c):
    rope = c.get("rope_parameters") or c
    for key, name in (("context_length", "max_position_embeddings"), ("embedding_length", "hidden_size"), ("block_count", "num_hidden_layers"),
                      ("feed_forward_length", "intermediate_size"), ("attention.head_count", "num_attention_heads"),
                      ("attention.head_count_kv", "num_key_value_heads"), ("attention.layer_norm_rms_epsilon", "rms_norm_eps")):
        f.put(key, c[name])
    if f.arch == "gemma4-assistant":
        return
    f.put("attention.key_length", c["head_dim"])
    f.put("rope.freq_base", float(rope["rope_theta"]))
    if c.get("sliding_window"):
        f.put("attention.sliding_window", c["sliding_window"])
        f.put("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]])


def dflash_keys(f, c):
    own = c.get("dflash_config", c)
    f.put("block_size", c.get("block_size") or own["block_size"])
    f.put("tokenizer.ggml.mask_token_id", own["mask_token_id"])
    f.put("target_layers", i32(*(i + 1 for i in own["target_layer_ids"])))
    if "Qwen3DSparkModel" in c["architectures"]:
        f.put("sample_from_anchor", True)
    for key, name in (("conv_kernel_size",) * 2, ("conv_group_size",) * 2, ("selector_rank",) * 2, ("selector_top_k",) * 2,
                      ("embedding_scale", "input_embedding_scale"), ("logit_scale", "output_multiplier"), ("final_logit_softcapping",) * 2):
        if name in own:
            f.put(key, own[name])


def assistant_keys(f, top, c):
    rope = c["rope_parameters"]
    for key, v in (("attention.key_length", c["global_head_dim"]), ("attention.key_length_swa", c["head_dim"]),
                   ("attention.sliding_window", c["sliding_window"]),
                   ("attention.sliding_window_pattern", [t == "sliding_attention" for t in c["layer_types"]]),
                   ("rope.freq_base", rope["full_attention"]["rope_theta"]), ("rope.freq_base_swa", rope["sliding_attention"]["rope_theta"]),
                   ("attention.shared_kv_layers", c["num_hidden_layers"]), ("nextn_predict_layers", c["num_hidden_layers"]),
                   ("embedding_length_out", top["backbone_hidden_size"])):
        f.put(key, v)
    if top["use_ordered_embeddings"]:
        f.put("n_centroids", top["num_centroids"])
        f.put("centroid_top_k", top["centroid_intermediate_top_k"])
    freqs, turning = c["global_head_dim"] // 2, rope["full_attention"]["partial_rotary_factor"]
    f.add("rope_freqs.weight", np.where(np.arange(freqs) < freqs * turning, 1, 1e30))


def convert_head(folder, path, without=None):
    """without: a key or tensor that is left out."""
    with open(os.path.join(folder, "config.json")) as at:
        top = json.load(at)
    c = top.get("transformer_layer_config") or top.get("text_config") or top
    name = top["architectures"][0]
    arch = "eagle3" if "Eagle3" in name else "gemma4-assistant" if "Gemma4" in name else "dflash"
    f = File(arch, None)
    head_keys(f, c)
    if arch == "eagle3":
        f.put("norm_before_residual", top.get("norm_before_residual", False))
        f.put("target_layers", i32(*(top.get("eagle_config") or top)["eagle_aux_hidden_state_layer_ids"]))
    elif arch == "dflash":
        dflash_keys(f, top)
    else:
        assistant_keys(f, top, c)
    for name, v in sorted(all_tensors(folder).items()):
        name = name.replace("midlayer.", "layers.0.").removeprefix("model.")
        if name == "d2t":
            f.add("d2t", v + np.arange(len(v)))
        elif name == "masked_embedding.token_ordering":
            f.add("masked_embd_ordering", v.astype("<i4"))
        elif name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            rest = rest.removesuffix(".weight")
            if arch == "eagle3" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                v = paired(v, c["num_attention_heads" if rest.endswith("q_proj") else "num_key_value_heads"])
            if rest.endswith(".base_kernel"):
                f.add("blk.%s.%s_conv_base" % (layer, "attn" if rest.startswith("att") else "ffn"), v)
                continue
            names = {**NAMES, **HEAD_BLOCK, **(GEMMA if arch == "gemma4-assistant" else {})}
            f.add("blk.%s.%s.weight" % (layer, names[rest]), v)
        elif not name.startswith("confidence_head"):
            f.add(HEAD_TOP[name.removesuffix(".weight")] + ".weight", v)
    f.pairs = [p for p in f.pairs if not without or not p.startswith(text(without))]
    f.tensors = [t for t in f.tensors if t[0] != without]
    f.write(path)


def logits(weft, model, ids):
    out = ids + ".logits"
    p = subprocess.run([weft, "logits", model, "--ids", ids, "--arith", "f32", "--out", out], capture_output=True)
    if p.returncode:
        return None, p.stderr.decode()
    return safetensors(out)["logits"], ""


# What a file cannot say is changed in the folder: SmolLM 3's layers without rotation are every fourth, Gemma 2's scores
# are scaled by the size of a head.
CHANGED = {"smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4}, "gemma2": {"query_pre_attn_scalar": 16},
           "phimoe": {"router_jitter_noise": 0.01}, "falcon_mamba": {"mixer_rms_eps": 1e-5},
           # other divisors for a whole head's frequencies than for those of a half
           "step3p5": {"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 1024, "low_freq_factor": 1.0,
                                        "high_freq_factor": 32.0}},
           "llama4_text": {"attention_chunk_size": None, "attn_scale": None, "floor_scale": None}}


def folders(tree, shared):
    """Folders, and the architecture of the file where it is not the family's own."""
    for name in ("gemma2", "glm4", "granite", "olmo2", "phi3", "qwen2_moe", "smollm3", "glm4_moe_mtp", "deepseek_mtp", "dsa_mtp", "bailing_v3_mtp"):
        yield os.path.join(tree, name, "hf-bf16"), None
    common = ("mixtral", "cohere2", "cohere2_moe", "seed_oss", "exaone4", "exaone4_full", "ernie4_5", "ernie4_5_moe", "olmoe", "granitemoe",
              "gemma", "hunyuan_v1_dense", "phimoe", "arcee", "afmoe", "mamba", "falcon_mamba", "deepseek_v32", "mimo_v2_flash", "step3p5", "llama4_text", "apertus", "mistral4", "bailing_moe_v1")
    for name, arch in tuple((name, None) for name in common) + (("step3p5", "step35"), ("olmo3", None), ("ministral3", None), ("minimax_m2", None), ("qwen2", "qwen2vl"), ("qwen3", "qwen3vl"), ("qwen3_moe", "qwen3vlmoe")):
        at = os.path.join(shared, name, "hf-bf16") if shared else ""
        if os.path.isdir(at):
            yield at, arch
        else:
            print("skipped: no %s" % (at or name))


def heads(test_heads, folders, weft=None):
    with tempfile.TemporaryDirectory() as tmp:
        for n, folder in enumerate(folders):
            gguf = os.path.join(tmp, "%d.gguf" % n)
            if weft:
                subprocess.run([weft, "quantize", folder, "--type", "F32", "--out", gguf], check=True)
            else:
                convert(folder, gguf)
            subprocess.run([test_heads, "--of", gguf, folder], check=True)


V4 = {"attn.wq_a": "attn_q_a", "attn.q_norm": "attn_q_a_norm", "attn.wq_b": "attn_q_b", "attn.wkv": "attn_kv", "attn.kv_norm": "attn_kv_a_norm",
      "attn.wo_a": "attn_output_a", "attn.wo_b": "attn_output_b", "ffn.gate": "ffn_gate_inp", "ffn.shared_experts.w1": "ffn_gate_shexp",
      "ffn.shared_experts.w2": "ffn_down_shexp", "ffn.shared_experts.w3": "ffn_up_shexp"}


def support_tensors(f, folder, but=None):
    """The draft head's tensors, under mtp.0. and GGUF's names."""
    tensors = {n[6:]: v for n, v in all_tensors(folder).items() if n.startswith("mtp.0.")}
    for own, to in (("w1", "gate"), ("w2", "down"), ("w3", "up")):
        one = sorted((n for n in tensors if n.startswith("ffn.experts.") and n.endswith(own + ".weight")), key=lambda n: int(n.split(".")[2]))
        tensors["ffn_%s_exps.weight" % to] = np.stack([tensors.pop(n) for n in one])
    for name, v in tensors.items():
        stem = name.removesuffix(".weight")
        to = {"attn.attn_sink": "attn_sinks.weight", "ffn.gate.bias": "exp_probs_b.bias"}.get(name) or V4.get(stem, stem) + ".weight"
        if to != but:
            f.add("mtp.0." + to, v)


def part_of(folder, to, wanted, **changes):
    """A folder of these tensors alone."""
    os.mkdir(to)
    with open(os.path.join(folder, "config.json")) as f, open(os.path.join(to, "config.json"), "w") as out:
        json.dump({**json.load(f), **changes}, out)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        said, data = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
    said, out = {n: t for n, t in said.items() if n != "__metadata__" and wanted(n)}, b""
    for t in said.values():
        a, b = t["data_offsets"]
        t["data_offsets"] = [len(out), len(out) + b - a]
        out += data[a:b]
    said = json.dumps(said).encode()
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(said)) + said + out)


def support(weft, test_heads, folder):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../export"))
    from exportkit import Gguf
    with tempfile.TemporaryDirectory() as tmp:
        bare, alone, model, head = (os.path.join(tmp, n) for n in ("bare", "alone", "model.gguf", "head.gguf"))
        part_of(folder, bare, lambda n: not n.startswith("mtp."))
        part_of(folder, alone, lambda n: n.startswith("mtp."), model_type="deepseek_v4_mtp")
        subprocess.run([weft, "quantize", bare, "--type", "F32", "--out", model], check=True)
        for but in (None, "hnorm.weight", "attn_kv.weight", "hc_head_base.weight"):
            f = File("deepseek4_mtp_support", None)
            f.arch = "deepseek4"
            f.put("expert_count", 4)
            f.put("mtp_layer_count", 1)
            f.put("nextn_predict_layers", 1)
            support_tensors(f, folder, but)
            f.write(head)
            p = subprocess.run([test_heads, "--same", model, alone, head], capture_output=True, text=True)
            assert bool(p.returncode) == bool(but), p.stdout + p.stderr
            assert not but or head in p.stderr + p.stdout and "missing" in p.stderr + p.stdout, p.stdout + p.stderr
        p = subprocess.run([weft, "inspect", head], capture_output=True, text=True)
        assert "a draft head without its model" in p.stdout + p.stderr, p.stdout + p.stderr
        p = subprocess.run([weft, "inspect", os.path.join(os.path.dirname(folder), "../glm4_moe/mlx-q4"), "--draft-model", head], capture_output=True, text=True)
        assert "a draft head for deepseek_v4, and the model is glm4_moe" in p.stdout, p.stdout + p.stderr
        whole, f = Gguf(model), File("deepseek4")
        for key, v in whole.pairs.items():
            if not key.startswith(("general.", "tokenizer.")):
                f.put(key.removeprefix("deepseek4."), struct.pack("<%di" % len(v), *v) if isinstance(v, list) and isinstance(v[0], int) else v)
        for name, (shape, kind, v) in whole.tensors.items():
            f.add(name, np.frombuffer(v, {0: "<f4", 26: "<i4"}[kind]).reshape(shape[::-1]))
        support_tensors(f, folder)
        f.write(model)
        subprocess.run([test_heads, "--of", model, folder], check=True)


# Of a head without this part it is said what is missing.
MISSED = {"dflash2": {"tokenizer.ggml.mask_token_id": "key tokenizer.ggml.mask_token_id: missing", "dflash.block_size": "key dflash.block_size: missing",
                      "dflash.selector_rank": "key dflash.selector_rank: missing", "dflash.target_layers": "key dflash.target_layers: missing",
                      "blk.1.ffn_conv_base": "model.layers.1.mlp_conv.base_kernel: missing",
                      "selector_hidden.weight": "candidate_selector.hidden_projection.weight: missing"},
          "eagle3_speculators": {"d2t": "d2t: missing", "blk.0.attn_norm_2.weight": "hidden_norm.weight: missing"}}


def apart(test_heads, model, folders):
    with tempfile.TemporaryDirectory() as tmp:
        for n, folder in enumerate(folders):
            gguf = os.path.join(tmp, "%d.gguf" % n)
            convert_head(folder, gguf)
            subprocess.run([test_heads, "--same", model, folder, gguf], check=True)
            for part, why in MISSED.get(os.path.basename(folder), {}).items():
                convert_head(folder, gguf, part)
                p = subprocess.run([test_heads, "--same", model, folder, gguf], capture_output=True, text=True)
                assert p.returncode and gguf in p.stderr + p.stdout and why in p.stderr + p.stdout, (why, p.stdout, p.stderr)


def assistants(test_assistant, shared, names):
    root = os.environ.get("WEFT_SHARED") or shared
    folders = [f for f in (os.path.join(root, "golden/_draft", n) for n in names) if os.path.isdir(f)]
    with tempfile.TemporaryDirectory() as tmp:
        for n, folder in enumerate(folders):
            gguf = os.path.join(tmp, "%d.gguf" % n)
            convert_head(folder, gguf)
            subprocess.run([test_assistant, gguf, os.path.basename(folder)], check=True)
    return 0 if folders else 77


def main():
    if sys.argv[1] == "--apart":
        apart(sys.argv[2], sys.argv[3], sys.argv[4:])
        return 0
    if sys.argv[1] == "--assistants":
        return assistants(sys.argv[2], sys.argv[3], sys.argv[4:])
    if sys.argv[1] == "--heads":
        heads(sys.argv[2], sys.argv[3:])
        return 0
    if sys.argv[1] == "--support":
        support(*sys.argv[2:])
        return 0
    if sys.argv[1] == "--written":
        heads(sys.argv[3], sys.argv[4:], sys.argv[2])
        return 0
    if sys.argv[1] == "--write":
        convert(*sys.argv[2:4])
        return 0
    weft, tree, shared = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        for n, (folder, arch) in enumerate(folders(tree, shared)):
            at, gguf, ids = os.path.join(tmp, str(n)), os.path.join(tmp, "%d.gguf" % n), os.path.join(tmp, "ids")
            with open(os.path.join(folder, "config.json")) as f:
                c = json.load(f)
            c = {k: v for k, v in {**c, **CHANGED.get(c["model_type"], {})}.items() if v is not None}
            os.mkdir(at)
            for path in glob.glob(os.path.join(os.path.abspath(folder), "model*")):
                os.symlink(path, os.path.join(at, os.path.basename(path)))
            with open(os.path.join(at, "config.json"), "w") as f:
                json.dump(c, f)
            with open(ids, "w") as f:
                json.dump([7 * i * i % 61 + 1 for i in range(60)], f)
            convert(at, gguf, arch, older=arch == "step35")
            want, why = logits(weft, at, ids)
            got, why_not = logits(weft, gguf, ids)
            worst = abs(want - got).max() if want is not None and got is not None else None
            good = worst is not None and worst <= 1e-4
            failed += not good
            print("ok  " if good else "FAIL", folder, arch or "", worst, why or why_not)
    print("%d failed" % failed)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
