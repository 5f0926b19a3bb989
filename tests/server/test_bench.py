"""`weft bench serve` against the server before a stub engine.
Run as: test_bench.py STUB_SERVER TOKENIZER.JSON WEFT"""
import json
import os
import pty
import re
import socket
import subprocess
import sys
import unittest

from serverkit import PATIENCE, stub

WEFT = sys.argv[3]


class Bench(unittest.TestCase):
    def serve(self, **opts):
        s = stub(**opts)
        self.addCleanup(s.close)
        return s

    def bench(self, url, *options, code=0):
        r = subprocess.run([WEFT, "bench", "serve", url, "--json"] + list(options), capture_output=True, text=True,
                           timeout=PATIENCE)
        self.assertEqual(r.returncode, code, r.stderr + r.stdout)
        return json.loads(r.stdout) if r.stdout else r.stderr

    def url(self, s, path=""):
        return "http://127.0.0.1:%d%s" % (s.port, path)

    def test_all_answered(self):
        s = self.serve()
        for kind in ([], ["--completions"]):
            r = self.bench(self.url(s, "/v1"), "--requests", "50", "--rate", "500", "--output-tokens", "7", *kind)
            self.assertEqual((r["requests"], r["completed"], r["aborted"], r["refused"], r["failed"]), (50, 50, 0, 0, 0))
            self.assertEqual((r["output_tokens"], r["first_error"]), (350, ""))
            self.assertGreater(r["prompt_tokens"], 50 * 64)
            for name in ("first_token_seconds", "whole_seconds", "per_output_token_seconds"):
                f = r[name]
                self.assertEqual(f["n"], 50)
                self.assertTrue(0 <= f["p50"] <= f["p90"] <= f["p99"] <= f["max"], f)
            self.assertLessEqual(r["first_token_seconds"]["max"], r["whole_seconds"]["max"])
        self.assertEqual(s.metrics()['weft_requests_finished_total{reason="length"}'], 100)

    def test_progress(self):
        s = self.serve()
        r = subprocess.run([WEFT, "bench", "serve", self.url(s), "--requests", "40", "--rate", "0", "--output-tokens", "1"],
                           capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([int(n) for n in re.findall(r"(\d+) of 40 requests are over", r.stderr)], list(range(4, 41, 4)))
        # At a terminal one line, written over.
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        r = subprocess.run([WEFT, "bench", "serve", self.url(s), "--requests", "5", "--rate", "0", "--output-tokens", "1"],
                           stdout=subprocess.DEVNULL, stderr=theirs, timeout=PATIENCE)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        self.assertEqual(re.findall(r"\r5 of 5 sent, (\d) over", text), list("12345"), text)

    def prompts(self, s, *options):
        n = len(s.records("prompt"))
        self.bench(self.url(s), "--requests", "20", "--rate", "0", "--output-tokens", "1", "--prompt-tokens", "5,9", *options)
        return sorted(r["prompt"] for r in s.records("prompt")[n:])

    def test_user(self):
        s = self.serve(log_format="json")
        self.bench(self.url(s), "--requests", "3", "--rate", "0", "--user", "ann")
        self.assertEqual([r["client"] for r in s.records("request") if r["path"].startswith("/v1/chat")], ["user:ann"] * 3)

    def test_the_plan_is_the_seeds(self):
        s = self.serve(log_prompts=1, log_format="json")
        a = self.prompts(s, "--seed", "0")
        self.assertEqual((len(a), len(set(a)) > 15), (20, True))
        self.assertEqual({len(p.split()) for p in a}, {5, 9})
        self.assertEqual(a, self.prompts(s, "--seed", "0"))
        self.assertNotEqual(a, self.prompts(s, "--seed", "1"))
        # Else each run has a seed of its own, so that a server has cached none of it.
        self.assertNotEqual(self.prompts(s), self.prompts(s))
        shared = self.prompts(s, "--prefixes", "3", "--prefix-tokens", "30", "--seed", "0")
        self.assertEqual(len({p.split("\n")[0] for p in shared}), 3)
        self.assertEqual(sorted(p.split("\n")[1] for p in shared), a)

    def test_aborts(self):
        s = self.serve(slow=1)
        r = self.bench(self.url(s), "--requests", "30", "--rate", "0", "--output-tokens", "40", "--abort", "0.5", "--seed", "0")
        self.assertEqual(r["completed"] + r["aborted"], 30)
        self.assertGreater(r["aborted"], 5)
        self.assertGreater(r["completed"], 5)
        s.until("all over", connections=1, requests_running=0)
        m = s.metrics()
        left = {k.split('"')[1]: v for k, v in m.items() if k.startswith("weft_clients_left_total")}
        ended = {k.split('"')[1]: v for k, v in m.items() if k.startswith("weft_requests_finished_total")}
        # Each ended once, in the engine or before it.  A client that leaves just as its answer ends counts in both.
        self.assertEqual(left["body"] + left["preparing"] + sum(ended.values()), 30)
        self.assertGreaterEqual(ended["length"], r["completed"])
        self.assertLessEqual(sum(left.values()), r["aborted"])
        self.assertGreater(sum(left.values()), 0)

    def test_refused_and_failed(self):
        s = self.serve(slow=1, connections_max=2)
        r = self.bench(self.url(s), "--requests", "20", "--rate", "0", "--output-tokens", "40")
        self.assertEqual(r["completed"] + r["refused"], 20)
        self.assertGreater(r["refused"], 0)
        self.assertIn("503", r["first_error"])
        with socket.socket() as held:           # bound, and not listening
            held.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % held.getsockname()[1]
            r = self.bench(url, "--requests", "3", "--rate", "0", code=1)
            p = subprocess.run([WEFT, "bench", "serve", url, "--requests", "3", "--rate", "0"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((p.returncode, p.stdout), (1, ""))
        self.assertIn(url + ": all 3 requests failed", p.stderr)
        self.assertEqual((r["failed"], r["completed"]), (3, 0))
        r = self.bench(self.url(s), "--requests", "1", "--model", "other", code=1)
        self.assertEqual(r["failed"], 1)
        self.assertIn("404", r["first_error"])

    def test_words(self):
        for words, part in ((["https://x"], "not a URL"), ([], "needs the URL"), (["http://127.0.0.1:1", "more"], "too many")):
            r = subprocess.run([WEFT, "bench", "serve"] + words, capture_output=True, text=True, timeout=PATIENCE)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(part, r.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[4:])
