"""The life of a request before a stub engine: cancels, drains, logs, counters.
Run as: test_life.py STUB_SERVER TOKENIZER.JSON"""
import json
import os
import re
import signal
import sys
import tempfile
import time
import unittest

from serverkit import CHAT, COMPLETIONS, PATIENCE, request, sanitized, stub

QUICK = os.environ.get("WEFT_TEST_QUICK")
ENDLESS = 50000         # tokens: an answer no test waits for
CANCELLED = 'requests_cancelled_total{cause="%s",stage="%s"}'


def cancelled(s, cause):
    """By stage, those that are not 0."""
    m = s.metrics()
    head = 'weft_requests_cancelled_total{cause="%s",stage="' % cause
    return {k[len(head):-2]: v for k, v in m.items() if k.startswith(head) and v}


class Test(unittest.TestCase):
    def serve(self, **opts):
        s = stub(**opts)
        self.addCleanup(s.close)
        return s


class Deleting(Test):
    def test_each_stage(self):
        s = self.serve()
        for say, stage in (("queue", "queued"), ("prefill", "prefill"), ("slow", "decode")):
            for stream in (False, True):
                with self.subTest(stage=stage, stream=stream):
                    before = cancelled(s, "delete").get(stage, 0)
                    name = "mine-%s-%d" % (say, stream)
                    c = s.connect()
                    c.request("POST", COMPLETIONS, {"prompt": "say " + say, "max_tokens": ENDLESS, "stream": stream},
                              {"x-request-id": name})
                    s.until("there", **({"requests_waiting": 1} if say == "queue" else {"requests_running": 1}))
                    if stage == "decode" and stream:
                        c.until(b"data:")
                    elif stage == "decode":
                        s.at_least("weft_steps_total", s.metrics()["weft_steps_total"] + 3)
                    r = s.ask("DELETE", "/v1/requests/" + name)
                    self.assertEqual((r.status, r.json()), (200, {"id": name, "object": "request", "cancelled": 1}))
                    if stream:
                        rest = c.until(b"0\r\n\r\n").decode()
                        self.assertIn('"request_cancelled"', rest)
                        self.assertNotIn("[DONE]", rest)
                    else:
                        r = c.reply()
                        self.assertEqual((r.status, r.error()["code"]), (499, "request_cancelled"))
                    # The connection goes on.
                    c.request("GET", "/health")
                    self.assertEqual(c.reply().status, 200)
                    c.close()
                    s.until("idle", requests_running=0, requests_waiting=0)
                    self.assertEqual(cancelled(s, "delete")[stage], before + 1)
                    self.assertEqual(s.ask("DELETE", "/v1/requests/" + name).status, 404)
        self.assertEqual(cancelled(s, "disconnect"), {})

    def test_body(self):
        s = self.serve()
        c = s.connect()
        whole = request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 1}, {"x-request-id": "half"})
        c.send(whole[:-4])
        while s.ask("DELETE", "/v1/requests/half").status == 404:
            pass                # until the server has read its header
        r = c.reply()
        self.assertEqual((r.status, r.error()["code"]), (499, "request_cancelled"))
        c.close()
        self.assertEqual(cancelled(s, "delete"), {"body": 1})

    def test_preparing(self):
        """Behind a large body on the one worker; on a machine that is busy elsewhere it may be queued already."""
        s = self.serve(prep_threads=1)
        a, b = s.connect(), s.connect()
        a.request("POST", COMPLETIONS, {"prompt": "word " * (50000 if QUICK else 300000), "max_tokens": 1})
        b.request("POST", COMPLETIONS, {"prompt": "say queue"}, {"x-request-id": "behind"})
        while s.ask("DELETE", "/v1/requests/behind").status == 404:
            pass
        self.assertEqual(b.reply().status, 499)
        n = cancelled(s, "delete")
        self.assertEqual((n.get("preparing", 0) + n.get("queued", 0), sum(n.values())), (1, 1))
        a.close()
        b.close()

    def test_preparing_is_bounded(self):
        """What waits to be prepared counts in the queue, no client gets all of it, and it goes on when the one
        before it is cancelled."""
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("a a-key\nb b-key\nc c-key\n")
            f.flush()
            s = self.serve(api_key_file=f.name, prep_threads=1, queue_max=4)
        waiting = []

        def ask(who, prompt="x", **headers):
            c = s.connect()
            c.request("POST", "/tokenize", {"prompt": prompt}, dict(headers, Authorization="Bearer %s-key" % who))
            self.addCleanup(c.close)
            return c

        def wait(**want):
            while not all("weft_prep_%s %d\n" % kv in s.ask("GET", "/metrics", headers={"Authorization": "Bearer a-key"}).text()
                          for kv in want.items()):
                pass

        slow = ask("a", "a" * (4 << 20), **{"x-request-id": "slow"})
        wait(running=1)
        for who, n in (("a", 1), ("a", 2), ("b", 3), ("c", 4)):
            waiting.append(ask(who))
            wait(waiting=n)
            if n == 2:
                r = ask("a").reply()
                self.assertEqual((r.status, r.error()["code"], r.headers["retry-after"]), (429, "client_over_share", "1"))
        r = ask("b").reply()
        self.assertEqual((r.status, r.error()["code"]), (503, "overloaded"))
        health = s.ask("GET", "/health").json()
        self.assertEqual((health["waiting"], health["preparing"]), (4, 1))
        self.assertEqual(s.ask("DELETE", "/v1/requests/slow", headers={"Authorization": "Bearer a-key"}).status, 200)
        self.assertEqual(slow.reply().status, 499)
        for c in waiting:
            self.assertEqual(c.reply().status, 200)

    def test_by_the_answers_id(self):
        s = self.serve()
        c = s.connect()
        c.request("POST", CHAT, {"messages": [{"role": "user", "content": "say slow"}], "max_tokens": ENDLESS,
                                 "stream": True}, {"x-request-id": "other-name"})
        name = re.search(rb'"id":"(chatcmpl-\w+)"', c.until(b'"object"')).group(1).decode()
        self.assertEqual(s.ask("DELETE", "/v1/requests/" + name).status, 200)
        c.close()
        s.until("idle", requests_running=0)

    def test_whose(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("# who\nann  one-secret\nbob\ttwo-secret # of bob\n\nthree-secret\n")
            f.flush()
            s = self.serve(api_key_file=f.name, log_format="json")
        keys = {k: {"Authorization": "Bearer %s-secret" % k, "x-request-id": "r"} for k in ("one", "two", "three")}
        c = s.connect()
        c.request("POST", COMPLETIONS, {"prompt": "say slow", "max_tokens": ENDLESS, "user": "zoe"}, keys["one"])
        while 'weft_requests_running 1\n' not in s.ask("GET", "/metrics", headers=keys["two"]).text():
            pass
        self.assertEqual(s.ask("DELETE", "/v1/requests/r").status, 401)
        self.assertEqual(s.ask("DELETE", "/v1/requests/r", headers=keys["two"]).status, 404)
        self.assertEqual(s.ask("DELETE", "/v1/requests/r", headers=keys["three"]).status, 404)
        self.assertEqual(s.ask("DELETE", "/v1/requests/r", headers=keys["one"]).status, 200)
        self.assertEqual(c.reply().status, 499)
        c.close()
        for k, name in (("two", "key:bob"), ("three", "key:key3")):
            s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1, "user": "zoe"}, keys[k])
            self.assertEqual(s.records("request")[-1]["client"], name)
        self.assertNotIn("secret", s.text())

    def test_keys_read_again(self):
        with tempfile.NamedTemporaryFile("w") as f:
            def write(text):
                f.seek(0)
                f.truncate()
                f.write(text)
                f.flush()

            def reads(words):
                lines = s.text().count("SIGHUP")
                s.signal(signal.SIGHUP)
                end = time.monotonic() + PATIENCE
                while s.text().count("SIGHUP") == lines and time.monotonic() < end:
                    pass
                self.assertIn(words, s.text().splitlines()[-1])

            def status(key):
                return s.ask("GET", "/metrics", headers={"Authorization": "Bearer " + key}).status

            write("ann one\nbob two\n")
            s = self.serve(api_key_file=f.name)
            c = s.connect()
            c.request("POST", COMPLETIONS, {"prompt": "say slow", "max_tokens": ENDLESS},
                      {"Authorization": "Bearer one", "x-request-id": "r"})
            while 'weft_requests_running 1\n' not in s.ask("GET", "/metrics", headers={"Authorization": "Bearer two"}).text():
                pass
            write("zoe three\nbob two\n")
            reads("1 new, 1 gone")
            self.assertEqual([status(k) for k in ("one", "two", "three")], [401, 200, 200])
            # The new key is none of an old one's place: it does not find what that one asked for, which goes on.
            two, three = {"Authorization": "Bearer two"}, {"Authorization": "Bearer three"}
            for who in (two, three):
                self.assertEqual(s.ask("DELETE", "/v1/requests/r", headers=who).status, 404)
                self.assertEqual(s.ask("GET", "/v1/requests", headers=who).json()["data"], [])
            # What cannot be read changes nothing.
            for bad in ("", "a b c\n"):
                write(bad)
                reads("the old keys stay")
                self.assertEqual([status(k) for k in ("one", "two", "three")], [401, 200, 200])
            # A key that comes back is its old self.
            write("ann one\nbob two\n")
            reads("1 new, 1 gone")
            self.assertEqual([status(k) for k in ("one", "two", "three")], [200, 200, 401])
            self.assertEqual(s.ask("DELETE", "/v1/requests/r", headers={"Authorization": "Bearer one"}).status, 404)
            c.close()
            while 'weft_requests_running 0\n' not in s.ask("GET", "/metrics", headers=two).text():
                pass
        s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1}, two)
        self.assertIn(" key:bob ", s.text())

    def test_hangup_without_keys(self):
        s = self.serve()
        s.signal(signal.SIGHUP)
        self.assertEqual(s.ask("GET", "/health").status, 200)

    def test_bad_key_files(self):
        for text, words in (("", "no key"), ("# only\n", "no key"), ("a b c\n", "line 1"), ("\na\tb c", "line 2")):
            with tempfile.NamedTemporaryFile("w") as f:
                f.write(text)
                f.flush()
                with self.assertRaises(RuntimeError) as e:
                    stub(api_key_file=f.name)
                self.assertIn(words, str(e.exception))


