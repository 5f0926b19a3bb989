"""Kept prefixes on disk, from outside: kill -9, swapped weights, damage, a full disk, two servers.
Answers must be what a server without any memory gives, log-probabilities and all.
Run as: test_disk.py WEFT MODEL"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serverkit import Gone, Server

WEFT, MODEL = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
KILLS = int(os.environ.get("WEFT_KILLS", 2 if QUICK else 12))
CHAT = "/v1/chat/completions"

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)

CITIES = "Lima Quito Paris Rome Oslo Cairo Delhi Tokyo Seoul Hanoi Accra Dakar Tunis Sofia Vienna Prague".split()


def body(k, turns):
    """Conversation k up to its last question: some share a long beginning."""
    rng = random.Random(k)
    say = [{"role": "system", "content": "You answer in few words. " + "Be brief and do not guess. " * (5 * (k % 3))}]
    for t in range(turns):
        say.append({"role": "user", "content": "Question %d: is %s larger than %s, and where is it?"
                    % (t, rng.choice(CITIES), rng.choice(CITIES))})
        if t < turns - 1:
            say.append({"role": "assistant", "content": "It is in %s." % rng.choice(CITIES)})
    return {"messages": say, "max_tokens": 8, "temperature": 0, "logprobs": True, "cache_report": True}


with open("/proc/cpuinfo") as cpuinfo:
    HAS_BF16 = "avx512_bf16" in cpuinfo.read()  # levels with an arithmetic of their own

ASKS = [body(k, 1 + k % 4) for k in range(5 if QUICK else 12)]


def start(model, *options, wrap=None, weft=WEFT):
    argv = [weft, "serve", model, "--port", "0", "--port-file", "{port_file}", "--threads", "1"] + list(options)
    return Server((wrap or []) + argv)


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def cached(reply):
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


_cold = {}


def cold(model=MODEL):
    """The answers of a server that keeps nothing."""
    if model not in _cold:
        s = start(model, "--prompt-cache-bytes", "0")
        _cold[model] = [said(s.post(CHAT, a)) for a in ASKS]
        s.close()
    return _cold[model]


def settled(s):
    s.until("all is written", disk_pending=0, disk_queue_bytes=0)


class Test(unittest.TestCase):
    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.tmp = d.name
        self.dir = os.path.join(d.name, "kept")

    def serve(self, *options, model=MODEL, wrap=None, weft=WEFT):
        kept = ("--prompt-cache-dir", self.dir, "--tune", "prompt-cache-disk-wait=3600")
        s = start(model, *kept, *options, wrap=wrap, weft=weft)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def fill(self, s, model=MODEL):
        for a, want in zip(ASKS, cold(model)):
            self.assertEqual(said(s.post(CHAT, a)), want)

    def kill(self, s):
        s.signal(signal.SIGKILL)
        self.assertEqual(s.wait(), -signal.SIGKILL)
        s.log.close()
        s.dir.cleanup()

    def files(self):
        return [os.path.join(d, f) for d, _, names in os.walk(self.dir) for f in names
                if f.endswith((".page", ".snap")) and not f.startswith(".tmp")]


class Restart(Test):
    def test_drain(self):
        """What was kept when SIGTERM came is there at the next start, though none of it is read before it is asked for."""
        s = self.serve()
        self.fill(s)
        s.close()
        s = self.serve()
        m = s.metrics()
        self.assertGreater(m["weft_disk_snapshots"], 0)
        self.assertEqual(m["weft_disk_read_total"], 0)
        self.assertEqual(m["weft_disk_bytes"], sum(map(os.path.getsize, self.files())))
        for a, want in zip(ASKS, cold()):
            r = s.post(CHAT, a)
            self.assertEqual(said(r), want)
            self.assertGreater(cached(r), r.json()["usage"]["prompt_tokens"] - 16)
        self.assertGreater(s.metrics()["weft_disk_loads_total"], 0)
        self.assertEqual(s.metrics()["weft_disk_damaged_total"], 0)
        s.close()

    def test_source(self):
        s = self.serve()
        s.post(CHAT, ASKS[3])
        s.close()
        s = self.serve()
        r = s.post(CHAT, ASKS[3]).json()["usage"]["cache"]
        self.assertEqual(r["source"], "disk")
        r = s.post(CHAT, ASKS[3]).json()["usage"]["cache"]
        self.assertEqual(r["source"], "memory")
        s.close()


    def test_dropped(self):
        """What an order drops is gone from disk, too, also where no request has wanted it since the start."""
        salts = (None, "x", "y")
        ask = lambda salt: dict(ASKS[3], **({"cache_salt": salt} if salt else {}))
        s = self.serve()
        for salt in salts:
            s.post(CHAT, ask(salt))
        s.close()
        for order, left in (({"cache_salt": "x"}, (None, "y")), ({"cache_salt": ""}, ("y",)), ({"all": True}, ())):
            s = self.serve()
            tree = s.ask("GET", "/v1/cache").json()
            self.assertEqual((tree["nodes"], tree["disk"]["snapshots"] > 0), ([], True))
            self.assertEqual(tree["disk"]["snapshots"] + tree["disk"]["pages"], len(self.files()))
            self.assertEqual(s.post("/v1/cache/drop", order).json()["dropped"], 0)
            for salt in salts:          # none before the files are gone, and of these none
                if salt not in left:
                    self.assertEqual(s.post("/v1/cache/explain", ask(salt)).json()["resumed_at"], 0)
            s.close()
            s = self.serve()
            for salt in salts:
                e = s.post("/v1/cache/explain", ask(salt)).json()
                self.assertEqual((e["resumed_at"] > 0, e["source"]), (salt in left, "disk" if salt in left else "none"))
            s.close()
        self.assertEqual(self.files(), [])

    def test_dropped_node(self):
        """A node that only the disk remembers cannot be named, and says so; once it is wanted, dropping it reaches both, and
        nothing else. No place is named in numbers: the spacing of places follows the measured cost of copying a state, so
        each conversation is compared with its own, and warming may keep places beyond those that the disk had."""
        reach = lambda s, a: s.post("/v1/cache/explain", a).json()["resumed_at"]
        gone, other = ASKS[3], dict(ASKS[3], cache_salt="x")
        s = self.serve()
        s.post(CHAT, gone)
        s.post(CHAT, other)
        ids = [n["id"] for n in s.ask("GET", "/v1/cache").json()["nodes"]]
        s.close()
        s = self.serve()
        r = s.post("/v1/cache/drop", {"node": ids[0]})
        self.assertEqual((r.status, r.error()["code"]), (404, "not_kept"))
        self.assertIn("/v1/cache/warm", r.error()["message"])
        far, left = reach(s, gone), reach(s, other)
        self.assertGreater(min(far, left), 0)
        warm = s.post("/v1/cache/warm", gone).json()
        self.assertEqual((warm["source"], warm["resumed_at"]), ("disk", far))
        self.assertGreaterEqual(reach(s, gone), far)
        node = next(n for n in s.ask("GET", "/v1/cache").json()["nodes"] if n["end"] == far)
        self.assertFalse(node["salted"])
        self.assertGreater(s.post("/v1/cache/drop", {"node": node["id"]}).json()["dropped"], 0)
        self.assertLess(reach(s, gone), far)
        s.close()
        s = self.serve()
        self.assertLess(reach(s, gone), far)
        self.assertEqual(reach(s, other), left)
        s.close()


class Drafts(Test):
    def test_killed(self):
        """After kill -9 the next turn finds as much, and is guessed ahead as well, as if nothing had happened."""
        # Steps of no more rows than any prompt alone gets: how it is cut must not hang on what steps took, for where its
        # last token has a step of its own, that is guessed ahead of, too.
        fixed = ["--tune", "draft-fixed", "--num-draft-tokens", "3", "--tune", "prefill-step-size=64"]
        for kind in (["mtp"], ["model", "--draft-model", MODEL + "-draft"]):
            options = fixed + ["--draft-kind"] + kind
            first = dict(body(7, 3), max_tokens=40)
            s = start(MODEL, *options)
            said_first = said(s.post(CHAT, first))
            next = dict(first, messages=first["messages"] + [said_first[0]["message"], {"role": "user", "content": "Once more: "
                        + first["messages"][1]["content"]}])
            want = s.post(CHAT, next).json()
            s.close()
            s = start(MODEL, "--prompt-cache-bytes", "0", "--draft-kind", "none")
            self.assertEqual(said(s.post(CHAT, next)), want["choices"])
            s.close()
            s = self.serve(*options)
            self.assertEqual(said(s.post(CHAT, first)), said_first)
            settled(s)
            self.kill(s)
            s = self.serve(*options)
            got = s.post(CHAT, next).json()
            s.close()
            self.assertEqual(got["choices"], want["choices"])
            self.assertEqual(got["usage"]["cache"]["source"], "disk")
            for field in ("prompt_tokens_details", "completion_tokens_details"):
                self.assertEqual(got["usage"][field], want["usage"][field])
            self.assertGreater(got["usage"]["prompt_tokens_details"]["cached_tokens"], 60)
            drafted = got["usage"]["completion_tokens_details"]
            self.assertGreater(drafted["accepted_prediction_tokens"], 0)
            print("%s: %s, %s" % (kind[0], got["usage"]["prompt_tokens_details"], drafted))
            shutil.rmtree(self.dir)


class Long(Test):
    """A long prompt, the server killed, started again: how much of it is found?"""
    # No template, no marks: as little to go by as there can be.  A token is at least a byte.
    TEXT = " ".join("%s has %d houses." % (CITIES[i * 7 % 16], i * 37 % 1000) for i in range(120 if QUICK else 320))

    def ask(self, s, text):
        r = s.post("/v1/completions", {"prompt": text, "max_tokens": 4, "temperature": 0, "logprobs": 2})
        self.assertEqual(r.status, 200, r.text())
        return r.json()

    def found(self, text):
        """By a server that was just started; its answer is the cold one's."""
        s = self.serve()
        r = self.ask(s, text)
        s.close()
        s = start(MODEL, "--prompt-cache-bytes", "0")
        self.assertEqual(self.ask(s, text)["choices"], r["choices"])
        s.close()
        return r["usage"]["prompt_tokens_details"]["cached_tokens"], r["usage"]["prompt_tokens"]

    def test_killed_afterwards(self):
        s = self.serve()
        n = self.ask(s, self.TEXT)["usage"]["prompt_tokens"]
        self.assertGreater(n, 700 if QUICK else 2500)
        settled(s)
        self.kill(s)
        keep = os.path.join(self.tmp, "copy")
        shutil.copytree(self.dir, keep)
        cached, _ = self.found(self.TEXT)
        self.assertEqual(cached, n - 1)
        print("of %d tokens %d were found after kill -9" % (n, cached))
        # And of one that parts from it further up: the grid's places are there too.
        for share in (0.95, 0.8):
            shutil.rmtree(self.dir)
            shutil.copytree(keep, self.dir)
            cached, m = self.found(self.TEXT[:int(share * len(self.TEXT))] + " And now something else.")
            apart = n - m
            print("of %d tokens, parting %d before the end, %d" % (m, apart, cached))
            least = 512                 # a grid of 512, 1024, 2048 ... toward the end
            while least < apart + 64:
                least *= 2
            self.assertGreaterEqual(cached, m - 2 * least)
            self.assertGreater(cached, 0)

    def test_killed_meanwhile(self):
        s = self.serve()
        gone = []

        def ask():
            try:
                self.ask(s, self.TEXT)
            except (Gone, OSError):
                gone.append(True)

        t = threading.Thread(target=ask)
        t.start()
        s.at_least("weft_disk_snapshots", 1)
        self.kill(s)
        t.join()
        cached, n = self.found(self.TEXT)
        print("killed %s its prompt of %d: %d were found" % ("over" if gone else "after", n, cached))
        self.assertGreaterEqual(cached, 512)


