"""A standing attacker: what breaks servers, done to one `weft serve` on a loopback port, while a well-behaved stream
runs and the largest gap between its chunks is taken down.

    attack.py WEFT MODEL [--rounds N] [--seed N]
    attack.py WEFT MODEL --cycles N [--seed N]      kill -9 and damaged prefixes on disk alone
    attack.py WEFT MODEL --sights N [--seed N]      adapters and pictures alone

One round takes seconds and is what the suite runs; more of them draw other sizes and orders.  Each attack says what must
hold: a reply with a status that is meant, a server that is there afterwards, nothing left running, memory given back, the
answer that a cold server gives.  Prints a line for each with how often it was tried; docs/reliability.md has the table.
Chaos of many clients against a cold lone server is soak.py's, odd values in every field and damaged model folders odd.py's.
"""
import argparse
import base64
import glob
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from adapterkit import adapter
from serverkit import CHAT, COMPLETIONS, PATIENCE, Conn, Gone, Server, sanitized

QUICK = os.environ.get("WEFT_TEST_QUICK")
LOOP_MAX = 40 << 20     # bytes: a turn of the loop takes no more processor than hashing these; 40 ms on a Zen 4, 10 are used
GIVEN_BACK = 32         # MB of resident memory that may be left of a whole round

EXPLODES = "^(a|b)*a(a|b){20}$"


def tools(n, parameters):
    return [{"type": "function", "function": {"name": "tool_%d" % i, "parameters": parameters}} for i in range(n)]


class Pace(threading.Thread):
    """Seconds of processor that a byte of hashing takes at its slowest while this runs: another program on the same core makes
    all work on it twice as long."""

    def __init__(self):
        super().__init__(daemon=True)
        self.slowest, self.over = 0, threading.Event()
        self.start()

    def run(self):
        piece = bytes(1 << 20)
        while True:
            began = time.thread_time()
            hashlib.sha256(piece).digest()
            self.slowest = max(self.slowest, (time.thread_time() - began) / len(piece))
            if self.over.wait(0.05):
                return

    def of(self, n):
        self.over.set()
        self.join()
        return self.slowest * n


