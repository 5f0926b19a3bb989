#!/usr/bin/env python3
"""weft quantize of a folder to a GGUF file: the tensors and keys are those that llama.cpp's converter writes of the same
folder, the model says the same, and what cannot be written is refused.

The bundled model stands for folders with a tokenizer; the converter's files are those of ../shared, if they are there."""
import base64, json, os, re, struct, sys, tempfile

from exportkit import Gguf, check, failures, join_commonest, models, run, shared

tiny = os.path.abspath(os.path.join(models, "weft-tiny"))
golden = os.path.join(os.environ.get("WEFT_SHARED", shared), "golden")
quick = "WEFT_TEST_QUICK" in os.environ  # a build with sanitizers: what is counted and answered takes longest


def quantize(*args):
    code, out, err = run("quantize", *args)
    check(code == 0, f"{args}: {err}")


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def same_tensors(ours, theirs, what):
    """Byte for byte; what is computed (-exp(A_log), divisors of angles) to the last bits of a float."""
    check(set(ours.tensors) == set(theirs.tensors), f"{what}: names {set(ours.tensors) ^ set(theirs.tensors)}")
    for name, (shape, kind, data) in theirs.tensors.items():
        got = ours.tensors.get(name)
        if not got or got == (shape, kind, data):
            continue
        near = name.endswith("ssm_a") or name == "rope_freqs.weight"
        near = near and got[:2] == (shape, kind) and all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(floats(got[2]), floats(data)))
        check(near, f"{what}: {name}: {got[:2]} for {(shape, kind)}, or other bytes")


def same_keys(ours, theirs, what):
    apart = ("tokenizer.", "general.name", "general.size_label", "general.sampling.", "general.file_type")
    for key in set(ours.pairs) | set(theirs.pairs):
        if not key.startswith(apart):
            check(ours.pairs.get(key) == theirs.pairs.get(key), f"{what}: {key}: {ours.pairs.get(key)} for {theirs.pairs.get(key)}")


def said(model, against, *text):
    code, out, err = run("ppl", model, *text, "--against-model", against, "--arith", "f32", "--json")
    check(code == 0, f"ppl {model}: {err}")
    return json.loads(out) if code == 0 else {"kl_mean": 1e9, "tokens": 0}


UPPER, LOWER = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
TEKKEN = (f"[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}*{LOWER}+|[^\\r\\n\\p{{L}}\\p{{N}}]?{UPPER}+{LOWER}*|\\p{{N}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def tekken(text, joins, more=()):
    """A tekken.json whose tokens are the bytes, then the commonest neighbours of a text, joined again and again."""
    words = [[bytes([b]) for b in w] for w in re.findall(rb" ?\w+|[^\w]", text)]
    vocab = [bytes([b]) for b in range(256)] + list(more)
    join_commonest(words, vocab, 256 + len(more) + joins)
    special = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])]
    return {"config": {"pattern": TEKKEN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + len(special),
                       "default_num_special_tokens": len(special), "version": "v7"},
            "vocab": [{"rank": i, "token_bytes": base64.b64encode(v).decode(), "token_str": None} for i, v in enumerate(vocab)],
            "special_tokens": special}


