"""Small vocabularies of SentencePiece's kinds as tokenizer.json, a llama model for them, and texts to compare them with."""
import json, os, random, struct

from exportkit import join_commonest

MARK = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>", "<turn>"]


def joined(text, joins, cut=True):
    """The commonest neighbours of a text, joined again and again: characters and then what was joined, in order."""
    words = [list(w) for w in (MARK + text.replace(" ", " " + MARK).replace("\n", " \n ")).split(" ") if w]
    if not cut:
        words = [list(MARK + text.replace(" ", MARK))]
    chars = sorted({c for w in words for c in w})
    made = []
    join_commonest(words, made, joins)
    return chars, made


def all_merges(vocab, made):
    """Every cut of a token in two tokens, those of earlier tokens first: what Hugging Face makes of SentencePiece's scores."""
    merges = []
    for token in made:
        halves = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(halves, key=lambda h: (-len(h[0]), -len(h[1])))
    return [list(m) for m in merges]


def added(id, content, special=True, **more):
    return {"id": id, "content": content, "special": special, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False, **more}


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}


def sequence(of, *steps):
    return {"type": "Sequence", of: list(steps)}


def around(before=("<s>", 1), behind=None):
    put = lambda t: [{"SpecialToken": {"id": t[0], "type_id": 0}}] if t else []
    single = put(before) + [{"Sequence": {"id": "A", "type_id": 0}}] + put(behind)
    return {"type": "TemplateProcessing", "single": single,
            "special_tokens": {t[0]: {"id": t[0], "ids": [t[1]], "tokens": [t[0]]} for t in (before, behind) if t}}


def decoder(strip):
    return sequence("decoders", {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                    *[{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * strip)


def pairs(chars, made, user=(), merges=None, prepend=True, **more):
    """A tokenizer.json of pairs with byte fallback; user: added tokens that are not special."""
    texts = SPECIAL + [f"<0x{b:02X}>" for b in range(256)] + list(made) + list(chars)
    texts += [u for u in user if u not in texts]
    vocab = {t: i for i, t in enumerate(texts)}
    return {"added_tokens": [added(i, t) for i, t in enumerate(SPECIAL)] + [added(vocab[u], u, False) for u in user],
            "normalizer": sequence("normalizers", *[PREPEND] * prepend, REPLACE), "pre_tokenizer": None, "post_processor": around(),
            "decoder": decoder(prepend),
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                      "merges": all_merges(vocab, made) if merges is None else merges}, **more}


def unigram(chars, made, rnd, **more):
    """A tokenizer.json of Unigram with scores that tell any two ways apart, in 32 bits as SentencePiece makes them."""
    single = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    scored = [[t, 0.0] for t in SPECIAL] + [[t, single(-3 - 9 * rnd.random() - 2 / len(t))] for t in dict.fromkeys(list(made) + list(chars))]
    space = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}
    collapse = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}
    return {"added_tokens": [added(i, t) for i, t in enumerate(SPECIAL)],
            "normalizer": sequence("normalizers", {"type": "Strip", "strip_left": False, "strip_right": True}, collapse), "pre_tokenizer": space,
            "post_processor": around(None, ("</s>", 2)), "decoder": space, "model": {"type": "Unigram", "unk_id": 0, "vocab": scored}, **more}


def write_model(path, rows, **config):
    """A llama of one layer with random weights."""
    width, heads, size = 64, 2, 32
    config = {"model_type": "llama", "hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": heads,
              "head_dim": size, "intermediate_size": 96, "vocab_size": rows, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu", **config}
    at = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [rows, width], "model.norm.weight": [width], at + "input_layernorm.weight": [width],
              at + "post_attention_layernorm.weight": [width], at + "mlp.gate_proj.weight": [96, width], at + "mlp.up_proj.weight": [96, width],
              at + "mlp.down_proj.weight": [width, 96], **{at + f"self_attn.{x}_proj.weight": [width, width] for x in "qkvo"}}
    rnd, header, data = random.Random(3), {}, b""
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [rnd.uniform(-0.3, 0.3) if len(shape) > 1 else rnd.uniform(0.8, 1.2) for _ in range(n)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
        data += struct.pack(f"<{n}f", *values)
    head = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)


FOREIGN = "Straße été ÄÖÜ 你好世界 こんにちは Привет 🐊🦀 שלום ก็ \u200d\ufeff ½ ﬁ é Å \t\r\n <s> <turn> </s> <unk> <0x0A> [PAD 700] <|channel> <|\"|>"


def texts(tokenizer, source, n, rnd, trim=None):
    """Parts of a text, tokens in any order, runs, any characters; trim "left": without spaces before them and special tokens, "right":
    without white space behind them."""
    vocab = tokenizer["model"]["vocab"]
    pool = [(t if isinstance(t, str) else t[0]).replace(MARK, " ") for t in vocab]
    runs = [" ", "\n", "a", "-", " a", "ab", "  \n", "e ", "the ", ". "]
    out = [source[:4000], FOREIGN, "", "a", "<s>", "<s>a<turn>b", "the<turn> end</s>"]

    def one():
        kind, k = rnd.random(), rnd.randint(1, 12)
        if kind < 0.4:
            return "".join(rnd.choice(pool) for _ in range(k))
        if kind < 0.6:
            return "".join(rnd.choice(FOREIGN + source[:500]) for _ in range(4 * k))
        if kind < 0.7:
            return "".join(chr(rnd.choice([rnd.randint(32, 126), rnd.randint(160, 0x24FF), rnd.randint(0x3000, 0xD7FF), rnd.randint(0x10000, 0x1F9FF)]))
                           for _ in range(k))
        if kind < 0.85:
            return rnd.choice(runs) * rnd.randint(1, 50) + rnd.choice(pool)
        i = rnd.randrange(len(source) - 200)
        return source[i : i + rnd.randint(1, 200)]

    out += [one() for _ in range(n)]
    if trim == "left":
        out = [t.lstrip(" ") for t in out if not any(s in t for s in SPECIAL)]
    if trim == "right":
        out = [t.rstrip() for t in out if not any(s in t for s in SPECIAL)]
    return b"\0".join(t.replace("\0", "").encode() for t in out)
