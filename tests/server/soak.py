"""A random world of many clients against one `weft serve`, and what each was told against what a cold server that knows
nobody else says to the same body: text, thoughts, calls, log-probabilities, reason and counts, byte for byte.

    soak.py WEFT MODELS [--seed N] [--worlds N] [--clients N] [--requests N] [--prefix COMMAND] [--verbose]

World N is drawn from seed N: model, cache formats, drafters, budgets, threads, a folder for prefixes with kill -9 in
between; then clients that go on, edit, share, repeat, stream, read slowly, leave at any moment, are cancelled by name, run
into deadlines.  What is drawn is the same in each run, what meets what is not.  Afterwards nothing may be held, no error
logged, no kept prefix wrong.  Prints a line a world; the status is 1 when anything deviated.
"""
import argparse
import atexit
import json
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import threading
import time

from serverkit import CHAT, COMPLETIONS, Conn, Gone, Server, request, sanitized

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
WORDS = ("Lima Quito Paris Rome Oslo Cairo Delhi Tokyo capital code number river of the is in and three seven red blue why not "
         "what where give say list sum").split()
QUESTIONS = ("What is the capital of {}?", "The code of {} is 4711. What is the code of {}?", "Spell the word {}.", "What do you get for 17 + 28?",
             "Say {} five times.", "Give me a JSON object with name and size of {}.", "What is the weather in {}?", "Why {}?")
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "required": ["city"], "additionalProperties": False, "properties": {
        "city": {"type": "string", "maxLength": 15}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}},
    {"type": "function", "function": {"name": "calculator", "parameters": {
        "type": "object", "properties": {"expression": {"type": "string"}}}}}]
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "n"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
    "list": {"type": "array", "maxItems": 3, "items": {"anyOf": [{"const": "x"}, {"type": "integer", "maximum": 5}]}}}}


# ---- answers: what must be equal ----

VOLATILE = {"id", "created", "created_at", "call_id", "item_id", "cache", "prompt_tokens_details", "input_tokens_details",
            "accepted_prediction_tokens", "rejected_prediction_tokens", "x_request_id"}


def lasting(v):
    """Without names made up for this answer, and what caches and drafts saved."""
    if isinstance(v, dict):
        out = {k: lasting(w) for k, w in v.items() if k not in VOLATILE}
        if "cache_read_input_tokens" in out:
            out["input_tokens"] += out.pop("cache_read_input_tokens") + out.pop("cache_creation_input_tokens", 0)
        return out
    return [lasting(w) for w in v] if isinstance(v, list) else v


def add(into, k, v):
    """A delta joins what came before it."""
    old = into.get(k)
    if old is None or v is None:
        into[k] = v if old is None else old
    elif isinstance(v, str) and k not in ("role", "type", "name"):
        into[k] = old + v
    elif isinstance(v, list):
        into[k] = old + v
    elif isinstance(v, dict):
        for kk, vv in v.items():
            add(old, kk, vv)
    else:
        into[k] = v


def chat_stream(events):
    choices, usage = {}, None
    for e in events:
        usage = e.get("usage") or usage
        for c in e["choices"]:
            into = choices.setdefault(c["index"], {"message": {}, "calls": {}})
            for k, v in c.get("delta", {}).items():
                if k == "tool_calls":
                    for call in v:
                        add(into["calls"].setdefault(call["index"], {}), "function", dict(call["function"]))
                else:
                    add(into["message"], k, v)
            for k, v in c.items():
                if k not in ("index", "delta"):
                    add(into, k, json.loads(json.dumps(v)))
    return {"choices": choices, "usage": usage}


def block_stream(events):
    """Of messages: blocks by index."""
    blocks, last, usage = {}, {}, {}
    for e in events:
        if e["type"] == "message_start":
            usage.update(e["message"]["usage"])
        elif e["type"] == "content_block_start":
            blocks[e["index"]] = dict(e["content_block"])
        elif e["type"] == "content_block_delta":
            for k, v in e["delta"].items():
                if k != "type":
                    add(blocks[e["index"]], k, v)
        elif e["type"] == "message_delta":
            last = e["delta"]
            usage.update(e["usage"])
    return {"content": blocks, "last": last, "usage": usage}