class Listing(Test):
    def test_each_stage(self):
        s = self.serve()
        want = {"queue": ("waiting", {"requests_waiting": 1}), "prefill": ("prefill", {"requests_running": 1}),
                "slow": ("decode", {"requests_running": 1})}
        self.assertEqual(s.ask("GET", "/v1/requests").json(), {"object": "list", "data": []})
        for say, (state, there) in want.items():
            with self.subTest(state=state):
                c = s.connect()
                c.request("POST", COMPLETIONS, {"prompt": "say " + say, "max_tokens": ENDLESS}, {"x-request-id": "mine-" + say})
                s.until("there", **there)
                if state == "decode":
                    s.at_least("weft_steps_total", s.metrics()["weft_steps_total"] + 3)
                rows = s.ask("GET", "/v1/requests").json()["data"]
                self.assertEqual(len(rows), 1)
                row = rows[0]
                self.assertEqual((row["id"], row["path"], row["state"], row["client"], row["choice"], row["max_tokens"]),
                                 ("mine-" + say, COMPLETIONS, state, "127.0.0.1", 0, ENDLESS))
                self.assertGreater(row["prompt_tokens"], 0)
                self.assertEqual(row["output_tokens"] > 0, state == "decode")
                self.assertGreaterEqual(row["age_seconds"], 0)
                s.ask("DELETE", "/v1/requests/mine-" + say)
                c.reply()
                c.close()
                s.until("idle", requests_running=0, requests_waiting=0)
        self.assertEqual(s.ask("GET", "/v1/requests").json()["data"], [])


