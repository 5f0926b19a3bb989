"""Responses in the background, and conversations: what /v1/responses and /v1/conversations keep.

    test_background.py STUB_SERVER TOKENIZER"""
import itertools
import json
import os
import sys
import tempfile
import time
import unittest

from serverkit import PATIENCE, SharedStub, request, stub

RESPONSES, TALKS = "/v1/responses", "/v1/conversations"
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

    def test_quiet(self):
        """A stream in which nothing happens says so, also one that is followed."""
        s = stub(keep_alive_ms=10)
        self.addCleanup(s.close)
        for say in ("queue", "prefill"):
            c = s.connect()
            c.send(request("POST", RESPONSES, {"input": "say " + say, "background": True, "stream": True}))
            head = c.until(b'"status":"queued"').decode()
            id = head[head.rindex("resp_"):].split('"')[0]
            late = s.connect()
            late.send(request("GET", f"{RESPONSES}/{id}?stream=true&starting_after=1"))
            for each in (c, late):
                for _ in range(3):
                    each.until(b": keep-alive\n\n")
                each.close()
            s.post(f"{RESPONSES}/{id}/cancel", {})

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
        talk = s.post(TALKS, {}, one).json()["id"]
        for method, path in (("GET", f"{RESPONSES}/{id}"), ("POST", f"{RESPONSES}/{id}/cancel"), ("DELETE", f"{RESPONSES}/{id}"),
                             ("GET", f"{TALKS}/{talk}"), ("DELETE", f"{TALKS}/{talk}")):
            self.assertEqual(s.ask(method, path, {} if method == "POST" else None, two).status, 404)
        self.assertEqual(s.ask("GET", f"{RESPONSES}/{id}", None, one).json()["status"], "queued")

    def keys(self):
        f = tempfile.NamedTemporaryFile("w", suffix=".keys")
        f.write("a first\nb second\n")
        f.flush()
        self.addCleanup(f.close)
        return f.name


