"""Packs of prefixes, from outside: made by `weft pack` and `weft cache export`, read by servers with the bytes of cold answers, refused when anything
differs.
Run as: test_packs.py WEFT FOLDER, where FOLDER has weft-tiny and weft-tiny-8bit."""
import ctypes
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from serverkit import Server

WEFT, MODELS = sys.argv[1:3]
MODEL, OTHER = os.path.join(MODELS, "weft-tiny"), os.path.join(MODELS, "weft-tiny-8bit")
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
CHAT = "/v1/chat/completions"

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)

SYSTEM = "You answer in few words. " + "Be brief, do not guess, and name your source. " * 12
QUESTIONS = ["Where is Lima?", "1 + 1?", "\nIs Oslo larger than Rome?", "\"Quito\" is what?"]


def body(question):
    return {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}], "max_tokens": 8, "temperature": 0,
            "logprobs": True, "cache_report": True}


def weft(*args, code=0):
    p = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=120)
    assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p.stdout if code == 0 else p.stderr


def start(*options, model=MODEL):
    return Server([WEFT, "serve", *([model] if model else []), "--port", "0", "--port-file", "{port_file}", "--threads", "1", *options])


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def cache(reply):
    return reply.json()["usage"]["cache"]


class Packs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.prompt = cls.at("system.txt")
        with open(cls.prompt, "w") as f:
            f.write(SYSTEM)
        cls.pack = cls.at("agent.pack")
        cls.told = weft("pack", MODEL, "--prompt", cls.prompt, "--out", cls.pack, "--threads", "1")
        s = start("--prompt-cache-bytes", "0")
        cls.cold = [said(s.post(CHAT, body(q))) for q in QUESTIONS]
        s.close()

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    @classmethod
    def at(cls, name):
        return os.path.join(cls.tmp.name, name)

    def serve(self, *options, model=MODEL):
        s = start(*options, model=model)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def refused(self, *options, model=MODEL):
        with self.assertRaises(RuntimeError) as e:
            start(*options, model=model).close()
        return str(e.exception)

    def changed(self, name, at, bit=1, of=None):
        with open(of or self.pack, "rb") as f:
            data = bytearray(f.read())
        data[at] ^= bit
        path = self.at(name)
        with open(path, "wb") as f:
            f.write(data)
        return path