class Refusing(Test):
    def test_limits(self):
        s = self.serve()
        for say, headers, status, retry, code in (
                ("full", {}, 503, "7", "overloaded"), ("share", {}, 429, "3", "client_over_share"),
                ("late", {"x-request-deadline-ms": "5500000"}, 503, "9", "deadline")):
            for stream in (False, True):
                r = s.post(COMPLETIONS, {"prompt": "say " + say, "stream": stream}, headers)
                self.assertEqual((r.status, r.headers.get("retry-after"), r.error()["code"]), (status, retry, code))
        self.assertRegex(r.error()["message"], "in 5[45][0-9][0-9] s")        # the deadline came through
        for bad in ("", "x", "-5", "1e3"):
            self.assertEqual(s.post(COMPLETIONS, {"prompt": "say late", "max_tokens": 1},
                                    {"x-request-deadline-ms": bad}).status, 200)

    def test_deadline(self):
        s = self.serve(log_format="json")
        r = s.post(COMPLETIONS, {"prompt": "say expire"})
        self.assertEqual((r.status, r.error()["code"]), (504, "deadline"))
        r = s.post(COMPLETIONS, {"prompt": "say expire", "stream": True})
        self.assertEqual(r.status, 200)
        self.assertEqual(json.loads(r.text().split("\n\n")[-2][len("data: "):])["error"]["code"], "deadline")
        self.assertEqual(cancelled(s, "deadline"), {"decode": 2})
        self.assertEqual([(q["status"], q["finish"]) for q in s.records("request") if q["path"] == COMPLETIONS],
                         [(504, "cancelled"), (200, "cancelled")])


