"""Streams that survive their server: servers that share a folder with --tune journal, one of which is killed in the middle of a
stream that another goes on with.  The events before and after are those of a stream that nothing interrupted.
Run as: test_journal.py WEFT MODEL; WEFT_KILLS: how many, 2 or 8"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from serverkit import Gone, Server

WEFT, MODEL = sys.argv[1:3]
KILLS = int(os.environ.get("WEFT_KILLS", 2 if os.environ.get("WEFT_TEST_QUICK") else 8))
CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]


def start(*options):
    return Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}", "--threads", "1", "--log-level", "warn", *options])


def asking(rng):
    """A path and a body: of any kind that can be continued."""
    said = [{"role": "user", "content": "Say %d things of %s." % (rng.randrange(9), rng.choice(("Rome", "sleep", "a hat")))}]
    more = {"stream": True, "temperature": rng.choice((0, 1)), "ignore_eos": True}
    kind = rng.randrange(4)
    if kind == 0:
        return TEXT, {"prompt": said[0]["content"], "max_tokens": 40, "logprobs": 2, "stop": ["\n\n\n"], **more}
    if kind == 1:
        return MESSAGES, {"messages": said, "max_tokens": 40, "stream": True, "temperature": 1}
    if kind == 2:
        return CHAT, {"messages": said, "max_tokens": 60, "tools": TOOLS, "tool_choice": "required", "stream": True, "temperature": 1}
    return CHAT, {"messages": said, "max_tokens": 40, "logprobs": True, "top_logprobs": 2, "return_progress": True, **more}


def plain(event):
    """An event without what is of its computation: times, what was cached, ids of calls."""
    data = re.search(r"^data: (.*)$", event, re.M).group(1)
    if data == "[DONE]":
        return data
    data = json.loads(data)
    for holder in (data, data.get("message", {})):
        for name in ("usage", "timings"):
            holder.pop(name, None)
    return re.sub(r'"(call_|toolu_)\w+"', '"call"', json.dumps(data, sort_keys=True))


class Stream:
    """Reads events as (id, event); those without an id are of the computation alone."""

    def __init__(self, server, path, body, after=None):
        self.c = server.connect()
        self.c.request("POST", path, body, {"Last-Event-ID": after} if after else None)
        status, _, headers = self.c.head()[:3]
        assert status == 200 and headers["transfer-encoding"] == "chunked", (status, headers)
        self.text, self.over = b"", False

    def some(self, n):
        out = []
        while not self.over and len(out) < n:
            if (e := self.next()):
                out.append(e)
        return out

    def next(self):
        while b"\n\n" not in self.text:
            size = int(self.c.until(b"\r\n")[:-2], 16)
            chunk = self.c.exactly(size)
            self.c.exactly(2)
            if not size:
                self.over = True
                return None
            self.text += chunk
        event, self.text = self.text.split(b"\n\n", 1)
        if not event.startswith(b"id: "):
            return self.next()
        name, event = event.decode().split("\n", 1)
        return name[4:], plain(event)

    def rest(self):
        out = []
        while (e := self.next()):
            out.append(e)
        self.c.close()
        return out


class Journals(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.dir)
        self.options = ("--prompt-cache-dir", self.dir, "--tune", "journal")
        self.s = [start(*self.options) for _ in range(2)]
        self.addCleanup(lambda: [s.close() for s in self.s if s])

    def kill(self, i):
        self.s[i].proc.kill()
        self.s[i].proc.wait()
        self.s[i].log.close()
        self.s[i].dir.cleanup()
        self.s[i] = None

    def test_kills(self):
        rng = random.Random(7)
        for k in range(KILLS):
            path, body = asking(rng)
            a = Stream(self.s[k % 2], path, body)
            had = a.some(rng.randrange(1, 30))
            self.kill(k % 2)
            try:
                while not a.over and (e := a.next()):       # what was on its way
                    had.append(e)
            except (Gone, ValueError, ConnectionError):
                pass
            a.c.close()
            other = self.s[1 - k % 2]
            rest = Stream(other, path, body, had[-1][0]).rest()
            whole = Stream(other, path, body, had[0][0].split(".")[0] + ".0.0").rest()
            self.assertEqual(had + rest, whole, (k, path, body))
            self.assertGreater(len(whole), 5)
            self.s[k % 2] = start(*self.options)

    def test_client_comes_back(self):
        """Its own connection broke, and the server is the same."""
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 50, "ignore_eos": True, "temperature": 1}
        a = Stream(self.s[0], CHAT, body)
        had = [a.next() for _ in range(7)]
        a.c.reset()
        rest = Stream(self.s[0], CHAT, body, had[-1][0]).rest()
        self.assertEqual(had + rest, Stream(self.s[1], CHAT, body, had[0][0].split(".")[0] + ".0.0").rest())
        # All of it: what is left is nothing.
        self.assertEqual(Stream(self.s[1], CHAT, body, rest[-1][0]).rest(), [])

    def test_past_answers(self):
        """A past turn whose thought only the first server knows."""
        talk = [{"role": "user", "content": "How is it in Rome?"}]
        body = {"messages": talk, "tools": TOOLS, "chat_template_kwargs": {"enable_thinking": True}, "temperature": 1, "seed": 1}
        m = self.s[0].post(CHAT, {**body, "max_tokens": 80, "tool_choice": "required"}).json()["choices"][0]["message"]
        del m["reasoning_content"]
        talk += [m, {"role": "tool", "content": "cold", "tool_call_id": m["tool_calls"][0]["id"]}]
        first, other = (s.post(CHAT, {**body, "max_tokens": 1}).json()["usage"]["prompt_tokens"] for s in self.s)
        self.assertGreater(first, other)
        body.update(stream=True, max_tokens=40, ignore_eos=True, logprobs=True)
        want = Stream(self.s[0], CHAT, body).rest()
        self.assertEqual(want[5:], Stream(self.s[1], CHAT, body, want[4][0]).rest())

    def test_refusals(self):
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 20, "ignore_eos": True, "temperature": 0}
        events = Stream(self.s[0], CHAT, body).rest()
        at = events[5][0]
        name = at.split(".")[0]
        s = self.s[1]

        def refused(status, code, path=CHAT, body=body, after=at, server=s):
            r = server.post(path, body, {"Last-Event-ID": after})
            self.assertEqual((r.status, r.error()["code"]), (status, code), r.text())

        refused(409, "other_request", body={**body, "max_tokens": 21})
        refused(404, "unknown_stream", after="A" * 22 + ".1.1")
        for bad in ("x", name, name + ".1", name + ".1.", name + ".-1.1", name + ".1.1.1", name + ".99999999999.1", "../" + name + ".1.1", "." + name + ".1.1", "A" * 60 + ".1.1"):
            refused(400, "invalid_value", after=bad)
        still = {**body, "stream": False}
        path = os.path.join(self.dir, "streams", name)
        with open(path, "rb") as f:
            sound = f.read()
        for n in (0, 50, 103, 104, 107):        # cut, and one byte changed
            with open(path, "wb") as f:
                f.write(sound[:n])
            refused(404, "unknown_stream")
            with open(path, "wb") as f:
                f.write(sound[:n] + bytes([sound[n] ^ 64]) + sound[n + 1:])
            refused(404, "unknown_stream")
        # Without the answer's tokens it is computed as ever; with another token it ends.
        n = 104 + 4 * int.from_bytes(sound[88:92], "little")
        with open(path, "wb") as f:
            f.write(sound[:n])
        self.assertEqual(events[6:], Stream(s, CHAT, body, at).rest())
        with open(path, "wb") as f:
            f.write(sound[:n + 8] + (7).to_bytes(4, "little") + sound[n + 12:])
        self.assertIn("other_answer", s.post(CHAT, body, {"Last-Event-ID": at}).text())
        r = s.post(CHAT, still)
        self.assertEqual(r.status, 200)
        # Servers without journals.
        t = start("--prompt-cache-dir", self.dir)
        try:
            refused(404, "unknown_stream", server=t)
            self.assertNotIn("id: ", t.post(CHAT, body).text())
        finally:
            t.close()
        p = subprocess.run([WEFT, "serve", MODEL, "--tune", "journal"], capture_output=True, text=True)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("--prompt-cache-dir", p.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