class Killed(Test):
    def test_kills(self):
        """kill -9 under load, again and again over one folder: what is there is right, what was safe is found."""
        rng = random.Random(5)
        found = safe_asked = 0
        for round in range(KILLS):
            # Now a folder that holds everything, now one that evicts all the time.
            if round % 10 == 0:
                shutil.rmtree(self.dir, ignore_errors=True)
            tight = round % 20 >= 10
            s = self.serve("--prompt-cache-disk-bytes", "3M" if tight else "1G")
            safe = []
            for k in rng.sample(range(len(ASKS)), 2):
                self.assertEqual(said(s.post(CHAT, ASKS[k])), cold()[k])
                safe.append(k)
            settled(s)
            left, wrong = threading.Semaphore(0), []

            def load(seed):
                mine = random.Random(seed)
                try:
                    while True:
                        k = mine.randrange(len(ASKS))
                        if said(s.post(CHAT, ASKS[k])) != cold()[k]:
                            wrong.append(k)
                        left.release()
                except (Gone, OSError):
                    pass
                finally:
                    left.release()

            threads = [threading.Thread(target=load, args=(rng.random(),)) for _ in range(3)]
            for t in threads:
                t.start()
            for _ in range(rng.randrange(12)):
                left.acquire()
            s.signal(signal.SIGKILL)
            self.assertEqual(s.wait(), -signal.SIGKILL)
            for t in threads:
                t.join()
            self.assertFalse(wrong)
            s.log.close()
            s.dir.cleanup()
            s = self.serve("--prompt-cache-disk-bytes", "3M" if tight else "1G")
            names = [n for _, _, f in os.walk(self.dir) for n in f]
            self.assertFalse([n for n in names if n.startswith(".tmp")])
            for k in safe + rng.sample(range(len(ASKS)), 3):
                r = s.post(CHAT, ASKS[k])
                self.assertEqual(said(r), cold()[k])
                found += cached(r) > 0
                if k in safe and not tight:
                    safe_asked += 1
                    self.assertGreater(cached(r), r.json()["usage"]["prompt_tokens"] - 16)
            settled(s)
            self.assertEqual(s.metrics()["weft_disk_damaged_total"], 0)
            self.assertLessEqual(sum(map(os.path.getsize, self.files())), 3 << 20 if tight else 1 << 30)
            s.close()
        print("%d kills: %d prompts found a prefix afterwards, all %d that were safe among them" % (KILLS, found, safe_asked))


    def test_kills_of_two(self):
        """Of two servers over one folder now this one, now that is killed under load; the other goes on."""
        rng = random.Random(6)
        s = [self.serve(), self.serve()]
        found = 0
        for round in range(KILLS):
            dies = round % 2
            k = rng.randrange(len(ASKS))
            self.assertEqual(said(s[dies].post(CHAT, ASKS[k])), cold()[k])
            settled(s[dies])
            left, wrong = threading.Semaphore(0), []

            def load(at, seed):
                mine = random.Random(seed)
                try:
                    for _ in range(60):
                        i = mine.randrange(len(ASKS))
                        if said(at.post(CHAT, ASKS[i])) != cold()[i]:
                            wrong.append(i)
                        left.release()
                        if at is s[1 - dies] and s[dies].proc.poll() is not None:
                            break
                except (Gone, OSError):
                    pass
                finally:
                    left.release()

            threads = [threading.Thread(target=load, args=(at, rng.random())) for at in s]
            for t in threads:
                t.start()
            for _ in range(rng.randrange(12)):
                left.acquire()
            self.kill(s[dies])
            for t in threads:
                t.join()
            self.assertFalse(wrong)
            r = s[1 - dies].post(CHAT, ASKS[k])   # what the dead one had written
            self.assertEqual(said(r), cold()[k])
            self.assertGreater(cached(r), r.json()["usage"]["prompt_tokens"] - 16)
            found += 1
            m = s[1 - dies].metrics()
            self.assertEqual((m["weft_disk_damaged_total"], m["weft_disk_failed_total"]), (0, 0))
            s[dies] = self.serve()
        for one in s:
            one.close()
        print("%d kills of two servers over one folder: all %d prompts that the dead had kept were found" % (KILLS, found))


