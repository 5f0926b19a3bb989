"""Compares the tokenizer with a second one, written here to be short and slow.

    tokenizer_oracle.py BUILT/tokenizer_oracle [MODEL_FOLDER]

Trains tiny byte-level BPEs on random text, writes them as tokenizer.json with the pre-tokenizers of
several families, and compares ids and decoded text. With a model folder its tokenizer.json is compared too.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unicodedata

PATTERN = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
SPECIAL = ["<|end|>", "<|start|>", "<|end|><", "§"]
ADDED = ["<think>", "</think>"]
SCRIPTS = [(0x20, 0x7E), (0xA1, 0x17F), (0x300, 0x36F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x620, 0x65F), (0x905, 0x94D), (0xE01, 0xE4E),
           (0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2100, 0x218B), (0x3041, 0x30FF), (0x4E00, 0x4E80),
           (0xAC00, 0xAC80), (0x1F600, 0x1F64F), (0x1D400, 0x1D430), (0x20000, 0x20020), (0x660, 0x669), (0xB2, 0xB3), (0x1D7CE, 0x1D7FF)]


def byte_chars():
    keep = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


CHARS = byte_chars()


def python_regex(pattern, text):
    """The pattern with \\p and \\s written out as the characters of this text that they mean."""
    chars = sorted(set(text))

    def members(name):
        if name == "s":
            return "".join(map(re.escape, WHITE))
        got = "".join(re.escape(c) for c in chars if unicodedata.category(c).startswith(name))
        return got or "\U0010FFFF"              # occurs in no text here

    out, in_class, i = "", False, 0
    while i < len(pattern):
        m = re.compile(r"\\p\{(\w+)\}|\\(s)").match(pattern, i)
        if m:
            out += members(m[1] or m[2]) if in_class else "[" + members(m[1] or m[2]) + "]"
            i = m.end()
            continue
        if pattern.startswith("\\S", i):
            assert not in_class
            out += "[^" + members("s") + "]"
            i += 2
            continue
        if pattern[i] == "\\":
            out += pattern[i:i + 2]
            i += 2
            continue
        in_class = pattern[i] == "[" or (in_class and pattern[i] != "]")
        out += pattern[i]
        i += 1
    return re.compile(out)


def merge_all(parts, rank):
    while True:
        best = min(((rank[p], i) for i, p in enumerate(zip(parts, parts[1:])) if p in rank), default=None)
        if not best:
            return parts
        i = best[1]
        parts = parts[:i] + [parts[i] + parts[i + 1]] + parts[i + 2:]


class Slow:
    def __init__(self, j):
        self.vocab, model = j["model"]["vocab"], j["model"]
        self.rank = {tuple(m.split(" ") if isinstance(m, str) else m): i for i, m in enumerate(model["merges"])}
        self.whole = model.get("ignore_merges", False)
        self.nfc = bool(j["normalizer"])
        stages = j["pre_tokenizer"].get("pretokenizers", [j["pre_tokenizer"]])
        self.regex = [s["pattern"]["Regex"] for s in stages if s["type"] == "Split"]
        self.space = False
        for s in stages:
            if s["type"] == "ByteLevel":
                self.space = s["add_prefix_space"]
                self.regex += [PATTERN["gpt2"]] if s["use_regex"] else []
        self.added = {a["content"]: a for a in j["added_tokens"]}
        self.name = {i: t for t, i in self.vocab.items()}
        self.added_id = {a["id"]: a for a in self.added.values()}

    def added_at(self, text, i, allowed, user, at):
        """The longest added token at i, whose bytes [at, at + n) touch no user range."""
        for c in sorted(self.added, key=len, reverse=True):
            if not text.startswith(c, i):
                continue
            n = len(c.encode())
            if self.added[c]["special"] and (not allowed or any(a < b and a < at + n and b > at for a, b in user)):
                continue
            return self.added[c]
        return None

    def encode(self, text, allowed, user):
        out, gap, at, i = [], "", 0, 0
        while i < len(text):
            a = self.added_at(text, i, allowed, user, at)
            if a:
                out += self.plain(gap) + [a["id"]]
                gap = ""
            part = a["content"] if a else text[i]
            gap += "" if a else part
            i += len(part)
            at += len(part.encode())
        return out + self.plain(gap)

    def plain(self, text):
        if not text:
            return []
        pieces = [unicodedata.normalize("NFC", text) if self.nfc else text]
        for k, pattern in enumerate(self.regex):
            if k == len(self.regex) - 1 and self.space:
                pieces = [p if p.startswith(" ") else " " + p for p in pieces]
            pieces = [q for p in pieces for q in self.cut(pattern, p)]
        out = []
        for p in pieces:
            chars = [CHARS[b] for b in p.encode()]
            whole = "".join(chars)
            parts = [whole] if self.whole and whole in self.vocab else merge_all(chars, self.rank)
            out += [self.vocab[x] for x in parts]
        return out

    @staticmethod
    def cut(pattern, text):
        at, out = 0, []
        for m in python_regex(pattern, text).finditer(text):
            out += [text[at:m.start()], m[0]]
            at = m.end()
        return [p for p in out + [text[at:]] if p]

    def decode(self, ids, skip):
        data, back = b"", {c: b for b, c in CHARS.items()}
        for i in ids:
            if i in self.added_id:
                a = self.added_id[i]
                data += b"" if skip and a["special"] else a["content"].encode()
            else:
                data += bytes(back[c] for c in self.name[i])
        return data.decode("utf-8", "replace")


def random_text(r):
    out = []
    for _ in range(r.randrange(1, 60)):
        kind = r.randrange(10)
        if kind < 3:
            out.append(r.choice(["the ", "hello", " world", "don't", "WE'LL", "'S", "ſ", "x = 12345;\n", "    return\n", "ab" * 40, "é", "e\u0301", " \n\n  x"]))
        elif kind < 4:
            out.append("".join(r.choice(WHITE) for _ in range(r.randrange(1, 8))))
        elif kind < 5:
            out.append(r.choice(SPECIAL + ADDED + ["<|end", "|>", "<"]))
        elif kind < 6:
            out.append(r.choice("a .=\n1あ") * r.randrange(1, 150))
        else:
            lo, hi = r.choice(SCRIPTS)
            out.append("".join(chr(r.randint(lo, hi)) for _ in range(r.randrange(1, 12))))
    return "".join(c for c in "".join(out) if unicodedata.category(c) not in ("Cn", "Cs"))


def train(r, n_merges):
    words = [[CHARS[b] for b in w.encode()] for _ in range(40) for w in re.findall(r" ?\S+|\s+", random_text(r))]
    merges = []
    for _ in range(n_merges):
        count = {}
        for w in words:
            for p in zip(w, w[1:]):
                count[p] = count.get(p, 0) + 1
        if not count:
            break
        best = max(count, key=lambda p: (count[p], p))
        merges.append(best)
        words = [merge_all(w, {best: 0}) for w in words]
    return merges


def model(r, family, nfc, spelling, whole, stages):
    merges = train(r, 150)
    ids = list(range(256 + len(merges)))
    r.shuffle(ids)
    vocab = {CHARS[b]: ids[b] for b in range(256)}
    for a, b in merges:
        if a + b not in vocab:
            vocab[a + b] = ids[len(vocab)]
    split = [{"type": "Split", "pattern": {"Regex": PATTERN[f]}, "behavior": "Isolated", "invert": False} for f in stages]
    level = {"type": "ByteLevel", "add_prefix_space": family == "space", "trim_offsets": False, "use_regex": not split}
    base = 300 + len(merges)
    added = [{"id": base + i, "content": c, "special": c in SPECIAL, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
             for i, c in enumerate(SPECIAL + ADDED)]
    return {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"} if nfc else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": split + [level]} if split else level, "post_processor": None,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "ignore_merges": whole, "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges] if spelling else [list(m) for m in merges]}}


def compare(name, exe, j, cases, folder):
    slow = Slow(j)
    paths = [os.path.join(folder, n) for n in ("tokenizer.json", "cases.json")]
    for path, value in zip(paths, (j, cases)):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)
    got = subprocess.run([exe] + paths, stdout=subprocess.PIPE, check=False)
    lines = got.stdout.decode().split("\n")[:-1]
    if got.returncode or len(lines) != len(cases):
        sys.exit(f"{name}: {exe} returned {got.returncode} after {len(lines)} of {len(cases)} cases")
    n = 0
    for c, line in zip(cases, lines):
        have = json.loads(line)
        ids = slow.encode(c["text"], c["flags"] & 1, c["user"])
        want = {"ids": ids, "text": slow.decode(ids, False), "plain": slow.decode(ids, True)}
        n += len(ids)
        for key in want:
            if have[key] != want[key]:
                sys.exit(f"{name}: {key} differ for {ascii(c)}\nhave {ascii(have[key])}\nwant {ascii(want[key])}")
    print(f"{name}: {len(cases)} texts, {n} tokens equal")


def random_cases(r, n):
    cases = []
    for _ in range(n):
        text = random_text(r)
        size = len(text.encode())
        ends = sorted(r.randrange(size + 1) for _ in range(2 * r.randrange(4)))
        cases.append({"text": text, "flags": r.randrange(2), "user": list(zip(ends[::2], ends[1::2]))})
    return cases


def main():
    exe, r = sys.argv[1], random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for family in PATTERN:
            j = model(r, family, r.random() < 0.5, r.random() < 0.5, r.random() < 0.5, [] if family == "gpt2" else [family])
            compare(family, exe, j, random_cases(r, 80), folder)
        compare("prefix space", exe, model(r, "space", False, True, False, []), random_cases(r, 60), folder)
        compare("two stages", exe, model(r, "two", True, False, True, ["o200k", "llama3"]), random_cases(r, 60), folder)
        for path in sys.argv[2:]:
            file = os.path.join(path, "tokenizer.json")
            if not os.path.exists(file):
                print(f"{path}: no tokenizer.json, not compared")
                continue
            with open(file, encoding="utf-8") as f:
                compare(path, exe, json.load(f), random_cases(r, 80), folder)


main()