class Faults(Test):
    def test_stay_with_their_request(self):
        """A failed assertion or allocation, on a worker or on the IO thread, before a reply or within one."""
        # What a broken request had allocated is lost, on purpose.
        s = self.serve(env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"), log_format="json")
        other = s.connect()
        other.request("POST", COMPLETIONS, {"prompt": "say slow", "max_tokens": 400, "stream": True})
        other.until(b"data:")
        n = 0
        for how in ("assert", "heap"):
            for stream in (False, True):
                c = s.connect()
                for path in (COMPLETIONS, "/v1/cache/explain"):
                    c.request("POST", path, {"prompt": "say " + how, "stream": stream})
                    r = c.reply()
                    want = (500, "internal_error") if how == "assert" else (503, "out_of_memory")
                    self.assertEqual((r.status, r.error()["code"]), want, (how, path))
                    n += 1
                c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 1})    # the connection goes on
                self.assertEqual(c.reply().status, 200)
                c.close()
        # What had been submitted for it before is given up, too.
        self.assertEqual(s.post(COMPLETIONS, {"prompt": ["say slow", "say assert"], "max_tokens": ENDLESS}).status, 500)
        n += 1
        self.assertEqual(s.post(COMPLETIONS, {"prompt": "say broken", "max_tokens": 9}).status, 500)
        c = s.connect()
        c.request("POST", COMPLETIONS, {"prompt": "say broken", "max_tokens": 9, "stream": True})
        self.assertEqual(c.head()[0], 200)
        self.assertNotIn(b"[DONE]", c.rest())
        c.close()
        # On the engine's thread.
        for say, status, code in (("fault", 500, "internal_error"), ("empty", 503, "out_of_memory")):
            r = s.post(COMPLETIONS, {"prompt": "say " + say, "max_tokens": 9})
            self.assertEqual((r.status, r.error()["code"]), (status, code))
            r = s.post(COMPLETIONS, {"prompt": "say " + say, "max_tokens": 9, "stream": True})
            self.assertEqual(json.loads(r.text().split("\n\n")[-2][len("data: "):])["error"]["code"], code)
            n += 2
        self.assertEqual(s.metrics()["weft_request_faults_total"], n + 2)
        self.assertIn(b'"finish_reason":"length"', other.until(b"[DONE]"))
        other.close()
        s.until("nothing runs on for them", requests_running=0, requests_waiting=0, connections=1)
        lines = [r for r in s.records("request") if r["finish"] == "error"]
        fault, memory = "a fault in the server ended this request", "there was no memory left for the work of this request"
        refused = [r["error"] for r in s.records("request") if r["status"] == 503 and r["finish"] == "refused"]
        self.assertEqual((len(lines), {r["error"] for r in lines}, refused), (n, {fault, memory}, [memory] * 2))
        self.assertEqual(sum(cancelled(s, "disconnect").values()), 0)


