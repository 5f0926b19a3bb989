"""Several models behind one server: switching, memory, what is refused, and answers that do not depend on any of it.

Usage: test_models.py WEFT FOLDER, where FOLDER has weft-tiny, weft-tiny-4bit and weft-tiny-8bit."""
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

from serverkit import Gone, Server, sanitized

WEFT, FOLDER = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
SWITCHES = int(os.environ.get("WEFT_SWITCHES", 60 if QUICK else 200))
CHAT = "/v1/chat/completions"
NAMES = ["weft-tiny", "weft-tiny-4bit", "weft-tiny-8bit"]
MB = 1 << 20

for name in NAMES:
    if not os.path.exists(os.path.join(FOLDER, name, "model.safetensors")):
        print("skipped: %s has no weights" % name)
        sys.exit(77)

CITIES = "Lima Quito Paris Rome Oslo Cairo Delhi Tokyo Seoul Hanoi".split()


def path(name):
    return os.path.join(FOLDER, name)


def body(k, turns=1, **more):
    rng = random.Random(k)
    say = []
    for t in range(turns):
        say.append({"role": "user", "content": "Question %d: is %s larger than %s?" % (t, rng.choice(CITIES), rng.choice(CITIES))})
        if t < turns - 1:
            say.append({"role": "assistant", "content": "It is in %s." % rng.choice(CITIES)})
    return {"messages": say, "max_tokens": 8, "temperature": 0, "logprobs": True, **more}


def said(reply):
    assert reply.status == 200, reply.text()
    return reply.json()["choices"]


def cached(reply):
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def start(*words, kept=None, env=None):
    options = ["--prompt-cache-dir", kept, "--tune", "prompt-cache-disk-wait=3600"] if kept else []
    return Server([WEFT, "serve", *words, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--ctx-size", "4096",
                   "--parallel", "4", *options], env)


_cold = {}


def cold(name, asked):
    """What a server with this model alone says, which keeps nothing."""
    key = json.dumps([name, asked], sort_keys=True)
    if key not in _cold:
        s = start(path(name), "--prompt-cache-bytes", "0")
        for a in [asked] + [body(k) for k in range(6)]:
            _cold[json.dumps([name, a], sort_keys=True)] = said(s.post(CHAT, a))
        s.close()
    return _cold[key]


class Test(unittest.TestCase):
    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.tmp = d.name
        self.kept = os.path.join(d.name, "kept")

    def serve(self, *words):
        s = start(*words, kept=self.kept)
        self.addCleanup(lambda: s.proc.poll() is None and s.close())
        return s

    def config(self, memory, *sections, name=None):
        """A file of options whose models, each of 200 MB, do not all fit into `memory`."""
        name = name or tempfile.mktemp(".conf", dir=self.tmp)
        with open(name, "w") as f:
            f.write("memory = %s\n" % memory)
            for model, *lines in sections:
                f.write("\n[model]\nmodel = %s\nmemory = 200M\n%s\n" % (model, "\n".join(lines)))
        return "--config=" + name

    def by_turns(self):
        """One of three at a time."""
        return self.serve(self.config("300M", *[(path(n),) for n in NAMES]))

    def states(self, s):
        return {m["id"]: m["status"]["value"] for m in s.ask("GET", "/v1/models").json()["data"]}

    def until(self, s, name, state):
        end = time.monotonic() + 60
        while (now := self.states(s)[name]) != state:
            self.assertLess(time.monotonic(), end, "%s is %s, and not %s\n%s" % (name, now, state, s.text()[-3000:]))
            time.sleep(0.02)


