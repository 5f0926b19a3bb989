"""Adapters (LoRA) from outside: chosen by model name and by id, beside each other, with prefixes kept in memory and on disk.
Answers must be what a server without any memory gives to one request alone, log-probabilities and all.
Run as: test_adapters.py WEFT MODEL"""
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from adapterkit import adapter
from serverkit import PATIENCE, Server

WEFT, MODEL = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
CHAT = "/v1/chat/completions"


def ask(k, **more):
    text = "Question %d: " % (k % 3) + "is it warm in Lima, or in Quito? " * (1 + 20 * (k % 2)) + "And where is %d?" % k
    return dict({"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, "logprobs": True}, **more)


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def cached(reply):
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.path = [os.path.join(cls.tmp.name, n) for n in ("one", "two")]
        for i, path in enumerate(cls.path):
            adapter(MODEL, path, i)

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def start(self, *options, lora=True):
        argv = [WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "2", "--alias", "base"]
        argv += ["--lora", "one=%s" % self.path[0], "--lora", "two=%s,0.5" % self.path[1]] if lora else []
        s = Server(argv + list(options))
        self.addCleanup(s.close)
        return s

    _cold = {}

    def cold(self):
        """By name of the model: the answers of a server that keeps nothing, one after the other; asked once for all tests."""
        out = self._cold
        if not out:
            s = self.start("--prompt-cache-bytes", "0")
            out.update({m: [said(s.post(CHAT, ask(k, model=m))) for k in range(4)] for m in ("base", "one", "two")})
            self.assertNotEqual(out["one"], out["base"])
            self.assertNotEqual(out["one"], out["two"])
        return out

    def test_chosen(self):
        s, plain, cold = self.start(), self.start(lora=False), self.cold()
        self.assertEqual(cold["base"], [said(plain.post(CHAT, ask(k))) for k in range(4)])
        models = s.ask("GET", "/v1/models").json()["data"]
        self.assertEqual([(m["id"], m.get("parent")) for m in models], [("base", None), ("one", "base"), ("two", "base")])
        self.assertEqual(s.ask("GET", "/v1/models/two").json()["parent"], "base")
        r = s.post(CHAT, ask(0, model="one"))
        self.assertEqual((r.json()["model"], said(r)), ("one", cold["one"][0]))
        r = s.post(CHAT, ask(0, lora=[{"id": 0, "scale": 1.0}]))
        self.assertEqual((r.json()["model"], said(r), cached(r) > 0), ("base", cold["one"][0], True))
        self.assertEqual(said(s.post(CHAT, ask(0, lora=[{"id": 1, "scale": 0.5}, {"id": 0, "scale": 0}]))), cold["two"][0])
        self.assertEqual(said(s.post(CHAT, ask(0, model="one", lora=[]))), cold["base"][0])
        both = said(s.post(CHAT, ask(0, lora=[{"id": 1, "scale": 0.5}, {"id": 0}])))
        self.assertNotIn(both, (cold["one"][0], cold["two"][0], cold["base"][0]))
        self.assertEqual(s.post(CHAT, ask(0, model="three")).status, 404)
        for wrong in [{"id": 2}], [{"scale": 1}], [{"id": 0, "scale": "1"}], {"id": 0}, [3], [{"id": 0, "skale": 1}]:
            r = s.post(CHAT, ask(0, lora=wrong))
            self.assertIn(r.status, (400, 404), wrong)
            self.assertIn("message", r.error())

    def test_set(self):
        s, cold = self.start(), self.cold()
        self.assertEqual([(a["id"], a["name"], a["scale"]) for a in s.ask("GET", "/lora-adapters").json()],
                         [(0, "one", 0), (1, "two", 0)])
        self.assertEqual(said(s.post(CHAT, ask(1))), cold["base"][1])
        self.assertEqual(s.post("/lora-adapters", [{"id": 1, "scale": 0.5}]).json(), {"success": True})
        self.assertEqual([a["scale"] for a in s.ask("GET", "/lora-adapters").json()], [0, 0.5])
        self.assertEqual(said(s.post(CHAT, ask(1))), cold["two"][1])
        self.assertEqual(said(s.post(CHAT, ask(1, model="one"))), cold["one"][1])
        self.assertEqual(said(s.post(CHAT, ask(1, lora=[]))), cold["base"][1])
        self.assertEqual(s.post("/lora-adapters", [{"id": 7}]).status, 400)
        self.assertEqual(s.post("/lora-adapters", {"id": 0}).status, 400)
        self.assertEqual(s.post("/lora-adapters", []).json(), {"success": True})
        self.assertEqual(said(s.post(CHAT, ask(1))), cold["base"][1])

    def test_together(self):
        """All at once and twice over, in few pages, with drafts and what is kept checked."""
        s, cold, wrong = self.start("--draft-kind", "ngram", "--verify-cache", "1", "--parallel", "6"), self.cold(), []

        def one(model, k):
            got = said(s.post(CHAT, ask(k, model=model)))
            if got != cold[model][k]:
                wrong.append((model, k))

        for _ in range(1 if QUICK else 3):
            all = [threading.Thread(target=one, args=(m, k)) for k in range(4) for m in cold]
            for t in all:
                t.start()
            for t in all:
                t.join()
        self.assertEqual(wrong, [])
        self.assertEqual(s.metrics()["weft_prefix_wrong_total"], 0)

    def test_told(self):
        """Gateways read which adapters are in use."""
        s, open_ones = self.start("--parallel", "1", "--draft-kind", "none"), []

        def told(running, waiting):
            line = re.search(r"(?m)^vllm:lora_requests_info\{(.*)\} (\S+)$", s.ask("GET", "/metrics").text())
            self.assertLess(abs(float(line.group(2)) - time.time()), 100)
            return line.group(1) == 'max_lora="2",running_lora_adapters="%s",waiting_lora_adapters="%s"' % (running, waiting)

        self.assertTrue(told("", ""))
        for model, seen in ("one", ("one", "")), ("two", ("one", "two")):
            open_ones.append(s.connect())
            open_ones[-1].request("POST", CHAT, ask(0, model=model, max_tokens=3900, ignore_eos=True, stream=True), {"x-request-id": model})
            end = time.monotonic() + PATIENCE
            while not told(*seen):
                self.assertLess(time.monotonic(), end, s.ask("GET", "/metrics").text())
        for model, seen in ("two", ("one", "")), ("one", ("", "")):
            self.assertEqual(s.ask("DELETE", "/v1/requests/" + model).status, 200)
            while not told(*seen):
                self.assertLess(time.monotonic(), end)
        for c in open_ones:
            c.close()
        self.assertIn('vllm:cache_config_info{block_size="64",num_gpu_blocks="%d"} 1' % s.metrics()["weft_kv_pages"],
                      s.ask("GET", "/metrics").text())

    def test_disk(self):
        """What is kept on disk is found again by those with the same adapter, and by no other."""
        kept = ("--prompt-cache-dir", os.path.join(self.tmp.name, "kept"), "--tune", "prompt-cache-disk-wait=3600")
        s, cold = self.start(*kept), self.cold()
        self.assertEqual(said(s.post(CHAT, ask(3, model="one"))), cold["one"][3])
        s.until("all is written", disk_pending=0, disk_queue_bytes=0)
        s.signal()
        s.wait()
        s = self.start(*kept)
        for model in "two", "base", "one":
            r = s.post(CHAT, ask(3, model=model))
            self.assertEqual(said(r), cold[model][3], model)
            self.assertEqual(cached(r) > 0, model == "one", model)

    def test_refused(self):
        bad = os.path.join(self.tmp.name, "bad")
        os.mkdir(bad)
        for lora, says in ("x=%s" % bad, "adapter_config.json"), ("=p", "NAME=PATH"), ("x=/nowhere", "neither"), \
                ("one=%s,much" % self.path[0], "not a scale"):
            r = subprocess.run([WEFT, "serve", MODEL, "--port", "0", "--lora", lora], capture_output=True, text=True)
            self.assertEqual(r.returncode != 0 and says in r.stderr, True, (lora, r.stderr))
        r = subprocess.run([WEFT, "serve", MODEL, "--port", "0"] + ["--lora", "a=%s" % self.path[0]] * 2, capture_output=True,
                           text=True)
        self.assertIn("two adapters are called a", r.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