class Agent(Packs):
    def test_first_answers(self):
        """The first request with any question resumes where the pack ends, and is answered as if cold."""
        tokens = int(self.told.split(": ")[1].split()[0])
        self.assertGreater(tokens, 200)
        for q, want in zip(QUESTIONS, self.cold):
            s = self.serve("--pack", self.pack)
            r = s.post(CHAT, body(q))
            self.assertEqual(said(r), want)
            self.assertEqual(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], tokens)
            self.assertEqual(cache(r)["source"], "disk")
            s.close()

    def test_before_a_request(self):
        """A pack is in memory before a request asks for it; one that does not fit there is not."""
        s = self.serve("--pack", self.pack)
        s.until("it is in memory", prefix_entries=1)
        before = s.metrics()
        r = s.post(CHAT, body(QUESTIONS[0]))
        self.assertEqual((said(r), cache(r)["source"]), (self.cold[0], "disk"))
        for name in ("weft_disk_loads_total", "weft_disk_given_up_total", "weft_disk_read_total"):
            self.assertEqual(s.metrics()[name], before[name], name)
        s.close()
        s = self.serve("--pack", self.pack, "--prompt-cache-bytes", "100K")
        self.assertEqual(said(s.post(CHAT, body(QUESTIONS[0]))), self.cold[0])
        self.assertEqual(s.metrics()["weft_disk_loads_total"], 1)
        s.close()

    def test_beside_a_folder(self):
        """A server with a folder writes what is new, and nothing of the pack."""
        d = self.at("beside")
        s = self.serve("--pack", self.pack, "--prompt-cache-dir", d)
        self.assertEqual(said(s.post(CHAT, body(QUESTIONS[0]))), self.cold[0])
        s.until("all is written", disk_pending=0, disk_queue_bytes=0)
        s.close()
        pages = sum(f.endswith(".page") for _, _, names in os.walk(d) for f in names)
        with open(self.pack, "rb") as f:
            self.assertLess(pages, struct.unpack_from("<Q", f.read(), 16)[0])
        s = self.serve("--prompt-cache-dir", d)
        self.assertEqual(said(s.post(CHAT, body(QUESTIONS[0]))), self.cold[0])
        s.close()

    def test_dropped(self):
        s = self.serve("--pack", self.pack)
        self.assertEqual(s.post("/v1/cache/drop", {"all": True}).status, 200)
        r = s.post(CHAT, body(QUESTIONS[1]))
        self.assertEqual((said(r), cache(r)["source"]), (self.cold[1], "none"))
        s.close()

    def test_the_same_bytes(self):
        """The command makes the same file twice, with other numbers of threads and levels of instructions too."""
        again = self.at("again.pack")
        weft("pack", MODEL, "--prompt", self.prompt, "--out", again, "--threads", "2", "--cpu", "scalar")
        with open(again, "rb") as a, open(self.pack, "rb") as b:
            one, two = a.read(), b.read()
        if b'"arithmetic": "1 plain"' in two:
            self.assertEqual(one, two)
        self.assertEqual([f for f in os.listdir(self.tmp.name) if "work" in f or "partial" in f], [])
        self.assertIn("is there already", weft("pack", MODEL, "--prompt", self.prompt, "--out", again, code=1))

    def test_interrupted(self):
        """A signal, whenever it comes, leaves a whole pack or nothing."""
        long, out = self.at("long.txt"), self.at("interrupted.pack")
        with open(long, "w") as f:
            f.write(SYSTEM * 10)
        for n in signal.SIGINT, signal.SIGTERM:
            p = subprocess.Popen([WEFT, "pack", MODEL, "--prompt", long, "--out", out, "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while p.poll() is None and not any("interrupted" in f for f in os.listdir(self.tmp.name)):
                time.sleep(0.001)
            p.send_signal(n)
            _, told = p.communicate(timeout=60)
            self.assertIn((p.returncode, b"interrupted" in told), ((0, False), (1, True)))
            if p.returncode == 0:
                weft("cache", "verify", out)
                os.unlink(out)
            self.assertEqual([f for f in os.listdir(self.tmp.name) if "interrupted" in f], [])

    def test_recorded(self):
        """Requests of an agent: a pack of what their prompts have in common."""
        d = self.at("recorded")
        os.mkdir(d)
        with open(os.path.join(RECORDED, "opencode.json")) as f:
            first = json.load(f)
        ask = lambda text: dict(first["body"], messages=[m for m in first["body"]["messages"] if m["role"] == "system"] +
                                [{"role": "user", "content": text}])
        for name, r in (("a.json", first), ("b.json", dict(first, body=ask("Something else.")))):
            with open(os.path.join(d, name), "w") as f:
                json.dump(r, f)
        out = self.at("recorded.pack")
        tokens = int(weft("pack", MODEL, "--recorded", d, "--out", out).split(": ")[1].split()[0])
        self.assertGreater(tokens, 100)
        asked = dict(ask("And this?"), max_tokens=8, stream=False, temperature=0)
        asked.pop("stream_options", None)
        s = self.serve("--prompt-cache-bytes", "0")
        want = said(s.post(CHAT, asked))
        s.close()
        s = self.serve("--pack", out)
        r = s.post(CHAT, asked)
        self.assertEqual(said(r), want)
        self.assertEqual(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], tokens)
        s.close()
        # What the users' words have in common is in the pack as well, but another's words are no reason to compute the rest.
        for name, text in (("a.json", "Please do this now, and nothing else: one."), ("b.json", "Please do this now, and nothing else: two.")):
            with open(os.path.join(d, name), "w") as f:
                json.dump(dict(first, body=ask(text)), f)
        longer = self.at("longer.pack")
        more = int(weft("pack", MODEL, "--recorded", d, "--out", longer).split(": ")[1].split()[0])
        self.assertGreater(more, tokens + 8)
        for text, n in (("And this?", tokens), ("Please do this now, and nothing else: three.", more)):
            s = self.serve("--pack", longer)
            r = s.post(CHAT, dict(asked, messages=ask(text)["messages"]))
            self.assertEqual(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], n)
            s.close()
        for given, word in ((["--recorded", self.tmp.name + "/nothing"], "cannot be read"), (["--recorded", RECORDED], "in common"),
                            (["--prompt", self.prompt, "--recorded", d], "either"), ([], "either")):
            self.assertIn(word, weft("pack", MODEL, *given, "--out", self.at("none.pack"), code=1))
        self.assertFalse(os.path.exists(self.at("none.pack")))


