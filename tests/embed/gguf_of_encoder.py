"""GGUF files of encoders and embedders, written from the golden folders as llama.cpp's converter writes them, give the
reference's vectors and scores.

    gguf_of_encoder.py WEFT EMBED_GOLDEN TEXTS_TEST ROOT...     the first ROOT that is there

What the converter does to names, values and metadata stands here once more, apart from weft's own tables."""
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "store"))
from gguf_of_folder import NAMES, File, all_tensors, paired, safetensors, slowed  # noqa: E402

BERT = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
JINA = {**BERT, "mlp.gated_layers": "ffn_up", "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm"}
NOMIC = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate",
         "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}
MODERN = {"attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up",
          "mlp.Wo": "ffn_down"}
GEMMA = {**NAMES, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
       "embeddings.position_embeddings": "position_embd", "embeddings.LayerNorm": "token_embd_norm", "emb_ln": "token_embd_norm",
       "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
       "embed_tokens": "token_embd", "norm": "output_norm", "classifier.dense": "cls", "classifier.out_proj": "cls.output",
       "classifier": "cls.output", "head.dense": "cls", "head.norm": "cls.norm"}
LAYERS = {"bert": ("encoder.layer.", BERT), "jina-bert-v2": ("encoder.layer.", JINA), "nomic-bert": ("encoder.layers.", NOMIC),
          "modern-bert": ("layers.", MODERN), "gemma-embedding": ("layers.", GEMMA), "llama-embed": ("layers.", NAMES), "qwen3": ("layers.", NAMES)}
POOLINGS = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}


def pooling(folder):
    """pooling_type: what the folder's modules say; rank where there is a classifier."""
    path = os.path.join(folder, "1_Pooling", "config.json")
    if not os.path.exists(path):
        return 4
    with open(path) as f:
        said = json.load(f)
    return next(n for key, n in POOLINGS.items() if said.get(key))


def keys(f, c, folder, change):
    def of(*names):
        return next(c[n] for n in names if n in c)

    heads, width = of("num_attention_heads", "n_head"), of("hidden_size", "n_embd")
    f.put("block_count", of("num_hidden_layers", "n_layer"))
    f.put("context_length", of("max_trained_positions", "max_position_embeddings") - (c["pad_token_id"] + 1 if c["model_type"] == "xlm-roberta" else 0))
    f.put("embedding_length", width)
    f.put("feed_forward_length", of("intermediate_size", "n_inner"))
    f.put("attention.head_count", heads)
    f.put("pooling_type", change.get("pooling_type", pooling(folder)))
    if f.arch != "qwen3" or change:
        f.put("attention.causal", change.get("attention.causal", False))
    if "rms_norm_eps" in c:
        f.put("attention.layer_norm_rms_epsilon", float(c["rms_norm_eps"]))
        f.put("attention.head_count_kv", c["num_key_value_heads"])
        f.put("attention.key_length", c["head_dim"])
        f.put("attention.value_length", c["head_dim"])
        f.put("rope.freq_base", float(c["rope_theta"]))
        slowed(f, c, c.get("rope_scaling") or {}, c["head_dim"])
    else:
        f.put("attention.layer_norm_epsilon", float(of("layer_norm_eps", "layer_norm_epsilon")))
    if f.arch == "modern-bert":
        f.put("attention.sliding_window", c["local_attention"])
        f.put("attention.sliding_window_pattern", c["global_attn_every_n_layers"])
        f.put("rope.freq_base", float(c["global_rope_theta"]))
        f.put("rope.freq_base_swa", float(c["local_rope_theta"]))
        f.put("hidden_act", c["hidden_activation"])
    if f.arch == "nomic-bert":
        f.put("rope.freq_base", float(c["rotary_emb_base"]))
    if f.arch == "gemma-embedding":
        f.put("attention.sliding_window", c["sliding_window"])
        f.put("attention.sliding_window_pattern", c["_sliding_window_pattern"])
    if c.get("id2label") or change.get("asks"):
        f.put("classifier.output_labels", ["yes", "no"] if "asks" in change else list(c["id2label"].values()))


def tokens(f, folder):
    """Words with a mark in front of those that begin one, or texts with scores."""
    with open(os.path.join(folder, "tokenizer.json")) as at:
        t = json.load(at)
    special, model = {a["id"] for a in t["added_tokens"]}, t["model"]
    if model["type"] == "WordPiece":
        texts = sorted(model["vocab"], key=model["vocab"].get)
        texts = [s if i in special else s[2:] if s.startswith("##") else "\u2581" + s for i, s in enumerate(texts)]
        ends = (("bos_token_id", "[CLS]"), ("seperator_token_id", "[SEP]"), ("unknown_token_id", "[UNK]"))
    else:
        texts = [s for s, _ in model["vocab"]]
        f.put("tokenizer.ggml.scores", [float(score) for _, score in model["vocab"]])
        f.put("tokenizer.ggml.precompiled_charsmap", bytearray(base64.b64decode(t["normalizer"]["normalizers"][0]["precompiled_charsmap"])))
        f.put("tokenizer.ggml.add_space_prefix", True)
        f.put("tokenizer.ggml.remove_extra_whitespaces", False)
        f.put("tokenizer.ggml.add_bos_token", True)
        f.put("tokenizer.ggml.add_eos_token", True)
        ends = (("bos_token_id", "<s>"), ("eos_token_id", "</s>"), ("unknown_token_id", "<unk>"))
    for key, text in ends:
        f.put("tokenizer.ggml." + key, texts.index(text))
    unknown = {"[UNK]", "<unk>"}
    f.put("tokenizer.ggml.token_type", b"".join(struct.pack("<i", 2 if s in unknown else 3 if i in special else 1) for i, s in enumerate(texts)))
    f.put("tokenizer.ggml.tokens", texts)
    return {"WordPiece": "bert", "Unigram": "t5"}[model["type"]]


