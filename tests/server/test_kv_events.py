"""kv-events, read as routers read them: what was announced against what requests find, replays, both forms, bad addresses.
Run as: test_kv_events.py WEFT MODEL"""
import functools
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import msgpack
    import zmq
except ImportError as e:
    print("skipped: %s" % e)
    sys.exit(77)

from kv_router import PATIENCE, Router, Score, Talks, predicted, settle
from serverkit import Server

WEFT, MODEL = sys.argv[1:3]
N = 20 if os.environ.get("WEFT_TEST_QUICK") else 60
COMPLETIONS = "/v1/completions"
BUILT = subprocess.run([WEFT, "serve", MODEL, "--tune", "kv-events=no"], stdin=subprocess.DEVNULL, capture_output=True, text=True)

if "built without" in BUILT.stderr:
    print("skipped: " + BUILT.stderr)
    sys.exit(77)


def steady(test):
    """While the machine's memory is short, what is kept is dropped at any time, and a test of it says nothing."""
    @functools.wraps(test)
    def run(self):
        try:
            test(self)
        except AssertionError:
            if not any(not s.log.closed and "memory is short" in s.text() for s in self.servers):
                raise
            self.skipTest("the machine's memory ran short")
    return run


class KvEvents(unittest.TestCase):
    def setUp(self):
        self.servers = []

    def start(self, *options, topic="kv-events"):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        events, replay = "ipc://%s/events" % d.name, "ipc://%s/replay" % d.name
        # libzmq is not built with the thread sanitizer, which does not see its atomics.
        quiet = os.path.join(d.name, "quiet")
        with open(quiet, "w") as f:
            f.write("called_from_lib:libzmq.so.5\n")
        env = {**os.environ, "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + " suppressions=" + quiet}
        tune = ["--tune", "kv-events=" + events, "--tune", "kv-events-replay=" + replay]
        server = Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-level", "warn", *tune, *options], env)
        self.servers.append(server)
        self.addCleanup(lambda: server.proc.poll() is None and server.proc.kill())
        router = Router(events, replay, topic)
        self.addCleanup(router.close)
        return server, router

    @steady
    def test_predicted(self):
        """Room for a dozen states: no request finds less than was announced, and on average it finds no block more."""
        server, router = self.start("--prompt-cache-bytes", "8M")
        talks, score = Talks(7, alive=8), Score()
        for _ in range(N):
            predicted(server, router, talks, score)
        print(score.text())
        settle(server, router, {"messages": [{"role": "user", "content": "x"}]})
        m = server.metrics()
        self.assertEqual(router.size, int(next(k for k in m if k.startswith("vllm:cache_config_info")).split('block_size="')[1].split('"')[0]))
        self.assertEqual((score.false, score.chain_false), (0, 0))
        self.assertLessEqual(score.error / score.n, router.size)
        self.assertGreater(score.seen, N / 3)
        self.assertGreater(m["weft_kv_blocks_removed_total"], 0)
        self.assertEqual(m["weft_kv_blocks_stored_total"] - m["weft_kv_blocks_removed_total"], len(router.blocks))
        # Dropped by order; then the end of the server.
        self.assertEqual(server.post("/v1/cache/drop", {"all": True}).status, 200)
        settle(server, router, {"messages": [{"role": "user", "content": "x"}]})
        self.assertEqual((router.blocks, router.cleared), ({}, 1))
        server.close()

    @steady
    def test_answers(self):
        """Prompts of tokens that go on with an answer, or leave it anywhere in it; and prompts of a tenant, which are not told."""
        server, router = self.start("--prompt-cache-bytes", "256M")
        first = [7 * i % 500 + 10 for i in range(150)]
        ask = {"prompt": first, "max_tokens": 200, "temperature": 0, "ignore_eos": True}
        self.assertEqual(server.post(COMPLETIONS, ask).json()["usage"]["completion_tokens"], 200)
        settle(server, router, {"prompt": first})
        # The answer's tokens are in the events, up to its last whole block.
        behind, whole, parent = {parent: (tokens, name) for (parent, tokens), name in router.known.items()}, [], None
        while parent in behind:
            tokens, parent = behind[parent]
            whole += tokens
        self.assertEqual((whole[:150], len(whole)), (first, 349 // router.size * router.size))
        for leave in (320, 319, 257, 256, 200, 151, 128, 64, 63):
            prompt = whole[:leave] + [3, 4, 5]
            settle(server, router, {"prompt": prompt})
            deepest, chain = router.predict(prompt)
            self.assertEqual(deepest, leave // router.size * router.size)
            self.assertEqual(chain, deepest)
            found = server.post(COMPLETIONS, {**ask, "prompt": prompt, "max_tokens": 1}).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertGreaterEqual(found, deepest)
            self.assertLess(found - deepest, router.size)
        settle(server, router, {"prompt": first})
        before = dict(router.blocks)
        server.post(COMPLETIONS, {**ask, "prompt": [9] * 200, "cache_salt": "tenant"})
        settle(server, router, {"prompt": [9] * 200})
        self.assertEqual(router.blocks, before)
        server.close()

    @steady
    def test_replay(self):
        """Who comes late, or missed messages, gets them by their numbers; a request of nonsense harms no one.  In arrays."""
        server, early = self.start("--prompt-cache-bytes", "64M", "--tune", "kv-events-format=array", "--tune", "kv-events-topic=kv@pod@tiny", topic="kv@pod@tiny")
        talks, score = Talks(3, alive=4), Score()
        for _ in range(6):
            predicted(server, early, talks, score)
        settle(server, early, talks.next()[1])
        s = early.ctx.socket(zmq.DEALER)
        s.connect(early.replay_at)
        for bad in ([b"x"], [b"", b"123"], [b"", b"1" * 900], [b"", b"12345678", b""]):
            s.send_multipart(bad)
        s.close(PATIENCE * 1000)
        all_ = early.replay(0)
        self.assertEqual([seq for seq, _ in all_], list(range(early.next)))
        self.assertEqual(msgpack.unpackb(all_[0][1])[1:], [[["AllBlocksCleared"]], 0])
        self.assertEqual(early.replay(early.next - 2), all_[-2:])
        self.assertEqual(early.replay(early.next), [])
        late = Router(early.sub.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(), early.replay_at, "kv@pod@tiny")
        late.sync(early.next)
        self.assertEqual((late.blocks, late.replayed > 0), (early.blocks, True))
        late.close()
        self.assertEqual(score.false, 0)
        # The end is told, too: nothing is left.
        server.close()
        while early.cleared < 2:
            early.sync(early.next + 1)
        self.assertEqual(early.blocks, {})

    def test_refused(self):
        for options, said in (("kv-events=no",), "kv-events no: "), (("kv-events=ipc:///no/such/folder/x",), "ipc:///no/such/folder/x"), \
                (("kv-events=ipc:///tmp/x", "kv-events-format=json"), "it is map or array"), (("kv-events-topic=x",), "without kv-events"):
            p = subprocess.run([WEFT, "serve", MODEL, "--port", "0", *(w for o in options for w in ("--tune", o))], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertNotEqual(p.returncode, 0)
            self.assertIn(said, p.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