with tempfile.TemporaryDirectory() as tmp:
    at = lambda name: os.path.join(tmp, name)

    # With a tokenizer: the same text has the same tokens and the same probabilities.
    text = at("text")
    with open(os.path.join(models, "../tools/train/eval/held-out.txt"), "rb") as source, open(text, "wb") as f:
        f.write(source.read(1000 if quick else 3000))
    quantize(tiny, "--type", "F32", "--out", at("tiny.gguf"))
    plain = said(at("tiny.gguf"), tiny, "--text", text)
    check(abs(plain["kl_mean"]) < 1e-9 and plain["tokens"] > 200, f"F32 is the folder itself: {plain}")
    quantize(tiny, "--type", "Q4_K_M", "--out", at("tiny4.gguf"))
    cost = said(at("tiny4.gguf"), tiny, "--text", text)["kl_mean"]
    check(1e-6 < cost < 0.05, f"Q4_K_M costs {cost}")
    if not quick:
        quantize(tiny, "--type", "Q4_K_M", "--out", at("counted.gguf"), "--calibrate", text)
        counted = said(at("counted.gguf"), tiny, "--text", text)["kl_mean"]
        check(counted < cost, f"what counts more is kept better: {counted}, {cost}")
    for model in () if quick else (tiny, at("tiny4.gguf")):
        code, out, err = run("run", model, "What is the capital of Peru?", "--temp", "0", "-n", "12")
        check(code == 0 and "Lima" in out, f"{model} answers: {out} {err}")
    pairs = Gguf(at("tiny.gguf")).pairs
    config = json.load(open(os.path.join(tiny, "tokenizer.json")))
    added = {t["id"]: t for t in config["added_tokens"]}
    check(pairs["tokenizer.ggml.pre"] == "qwen35" and pairs["tokenizer.ggml.model"] == "gpt2", "how text is cut")
    check(all(pairs["tokenizer.ggml.tokens"][i] == t["content"] for i, t in added.items()), "added tokens")
    check(all(pairs["tokenizer.ggml.token_type"][i] == (3 if t["special"] else 4) for i, t in added.items()), "their kinds")
    check(pairs["tokenizer.ggml.tokens"][-1] == "[PAD2047]" and pairs["tokenizer.ggml.token_type"][-1] == 5, "rows of no token")

    # A tekken.json, which has no merges: text has the same tokens.
    mistral = at("mistral")
    os.mkdir(mistral)
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(tiny, name), os.path.join(mistral, name))
    sample = open(text, "rb").read()
    json.dump(tekken(sample, 300), open(os.path.join(mistral, "tekken.json"), "w"))
    code, out, err = run("quantize", mistral, "--type", "Q8_0", "--out", at("mistral.gguf"))
    check(code == 0 and "capitals or marks beyond ASCII" in err, f"a tekken.json: {code} {err}")
    pairs = Gguf(at("mistral.gguf")).pairs
    check(pairs["tokenizer.ggml.pre"] == "tekken" and len(pairs["tokenizer.ggml.merges"]) >= 300, "what a tekken.json becomes")
    check(pairs["tokenizer.ggml.add_bos_token"] and pairs["tokenizer.ggml.bos_token_id"] == 1, "its begin token")
    with open(os.path.join(models, "../tools/train/eval/held-out.txt"), "rb") as f:
        unseen = f.read(24000)[4000:].decode(errors="replace")  # where joins compete
    for words in (unseen, "Straße, 12 345!\n\n  für été\t\U0001f40a <s>[INST]"):
        ids = [run("tokenize", model, words)[1] for model in (mistral, at("mistral.gguf"))]
        check(ids[0] == ids[1] and ids[0].count(",") > 5, f"tokens of {words[:20]!r}: {ids[0][:80]}, {ids[1][:80]}")
    json.dump(tekken(sample, 10, [b"</s>"]), open(os.path.join(mistral, "tekken.json"), "w"))
    code, out, err = run("quantize", mistral, "--type", "Q8_0", "--out", at("x.gguf"))
    check(code == 1 and "special token 2 has the text of an ordinary one" in err, f"an ordinary </s>: {code} {err}")

    # A tiktoken.model, whose special tokens stand in tokenizer_config.json.
    kimi = at("kimi")
    os.mkdir(kimi)
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(tiny, name), os.path.join(kimi, name))

    def tiktoken(vocab, decoder, kind="TikTokenTokenizer"):
        with open(os.path.join(kimi, "tiktoken.model"), "wb") as f:
            f.write(b"".join(base64.b64encode(v) + b" %d\n" % i for i, v in enumerate(vocab)))
        json.dump({"tokenizer_class": kind, "bos_token": "[BOS]", "eos_token": "[EOS]", "added_tokens_decoder": decoder},
                  open(os.path.join(kimi, "tokenizer_config.json"), "w"))

    vocab = [base64.b64decode(v["token_bytes"]) for v in tekken(sample, 300)["vocab"]]
    decoder = {str(556 + i): {"content": text, "special": i != 3} for i, text in enumerate(["[BOS]", "[EOS]", "<|im_end|>", "<|tool_call_begin|>"])}
    tiktoken(vocab, decoder)
    code, out, err = run("quantize", kimi, "--type", "Q8_0", "--out", at("kimi.gguf"))
    check(code == 0 and "capitals or marks beyond ASCII" in err, f"a tiktoken.model: {code} {err}")
    pairs = Gguf(at("kimi.gguf")).pairs
    check(pairs["tokenizer.ggml.pre"] == "kimi-k2" and pairs["tokenizer.ggml.model"] == "gpt2", "how text is cut")
    check(pairs["tokenizer.ggml.bos_token_id"] == 556 and pairs["tokenizer.ggml.eos_token_id"] == 557, "its special tokens")
    check(pairs["tokenizer.ggml.token_type"][556:812] == [3, 3, 3, 4] + [3] * 252, "their kinds")
    check(pairs["tokenizer.ggml.tokens"][811] == "<|reserved_token_811|>", "and names")
    for words in (unseen, "Straße, 12 345!\n\n  für été\t\U0001f40a It's 漢字かな <|im_end|>[BOS]"):
        ids = [run("tokenize", model, words)[1] for model in (kimi, at("kimi.gguf"))]
        check(ids[0] == ids[1] and ids[0].count(",") > 5, f"tokens of {words[:20]!r}: {ids[0][:80]}, {ids[1][:80]}")
    for what, args in {"unreached": (vocab + [b"qzjxk"], {}), "tokenizer_class Other": (vocab, {}, "Other"),
                       "added_tokens_decoder: 7": (vocab, {"7": {"content": "x"}}), "line 1: is not base64": ([b""] + vocab, {})}.items():
        tiktoken(*args)
        code, out, err = run("quantize", kimi, "--type", "Q8_0", "--out", at("x.gguf"))
        check(code == 1 and ("no name here" if what == "unreached" else what) in err, f"tiktoken.model, {what}: {code} {err}")

    # RWKV's list: the longest token that fits, and the same from the file.
    rwkv_text = at("rwkv_text")
    os.mkdir(rwkv_text)
    for name in ("config.json", "model.safetensors"):
        os.symlink(os.path.join(tiny, name), os.path.join(rwkv_text, name))
    words = sorted({w for w in re.findall(rb" ?\w+|[^\w]+", sample) if len(w) > 1}) + ["für".encode(), "漢字".encode(), b"it's", b'"', b"'\"", b"\\n", b"\r\n", b"\t\t"]
    listed = [bytes([b]) for b in range(256)] + [w for i, w in enumerate(words) if w not in words[:i] and len(w) > 1]

    def literal(token):
        try:
            return repr(token.decode())
        except UnicodeDecodeError:
            return repr(token)

    def rwkv_list(lines):
        with open(os.path.join(rwkv_text, "rwkv_vocab_v20230424.txt"), "w", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in lines))

    lines = [f"{i + 1} {literal(token)} {len(token)}" for i, token in enumerate(listed)]
    rwkv_list(lines)
    json.dump({"eos_token": "<end>", "added_tokens_decoder": {"0": {"content": "<end>"}}}, open(os.path.join(rwkv_text, "tokenizer_config.json"), "w"))
    quantize(rwkv_text, "--type", "Q8_0", "--out", at("rwkv_text.gguf"))
    pairs = Gguf(at("rwkv_text.gguf")).pairs
    check(pairs["tokenizer.ggml.model"] == "rwkv" and pairs["tokenizer.ggml.eos_token_id"] == 0, "RWKV's kind, and its end")
    wanted = ["<end>"] + [repr(token)[2:-1] for token in listed]
    check(pairs["tokenizer.ggml.tokens"][: len(wanted)] == wanted, "tokens as Python writes bytes")
    check(pairs["tokenizer.ggml.token_type"][:3] == [3, 1, 1] and pairs["tokenizer.ggml.token_type"][len(wanted)] == 5, "their kinds")
    known, longest = {token: i + 1 for i, token in enumerate(listed)}, max(map(len, listed))
    for words in (unseen, "für Straße, it's 漢字!\r\n\t\t\"'\" \\n \U0001f40a"):
        data, greedy = words.encode(), []
        while data:
            n = max(k for k in range(1, min(len(data), longest) + 1) if data[:k] in known)
            greedy.append(known[data[:n]])
            data = data[n:]
        for model in (rwkv_text, at("rwkv_text.gguf")):
            code, out, err = run("tokenize", model, words)
            got = [int(i) for i in re.findall(r"\d+", out.split("\n")[0])]
            check(got == greedy, f"{model}: tokens of {words[:20]!r}: {got[:12]}, {greedy[:12]} {err}")
    for line, what in (("x 'a' 1", "is not an id, a text and a length"), ("5 'a' 1", "there twice"), ("0 'a' 1", "there twice"), ("9999 'a' 2", "its text has 1 bytes"),
                       ("9999 '' 0", "its text has 0 bytes"), ("9999 'a'b' 3", "is not an id"), ("9999 '\\q' 1", "is not an id"), ("9999 b'\\u0041' 1", "is not an id"),
                       ("9999 '\\ud800' 3", "is not an id"), ("9999 'a 2", "is not an id"), ("99999999 'ab' 2", "is not an id"), ("9999 'ab' 2", "the embedding has 2048 rows")):
        rwkv_list(lines + [line])
        code, out, err = run("quantize", rwkv_text, "--type", "Q8_0", "--out", at("x.gguf"))
        check(code == 1 and what in err and (what.startswith("the") and "embedding" in what or f"line {len(lines) + 1}" in err), f"RWKV's list, {line}: {code} {err}")

    # Refusals say why, and leave nothing.
    cut = at("cut")
    os.mkdir(cut)
    for name in os.listdir(tiny):
        if name not in ("config.json", "tokenizer.json"):
            os.symlink(os.path.join(tiny, name), os.path.join(cut, name))
    other = json.load(open(os.path.join(tiny, "config.json")))

    def refused(change, tokens, what):
        changed = json.loads(json.dumps(other))
        change(changed["text_config"])
        json.dump(changed, open(os.path.join(cut, "config.json"), "w"))
        json.dump(tokens, open(os.path.join(cut, "tokenizer.json"), "w"))
        code, out, err = run("quantize", cut, "--type", "Q8_0", "--out", at("x.gguf"))
        check(code == 1 and what in err and not os.path.exists(at("x.gguf")), f"{what}: {code} {err}")

    def rope(c):
        c["rope_parameters"]["rope_type"] = "dynamic"

    def layers(c):
        c["layer_types"][0] = "full_attention"

    split = json.loads(json.dumps(config))
    split["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "x+"
    far = json.loads(json.dumps(config))
    far["added_tokens"][0]["id"] = 1 << 40
    refused(lambda c: c.update(model_type="olmo_hybrid"), config, "model_type olmo_hybrid")
    refused(rope, config, "rope type dynamic")
    refused(layers, config, "layer_types: layer 0")
    refused(lambda c: c.update(linear_num_value_heads=6), config, "value heads")
    refused(lambda c: c.update(num_hidden_layers=1 << 40), config, "layers")
    refused(lambda c: c.update(full_attention_interval=0), config, "full_attention_interval")
    refused(lambda c: None, split, "no name here for the way in which it cuts text")
    refused(lambda c: None, far, "the embedding has 2048 rows")
    rotated = {"version": 1, "block_size": 8, "transform": "normalized-sylvester-walsh-hadamard", "axis": "input-last-dimension",
               "sign_mode": "identity", "weight_names": ["model.language_model.layers.1.mlp.down_proj.weight"]}
    json.dump({"prism.hadamard." + k: v for k, v in rotated.items()}, open(os.path.join(cut, "hadamard.json"), "w"))
    refused(lambda c: None, config, "rotated basis")
    os.remove(os.path.join(cut, "hadamard.json"))
    refused(lambda c: None, {"model": {"type": "Unigram"}}, "with a vocabulary")
    refused(lambda c: None, {"model": {"type": "WordPiece"}}, "of pairs (BPE) and of Unigram")

    # Shapes and sizes that disagree: an order made for one axis must not be read past its end.
    def hostile(change, tensors, what):
        """tensors: names and shapes, beside an embedding and a norm; their bytes are zeros."""
        changed = json.loads(json.dumps(other))
        change(changed["text_config"])
        json.dump(changed, open(os.path.join(evil, "config.json"), "w"))
        header, at_byte = {}, 0
        for name, shape in {"model.embed_tokens.weight": [64, 64], "model.norm.weight": [64], **tensors}.items():
            size = 2
            for d in shape:
                size *= d
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at_byte, at_byte + size]}
            at_byte += size
        head = json.dumps(header).encode()
        with open(os.path.join(evil, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + bytes(at_byte))
        code, out, err = run("quantize", evil, "--type", "Q8_0", "--out", at("x.gguf"))
        check(code == 1 and what in err and "Sanitizer" not in err and "runtime error" not in err and not os.path.exists(at("x.gguf")),
              f"{what}: {code} {err[:400]}")

    evil = at("evil")
    os.mkdir(evil)
    layer = "model.layers.0."
    delta = layer + "linear_attn."
    sizes = other["text_config"]
    two = lambda c: c.update(linear_num_key_heads=2, linear_num_value_heads=4)  # value heads in another order
    rows = 2 * 2 * sizes["linear_key_head_dim"] + 4 * sizes["linear_key_head_dim"]

    def llama(c):
        c.update(model_type="llama", num_attention_heads=2, num_key_value_heads=2, head_dim=32)

    def experts(c):
        c.update(model_type="qwen3_moe", num_experts=2, num_experts_per_tok=1, moe_intermediate_size=8)
        c.pop("layer_types", None)

    expert = layer + "mlp.experts.%d.gate_proj.weight"
    hostile(two, {delta + "conv1d.weight": [5, rows, 4]}, "has 3 axes")
    hostile(two, {delta + "in_proj_qkv.weight": [7, rows, 64]}, "has 3 axes")
    hostile(two, {delta + "conv1d.weight": [rows, 1, 0]}, "is empty")
    hostile(two, {delta + "in_proj_qkv.weight": [rows + 1, 64]}, "rows, 4 value heads")
    hostile(llama, {layer + "self_attn.q_proj.weight": [9, 64, 64]}, "has 3 axes")
    hostile(llama, {layer + "self_attn.q_proj.weight": [65, 64]}, "whole heads of 32")
    hostile(lambda c: c.update(linear_key_head_dim=(1 << 31) - 1, linear_value_head_dim=(1 << 31) - 1, linear_num_key_heads=(1 << 32) - 1,
                               linear_num_value_heads=1 << 30), {delta + "conv1d.weight": [8, 1, 4]}, "linear heads over")
    hostile(lambda c: c.update(head_dim=(1 << 31) - 2), {}, "heads of 2147483646")
    hostile(lambda c: c["rope_parameters"].update(partial_rotary_factor=1e300), {}, "out of range")
    def next_(c):
        c.update(model_type="qwen3_next", linear_num_key_heads=2, linear_num_value_heads=4)

    def granite(c):
        c.update(model_type="granitemoehybrid", layer_types=["mamba"] * c["num_hidden_layers"], mamba_n_heads=2, mamba_d_head=32, mamba_d_state=8,
                 mamba_d_conv=4, shared_intermediate_size=8, num_local_experts=0, head_dim=32)

    per = 2 * sizes["linear_key_head_dim"] + 4 * sizes["linear_key_head_dim"]
    hostile(next_, {delta + "in_proj_qkvz.weight": [2 * per + 1, 64]}, "key heads have")
    hostile(next_, {delta + "in_proj_qkvz.weight": [2 * per, 64, 2]}, "key heads have")
    hostile(next_, {delta + "in_proj_ba.weight": [8]}, "has 1 axes, 2 are wanted")
    hostile(granite, {layer + "shared_mlp.input_linear.weight": [7, 64]}, "7 rows are not gate and up")
    hostile(granite, {layer + "shared_mlp.input_linear.weight": [8]}, "has 1 axes, 2 are wanted")
    hostile(granite, {layer + "block_sparse_moe.input_linear.weight": [8, 64]}, "has 2 axes, 3 are wanted")
    hostile(granite, {layer + "block_sparse_moe.output_linear.weight": [8, 64]}, "has 2 axes, 3 are wanted")
    hostile(lambda c: (granite(c), c.update(layer_types=["mamba"])), {}, "layer_types: 1")
    hostile(lambda c: (granite(c), c.update(mamba_n_heads=1 << 40)), {}, "mamba_n_heads")
    hostile(lambda c: c.update(model_type="nemotron_h", hybrid_override_pattern="M", head_dim=32, mlp_hidden_act="relu2"), {}, "layer")
    hostile(lambda c: c.update(model_type="gemma4_text", global_head_dim=1 << 30, head_dim=64, sliding_window=8), {}, "heads of")

    def latent(c):
        c.update(model_type="deepseek_v3", num_attention_heads=2, kv_lora_rank=8, q_lora_rank=None, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10,
                 moe_intermediate_size=8, n_routed_experts=2, num_experts_per_tok=1)
        c.pop("rope_parameters")

    def kimi(c):
        latent(c)
        c.update(model_type="kimi_linear", mla_use_nope=True, num_experts=2, num_experts_per_token=1,
                 linear_attn_config={"num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 4, "full_attn_layers": [1], "kda_layers": []})

    def oss(c):
        c.update(model_type="gpt_oss", head_dim=32, sliding_window=8, num_local_experts=2, num_experts_per_tok=1)
        c.pop("rope_parameters")
        c.pop("layer_types")

    def falcon(c):
        c.update(model_type="falcon_h1", head_dim=32, mamba_n_heads=2, mamba_d_head=32, mamba_d_state=8, mamba_d_conv=4)
        c.pop("rope_parameters")

    def rwkv(c):
        c.update(model_type="rwkv7", hidden_act="sqrelu", norm_eps=1e-5, head_dim=64, decay_low_rank_dim=8, a_low_rank_dim=8, v_low_rank_dim=8,
                 gate_low_rank_dim=8)

    shift = {layer + "attn.x_" + c: [1, 1, 64] for c in "rwkvag"}
    hostile(rwkv, {**shift, layer + "attn.x_a": [1, 1, 63]}, "attn.x_a: missing, or of another size")
    hostile(rwkv, {layer + "attn.x_r": [64]}, "attn.x_w: missing")
    hostile(lambda c: (rwkv(c), c.update(head_dim=32)), {}, "have 64e-5 in all")
    hostile(lambda c: c.update(model_type="jamba", attn_layer_period=0), {}, "attn_layer_period: 0")
    kv_b, stack = layer + "self_attn.kv_b_proj.weight", layer + "mlp.experts."
    hostile(latent, {kv_b: [32, 9]}, "is [32, 9], [32, 8] are wanted")
    hostile(latent, {kv_b: [2, 16, 8]}, "has 3 axes, 2 are wanted")
    hostile(lambda c: (latent(c), c.update(v_head_dim=1 << 40)), {kv_b: [32, 8]}, "values of")
    hostile(lambda c: (latent(c), c.update(num_attention_heads=1 << 20)), {kv_b: [32, 8]}, "are wanted")
    hostile(lambda c: (latent(c), c.update(num_attention_heads=5000)), {kv_b: [80000, 8]}, "are not 5000 times")
    hostile(lambda c: (latent(c), c.update(rope_scaling={"type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 1.0})), {}, "mscale 0.5")
    hostile(lambda c: (latent(c), c.update(scoring_func="softmax")), {}, "scoring_func: softmax")
    hostile(lambda c: (latent(c), c.update(kv_lora_rank=(1 << 63) - 1, qk_rope_head_dim=0.5)), {}, "qk_rope_head_dim")
    hostile(lambda c: (granite(c), c.update(mamba_n_heads=1 << 40, mamba_d_head=1 << 40)), {}, "mamba_n_heads")
    hostile(lambda c: c.update(model_type="jamba", mamba_expand=1 << 62), {}, "times as wide")
    hostile(lambda c: (rwkv(c), c.update(hidden_size=1 << 62)), {}, "in heads of 64")
    hostile(lambda c: (kimi(c), c["linear_attn_config"].update(full_attn_layers=[1 << 40])), {}, "full_attn_layers: element 0")
    hostile(lambda c: (kimi(c), c["linear_attn_config"].pop("head_dim")), {}, "linear_attn_config.head_dim: missing")
    hostile(lambda c: (kimi(c), c.pop("linear_attn_config")), {}, "linear_attn_config.num_heads")
    hostile(oss, {stack + "gate_up_proj_blocks": [2, 8, 2, 16]}, "gate_up_proj_scales: missing")
    hostile(oss, {stack + "gate_up_proj_scales": [2, 8, 2]}, "gate_up_proj_blocks: missing")
    hostile(oss, {stack + "down_proj_blocks": [2, 8, 2, 16], stack + "down_proj_scales": [2, 8, 2]}, "are not codes and scales of mxfp4")
    hostile(oss, {stack + "gate_up_proj_bias": [2, 7]}, "7 biases are not gate and up")
    hostile(oss, {stack + "gate_up_proj": [2, 64, 7]}, "7 rows are not gate and up")
    hostile(lambda c: (oss(c), c.update(layer_types=["full_attention"] * c["num_hidden_layers"])), {}, "layer_types: layer 0")
    hostile(lambda c: (oss(c), c.update(swiglu_limit=6.5)), {}, "swiglu_limit: 6.5")
    hostile(falcon, {layer + "mamba.in_proj.weight": [7, 64]}, "7 rows, gate, x, B, C and steps have 146")
    hostile(lambda c: (falcon(c), c.update(ssm_multipliers=[1.0])), {layer + "mamba.in_proj.weight": [146, 64]}, "is not 5 numbers")
    hostile(lambda c: (falcon(c), c.update(mamba_n_heads=1 << 40)), {}, "mamba_n_heads")
    hostile(lambda c: (falcon(c), c.update(mlp_bias=True)), {}, "mlp_bias: true")
    hostile(falcon, {layer + "mamba.conv1d.weight": [80, 4, 1]}, "take the folder as Hugging Face has it")
    hostile(experts, {expert % 0: [3, 8, 64], expert % 1: [3, 8, 64]}, "2 are wanted")
    hostile(experts, {expert % 0: [8, 64], expert % 1: [16, 32]}, "of another size")
    hostile(experts, {"model.layers.99999.mlp.experts.0.gate_proj.weight": [8, 64]}, "have no name for it")

    if not os.path.isdir(os.path.join(golden, "_gguf")):
        print(f"skipped the converter's files: {golden} missing")
        sys.exit(1 if failures else 77)

    # The converter's own files of the same folders.
    theirs = lambda name: Gguf(os.path.join(golden, "_gguf/models", name + ".gguf"))
    for folder, name in (("qwen3_5/hf-bf16", "qwen3_5/bf16"), ("llama/hf-f32", "llama/bf16"), ("gpt_oss/hf-bf16", "gpt_oss/bf16"),
                         ("deepseek_v3/hf-bf16", "deepseek_v3/bf16"), ("falcon_h1/hf-bf16", "falcon_h1/bf16")):
        out = at(folder.replace("/", "_"))
        quantize(os.path.join(golden, folder), "--type", "BF16", "--out", out)
        same_tensors(Gguf(out), theirs(name), folder)
        same_keys(Gguf(out), theirs(name), folder)
    for folder, name in (("qwen3_moe/hf-bf16", "qwen3_moe/q8_0"), ("qwen3_5_moe/hf-f32", "qwen3_5_moe/q8_0")):
        out = at(folder.replace("/", "_"))
        quantize(os.path.join(golden, folder), "--type", "Q8_0", "--out", out)
        same_keys(Gguf(out), theirs(name), folder)
        ours, golds = Gguf(out).tensors, theirs(name).tensors
        check({k: v[:2] for k, v in ours.items()} == {k: v[:2] for k, v in golds.items()}, f"{folder}: shapes and types")

    # The model says what the folder says: the same bits where no sum is in another order and no angle is divided by a
    # rounded number.
    ids = at("ids.json")
    json.dump([(7 * i * i + 3 * i) % 300 for i in range(64)], open(ids, "w"))
    for folder, most in (("llama/hf-f32", 1e-9), ("llama2/hf-bf16", 0), ("qwen2/hf-bf16", 0), ("qwen3_moe/hf-bf16", 0),
                         ("qwen3_5_vl/hf-f32", 1e-9), ("qwen3_5_moe/hf-f32", 1e-9)):
        source, out = os.path.join(golden, folder), at("f32_" + folder.replace("/", "_"))
        quantize(source, "--type", "F32", "--out", out)
        kl = said(out, source, "--ids", ids)["kl_mean"]
        check(abs(kl) <= most, f"{folder}: {kl}")
    code, out, err = run("quantize", os.path.join(golden, "qwen3/mlx-q4"), "--type", "Q8_0", "--out", at("x.gguf"))
    check(code == 1 and "quantised already" in err, f"twice: {code} {err}")

sys.exit(1 if failures else 0)