def item_stream(events):
    """Of responses: text by item, and the whole at the end."""
    items, whole = {}, None
    for e in events:
        if e["type"].endswith(".delta"):
            add(items.setdefault(e["output_index"], {}), e["type"], e["delta"])
            add(items[e["output_index"]], "logprobs", e.get("logprobs") or [])
        elif e["type"] in ("response.completed", "response.incomplete", "response.failed"):
            whole = e["response"]
    return {"items": items, "whole": whole}


def parse_stream(path, text):
    """(answer, whole?, error or None) of the events that came, the last of which may be cut."""
    events, ended, error = [], False, None
    for part in text.split("\n\n")[:-1]:
        data = [line[6:] for line in part.split("\n") if line.startswith("data: ")]
        if not data:
            continue
        if data[0] == "[DONE]":
            ended = True
            continue
        e = json.loads(data[0])
        if "error" in e and e.get("type") in (None, "error"):
            error = e["error"]
            continue
        if e.get("type") == "response.failed":
            error = e["response"]["error"]
        if e.get("type") in ("message_stop", "response.completed", "response.incomplete"):
            ended = True
        events.append(e)
    make = {MESSAGES: block_stream, RESPONSES: item_stream}.get(path, chat_stream)
    return lasting(make(events)), ended, error


def begins(part, whole, path=""):
    """None, or where what came of an answer that was cut is not the beginning of the whole one."""
    if part is None or path in ("/usage", "/whole", "/last"):
        return None
    if isinstance(part, dict):
        if not isinstance(whole, dict):
            return path
        for k, v in part.items():
            if k not in whole:
                return None if v in (None, [], "", {}) else path + "/%s (not there)" % k
            bad = begins(v, whole[k], path + "/%s" % k)
            if bad:
                return bad
        return None
    if isinstance(part, str) and isinstance(whole, str):
        return None if whole.startswith(part) else path
    if isinstance(part, list) and isinstance(whole, list):
        return None if whole[:len(part)] == part else path
    return None if part == whole else path


# ---- bodies ----

