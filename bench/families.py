"""Real shapes of families beside Qwen3.5, for make-checkpoint: a config and its tensors, in the layout of mlx's conversions
(experts in one stack) or, of gpt-oss, the published one.

To add a family: a config of a published model, as it is but for keys that say nothing about shapes, and a function that
puts the tensors of layer i. Each takes the Maker of make-checkpoint (here t) and reads sizes from the config (c).
"""

EOS = 258


def norms(t, at, n, *names, value=1.0):
    for name in names:
        t.vector(f"{at}{name}.weight", n, value, 0.02)


def attention(t, at, h, heads, kv, dim, out="o_proj", v=True):
    t.matrix(at + "q_proj", heads * dim, h)
    t.matrix(at + "k_proj", kv * dim, h)
    if v:
        t.matrix(at + "v_proj", kv * dim, h)
    t.matrix(at + out, h, heads * dim)


def mlp(t, at, h, inner, names=("gate_proj", "up_proj", "down_proj")):
    for name in names[:-1]:
        t.matrix(at + name, inner, h)
    t.matrix(at + names[-1], h, inner)


def experts(t, at, n, h, inner, names=("gate_proj", "up_proj", "down_proj")):
    for name in names[:-1]:
        t.matrix(at + name, n, inner, h)
    t.matrix(at + names[-1], n, h, inner)


def router(t, name, n, h):
    t.matrix(name, n, h, bits=16)


def mamba(t, at, h, heads, dim, state, groups, norm=True):
    inner = heads * dim
    channels = inner + 2 * groups * state
    t.matrix(at + "in_proj", inner + channels + heads, h)
    t.matrix(at + "out_proj", h, inner)
    t.conv(at + "conv1d.weight", channels, 4)
    t.vector(at + "conv1d.bias", channels, 0.0, 0.1)
    t.logs(at + "A_log", heads)
    t.vector(at + "dt_bias", heads, -4.0, 1.0)
    t.vector(at + "D", heads, 1.0, 0.1)
    if norm:
        norms(t, at, inner, "norm")


def trunk(t, c, at="model.", norm="norm", embed="embed_tokens", value=1.0, head=True):
    t.matrix(at + embed, c["vocab_size"], c["hidden_size"])
    norms(t, at, c["hidden_size"], norm, value=value)
    if head:
        t.matrix("lm_head", c["vocab_size"], c["hidden_size"])


# ---- windows ----

FOUR = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]


def gemma3(t, c, layers):
    h, dim = c["hidden_size"], c["head_dim"]
    trunk(t, c, value=0.0, head=False)          # gains are 1 + w
    for i in range(layers):
        at = f"model.layers.{i}."
        attention(t, at + "self_attn.", h, c["num_attention_heads"], c["num_key_value_heads"], dim)
        norms(t, at + "self_attn.", dim, "q_norm", "k_norm", value=0.0)
        norms(t, at, h, *FOUR, value=0.0)
        mlp(t, at + "mlp.", h, c["intermediate_size"])


