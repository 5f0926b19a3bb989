"""Kept prefixes in a Redis server, for servers that share no disk: found by another server, checked, dropped, and no request
held up by a Redis that is dead, hangs or lies.  Answers must be what a server without any memory gives.
Run as: test_redis.py WEFT MODEL; WEFT_KILLS: how many, 2 or 6"""
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serverkit import PATIENCE, Gone, Server

WEFT, MODEL = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
KILLS = int(os.environ.get("WEFT_KILLS", 2 if QUICK else 6))
CHAT = "/v1/chat/completions"
REDIS = shutil.which("redis-server")
SECRET = "s3cret/word"

if not REDIS:
    print("skipped: no redis-server")
    sys.exit(77)
if "libhiredis" in subprocess.run([WEFT, "serve", MODEL, "--prompt-cache-url", "http://x"], capture_output=True, text=True).stderr:
    print("skipped: built without hiredis")
    sys.exit(77)


def body(k, turns=2):
    """Conversation k up to its last question: some share a long beginning."""
    rng = random.Random(k)
    say = [{"role": "system", "content": "You answer in few words. " + "Be brief and do not guess. " * (6 + k % 3)}]
    for t in range(turns):
        say.append({"role": "user", "content": "Question %d of %d: which is larger, %s?" % (t, k, " ".join(rng.choice(("Rome", "Oslo", "Lima")) for _ in range(9)))})
        if t < turns - 1:
            say.append({"role": "assistant", "content": "It is %s." % rng.choice(("so", "not so"))})
    return {"messages": say, "max_tokens": 8, "temperature": 0, "logprobs": True}


ASKS = [body(k) for k in range(3)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(*options, env=None):
    return Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "1", *options], env={**os.environ, **(env or {})})


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def cached(reply):
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def cold(cache=[]):
    if not cache:
        s = start("--prompt-cache-bytes", "0")
        cache.extend(said(s.post(CHAT, a)) for a in ASKS)
        s.close()
    return cache


def settled(s):
    s.until("all is written", disk_pending=0, disk_queue_bytes=0)


