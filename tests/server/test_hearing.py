"""Sounds at a whole server: chats with sounds over memory, disk and restarts, each answer with its log-probabilities that of a server
that keeps nothing; transcriptions; and files that are no sounds.
Run as: test_hearing.py WEFT MODEL

The model is MODEL with an ear of random weights, as Gemma 4 12B has it: a matrix over frames of 640 samples."""
import base64
import io
import json
import math
import os
import random
import shutil
import struct
import sys
import tempfile
import unittest
import wave

from serverkit import CHAT, Server

WEFT, MODEL = sys.argv[1:3]
TEMPLATE = """{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
{% if p.type == 'audio' %}<|video_pad|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""
ROW, OPEN, CLOSE = 2027, 2023, 2024

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)


def make_model(folder):
    for f in os.listdir(MODEL):
        if f != "config.json" and not f.startswith("model"):
            shutil.copy(os.path.join(MODEL, f), folder)
    with open(os.path.join(MODEL, "config.json")) as f:
        config = json.load(f)
    hidden = config["text_config"]["hidden_size"]
    config.update(audio_config={"model_type": "gemma4_unified_audio", "audio_samples_per_token": 640}, audio_token_id=ROW,
                  boa_token_id=OPEN, eoa_token_index=CLOSE)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    rng = random.Random(1)
    n = hidden * 640
    header["model.embed_audio.embedding_projection.weight"] = {"dtype": "F32", "shape": [hidden, 640],
                                                               "data_offsets": [len(data), len(data) + 4 * n]}
    data += struct.pack("<%df" % n, *[rng.gauss(0, 0.04) for _ in range(n)])
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def wav(seconds, pitch, rate=16000, channels=1, junk=b""):
    """A tone; junk is a chunk that no reader reads, so that other bytes are the same sound."""
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(channels)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(6.2831853 * pitch * i / rate))) * channels
                               for i in range(int(seconds * rate))))
    body = out.getvalue()
    return body + (b"junk" + struct.pack("<I", len(junk)) + junk if junk else b"")


def part(sound):
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}}


def user(*parts):
    return {"role": "user", "content": [part(p) if isinstance(p, bytes) else {"type": "text", "text": p} for p in parts]}


def form(fields):
    b = "----weft%s" % os.urandom(8).hex()
    out = b""
    for name, value in fields:
        head = 'Content-Disposition: form-data; name="%s"' % name + ('; filename="a.wav"\r\nContent-Type: audio/wav' if name == "file" else "")
        out += ("--%s\r\n%s\r\n\r\n" % (b, head)).encode() + (value if isinstance(value, bytes) else value.encode()) + b"\r\n"
    return out + ("--%s--\r\n" % b).encode(), {"Content-Type": "multipart/form-data; boundary=" + b}


class Hearing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        make_model(cls.folder.name)
        cls.tmpl = os.path.join(cls.folder.name, "t.jinja")
        with open(cls.tmpl, "w") as f:
            f.write(TEMPLATE)
        cls.s = cls.serve("--prompt-cache-bytes", "64M")

    @classmethod
    def serve(cls, *more):
        return Server([WEFT, "serve", cls.folder.name, "--chat-template", cls.tmpl, "-c", "2048", "--parallel", "4",
                       "--port", "0", "--port-file", "{port_file}"] + list(more))

    @classmethod
    def tearDownClass(cls):
        cls.s.close()
        cls.folder.cleanup()

    def answer(self, server, messages):
        r = server.post(CHAT, {"messages": messages, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 5})
        self.assertEqual(r.status, 200, r.text())
        c = r.json()["choices"][0]
        return (c["message"]["content"], c["logprobs"]), r.json()["usage"]

    def talk(self):
        a, b = wav(1.0, 440), wav(0.5, 880)
        first = [user("hear ", a, " and say")]
        then = first + [{"role": "assistant", "content": "a tone"}, user("and ", b, wav(1.0, 440, junk=b"xx"), "?")]
        other = [user("hear ", b, " and say")]
        return [first, then, other, first + [{"role": "assistant", "content": "no"}, user("why?")], then]

    def test_kept(self):
        """Whatever is kept, the bits are those of a cold server; and what is kept is used."""
        cold = self.serve("--prompt-cache-bytes", "0")
        with tempfile.TemporaryDirectory() as disk:
            want = [self.answer(cold, m) for m in self.talk()]
            cold.close()
            got = [self.answer(self.s, m) for m in self.talk()]
            self.assertEqual([g[0] for g in got], [w[0] for w in want])
            self.assertNotEqual(want[0][0], want[2][0])
            self.assertEqual(want[0][1]["prompt_tokens"] - want[2][1]["prompt_tokens"], 12)      # 25 rows and 13
            self.assertGreater(got[4][1]["prompt_tokens_details"]["cached_tokens"], want[0][1]["prompt_tokens"])
            for _ in range(2):      # the second finds what the first wrote
                s = self.serve("--prompt-cache-bytes", "64M", "--prompt-cache-dir", disk)
                self.assertEqual([self.answer(s, m)[0] for m in self.talk()], [w[0] for w in want])
                s.close()

    def test_suppressed(self):
        """Tokens that generation_config.json forbids are in no answer, also beside a request's own biases."""
        ask = {"messages": [user("say")], "max_tokens": 4, "temperature": 0, "logprobs": True}

        def first(server, more={}):
            r = server.post(CHAT, dict(ask, **more)).json()
            return r["choices"][0]["logprobs"]["content"][0]["token"]
        free = first(self.s)
        ids = self.s.post("/tokenize", {"content": free}).json()["tokens"]
        self.assertEqual(len(ids), 1, free)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(self.folder.name, folder, dirs_exist_ok=True)
            with open(os.path.join(folder, "generation_config.json")) as f:
                said = json.load(f)
            with open(os.path.join(folder, "generation_config.json"), "w") as f:
                json.dump(dict(said, suppress_tokens=ids + [10 ** 6]), f)
            s = Server([WEFT, "serve", folder, "--chat-template", self.tmpl, "--port", "0", "--port-file", "{port_file}"])
            self.assertNotEqual(first(s), free)
            self.assertNotEqual(first(s, {"logit_bias": {str(ids[0]): 100}}), free)
            self.assertEqual(first(s, {"logit_bias": {"5": 100}}), first(self.s, {"logit_bias": {"5": 100}}))
            s.close()

    def test_few_bits(self):
        """The same with keys and values of few bits."""
        for bits in ("8", "3.5"):
            with self.subTest(bits=bits):
                cold, warm = (self.serve("--kv-bits", bits, "--prompt-cache-bytes", n) for n in ("0", "64M"))
                want, got = ([self.answer(s, m) for m in self.talk()] for s in (cold, warm))
                self.assertEqual([g[0] for g in got], [w[0] for w in want])
                self.assertGreater(got[4][1]["prompt_tokens_details"]["cached_tokens"], 0)
                cold.close()
                warm.close()

    def test_rates(self):
        """Other rates and channels are the same sound in other numbers: as many rows."""
        n = [self.answer(self.s, [user(wav(1.0, 300, rate, channels))])[1]["prompt_tokens"]
             for rate, channels in ((16000, 1), (48000, 2), (8000, 1), (44100, 8))]
        self.assertEqual(len(set(n)), 1, n)

    def test_hostile(self):
        w = wav(0.2, 440)
        for body, words in ((b"", "base64"), (b"RIFF", "begin as no"), (w[:20], "broken"), (w[:22] + struct.pack("<H", 9) + w[24:], "channels"),
                            (w[:24] + struct.pack("<I", 1 << 30) + w[28:], "samples a second"), (b"ID3" + bytes(500), "MP3"),
                            (b"fLaC" + bytes(500), "FLAC"), (b"OggS" + bytes(500), "Ogg"), (wav(601, 1, 4000), "600 seconds"),
                            (b"\x1a\x45\xdf\xa3webm" + bytes(99), "begin as no"), (wav(0, 440), "without samples")):
            with self.subTest(body=body[:30], words=words):
                for _ in range(2):
                    r = self.s.post(CHAT, {"messages": [user(body)], "max_tokens": 1})
                    self.assertEqual(r.status, 400, r.text())
                    self.assertIn(words, r.error()["message"])
                    self.assertEqual(r.error()["param"], "messages[0].content[0].input_audio.data")
        self.assertEqual(self.s.ask("GET", "/health").status, 200)

    def test_transcriptions(self):
        """A form's answer is that of the chat that it stands for, in each of its shapes."""
        sound = wav(1.0, 440)
        said = {}
        for more in ([], [("response_format", "text")], [("response_format", "verbose_json")], [("stream", "true")],
                     [("model", "default"), ("temperature", "0"), ("stream", "false"), ("timestamp_granularities[]", "segment")]):
            body, head = form([("file", sound)] + more + [("max_completion_tokens", "8")])
            r = self.s.ask("POST", "/v1/audio/transcriptions", body, head)
            self.assertEqual(r.status, 200, r.text())
            said[json.dumps(more)] = r.text()
        plain = json.loads(said["[]"])
        chat = self.s.post(CHAT, {"messages": [user(sound, "Transcribe the speech of this sound in its original language. Only output the text, with no newlines.")],
                                  "max_tokens": 8, "temperature": 0}).json()
        self.assertEqual(plain["text"], chat["choices"][0]["message"]["content"])
        self.assertEqual(plain["usage"]["input_token_details"]["audio_tokens"], 25)
        values = list(said.values())
        self.assertEqual(values[1], plain["text"] + "\n")
        self.assertEqual((json.loads(values[2])["duration"], json.loads(values[2])["text"]), (1.0, plain["text"]))
        self.assertEqual(json.loads(values[4])["text"], plain["text"])
        events = [json.loads(line[6:]) for line in values[3].split("\n") if line.startswith("data: {")]
        self.assertEqual("".join(e["delta"] for e in events if e["type"] == "transcript.text.delta"), plain["text"])
        self.assertEqual((events[-1]["type"], events[-1]["text"]), ("transcript.text.done", plain["text"]))
        body, head = form([("file", sound), ("language", "de"), ("prompt", "weft"), ("max_completion_tokens", "2")])
        self.assertEqual(self.s.ask("POST", "/v1/audio/translations", body, head).status, 200)

    def test_forms(self):
        sound = wav(0.2, 440)
        url = "/v1/audio/transcriptions"
        for fields, words in (([], "not a form"), ([("model", "x")], "file"), ([("file", b"zork")], "begin as no"),
                              ([("file", sound), ("response_format", "srt")], "times are not known"),
                              ([("file", sound), ("response_format", "vtt")], "times are not known"),
                              ([("file", sound), ("timestamp_granularities[]", "word")], "times of words are not known"),
                              ([("file", sound), ("temperature", "hot")], "temperature"), ([("file", sound), ("messages", "[]")], "not a field"),
                              ([("file", sound), ("prompt", b"\xff")], "UTF-8")):
            body, head = form(fields) if fields else (b"", {"Content-Type": "multipart/form-data; boundary=x"})
            r = self.s.ask("POST", url, body, head)
            self.assertEqual(r.status, 400, r.text())
            self.assertIn(words, r.text())
        self.assertEqual(self.s.post(url, {"file": "x"}).status, 415)
        body, head = form([("file", sound), ("max_completion_tokens", "1")])
        self.assertEqual(self.s.ask("POST", CHAT, body, head).status, 415)
        for cut in range(0, len(body), 97):
            r = self.s.ask("POST", url, body[:cut], head)
            self.assertIn(r.status, (200, 400), r.text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