class Names(Test):
    def test_words(self):
        s = self.serve(*[path(n) for n in NAMES], "--memory", "2G")
        self.assertEqual(self.states(s), {"weft-tiny": "loaded", "weft-tiny-4bit": "unloaded", "weft-tiny-8bit": "unloaded"})
        self.assertEqual(s.ask("GET", "/props").json()["model"], "weft-tiny")
        self.assertEqual(s.ask("GET", "/props?model=weft-tiny-4bit").error()["code"], "model_not_loaded")
        for name in NAMES:
            r = s.post(CHAT, body(1, model=name))
            self.assertEqual(r.json()["model"], name)
            self.assertEqual(said(r), cold(name, body(1)))
        # There is room for all.
        self.assertEqual(set(self.states(s).values()), {"loaded"})
        self.assertEqual(s.post(CHAT, body(1)).json()["model"], "weft-tiny")
        self.assertEqual(s.post("/api/show", {"name": "weft-tiny-8bit:latest"}).status, 200)
        self.assertEqual(s.post("/api/chat", {"model": "weft-tiny-4bit:latest", "messages": body(1)["messages"], "stream": False,
                                              "options": {"num_predict": 2}}).json()["model"], "weft-tiny-4bit")
        for name in ("gpt-4", "weft-tiny:latest"):
            r = s.post(CHAT, body(1, model=name))
            self.assertEqual((r.status, r.error()["code"], r.error()["param"]), (404, "model_not_found", "model"))
            for known in NAMES:
                self.assertIn('"%s"' % known, r.error()["message"])
        self.assertEqual(s.ask("GET", "/v1/models/weft-tiny-4bit").json()["status"]["loads"], 1)
        self.assertEqual(s.ask("GET", "/v1/models/none").status, 404)
        self.assertEqual(s.metrics()['weft_model_loaded{model="weft-tiny-8bit"}'], 1)
        self.assertEqual(s.ask("GET", "/props?model=weft-tiny-4bit").json()["model"], "weft-tiny-4bit")
        self.assertEqual(s.ask("GET", "/v1/cache?model=none").status, 404)

    def test_folder(self):
        folder = os.path.join(self.tmp, "models")
        os.mkdir(folder)
        for n in NAMES[:2]:
            os.symlink(os.path.abspath(path(n)), os.path.join(folder, n))
        os.mkdir(os.path.join(folder, "empty"))
        os.mkdir(os.path.join(folder, "broken"))
        with open(os.path.join(folder, "broken", "config.json"), "w") as f:
            f.write("{}")
        s = self.serve("--models-dir", folder, "--memory", "2G")
        self.assertEqual(sorted(self.states(s)), NAMES[:2])
        self.assertIn("broken is left out", s.text())
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[1]))), cold(NAMES[1], body(1)))

    def test_usual_folder(self):
        """Several models keep prefixes in the user's folder, whose size may be said."""
        cache = os.path.join(self.tmp, "cache")
        s = start(path(NAMES[0]), path(NAMES[1]), "--prompt-cache-disk-bytes", "64M", env={**os.environ, "XDG_CACHE_HOME": cache})
        self.addCleanup(s.close)
        said(s.post(CHAT, {**body(1), "model": NAMES[0]}))
        self.assertTrue(os.path.isdir(os.path.join(cache, "weft", "prefixes")), s.text())

    def test_wrong_words(self):
        for words, says in (([path(NAMES[0]), path(NAMES[0])], "would both be called weft-tiny"),
                            ([path(NAMES[0]), path(NAMES[1]), "--alias", "x"], "--alias names one model"),
                            ([path(NAMES[0]), "/no/such/model"], "/no/such/model"),
                            ([self.config("1G", (path(NAMES[0]), "port = 1"))], "belongs above the first [model]"),
                            ([self.config("1G", (path(NAMES[0]), "unload-after = x"))], "whole number of seconds"),
                            ([self.config("1G", (path(NAMES[0]), "pinned = x"))], "neither true nor false"),
                            (["--models-dir", self.tmp], "no model is in it")):
            with self.subTest(says):
                with self.assertRaises(RuntimeError) as e:
                    self.serve(*words)
                self.assertIn(says, str(e.exception))