class Redis:
    """A server of its own, which keeps nothing over its end."""

    def __init__(self, *options, port=None):
        self.options, self.port, self.proc = options, port or free_port(), None
        self.dir = tempfile.mkdtemp()
        self.start()

    def start(self):
        self.proc = subprocess.Popen([REDIS, "--port", "0" if "--tls-port" in self.options else str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.dir,
                                      "--unixsocket", os.path.join(self.dir, "s"), *self.options], stdout=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if self.ask("PING") == b"PONG":     # and not that it loads
                    return
            except OSError:
                pass
            assert self.proc.poll() is None and time.monotonic() < end, "redis-server did not start"
            time.sleep(0.01)

    def ask(self, *words):
        """One command."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.dir, "s"))
            f = s.makefile("rb")
            for command in ([("AUTH", SECRET)] if "--requirepass" in self.options else []) + [words]:
                words = [w if isinstance(w, bytes) else str(w).encode() for w in command]
                s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
                got = self.reply(f)
            return got

    def reply(self, f):
        line = f.readline()
        if not line:
            raise OSError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.reply(f) for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else f.read(int(rest) + 2)[:-2]
        return int(rest) if kind == b":" else rest

    def names(self, kind="*"):
        return sorted(self.ask("KEYS", "weft:*" + kind))

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def close(self):
        self.kill()
        shutil.rmtree(self.dir)


class Between:
    """A way to Redis on which answers can be held back, cut off or made up: `mode` is "pass", "hang" or bytes that come
    instead of any answer; `only`: for commands of that name alone."""

    def __init__(self, to=None, mode="pass", only=None):
        self.to, self.mode, self.only, self.asked = to, mode, only, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        far = None
        try:
            if self.to:
                far = socket.create_connection(("127.0.0.1", self.to.port))
                threading.Thread(target=self.back, args=(far, c), daemon=True).start()
            while data := c.recv(1 << 16):
                if self.mode != "pass" and (not self.only or b"\r\n%s\r\n" % self.only in data):
                    self.asked.set()
                    if isinstance(self.mode, bytes):
                        c.sendall(self.mode)
                        c.shutdown(socket.SHUT_WR)
                elif far:
                    far.sendall(data)
        except OSError:
            pass
        finally:
            c.close()
            if far:
                far.close()

    def back(self, far, c):
        try:
            while data := far.recv(1 << 16):
                c.sendall(data)
        except OSError:
            pass

    def close(self):
        self.listener.close()
        for c in self.open:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Test(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.tmp)

    def redis(self, *options):
        r = Redis(*options)
        self.addCleanup(r.close)
        return r

    def between(self, *args, **more):
        b = Between(*args, **more)
        self.addCleanup(b.close)
        return b

    def serve(self, redis, *options, folder=None, env=None):
        more = ("--prompt-cache-dir", os.path.join(self.tmp, folder)) if folder else ()
        url = redis if isinstance(redis, str) else "redis://127.0.0.1:%d" % redis.port
        s = start("--prompt-cache-url", url, *more, *options, env=env)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def right(self, s, n=None):
        """Asks all, or n; the answers are cold ones.  The tokens that were not computed."""
        found = []
        for a, want in list(zip(ASKS, cold()))[:n]:
            r = s.post(CHAT, a)
            self.assertEqual(said(r), want)
            found.append(cached(r))
        return found

    def filled(self, redis, folder=None):
        s = self.serve(redis, folder=folder)
        self.right(s)
        settled(s)
        m = s.metrics()
        self.assertEqual(m["weft_redis_up"], 1)
        self.assertEqual((m["weft_redis_failed_total"], m["weft_redis_dropped_total"]), (0, 0))
        self.assertGreater(m["weft_redis_written_total"], 0)
        return s

    def kill(self, s):
        s.signal(signal.SIGKILL)
        s.proc.wait()
        s.log.close()
        s.dir.cleanup()


class Shared(Test):
    def test_other_server(self):
        """What one server kept another finds, with folders of their own or none; what is found goes to the finder's folder too."""
        wait = ("--tune", "prompt-cache-disk-wait=3600")
        for folders in (False, True):
            redis = self.redis()
            a = self.filled(redis, "a" if folders else None)
            names = redis.names(".page") + redis.names(".snap")
            if folders:
                files = [(d, f) for d, _, files in os.walk(os.path.join(self.tmp, "a")) for f in files if f.endswith((".page", ".snap"))]
                self.assertEqual(sorted(names), sorted(b"weft:%s:%s" % (os.path.basename(d).encode(), f.encode()) for d, f in files if ".page" in f or ".1." not in f))
                with open(os.path.join(*files[0]), "rb") as f:
                    self.assertEqual(redis.ask("GET", "weft:%s:%s" % (os.path.basename(files[0][0]), files[0][1])), f.read())
            for n in redis.names():
                self.assertTrue(0 < redis.ask("TTL", n) <= 7 * 86400, n)
            a.close()
            b = self.serve(redis, *wait, folder="b" if folders else None)
            for f, ask in zip(self.right(b), ASKS):
                self.assertGreater(f, 64)
            m = b.metrics()
            self.assertGreater(m["weft_redis_read_total"], 0)
            self.assertGreater(m["weft_redis_found_total"], 0)
            self.assertEqual((m["weft_redis_failed_total"], m["weft_redis_damaged_total"], m["weft_disk_damaged_total"]), (0, 0, 0))
            settled(b)
            self.assertEqual(b.metrics()["weft_disk_pages"] > 0, folders)
            b.close()
            if folders:
                redis.kill()
                c = self.serve(redis, *wait, folder="b")
                self.assertGreater(min(self.right(c)), 64)
                self.assertEqual(c.metrics()["weft_redis_up"], 0)

    def test_lost_values_come_back(self):
        """Pages that Redis evicted are written again by the server that has them, once the conversation goes on."""
        for folder in (None, "a"):
            redis = self.redis()
            a = self.filled(redis, folder)
            had = redis.names(".page")
            redis.ask("FLUSHALL")
            a.post(CHAT, body(0, 3))        # a look, and a state that is kept further on
            settled(a)
            self.assertTrue(redis.names(".page"))
            b = self.serve(redis, "--tune", "prompt-cache-disk-wait=3600")
            r = b.post(CHAT, body(0, 3))
            self.assertGreater(cached(r), 64)
            self.assertTrue(set(redis.names(".page")) & set(had))
            b.close()
            a.close()

    def test_dropped(self):
        """What is dropped is gone from Redis: a salt, and all."""
        redis = self.redis()
        a = self.filled(redis)
        a.post(CHAT, dict(ASKS[0], cache_salt="x"))
        settled(a)
        names = redis.names()
        a.post("/v1/cache/drop", {"cache_salt": "x"})
        end = time.monotonic() + PATIENCE
        unsalted = lambda: self.serve(redis, "--tune", "prompt-cache-disk-wait=3600")
        while len(redis.names(".page")) + len(redis.names(".snap")) >= len([n for n in names if not n.endswith(b".at")]):
            self.assertLess(time.monotonic(), end)
        settled(a)
        a.close()
        b = unsalted()
        self.assertGreater(min(self.right(b)), 64)
        self.assertEqual(cached(b.post(CHAT, dict(ASKS[0], cache_salt="x"))), 0)
        settled(b)
        b.post("/v1/cache/drop", {"all": True})
        while redis.names():
            self.assertLess(time.monotonic(), end)
        b.close()
        self.assertEqual(redis.names(), [])

    def test_password(self):
        """From the URL, or a variable, which no log, metric or answer shows; a wrong one is told once."""
        redis = self.redis("--requirepass", SECRET)
        url = "redis://127.0.0.1:%d/0" % redis.port
        inside = "redis://default:%s@127.0.0.1:%d" % (SECRET.replace("/", "%2F"), redis.port)
        for good, s in ((True, self.serve(url, env={"WEFT_REDIS_PASSWORD": SECRET})), (True, self.serve(inside)),
                        (False, self.serve(url, env={"WEFT_REDIS_PASSWORD": SECRET + "x"})), (False, self.serve(url))):
            self.right(s)
            self.assertEqual(s.metrics()["weft_redis_up"], good)
            for path in ("/metrics", "/props", "/v1/cache", "/v1/models", "/slots"):
                self.assertNotIn("s3cret", s.ask("GET", path).text())
            self.assertNotIn("s3cret", s.text())
            self.assertEqual(len([t for t in s.text().splitlines() if "cannot read" in t]), not good, s.text())
            if not good:
                self.assertRegex(s.text(), "WRONGPASS|NOAUTH")
            s.close()
        for wrong in ("http://x", "redis://", "redis://x:y", "redis://u:%s@h:1/2/3" % SECRET, "redis://%zz@h", "redis://h?db=1"):
            with self.assertRaises(RuntimeError) as e:
                start("--prompt-cache-url", wrong)
            self.assertIn("redis://[user:password@]host[:port][/db]", str(e.exception))
            self.assertNotIn("s3cret", str(e.exception))

    def test_tls(self):
        pem = lambda name: os.path.join(self.tmp, name)
        for name in ("good", "other"):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=weft test", "-addext", "subjectAltName=IP:127.0.0.1",
                            "-keyout", pem(name + ".key"), "-out", pem(name + ".crt")], check=True, stderr=subprocess.DEVNULL)
        port = free_port()
        redis = Redis("--tls-port", str(port), "--tls-cert-file", pem("good.crt"), "--tls-key-file", pem("good.key"), "--tls-ca-cert-file", pem("good.crt"), "--tls-auth-clients", "no", port=port)
        self.addCleanup(redis.close)
        url = "rediss://127.0.0.1:%d" % port
        for name, good in (("good", True), ("other", False)):
            s = self.serve(url, env={"SSL_CERT_FILE": pem(name + ".crt")})
            self.right(s)
            settled(s)
            m = s.metrics()
            self.assertEqual((m["weft_redis_up"] == 1, m["weft_redis_written_total"] > 0), (good, good), s.text())
            s.close()
        b = self.serve(url, "--tune", "prompt-cache-disk-wait=3600", env={"SSL_CERT_FILE": pem("good.crt")})
        self.assertGreater(min(self.right(b)), 64)