class Swapped(Test):
    def test_weights(self):
        """Other weights in the same file, of the same size and date."""
        model = os.path.join(self.tmp, "model")
        shutil.copytree(MODEL, model)
        path = os.path.join(model, "model.safetensors")
        if not QUICK:
            # The sum of the weights is remembered once they have not changed for three seconds, which nobody can pretend.
            while time.time() - os.stat(path).st_ctime < 3.1:
                time.sleep(0.1)
        s = self.serve(model=model)
        self.fill(s)
        s.close()
        if not QUICK:
            with open(os.path.join(self.dir, "weights")) as f:
                self.assertIn("%x" % os.stat(path).st_ino, f.read())
        for how in ("in place", "another file"):
            was = os.stat(path)
            with open(path, "rb") as f:
                data = bytearray(f.read())
            # Numbers of the final norm: every logit hangs on them.
            head = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
            name = next(n for n in head if n.endswith("model.norm.weight"))
            begin, end = (8 + int.from_bytes(data[:8], "little") + at for at in head[name]["data_offsets"])
            half = (end - begin) // 4 * 2
            data[begin:begin + half], data[begin + half:begin + 2 * half] = \
                data[begin + half:begin + 2 * half], data[begin:begin + half]
            if how == "another file":
                data[end - 2], data[end - 4] = data[end - 4], data[end - 2]
                os.rename(path, path + ".old")
            with open(path, "r+b" if how == "in place" else "wb") as f:
                f.write(data)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
            now = os.stat(path)
            self.assertEqual((now.st_size, now.st_mtime_ns), (was.st_size, was.st_mtime_ns))
            _cold.pop(model, None)
            s = self.serve(model=model)
            self.assertNotEqual(cold(model), cold())
            self.fill(s, model)
            self.assertEqual(s.metrics()["weft_disk_read_total"], 0)
            s.close()

    def copy(self, name, file=None):
        """The model's folder, but that the file, were it read, would say the same in other bytes."""
        d = os.path.join(self.tmp, name)
        os.mkdir(d)
        for f in os.listdir(MODEL):
            os.symlink(os.path.realpath(os.path.join(MODEL, f)), os.path.join(d, f))
        if file:
            path = os.path.join(d, file)
            os.unlink(path)
            shutil.copy(os.path.join(MODEL, file), path)
            with open(path, "a") as f:
                f.write("{# another #}" if file.endswith(".jinja") else "\n")
        return d

    def levels_share(self, ask):
        """Levels of one arithmetic have the same bits, so one finds what the other kept."""
        s = self.serve("--cpu", "scalar")
        was = said(s.post(CHAT, ask))
        s.close()
        s = self.serve("--cpu", "avx2")
        r = s.post(CHAT, ask)
        self.assertEqual(said(r), was)
        self.assertGreater(cached(r), 0)
        s.close()

    def test_others(self):
        """Whatever a state is a function of, or its tokens: another such thing finds nothing, the first still does."""
        s = self.serve()
        was = said(s.post(CHAT, ASKS[3]))
        s.close()
        program = os.path.join(self.tmp, "weft")
        shutil.copy(WEFT, program)
        with open(program, "ab") as f:
            f.write(b"another")
        template = os.path.join(self.tmp, "t.jinja")
        with open(os.path.join(MODEL, "chat_template.jinja")) as f, open(template, "w") as out:
            out.write(f.read() + "{# the user's #}")
        others = [
            ("kept rows", WEFT, MODEL, ("--kv-bits", "8")),
            ("tokenizer", WEFT, self.copy("tokenizer", "tokenizer.json"), ()),
            ("template", WEFT, self.copy("template", "chat_template.jinja"), ()),
            ("template of the user's", WEFT, MODEL, ("--chat-template-file", template)),
            ("configuration", WEFT, self.copy("configuration", "config.json"), ()),
            ("rows of one layer", WEFT, MODEL, ("--kv-bits", "8", "--tune", "kv-skip-layers=first")),
            ("values alone", WEFT, MODEL, ("--tune", "kv-key-bits=16", "--tune", "kv-value-bits=8")),
            ("arithmetic", WEFT, MODEL, ("--tune", "arith=f32")),
        ]
        if HAS_BF16:
            others.append(("instructions", WEFT, MODEL, ("--cpu", "scalar")))
        for name, weft, model, options in others[:2 if QUICK else None]:
            with self.subTest(name):
                s = self.serve(*options, model=model, weft=weft)
                self.assertEqual(s.metrics()["weft_disk_snapshots"], 0)
                r = s.post(CHAT, ASKS[3])
                self.assertEqual(cached(r), 0)
                s.close()
                s = start(model, *options, "--prompt-cache-bytes", "0", weft=weft)
                self.assertEqual(said(s.post(CHAT, ASKS[3])), said(r))
                s.close()
        if not QUICK:
            self.levels_share(ASKS[3])
        # Another place, another name and another build of the same arithmetic are nothing that a state depends on.
        s = self.serve(model=self.copy("the same"), weft=program)
        r = s.post(CHAT, ASKS[3])
        self.assertEqual(said(r), was)
        self.assertGreater(cached(r), 0)
        s.close()

    def test_arithmetic_told(self):
        """A program of another arithmetic says at start that it does not use what the folder has."""
        path = os.path.join(self.dir, "arithmetic")
        self.serve().close()
        with open(path) as f:
            number = int(f.read())
        for text, told in (("%d\n" % (number - 1), True), ("%d\n" % number, False), ("?\n", False)):
            with open(path, "w") as f:
                f.write(text)
            s = self.serve()
            log = s.text()
            s.close()
            self.assertEqual("prefixes of arithmetic %d are not used" % (number - 1) in log, told, text)
            with open(path) as f:
                self.assertEqual(f.read(), "%d\n" % number)

    def test_remembered(self):
        """The weights are read whole once; what is remembered of them is not believed when it is damaged."""
        path = os.path.join(self.dir, "weights")
        s = self.serve()
        s.post(CHAT, ASKS[3])
        s.close()
        with open(path, "rb") as f:
            data = f.read()
        self.assertTrue(data)
        for at in range(0, len(data), 50 if QUICK else 9):
            with open(path, "wb") as f:
                f.write(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
            s = self.serve()
            self.assertGreater(s.metrics()["weft_disk_snapshots"], 0)
            s.close()
        # What never ends, or waits for another end, is not read; nor written to under the name it is written by first.
        for name in path, os.path.join(self.dir, ".tmp-weights"):
            for make in os.mkfifo, lambda p: os.symlink("/dev/zero", p):
                if os.path.lexists(name):
                    os.unlink(name)
                make(name)
                s = self.serve()
                self.assertEqual(said(s.post(CHAT, ASKS[3])), cold()[3])
                s.close()


class Damaged(Test):
    def test_flips(self):
        s = self.serve()
        self.fill(s)
        s.close()
        rng = random.Random(3)
        damaged = 0
        for round in range(1 if QUICK else 8):
            for path in self.files():
                n = os.path.getsize(path)
                # A page that was cut at its first byte stays empty until somebody asks for it.
                if n and rng.random() < 0.6:
                    with open(path, "r+b") as f:
                        at = rng.randrange(min(n, 300) if rng.random() < 0.5 else n)
                        f.seek(at)
                        byte = f.read(1)[0]
                        f.seek(at)
                        f.write(bytes([byte ^ 1 << rng.randrange(8)]))
                        if rng.random() < 0.2:
                            f.truncate(at)
            s = self.serve()
            self.fill(s)
            damaged += s.metrics()["weft_disk_damaged_total"]
            s.close()
        self.assertGreater(damaged, 0)

    def test_full(self):
        """No file may grow beyond 50 KB: snapshots cannot be written, answers do not care."""
        s = self.serve(wrap=["/bin/sh", "-c", 'trap "" XFSZ; ulimit -f 100; exec "$@"', "sh"])
        self.fill(s)
        settled(s)
        m = s.metrics()
        self.assertGreater(m["weft_disk_failed_total"], 0)
        self.assertEqual(m["weft_disk_snapshots"], 0)
        self.fill(s)
        self.assertFalse([n for _, _, f in os.walk(self.dir) for n in f if n.startswith(".tmp")])
        s.close()

    def test_really_full(self):
        """A file system of its own with room for a few snapshots: the rest fails, and answers do not care."""
        os.mkdir(self.dir)
        wrap = ["unshare", "-rm", "/bin/sh", "-c", 'd=$1; shift; mount -t tmpfs -o size=1500k weft "$d" && exec "$@"',
                "sh", self.dir]
        try:
            can = subprocess.run(wrap + ["true"], capture_output=True, text=True)
        except OSError as e:
            self.skipTest("A FULL DISK WAS NOT TRIED: no unshare: %s" % e)
        if can.returncode:
            self.skipTest("A FULL DISK WAS NOT TRIED: no tmpfs can be mounted here: %s" % can.stderr.strip())
        s = self.serve(wrap=wrap)
        for k in range(2):
            self.fill(s)
            settled(s)
        m = s.metrics()
        self.assertGreater(m["weft_disk_failed_total"], 0)
        self.assertGreater(m["weft_disk_snapshots"], 0)
        inside = "/proc/%d/root%s" % (s.proc.pid, self.dir)
        f = os.statvfs(inside)
        self.assertLess(f.f_bavail, f.f_blocks // 4)
        names = [n for _, _, names in os.walk(inside) for n in names]
        self.assertTrue(any(n.endswith(".snap") for n in names))
        self.assertFalse([n for n in names if n.startswith(".tmp")])
        # What is there is whole.
        keep = os.path.join(self.tmp, "copy")
        shutil.copytree(inside, keep)
        s.close()
        shutil.rmtree(self.dir)
        shutil.copytree(keep, self.dir)
        s = self.serve()
        self.fill(s)
        m = s.metrics()
        self.assertGreater(m["weft_disk_loads_total"], 0)
        self.assertEqual((m["weft_disk_damaged_total"], m["weft_disk_vanished_total"]), (0, 0))
        s.close()

    def test_two(self):
        """Two servers, one folder: what one computed after the other's start is resumed by the other."""
        a, b = self.serve(), self.serve()
        for one, other, k in (a, b, 3), (b, a, 2):
            self.assertEqual(said(one.post(CHAT, ASKS[k])), cold()[k])
            settled(one)
            r = other.post(CHAT, ASKS[k])
            self.assertEqual(said(r), cold()[k])
            self.assertGreater(cached(r), r.json()["usage"]["prompt_tokens"] - 16)
            self.assertEqual(r.json()["usage"]["cache"]["source"], "disk")
        for s in a, b:
            m = s.metrics()
            self.assertGreater(m["weft_disk_found_total"], 0)
            self.assertGreater(m["weft_disk_written_total"], 0)
            self.assertEqual((m["weft_disk_damaged_total"], m["weft_disk_failed_total"]), (0, 0))
            s.close()

    def test_two_arithmetics(self):
        """Servers of one model and two arithmetics share a folder: each finds its own alone, within one budget."""
        a = self.serve("--prompt-cache-disk-bytes", "3M")
        b = self.serve("--prompt-cache-disk-bytes", "3M", "--tune", "arith=f32")
        c = start(MODEL, "--prompt-cache-bytes", "0", "--tune", "arith=f32")
        self.fill(a)
        settled(a)
        for ask in ASKS:
            self.assertEqual(said(b.post(CHAT, ask)), said(c.post(CHAT, ask)))
        settled(b)
        self.fill(a)
        for s in a, b:
            settled(s)
            self.assertEqual(s.metrics()["weft_disk_damaged_total"], 0)
            self.assertEqual(s.metrics()["weft_disk_found_total"], 0)
        a.close()
        b.close()
        c.close()
        self.assertLessEqual(sum(map(os.path.getsize, self.files())), 3 << 20)

    def test_refused(self):
        with self.assertRaisesRegex(RuntimeError, "cannot make it"):
            start(MODEL, "--prompt-cache-dir", os.path.join(MODEL, "config.json", "b"))
        with self.assertRaisesRegex(RuntimeError, "no memory for any"):
            start(MODEL, "--prompt-cache-dir", self.dir, "--prompt-cache-bytes", "0")

    def test_folder_made(self):
        """With those above it, as ~/.cache in a home that is new; all for their owner alone."""
        at = os.path.join(self.tmp, "new", "cache", "kept")
        start(MODEL, "--prompt-cache-dir", at + "//").close()
        for path in at, os.path.dirname(at), os.path.dirname(os.path.dirname(at)):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=1)
