"""Responses in the background: what /v1/responses keeps.

    test_background.py STUB_SERVER TOKENIZER"""
import itertools
import json
import os
import sys
import tempfile
import time
import unittest

from serverkit import PATIENCE, SharedStub, request, stub

RESPONSES = "/v1/responses"
MOST = 64           # BACKGROUND_MAX


def events(text):
    out = []
    for part in text.split("\n\n"):
        lines = [line for line in part.split("\n") if not line.startswith(":")]
        if lines and lines[0]:
            out.append((lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))))
    return out


def bare(response):
    """Without what differs between two responses to one request."""
    r = {k: v for k, v in response.items() if k not in ("id", "created_at", "background", "usage")}
    r["output"] = [{k: v for k, v in i.items() if k != "id"} for i in r["output"]]
    return r


class Kit(SharedStub):
    def get(self, id, more="", s=None):
        return (s or self.s).ask("GET", f"{RESPONSES}/{id}{more}")

    def until(self, id, *status, s=None):
        """The response once it has one of these states."""
        end = time.monotonic() + PATIENCE
        while (r := self.get(id, s=s).json())["status"] not in status:
            assert time.monotonic() < end, r["status"]
        return r

    def refused(self, r, status, code, param=None):
        self.assertEqual((r.status, r.error()["code"], r.error()["param"]), (status, code, param), r.text())