class Author:
    """Bodies of one client; conversations go on from the answers it got."""

    def __init__(self, rng, ctx, shared):
        self.rng, self.ctx, self.shared = rng, ctx, shared
        self.talk = None
        self.said = []          # bodies of before, for asking again

    def words(self, n):
        return " ".join(self.rng.choice(WORDS) for _ in range(n))

    def question(self):
        q = self.rng.choice(QUESTIONS)
        return q.replace("{}", self.rng.choice(WORDS)) + (" " + self.words(self.rng.randrange(60)) if self.rng.random() < .3 else "")

    def history(self):
        rng = self.rng
        if self.talk and sum(len(json.dumps(m)) for m in self.talk) > self.ctx:        # some tokens have but one letter
            self.talk = None
        if self.talk and rng.random() < .5:
            pass                                                                 # goes on
        elif self.talk and len(self.talk) > 2 and rng.random() < .4:             # edits what was asked
            at = rng.choice([i for i, m in enumerate(self.talk) if m["role"] == "user"])
            self.talk = self.talk[:at]
        else:
            self.talk = []
            if rng.random() < .7:
                self.talk.append({"role": "system", "content": rng.choice(self.shared)})
            if rng.random() < .3:
                for _ in range(rng.randrange(1, 4)):
                    self.talk += [{"role": "user", "content": self.question()}, {"role": "assistant", "content": self.words(9)}]
        if not self.talk or self.talk[-1]["role"] != "user":
            self.talk.append({"role": "user", "content": self.question()})
        return [dict(m) for m in self.talk]

    def heard(self, path, body, answer):
        """An answer of the assistant becomes part of the talk, if it is of this talk."""
        if path != CHAT or not self.talk or body["messages"] != self.talk or body.get("n", 1) > 1:
            return
        c = answer["choices"][0]
        if "calls" in c:
            calls, text = [v["function"] for v in c["calls"].values()], c["message"].get("content")
        else:
            calls, text = [t["function"] for t in c["message"].get("tool_calls") or []], c["message"].get("content")
        message = {"role": "assistant", "content": text or ""}
        if calls:
            message["tool_calls"] = [{"id": "call%d" % i, "type": "function", "function": f} for i, f in enumerate(calls)]
        self.talk.append(message)
        for i, f in enumerate(calls):
            self.talk.append({"role": "tool", "tool_call_id": "call%d" % i, "content": self.words(4)})
        if not calls and not text:
            self.talk = None

    def sampling(self, body, path):
        rng = self.rng
        if rng.random() < .4:
            body["temperature"] = 0
        else:
            body.update(temperature=rng.choice((.5, 1, 1.5)), seed=rng.randrange(1000))
            if rng.random() < .4:
                body.update(rng.choice(({"top_k": 20}, {"top_p": .9}, {"min_p": .05}, {"top_p": .8, "top_k": 40})))
        if rng.random() < .2:
            body.update(rng.choice(({"repetition_penalty": 1.3}, {"presence_penalty": 1.5, "frequency_penalty": .5},
                                    {"repetition_penalty": 1.2, "repetition_context_size": 20})))
        if rng.random() < .15:
            body["logit_bias"] = {str(rng.randrange(300, 2000)): rng.choice((-100, -3, 4)) for _ in range(5)}
        if rng.random() < .25:
            body["stop_sequences" if path == MESSAGES else "stop"] = rng.sample(("a", "is", " of", ".", "\n", "7", "Lima is"), 2)
        if rng.random() < .15:
            body["min_tokens"] = rng.randrange(1, 30)
        if rng.random() < .35:
            body["ignore_eos"] = True
        if rng.random() < .1:
            body["speculation"] = False
        if rng.random() < .1:
            body["priority"] = rng.choice((-5, 3))
        if rng.random() < .1:
            body["cache_salt"] = rng.choice("ab")
        if rng.random() < .1:
            body["cache_report"] = True
        if path in (CHAT, COMPLETIONS):
            if rng.random() < .2:
                body["n"] = rng.randrange(2, 5)
            if rng.random() < .5:
                body["logprobs"] = True if path == CHAT else rng.randrange(4)
                if path == CHAT:
                    body["top_logprobs"] = rng.randrange(4)
            if rng.random() < .2:
                body.update(rng.choice((
                    {"guided_json": SCHEMA}, {"guided_choice": ["Lima is far", "Lima is near", "no"]}, {"guided_regex": "[a-f]{3,12}(, [0-9]+)*"},
                    {"grammar": 'root ::= term (" * " term)*\nterm ::= [0-9]+ | "(" root " + " root ")"'},
                    {"response_format": {"type": "json_object"}})))

    def held(self, body):
        return any(k in body for k in ("guided_json", "guided_choice", "guided_regex", "grammar", "response_format"))

    def new(self):
        rng = self.rng
        if self.said and rng.random() < .12:
            path, body = rng.choice(self.said)
            return path, dict(body)
        path = rng.choices((CHAT, COMPLETIONS, RESPONSES, MESSAGES), (6, 3, 1, 1))[0]
        longest = self.ctx // 3
        body = {"max_tokens": rng.choice((0, 1, 2, 7)) if rng.random() < .15 else rng.randrange(8, 60) if rng.random() < .7
                else rng.randrange(60, longest)}
        self.sampling(body, path)
        if rng.random() < .5:
            body["stream"] = True
        if path == COMPLETIONS:
            kind = rng.randrange(4)
            if kind == 0:               # ids, some beginnings of which are everybody's; lengths around multiples of 64
                n = min(longest, 64 * rng.randrange(1, 9) + rng.randrange(-2, 3))
                keep = rng.randrange(n + 1)
                first = rng.randrange(2)
                body["prompt"] = [100 + (i * i * 7 + first) % 300 for i in range(keep)] + [rng.randrange(100, 1500) for _ in range(n - keep)]
            elif kind == 1:
                body["prompt"] = rng.choice(self.shared) + self.words(rng.randrange(1, 20))
            elif kind == 2:             # repeats itself: something to guess from
                body["prompt"] = (self.words(6) + " ") * rng.randrange(2, 12)
            else:
                body["prompt"] = [self.words(5), self.words(8)]
        else:
            body["messages"] = self.history()
            if path == CHAT and rng.random() < .2 and not self.held(body):
                body["tools"] = TOOLS
                body["tool_choice"] = rng.choice(("auto", "required", {"type": "function", "function": {"name": "get_weather"}}))
                body["parallel_tool_calls"] = rng.random() < .5
            if path == CHAT and rng.random() < .2:
                body["chat_template_kwargs"] = {"enable_thinking": True}
                if rng.random() < .7:
                    body["thinking_budget"] = rng.randrange(0, 40)
            if path == RESPONSES:
                body["input"] = [m for m in body.pop("messages") if m["role"] in ("user", "system")]
                body["max_output_tokens"] = max(1, body.pop("max_tokens"))
                body["store"] = False
                body.pop("stop", None)
            if path == MESSAGES:
                system = [m["content"] for m in body["messages"] if m["role"] == "system"]
                body["messages"] = [{"role": "user", "content": m["content"]} for m in body["messages"] if m["role"] == "user"][-1:]
                if system:
                    body["system"] = system[0]
                body["max_tokens"] = max(1, body["max_tokens"])
        if path in (CHAT, COMPLETIONS) and body.get("stream") and rng.random() < .5:
            body["stream_options"] = {"include_usage": True}
        self.said = (self.said + [(path, dict(body))])[-8:]
        return path, body