class Leaving(Test):
    def test_body_and_preparing(self):
        s = self.serve(prep_threads=1)
        for _ in range(3):
            c = s.connect()
            c.send(request("POST", COMPLETIONS, {"prompt": "ab"})[:-3])
            c.close()
        s.until("counted", **{CANCELLED % ("disconnect", "body"): 3})
        # A header that is not complete is no request yet.
        c = s.connect()
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        c.close()
        s.until("gone", connections=1)
        self.assertEqual(cancelled(s, "disconnect"), {"body": 3})
        a, b = s.connect(), s.connect()
        a.request("POST", COMPLETIONS, {"prompt": "word " * (50000 if QUICK else 300000), "max_tokens": 1})
        b.request("POST", COMPLETIONS, {"prompt": "say queue"}, {"x-request-id": "b"})
        b.reset()
        a.reset()
        s.until("gone", connections=1, requests_running=0, requests_waiting=0)
        self.assertEqual(sum(cancelled(s, "disconnect").values()), 5)
        self.assertEqual(s.metrics()["weft_clients_stalled_total"], 0)

    def rss(self, s):
        with open("/proc/%d/status" % s.proc.pid) as f:
            return int(re.search(r"VmRSS:\s*(\d+)", f.read()).group(1)) << 10

    def abort(self, s, i):
        c = s.connect()
        body = {"prompt": "say " + ("queue", "prefill", "slow", "word " * 200)[i % 4], "max_tokens": ENDLESS,
                "stream": i % 2 == 0}
        whole = request("POST", COMPLETIONS, body)
        c.send(whole[:-5] if i % 5 == 4 else whole)
        if i % 2 == 0 and i % 5 != 4:
            c.head()            # the engine has it by now
        (c.reset if i % 3 == 0 else c.close)()

    def test_memory_after_aborts(self):
        s = self.serve()
        rounds = []
        for _ in range(3):
            for i in range(100 if QUICK else 1000):
                self.abort(s, i)
            s.until("idle", connections=1, requests_running=0, requests_waiting=0)
            rounds.append(self.rss(s))
        print("memory after rounds of aborts: %s KB" % [r >> 10 for r in rounds])
        # The first fills what is recycled; a leak would add every round (an exchange and its
        # request are some 5 KB: 5 MB for a thousand).
        if not sanitized(sys.argv[1]):
            self.assertLess(rounds[2] - rounds[1], 1 << 20)
        self.assertEqual(s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1}).status, 200)


class Reading(Test):
    def test_a_trickle(self):
        """A reader takes a few bytes between the answers of others: they and the engine do not wait for it."""
        s = self.serve(stall_ms=3600 * 1000)
        c = s.connect(rcvbuf=4096)
        c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 3000, "stream": True, "logprobs": 20})
        want = s.post(COMPLETIONS, {"prompt": "cd", "max_tokens": 50}).json()["choices"]
        got = 0
        for _ in range(30):
            got += len(c.s.recv(10))
            self.assertEqual(s.post(COMPLETIONS, {"prompt": "cd", "max_tokens": 50}).json()["choices"], want)
        # The engine is done with it, though it has read next to nothing.
        s.until("the engine finished for it", requests_total=32, requests_running=0, requests_waiting=0)
        self.assertLessEqual(got, 300)
        self.assertEqual((s.metrics()["weft_clients_stalled_total"], cancelled(s, "stall")), (0, {}))
        c.close()

    def test_what_waits_is_small(self):
        """30,000 tokens that nobody reads: 16 bytes and the text of each."""
        s = self.serve(stall_ms=3600 * 1000)
        s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 100, "stream": True})
        def peak():
            with open("/proc/%d/status" % s.proc.pid) as f:
                return int(re.search(r"VmHWM:\s*(\d+)", f.read()).group(1)) << 10
        before = peak()
        c = s.connect(rcvbuf=4096)
        c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 30000, "stream": True})
        s.until("the engine finished for it", requests_total=2, requests_running=0, requests_waiting=0)
        grown = peak() - before
        print("30,000 tokens wait for a reader: the peak grew by %.2f MB" % (grown / 1e6))
        if not sanitized(sys.argv[1]):
            self.assertLess(grown, 2.5e6)
        c.close()

    def test_given_up(self):
        s = self.serve(stall_ms=300)
        c = s.connect(rcvbuf=4096)
        c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 2000, "stream": True, "logprobs": 20})
        s.until("given up", clients_stalled_total=1, connections=1)
        self.assertEqual((cancelled(s, "stall"), cancelled(s, "disconnect")), ({"decode": 1}, {}))
        c.close()