def chat(content="hi", **more):
    return dict({"messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0}, **more)


def picture(n, side=48):
    """A picture of its own for each n, as a part of a message."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((x * (n + 3) + y * (5 * n + 1) + c * 71) & 255 for x in range(side) for c in range(3)) for y in range(side))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + \
        chunk(b"IEND", b"")
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


class Target(Server):
    """A server, and what a test asks of its process."""

    def __init__(self, weft, model, *options, env=None, before=()):
        super().__init__(list(before) + [weft, "serve", model, "--port", "0", "--port-file", "{port_file}"] + list(options), env=env)

    def resident(self):
        with open("/proc/%d/status" % self.proc.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024

    def beyond_budgets(self):
        """Resident memory without what is kept in bounded stores: prefixes, grammars, turns, responses."""
        m = self.metrics()
        return self.resident() - sum(m[k] for k in ("weft_prefix_bytes", "weft_grammar_bytes", "weft_turn_bytes", "weft_parked_bytes")) / 1048576

    def alive(self):
        r = self.post(COMPLETIONS, {"prompt": "still there?", "max_tokens": 2})
        assert r.status == 200, (r.status, r.text(), self.text()[-3000:])


class Stream(threading.Thread):
    """One well-behaved client; its streams follow each other, and the largest gap between two chunks is kept."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.s, self.gap, self.n, self.stop, self.error = server, 0, 0, threading.Event(), None

    def run(self):
        try:
            while not self.stop.is_set():
                self.one()
        except Exception as e:
            self.error = e

    def one(self):
        c = self.s.connect()
        c.request("POST", COMPLETIONS, {"prompt": "A long story:", "max_tokens": 400, "ignore_eos": True, "stream": True, "user": "good"})
        last = None
        while b"[DONE]" not in c.buf:
            c.buf = c.buf[-16:]
            c.more()
            now = time.monotonic()
            if last:
                self.gap = max(self.gap, now - last)
            last = now
            self.n += 1
        c.close()


class Attack:
    def __init__(self, args):
        self.args, self.dice, self.report = args, random.Random(args.seed), []

    def serve(self, *options, **more):
        return Target(self.args.weft, self.args.model, *options, **more)

    # ---- one server, several attacks, a good client beside them ----

    def framing(self, s):
        """Requests that two parsers could read differently, and some that are none."""
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        body = '{"prompt":"x","max_tokens":1}'
        cases = [head + "Content-Length: %d\r\nContent-Length: 4\r\n\r\n%s" % (len(body), body),
                 head + "Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % len(body),
                 head + "Content-Length : 4\r\n\r\nabcd", head + "Content-Length: 4\r\n X: folded\r\n\r\nabcd",
                 head.replace("\r\n", "\n") + "\n", head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                 head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", head + "Transfer-Encoding: gzip\r\n\r\n",
                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/9.9\r\n\r\n",
                 head + "".join("X%d: y\r\n" % i for i in range(200)) + "\r\n", "GET /" + "a" * 20000 + " HTTP/1.1\r\n\r\n",
                 head + "Content-Length: %d\r\n\r\n" % (1 << 63), head + "Expect: miracles\r\nContent-Length: 1\r\n\r\n"]
        cases += [head + "Content-Length: %s\r\n\r\n%s" % (v, body) for v in ("+29", "-1", "0x1d", "29,29", "")]
        for case in cases:
            c = s.connect()
            c.send(case if isinstance(case, bytes) else case.encode("latin-1"))
            c.half_close()
            text = c.rest()
            c.close()
            status = int(text[9:12]) if text.startswith(b"HTTP/1.1 ") else None
            assert status is None or 400 <= status < 600, (case[:80], text[:200])
        # Nothing of them is taken for the next request.
        c = s.connect()
        c.send(head + "Content-Length: %d\r\n\r\n%s" % (len(body), body) + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert c.reply().status == 200
        assert c.reply().json()["status"] == "ok"
        c.close()
        return len(cases)

    def bombs(self, s):
        """Bodies that ask for far more work or memory than they have bytes."""
        n = 2 if QUICK else 8
        deep = {}
        for _ in range(60):
            deep = {"anyOf": [deep, {"type": "null"}]}
        held = [
            chat(tools=tools(400 * n, {"type": "object", "properties": {"a": {"type": "string", "pattern": EXPLODES}}})),
            chat(tools=tools(120 * n, {"type": "object"})),
            chat(guided_json={"allOf": [{"$ref": "#n"}] * (250 * n), "$defs": dict({str(i): [] for i in range(5000 * n)},
                                                                                   z={"$anchor": "n", "type": "object"})}),
            chat(guided_json={"type": "string", "pattern": "((a{1,50}){1,50}){1,50}"}), chat(guided_json=deep),
            chat(guided_json={"properties": {"k" * 50000: {"anyOf": [{"const": i} for i in range(400)]}}}),
            chat(guided_regex="(a|b)*a(a|b){25}"), chat(guided_grammar='root ::= "a" (("b" root){50}){50}'),
            chat(guided_grammar="root ::= " + "(" * 5000), chat(guided_choice=["x%08d" % i for i in range(1250 * n)]),
            chat(guided_choice=["y" * (1 << k) for k in range(14)]), chat(stop=["s" * 1000] * 4),
        ]
        for size in (100000, 1000000) if not QUICK else (100000,):
            args = '{"a":[' + "{}," * size + "1]}"
            held.append({"max_tokens": 4, "messages": [
                {"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": args}}]}, {"role": "user", "content": "y"}]})
        self.dice.shuffle(held)
        for body in held:
            r = s.post(CHAT, body)
            assert r.status in (200, 400, 413), (r.status, r.text()[:300])
            s.alive()
        r = s.post(CHAT, chat(tools=tools(60000, {"type": "object"})))
        assert r.status == 400 and "too many parts" in r.error()["message"], r.text()[:300]
        # JSON inside of strings counts with the body's; that is said.
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":[' + "{}," * 190000 + "1]}"}}
        r = s.post(CHAT, {"max_tokens": 4, "messages": [
            {"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call] * 5}, {"role": "user", "content": "y"}]})
        assert r.status == 400 and "JSON values" in r.error()["message"], r.text()[:300]
        # A choice that crosses every growth of its automaton is still one that can be chosen.
        r = s.post(CHAT, chat(guided_choice=["z" * 200], max_tokens=300))
        assert r.json()["choices"][0]["message"]["content"] == "z" * 200, r.text()
        return len(held) + 2

    def large(self, s):
        """Each endpoint's large body: the loop serves others meanwhile."""
        n = 1 << (19 if QUICK else 21)
        for path, body in (("/tokenize", {"prompt": "a" * n}), ("/tokenize", {"prompt": "a b " * (n // 4), "return_token_strs": True}),
                           ("/detokenize", {"tokens": [i % 400 for i in range(n // 8)]}),
                           ("/apply-template", {"messages": [{"role": "user", "content": "x" * n}]}),
                           ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "why " * (n // 4)}]}),
                           (COMPLETIONS, {"prompt": "a " * n}), (CHAT, chat("b " * n)), ("/v1/responses", {"input": "c " * n}),
                           ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": "d " * n}]})):
            r = s.post(path, body)
            assert r.status in (200, 400, 413), (path, r.status, r.text()[:300])
        assert s.ask("GET", "/v1/cache").status == 200
        return 10

    def flood(self, s):
        """Idle connections, clients that never read, resets in the midst of a stream."""
        n = 40 if QUICK else 150
        idle = [s.connect() for _ in range(n)]
        deaf = []
        for i in range(4):
            c = s.connect(rcvbuf=2048)
            c.request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 500, "ignore_eos": True, "stream": True, "logprobs": 5, "n": 2})
            deaf.append(c)
        for i in range(n // 4):
            c = s.connect()
            c.request("POST", COMPLETIONS, {"prompt": "reset %d" % i, "max_tokens": 100, "ignore_eos": True, "stream": True})
            if i % 2:
                c.more()
            c.reset()
        s.alive()
        for c in idle + deaf:
            c.close()
        return n + 4 + n // 4

    def leaving(self, s):
        """Work that nobody waits for ends: by leaving, by DELETE, by a deadline."""
        size = 8 << 20      # far more seconds than the whole of this may take
        slow = json.dumps({"prompt": "a" * size})
        c = s.connect()
        c.request("POST", "/tokenize", slow)
        s.at_least("weft_prep_running", 1)
        c.close()
        c = s.connect()
        c.request("POST", "/tokenize", slow, {"x-request-id": "doomed"})
        s.at_least("weft_prep_running", 1)
        while s.ask("DELETE", "/v1/requests/doomed").status == 404:
            pass            # its body is still on the way
        assert c.reply().status == 499
        c.close()
        r = s.post("/tokenize", slow, {"x-request-deadline-ms": "60"})
        assert (r.status, r.error()["code"]) == (504, "deadline"), r.text()[:200]
        s.until("nothing is prepared", prep_running=0, prep_waiting=0)
        return 3

    def turns(self, s):
        """One client's heavy requests do not stand before another's: a worker is left for it."""
        heavy = json.dumps(chat(tools=tools(200, {"type": "object", "properties": {"a": {"type": "string", "pattern": EXPLODES}}})))
        conns = []
        for i in range(4 if QUICK else 8):
            c = Conn(s.port)
            c.request("POST", CHAT, heavy, {"Authorization": "Bearer bad-key"})
            conns.append(c)
        r = s.post(CHAT, chat("good"), {"Authorization": "Bearer good-key"})
        assert r.status == 200, r.text()
        c = Conn(s.port)        # whoever asked first is not all done when the other one is
        c.request("GET", "/metrics", headers={"Authorization": "Bearer good-key"})
        text = c.reply().text()
        c.close()
        waiting = sum(float(re.search(r"^weft_prep_%s (\S+)" % k, text, re.M).group(1)) for k in ("running", "waiting"))
        assert waiting > 0, "all heavy requests were done before a light one"
        for c in conns:
            assert c.reply().status == 400
            c.close()
        return len(conns) + 1

    # ---- servers of their own ----

    def shrinking(self):
        """A model file that is cut while it is served: errors, not a lost process."""
        with tempfile.TemporaryDirectory() as d:
            model = os.path.join(d, "m")
            shutil.copytree(self.args.model, model)
            s = Target(self.args.weft, model, "--tune", "no-huge-pages")
            s.alive()
            os.truncate(os.path.join(model, "model.safetensors"), 4096)
            for i in range(3):
                r = s.post(COMPLETIONS, {"prompt": "after %d" % i, "max_tokens": 2})
                assert r.status == 500 and ": model.safetensors became shorter" in r.error()["message"], (r.status, r.text())
            r = s.ask("GET", "/health")
            assert (r.status, r.json()["status"]) == (503, "model lost"), r.text()
            s.close()
        return 4

    def no_memory(self):
        """A body for which there is no memory ends itself alone."""
        if sanitized(self.args.weft):
            return 0
        s = self.serve("--kv-bytes", "8M", "--prompt-cache-bytes", "8M", "--tune", "no-huge-pages", "--ctx-size", "256", "--parallel", "1", "--threads", "1")
        with open("/proc/%d/statm" % s.proc.pid) as f:
            now = int(f.read().split()[0]) * resource.getpagesize()
        resource.prlimit(s.proc.pid, resource.RLIMIT_AS, (now + (48 << 20), now + (48 << 20)))
        c = s.connect()
        c.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (60 << 20))
        try:
            for _ in range(60):
                c.send(b"x" * (1 << 20))
            status = c.reply().status
        except (OSError, Gone):
            status = 503        # the connection was closed before all of it was sent
        c.close()
        assert status in (503, 413, 400), status
        s.alive()
        s.close()
        return 1 + sum(self.short(mb) for mb in (140, 180, 240))

    def short(self, mb):
        """A long prompt where there is memory for its body and not for its work: 503, or what it gets elsewhere."""
        s = self.serve("--kv-bytes", "8M", "--prompt-cache-bytes", "8M", "--tune", "no-huge-pages", "--ctx-size", "256", "--parallel", "1", "--threads", "1")
        with open("/proc/%d/statm" % s.proc.pid) as f:
            now = int(f.read().split()[0]) * resource.getpagesize()
        resource.prlimit(s.proc.pid, resource.RLIMIT_AS, (now + (mb << 20), now + (mb << 20)))
        n = 0
        for text in ("a" * (8 << 20), "a b " * (2 << 20)):
            for path, body in (("/tokenize", {"prompt": text}), (COMPLETIONS, {"prompt": text}),
                               (CHAT, {"messages": [{"role": "user", "content": text}]})):
                r = s.post(path, body)
                assert r.status in (200, 503) or (r.status == 400 and "too long" in r.text()), (mb, path, r.status, r.text()[:300])
                n += 1
        s.alive()
        s.close()
        return n

    def descriptors(self):
        """Standard descriptors that are closed, or lead to nobody: no socket of the server's takes their place."""
        ways = ("<&- >&- 2>&-", "2>&-", "2> >(exit 0)", "> >(exit 0) 2>&1")
        for way in ways:
            s = self.serve(before=["bash", "-c", 'exec "$0" "$@" ' + way])
            s.alive()
            for fd in range(3):
                to = os.readlink("/proc/%d/fd/%d" % (s.proc.pid, fd))
                assert not to.startswith(("socket:", "anon_inode:")), (way, fd, to)
            s.close()
        return len(ways)

    def stores(self, cycles):
        """kill -9 under load, then damaged files of kept prefixes: the answers of a cold server."""
        bodies = [{"prompt": "The story of number %d. " % i + "It goes on and on. " * 20, "max_tokens": 12, "temperature": 0} for i in range(6)]
        cold = self.serve("--prompt-cache-bytes", "0")
        truth = [cold.post(COMPLETIONS, b).json()["choices"][0]["text"] for b in bodies]
        cold.close()
        asked = 0
        with tempfile.TemporaryDirectory() as d:
            for _ in range(cycles):
                s = self.serve("--prompt-cache-dir", d)
                for b, want in zip(bodies, truth):
                    got = s.post(COMPLETIONS, b).json()["choices"][0]["text"]
                    assert got == want, (got, want)
                    asked += 1
                load = [s.connect() for _ in range(3)]      # what is written when it ends is cut anywhere
                for i, c in enumerate(load):
                    c.request("POST", COMPLETIONS, {"prompt": "%d of %d. " % (i, asked) + "And so on. " * 40, "max_tokens": 200,
                                                    "ignore_eos": True, "stream": True})
                for c in load[:self.dice.randrange(len(load) + 1)]:
                    c.more()
                s.signal(signal.SIGKILL)
                s.wait()
                for c in load:
                    c.close()
                s.log.close()
                s.dir.cleanup()
                self.damage(d)
        return asked

    def clocks(self):
        """The wall clock jumps while answers run and connections wait: answers, connections and kept prefixes stay."""
        library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not library:
            raise SystemExit("no libfaketime: script/packages")
        body = {"prompt": "The clock in the hall. " * 20, "max_tokens": 600, "ignore_eos": True, "temperature": 0}
        jumps = ["+400d", "-400d", "+3h", "-2h", "+0"]
        with tempfile.TemporaryDirectory() as d:
            now = os.path.join(d, "now")

            def jump(to):
                with open(now + ".new", "w") as f:
                    f.write(to + "\n")
                os.rename(now + ".new", now)

            jump("+0")
            env = dict(os.environ, LD_PRELOAD=library[0], FAKETIME_TIMESTAMP_FILE=now, FAKETIME_NO_CACHE="1", DONT_FAKE_MONOTONIC="1")
            s = self.serve("--prompt-cache-dir", os.path.join(d, "kept"), env=env)
            want = s.post(COMPLETIONS, body).json()["choices"][0]["text"]
            idle = s.connect()
            for to in jumps:
                c = s.connect()
                c.request("POST", COMPLETIONS, dict(body, stream=True), {"x-request-deadline-ms": 600000})
                while b"data: " not in c.buf:
                    c.more()
                jump(to)
                got = "".join(e["choices"][0]["text"] for e in c.reply().events() if e["choices"])
                assert got == want, (to, got, want)
                c.close()
                idle.request("POST", COMPLETIONS, body)
                r = idle.reply().json()
                assert r["choices"][0]["text"] == want, (to, r)
                days = round((r["created"] - time.time()) / 86400)
                assert days == {"+400d": 400, "-400d": -400}.get(to, 0), (to, r["created"])
            idle.close()
            s.close()
            jump("-400d")      # what is kept comes from the future now
            s = self.serve("--prompt-cache-dir", os.path.join(d, "kept"), env=env)
            r = s.post(COMPLETIONS, body).json()
            assert r["choices"][0]["text"] == want and r["usage"]["prompt_tokens_details"]["cached_tokens"], r
            s.close()
        return len(jumps) + 1

    def sights(self):
        """Pictures and adapters at once, scales set meanwhile, wrong adapters and pictures among them, clients that leave: each
        answer is the one that its request gets alone of a server that keeps nothing."""
        model = os.path.join(os.path.dirname(os.path.abspath(self.args.model)), "weft-tiny-eyes")
        if not os.path.exists(os.path.join(model, "model.safetensors")):
            raise SystemExit("no %s" % model)
        weights = [("one", []), ("two", []), ("base", []), ("base", [{"id": 0, "scale": 0.5}, {"id": 1, "scale": 1}])]
        asks = [dict(chat([picture(i % 3), {"type": "text", "text": "What is it? %d" % (i % 2)}] + [picture(5)] * (i % 2), max_tokens=6, logprobs=True),
                     model=name, **({"lora": lora} if lora else {"lora": []} if name == "base" else {}))
                for i in range(3) for name, lora in weights]
        wrong = [(404, dict(asks[0], model="three")), (400, dict(asks[0], lora=[{"id": 7}])), (400, dict(asks[0], lora=[{"id": 0, "scale": 1e999}])),
                 (400, dict(asks[0], lora=[{"id": 0, "scale": "x"}])),
                 (400, dict(asks[0], **chat([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}])))]
        with tempfile.TemporaryDirectory() as d:
            options = []
            for i, name in enumerate(("one", "two")):
                adapter(model, os.path.join(d, name), self.args.seed + i)
                options += ["--lora", "%s=%s" % (name, os.path.join(d, name))]

            def serve(*more):
                return Target(self.args.weft, model, "--alias", "base", *options, *more)

            s = serve("--prompt-cache-bytes", "0")
            truth = [s.post(CHAT, a).json()["choices"] for a in asks]
            s.close()
            assert len({json.dumps(t) for t in truth}) > len(asks) // 2, "adapters or pictures change nothing"
            s = serve("--parallel", "4", "--prompt-cache-bytes", "4M", "--prompt-cache-dir", os.path.join(d, "kept"))
            unequal, left, lock = [], [], threading.Lock()

            def client(seed):
                dice, mine = random.Random(seed), []
                for _ in range(8 if QUICK else 24):
                    i, way = dice.randrange(len(asks)), dice.randrange(6)
                    if way == 0:
                        status, body = dice.choice(wrong)
                        r = s.post(CHAT, json.dumps(body).replace("Infinity", "1e999"))
                        if r.status != status:
                            mine.append((status, r.status, r.text()[:200]))
                    elif way == 1:      # what requests that name none get; all here name theirs
                        s.post("/lora-adapters", [{"id": dice.randrange(2), "scale": dice.choice([0, 0.5, 1, -1])}])
                    elif way == 2:
                        c = s.connect()
                        c.request("POST", CHAT, dict(asks[i], stream=True, max_tokens=200, ignore_eos=True))
                        if dice.randrange(2):
                            c.more()
                        c.reset()
                    else:
                        r = s.post(CHAT, asks[i])
                        if r.status != 200 or r.json()["choices"] != truth[i]:
                            mine.append((i, r.status, r.text()[:300], truth[i]))
                    with lock:
                        left.append(way)
                with lock:
                    unequal.extend(mine)

            for lap in range(2):
                clients = [threading.Thread(target=client, args=(self.dice.random(),)) for _ in range(4)]
                for c in clients:
                    c.start()
                for c in clients:
                    c.join()
                assert not unequal, unequal[0]
                s.until("nothing is left running", requests_running=0, requests_waiting=0, prep_running=0)
                if not lap:
                    before = s.beyond_budgets()
            if not sanitized(self.args.weft):
                self.memory(s, before)
            s.close()
            for bad in ("adapter_model.safetensors", "adapter_config.json"):      # a damaged one is refused at the start
                path = os.path.join(d, "one", bad)
                os.truncate(path, os.path.getsize(path) // 2)
                r = subprocess.run([self.args.weft, "serve", model, "--port", "0"] + options[:2], capture_output=True, text=True)
                assert r.returncode == 1 and path in r.stderr, (bad, r.returncode, r.stderr)
        return len(left) + len(asks) + 2

    def damage(self, folder):
        """A few files of a folder flipped, cut, lengthened, exchanged, linked elsewhere or dated far away."""
        files = sorted(p for at, _, names in os.walk(folder) for p in (os.path.join(at, f) for f in names)
                       if stat.S_ISREG(os.lstat(p).st_mode) and os.path.basename(p) != "lock")
        for path in self.dice.sample(files, min(len(files), 6)):
            size, how = os.path.getsize(path), self.dice.randrange(7)
            if how == 0 and size:
                with open(path, "r+b") as f:
                    f.seek(self.dice.randrange(size))
                    byte = f.read(1)[0]
                    f.seek(-1, 1)
                    f.write(bytes([byte ^ 1 << self.dice.randrange(8)]))
            elif how == 1:
                os.truncate(path, self.dice.randrange(size + 1))
            elif how == 2:
                with open(path, "ab") as f:
                    f.write(b"more")
            elif how == 3:
                other = self.dice.choice(files)
                if stat.S_ISREG(os.lstat(other).st_mode):
                    shutil.copyfile(other, path + ".other")
                    os.replace(path + ".other", path)
            elif how == 4:
                os.unlink(path)
                os.symlink(self.dice.choice([path, "/dev/zero", "/etc/passwd", os.path.basename(self.dice.choice(files))]), path)
            elif how == 5:
                os.utime(path, (1 << 33, 1 << 33) if self.dice.randrange(2) else (0, 0))
            else:
                os.unlink(path)
                os.mkdir(path) if self.dice.randrange(2) else os.mkfifo(path)

    # ---- all of it ----

    def beside(self, s, what):
        good = Stream(s)
        good.start()
        n = what(s)
        good.stop.set()
        good.join(PATIENCE)
        assert not good.error and good.n, (what.__name__, good.error)
        self.say(what.__name__, n, "largest gap of a stream %.3f s" % good.gap)

    def say(self, name, n, result):
        self.report.append((name, n))
        print("%-11s %5d tries; %s" % (name, n, result), flush=True)

    def round(self):
        s = self.serve("--queue", "64", "--timeout", "60")
        s.alive()
        self.beside(s, self.framing)
        before = s.beyond_budgets()     # by now the weights are in memory, and a stream has run
        pace = Pace()
        for what in (self.bombs, self.large, self.flood, self.leaving):
            self.beside(s, what)
        s.until("nothing is left running", requests_running=0, requests_waiting=0, prep_running=0)
        m = s.metrics()
        longest, bound = m["weft_loop_longest_cpu_seconds"], pace.of(LOOP_MAX)
        print("longest turn of the loop: %.1f ms of processor (%.1f allowed), %.1f ms by the clock" % (
            1e3 * longest, 1e3 * bound, 1e3 * m["weft_loop_longest_seconds"]))
        if not sanitized(self.args.weft):
            assert longest < bound, "a turn of the loop took %.1f ms of processor" % (1e3 * longest)
            self.memory(s, before)
        s.close()
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("good good-key\nbad bad-key\n")
            keys.flush()
            s = self.serve("--api-key-file", keys.name)
            self.say("turns", self.turns(s), "the light client was answered first")
            s.close()
        self.say("shrinking", self.shrinking(), "500 each, /health 503")
        self.say("no_memory", self.no_memory(), "503, and the next is answered")
        self.say("descriptors", self.descriptors(), "a server that answers")
        if not sanitized(self.args.weft):       # the sanitizer wants to be the first library
            self.say("clocks", self.clocks(), "the same answers, connections and prefixes")
        self.say("sights", self.sights(), "the answers of requests that are alone and cold")
        self.say("stores", self.stores(2 if QUICK else 4), "the answers of a cold server")

    def memory(self, s, before):
        end = time.monotonic() + PATIENCE       # how soon is a matter of the machine; that it comes is not
        while (now := s.beyond_budgets()) > before + GIVEN_BACK and time.monotonic() < end:
            time.sleep(0.1)
        print("resident without what is kept: %.0f MB before the attacks, %.0f MB after them" % (before, now))
        assert now <= before + GIVEN_BACK, (before, now)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("weft")
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--cycles", type=int, default=0)
    p.add_argument("--sights", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    a = Attack(p.parse_args())
    if not os.path.exists(os.path.join(a.args.model, "model.safetensors")):
        print("skipped: %s has no model.safetensors" % a.args.model)
        sys.exit(77)
    if a.args.cycles:
        a.say("stores", a.stores(a.args.cycles), "%d cycles, the answers of a cold server" % a.args.cycles)
        return
    if a.args.sights:
        for _ in range(a.args.sights):
            a.say("sights", a.sights(), "the answers of requests that are alone and cold")
        return
    for _ in range(a.args.rounds):
        a.round()
    print("%d tries" % sum(n for _, n in a.report))


main()