class Switching(Test):
    def test_there_and_back(self):
        """A conversation goes on after another model had the memory: no more is computed than if there had been none."""
        s = self.by_turns()
        name, other = NAMES[0], NAMES[1]
        begin = body(7, 40, max_tokens=8)
        first = s.post(CHAT, {**begin, "model": name})
        more = begin["messages"] + [said(first)[0]["message"], {"role": "user", "content": "And where is it?"}]
        more = {**begin, "messages": more}
        one = start(path(name))
        self.assertEqual(said(one.post(CHAT, begin)), said(first))
        expected = one.post(CHAT, more)
        one.close()
        self.assertEqual(said(s.post(CHAT, body(1, model=other))), cold(other, body(1)))
        self.assertEqual(self.states(s)[name], "unloaded")
        again = s.post(CHAT, {**more, "model": name})
        self.assertEqual(said(again), said(expected))
        self.assertGreater(cached(expected), 500)
        self.assertEqual(cached(again), cached(expected))
        self.assertEqual(s.ask("GET", "/v1/models/" + name).json()["status"]["loads"], 2)

    def test_running_is_not_killed(self):
        s = self.by_turns()
        long = body(3, max_tokens=300, ignore_eos=True)
        expected = cold(NAMES[0], long)
        got = {}

        def ask(name, asked):
            got[name] = s.post(CHAT, {**asked, "model": name})

        first = threading.Thread(target=ask, args=(NAMES[0], long))
        first.start()
        s.at_least("weft_requests_running", 1)
        others = [threading.Thread(target=ask, args=(n, body(1))) for n in NAMES[1:]]
        for t in others:
            t.start()
        for t in [first] + others:
            t.join()
        self.assertEqual(said(got[NAMES[0]]), expected)
        for n in NAMES[1:]:
            self.assertEqual(said(got[n]), cold(n, body(1)))

    def test_together(self):
        """Models that are loaded at once answer as each does alone."""
        s = self.serve(*[path(n) for n in NAMES], "--memory", "2G")
        wrong = []

        def ask(name, k):
            if said(s.post(CHAT, {**body(k), "model": name})) != cold(name, body(k)):
                wrong.append((name, k))

        for n in NAMES:
            cold(n, body(0))
        threads = [threading.Thread(target=ask, args=(n, k)) for k in range(4) for n in NAMES]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_random(self):
        """Many requests to models that take turns, some given up: answers are right and memory keeps to the budget; so it is
        after a kill."""
        s = self.by_turns()
        for n in NAMES:
            cold(n, body(0))
        most = [0]
        stop = threading.Event()

        def watch():
            while not stop.wait(0.02):
                try:
                    with open("/proc/%d/status" % s.proc.pid) as f:
                        rss = int(next(line for line in f if line.startswith("VmRSS")).split()[1]) * 1024
                except (OSError, StopIteration):
                    return
                most[0] = max(most[0], rss)

        wrong = []

        def client(seed):
            rng = random.Random(seed)
            for _ in range(SWITCHES // 4):
                name, k = rng.choice(NAMES), rng.randrange(6)
                asked = {**body(k), "model": name, "stream": rng.random() < 0.3}
                c = s.connect()
                try:
                    c.request("POST", CHAT, asked)
                    if rng.random() < 0.25:
                        time.sleep(rng.random() * 0.05)
                        continue
                    r = c.reply()
                    if r.status != 200 or (not asked["stream"] and said(r) != cold(name, body(k))):
                        wrong.append((name, k, r.status, r.text()[:300]))
                except Gone:
                    wrong.append((name, k, "gone"))
                finally:
                    c.close()

        watcher = threading.Thread(target=watch)
        watcher.start()
        clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for t in clients:
            t.start()
        for t in clients:
            t.join()
        stop.set()
        watcher.join()
        self.assertEqual(wrong, [])
        loads = sum(v for k, v in s.metrics().items() if k.startswith("weft_model_loads_total"))
        print("%d loads, at most %d MB" % (loads, most[0] // MB))
        self.assertGreater(loads, 4)
        if not sanitized(WEFT):
            self.assertLess(most[0], 300 * MB)
        s.signal(signal.SIGKILL)
        s.wait()
        s.log.close()
        s.dir.cleanup()
        s = self.by_turns()
        for n in NAMES:
            r = s.post(CHAT, {**body(2), "model": n})
            self.assertEqual(said(r), cold(n, body(2)))
            self.assertGreater(cached(r), 0)


class Killed(Test):
    def test_in_a_switch(self):
        """What was written before a switch that is killed is there at the next start, and answers are right."""
        talk = body(7, 40)
        name, other = NAMES[:2]
        expected, found = cold(name, talk), []
        for when in ("unloading", "loading", "unloaded"):
            s = self.by_turns()
            r = s.post(CHAT, {**talk, "model": name})
            self.assertEqual(said(r), expected)
            found.append(cached(r))
            # It is unloaded, and what it keeps is on the disk.
            self.assertEqual(said(s.post(CHAT, body(1, model=other))), cold(other, body(1)))
            self.assertEqual(said(s.post(CHAT, body(2, model=name))), cold(name, body(2)))
            c = s.connect()
            c.request("POST", CHAT, body(1, model=other))
            # A switch may be over before it is seen.
            while (now := self.states(s))[other] != "loaded" and when not in (now[name], now[other]):
                pass
            s.signal(signal.SIGKILL)
            s.wait()
            c.close()
            s.log.close()
            s.dir.cleanup()
        self.assertEqual(found[0], 0)
        self.assertGreater(found[1], 500)
        self.assertEqual(found[2], found[1])


class Waiting(Test):
    """What a request is told that waits for its model."""

    def busy(self):
        """A server whose first model answers for a long time, since no draft is ever right, and the connection that ends it."""
        s = self.by_turns()
        c = s.connect()
        self.addCleanup(c.close)
        c.request("POST", CHAT, body(3, model=NAMES[0], max_tokens=3800, ignore_eos=True, stream=True, n=4, temperature=2,
                                        logprobs=False))
        c.until(b"data: ")
        return s, c

    def told(self, c, position, why):
        """The comment that it waits, with the head before it."""
        return c.until(b': waiting for the model "%s": position %d, %s\n\n\r\n' % (NAMES[position].encode(), position, why))

    def test_streams(self):
        s, first = self.busy()
        asked = [s.connect(), s.connect()]
        for k, c in enumerate(asked):
            c.request("POST", CHAT, body(1, model=NAMES[k + 1], stream=True))
            while not s.ask("GET", "/v1/models/" + NAMES[k + 1]).json()["status"]["waiting"]:
                pass
        for k, why in enumerate((b"others have the memory", b"others are loaded first")):
            head = self.told(asked[k], k + 1, why).decode()
            self.assertRegex(head, r"(?m)^x-weft-waited: \d+\.\d s so far; position %d, %s\r$" % (k + 1, why.decode()))
            self.assertIn("text/event-stream", head)
        first.close()
        for k, c in enumerate(asked):
            c.buf = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + c.buf
            text = c.reply().text()
            c.close()
            events = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")]
            got = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
            self.assertEqual(got, cold(NAMES[k + 1], body(1))[0]["message"]["content"])
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text)

    def test_stream_that_fails(self):
        """The status was sent, so an error is an event."""
        s, first = self.busy()
        bad = {"model": NAMES[1], "stream": True, "max_tokens": 8, "messages": [{"role": "no such role", "content": "a"}]}
        asked = {}
        for path in (CHAT, "/v1/messages"):
            asked[path] = s.connect()
            asked[path].request("POST", path, bad)
        asked["cancelled"] = s.connect()
        asked["cancelled"].request("POST", CHAT, body(1, model=NAMES[1], stream=True), {"x-request-id": "one"})
        for c in asked.values():
            self.told(c, 1, b"others have the memory")
        self.assertEqual(s.ask("DELETE", "/v1/requests/one").status, 200)
        self.assertIn("was cancelled by DELETE", asked["cancelled"].until(b"0\r\n\r\n").decode())
        first.close()
        self.assertRegex(asked[CHAT].until(b"0\r\n\r\n").decode(), r'\ndata: {"error":{"message":".*no such role')
        self.assertRegex(asked["/v1/messages"].until(b"0\r\n\r\n").decode(), r'event: error\ndata: {"type":"error","error":')
        for c in asked.values():
            c.close()
        s.until("ended", requests_running=0)

    def test_headers(self):
        s, first = self.busy()
        c = s.connect()
        c.request("POST", CHAT, body(1, model=NAMES[1]))
        while not s.ask("GET", "/v1/models/" + NAMES[1]).json()["status"]["waiting"]:
            pass
        first.close()
        r = c.reply()
        self.assertEqual(said(r), cold(NAMES[1], body(1)))
        self.assertRegex(r.headers["x-weft-waited"], r"^\d+\.\d{3} s; position 1, others have the memory$")
        c.request("POST", CHAT, body(1, model=NAMES[1]))
        self.assertNotIn("x-weft-waited", c.reply().headers)
        c.close()


class Reading(Test):
    """SIGHUP: the models are read again."""

    memory = "300M"

    def begin(self, *sections):
        self.file = os.path.join(self.tmp, "weft.conf")
        return self.serve(self.config(self.memory, *sections, name=self.file))

    def again(self, s, says, *sections):
        lines = s.text().count("SIGHUP")
        if sections:
            self.config(self.memory, *sections, name=self.file)
        s.signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while s.text().count("SIGHUP") == lines:
            self.assertLess(time.monotonic(), end, s.text()[-3000:])
            time.sleep(0.01)
        self.assertIn(says, [line for line in s.text().splitlines() if "SIGHUP" in line][-1])

    def test_removed_while_it_answers(self):
        one, two, three = [(path(n),) for n in NAMES]
        s = self.begin(one, two)
        long = body(3, max_tokens=300, ignore_eos=True)
        expected = cold(NAMES[0], long)
        got = {}
        ask = lambda key, name, asked: got.update({key: s.post(CHAT, {**asked, "model": name})})
        running = threading.Thread(target=ask, args=("running", NAMES[0], long))
        running.start()
        s.at_least("weft_requests_running", 1)
        gone = s.connect()
        gone.request("POST", CHAT, body(1, model=NAMES[1]))
        # Two wait for a model that is not loaded, the last of them until it is removed.
        waiting = threading.Thread(target=ask, args=("waiting", NAMES[1], body(1)))
        waiting.start()
        while s.ask("GET", "/v1/models/" + NAMES[1]).json()["status"]["waiting"] < 2:
            pass
        gone.close()
        self.again(s, "1 new, 2 gone", three)
        self.assertEqual(list(self.states(s)), [NAMES[2]])
        for name in NAMES[:2]:
            r = s.post(CHAT, body(1, model=name))
            self.assertEqual((r.status, r.error()["code"]), (404, "model_not_found"))
            self.assertIn('"%s" is' % NAMES[2], r.error()["message"])
        waiting.join()
        self.assertEqual(got["waiting"].status, 404)
        self.assertEqual(s.post(CHAT, body(1)).json()["model"], NAMES[2])
        self.assertEqual(said(s.post(CHAT, body(1))), cold(NAMES[2], body(1)))
        running.join()
        self.assertEqual(said(got["running"]), expected)
        self.again(s, "1 new, 0 gone", one, three)
        r = s.post(CHAT, long)
        self.assertEqual((r.json()["model"], said(r)), (NAMES[0], expected))
        self.assertGreater(cached(r), 0)

    def test_changed_while_it_answers(self):
        """Requests for it go to the new one, which begins when the old one has written what it keeps, though there is
        room for both."""
        self.memory = "1G"
        s = self.begin((path(NAMES[0]),), (path(NAMES[1]),))
        first, more = body(7, 4), body(7, 4, max_tokens=300, ignore_eos=True)
        said(s.post(CHAT, first))
        c = s.connect()
        c.request("POST", CHAT, more)
        s.at_least("weft_requests_running", 1)
        self.again(s, "1 new, 1 gone", (path(NAMES[0]), "max-tokens = 4"), (path(NAMES[1]),))
        got = []
        threads = [threading.Thread(target=lambda: got.append(s.post(CHAT, first))) for _ in range(3)]
        for t in threads:
            t.start()
        r = c.reply()
        c.close()
        self.assertEqual(said(r), cold(NAMES[0], more))
        for t in threads:
            t.join()
        for r in got:
            self.assertEqual(said(r), cold(NAMES[0], first))
            self.assertGreater(cached(r), 0)
        self.assertNotIn("another server has it", s.text())
        del first["max_tokens"]
        self.assertEqual(s.post(CHAT, first).json()["usage"]["completion_tokens"], 4)

    def test_nothing_changes(self):
        one, two = [(path(n),) for n in NAMES[:2]]
        s = self.begin(one, two)
        before = self.states(s)
        self.again(s, "0 new, 0 gone")
        for says, *sections in (("/no/such/model", one, ("/no/such/model",)),
                                ("would both be called", one, one),
                                ("belongs above the first [model]", (path(NAMES[0]), "port = 1")),
                                ("weft.conf:6: ", (path(NAMES[0]), "no-such-line = 1")),
                                ("the pinned models take 400 MB", one + ("pinned",), two + ("pinned",))):
            self.again(s, says, *sections)
            self.assertIn("the old models stay: ", s.text().splitlines()[-1])
            self.assertEqual(self.states(s), before)
        with open(self.file, "w") as f:
            f.write("memory = 1G\n")
        self.again(s, "no [model] is in it")
        os.remove(self.file)
        self.again(s, "the old models stay")
        self.assertEqual(self.states(s), before)
        self.assertEqual(s.ask("GET", "/v1/models/" + NAMES[0]).json()["status"]["loads"], 1)
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[1]))), cold(NAMES[1], body(1)))

    def test_pinned(self):
        s = self.begin((path(NAMES[0]),))
        self.again(s, "1 new, 0 gone", (path(NAMES[0]),), (path(NAMES[1]), "pinned"))
        self.until(s, NAMES[1], "loaded")
        self.assertEqual(self.states(s)[NAMES[0]], "unloaded")
        self.again(s, "1 new, 1 gone", (path(NAMES[0]),), (path(NAMES[1]),))
        self.assertEqual(said(s.post(CHAT, body(1))), cold(NAMES[0], body(1)))

    def test_folder(self):
        folder = os.path.join(self.tmp, "models")
        os.mkdir(folder)
        os.symlink(os.path.abspath(path(NAMES[0])), os.path.join(folder, NAMES[0]))
        s = self.serve("--models-dir", folder, "--memory", "1G")
        os.symlink(os.path.abspath(path(NAMES[1])), os.path.join(folder, NAMES[1]))
        self.again(s, "1 new, 0 gone")
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[1]))), cold(NAMES[1], body(1)))
        os.remove(os.path.join(folder, NAMES[0]))
        self.again(s, "0 new, 1 gone")
        self.assertEqual(list(self.states(s)), NAMES[1:2])

    def test_random(self):
        """Models come and go under clients of which some leave: an answer is the right one or says that there is no such model."""
        files = [[(path(n), *more) for n in some] for some in (NAMES, NAMES[:2], NAMES[1:])
                 for more in ((), ("temp = 0.5",))]
        s = self.begin(*files[0])
        for n in NAMES:
            cold(n, body(0))
        wrong, count = [], {200: 0, 404: 0}

        def client(seed):
            rng = random.Random(seed)
            for _ in range(SWITCHES // 4):
                name, k = rng.choice(NAMES), rng.randrange(6)
                c = s.connect()
                try:
                    c.request("POST", CHAT, body(k, model=name))
                    if rng.random() < 0.25:
                        continue
                    r = c.reply()
                    if r.status not in count or (r.status == 200 and said(r) != cold(name, body(k))):
                        wrong.append((name, k, r.status, r.text()[:300]))
                    else:
                        count[r.status] += 1
                except Gone:
                    wrong.append((name, k, "gone"))
                finally:
                    c.close()

        clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for t in clients:
            t.start()
        rng = random.Random(0)
        while any(t.is_alive() for t in clients):
            self.again(s, " gone", *rng.choice(files))
        for t in clients:
            t.join()
        self.assertEqual(wrong, [])
        print("%d answers, %d without a model, read %d times" % (count[200], count[404], s.text().count("SIGHUP")))
        self.assertGreater(count[200], 0)
        self.assertGreater(count[404], 0)


class Refusing(Test):
    def test_cannot(self):
        """What a model cannot do is a 400 that says so, whatever the others can."""
        s = self.serve(self.config("2G", (path(NAMES[0]),), (os.path.join(FOLDER, "../tests/golden/_embed/bert/hf-bf16"), "alias = encoder", "ctx-size = 56"),
                                   (path("weft-tiny-eyes"), "alias = eyes")))
        can = {m["id"]: m["capabilities"] for m in s.ask("GET", "/v1/models").json()["data"]}
        self.assertIn("vision", can["eyes"])
        self.assertNotIn("chat", can["encoder"])
        parts = {"image": {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                 "sound": {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}}
        for name, part, says in ((NAMES[0], "image", "text only"), (NAMES[0], "sound", "text only"), ("eyes", "sound", "takes no sounds")):
            r = s.post(CHAT, {"model": name, "max_tokens": 2, "messages": [{"role": "user", "content": [parts[part]]}]})
            self.assertEqual(r.status, 400, r.text())
            self.assertIn(says, r.error()["message"])
        for where, more in ((CHAT, body(1)), ("/v1/completions", {"prompt": "a"}), ("/api/chat", {"messages": body(1)["messages"]})):
            r = s.post(where, {**more, "model": "encoder"})
            self.assertEqual(r.status, 400, r.text())
            self.assertIn("encoder writes no text", r.text())
        self.assertEqual(s.post("/v1/embeddings", {"model": "encoder", "input": "a"}).status, 200)
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[0]))), cold(NAMES[0], body(1)))

    def test_pinned(self):
        s = self.serve(self.config("300M", (path(NAMES[0]), "pinned", "alias = one,uno"), (path(NAMES[1]),)))
        self.assertEqual(self.states(s), {"one": "loaded", "uno": "loaded", NAMES[1]: "unloaded"})
        r = s.post(CHAT, body(1, model=NAMES[1]))
        self.assertEqual((r.status, r.error()["code"]), (503, "model_too_large"))
        self.assertIn('"one" (200 MB)', r.error()["message"])
        self.assertEqual(said(s.post(CHAT, body(1, model="uno"))), cold(NAMES[0], body(1)))

    def test_too_large(self):
        s = self.serve(self.config("300M", (path(NAMES[0]),), (path(NAMES[1]), "memory = 400M")))
        r = s.post(CHAT, body(1, model=NAMES[1]))
        self.assertEqual((r.status, r.error()["code"]), (503, "model_too_large"))
        self.assertIn("takes 400 MB", r.error()["message"])

    def test_lost_and_found(self):
        """A model that cannot be loaded now may be later."""
        copy = os.path.join(self.tmp, "copy")
        shutil.copytree(path(NAMES[1]), copy)
        s = self.serve(path(NAMES[0]), copy, "--memory", "1G")
        weights = os.path.join(copy, "model.safetensors")
        os.rename(weights, weights + ".away")
        r = s.post(CHAT, body(1, model="copy"))
        self.assertEqual((r.status, r.error()["code"]), (503, "model_unusable"))
        self.assertIn("error", s.ask("GET", "/v1/models/copy").json()["status"])
        os.rename(weights + ".away", weights)
        self.assertEqual(said(s.post(CHAT, body(1, model="copy"))), cold(NAMES[1], body(1)))

    def test_deadline(self):
        s = self.by_turns()
        c = s.connect()
        c.request("POST", CHAT, body(3, model=NAMES[0], max_tokens=2000, ignore_eos=True, stream=True))
        c.until(b"data: ")
        r = s.post(CHAT, body(1, model=NAMES[1]), {"x-request-deadline-ms": "50"})
        self.assertEqual((r.status, r.error()["code"]), (504, "deadline"))
        c.close()
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[1]))), cold(NAMES[1], body(1)))

    def test_sleep(self):
        s = self.serve(*[path(n) for n in NAMES], "--memory", "2G")
        sleeping = lambda more="": s.ask("GET", "/is_sleeping" + more).json()["is_sleeping"]
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[1]))), cold(NAMES[1], body(1)))
        self.assertEqual(s.post("/sleep?level=1&model=" + NAMES[1], {}).status, 200)
        self.until(s, NAMES[1], "asleep")
        self.assertEqual((sleeping(), sleeping("?model=" + NAMES[1]), sleeping("?model=" + NAMES[0])), (False, True, False))
        r = s.post(CHAT, body(1, model=NAMES[1]))
        self.assertEqual((r.status, r.error()["code"]), (503, "model_asleep"))
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[0]))), cold(NAMES[0], body(1)))
        self.assertEqual(s.post("/sleep", {}).status, 200)
        for n in NAMES:
            self.until(s, n, "asleep")
        self.assertTrue(sleeping())
        self.assertEqual(s.post("/wake_up", {}).status, 200)
        again = s.post(CHAT, body(1, model=NAMES[1]))
        self.assertEqual(said(again), cold(NAMES[1], body(1)))
        self.assertGreater(cached(again), 0)
        self.assertEqual(s.post("/sleep?model=none", {}).status, 404)

    def test_keep_alive(self):
        s = self.serve(*[path(n) for n in NAMES], "--memory", "2G")
        ask = {"model": NAMES[1] + ":latest", "messages": body(1)["messages"], "stream": False, "options": {"num_predict": 2}}
        running = lambda: [m["name"] for m in s.ask("GET", "/api/ps").json()["models"]]
        self.assertEqual(len(s.ask("GET", "/api/tags").json()["models"]), 3)
        self.assertEqual(s.post("/api/chat", {**ask, "keep_alive": "5m"}).status, 200)
        self.assertEqual(running(), NAMES[:2])
        self.assertEqual(s.post("/api/chat", {**ask, "keep_alive": 0}).status, 200)
        self.until(s, NAMES[1], "unloaded")
        self.assertEqual(running(), NAMES[:1])
        self.assertEqual(s.post("/api/generate", {"model": NAMES[1], "keep_alive": "10ms"}).status, 200)
        self.until(s, NAMES[1], "unloaded")
        self.assertEqual(s.post("/api/chat", {**ask, "keep_alive": -1}).status, 200)
        self.assertEqual(running(), NAMES[:2])

    def test_idle(self):
        s = self.serve(self.config("1G", (path(NAMES[0]), "unload-after = 1"), (path(NAMES[1]), "pinned", "unload-after = 1")))
        self.until(s, NAMES[0], "unloaded")
        self.assertEqual(self.states(s)[NAMES[1]], "loaded")
        self.assertEqual(said(s.post(CHAT, body(1, model=NAMES[0]))), cold(NAMES[0], body(1)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