class Conversations(Kit):
    def talk(self, **body):
        r = self.s.post(TALKS, body)
        self.assertEqual(r.status, 200, r.text())
        return r.json()

    def items(self, id, query="?order=asc"):
        return self.s.ask("GET", f"{TALKS}/{id}/items{query}").json()

    def texts(self, id):
        return [i["content"][0]["text"] for i in self.items(id)["data"]]

    def tokens(self, text):
        return self.s.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["count"]

    def test_objects(self):
        made = self.talk(metadata={"topic": "demo"}, items=[{"role": "user", "content": "Hello"}])
        self.assertEqual((made["object"], made["metadata"], made["id"][:5]), ("conversation", {"topic": "demo"}, "conv_"))
        path = f"{TALKS}/{made['id']}"
        self.assertEqual(self.s.ask("GET", path).json(), made)
        new = self.s.post(path, {"metadata": {"topic": "other"}}).json()
        self.assertEqual(new, made | {"metadata": {"topic": "other"}})
        self.assertEqual(self.s.ask("GET", path).json(), new)
        added = self.s.post(path + "/items", {"items": [{"role": "user", "content": "two"}, {"role": "assistant", "content": "three"}]}).json()
        self.assertEqual((added["object"], len(added["data"]), added["has_more"], added["first_id"]), ("list", 2, False, added["data"][0]["id"]))
        self.assertEqual(self.texts(made["id"]), ["Hello", "two", "three"])
        self.assertEqual([i["content"][0]["text"] for i in self.items(made["id"], "")["data"]], ["three", "two", "Hello"])
        page = self.items(made["id"], "?limit=2&order=asc")
        rest = self.items(made["id"], "?limit=2&order=asc&after=" + page["last_id"])
        self.assertEqual((page["has_more"], rest["has_more"], len(rest["data"])), (True, False, 1))
        item = added["data"][1]
        self.assertEqual(self.s.ask("GET", f"{path}/items/{item['id']}").json(), item)
        self.assertEqual(self.s.ask("DELETE", f"{path}/items/{added['first_id']}").json(), new)
        self.assertEqual(self.texts(made["id"]), ["Hello", "three"])
        self.refused(self.s.ask("GET", f"{path}/items/{added['first_id']}"), 404, "item_not_found")
        self.assertEqual(self.s.ask("DELETE", path).json(), {"id": made["id"], "object": "conversation.deleted", "deleted": True})
        for method, more in (("GET", ""), ("DELETE", ""), ("GET", "/items"), ("GET", "/items/x"), ("DELETE", "/items/x")):
            self.refused(self.s.ask(method, path + more), 404, "conversation_not_found")
        self.refused(self.s.post(path, {"metadata": {}}), 404, "conversation_not_found")
        self.refused(self.s.post(path + "/items", {"items": []}), 404, "conversation_not_found")

    def test_goes_on(self):
        """A conversation holds what was said: the prompt is that of the messages one by one."""
        id = self.talk(items=[{"role": "user", "content": "one"}])["id"]
        a = self.s.post(RESPONSES, {"input": "two", "conversation": id, "max_output_tokens": 2}).json()
        self.assertEqual((a["conversation"], a["usage"]["input_tokens"]), ({"id": id}, self.tokens("onetwo")))
        said = a["output"][0]["content"][0]["text"]
        self.assertEqual(self.texts(id), ["one", "two", said])
        self.assertEqual(self.items(id)["data"][-1]["id"], a["output"][0]["id"])
        stream = events(self.s.post(RESPONSES, {"input": "three", "conversation": {"id": id}, "max_output_tokens": 1, "stream": True, "store": False}).text())
        b = stream[-1][1]["response"]
        self.assertEqual(b["usage"]["input_tokens"], self.tokens("onetwo" + said + "three"))
        self.assertEqual(len(self.texts(id)), 5)
        self.assertEqual(self.get(b["id"]).status, 404)
        c = self.s.post(RESPONSES, {"input": "four", "conversation": id, "max_output_tokens": 1, "background": True}).json()
        self.until(c["id"], "incomplete")
        self.assertEqual((len(self.texts(id)), self.texts(id)[5]), (7, "four"))
        # A failed one adds nothing.
        self.s.post(RESPONSES, {"input": "say fail", "conversation": self.talk()["id"]})
        other = self.talk()["id"]
        self.s.post(RESPONSES, {"input": "say fail", "conversation": other})
        self.assertEqual(self.texts(other), [])

    def test_tools_stay(self):
        tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
        id = self.talk(items=[{"type": "additional_tools", "tools": [tool]}])["id"]
        plain = self.s.post(RESPONSES, {"input": "x", "max_output_tokens": 1}).json()["usage"]["input_tokens"]
        shown = self.s.post(RESPONSES, {"input": "x", "max_output_tokens": 1, "conversation": id}).json()["usage"]["input_tokens"]
        self.assertGreater(shown, plain)

    def test_refused(self):
        id = self.talk()["id"]
        kept = self.s.post(RESPONSES, {"input": "x", "max_output_tokens": 1}).json()["id"]
        say = {"input": "x", "max_output_tokens": 1}
        self.refused(self.s.post(RESPONSES, say | {"conversation": id, "previous_response_id": kept}), 400, "invalid_value", "conversation")
        self.refused(self.s.post(RESPONSES, say | {"conversation": "conv_none"}), 404, "conversation_not_found", "conversation")
        self.refused(self.s.post(RESPONSES, say | {"conversation": 5}), 400, "invalid_type", "conversation")
        r = self.s.post(RESPONSES, say | {"conversation": self.talk(items=[{"role": "user", "content": 5}])["id"]})
        self.refused(r, 400, "invalid_type", "conversation")
        self.assertIn("input[0].content must be", r.text())
        # Ids of one kind do not name the other.
        self.refused(self.s.post(RESPONSES, say | {"conversation": kept}), 404, "conversation_not_found", "conversation")
        self.refused(self.s.post(RESPONSES, say | {"previous_response_id": id}), 404, "previous_response_not_found", "previous_response_id")
        self.refused(self.s.ask("GET", f"{RESPONSES}/{id}"), 404, "response_not_found")
        self.refused(self.s.ask("DELETE", f"{RESPONSES}/{id}"), 404, "response_not_found")
        self.refused(self.s.ask("DELETE", f"{TALKS}/{kept}"), 404, "conversation_not_found")
        for body, param in (({"metadata": 5}, "metadata"), ({"metadata": {"a": 5}}, "metadata.a"), ({"metadata": {"a": "x" * 513}}, "metadata.a"),
                            ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"), ({"items": 5}, "items"), ({"items": [5]}, "items[0]"),
                            ({"items": [{"content": "x"}]}, "items[0].role"), ({"items": [{"type": 5}]}, "items[0].type"),
                            ({"items": [{"role": "user", "content": "x"}] * 21}, "items")):
            r = self.s.post(TALKS, body)
            self.assertEqual((r.status, r.error()["param"]), (400, param), r.text())
        self.assertEqual(self.s.post(f"{TALKS}/{id}", {}).error()["param"], "metadata")
        self.assertEqual(self.s.post(f"{TALKS}/{id}/items", {}).error()["param"], "items")
        for method, more in (("GET", "/zork"), ("POST", "/items/x"), ("DELETE", "/items"), ("POST", "/zork")):
            self.assertEqual(self.s.ask(method, f"{TALKS}/{id}{more}", {} if method == "POST" else None).status, 404)
        for query in ("limit=0", "limit=101", "order=up"):
            self.assertEqual(self.s.ask("GET", f"{TALKS}/{id}/items?{query}").status, 400)

    def test_bounded(self):
        s = stub(response_bytes=20000)
        self.addCleanup(s.close)
        self.assertEqual(s.post(TALKS, {"items": [{"role": "user", "content": "x" * 30000}]}).status, 413)
        id = s.post(TALKS, {}).json()["id"]
        add = {"items": [{"role": "user", "content": "x" * 6000}]}
        got = [s.post(f"{TALKS}/{id}/items", add).status for _ in range(5)]
        self.assertEqual(got[:3], [200, 200, 200])
        self.assertEqual(set(got[3:]) & {200}, set())
        self.assertEqual(s.post(TALKS, {}).status, 200)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
