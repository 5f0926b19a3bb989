"""Keys and values in few bits, from outside: a kept, restored, drafted or shared prefix answers as a cold one does, and no
server takes what another policy has left on disk.  Log-probabilities are compared too; logits by their bytes.
Run as: test_kv.py WEFT MODELS"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

from serverkit import Server

WEFT, MODELS = sys.argv[1:3]
MODEL, DRAFT = os.path.join(MODELS, "weft-tiny"), os.path.join(MODELS, "weft-tiny-draft")
QUICK = os.environ.get("WEFT_TEST_QUICK")
CHAT = "/v1/chat/completions"

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)

PLAIN = ()
POLICIES = [("--kv-bits", "3.5", "--tune", "kv-quant-scheme=turboquant"), ("--kv-bits", "8"), ("--kv-bits", "2"),
            ("--kv-bits", "4", "--tune", "kv-quant-scheme=uniform", "--tune", "kv-skip-layers=last"),
            ("--tune", "kv-key-bits=8", "--tune", "kv-value-bits=4", "--tune", "kv-group-size=32", "--tune", "kv-skip-layers=none")]
if QUICK:
    POLICIES = POLICIES[:1]

CITIES = "Lima Quito Paris Rome Oslo Cairo Delhi Tokyo".split()


def body(k, **more):
    """Conversation k; some share a long beginning, and all have an answer of some length."""
    say = [{"role": "system", "content": "You answer in few words. " + "Be brief and do not guess. " * (8 * (k % 3))}]
    for t in range(k % 3):
        say += [{"role": "user", "content": "Question %d: what is the capital of Peru?" % t},
                {"role": "assistant", "content": "The capital of Peru is %s." % CITIES[k % 8]}]
    say.append({"role": "user", "content": "The code of %s is 4711. What is the code of %s?" % (CITIES[k % 8], CITIES[k % 8])})
    return dict({"messages": say, "max_tokens": 16, "temperature": 0, "logprobs": True, "cache_report": True}, **more)


ASKS = [body(k) for k in range(3 if QUICK else 6)]


def start(*options):
    return Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "2", *options])


def said(reply):
    assert reply.status == 200, reply.text()
    return [{k: v for k, v in c.items() if k != "index"} for c in reply.json()["choices"]]


def source(reply):
    return reply.json()["usage"]["cache"]["source"]


_cold = {}


def cold(policy):
    """The answers of a server that keeps nothing, guesses nothing and computes one at a time."""
    if policy not in _cold:
        s = start("--prompt-cache-bytes", "0", "--draft-kind", "none", "--parallel", "1", *policy)
        _cold[policy] = [said(s.post(CHAT, a)) for a in ASKS]
        s.close()
    return _cold[policy]


class Test(unittest.TestCase):
    def serve(self, *options):
        s = start(*options)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def ask_together(self, s, asks):
        with concurrent.futures.ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(lambda a: s.post(CHAT, a), asks))


class Equal(Test):
    def test_takes_effect(self):
        for policy in POLICIES:
            self.assertNotEqual(cold(policy), cold(PLAIN), policy)

    def test_kept_and_drafted(self):
        """Twice, all at once: computed beside each other, then from the store, under every drafter."""
        drafters = [("ngram",), ("mtp",), ("model", "--draft-model", DRAFT)]
        for policy in POLICIES:
            for kind in drafters[1:2] if QUICK else drafters:
                s = self.serve(*policy, "--tune", "draft-fixed", "--num-draft-tokens", "5", "--draft-kind", *kind)
                for again in False, True:
                    for a, r, want in zip(ASKS, self.ask_together(s, ASKS), cold(policy)):
                        self.assertEqual(said(r), want, (policy, kind, again, a))
                        if again:
                            self.assertEqual(source(r), "memory")
                self.assertGreater(sum(v for k, v in s.metrics().items() if k.startswith("weft_draft_accepted_tokens_total")), 0)
                s.close()

    def test_choices(self):
        """n answers of one prompt are those of n seeds asked alone."""
        for policy in POLICIES:
            s = self.serve(*policy)
            sampled = {"temperature": 1, "max_tokens": 12}
            many = said(s.post(CHAT, body(1, n=3, seed=7, **sampled)))
            alone = self.serve(*policy, "--prompt-cache-bytes", "0", "--draft-kind", "none", "--parallel", "1")
            self.assertEqual(many, [said(alone.post(CHAT, body(1, seed=7 + i, **sampled)))[0] for i in range(3)], policy)
            s.close()
            alone.close()

    def test_logits(self):
        """How the work is cut, what runs beside it, where it is interrupted: no bit of any row."""
        ways = [("--split", "1,7,64"), ("--split", "63,65,2", "--threads", "1"), ("--alongside", "3", "--split", "5,1"),
                ("--resume-at", "100"), ("--resume-at", "205"), ("--draft", "mtp", "--num-draft-tokens", "5"),
                ("--draft", "ngram", "--alongside", "2"), ("--warm", "WARM")][::3 if QUICK else 1]
        with tempfile.TemporaryDirectory() as work:
            ids, out, warm = (os.path.join(work, n) for n in ("ids", "out", "warm"))
            first = [(i * i * 7 + i * 13 + 5) % 509 for i in range(200)]
            for path, v in (ids, first), (warm, first[:150] + [9] * 30):
                with open(path, "w") as f:
                    json.dump(v, f)

            def logits(*options):
                subprocess.run([WEFT, "logits", MODEL, "--ids", ids, "--out", out, "--ctx-size", "512", "--greedy", "12",
                                "--log-level", "error", *(warm if o == "WARM" else o for o in options)], check=True)
                with open(out, "rb") as f:
                    return f.read()

            for policy in POLICIES:
                want = logits(*policy)
                self.assertNotEqual(want, logits())
                for way in ways:
                    self.assertEqual(logits(*policy, *way) == want, True, (policy, way))


class Disk(Test):
    def test_policies(self):
        """Each finds its own after a restart, and nobody else's."""
        with tempfile.TemporaryDirectory() as d:
            policies = [PLAIN] + POLICIES
            for policy in policies:
                s = self.serve("--prompt-cache-dir", d, *policy)
                self.assertEqual(s.metrics()["weft_disk_snapshots"], 0, policy)
                for a, want in zip(ASKS, cold(policy)):
                    self.assertEqual(said(s.post(CHAT, a)), want, policy)
                self.assertEqual(s.metrics()["weft_disk_read_total"], 0, policy)
                s.close()
            for policy in policies:
                s = self.serve("--prompt-cache-dir", d, *policy)
                self.assertGreater(s.metrics()["weft_disk_snapshots"], 0)
                for i, (a, want) in enumerate(zip(ASKS, cold(policy))):
                    r = s.post(CHAT, a)
                    self.assertEqual(said(r), want, policy)
                    if not i:
                        self.assertEqual(source(r), "disk", policy)
                self.assertEqual(s.metrics()["weft_disk_damaged_total"], 0)
                s.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
