"""Families beside Qwen3.5, for make-gguf: settings and tensors as llama.cpp's converter names them, of the configs of
families.py. Each function takes make-gguf's Writer (out), its Maker (m), the config (c), its number of layers, and what numbers
metadata types have (k)."""


def put_all(out, arch, k, **kinds):
    """kinds: of a type's name the settings as pairs of key and value."""
    for kind, pairs in kinds.items():
        for key, v in pairs:
            out.put("%s.%s" % (arch, key), getattr(k, kind), v)


def put_common(out, arch, k, c, layers, kv):
    put_all(out, arch, k, U32=[
        ("block_count", layers), ("context_length", c["max_position_embeddings"]), ("embedding_length", c["hidden_size"]),
        ("attention.head_count", c["num_attention_heads"]), ("attention.sliding_window", c["sliding_window"])],
        FLOAT=[("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])])
    if isinstance(kv, list):
        out.put(arch + ".attention.head_count_kv", k.ARRAY, (k.INT32, kv))
    else:
        out.put(arch + ".attention.head_count_kv", k.U32, kv)


def put_attention(m, p, h, heads, kv, dim, v=True, norms=True, own=True):
    m.matrix(p + "attn_q", heads * dim, h)
    if own:
        m.matrix(p + "attn_k", kv * dim, h)
    if own and v:
        m.matrix(p + "attn_v", kv * dim, h)
    m.matrix(p + "attn_output", h, heads * dim)
    if norms:
        m.vector(p + "attn_q_norm.weight", dim, 1)
    if norms and own:
        m.vector(p + "attn_k_norm.weight", dim, 1)


def put_mlp(m, p, h, inner):
    m.matrix(p + "ffn_gate", inner, h)
    m.matrix(p + "ffn_up", inner, h)
    m.matrix(p + "ffn_down", h, inner)


def gemma3(out, m, c, layers, k):
    h, kv, dim = c["hidden_size"], c["num_key_value_heads"], c["head_dim"]
    put_common(out, "gemma3", k, c, layers, kv)
    put_all(out, "gemma3", k, U32=[("feed_forward_length", c["intermediate_size"]), ("attention.key_length", dim),
                                   ("attention.value_length", dim)],
            FLOAT=[("rope.freq_base", c["rope_theta"]), ("rope.scaling.factor", c["rope_scaling"]["factor"])],
            STRING=[("rope.scaling.type", "linear")])
    m.matrix("token_embd", c["vocab_size"], h)
    m.vector("output_norm.weight", h, 1)
    for i in range(layers):
        p = "blk.%d." % i
        put_attention(m, p, h, c["num_attention_heads"], kv, dim)
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.vector(p + name + ".weight", h, 1)
        put_mlp(m, p, h, c["intermediate_size"])


def gemma4(out, m, config, layers, k):
    c = config["text_config"]
    h, heads, ple, shared = c["hidden_size"], c["num_attention_heads"], c["hidden_size_per_layer_input"], c["num_kv_shared_layers"]
    full = [kind == "full_attention" for kind in c["layer_types"][:layers]]
    alike = c["attention_k_eq_v"]
    kv = [c["num_global_key_value_heads"] if f and alike else c["num_key_value_heads"] for f in full]
    inner = [c["intermediate_size"] * (2 if c["use_double_wide_mlp"] and i >= layers - shared else 1) for i in range(layers)]
    dims = [c["global_head_dim"] if f else c["head_dim"] for f in full]
    put_common(out, "gemma4", k, c, layers, kv if alike else kv[0])
    if len(set(inner)) > 1:
        out.put("gemma4.feed_forward_length", k.ARRAY, (k.INT32, inner))
    else:
        out.put("gemma4.feed_forward_length", k.U32, inner[0])
    sizes = [("attention.key_length", c["global_head_dim"]), ("attention.value_length", c["global_head_dim"]),
             ("attention.key_length_swa", c["head_dim"]), ("attention.value_length_swa", c["head_dim"]),
             ("rope.dimension_count", c["global_head_dim"]), ("rope.dimension_count_swa", c["head_dim"]),
             ("attention.shared_kv_layers", shared), ("embedding_length_per_layer_input", ple)]
    if c["enable_moe_block"]:
        sizes += [("expert_count", c["num_experts"]), ("expert_used_count", c["top_k_experts"]),
                  ("expert_feed_forward_length", c["moe_intermediate_size"])]
    rope = c["rope_parameters"]
    put_all(out, "gemma4", k, U32=sizes, FLOAT=[
        ("rope.freq_base", rope["full_attention"]["rope_theta"]), ("rope.freq_base_swa", rope["sliding_attention"]["rope_theta"]),
        ("final_logit_softcapping", c["final_logit_softcapping"])])
    out.put("gemma4.attention.sliding_window_pattern", k.ARRAY, (k.BOOL, [not f for f in full]))
    m.matrix("token_embd", c["vocab_size"], h)
    m.vector("output_norm.weight", h, 1)
    turned = int(rope["full_attention"]["partial_rotary_factor"] * c["global_head_dim"]) // 2
    m.floats("rope_freqs.weight", (c["global_head_dim"] // 2,), lambda: [1.0] * turned + [1e30] * (c["global_head_dim"] // 2 - turned))
    if ple:
        m.matrix("per_layer_token_embd", c["vocab_size"], layers * ple)
        m.matrix("per_layer_model_proj", layers * ple, h)
        m.vector("per_layer_proj_norm.weight", ple, 1)
    for i in range(layers):
        p = "blk.%d." % i
        put_attention(m, p, h, heads, kv[i], dims[i], v=not (full[i] and alike), own=i < layers - shared)
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.vector(p + name + ".weight", h, 1)
        m.vector(p + "layer_output_scale.weight", 1, 1, 0)
        put_mlp(m, p, h, inner[i])
        if c["enable_moe_block"]:
            n, narrow = c["num_experts"], c["moe_intermediate_size"]
            m.matrix(p + "ffn_gate_up_exps", n, 2 * narrow, h)
            m.matrix(p + "ffn_down_exps", n, h, narrow)
            m.vector(p + "ffn_down_exps.scale", n, 1, 0)
            m.router(p + "ffn_gate_inp.weight", n, h)
            m.vector(p + "ffn_gate_inp.scale", h, 1, 0)
            for name in ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
                m.vector(p + name + ".weight", h, 1)
        if ple:
            m.matrix(p + "inp_gate", ple, h)
            m.matrix(p + "proj", h, ple)
            m.vector(p + "post_norm.weight", h, 1)


def gpt_oss(out, m, c, layers, k):
    h, inner, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    heads, kv, dim, rope = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rope_scaling"]
    put_common(out, "gpt-oss", k, c, layers, kv)
    put_all(out, "gpt-oss", k, STRING=[("rope.scaling.type", "yarn")], U32=[
        ("rope.scaling.original_context_length", rope["original_max_position_embeddings"]), ("feed_forward_length", inner),
        ("attention.key_length", dim), ("attention.value_length", dim), ("expert_count", n),
        ("expert_used_count", c["num_experts_per_tok"]), ("expert_feed_forward_length", inner)],
        FLOAT=[("rope.scaling.factor", rope["factor"]), ("rope.scaling.yarn_beta_fast", rope["beta_fast"]),
               ("rope.scaling.yarn_beta_slow", rope["beta_slow"]), ("rope.freq_base", c["rope_theta"])])
    m.matrix("token_embd", c["vocab_size"], h)
    m.matrix("output", c["vocab_size"], h)
    m.vector("output_norm.weight", h, 1)
    for i in range(layers):
        p = "blk.%d." % i
        put_attention(m, p, h, heads, kv, dim, norms=False)
        for name, rows in (("q", heads * dim), ("k", kv * dim), ("v", kv * dim), ("output", h)):
            m.vector("%sattn_%s.bias" % (p, name), rows, 0)
        m.vector(p + "attn_sinks.weight", heads, 0, 1)
        m.vector(p + "attn_norm.weight", h, 1)
        m.vector(p + "post_attention_norm.weight", h, 1)
        m.router(p + "ffn_gate_inp.weight", n, h)
        m.vector(p + "ffn_gate_inp.bias", n, 0)
        for name, rows, cols in (("gate", inner, h), ("up", inner, h), ("down", h, inner)):
            m.mxfp4(p + "ffn_%s_exps" % name, n, rows, cols)
            m.floats(p + "ffn_%s_exps.bias" % name, (n, rows), lambda rows=rows: 0.02 * m.rng.standard_normal((n, rows)))


def deepseek4(out, m, c, layers, k):
    h, heads, dim, low, n = c["hidden_size"], c["num_attention_heads"], c["head_dim"], c["q_lora_rank"], c["n_routed_experts"]
    streams, inner, index, rope = c["hc_mult"], c["moe_intermediate_size"], c["index_head_dim"], c["rope_scaling"]
    put_common(out, "deepseek4", k, c, layers, 1)
    put_all(out, "deepseek4", k, STRING=[("rope.scaling.type", "yarn")], U32=[
        ("rope.scaling.original_context_length", rope["original_max_position_embeddings"]), ("rope.dimension_count", c["qk_rope_head_dim"]),
        ("feed_forward_length", inner), ("attention.key_length", dim), ("attention.value_length", dim), ("attention.q_lora_rank", low),
        ("attention.output_lora_rank", c["o_lora_rank"]), ("attention.output_group_count", c["o_groups"]),
        ("attention.indexer.head_count", c["index_n_heads"]), ("attention.indexer.key_length", index),
        ("attention.indexer.top_k", c["index_topk"]), ("hash_layer_count", c["num_hash_layers"]), ("hyper_connection.count", streams),
        ("hyper_connection.sinkhorn_iterations", c["hc_sinkhorn_iters"]), ("expert_count", n),
        ("expert_used_count", c["num_experts_per_tok"]), ("expert_feed_forward_length", inner),
        ("expert_shared_count", c["n_shared_experts"]), ("expert_gating_func", 4), ("vocab_size", c["vocab_size"])],
        FLOAT=[("rope.freq_base", c["rope_theta"]), ("attention.compress_rope_freq_base", c["compress_rope_theta"]),
               ("rope.scaling.factor", rope["factor"]), ("rope.scaling.yarn_beta_fast", rope["beta_fast"]),
               ("rope.scaling.yarn_beta_slow", rope["beta_slow"]), ("hyper_connection.epsilon", c["hc_eps"]),
               ("expert_weights_scale", c["routed_scaling_factor"])], BOOL=[("expert_weights_norm", c["norm_topk_prob"])],
        ARRAY=[("attention.compress_ratios", (k.INT32, c["compress_ratios"][:layers])),
               ("swiglu_clamp_exp", (k.FLOAT, [c["swiglu_limit"]] * layers))])

    def gates(name, rows, scales):
        m.router(name + "_fn.weight", rows, streams * h)
        m.vector(name + "_base.weight", rows, 0, 0.5)
        m.vector(name + "_scale.weight", scales, 1, 0)

    def compressor(name, every, size):
        wide = 2 * size if every == 4 else size
        m.matrix(name + "_kv", wide, h)
        m.matrix(name + "_gate", wide, h)
        m.router(name + "_ape.weight", every, wide)
        m.vector(name + "_norm.weight", size, 1)

    m.matrix("token_embd", c["vocab_size"], h)
    m.matrix("output", c["vocab_size"], h)
    m.vector("output_norm.weight", h, 1)
    gates("output_hc", streams, 1)
    for i, every in enumerate(c["compress_ratios"][:layers]):
        p = "blk.%d." % i
        gates(p + "hc_attn", (2 + streams) * streams, 3)
        gates(p + "hc_ffn", (2 + streams) * streams, 3)
        for name, size in (("attn_norm", h), ("ffn_norm", h), ("attn_q_a_norm", low), ("attn_kv_a_norm", dim)):
            m.vector(p + name + ".weight", size, 1)
        m.vector(p + "attn_sinks.weight", heads, 0, 1)
        for name, rows, cols in (("q_a", low, h), ("q_b", heads * dim, low), ("kv", dim, h), ("output_b", h, c["o_groups"] * c["o_lora_rank"]),
                                 ("output_a", c["o_groups"] * c["o_lora_rank"], heads // c["o_groups"] * dim)):
            m.matrix(p + "attn_" + name, rows, cols)
        if every:
            compressor(p + "attn_compressor", every, dim)
        if every == 4:
            compressor(p + "indexer_compressor", every, index)
            m.matrix(p + "indexer.attn_q_b", c["index_n_heads"] * index, low)
            m.matrix(p + "indexer.proj", c["index_n_heads"], h)
        m.router(p + "ffn_gate_inp.weight", n, h)
        if i < c["num_hash_layers"]:
            m.chosen(p + "ffn_gate_tid2eid.weight", c["vocab_size"], c["num_experts_per_tok"], n)
        else:
            m.vector(p + "exp_probs_b.bias", n, 0)
        for name, rows, cols in (("gate", inner, h), ("up", inner, h), ("down", h, inner)):
            m.mxfp4(p + "ffn_%s_exps" % name, n, rows, cols)
            m.matrix(p + "ffn_%s_shexp" % name, rows, cols)


def encoder(out, m, shape, k):
    """BERT with its tokenizer: the words "w0", "w1" ... are a token each."""
    h, layers, heads, vocab = shape
    put_all(out, "bert", k, U32=[("block_count", layers), ("context_length", 512), ("embedding_length", h), ("feed_forward_length", 4 * h),
                                 ("attention.head_count", heads), ("pooling_type", 2)],
            FLOAT=[("attention.layer_norm_epsilon", 1e-12)], BOOL=[("attention.causal", False)])
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["\u2581w%d" % i for i in range(vocab - 5)]
    put = {"model": (k.STRING, "bert"), "tokens": (k.ARRAY, (k.STRING, words)),
           "token_type": (k.ARRAY, (k.INT32, [3, 2, 3, 3, 3] + [1] * (vocab - 5))), "bos_token_id": (k.U32, 2),
           "unknown_token_id": (k.U32, 1), "seperator_token_id": (k.U32, 3), "padding_token_id": (k.U32, 0), "token_type_count": (k.U32, 2)}
    for key, (kind, v) in put.items():
        out.put("tokenizer.ggml." + key, kind, v)

    def norm(name):
        m.vector(name + ".weight", h, 1)
        m.vector(name + ".bias", h, 0)

    m.matrix("token_embd", vocab, h)
    m.floats("position_embd.weight", (512, h), lambda: 0.02 * m.rng.standard_normal((512, h)))
    m.floats("token_types.weight", (2, h), lambda: 0.02 * m.rng.standard_normal((2, h)))
    norm("token_embd_norm")
    for i in range(layers):
        p = "blk.%d." % i
        for name, rows, cols in (("attn_q", h, h), ("attn_k", h, h), ("attn_v", h, h), ("attn_output", h, h), ("ffn_up", 4 * h, h),
                                 ("ffn_down", h, 4 * h)):
            m.matrix(p + name, rows, cols)
            m.vector(p + name + ".bias", rows, 0)
        norm(p + "attn_output_norm")
        norm(p + "layer_output_norm")


ENCODERS = {"bge-small": (384, 12, 12, 30522), "bge-base": (768, 12, 12, 30522), "bge-large": (1024, 24, 16, 30522)}   # width, layers, heads, words
WRITTEN = {"gemma3_text": ("gemma3", gemma3), "gemma4": ("gemma4", gemma4), "gpt_oss": ("gpt-oss", gpt_oss),
           "deepseek_v4": ("deepseek4", deepseek4)}