def gemma4(t, config, layers):
    c, top = config["text_config"], "language_model.model."
    h, heads, ple = c["hidden_size"], c["num_attention_heads"], c["hidden_size_per_layer_input"]
    shared = c["num_kv_shared_layers"]
    trunk(t, c, top, head=False)
    if ple:
        t.matrix(top + "embed_tokens_per_layer", c["vocab_size"], layers * ple)
        t.matrix(top + "per_layer_model_projection", layers * ple, h)
        norms(t, top, ple, "per_layer_projection_norm")
    for i in range(layers):
        at, full = f"{top}layers.{i}.", c["layer_types"][i] == "full_attention"
        dim = c["global_head_dim"] if full else c["head_dim"]
        kv = c["num_global_key_value_heads"] if full and c["attention_k_eq_v"] else c["num_key_value_heads"]
        t.matrix(at + "self_attn.q_proj", heads * dim, h)
        t.matrix(at + "self_attn.o_proj", h, heads * dim)
        norms(t, at + "self_attn.", dim, "q_norm")
        if i < layers - shared:
            t.matrix(at + "self_attn.k_proj", kv * dim, h)
            norms(t, at + "self_attn.", dim, "k_norm")
            if not (full and c["attention_k_eq_v"]):
                t.matrix(at + "self_attn.v_proj", kv * dim, h)
        norms(t, at, h, *FOUR)
        wide = 2 if c["use_double_wide_mlp"] and i >= layers - shared else 1
        mlp(t, at + "mlp.", h, wide * c["intermediate_size"])
        t.vector(at + "layer_scalar", 1, 1.0)
        if c["enable_moe_block"]:
            experts(t, at + "experts.switch_glu.", c["num_experts"], h, c["moe_intermediate_size"])
            router(t, at + "router.proj", c["num_experts"], h)
            t.vector(at + "router.scale", h, 1.0)
            t.vector(at + "router.per_expert_scale", c["num_experts"], 1.0)
            norms(t, at, h, "post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
        if ple:
            t.matrix(at + "per_layer_input_gate", ple, h)
            t.matrix(at + "per_layer_projection", h, ple)
            norms(t, at, h, "post_per_layer_input_norm")


def gpt_oss(t, c, layers):
    h, inner, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    trunk(t, c)
    for i in range(layers):
        at = f"model.layers.{i}."
        attention(t, at + "self_attn.", h, heads, kv, dim)
        for name, rows in (("q", heads * dim), ("k", kv * dim), ("v", kv * dim), ("o", h)):
            t.vector(f"{at}self_attn.{name}_proj.bias", rows, 0.0, 0.02)
        t.vector(at + "self_attn.sinks", heads, 0.0, 1.0)
        norms(t, at, h, "input_layernorm", "post_attention_layernorm")
        router(t, at + "mlp.router", n, h)
        t.vector(at + "mlp.router.bias", n, 0.0, 0.02)
        for name, rows, cols in (("gate_up_proj", 2 * inner, h), ("down_proj", h, inner)):
            t.mxfp4(f"{at}mlp.experts.{name}", n, rows, cols)
            t.stack(f"{at}mlp.experts.{name}_bias", n, rows, 0.02)


# ---- hybrids ----

def nemotron_h(t, c, layers):
    h = c["hidden_size"]
    trunk(t, c, "backbone.", "norm_f", "embeddings")
    for i, kind in enumerate(c["hybrid_override_pattern"][:layers]):
        at = f"backbone.layers.{i}."
        norms(t, at, h, "norm")
        at += "mixer."
        if kind == "M":
            mamba(t, at, h, c["mamba_num_heads"], c["mamba_head_dim"], c["ssm_state_size"], c["n_groups"])
        elif kind == "*":
            attention(t, at, h, c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        else:
            router(t, at + "gate", c["n_routed_experts"], h)
            t.vector(at + "gate.e_score_correction_bias", c["n_routed_experts"], 0.0, 0.02, "F32")
            mlp(t, at + "shared_experts.", h, c["moe_shared_expert_intermediate_size"], ("up_proj", "down_proj"))
            experts(t, at + "switch_mlp.", c["n_routed_experts"], h, c["moe_intermediate_size"], ("fc1", "fc2"))


def granite_h(t, c, layers):
    h = c["hidden_size"]
    trunk(t, c, head=False)
    for i in range(layers):
        at = f"model.layers.{i}."
        if c["layer_types"][i] == "mamba":
            mamba(t, at + "mamba.", h, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_d_state"], c["mamba_n_groups"])
        else:
            attention(t, at + "self_attn.", h, c["num_attention_heads"], c["num_key_value_heads"], h // c["num_attention_heads"])
        norms(t, at, h, "input_layernorm", "post_attention_layernorm")
        router(t, at + "block_sparse_moe.router.layer", c["num_local_experts"], h)
        experts(t, at + "block_sparse_moe.switch_mlp.", c["num_local_experts"], h, c["intermediate_size"])
        t.matrix(at + "shared_mlp.input_linear", 2 * c["shared_intermediate_size"], h)
        t.matrix(at + "shared_mlp.output_linear", h, c["shared_intermediate_size"])


def falcon_h1(t, c, layers):
    h = c["hidden_size"]
    trunk(t, c, norm="final_layernorm")
    for i in range(layers):
        at = f"model.layers.{i}."
        mamba(t, at + "mamba.", h, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_d_state"], c["mamba_n_groups"], norm=False)
        attention(t, at + "self_attn.", h, c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        mlp(t, at + "feed_forward.", h, c["intermediate_size"])
        norms(t, at, h, "input_layernorm", "pre_ff_layernorm")


def lfm2(t, c, layers):
    h, moe = c["hidden_size"], c["model_type"] == "lfm2_moe"
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    trunk(t, c, norm="embedding_norm", head=False)
    for i in range(layers):
        at = f"model.layers.{i}."
        if c["layer_types"][i] == "conv":
            t.conv(at + "conv.conv.weight", h, 3)
            t.matrix(at + "conv.in_proj", 3 * h, h)
            t.matrix(at + "conv.out_proj", h, h)
        else:
            attention(t, at + "self_attn.", h, heads, kv, h // heads, "out_proj")
            norms(t, at + "self_attn.", h // heads, "q_layernorm", "k_layernorm")
        norms(t, at, h, "operator_norm", "ffn_norm")
        at += "feed_forward."
        if moe and i >= c["num_dense_layers"]:
            router(t, at + "gate", c["num_experts"], h)
            t.vector(at + "expert_bias", c["num_experts"], 0.0, 0.02, "F32")
            experts(t, at + "switch_mlp.", c["num_experts"], h, c["moe_intermediate_size"])
        elif moe:
            mlp(t, at, h, c["intermediate_size"])
        else:
            mlp(t, at, h, c["intermediate_size"], ("w1", "w3", "w2"))


def kimi_linear(t, c, layers):
    h, kda = c["hidden_size"], c["linear_attn_config"]
    heads, dim, inner = kda["num_heads"], kda["head_dim"], kda["num_heads"] * kda["head_dim"]
    nope, rope, v, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    trunk(t, c)
    for i in range(layers):
        at = f"model.layers.{i}."
        norms(t, at, h, "input_layernorm", "post_attention_layernorm")
        a = at + "self_attn."
        if i + 1 in kda["kda_layers"]:
            attention(t, a, h, heads, heads, dim)
            for s in "qkv":
                t.conv(f"{a}{s}_conv.conv.weight", inner, 4)
            for s in "fg":
                t.matrix(f"{a}{s}_a_proj", dim, h)
                t.matrix(f"{a}{s}_b_proj", inner, dim)
            t.matrix(a + "b_proj", heads, h)
            t.logs(a + "A_log", heads)
            t.vector(a + "dt_bias", inner, -4.0, 1.0, "F32")
            norms(t, a, dim, "o_norm")
        else:
            n = c["num_attention_heads"]
            t.matrix(a + "q_proj", n * (nope + rope), h)
            t.matrix(a + "kv_a_proj_with_mqa", rank + rope, h)
            norms(t, a, rank, "kv_a_layernorm")
            t.matrix(a + "embed_q", n, rank, nope)
            t.matrix(a + "unembed_out", n, v, rank)
            t.matrix(a + "o_proj", h, n * v)
        if i < c["first_k_dense_replace"]:
            mlp(t, at + "mlp.", h, c["intermediate_size"])
            continue
        router(t, at + "mlp.gate", c["num_experts"], h)
        t.vector(at + "mlp.e_score_correction_bias", c["num_experts"], 0.0, 0.02, "F32")
        mlp(t, at + "mlp.shared_experts.", h, c["moe_intermediate_size"] * c["num_shared_experts"])
        experts(t, at + "mlp.switch_mlp.", c["num_experts"], h, c["moe_intermediate_size"])


def ling(t, c, layers):
    h, heads, dim, inner = c["hidden_size"], c["num_attention_heads"], c["head_dim"], c["num_attention_heads"] * c["head_dim"]
    nope, rope, v, rank, low = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"], c["q_lora_rank"]
    trunk(t, c, embed="word_embeddings")
    for i in range(layers):
        at = f"model.layers.{i}."
        norms(t, at, h, "input_layernorm", "post_attention_layernorm")
        a = at + "attention."
        if (i + 1) % c["layer_group_size"] and i < layers // c["layer_group_size"] * c["layer_group_size"]:
            attention(t, a, h, heads, heads, dim)
            for s in "qkv":
                t.conv(f"{a}{s}_conv1d.weight", inner, 4)
            for s in "fg":
                t.matrix(f"{a}{s}_proj", inner, h)
            t.matrix(a + "b_proj", heads, h)
            t.logs(a + "A_log", heads)
            t.vector(a + "dt_bias", inner, -4.0, 1.0, "F32")
            norms(t, a, dim, "o_norm")
        else:
            t.matrix(a + "q_a_proj", low, h)
            norms(t, a, low, "q_a_layernorm")
            t.matrix(a + "q_b_proj", heads * (nope + rope), low)
            t.matrix(a + "kv_a_proj_with_mqa", rank + rope, h)
            norms(t, a, rank, "kv_a_layernorm")
            t.matrix(a + "embed_q", heads, rank, nope)
            t.matrix(a + "unembed_out", heads, v, rank)
            t.matrix(a + "dense", h, heads * v)
            t.matrix(a + "g_proj", heads, h)
        if i < c["first_k_dense_replace"]:
            mlp(t, at + "mlp.", h, c["intermediate_size"])
            continue
        router(t, at + "mlp.gate", c["num_experts"], h)
        t.vector(at + "mlp.gate.expert_bias", c["num_experts"], 0.0, 0.02, "F32")
        mlp(t, at + "mlp.shared_experts.", h, c["moe_shared_expert_intermediate_size"] * c["num_shared_experts"])
        experts(t, at + "mlp.switch_mlp.", c["num_experts"], h, c["moe_intermediate_size"])


# ---- several residual streams, and indexers ----

def balanced(t, at, streams, h, sites=("attn", "ffn")):
    """Gates of streams that a balanced matrix mixes."""
    for site in sites:
        rows = streams if site == "head" else (2 + streams) * streams
        t.bare(f"{at}hc_{site}_fn", rows, streams * h)
        t.vector(f"{at}hc_{site}_base", rows, 0.0, 0.5, "F32")
        t.vector(f"{at}hc_{site}_scale", 1 if site == "head" else 3, 1.0, 0.0, "F32")


def gated(t, at, streams, h, low, inject=True):
    """Gates of streams through a low rank."""
    norms(t, at, streams * h, "hc_norm", value=0.0)
    t.matrix(at + "input_mix_weight_down", low, streams * h)
    t.matrix(at + "input_mix_weight_up", streams * h, low)
    if inject:
        t.matrix(at + "block_inject_weight", streams, streams * h)


def primes(first, n):
    found = []
    while len(found) < n:
        if all(first % d for d in range(2, int(first ** 0.5) + 1)):
            found.append(first)
        first += 1
    return found


def ngrams(t, at, c):
    """The table stays in bf16: its rows are no whole groups."""
    h, dim, wide = c["hidden_size"], c["ple_embed_dim"], c["hc_count"] * c["hidden_size"]
    heads = (c["ngram_size"] - 1) * c["heads_per_ngram"]
    size, parts, whole = primes(c["ngram_vocab_size_base"], heads), c["split_ngram_parts"], c["make_ngram_vocab_size_divisible_by"]
    t.matrix(at + "key_proj", wide, dim)
    t.matrix(at + "value_proj", h, dim)
    norms(t, at, wide, "norm_key", "norm_query", "norm_conv", value=0.0)
    t.conv(at + "conv1d.weight", wide, c["ple_conv_kernel_size"])
    at += "ple_embedding."
    t.numbers(at + "layer_multipliers", [23703573157769, 20109073645365, 8052911324071])
    t.numbers(at + "ngram_heads_vocab_sizes", size)
    t.numbers(at + "ngram_heads_offsets", [sum(size[:i]) for i in range(heads)])
    rows = -(-sum(size) // whole) * whole
    for i in range(parts):
        t.matrix(f"{at}ngram_embedding.shard_{i}", rows // parts, dim // heads, bits=16)


def delta(t, at, h, c):
    hk, hv, dk, dv = (c["linear_" + k] for k in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    t.matrix(at + "in_proj_qkv", 2 * hk * dk + hv * dv, h)
    t.matrix(at + "in_proj_z", hv * dv, h)
    t.matrix(at + "in_proj_b", hv, h)
    t.matrix(at + "in_proj_a", hv, h)
    t.conv(at + "conv1d.weight", 2 * hk * dk + hv * dv, c["linear_conv_kernel_dim"])
    t.logs(at + "A_log", hv)
    t.vector(at + "dt_bias", hv, -4.0, 1.0)
    norms(t, at, dv, "norm")
    t.matrix(at + "out_proj", h, hv * dv)


def qwen4(t, config, layers):
    c = config["text_config"]
    top = "language_model.model." if t.bits != 16 else "model.language_model."
    h, streams, low, n = c["hidden_size"], c["hc_count"], c["hc_lowrank"], c["num_experts"]
    heads, kv, dim, inner = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["moe_intermediate_size"]
    t.matrix(top + "embed_tokens", c["vocab_size"], h)
    t.matrix("lm_head", c["vocab_size"], h)
    gated(t, top + "hyper_connection_mixer.", streams, h, low, inject=False)
    for i in range(layers):
        at = f"{top}layers.{i}."
        if i + 1 in c["ple_layer_ids"]:
            ngrams(t, at + "ple.", c)
        gated(t, at + "attn_hyper_connection.", streams, h, low)
        gated(t, at + "mlp_hyper_connection.", streams, h, low)
        if c["layer_types"][i] == "full_attention":
            a = at + "self_attn."
            t.matrix(a + "q_proj", 2 * heads * dim, h)      # with the output gate
            t.matrix(a + "k_proj", kv * dim, h)
            t.matrix(a + "v_proj", kv * dim, h)
            t.matrix(a + "o_proj", h, heads * dim)
            norms(t, a, dim, "q_norm", "k_norm", value=0.0)
            t.matrix(a + "indexer.index_qk_proj", (c["indexer_n_heads"] + 1) * c["indexer_head_dim"], h)
            norms(t, a + "indexer.", c["indexer_head_dim"], "q_layernorm", "k_layernorm", value=0.0)
        else:
            delta(t, at + "linear_attn.", h, c)
        router(t, at + "mlp.gate", n, h)
        router(t, at + "mlp.shared_expert_gate", 1, h)
        mlp(t, at + "mlp.shared_expert.", h, c["shared_expert_intermediate_size"])
        experts(t, at + "mlp.switch_mlp.", n, h, inner)


def glm5(t, config, layers):
    c = config["text_config"]
    top = "language_model.model." if t.bits != 16 else "model.language_model."
    h, kda, n = c["hidden_size"], c["linear_attn_config"], c["num_attention_heads"]
    heads, dim, wide = kda["num_heads"], kda["head_dim"], kda["num_heads"] * kda["head_dim"]
    low, rank, nope, v, index = c["q_lora_rank"], c["kv_lora_rank"], c["qk_nope_head_dim"], c["v_head_dim"], c["index_head_dim"]
    trunk(t, c, top)
    for i in range(layers):
        at = f"{top}layers.{i}."
        norms(t, at, h, "input_layernorm", "post_attention_layernorm")
        balanced(t, at, c["hc_mult"], h)
        a = at + "self_attn."
        if c["layer_types"][i] == "linear_attention":
            attention(t, a, h, heads, heads, dim)
            for s in "qkv":
                t.conv(f"{a}{s}_conv1d.weight", wide, kda["short_conv_kernel_size"])
            for s in "fg":
                t.matrix(f"{a}{s}_a_proj", dim, h)
                t.matrix(f"{a}{s}_b_proj", wide, dim)
            t.matrix(a + "b_proj", heads, h)
            t.logs(a + "A_log", heads)
            t.vector(a + "dt_bias", wide, -4.0, 1.0, "F32")
            norms(t, a, dim, "o_norm")
        else:
            t.matrix(a + "q_a_proj", low, h)
            norms(t, a, low, "q_a_layernorm")
            t.matrix(a + "q_b_proj", n * nope, low)
            t.matrix(a + "kv_a_proj_with_mqa", rank, h)
            norms(t, a, rank, "kv_a_layernorm")
            t.matrix(a + "embed_q", n, rank, nope)
            t.matrix(a + "unembed_out", n, v, rank)
            t.matrix(a + "o_proj", h, n * v)
            a += "indexer."
            t.matrix(a + "wq_b", c["index_n_heads"] * index, low)
            t.matrix(a + "wk", index, h)
            t.matrix(a + "weights_proj", c["index_n_heads"], h)
            norms(t, a, index, "k_norm")
            t.vector(a + "k_norm.bias", index, 0.0, 0.02)
            t.bare(a + "index_kpool_compress_gate", index, h)
            t.bare(a + "index_kpool_compress_ape", c["index_kpool"], index)
        if i < c["first_k_dense_replace"]:
            mlp(t, at + "mlp.", h, c["intermediate_size"])
            continue
        router(t, at + "mlp.gate", c["n_routed_experts"], h)
        t.vector(at + "mlp.gate.e_score_correction_bias", c["n_routed_experts"], 0.0, 0.02, "F32")
        mlp(t, at + "mlp.shared_experts.", h, c["moe_intermediate_size"] * c["n_shared_experts"])
        experts(t, at + "mlp.switch_mlp.", c["n_routed_experts"], h, c["moe_intermediate_size"])


def compressor(t, at, h, dim, every, overlaps):
    wide = 2 * dim if overlaps else dim
    t.matrix(at + "wkv", wide, h)
    t.matrix(at + "wgate", wide, h)
    t.bare(at + "ape", every, wide)
    norms(t, at, dim, "norm")


def deepseek4(t, c, layers):
    """As published: FP8, with experts in fp4."""
    h, n, heads, dim, low = c["hidden_size"], c["n_routed_experts"], c["num_attention_heads"], c["head_dim"], c["q_lora_rank"]
    groups, out, inner = c["o_groups"], c["o_lora_rank"], c["moe_intermediate_size"]
    t.matrix("embed", c["vocab_size"], h)
    t.matrix("head", c["vocab_size"], h)
    norms(t, "", h, "norm")
    balanced(t, "", c["hc_mult"], h, ["head"])
    for i in range(layers):
        at, every = f"layers.{i}.", c["compress_ratios"][i]
        norms(t, at, h, "attn_norm", "ffn_norm")
        balanced(t, at, c["hc_mult"], h)
        a = at + "attn."
        t.fp8(a + "wq_a", low, h)
        norms(t, a, low, "q_norm")
        t.fp8(a + "wq_b", heads * dim, low)
        t.fp8(a + "wkv", dim, h)
        norms(t, a, dim, "kv_norm")
        t.fp8(a + "wo_a", groups * out, heads // groups * dim)
        t.fp8(a + "wo_b", h, groups * out)
        t.vector(a + "attn_sink", heads, 0.0, 1.0, "F32")
        if every:
            compressor(t, a + "compressor.", h, dim, every, every == 4)
        if every == 4:
            compressor(t, a + "indexer.compressor.", h, c["index_head_dim"], every, True)
            t.fp8(a + "indexer.wq_b", c["index_n_heads"] * c["index_head_dim"], low)
            t.matrix(a + "indexer.weights_proj", c["index_n_heads"], h)
        router(t, at + "ffn.gate", n, h)
        if i < c["num_hash_layers"]:
            t.chosen(at + "ffn.gate.tid2eid", c["vocab_size"], c["num_experts_per_tok"], n)
        else:
            t.vector(at + "ffn.gate.bias", n, 0.0, 0.02, "F32")
        for put, where in [(t.fp8, "shared_experts"), *((t.fp4, f"experts.{e}") for e in range(n))]:
            for name, rows, cols in (("w1", inner, h), ("w3", inner, h), ("w2", h, inner)):
                put(f"{at}ffn.{where}.{name}", rows, cols)


# ---- published sizes ----

def every(n, layers, last, other):
    """Kinds of layers of which each n-th is `last`."""
    return [last if (i + 1) % n == 0 else other for i in range(layers)]


def at(places, layers, there, other):
    return [there if i in places else other for i in range(layers)]


def nested(architecture, text):
    return dict(model_type=text["model_type"].removesuffix("_text"), architectures=[architecture], text_config=text,
                tie_word_embeddings=text["tie_word_embeddings"])


GEMMA4_ROPE = {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
               "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}


def gemma4_config(layers, n, **sizes):
    text = dict(model_type="gemma4_text", attention_bias=False, final_logit_softcapping=30.0, hidden_activation="gelu_pytorch_tanh",
                rms_norm_eps=1e-6, rope_parameters=GEMMA4_ROPE, tie_word_embeddings=True, vocab_size=262144, head_dim=256,
                global_head_dim=512, num_hidden_layers=layers, layer_types=every(n, layers, "full_attention", "sliding_attention"),
                enable_moe_block=False, hidden_size_per_layer_input=0, num_kv_shared_layers=0, use_double_wide_mlp=False,
                attention_k_eq_v=False, eos_token_id=EOS)
    text.update(sizes)
    return dict(model_type="gemma4", architectures=["Gemma4ForConditionalGeneration"], text_config=text, tie_word_embeddings=True)


FAMILIES = {
    "gemma-3-4b": (gemma3, dict(
        model_type="gemma3_text", hidden_size=2560, num_hidden_layers=34, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        intermediate_size=10240, sliding_window=1024, sliding_window_pattern=6, query_pre_attn_scalar=256, vocab_size=262208,
        hidden_activation="gelu_pytorch_tanh", attention_bias=False, rms_norm_eps=1e-6, rope_theta=1e6, rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0}, max_position_embeddings=131072)),
    "gemma-4-e2b": (gemma4, gemma4_config(
        35, 5, hidden_size=1536, intermediate_size=6144, num_attention_heads=8, num_key_value_heads=1, sliding_window=512,
        hidden_size_per_layer_input=256, num_kv_shared_layers=20, use_double_wide_mlp=True, vocab_size_per_layer_input=262144,
        max_position_embeddings=131072)),
    "gemma-4-26b-a4b": (gemma4, gemma4_config(
        30, 6, hidden_size=2816, intermediate_size=2112, num_attention_heads=16, num_key_value_heads=8, sliding_window=1024,
        num_global_key_value_heads=2, attention_k_eq_v=True, enable_moe_block=True, num_experts=128, top_k_experts=8,
        moe_intermediate_size=704, max_position_embeddings=262144)),
    "gpt-oss-20b": (gpt_oss, dict(
        model_type="gpt_oss", hidden_size=2880, num_hidden_layers=24, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
        intermediate_size=2880, num_local_experts=32, num_experts_per_tok=4, vocab_size=201088, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 12, attention_bias=True, rms_norm_eps=1e-5, rope_theta=150000,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                      "original_max_position_embeddings": 4096}, swiglu_limit=7.0, hidden_act="silu", tie_word_embeddings=False,
        max_position_embeddings=131072, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": []})),
    "nemotron-3-nano-30b-a3b": (nemotron_h, dict(
        model_type="nemotron_h", hidden_size=2688, num_hidden_layers=52, vocab_size=131072, num_attention_heads=32,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", num_key_value_heads=2, head_dim=128,
        mamba_num_heads=64, mamba_head_dim=64, ssm_state_size=128, n_groups=8, conv_kernel=4, use_conv_bias=True,
        mamba_proj_bias=False, use_bias=False, mlp_bias=False, attention_bias=False, mlp_hidden_act="relu2",
        mamba_hidden_act="silu", intermediate_size=1856, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=6, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, layer_norm_epsilon=1e-5, norm_eps=1e-5, tie_word_embeddings=False,
        max_position_embeddings=262144)),
    "granite-4-h-tiny": (granite_h, dict(
        model_type="granitemoehybrid", hidden_size=1536, num_hidden_layers=40, vocab_size=100352, num_attention_heads=12,
        layer_types=at((5, 15, 25, 35), 40, "attention", "mamba"), num_key_value_heads=4, intermediate_size=512,
        shared_intermediate_size=1024, num_local_experts=64, num_experts_per_tok=6, mamba_n_heads=48, mamba_d_head=64,
        mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False,
        attention_bias=False, attention_multiplier=0.0078125, embedding_multiplier=12.0, residual_multiplier=0.22,
        logits_scaling=6.0, position_embedding_type="nope", hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=True,
        max_position_embeddings=131072)),
    "falcon-h1-1.5b": (falcon_h1, dict(
        model_type="falcon_h1", hidden_size=2048, num_hidden_layers=24, vocab_size=65536, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, intermediate_size=4608, mamba_d_ssm=3072, mamba_n_heads=48, mamba_d_head=64,
        mamba_d_state=256, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False,
        mamba_rms_norm=False, mamba_norm_before_gate=False, projectors_bias=False, attention_bias=False, mlp_bias=False,
        hidden_act="silu", rms_norm_eps=1e-5, rope_theta=1e11, rope_scaling=None, tie_word_embeddings=False,
        attention_in_multiplier=1.0, attention_out_multiplier=0.9375, key_multiplier=1.0, embedding_multiplier=5.65,
        lm_head_multiplier=0.039, mlp_multipliers=[0.88, 0.586], ssm_in_multiplier=1.25, ssm_out_multiplier=0.236,
        ssm_multipliers=[0.354, 0.25, 0.354, 0.5, 0.354], max_position_embeddings=131072)),
    "lfm2.5-1.2b": (lfm2, dict(
        model_type="lfm2", hidden_size=2048, num_hidden_layers=16, vocab_size=65536, num_attention_heads=32,
        layer_types=at((2, 5, 8, 10, 12, 14), 16, "full_attention", "conv"), num_key_value_heads=8, intermediate_size=8192,
        block_auto_adjust_ff_dim=False, block_ff_dim=8192, conv_L_cache=3, conv_bias=False, norm_eps=1e-5, rope_theta=1e6,
        tie_word_embeddings=True, max_position_embeddings=128000)),
    "lfm2-8b-a1b": (lfm2, dict(
        model_type="lfm2_moe", hidden_size=2048, num_hidden_layers=24, vocab_size=65536, num_attention_heads=32,
        layer_types=at((2, 6, 10, 14, 18, 21), 24, "full_attention", "conv"), num_key_value_heads=8, intermediate_size=7168,
        moe_intermediate_size=1792, num_experts=32, num_experts_per_tok=4, num_dense_layers=2, norm_topk_prob=True,
        use_expert_bias=True, routed_scaling_factor=1.0, conv_L_cache=3, conv_bias=False, norm_eps=1e-5, rope_theta=1e6,
        tie_word_embeddings=True, max_position_embeddings=128000)),
    "kimi-linear-48b-a3b": (kimi_linear, dict(
        model_type="kimi_linear", hidden_size=2304, num_hidden_layers=27, vocab_size=163840, num_attention_heads=32,
        num_key_value_heads=32, head_dim=72, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, mla_use_nope=True, intermediate_size=9216, moe_intermediate_size=1024, num_experts=256,
        num_experts_per_token=8, num_shared_experts=1, first_k_dense_replace=1, moe_layer_freq=1, moe_renormalize=True,
        moe_router_activation_func="sigmoid", num_expert_group=1, topk_group=1, use_grouped_topk=True,
        routed_scaling_factor=2.446, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=1e4, rope_scaling=None,
        tie_word_embeddings=False, model_max_length=1048576, max_position_embeddings=1048576,
        linear_attn_config={"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
                            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                            "kda_layers": [i for i in range(1, 28) if i % 4 and i != 27]})),
    "ling-3.0-tiny": (ling, dict(
        model_type="bailing_hybrid", architectures=["BailingMoeV3ForCausalLM"], hidden_size=1536, num_hidden_layers=24, vocab_size=157184,
        num_attention_heads=16, num_key_value_heads=16, head_dim=128, layer_group_size=4, q_lora_rank=256, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, rope_interleave=True, rope_theta=6e6, rope_scaling=None,
        partial_rotary_factor=0.5, gated_attention_proj_granularity_type="head_wise", short_conv_kernel_size=4, no_kda_lora=True,
        kda_safe_gate=True, kda_lower_bound=-5, linear_silu=True, use_qk_norm=True, use_bias=False, use_qkv_bias=False,
        intermediate_size=4608, first_k_dense_replace=1, num_experts=128, num_experts_per_tok=8, num_shared_experts=1,
        moe_intermediate_size=512, moe_shared_expert_intermediate_size=512, n_group=8, topk_group=4, norm_topk_prob=True,
        routed_scaling_factor=2.5, score_function="sigmoid", moe_router_enable_expert_bias=True, num_nextn_predict_layers=0,
        hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False, max_position_embeddings=131072)),
    "qwen3.8-flash-next": (qwen4, nested("Qwen4ExpForConditionalGeneration", dict(
        model_type="qwen4_exp_text", hidden_size=2560, num_hidden_layers=48, vocab_size=248320, num_attention_heads=24,
        num_key_value_heads=2, head_dim=256, layer_types=every(4, 48, "full_attention", "linear_attention"), attention_bias=False,
        attn_output_gate=True, output_gate_type="sigmoid", hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
                         "mrope_interleaved": True},
        linear_num_key_heads=16, linear_num_value_heads=48, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_conv_kernel_dim=4, num_experts=512, num_experts_per_tok=10, moe_intermediate_size=640,
        shared_expert_intermediate_size=640, hc_count=4, hc_lowrank=320, indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=128,
        indexer_budget=2048, indexer_compress_ratio=4, ple_layer_ids=[2], ple_embed_dim=2560, ple_conv_kernel_size=4, ngram_size=3,
        heads_per_ngram=8, ngram_vocab_size_base=20000000, make_ngram_vocab_size_divisible_by=128, split_ngram_parts=128,
        mtp_num_hidden_layers=0, mtp_use_dedicated_embeddings=False, eos_token_id=EOS, max_position_embeddings=262144))),
    "glm-5.3-flash": (glm5, nested("Glm5NextForConditionalGeneration", dict(
        model_type="glm5_next_text", hidden_size=4096, num_hidden_layers=45, vocab_size=154880, num_attention_heads=64,
        num_key_value_heads=64, head_dim=0, layer_types=every(4, 45, "deepseek_sparse_attention", "linear_attention"),
        attention_bias=False, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False, intermediate_size=12288,
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=256, qk_rope_head_dim=0, qk_head_dim=256, v_head_dim=256,
        mla_use_nope=True, linear_attn_config={"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
        index_n_heads=32, index_head_dim=128, index_topk=2048, index_kpool=4, index_kpool_compress=True,
        index_kpool_always_select_tail=True, first_k_dense_replace=3, n_routed_experts=288, num_experts_per_tok=8, n_shared_experts=1,
        moe_intermediate_size=2048, scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True, n_group=1, topk_group=1,
        routed_scaling_factor=2.5, swiglu_limit=10.0, mhc=True, hc_mult=4, hc_eps=1e-6, hc_sinkhorn_iters=20,
        num_nextn_predict_layers=0, eos_token_id=EOS, max_position_embeddings=1048576))),
    "deepseek-v4-flash": (deepseek4, dict(
        model_type="deepseek_v4", architectures=["DeepseekV4ForCausalLM"], hidden_size=4096, num_hidden_layers=43, vocab_size=129280,
        num_attention_heads=64, num_key_value_heads=1, head_dim=512, qk_rope_head_dim=64, q_lora_rank=1024, o_groups=8,
        o_lora_rank=1024, sliding_window=128, compress_ratios=[0, 0, *[4, 128] * 20, 4, 0], index_n_heads=64, index_head_dim=128,
        index_topk=512, n_routed_experts=256, num_experts_per_tok=6, n_shared_experts=1, moe_intermediate_size=2048,
        num_hash_layers=3, scoring_func="sqrtsoftplus", topk_method="noaux_tc", norm_topk_prob=True, routed_scaling_factor=1.5,
        swiglu_limit=10.0, hidden_act="silu", rms_norm_eps=1e-6, hc_mult=4, hc_eps=1e-6, hc_sinkhorn_iters=20,
        rope_theta=10000, compress_rope_theta=160000, rope_scaling={
            "type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
        attention_bias=False, tie_word_embeddings=False, num_nextn_predict_layers=0, max_position_embeddings=1048576,
        expert_dtype="fp4", quantization_config={"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
                                                 "activation_scheme": "dynamic", "weight_block_size": [128, 128]})),
}


# ---- the makers' own names and layouts ----

EXPERT_NAMES = {
    "nemotron_h": {"fc1": "up_proj", "fc2": "down_proj"},
    "lfm2_moe": {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    "kimi_linear": {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    "glm5_next": {"gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj"},
}


class Published:
    """A Maker that puts what the functions above put as Hugging Face has it: an expert's matrices apart, convolutions as
    [channels][1][width], the names of its modules, keys and values of latent attention in one matrix."""

    def __init__(self, maker, config):
        self.maker, self.c, self.kind = maker, config.get("text_config", config), config["model_type"]

    def __getattr__(self, name):
        return getattr(self.maker, name)

    def name(self, name):
        if self.kind == "kimi_linear":
            name = name.replace("_conv.conv.", "_conv1d.")
            if ".mlp." in name and int(name.split(".")[2]) >= self.c["first_k_dense_replace"]:
                name = name.replace(".mlp.e_score", ".mlp.gate.e_score").replace(".mlp.", ".block_sparse_moe.")
        if self.kind == "lfm2_moe" and ".feed_forward." in name:
            last = name.split(".")[-1]
            name = name.removesuffix(last) + EXPERT_NAMES[self.kind].get(last, last)
        return name

    def matrix(self, name, *shape, **more):
        if name.endswith((".embed_q", ".unembed_out")):
            if name.endswith(".embed_q"):
                rows = shape[0] * (self.c["qk_nope_head_dim"] + self.c["v_head_dim"])
                self.maker.matrix(name.replace("embed_q", "kv_b_proj"), rows, self.c["kv_lora_rank"], **more)
        elif ".switch_mlp." in name and self.kind == "qwen4_exp":
            at, own = name.split("switch_mlp.")
            if own == "gate_proj":
                self.maker.bare(at + "experts.gate_up_proj", shape[0], 2 * shape[1], shape[2], dtype="BF16")
            elif own == "down_proj":
                self.maker.bare(at + "experts.down_proj", *shape, dtype="BF16")
        elif ".switch_mlp." in name and self.kind in EXPERT_NAMES:
            at, own = self.name(name).split("switch_mlp.")[0], name.split(".")[-1]
            for e in range(shape[0]):
                self.maker.matrix(f"{at}experts.{e}.{EXPERT_NAMES[self.kind][own]}", *shape[1:], **more)
        else:
            self.maker.matrix(self.name(name), *shape, **more)

    def vector(self, name, *args, **more):
        self.maker.vector(self.name(name), *args, **more)

    def conv(self, name, channels, width):
        self.maker.conv(self.name(name), channels, width, published=True)


def cut(config, layers):
    """The config of a model that ends after so many layers.  If these are not all, a table of n-grams has a 128th of its rows."""
    c = dict(config, text_config=dict(config["text_config"])) if "text_config" in config else dict(config)
    text = c.get("text_config", c)
    if layers < text["num_hidden_layers"] and "ple_layer_ids" in text:
        text["ple_layer_ids"] = [i for i in text["ple_layer_ids"] if i <= layers]
        text["ngram_vocab_size_base"] //= 128
    own = text["num_hidden_layers"] - text.get("num_kv_shared_layers", 0)
    text["num_hidden_layers"] = layers
    for key in ("layer_types", "hybrid_override_pattern"):
        if key in text:
            text[key] = text[key][:layers]
    if "linear_attn_config" in text:
        text["linear_attn_config"] = {k: [i for i in v if i <= layers] if isinstance(v, list) else v
                                      for k, v in text["linear_attn_config"].items()}
    if "num_kv_shared_layers" in text:
        text["num_kv_shared_layers"] = max(0, layers - own)
    return c
