"""Three servers that share a folder of prefixes and a Redis, where there is one, behind HAProxy with the file that weft brings: one after the other is killed
and started again while conversations go on.  Every answer is what a server without any memory gives; a request that HAProxy
could send elsewhere is answered, and a stream that breaks off says nothing wrong.
Run as: test_fleet.py WEFT MODEL SERVICE-DIR; WEFT_KILLS: how many, 2 or 6"""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serverkit import PATIENCE, Conn, Gone, Server

WEFT, MODEL, SERVICE = sys.argv[1:4]
KILLS = int(os.environ.get("WEFT_KILLS", 2 if os.environ.get("WEFT_TEST_QUICK") else 6))
TURNS, BETWEEN = 4, 8       # of a conversation; answers between two kills
CHAT = "/v1/chat/completions"
REDIS = shutil.which("redis-server")
HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")

if not HAPROXY:
    print("skipped: no haproxy")
    sys.exit(77)


def start(*options, port=0):
    return Server([WEFT, "serve", MODEL, "--port", str(port), "--port-file", "{port_file}", "--threads", "1", "--log-level", "error", *options])


def serving(s):
    end = time.monotonic() + PATIENCE
    while s.ask("GET", "/health").status != 200:
        if time.monotonic() > end:
            raise AssertionError(s.text())


def talk(seed):
    """The bodies of a conversation, whose assistant's turns are made up: each has the one before as its beginning."""
    rng = random.Random(seed)
    say = [{"role": "system", "content": "Answer in few words. " * (4 + seed % 5)}]
    for turn in range(TURNS):
        say.append({"role": "user", "content": "Question %d of %d: %s?" % (turn, seed, " ".join(rng.choice(("is", "Rome", "large", "old", "near")) for _ in range(12)))})
        body = {"messages": list(say), "max_tokens": 40, "temperature": 0, "ignore_eos": True, "prompt_cache_key": "talk %d" % seed}
        yield {**body, "stream": True, "stream_options": {"include_usage": True}} if turn % 2 else body
        say.append({"role": "assistant", "content": "It is %s." % rng.choice(("so", "not so"))})


def text_of(reply):
    """An answer's text, and the tokens of its prompt, cached ones first."""
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        events = reply.events()
        said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
        usage = events[-1]["usage"]
    else:
        said, usage = reply.json()["choices"][0]["message"]["content"], reply.json()["usage"]
    return said, usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


class Kept(Conn):
    """Keeps all that came."""
    all = b""

    def more(self):
        had = len(self.buf)
        super().more()
        self.all += self.buf[had:]


def said_before(raw):
    """The text in a stream that broke off."""
    raw = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", raw)     # between chunks
    return "".join(json.loads(e)["choices"][0]["delta"].get("content") or "" for e in re.findall(rb"data: (\{.*\})\n\n", raw) if json.loads(e)["choices"])


class Fleet(unittest.TestCase):
    redis_port = 0

    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.options = ("--prompt-cache-dir", os.path.join(self.dir, "kept"), *self.redis())
        self.s = [start(*self.options) for _ in range(3)]
        self.alone = start("--prompt-cache-bytes", "0")
        self.door = os.path.join(self.dir, "door")
        with open(os.path.join(SERVICE, "haproxy.cfg")) as f:
            conf = f.read().replace("bind :8080", "bind unix@" + self.door)
        for i, s in enumerate(self.s):
            conf = conf.replace("10.0.0.%d:8080" % (i + 1), "127.0.0.1:%d" % s.port)
        with open(os.path.join(self.dir, "haproxy.cfg"), "w") as f:
            f.write(conf)
        for s in self.s + [self.alone]:
            serving(s)
        self.proxy = subprocess.Popen([HAPROXY, "-q", "-db", "-f", os.path.join(self.dir, "haproxy.cfg")], stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (self.proxy.kill(), self.proxy.wait()))
        end = time.monotonic() + PATIENCE
        while not os.path.exists(self.door):
            self.assertIsNone(self.proxy.poll())
            self.assertLess(time.monotonic(), end)

    def redis(self):
        """The option that names a Redis of this test's own; nothing where there is none, or weft was built without."""
        built = subprocess.run([WEFT, "serve", MODEL, "--prompt-cache-url", "http://x"], capture_output=True, text=True)
        if not REDIS or "libhiredis" in built.stderr:
            return ()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        redis = subprocess.Popen([REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir], stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (redis.kill(), redis.wait()))
        self.redis_port = port
        return "--prompt-cache-url", "redis://127.0.0.1:%d" % port

    def ask(self, body):
        """Through the proxy; a stream that breaks off is asked for again, and what it said is looked at."""
        while True:
            c = Kept(self.door)
            try:
                c.request("POST", CHAT, body)
                r = c.reply()
                if r.status == 200:
                    return text_of(r)
                self.assertIn(r.status, (502, 503), r.text())    # killed while it computed, before a byte was sent
            except Gone:
                pass
            finally:
                c.close()
            with self.lock:
                self.broken.append((body, said_before(c.all)))

    def test_kills(self):
        self.lock, self.broken, wrong, count = threading.Lock(), [], [], threading.Semaphore(0)
        over, tokens = threading.Event(), [0, 0]

        def talks(mine):
            seed = mine
            while not over.is_set():
                for body in talk(seed):
                    said, cached, prompt = self.ask(body)
                    right = text_of(self.alone.post(CHAT, body))[0]
                    with self.lock:
                        tokens[0] += cached
                        tokens[1] += prompt
                        if said != right:
                            wrong.append((body, said, right))
                    count.release()
                seed += 3

        threads = [threading.Thread(target=talks, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        try:
            for kill in range(KILLS):
                for _ in range(BETWEEN):
                    self.assertTrue(count.acquire(timeout=PATIENCE))
                s, port = self.s[kill % 3], self.s[kill % 3].port
                s.signal(signal.SIGKILL)
                s.proc.wait()
                s.log.close()
                s.dir.cleanup()
                self.s[kill % 3] = start(*self.options, port=port)
                serving(self.s[kill % 3])
        finally:
            over.set()
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])
        for body, said in self.broken:
            self.assertTrue(text_of(self.alone.post(CHAT, body))[0].startswith(said))
        self.assertGreater(tokens[0], tokens[1] / 3)
        # Whichever server is asked now has the prefix, from memory or from the folder.
        last = list(talk(0))[-1]
        for s in self.s:
            s.until("written", disk_queue_bytes=0, disk_pending=0)
        for s in self.s:
            said, cached, prompt = text_of(s.post(CHAT, last))
            self.assertGreater(cached, prompt - 2 * 16)
        if self.redis_port:
            with socket.create_connection(("127.0.0.1", self.redis_port), PATIENCE) as c:
                c.sendall(b"DBSIZE\r\n")
                self.assertGreater(int(c.makefile("rb").readline()[1:]), 100)
        for s in self.s + [self.alone]:
            s.close()
        print("%d kills, %d streams and replies broke off, %d of %d prompt tokens were found" % (KILLS, len(self.broken), *tokens))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
