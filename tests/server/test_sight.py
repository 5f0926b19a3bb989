"""Pictures at a whole server: random conversations of text and of pictures that are swapped, repeated and encoded anew, over
memory, disk and restarts.  Every answer, log-probabilities and all, is that of a server that keeps nothing.
Run as: test_sight.py WEFT MODEL PICTURES; WEFT_HISTORIES=N for more.

The model is MODEL with a tower of random weights; PICTURES are files with the pixels in them beside each (NAME.rgb)."""
import base64
import collections
import concurrent.futures
import glob
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
import unittest
import zlib

from serverkit import CHAT, PATIENCE, Server, sanitized

WEFT, MODEL, PICTURES = sys.argv[1:4]
HISTORIES = int(os.environ.get("WEFT_HISTORIES", 40 if os.environ.get("WEFT_TEST_QUICK") else 120))
LONG = 48       # tokens of an answer in which some guesses of any head come true
TEMPLATE = """{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
{% if p.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)


# ---- a model that sees ----

def tensors(width, inner, hidden):
    """Names and shapes of a tower of one block of Qwen3-VL's kind."""
    yield "patch_embed.proj.weight", (width, 3, 2, 16, 16)
    yield "patch_embed.proj.bias", (width,)
    yield "pos_embed.weight", (16, width)
    for name, rows, cols in (("blocks.0.attn.qkv", 3 * width, width), ("blocks.0.attn.proj", width, width),
                             ("blocks.0.mlp.linear_fc1", inner, width), ("blocks.0.mlp.linear_fc2", width, inner),
                             ("merger.linear_fc1", 4 * width, 4 * width), ("merger.linear_fc2", hidden, 4 * width)):
        yield name + ".weight", (rows, cols)
        yield name + ".bias", (rows,)
    for name in "blocks.0.norm1", "blocks.0.norm2", "merger.norm":
        yield name + ".weight", (width,)
        yield name + ".bias", (width,)


def make_model(folder):
    for f in os.listdir(MODEL):
        if f != "config.json" and not f.startswith("model"):     # MODEL's own tower stays behind
            shutil.copy(os.path.join(MODEL, f), folder)
    with open(os.path.join(MODEL, "config.json")) as f:
        config = json.load(f)
    hidden = config["text_config"]["hidden_size"]
    config["vision_config"] = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 16,
                               "out_hidden_size": hidden, "num_position_embeddings": 16, "deepstack_visual_indexes": []}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "preprocessor_config.json"), "w") as f:
        json.dump({"size": {"shortest_edge": 128 * 128, "longest_edge": 128 * 128}}, f)
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    rng = random.Random(1)
    for name, shape in tensors(32, 64, hidden):
        n, last = 1, 1
        for i, d in enumerate(shape):
            n, last = n * d, last * d if i else 1
        gain = name.endswith("norm.weight") or name.endswith(("norm1.weight", "norm2.weight"))
        values = [1.0 if gain else rng.gauss(0, last ** -0.5 if len(shape) > 1 else 0.1) for _ in range(n)]
        header["model.visual." + name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * n]}
        data += struct.pack("<%df" % n, *values)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


# ---- pictures, each in several files ----

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(w, h, rgb, level):
    rows = b"".join(b"\0" + rgb[3 * w * y:3 * w * (y + 1)] for y in range(h))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b""))


def bmp(w, h, rgb):
    rows = b"".join(b"".join(rgb[3 * (w * y + x):3 * (w * y + x) + 3][::-1] for x in range(w)) + bytes(-3 * w % 4)
                    for y in reversed(range(h)))
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + len(rows), 0, 54, 40, w, h, 1, 24, 0, len(rows), 0, 0, 0, 0) + rows


def all_pictures():
    """Of each set of pixels, the files that hold them: those of the tree, and others made of the pixels."""
    found = collections.defaultdict(list)
    for path in sorted(glob.glob(os.path.join(PICTURES, "*.rgb"))):
        with open(path, "rb") as f, open(path[:-4], "rb") as g:
            found[f.read()].append(g.read())
    for pixels, files in found.items():
        size, rgb = pixels.split(b"\n", 1)
        w, h = map(int, size.split())
        files += [png(w, h, rgb, 0), png(w, h, rgb, 9), bmp(w, h, rgb)]
    return list(found.values())


ALL = all_pictures()


def part(file):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(file).decode()}}


def words(text):
    return {"type": "text", "text": text}