# ---- one world ----

LIVE = []       # servers; none outlives this program


def end_all():
    for s in LIVE:
        if s.proc.poll() is None:
            s.proc.kill()

def drawn(rng, models):
    """The options of a world: those that decide the answers, and the others."""
    model = rng.choice(("weft-tiny", "weft-tiny", "weft-tiny-4bit", "weft-tiny-8bit"))
    same = ["--ctx-size", str(rng.choice((768, 1024, 2048))), "--turn-replay", "off"]
    same += rng.choice(([], [], ["--kv-bits", "8"], ["--kv-bits", "4"], ["--kv-bits", "3.5"], ["--kv-bits", "2"],
                        ["--kv-bits", "4", "--tune", "kv-quant-scheme=uniform", "--tune", "kv-skip-layers=last"],
                        ["--tune", "kv-key-bits=8", "--tune", "kv-value-bits=4", "--tune", "kv-group-size=32"]))
    same += rng.choice(([], [], [], [], ["--tune", "arith=f32"], ["--cpu", "avx2"]))
    more = ["--threads", str(rng.choice((1, 1, 2))), "--parallel", str(rng.choice((1, 2, 4, 8, 8))),
            "--tune", "prefill-step-size=" + str(rng.choice((0, 0, 8, 33, 64, 100))), "--tune", "decode-gap-ms=" + str(rng.choice((1, 10, 100))),
            "--tune", "answer-reserve=" + str(rng.choice((4, 16, 64, 512))),
            "--tune", "client-stall-timeout=" + rng.choice(("1", "3600")), "--queue", rng.choice(("256", "256", "6")), "--grace-seconds", "5",
            "--tune", "idle-timeout=3600"]       # stopping both sides for a while is no fault
    kinds = [["none"], ["ngram"], ["auto"], ["model", "--draft-model", os.path.join(models, "weft-tiny-draft")],
             ["auto", "--draft-model", os.path.join(models, "weft-tiny-draft")]]
    if model == "weft-tiny":
        kinds += [["mtp"], ["mtp"]]
    kind = rng.choice(kinds)
    draft = ["--draft-kind"] + kind
    if kind[0] != "none" and rng.random() < .6:
        draft += ["--tune", "draft-fixed", "--num-draft-tokens", str(rng.choice((1, 3, 8, 16)))]
    more += draft
    size = rng.choice((None, 0, "300K", "1M", "4M", "16M"))
    if size is not None:
        more += ["--prompt-cache-bytes", str(size)]
    verify = rng.choice(("0", "0.3", "1", "1"))
    if size != 0:
        more += ["--verify-cache", verify]
    return model, same, more, rng.choice((0, 1, 1, 1.1, 1.3)), size != 0 and rng.random() < .5, rng.choice(("20G", "20G", "2M"))


