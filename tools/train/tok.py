"""Byte-level BPE of weft-tiny: trains it on generated text, writes tokenizer.json, encodes and decodes.

    /usr/bin/python3 tools/train/tok.py models/weft-tiny
"""
import collections
import json
import os
import random
import re
import sys

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
            "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
            "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
ENTRIES = 2040          # with the special ones; the embedding has 2048 rows, the last 8 are padding
ROWS = 2048
REGEX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The same in Python's re, which knows no \p. Exact for text whose only numbers outside \d are these two
# and which holds no combining marks: true of everything the generator writes.
_N = "\\d½²"
_L = "[^\\W_" + _N + "]"
PIECE = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\w\r\n]|_)?" + _L + "+|[" + _N + r"]| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")


def byte_chars():
    """byte -> the printable character that stands for it in the vocabulary"""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars, n = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + n)
            n += 1
    order = keep + [b for b in range(256) if b not in keep]
    return chars, order


CHARS, ORDER = byte_chars()
BYTES = {c: b for b, c in CHARS.items()}


class Tokenizer:
    def __init__(self, merges):
        self.merges = merges
        self.vocab = {CHARS[b]: i for i, b in enumerate(ORDER)}
        for a, b in merges:
            self.vocab[a + b] = len(self.vocab)
        self.base = len(self.vocab)
        self.special = {s: self.base + i for i, s in enumerate(SPECIALS)}
        self.rank = {m: i for i, m in enumerate(merges)}
        self.names = {i: t for t, i in self.vocab.items()}
        self.cache = {}
        self.size = self.base + len(SPECIALS)

    @staticmethod
    def load(folder):
        j = json.load(open(os.path.join(folder, "tokenizer.json")))
        return Tokenizer([tuple(m) for m in j["model"]["merges"]])

    def piece(self, p):
        ids = self.cache.get(p)
        if ids is None:
            parts = [CHARS[b] for b in p.encode()]
            while len(parts) > 1:
                r, i = min((self.rank.get((parts[i], parts[i + 1]), 1 << 30), i) for i in range(len(parts) - 1))
                if r == 1 << 30:
                    break
                parts[i:i + 2] = [parts[i] + parts[i + 1]]
            ids = [self.vocab[x] for x in parts]
            if len(self.cache) < 500000:
                self.cache[p] = ids
        return ids

    def encode(self, text):
        out = []
        for part in SPLIT.split(text):
            if part in self.special:
                out.append(self.special[part])
            elif part:
                for p in PIECE.findall(part):
                    out += self.piece(p)
        return out

    def decode(self, ids):
        buf, out = bytearray(), []
        for i in ids:
            if i < self.base:
                buf += bytes(BYTES[c] for c in self.names[i])
            else:
                out.append(buf.decode("utf-8", "replace"))
                buf = bytearray()
                out.append(SPECIALS[i - self.base] if i < self.size else "")
        out.append(buf.decode("utf-8", "replace"))
        return "".join(out)


def train(texts, merges_wanted):
    count = collections.Counter()
    for t in texts:
        for part in SPLIT.split(t):
            if part not in SPECIALS:
                count.update(PIECE.findall(part))
    # invented words are seen once or twice each: they must not shape the vocabulary
    words = [([CHARS[b] for b in p.encode()], n) for p, n in count.items() if n > 1]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (w, n) in enumerate(words):
        for a in zip(w, w[1:]):
            pairs[a] += n
            where[a].add(i)
    merges = []
    while len(merges) < merges_wanted:
        best = max(pairs.items(), key=lambda t: (t[1], t[0]))[0]
        merges.append(best)
        new = best[0] + best[1]
        for i in list(where[best]):
            w, n = words[i]
            for a in zip(w, w[1:]):
                pairs[a] -= n
                if pairs[a] <= 0:
                    del pairs[a]
                where[a].discard(i)
            out, j = [], 0
            while j < len(w):
                if j + 1 < len(w) and w[j] == best[0] and w[j + 1] == best[1]:
                    out.append(new)
                    j += 2
                else:
                    out.append(w[j])
                    j += 1
            words[i] = (out, n)
            for a in zip(out, out[1:]):
                pairs[a] += n
                where[a].add(i)
        pairs.pop(best, None)
    return merges


def write(folder, t):
    os.makedirs(folder, exist_ok=True)
    added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": s.startswith("<|")} for s, i in t.special.items()]
    split = {"type": "Split", "pattern": {"Regex": REGEX}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    j = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
         "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": level, "decoder": level,
         "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                   "ignore_merges": False, "vocab": t.vocab, "merges": [list(m) for m in t.merges]}}
    json.dump(j, open(os.path.join(folder, "tokenizer.json"), "w"), ensure_ascii=False, indent=1)
    here = os.path.dirname(os.path.abspath(__file__))
    template = open(os.path.join(here, "chat_template.jinja")).read()
    open(os.path.join(folder, "chat_template.jinja"), "w").write(template)
    tc = {"add_bos_token": False, "add_prefix_space": False, "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
          "model_max_length": 4096, "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
          "added_tokens_decoder": {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added}, "chat_template": template}
    json.dump(tc, open(os.path.join(folder, "tokenizer_config.json"), "w"), ensure_ascii=False, indent=1)


if __name__ == "__main__":
    from data import make
    from render import render
    r = random.Random(1)
    texts = ["".join(s for s, _ in render(x["messages"], x["tools"])) for x in (make(r) for _ in range(30000))]
    t = Tokenizer(train(texts, ENTRIES - 256 - len(SPECIALS)))
    write(sys.argv[1], t)
    n = [len(t.encode(x)) for x in texts[:2000]]
    print("entries", t.size, "tokens per sample", sum(n) / len(n), "characters per token", sum(map(len, texts[:2000])) / sum(n))
    assert all(t.decode(t.encode(x)) == x for x in texts[:2000])