# ---- servers ----

class Sight(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.model, cls.template = os.path.join(cls.dir.name, "model"), os.path.join(cls.dir.name, "template")
        os.mkdir(cls.model)
        make_model(cls.model)
        with open(cls.template, "w") as f:
            f.write(TEMPLATE)
        cls.cold = cls.start("--prompt-cache-bytes", "0")

    @classmethod
    def tearDownClass(cls):
        cls.cold.close()
        cls.dir.cleanup()

    @classmethod
    def start(cls, *options, model=None):
        return Server([WEFT, "serve", model or cls.model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--ctx-size",
                       "2048", "--chat-template-file", cls.template, *options])

    def server(self, *options, model=None):
        s = self.start(*options, model=model)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def said(self, server, messages, n=4):
        r = server.post(CHAT, {"messages": messages, "max_tokens": n, "temperature": 0, "logprobs": True, "top_logprobs": 4})
        self.assertEqual(r.status, 200, r.text())
        usage = r.json()["usage"]
        return r.json()["choices"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    def alike(self, server, messages):
        """The answer is the cold one; tokens that came from the cache."""
        got, want = self.said(server, messages), self.said(self.cold, messages)
        self.assertEqual(got[:2], want[:2])
        return got[2]

    def some_talk(self, rng, turns):
        """[(text, picture or None)] of the user's messages."""
        return [(rng.choice(("what is this", "look", "and now, in short", "compare")),
                 rng.randrange(len(ALL)) if rng.random() < 0.6 else None) for _ in range(turns)]

    def messages(self, rng, talk):
        out = []
        for i, (text, picture) in enumerate(talk):
            out.append({"role": "user", "content": ([] if picture is None else [part(rng.choice(ALL[picture]))]) + [words(text)]})
            if i + 1 < len(talk):
                out.append({"role": "assistant", "content": "it is that"})
        return out

    def test_histories(self):
        rng = random.Random(int(os.environ.get("WEFT_SEED", 5)))
        talks = [self.some_talk(rng, 1) for _ in range(8)]
        folder = os.path.join(self.dir.name, "histories")
        s = self.server("--prompt-cache-dir", folder)
        hits = restarts = 0
        for k in range(HISTORIES):
            t = rng.randrange(len(talks))
            i = rng.randrange(len(talks[t]))
            way = rng.randrange(6)
            if way == 0:            # another picture in the place of one
                talks[t][i] = (talks[t][i][0], rng.randrange(len(ALL)))
            elif way == 1:          # as another conversation
                talks[t] = list(rng.choice(talks))
            elif way == 2:          # gone on with from earlier on
                talks[t] = talks[t][:i + 1]
            elif way < 5 and len(talks[t]) < 6:
                talks[t] = talks[t] + self.some_talk(rng, 1)
            hits += self.alike(s, self.messages(rng, talks[t])) > 0
            if k % (HISTORIES // 4 + 1) == HISTORIES // 4:
                s.close()
                s = self.server("--prompt-cache-dir", folder)
                restarts += 1
        s.close()
        print("%d histories of %d pictures in %d files, %d restarts, %d found something: none wrong"
              % (HISTORIES, len(ALL), sum(map(len, ALL)), restarts, hits))
        self.assertGreater(hits, HISTORIES // 4)

    @unittest.skipIf(sanitized(WEFT), "a sanitizer's memory is no program's")
    def test_memory_kept(self):
        """After 64 large pictures, which are 280 MB of pixels, the server keeps what its budgets say (docs/images.md)."""
        def large(k):
            row = bytes([k, 255 - k, 5 * k % 256]) * 1200
            return part(png(1200, 1200, row * 1200, 1))

        def held():
            with open("/proc/%d/status" % s.proc.pid) as f:
                return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))
        s = self.server("--prompt-cache-bytes", "16M")
        for pictures in ([large(100)], []):
            self.said(s, [{"role": "user", "content": pictures + [words("look")]}], 1)
        before, end = held(), time.monotonic() + PATIENCE
        r = s.post(CHAT, {"messages": [{"role": "user", "content": [large(k) for k in range(64)] + [words("look")]}], "max_tokens": 1})
        self.assertEqual(r.status, 200, r.text())
        while held() - before > (16 + 32) << 20:        # a worker gives back what the reply has left
            self.assertLess(time.monotonic(), end, "%d MB more are held" % (held() - before >> 20))
            time.sleep(0.05)

    def test_encodings(self):
        """Every file of a picture has the picture's answer and finds what the first left; every other picture has another."""
        s = self.server()
        seen = set()
        for files in ALL:
            for i, file in enumerate(files):
                messages = [{"role": "user", "content": [part(file), words("what")]}]
                got = self.said(s, messages)
                self.assertEqual(got[:2], self.said(self.cold, messages)[:2])
                if i:
                    self.assertGreaterEqual(got[2], got[1] - 8)    # a few behind the picture may be computed anew
                    self.assertEqual(got[:2], first[:2])
                else:
                    first = got
            seen.add(json.dumps(first[0]))
        self.assertEqual(len(seen), len(ALL))

    def test_restart(self):
        """Vectors on disk: known pictures in other words, after a restart, damaged, and under other settings."""
        folder = os.path.join(self.dir.name, "vectors")

        def ask(text, model=None):
            s = self.server("--prompt-cache-dir", folder, model=model)
            messages = [{"role": "user", "content": [words(text), part(ALL[1][0]), words("and"), part(ALL[2][0])]}]
            got = self.said(s, messages)
            s.close()
            return messages, got[:2]

        def vectors():
            return glob.glob(os.path.join(folder, "*", "*.1.*.snap"))

        def used():
            return sorted((f, os.stat(f).st_mtime_ns) for f in vectors())

        messages, got = ask("first")
        self.assertEqual(got, self.said(self.cold, messages)[:2])
        self.assertEqual(len(vectors()), 2)
        before = used()
        messages, got = ask("other words, which nobody has said")
        self.assertEqual(got, self.said(self.cold, messages)[:2])
        self.assertEqual([f for f, _ in used()], [f for f, _ in before])
        self.assertTrue(all(a[1] < b[1] for a, b in zip(before, used())), "not read")
        for f in vectors():
            with open(f, "r+b") as g:
                g.seek(-100, 2)
                c = g.read(1)
                g.seek(-100, 2)
                g.write(bytes([c[0] ^ 16]))
        messages, got = ask("damaged")
        self.assertEqual(got, self.said(self.cold, messages)[:2])
        self.assertEqual(len(vectors()), 2)
        changed = os.path.join(self.dir.name, "changed")
        shutil.copytree(self.model, changed)
        with open(os.path.join(changed, "preprocessor_config.json"), "w") as f:
            json.dump({"size": {"shortest_edge": 128 * 128, "longest_edge": 128 * 128}, "image_mean": [0.4, 0.5, 0.6]}, f)
        messages, got = ask("other settings", model=changed)
        cold = self.server("--prompt-cache-bytes", "0", model=changed)
        self.assertEqual(got, self.said(cold, messages)[:2])
        self.assertNotEqual(got[0], self.said(self.cold, messages)[0])
        self.assertEqual(len(vectors()), 4)

    def test_ways(self):
        """Several at once, threads, drafts of each kind, formats of keys and values, and hardly any room."""
        rng = random.Random(9)
        asks = [self.messages(rng, self.some_talk(rng, 1 + k % 3)) for k in range(6)]
        want = {}
        turbo = ("--kv-bits", "3.5", "--tune", "kv-quant-scheme=turboquant")
        heads = [MODEL + "-eagle3", MODEL + "-dflash"]
        each = [((), ["--draft-kind", "head", "--draft-model", h, "--tune", "draft-fixed", "--num-draft-tokens", "4"]) for h in heads]
        for kv, options in (((), ["--threads", "3", "--draft-kind", "head"]), ((), ["--draft-kind", "ngram"]), *each,
                            ((), ["--draft-model", heads[0], "--draft-model", heads[1]]),
                            ((), ["--parallel", "1", "--tune", "ubatch-size=64"]), (("--kv-bits", "8"), []), (turbo, ["--draft-kind", "head"])):
            if kv not in want:
                cold = self.server("--prompt-cache-bytes", "0", "--draft-kind", "none", *kv)
                want[kv] = [self.said(cold, m, LONG)[:2] for m in asks]
                cold.close()
            s = self.server(*kv, *options)
            for _ in range(2):      # cold, then found
                with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
                    got = list(pool.map(lambda m: self.said(s, m, LONG)[:2], asks))
                self.assertEqual(got, want[kv], (kv, options))
            if "draft-fixed" in options:
                self.assertGreater(sum(v for k, v in s.metrics().items() if k.startswith("weft_draft_accepted_tokens_total")), 0)
            s.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