class Refused(Packs):
    def test_regions(self):
        """One bit in any region: no server starts with it, and the message has the file and what differs."""
        with open(self.pack, "rb") as f:
            data = f.read()
        about, pieces, size = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<Q", data, 16)[0], len(data)
        table = size - 48 * pieces
        for at, word in ((0, "not a pack"), (8, "version"), (13, "checksum"), (50, "checksum"), (112 + about // 2, "damaged"),
                         (112 + about + 5, "kept prefixes"), (112 + about + 300, "damaged"), (table - 1, "damaged"), (table + 3, "damaged"),
                         (size - 1, "damaged")):
            path = self.changed("flipped.pack", at)
            said = self.refused("--pack", path)
            self.assertIn(word, said)
            self.assertIn(path, said)
            weft("cache", "verify", path, code=1)
            weft("cache", "import", path, self.at("nowhere"), code=1)
        self.assertFalse(os.path.exists(self.at("nowhere")))

    def test_other_settings(self):
        template = self.at("other.jinja")
        with open(template, "w") as f:
            f.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        for options, model, words in (((), OTHER, ("the model's weights", "weft-tiny-8bit")),
                                      (("--chat-template", template), MODEL, ("the chat template",)),
                                      (("--kv-bits", "8"), MODEL, ("how keys and values are kept",)),
                                      (("--tune", "arith=f32"), MODEL, ("--arith",))):
            said = self.refused("--pack", self.pack, *options, model=model)
            for w in words:
                self.assertIn(w, said)
        with open(self.pack, "rb") as f:
            about = struct.unpack_from("<I", f.read(), 12)[0]
        self.assertGreater(about, 300)

    def test_date(self):
        """A template that writes the date makes a pack of one day, which is said."""
        template = self.at("dated.jinja")
        with open(os.path.join(MODEL, "chat_template.jinja")) as f, open(template, "w") as out:
            out.write("{{ strftime_now('%d %b') }}" + f.read())
        for options, word in (((), ""), (("--chat-template", template), "the chat template writes the date at token")):
            p = subprocess.run([WEFT, "pack", MODEL, "--prompt", self.prompt, "--out", self.at("date%d.pack" % len(options)), *options],
                               capture_output=True, text=True, timeout=120)
            self.assertEqual((p.returncode, "writes the date" in p.stderr), (0, bool(word)), p.stderr)

    def test_no_pack(self):
        self.assertIn("No such file", self.refused("--pack", self.at("missing.pack")))
        self.assertIn("regular file", self.refused("--pack", self.tmp.name))
        self.assertIn("does nothing", self.refused("--pack", self.pack, "--prompt-cache-bytes", "0"))

    def test_audit(self):
        """A pack whose digests are right and whose numbers are not is found by --verify-cache, and not used again."""
        path = self.at("forged.pack")
        forge(self.pack, path)
        weft("cache", "verify", path)
        s = self.serve("--pack", path, "--verify-cache", "1")
        s.post(CHAT, body(QUESTIONS[0]))
        s.until("the audit found it", prefix_wrong_total=1)
        for q, want in zip(QUESTIONS, self.cold):
            self.assertEqual(said(s.post(CHAT, body(q))), want)
        s.close()
        s = self.serve("--pack", self.pack, "--verify-cache", "1")
        s.post(CHAT, body(QUESTIONS[0]))
        s.until("the audit found nothing", prefix_verified_total=1, prefix_wrong_total=0)
        s.close()


class Sum128(ctypes.Structure):
    _fields_ = [("lo", ctypes.c_uint64), ("hi", ctypes.c_uint64)]


def forge(path, to):
    """Changes a number of every snapshot's end, and with it all digests and checksums: as src/engine/prefix/prefix_pack.h has them."""
    xxh = ctypes.CDLL("libxxhash.so.0")
    xxh.XXH3_64bits.restype, xxh.XXH3_64bits.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    xxh.XXH3_128bits.restype, xxh.XXH3_128bits.argtypes = Sum128, [ctypes.c_char_p, ctypes.c_size_t]
    check = lambda b: struct.pack("<Q", xxh.XXH3_64bits(bytes(b), len(b)))
    with open(path, "rb") as f:
        data = bytearray(f.read())
    about, pieces = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<Q", data, 16)[0]
    at, table = 112 + about, len(data) - 48 * pieces
    for i in range(pieces):
        entry = table + 48 * i
        n = struct.unpack_from("<Q", data, entry + 32)[0]
        piece = data[at:at + n]
        piece[n - 2] ^= 0x10
        s = xxh.XXH3_128bits(bytes(piece[160:]), n - 160)
        piece[136:152] = struct.pack("<QQ", s.lo, s.hi)
        piece[152:160] = check(piece[:152])
        data[at:at + n] = piece
        data[entry:entry + 32] = hashlib.sha256(piece).digest()
        at += n
    data[72:104] = hashlib.sha256(data[112:112 + about] + data[table:]).digest()
    data[104:112] = check(data[:104])
    with open(to, "wb") as f:
        f.write(data)


class Moved(Packs):
    def test_from_folder_to_folder(self):
        """Exported from one server's folder, imported in another's: answers, tokens and a second export are the same."""
        first, second, a, b = self.at("first"), self.at("second"), self.at("a.pack"), self.at("b.pack")
        s = self.serve("--prompt-cache-dir", first)
        for q in QUESTIONS:
            s.post(CHAT, body(q))
        s.until("all is written", disk_pending=0, disk_queue_bytes=0)
        live = self.at("live.pack")
        weft("cache", "export", first, "--out", live)
        self.assertIn(" 0 pieces", weft("cache", "import", live, first))   # all are there
        s.close()
        s = self.serve("--prompt-cache-dir", self.at("open"))              # a server finds what is imported under its feet
        weft("cache", "import", live, self.at("open"))
        r = s.post(CHAT, body(QUESTIONS[0]))
        self.assertEqual((said(r), cache(r)["source"]), (self.cold[0], "disk"))
        s.close()
        weft("cache", "export", first, "--out", a)
        weft("cache", "verify", a)
        weft("cache", "import", a, second)
        weft("cache", "export", second, "--out", b)
        with open(a, "rb") as x, open(b, "rb") as y:
            self.assertEqual(x.read(), y.read())
        with open(a, "rb") as x, open(live, "rb") as y:
            self.assertEqual(x.read(), y.read())
        for options in (("--prompt-cache-dir", second), ("--pack", a)):
            s = self.serve(*options)
            for q, want in zip(QUESTIONS, self.cold):
                r = s.post(CHAT, body(q))
                self.assertEqual(said(r), want)
                self.assertGreater(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"], r.json()["usage"]["prompt_tokens"] - 16)
            s.close()
        self.assertIn("weft-tiny, arithmetic 1", weft("cache", "info", second))
        about = weft("cache", "info", a)
        for word in ("weights", "template", "caches", "arithmetic", "identity", "snapshots"):
            self.assertIn(word, about)

    def test_several_models(self):
        """A pack is used by the model that it is of, and by no other."""
        s = self.serve("--pack", self.pack, OTHER, "--prompt-cache-dir", self.at("several"))
        r = s.post(CHAT, dict(body(QUESTIONS[0]), model="weft-tiny"))
        self.assertEqual((said(r), cache(r)["source"]), (self.cold[0], "disk"))
        r = s.post(CHAT, dict(body(QUESTIONS[0]), model="weft-tiny-8bit"))
        self.assertEqual((r.status, cache(r)["source"]), (200, "none"))
        self.assertIn("the model's weights differs", s.text())
        s.close()

    def test_words(self):
        for args in (("exprt", "x"), ("export",), ("import", "x"), ("info",)):
            weft("cache", *args, code=2)
        weft("cache", "export", self.tmp.name, "--out", self.at("e.pack"), code=1)
        weft("cache", "info", self.prompt, code=1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=1)