class Background(Kit):
    def test_same_answer(self):
        for body in ({"input": "hello world", "max_output_tokens": 6}, {"input": "one", "instructions": "Be.", "max_output_tokens": 3, "seed": 5}):
            front = self.s.post(RESPONSES, body).json()
            for stream in (False, True):
                r = self.s.post(RESPONSES, dict(body, background=True, stream=stream))
                first = events(r.text())[0][1]["response"] if stream else r.json()
                self.assertEqual((r.status, first["status"], first["output"], first["background"]), (200, "queued", [], True))
                behind = self.until(first["id"], "completed", "incomplete")
                self.assertEqual(bare(behind), bare(front))
                self.assertEqual(behind["usage"]["output_tokens"], front["usage"]["output_tokens"])
        after = self.s.post(RESPONSES, {"input": "two", "previous_response_id": behind["id"], "max_output_tokens": 1}).json()
        self.assertGreater(after["usage"]["input_tokens"], behind["usage"]["input_tokens"])
        items = self.get(behind["id"], "/input_items").json()["data"]
        self.assertEqual([i["content"][0]["text"] for i in items], ["one"])

    def test_states(self):
        r = self.s.post(RESPONSES, {"input": "say queue here", "background": True, "zork": 1})
        self.assertIn("zork", r.headers["x-weft-warning"])
        id = r.json()["id"]
        self.assertEqual(self.get(id).json()["status"], "queued")
        # Nothing can follow it before it has ended, and it is listed as any request.
        self.refused(self.s.post(RESPONSES, {"input": "x", "previous_response_id": id}), 404, "previous_response_not_found", "previous_response_id")
        listed = self.s.ask("GET", "/v1/requests").json()["data"]
        self.assertEqual([(row["path"], row["state"]) for row in listed], [(RESPONSES, "waiting")])
        got = self.s.post(f"{RESPONSES}/{id}/cancel", {}).json()
        self.assertEqual((got["id"], got["status"], got["error"]), (id, "cancelled", None))
        self.assertEqual(self.get(id).json(), got)
        self.assertEqual(self.s.post(f"{RESPONSES}/{id}/cancel", {}).json(), got)
        self.refused(self.s.post(RESPONSES, {"input": "x", "previous_response_id": id}), 400, "invalid_value", "previous_response_id")
        self.assertEqual(self.s.ask("GET", "/v1/requests").json()["data"], [])
        self.assertEqual(self.s.ask("DELETE", f"{RESPONSES}/{id}").status, 200)
        self.refused(self.get(id), 404, "response_not_found")

    def test_text_so_far(self):
        id = self.s.post(RESPONSES, {"input": "say slow and steady", "background": True, "max_output_tokens": 2000}).json()["id"]
        end = time.monotonic() + PATIENCE
        while not (r := self.get(id).json())["output"] and time.monotonic() < end:
            pass
        self.assertEqual((r["status"], r["output"][0]["status"]), ("in_progress", "in_progress"))
        self.assertTrue("say slow and steady".startswith(r["output"][0]["content"][0]["text"][:19]))
        # To delete it ends it.
        self.assertEqual(self.s.ask("DELETE", f"{RESPONSES}/{id}").json(), {"id": id, "object": "response", "deleted": True})
        self.refused(self.get(id), 404, "response_not_found")
        self.s.until("ended", requests_running=0)

    def test_failures(self):
        r = self.s.post(RESPONSES, {"input": "say fail", "background": True})
        got = self.until(r.json()["id"], "failed")
        self.assertEqual((r.status, got["error"]["message"], got["output"]), (200, "the stub was told to fail", []))
        for body, status, param in (({"store": False}, 400, "background"), ({"background": "yes"}, 400, "background"),
                                    ({"max_output_tokens": -5}, 400, "max_output_tokens")):
            self.assertEqual((r := self.s.post(RESPONSES, {"input": "x", "background": True} | body)).status, status, r.text())
            self.assertEqual(r.error()["param"], param)
        self.assertGreaterEqual(self.s.post(RESPONSES, {"input": "say full here", "background": True}).status, 429)
        s = stub(response_bytes=0)
        self.addCleanup(s.close)
        self.refused(s.post(RESPONSES, {"input": "x", "background": True}), 400, "invalid_value", "background")

    def test_fault(self):
        """A fault of the server ends the one response, and is told."""
        s = stub(env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))     # a fault leaves what it worked on
        self.addCleanup(s.close)
        id = s.post(RESPONSES, {"input": "say broken it is", "background": True, "stream": False, "metadata": {"a": "b"}}).json()["id"]
        got = self.until(id, "failed", s=s)
        self.assertEqual((got["id"], got["metadata"], got["error"]["code"]), (id, {"a": "b"}, "server_error"))
        last = events(s.post(RESPONSES, {"input": "say broken it is", "background": True, "stream": True}).text())[-1]
        self.assertNotEqual(last[0], "response.completed")
        self.assertEqual(s.post(RESPONSES, {"input": "x", "max_output_tokens": 1}).status, 200)

    def test_stream(self):
        body = {"input": "say slow and long", "background": True, "stream": True}
        c = self.s.connect()
        c.send(request("POST", RESPONSES, body))
        c.until(b"response.output_text.delta")
        one = self.s.ask("GET", "/v1/requests").json()["data"]
        c.reset()                                   # the client leaves, and it goes on
        two = self.s.ask("GET", "/v1/requests").json()["data"]
        self.assertEqual(([row["id"] for row in one], len(one)), ([row["id"] for row in two], 1))
        self.assertEqual(self.s.ask("DELETE", "/v1/requests/" + one[0]["id"]).json()["cancelled"], 1)
        self.assertEqual(self.s.ask("GET", "/v1/requests").json()["data"], [])

    def test_replay(self):
        body = {"input": "say slow and long", "stream": True, "max_output_tokens": 30}
        r = self.s.post(RESPONSES, dict(body, background=True))
        told = events(r.text())
        id = told[0][1]["response"]["id"]
        self.assertEqual([n for n, _ in told[:3]], ["response.created", "response.queued", "response.in_progress"])
        self.assertEqual([e["sequence_number"] for _, e in told], list(range(len(told))))
        front = events(self.s.post(RESPONSES, body).text())
        kinds = [[k for k, _ in itertools.groupby(n for n, _ in seen if n != "response.queued")] for seen in (told, front)]
        self.assertEqual(*kinds)
        said = ["".join(e["delta"] for n, e in seen if n.endswith("delta")) for seen in (told, front)]
        self.assertEqual(said[0], said[1])
        self.assertEqual(told[-1][1]["response"], self.get(id).json())
        self.assertEqual(self.get(id, "?stream=true").text(), r.text())
        for n in (0, 2, 7, len(told) - 1, 999999):
            self.assertEqual(events(self.get(id, f"?stream=true&starting_after={n}").text()), told[n + 1:])
        self.refused(self.get(id, "?stream=true&starting_after=x"), 400, "invalid_value", "starting_after")
        # A follower of one that runs, and what was made without stream.
        id = self.s.post(RESPONSES, {"input": "say queue this", "background": True, "stream": False}).json()["id"]
        self.refused(self.get(id, "?stream=true"), 400, "unsupported_value", "stream")
        self.s.post(f"{RESPONSES}/{id}/cancel", {})

    def test_followers(self):
        c = self.s.connect()
        c.send(request("POST", RESPONSES, {"input": "say slow and long", "background": True, "stream": True, "max_output_tokens": 60}))
        head = c.until(b'"status":"queued"').decode()
        id = head[head.rindex("resp_"):].split('"')[0]
        late = self.s.connect()
        late.send(request("GET", f"{RESPONSES}/{id}?stream=true&starting_after=3"))
        ahead = self.s.connect()            # of events that are still to come
        ahead.send(request("GET", f"{RESPONSES}/{id}?stream=true&starting_after=20"))
        leaves = self.s.connect()
        leaves.send(request("GET", f"{RESPONSES}/{id}?stream=true"))
        leaves.until(b"response.output_text.delta")
        leaves.reset()
        for follower, first in ((late, 4), (ahead, 21)):
            got = events(follower.reply().body.decode())
            self.assertEqual([e["sequence_number"] for _, e in got], list(range(first, first + len(got))))
            follower.close()
        self.assertEqual(got[-1][1]["response"], self.get(id).json())
        c.close()
        # To cancel ends the streams, the last event saying so.
        c = self.s.connect()
        c.send(request("POST", RESPONSES, {"input": "say prefill that never ends", "background": True, "stream": True}))
        head = c.until(b'"status":"queued"').decode()
        id = head[head.rindex("resp_"):].split('"')[0]
        self.s.post(f"{RESPONSES}/{id}/cancel", {})
        c.until(b'event: response.failed')
        c.until(b'"status":"cancelled"')
        c.until(b"0\r\n\r\n")
        self.assertEqual(self.get(id).json()["status"], "cancelled")
        c.close()

    def test_bounds(self):
        s = stub(response_bytes=30000)
        self.addCleanup(s.close)
        ask = {"input": "say queue", "background": True}
        ids, refused = [], []
        for user in "one", "two", "three", "four", "five", "six", "seven":    # each takes half of what is left
            while (r := s.post(RESPONSES, ask | {"user": user})).status == 200 and len(ids) <= MOST:
                ids.append(r.json()["id"])
            refused.append((len(ids), r.status, r.error()["code"], r.headers["retry-after"]))
        counts = (32, 48, 56, 60, 62, 63, 64)
        self.assertEqual(refused[:-1], [(n, 429, "client_over_share", "1") for n in counts[:-1]])
        self.assertEqual(refused[-1], (MOST, 503, "overloaded", "1"))
        self.assertEqual(len({i for i in ids if self.get(i, s=s).json()["status"] == "queued"}), MOST)
        for i in ids:
            s.post(f"{RESPONSES}/{i}/cancel", {})
        # Events without room are dropped, and the response is not.
        r = s.post(RESPONSES, {"input": "word", "background": True, "stream": True, "max_output_tokens": 400,
                               "include": ["message.output_text.logprobs"], "top_logprobs": 20})
        told = events(r.text())
        self.assertEqual(told[-1][1]["code"], "events_dropped")
        # This one is larger than the whole store, too.
        id = next(word for word in told[-1][1]["message"].replace(",", " ").split() if word.startswith("resp_"))
        self.assertIn(self.get(id, s=s).status, (200, 404))
        r = s.post(RESPONSES, {"input": "word", "background": True, "max_output_tokens": 4})
        self.until(r.json()["id"], "incomplete", s=s)
        self.refused(self.get(r.json()["id"], "?stream=true", s=s), 400, "unsupported_value", "stream")

    def test_stop(self):
        """The server ends without waiting for what nobody can fetch any more."""
        s = stub()
        s.post(RESPONSES, {"input": "say prefill that never ends", "background": True})
        c = s.connect()
        c.send(request("POST", RESPONSES, {"input": "say queue", "background": True, "stream": True}))
        c.until(b'"status":"queued"')
        c.reset()
        s.signal()
        s.wait()
        self.assertEqual(s.text().count(": server stopped while "), 2, s.text())
        s.close()

    def test_keys(self):
        s = stub(api_key_file=self.keys())
        self.addCleanup(s.close)
        one, two = {"Authorization": "Bearer first"}, {"Authorization": "Bearer second"}
        id = s.post(RESPONSES, {"input": "say queue", "background": True}, one).json()["id"]
        for method, path in (("GET", f"{RESPONSES}/{id}"), ("POST", f"{RESPONSES}/{id}/cancel"), ("DELETE", f"{RESPONSES}/{id}")):
            self.assertEqual(s.ask(method, path, {} if method == "POST" else None, two).status, 404)
        self.assertEqual(s.ask("GET", f"{RESPONSES}/{id}", None, one).json()["status"], "queued")

    def keys(self):
        f = tempfile.NamedTemporaryFile("w", suffix=".keys")
        f.write("a first\nb second\n")
        f.flush()
        self.addCleanup(f.close)
        return f.name


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