def convert(folder, arch, path, change={}):
    with open(os.path.join(folder, "config.json")) as at:
        c = json.load(at)
    has_tokens, (layers, names) = os.path.exists(os.path.join(folder, "tokenizer.json")), LAYERS[arch]
    f = File(arch, None if has_tokens else "none")
    if has_tokens:
        f.put("tokenizer.ggml.model", tokens(f, folder))
    keys(f, c, folder, change)
    for name, v in sorted(all_tensors(folder).items()):
        for before in ("bert.", "roberta.", "model."):
            name = name[len(before):] if name.startswith(before) else name
        if name.startswith(("pooler.", "cls.predictions")) or name == "embeddings.position_ids":
            continue
        base, _, kind = name.rpartition(".")
        if arch == "gemma-embedding" and base.endswith("norm"):
            v = v + 1
        if base.endswith("q_norm") and "query_pre_attn_scalar" in c:     # a file has no key for it
            v = v * (c["head_dim"] / c["query_pre_attn_scalar"]) ** 0.5
        if name.startswith(layers):
            n, _, base = base[len(layers):].partition(".")
            if arch == "llama-embed" and base in ("self_attn.q_proj", "self_attn.k_proj"):
                v = paired(v, c["num_attention_heads" if base.endswith("q_proj") else "num_key_value_heads"])
            f.add("blk.%s.%s.%s" % (n, names[base], kind), v)
        else:
            if base == "embeddings.position_embeddings" and c["model_type"] == "xlm-roberta":
                v = v[c["pad_token_id"] + 1:]
            f.add("%s.%s" % (TOP[base], kind), v)
    if change.get("asks"):     # the words' rows of the output matrix, yes before no
        f.add("cls.output.weight", all_tensors(folder)["model.embed_tokens.weight"][change["asks"]])
    for n in (2, 3):
        dense = os.path.join(folder, "%d_Dense" % n, "model.safetensors")
        if os.path.exists(dense):
            f.add("dense_%d.weight" % n, safetensors(dense)["linear.weight"])
    f.write(path)
    return has_tokens


# Not xlm_roberta: a text of its golden has the pad, whose position the converter cuts off.
GOLDENS = (("bert", "bert"), ("bge_reranker", "bert"), ("modernbert", "modern-bert"),
           ("modernbert_reranker", "modern-bert"), ("nomic_bert", "nomic-bert"), ("jina_bert", "jina-bert-v2"),
           ("embedding_gemma", "gemma-embedding"), ("llama_bidirec", "llama-embed"), ("qwen3_embedding", "qwen3"),
           ("qwen3_reranker", "qwen3", {"pooling_type": 4, "attention.causal": True, "asks": [97, 21]}))


def refused(weft, root, tmp):
    """Keys that do not go together, each with the words of its refusal."""
    bad = 0
    for name, arch, change, words in (
            ("bert", "bert", {"attention.causal": True}, "bert.attention.causal: true is not done"),
            ("bert", "bert", {"pooling_type": 9}, "bert.pooling_type: 9"),
            ("bert", "bert", {"pooling_type": 4}, "tensor cls.output.weight: missing"),
            ("nomic_bert", "nomic-bert", {"pooling_type": 4}, "nomic-bert.pooling_type: rank is not done"),
            ("qwen3_reranker", "qwen3", {"pooling_type": 4, "attention.causal": True, "asks": [97, 21, 5]}, "tensor cls.output.weight: 3 rows"),
            ("qwen3_embedding", "qwen3", {"attention.causal": False}, "qwen3.attention.causal: false is not done")):
        if not os.path.isdir(os.path.join(root, name)):
            continue
        path = os.path.join(tmp, "bad.gguf")
        convert(os.path.join(root, name, "hf-bf16"), arch, path, change)
        p = subprocess.run([weft, "inspect", path], capture_output=True, text=True)
        if p.returncode == 0 or words not in p.stderr:
            print("FAIL %s %s: %s" % (arch, change, p.stderr or "is read"))
            bad = 1
    return bad


def main():
    weft, program, texts, *roots = sys.argv[1:]
    root = next(r for r in roots if os.path.isdir(r))
    made, with_tokens = [], []
    with tempfile.TemporaryDirectory() as tmp:
        failed = refused(weft, root, tmp)
        for name, arch, *change in GOLDENS:
            folder, path = os.path.join(root, name, "hf-bf16"), os.path.join(tmp, name + ".gguf")
            if not os.path.isdir(folder):
                print("skipped: no %s" % folder)
                continue
            made.append("%s=%s" % (name, path))
            if convert(folder, arch, path, *change):
                with_tokens.append(made[-1])
        for command in ([program, root, *made], [texts, root, *with_tokens]):
            failed |= subprocess.run(command).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