class Bad(Test):
    def test_damage(self):
        """Values that are not what was written are refused, counted and removed; the prompts are computed."""
        redis = self.redis()
        self.filled(redis).close()
        names = redis.names(".page") + redis.names(".snap")
        values = {n: redis.ask("GET", n) for n in names}
        rng = random.Random(1)

        def flip(n, v):
            i = rng.randrange(len(v))
            return v[:i] + bytes([v[i] ^ 1 << rng.randrange(8)]) + v[i + 1:]

        spoil = [flip, lambda n, v: v[:rng.randrange(len(v))], lambda n, v: b"", lambda n, v: v + b"x", lambda n, v: values[rng.choice([x for x in names if values[x] != v])],
                 lambda n, v: v[:24] + b"\xff" * 16 + v[40:], lambda n, v: os.urandom(len(v))]
        for how in spoil[:2] if QUICK else spoil:
            for n, v in values.items():
                redis.ask("SET", n, how(n, v), "EX", 1000)
            b = self.serve(redis, "--tune", "prompt-cache-disk-wait=3600")
            self.right(b)
            self.assertGreater(b.metrics()["weft_redis_damaged_total"], 0)
            self.assertIn("dropped", b.text())
            b.close()
        for n in names:     # not values at all
            redis.ask("DEL", n)
            redis.ask("RPUSH", n, "x")
        b = self.serve(redis, "--tune", "prompt-cache-disk-wait=3600")
        self.right(b)
        b.close()
        for n in redis.names(".at"):        # places without number
            redis.ask("SET", n, b"\xff" * 4096)
        b = self.serve(redis, "--tune", "prompt-cache-disk-wait=3600")
        self.right(b)
        b.close()

    def test_dead(self):
        """None listens: the server starts and answers, and says it once; when Redis comes, it is used."""
        port = free_port()
        s = self.serve("redis://127.0.0.1:%d" % port)
        self.right(s)
        m = s.metrics()
        self.assertEqual((m["weft_redis_up"], m["weft_redis_written_total"]), (0, 0))
        self.assertGreater(m["weft_redis_failed_total"], 0)
        self.assertEqual(s.text().count("cannot read"), 1)
        redis = Redis(port=port)
        self.addCleanup(redis.close)
        end, k = time.monotonic() + PATIENCE, 0
        while not redis.names(".snap") or s.metrics()["weft_redis_up"] != 1:   # after a rest, and after Redis' reply
            self.assertLess(time.monotonic(), end)
            s.post(CHAT, body(100 + (k := k + 1)))
        s.close()

    def test_hangs(self):
        """A Redis that accepts and says nothing, or stops in the midst of looks, reads or writes: every answer comes while it
        still hangs, and is right."""
        redis = self.redis()
        self.filled(redis).close()
        for only in (None, b"EXPIRE", b"GET", b"SET"):
            way = self.between(redis, mode="hang", only=only)
            s = self.serve(way)
            self.right(s)
            if only == b"SET":
                s.post(CHAT, body(7))
                self.assertTrue(way.asked.wait(PATIENCE))
                self.right(s)
            elif only:
                self.assertTrue(way.asked.is_set(), only)
            s.at_least("weft_redis_failed_total", 1)
            self.right(s)
            s.close()

    def test_lies(self):
        """Answers that are none."""
        redis = self.redis()
        self.filled(redis).close()
        lies = [b"$999999999999\r\n", b"*1000000000\r\n", b"*-5\r\n", b":1\r\n" * 1000, b"-ERR " + b"x" * 5000 + b"\r\n", b"$3\r\nabcd", b"+" + b"y" * (3 << 20), b"\x00\xff\r\n",
                b"*2\r\n$4\r\n9999\r\n*1\r\n$-1\r\n", b"*1\r\n" * 20, b"$-1\r\n" * 500, b"",
                b"$40000\r\n%s\r\n" % (b"\xff" * 40000) * 3]
        for i, lie in enumerate(lies[::4] if QUICK else lies):
            way = self.between(redis, mode=lie, only=(None, b"EXPIRE", b"GETRANGE", b"GET", b"SET")[i % 5])
            s = self.serve(way)
            self.right(s, 1)
            s.post(CHAT, body(50 + i))
            self.right(s, 1)
            s.close()

    def kill_one(self, redis, s, victim):
        """Kills Redis (2) or a server, and starts it again.  What Redis had is there afterwards, and with it all that the servers
        count as written, so far and in their lives before."""
        count = lambda: [x.metrics()["weft_redis_written_total"] for x in s]
        now = count()
        values = {n: redis.ask("GET", n) for n in redis.names(".page") + redis.names(".snap")}
        self.assertLessEqual(self.lives + sum(now), len(values))
        if victim == 2:
            redis.kill()
            redis.start()
        else:
            self.lives += now[victim]
            self.kill(s[victim])
            s[victim] = self.serve(redis, folder=None if victim else "a")
        for n, v in values.items():
            self.assertEqual(redis.ask("GET", n), v, n)

    def test_kills(self):
        """Redis, which syncs each command to its disk, or one of two servers is killed again and again while a request is under
        way: answers are cold ones, and nothing is lost that Redis has acknowledged."""
        redis = self.redis("--appendonly", "yes", "--appendfsync", "always")
        rng = random.Random(3)
        s = [self.serve(redis, folder="a"), self.serve(redis)]
        self.lives, found, broken = 0, 0, 0

        def ask(i, body):
            try:
                said_now.append(said(s[i].post(CHAT, body)))
            except (Gone, OSError):
                said_now.append(None)

        for kill in range(KILLS):
            end = time.monotonic() + PATIENCE
            for j, x in enumerate(s):       # Redis may be left alone for a second
                while not x.metrics()["weft_redis_up"]:
                    self.assertLess(time.monotonic(), end)
                    x.post(CHAT, {**body(7), "max_tokens": 1, "cache_salt": "%d at %f" % (j, time.monotonic())})
            k, i, victim, said_now = rng.randrange(len(ASKS)), rng.randrange(2), rng.choice((0, 1, 2, 2)), []
            here = dict(ASKS[k], cache_salt="round %d" % kill)      # a prefix that nobody has
            t = threading.Thread(target=ask, args=(i, here))
            t.start()
            threading.Event().wait(rng.random() / 20)               # any moment will do
            self.kill_one(redis, s, victim)
            t.join()
            if said_now == [None] and victim == i:
                broken += 1
            else:
                self.assertEqual(said_now, [cold()[k]])
            for j in (i, 1 - i):
                r = s[j].post(CHAT, here)
                self.assertEqual(said(r), cold()[k])
                found += cached(r)
                settled(s[j])
            redis.ask("FLUSHALL" if kill % 20 == 19 else "PING")
            self.lives = -sum(x.metrics()["weft_redis_written_total"] for x in s) if kill % 20 == 19 else self.lives
        for x in s:
            self.assertEqual(x.metrics()["weft_redis_damaged_total"], 0)
            x.close()
        print("%d kills, %d replies broke off, %d tokens found" % (KILLS, broken, found))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