class Logging(Test):
    def test_json(self):
        s = self.serve(log_format="json", log_level="info")
        s.post(COMPLETIONS, {"prompt": "hello world", "max_tokens": 5}, {"x-request-id": "a"})
        s.post(CHAT, {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "stream": True, "user": "zoe x"},
               {"x-request-id": "b"})
        s.post(COMPLETIONS, {"prompt": 5}, {"x-request-id": "c"})
        s.post(COMPLETIONS, {"prompt": "say fail"}, {"x-request-id": "d"})
        s.ask("GET", "/health")
        c = s.connect()
        c.request("POST", COMPLETIONS, {"prompt": "say slow", "max_tokens": ENDLESS, "stream": True}, {"x-request-id": "e"})
        c.until(b"data:")
        c.close()
        s.until("left", requests_running=0)
        lines = {r["id"]: r for r in s.records("request")}
        self.assertEqual(sorted(lines), ["a", "b", "c", "d", "e"])
        self.assertEqual(len(s.records("request")), 5)          # one each; none for probes
        a = lines["a"]
        self.assertEqual((a["path"], a["status"], a["finish"], a["output"], a["client"], a["level"]),
                         (COMPLETIONS, 200, "length", 5, "127.0.0.1", "info"))
        self.assertGreater(a["prompt"], 1)
        self.assertGreater(a["total_ms"], 0)
        self.assertGreater(a["first_token_ms"], 0)
        self.assertRegex(a["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((lines["b"]["client"], lines["b"]["output"]), ("user:zoe?x", 3))
        self.assertEqual((lines["c"]["status"], lines["c"]["finish"]), (400, "refused"))
        self.assertIn("prompt", lines["c"]["error"])
        self.assertEqual((lines["d"]["status"], lines["d"]["finish"]), (500, "error"))
        self.assertEqual((lines["e"]["finish"], lines["e"]["error"]), ("cancelled", "client left while decode"))
        self.assertNotIn("hello", s.text())
        self.assertNotIn("temperature", s.text())
        # What never became a request is there as well.
        s.ask("GET", "/nothing?key=1", headers={"x-request-id": "f"})
        c = s.connect()
        c.send(b"GET / HTTP/3.0\r\n\r\n")
        c.reply()
        c.close()
        refused = s.records("refused")
        self.assertEqual([(r["method"], r["path"], r["status"]) for r in refused], [("GET", "/nothing", 404), ("", "", 505)])
        self.assertEqual(refused[0]["id"], "f")
        self.assertRegex(refused[1]["id"], r"^\w{22}$")

    def test_text(self):
        s = self.serve()
        s.post(COMPLETIONS, {"prompt": "hello world", "max_tokens": 5, "temperature": 0.25}, {"x-request-id": "a1"})
        lines = [l for l in s.text().splitlines() if " a1 " in l]
        self.assertEqual(len(lines), 1, s.text())
        self.assertRegex(lines[0], r"^[\d:.]+ info +a1 127\.0\.0\.1:\d+ 127\.0\.0\.1 /v1/completions: 200 length, prompt \d+, "
                                   r"cached 0, output 5, queued \d+ ms, first token \d+ ms, .*\d ms$")
        self.assertRegex(s.text(), r"debug a1: .*temperature 0\.25")
        self.assertNotIn("hello", s.text())

    def test_prompts_when_asked(self):
        s = self.serve(log_prompts=1, log_format="json")
        s.post(COMPLETIONS, {"prompt": "hello\nworld \x07", "max_tokens": 5}, {"x-request-id": "a"})
        r = s.records("prompt")
        self.assertEqual((len(r), r[0]["id"], r[0]["prompt"]), (1, "a", "hello\nworld \x07"))


class Counting(Test):
    def test_page(self):
        s = self.serve()
        for i in range(5):
            s.post(COMPLETIONS, {"prompt": "hello", "max_tokens": 1 + i})
        page = s.ask("GET", "/metrics").text()
        m = s.metrics()
        self.assertEqual(m['weft_model_info{model="stub",quantization=""}'], 1)
        self.assertEqual(m['vllm:num_requests_running{model_name="stub"}'], 0)
        self.assertEqual(m['vllm:request_success_total{model_name="stub",finished_reason="length"}'], 5)
        self.assertEqual(m['vllm:gpu_prefix_cache_queries_total{model_name="stub"}'], m["weft_prompt_tokens_total"])
        self.assertEqual(m['vllm:gpu_prefix_cache_hit_rate{model_name="stub"}'] * m["weft_prompt_tokens_total"], m["weft_cached_tokens_total"])
        self.assertEqual([m['vllm:engine_sleep_state{model_name="stub",sleep_state="%s"}' % of]
                          for of in ("awake", "weights_offloaded", "discard_all")], [1, 0, 0])
        names = set(re.findall(r"^# TYPE (\S+) histogram$", page, re.M))
        for name in ("weft_time_to_first_token_seconds", "weft_inter_token_seconds", "weft_queue_seconds",
                     "weft_request_seconds", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
                     "vllm:request_queue_time_seconds", "vllm:e2e_request_latency_seconds", "vllm:time_per_output_token_seconds",
                     "vllm:request_inference_time_seconds", "vllm:request_max_num_generation_tokens"):
            self.assertIn(name, names)
        for name in names:
            buckets = [float(v) for v in re.findall(r"^%s_bucket\{.*\} (\S+)$" % re.escape(name), page, re.M)]
            self.assertEqual(buckets, sorted(buckets))
            count = [float(v) for v in re.findall(r"^%s_count(?:\{.*\})? (\S+)$" % re.escape(name), page, re.M)]
            self.assertEqual(count, [buckets[-1]])
            if name not in ("weft_step_tokens", "vllm:iteration_tokens_total"):     # the stub's engine never steps
                self.assertEqual(count[0], 10 if "inter_token" in name or "per_output" in name else 5, name)
        # Every sample is described before it comes, and only once.
        described = re.findall(r"^# TYPE (\S+)", page, re.M)
        self.assertEqual(len(described), len(set(described)))
        for line in page.splitlines():
            if line[0] != "#":
                base = re.sub(r"_(bucket|sum|count)$", "", re.match(r"[\w:]+", line).group())
                self.assertTrue(base in described or re.match(r"[\w:]+", line).group() in described, line)


class Health(Test):
    def until_health(self, s, status, word):
        while True:
            r = s.ask("GET", "/health")
            if r.json()["status"] == word:
                self.assertEqual(r.status, status)
                return r.json()
            self.assertIn(r.json()["status"], ("ok", "stuck"))

    def test_stuck(self):
        s = self.serve(stuck_ms=200)
        s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1})
        self.assertEqual(s.ask("GET", "/health").json()["last_step_seconds"], None)
        for say in ("prefill", "queue"):        # the stub's engine never steps for these
            c = s.connect()
            c.request("POST", COMPLETIONS, {"prompt": "say " + say})
            self.assertGreater(self.until_health(s, 503, "stuck")["last_step_seconds"], 0.2)
            c.close()
            self.until_health(s, 200, "ok")