class Run:
    def __init__(self, weft, models, seed, clients, requests, prefix, verbose):
        self.rng = random.Random(seed)
        self.weft, self.seed, self.n_clients, self.n_requests, self.prefix, self.verbose = weft, seed, clients, requests, prefix, verbose
        name, self.same, self.more, tight, disk, disk_bytes = drawn(self.rng, models)
        self.model = os.path.join(models, name)
        self.tmp = tempfile.TemporaryDirectory()
        if disk:
            self.more += ["--prompt-cache-dir", os.path.join(self.tmp.name, "kept"), "--prompt-cache-disk-bytes", disk_bytes]
        self.kills = self.rng.randrange(4) if disk else 0
        self.bad, self.lock, self.done = [], threading.Lock(), []
        self.count = dict.fromkeys(("whole", "cut", "refused", "lost", "ended", "checked", "beginnings"), 0)
        self.total = {}
        self.s = None
        self.down = threading.Event()
        self.memory = self.budget(tight) if tight else 0
        if self.memory:
            self.more += ["--memory", "%dK" % self.memory]

    def wrong(self, what):
        with self.lock:
            self.bad.append(what)
        print("DEVIATION world %d: %s" % (self.seed, what), flush=True)

    def start(self, *options):
        LIVE.append(Server(self.prefix + [self.weft, "serve", self.model, "--port", "0", "--port-file", "{port_file}", *self.same, *options]))
        return LIVE[-1]

    def budget(self, times):
        """The least memory with which a whole context fits, some times that: with less, answers end where the pages do."""
        low = 6 << 10
        while True:
            try:
                s = self.start(*self.more, "--memory", "%dK" % low)
            except RuntimeError:
                low = low * 9 // 8
                continue
            tokens = int(re.search(r"keys and values up to \d+ \((\d+) tokens", s.text()).group(1))
            s.close()
            if tokens >= int(self.same[1]):         # never more, where no prefixes are kept
                return int(low * times)
            low = low * 17 // 16

    # -- clients --

    def exchange(self, path, body, rng, name):
        """One request with one fate: (what came of it, answer or None)."""
        fate = rng.choices(("plain", "slow", "leave", "delete", "deadline", "half"), (60, 8, 12, 8, 6, 4))[0]
        headers = {"x-request-id": name}
        if fate == "deadline":
            headers["x-request-deadline-ms"] = str(rng.choice((1, 20, 100, 500, 3000)))
        c = Conn(self.s.port, 4096 if fate == "slow" else None)
        timer = None
        try:
            c.s.settimeout(240)
            data = request("POST", path, body, headers)
            if fate == "half":
                c.send(data[:rng.randrange(1, len(data))])
                time.sleep(rng.choice((0, .01)))
                return "left", None
            c.send(data)
            if fate == "leave":
                if rng.random() < .5:
                    time.sleep(rng.random() ** 3)
                    text = b""
                else:
                    want = rng.randrange(1, 4000)
                    try:
                        while len(c.buf) < want and select.select([c.s], [], [], 1)[0]:
                            c.more()
                    except Gone:
                        pass
                    text = c.buf
                rng.choice((c.reset, c.half_close, lambda: None))()
                return "left", text
            if fate == "delete":
                timer = threading.Timer(rng.random() ** 3, self.delete, (name,))
                timer.start()
            if fate == "slow":
                pause = rng.choice((.02, .1, .4))
                for _ in range(rng.randrange(1, 8)):
                    time.sleep(pause)
                    if not select.select([c.s], [], [], 1)[0]:
                        break               # it has come whole, and the connection waits for another request
                    d = c.s.recv(rng.choice((1, 100, 1000)))
                    if not d:
                        raise Gone
                    c.buf += d
            status, _, h = c.head()
            if h.get("transfer-encoding") == "chunked":
                text = b""
                try:
                    while True:
                        n = int(c.until(b"\r\n"), 16)
                        text += c.exactly(n)
                        c.exactly(2)
                        if not n:
                            break
                except Gone:
                    if fate != "slow" and not self.down.is_set():
                        raise
                return status, text
            return status, c.exactly(int(h["content-length"]))
        finally:
            if timer:
                timer.cancel()
            c.close()

    def delete(self, name):
        try:
            self.s.ask("DELETE", "/v1/requests/" + name)
        except (OSError, Gone):
            pass

    def client(self, k):
        rng = random.Random("%d %d" % (self.seed, k))
        author = Author(rng, int(self.same[1]), self.shared)
        for i in range(self.n_requests):
            path, body = author.new()
            name = "w%d-c%d-r%d" % (self.seed, k, i)
            if rng.random() < .5:
                body["user"] = "client %d" % k
            while True:
                server = self.s
                try:
                    status, text = self.exchange(path, body, random.Random(name), name)
                    break
                except (OSError, Gone, AssertionError, ValueError) as e:
                    if server is self.s and not self.down.is_set():
                        time.sleep(.3)          # a kill is told after it happened
                        if server is self.s and not self.down.is_set():
                            self.wrong("%s: %r, and the server was not killed\n%s" % (name, e, json.dumps(body)))
                            return
                    while self.down.is_set():
                        time.sleep(.01)
                    with self.lock:
                        self.count["lost"] += 1
            self.take(author, path, body, status, text, name)

    def take(self, author, path, body, status, text, name):
        kind = "ended"
        if status == "left":
            kind = "cut"
            if text and body.get("stream") and b"\r\n\r\n" in text:
                text = unchunk(text.split(b"\r\n\r\n", 1)[1])
                self.done.append((name, path, body, "part", parse_stream(path, text.decode(errors="replace"))[0]))
        elif status in (503, 429):
            kind = "refused"
        elif status in (499, 504):
            pass
        elif status != 200:
            kind = "whole"
            self.done.append((name, path, body, status, lasting(json.loads(text))))
        elif body.get("stream"):
            answer, ended, error = parse_stream(path, text.decode())
            code = error and (error.get("code") or error.get("type"))
            if error and code not in ("request_cancelled", "deadline", "stopping"):
                message = error.get("message", "")
                if not any(w in message for w in ("cancel", "deadline", "in time", "stop")):
                    self.wrong("%s: %s\n%s" % (name, error, json.dumps(body)))
            kind = "whole" if ended and not error else "cut"
            self.done.append((name, path, body, 200 if kind == "whole" else "part", answer))
        else:
            kind, answer = "whole", lasting(json.loads(text))
            self.done.append((name, path, body, 200, answer))
        if kind == "whole" and status == 200:
            author.heard(path, body, answer)
        with self.lock:
            self.count[kind] += 1

    def killer(self, stop):
        rng = random.Random("%d kill" % self.seed)
        for _ in range(self.kills):
            if stop.wait(.5 + 4 * rng.random()):
                return
            self.down.set()
            s, hard = self.s, rng.random() < .8
            s.signal(signal.SIGKILL if hard else signal.SIGTERM)
            s.proc.wait()
            self.look(s)
            s.log.close()
            s.dir.cleanup()
            self.s = self.start(*self.more)
            self.down.clear()

    # -- afterwards --

    def look(self, s):
        """The log of one life of the server."""
        for line in s.text().splitlines():
            words = line.split()
            if (len(words) > 1 and words[1] == "error") or "Sanitizer" in line or "assert" in line.lower():
                self.wrong("log: " + line)
            elif len(words) > 1 and words[1] == "warn" and self.verbose:
                print("  log: " + line)

    def settle(self):
        s = self.s
        s.until("nothing runs", requests_running=0, requests_waiting=0, parked_requests=0, parked_bytes=0, states_used=0, connections=1)
        h = s.ask("GET", "/health")
        if h.status != 200:
            self.wrong("health: " + h.text())
        m = s.metrics()
        for k in ("prefix_wrong_total", "request_faults_total", "disk_damaged_total", "disk_failed_total"):
            if m.get("weft_" + k):
                self.wrong("%s %g" % (k, m["weft_" + k]))
        for k in ("preempted", "yielded", "resumed"):
            self.total[k] = m["weft_requests_%s_total" % k]
        for k in ("hits", "evicted", "verified"):
            self.total[k] = m["weft_prefix_%s_total" % k]
        self.total["drafted"] = sum(v for k, v in m.items() if k.startswith("weft_drafted_tokens_total"))
        self.total["accepted"] = sum(v for k, v in m.items() if k.startswith("weft_draft_accepted_tokens_total"))
        self.total["loads"] = m.get("weft_disk_loads_total", 0)
        with open("/proc/%d/status" % s.proc.pid) as f:
            rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        self.total["rss_mb"] = rss >> 10
        # Stacks, text, tokenizer and grammars are beside the budget of the engine.
        if self.memory and not self.prefix and not sanitized(self.weft) and rss > self.memory + (96 << 10):
            self.wrong("%d KB resident, --memory %d KB" % (rss, self.memory))
        s.post("/v1/cache/drop", {"all": True})
        s.until("all is given back", prefix_bytes=0, kv_pages_used=0, prefix_entries=0)
        if s.post(COMPLETIONS, {"prompt": "x", "max_tokens": 2}).status != 200:
            self.wrong("it does not answer any more")

    def compare(self):
        cold = self.start("--prompt-cache-bytes", "0", "--draft-kind", "none", "--parallel", "1", "--threads", "1")
        known = {}
        for name, path, body, status, answer in self.done:
            key = path + json.dumps(body, sort_keys=True)
            if key not in known:
                r = cold.post(path, body)
                if r.status == 200 and body.get("stream"):
                    text, ended, error = parse_stream(path, r.text())
                    assert ended and not error, (error, body)
                    known[key] = (200, text)
                else:
                    known[key] = (r.status, lasting(r.json()))
            want_status, want = known[key]
            answer, want = (json.loads(json.dumps(v)) for v in (answer, want))
            if status == "part":
                self.count["beginnings"] += 1
                at = want_status == 200 and begins(answer, want)
                if at:
                    self.wrong("%s: %s is not how it begins\n  body %s\n  got %s\n  want %s"
                               % (name, at, json.dumps(body), json.dumps(answer), json.dumps(want)))
                continue
            self.count["checked"] += 1
            if (status, answer) != (want_status, want):
                self.wrong("%s\n  path %s body %s\n  got %s %s\n  want %s %s"
                           % (name, path, json.dumps(body), status, json.dumps(answer), want_status, json.dumps(want)))
        cold.close()

    def run(self):
        began = time.monotonic()
        self.shared = ["You are a helpful assistant. " + " ".join(self.rng.choice(WORDS) for _ in range(n)) for n in (5, 60, 180)]
        if self.verbose:
            print("world %d: %s %s kills %d" % (self.seed, os.path.basename(self.model), " ".join(self.same + self.more), self.kills), flush=True)
        self.s = self.start(*self.more)
        stop = threading.Event()
        clients = [threading.Thread(target=self.client, args=(k,)) for k in range(self.n_clients)]
        killer = threading.Thread(target=self.killer, args=(stop,))
        for t in clients + [killer]:
            t.start()
        for t in clients:
            t.join()
        stop.set()
        killer.join()
        try:
            self.settle()
        except AssertionError as e:
            self.wrong("afterwards: %s" % e)
        self.look(self.s)
        try:
            self.s.close()
        except AssertionError as e:
            self.wrong(str(e))
        self.compare()
        self.tmp.cleanup()
        print("world %d: %s  %s  %s  %.0f s" % (self.seed, "ok" if not self.bad else "DEVIATED",
              " ".join("%s %d" % kv for kv in self.count.items()), " ".join("%s %d" % kv for kv in self.total.items()),
              time.monotonic() - began), flush=True)
        return self.bad


def unchunk(data):
    """What whole chunks hold, of a reply that was left half way."""
    out = b""
    while True:
        n, sep, rest = data.partition(b"\r\n")
        if not sep or not n or len(rest) < int(n, 16) or int(n, 16) == 0:
            return out
        out, data = out + rest[:int(n, 16)], rest[int(n, 16) + 2:]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("weft")
    p.add_argument("models")
    p.add_argument("--seed", type=int, default=1, help="of the first world")
    p.add_argument("--worlds", type=int, default=1)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--requests", type=int, default=12, help="of each client")
    p.add_argument("--prefix", default="", help="words before the program, as `taskset 1`")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    bad = 0
    for seed in range(a.seed, a.seed + a.worlds):
        bad += bool(Run(a.weft, a.models, seed, a.clients, a.requests, a.prefix.split(), a.verbose).run())
    print("%d of %d worlds deviated" % (bad, a.worlds))
    return 1 if bad else 0


if __name__ == "__main__":
    socket.setdefaulttimeout(300)
    atexit.register(end_all)
    signal.signal(signal.SIGTERM, lambda *_: os._exit((end_all(), 1)[1]))
    sys.exit(main())