class Stopping(Test):
    def test_drain(self):
        s = stub(grace_ms=PATIENCE * 1000)
        idle, half = s.connect(), s.connect()
        idle.request("GET", "/health")
        idle.reply()
        whole = request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 1})
        half.send(whole[:-4])
        c = s.connect()
        c.request("POST", COMPLETIONS, {"prompt": "say slow", "max_tokens": 150, "stream": True})
        c.until(b"data:")
        s.signal()
        while s.ask("GET", "/health").json()["status"] == "ok":
            pass
        r = s.ask("GET", "/health")
        self.assertEqual((r.status, r.json()["status"], r.headers["connection"]), (503, "stopping", "close"))
        idle.send(whole)
        half.send(whole[-4:])
        early = s.connect()     # told before it has sent its body
        early.send(whole[:whole.index(b"\r\n\r\n") + 4])
        for r in (idle.reply(), half.reply(), early.reply(), s.post(CHAT, {"messages": []})):
            self.assertEqual((r.status, r.error()["code"], r.headers["retry-after"], r.headers["connection"]),
                             (503, "stopping", "1", "close"))
        self.assertIn(b'"finish_reason":"length"', c.until(b"[DONE]"))
        for conn in (idle, half, early, c):
            conn.close()
        self.assertEqual(s.wait(), 0)
        s.close()

    def test_idle_connections_do_not_hold_it(self):
        s = stub(grace_ms=3600 * 1000)
        idle, half = s.connect(), s.connect()
        idle.request("GET", "/health")
        idle.reply()
        half.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        s.until("both there", connections=3)
        s.signal()
        self.assertEqual(s.wait(), 0)
        idle.close()
        half.close()
        s.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
