"""The API's surface before a stub engine that says the prompt again: endpoints,
fields, shapes, streams.  Run as: test_api.py STUB_SERVER TOKENIZER.JSON"""
import calendar
import gzip
import json
import os
import socket
import sys
import tempfile
import time
import unittest

from serverkit import CHAT, COMPLETIONS, Conn, SharedStub, stub, user


class Shared(SharedStub):
    def tokens(self, text):
        return self.s.post(COMPLETIONS, {"prompt": text, "max_tokens": 1}).json()["usage"]["prompt_tokens"]


class Doors(unittest.TestCase):
    """How a client may come in."""

    def serve(self, **opts):
        s = stub(**opts)
        self.addCleanup(s.close)
        return s

    def test_api_key(self):
        s = self.serve(api_key="sesame")
        for headers, status in (({"x-api-key": "sesame"}, 200), ({"x-api-key": "sesam"}, 401), ({"x-api-key": ""}, 401),
                                ({"api-key": "sesame"}, 200), ({"api-key": "sesam"}, 401),      # Azure's
                                ({"x-goog-api-key": "sesame"}, 200), ({"x-goog-api-key": "sesam"}, 401),
                                ({"x-api-key": "wrong", "Authorization": "Bearer sesame"}, 200),
                                ({"x-api-key": "Bearer sesame"}, 401)):
            self.assertEqual(s.ask("GET", "/v1/models", headers=headers).status, status, headers)
        self.assertEqual(s.ask("GET", "/health").status, 200)
        with self.assertRaisesRegex(RuntimeError, "API key is empty"):      # nor does it open to everybody
            stub(api_key="")

    def test_cors(self):
        ask = {"Origin": "http://a.test", "Access-Control-Request-Method": "POST",
               "Access-Control-Request-Headers": "authorization, x-thing"}
        s = self.serve()        # without the option nobody is let in
        self.assertEqual(s.ask("OPTIONS", CHAT).headers["allow"], "POST")
        r = s.ask("OPTIONS", CHAT, headers=ask)
        self.assertEqual((r.status, r.error()["code"]), (403, "foreign_origin"))
        self.assertFalse([h for h in r.headers if h.startswith("access-control")])
        s = self.serve(cors_origin="http://b.test,http://a.test", api_key="sesame")
        r = s.ask("OPTIONS", CHAT, headers=ask)
        self.assertEqual((r.status, r.body, r.headers["access-control-allow-origin"],
                          r.headers["access-control-allow-headers"]), (200, b"", "http://a.test", "authorization, x-thing"))
        self.assertIn("POST", r.headers["access-control-allow-methods"])
        # Errors can be read, too; other origins, and what is only like one, cannot.
        self.assertEqual(s.post(CHAT, user("x"), {"Origin": "http://b.test"}).headers["access-control-allow-origin"],
                         "http://b.test")
        for origin in ("http://a.test.evil", "http://a", "b.test", ","):
            r = s.ask("OPTIONS", CHAT, headers=dict(ask, Origin=origin))
            self.assertNotIn("access-control-allow-origin", r.headers, origin)
        r = s.ask("GET", "/health")
        self.assertNotIn("access-control-allow-origin", r.headers)
        self.assertEqual(r.headers["vary"], "Origin")
        self.assertIn("x-api-key", s.post(CHAT, user("x")).error()["message"])
        s = self.serve(cors_origin="*")
        c = s.connect()
        c.request("GET", "/health", headers={"Origin": "http://any.test"})
        self.assertEqual(c.reply().headers["access-control-allow-origin"], "http://any.test")
        c.request("GET", "/health")
        self.assertNotIn("access-control-allow-origin", c.reply().headers)
        c.close()
        r = s.post(COMPLETIONS, {"prompt": "ab", "max_tokens": 1, "stream": True}, {"Origin": "http://any.test"})
        self.assertEqual(r.headers["access-control-allow-origin"], "http://any.test")

    def test_pages_of_elsewhere(self):
        s = self.serve()
        body = {"prompt": "ab", "max_tokens": 1}
        ours = "127.0.0.1:%d" % s.port
        for headers, status in (
                ({"Origin": "http://evil.test"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://" + ours, "Host": ours}, 200),
                ({"Origin": "http://evil.test", "Host": "evil.test"}, 403),         # a name that was rebound
                ({"Host": "evil.test:%d" % s.port}, 403), ({"Host": "127.0.0.1.evil.test"}, 403), ({"Host": "notlocalhost"}, 403),
                ({"Host": "localhost"}, 200), ({"Host": "a.localhost:1"}, 200), ({"Host": "[::1]:8080"}, 200), ({"Host": "127.1.2.3"}, 200),
                ({"Content-Type": "text/plain"}, 415), ({"Content-Type": "Text/Plain; charset=utf-8"}, 415),
                ({"Content-Type": "multipart/form-data; boundary=x"}, 415), ({"Content-Type": "application/x-www-form-urlencoded"}, 200),
                ({"Content-Encoding": "i"}, 415), ({"Content-Encoding": "Identity"}, 200)):
            self.assertEqual(s.post(COMPLETIONS, body, headers).status, status, headers)
        self.assertEqual(s.ask("GET", "/v1/cache", headers={"Host": "evil.test"}).status, 403)
        s = self.serve(cors_origin="https://good.test")
        for headers, status in (({"Origin": "https://good.test", "Host": "good.test"}, 200), ({"Origin": "http://good.test"}, 403)):
            self.assertEqual(s.post(COMPLETIONS, body, headers).status, status, headers)

    def test_files_of_the_page(self):
        """Compressed for clients that take it, and not sent again to one that has them."""
        s = self.serve()
        for path in ("/", "/page/page.css", "/page/chat.js"):
            plain = s.ask("GET", path)
            self.assertNotIn("content-encoding", plain.headers)
            self.assertEqual(plain.headers["vary"], "Accept-Encoding")
            tags = {plain.headers["etag"]}
            for accept, packed in (("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0, deflate", False), ("gzip;q=0.0", False), ("br", False)):
                r = s.ask("GET", path, headers={"Accept-Encoding": accept})
                self.assertEqual(r.headers.get("content-encoding"), "gzip" if packed else None, accept)
                self.assertEqual(gzip.decompress(r.body) if packed else r.body, plain.body)
                tags.add(r.headers["etag"])
                c = s.connect()
                c.request("GET", path, headers={"Accept-Encoding": accept, "If-None-Match": '"x", ' + r.headers["etag"]})
                had = c.reply(head_only=True)
                self.assertEqual((had.status, had.headers["etag"], had.headers["content-length"]), (304, r.headers["etag"], str(len(r.body))))
                c.request("GET", path, headers={"If-None-Match": '"x"'})     # nothing of the last one is in the way
                self.assertEqual(c.reply().body, plain.body)
                c.close()
            self.assertEqual(len(tags), 2)
        # The page connects to this server alone; of its workers, one to no server, and one to those that a person names.
        for path, connects in (("/", "'self'"), ("/page/chat.js", "'self'"), ("/page/reader.js", None), ("/page/mcp.js", "http: https:")):
            policy = dict(rule.strip().split(" ", 1) for rule in s.ask("GET", path).headers["content-security-policy"].split(";"))
            self.assertEqual((policy["default-src"], policy.get("connect-src")), ("'none'", connects), path)
        # A library, where the build has it, is kept compressed alone.
        r = s.ask("GET", "/page/pdf.js")
        self.assertIn(r.status, (200, 404))
        if r.status == 200:
            self.assertEqual(r.headers["content-encoding"], "gzip")
            self.assertIn(b"Mozilla Foundation", gzip.decompress(r.body))

    def test_codes(self):
        """What is of the wrong type, and what is out of range."""
        s = self.serve()
        for more, code in (({"n": 129}, "invalid_value"), ({"n": 0}, "invalid_value"), ({"n": "2"}, "invalid_type"), ({"n": 1.5}, "invalid_value"),
                           ({"temperature": -1}, "invalid_value"), ({"temperature": "0"}, "invalid_type"), ({"top_p": 2}, "invalid_value"),
                           ({"logprobs": True, "top_logprobs": 21}, "invalid_value"), ({"logprobs": True, "top_logprobs": []}, "invalid_type")):
            r = s.post(CHAT, user("x", max_tokens=1, **more))
            self.assertEqual((r.status, r.error()["code"]), (400, code), more)

    def test_body_max(self):
        with self.assertRaisesRegex(RuntimeError, "max-body"):
            stub(body_max=(1 << 30) + 1)

    def test_unix_leaves_files_alone(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "notes.txt")
            with open(path, "w") as f:
                f.write("precious")
            with self.assertRaisesRegex(RuntimeError, "no socket"):
                stub(host="unix:" + path)
            with open(path) as f:
                self.assertEqual(f.read(), "precious")

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "sock")
            dead = socket.socket(socket.AF_UNIX)    # as a server that was killed leaves it
            dead.bind(path)
            dead.close()
            s = stub(host="unix:" + path)
            c = Conn(path)
            c.request("POST", COMPLETIONS, {"prompt": "ab", "max_tokens": 1})
            self.assertEqual(c.reply().json()["choices"][0]["text"], "ab")
            c.close()
            with self.assertRaises(RuntimeError):   # a living one is not taken over
                stub(host="unix:" + path)
            s.close()
            self.assertFalse(os.path.exists(path))

    def test_strict(self):
        s = self.serve(strict=1)
        r = s.post(CHAT, user("x", zork=1, max_tokens=1))
        self.assertEqual((r.status, r.error()["code"]), (400, "unknown_field"))
        self.assertIn("zork", r.error()["message"])
        self.assertEqual(s.post(CHAT, user("x", max_tokens=1)).status, 200)


class Tools(unittest.TestCase):
    """Calls that a request asks for, in each dialect; the stub says the prompt after what it is made to say."""
    TOOLS = [{"type": "function", "function": {"name": n, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}}}} for n in ("add", "sub")]
    NAMED = {"type": "function", "function": {"name": "sub"}}
    # what a template says, the rest of a named call, the rest of any call
    DIALECTS = [
        ("<function=", "<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>",
         "=sub>\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>"),
        ("<tool_call>", ' {"a": 5}}\n</tool_call>', ' "sub", "arguments": {"a": 5}}\n</tool_call>'),
        ("Environment: ipython", ' {"a": 5}}', ' "sub", "parameters": {"a": 5}}'),
        ("[func_name1(", "a=5)]", "sub(a=5)]"),
    ]

    def ask(self, s, body):
        whole = s.post(CHAT, body)
        self.assertEqual(whole.status, 200, whole.text())
        whole = whole.json()["choices"][0]
        parts = [e["choices"][0] for e in s.post(CHAT, dict(body, stream=True)).events()]
        self.assertEqual("".join(p["delta"].get("content", "") for p in parts), whole["message"]["content"] or "")
        self.assertEqual("".join(p["delta"].get("reasoning_content", "") for p in parts),
                         whole["message"].get("reasoning_content", ""))
        calls = {}
        for p in parts:         # a call is one element of a chunk's
            told = [d["index"] for d in p["delta"].get("tool_calls", [])]
            self.assertEqual(sorted(set(told)), told)
        for d in sum((p["delta"].get("tool_calls", []) for p in parts), []):
            c = calls.setdefault(d["index"], {"name": d["function"].get("name"), "arguments": ""})
            c["arguments"] += d["function"]["arguments"]
        self.assertEqual([c["function"] for c in whole["message"].get("tool_calls", [])], list(calls.values()))
        self.assertEqual(parts[-1]["finish_reason"], whole["finish_reason"])
        self.assertEqual(parts[-1].get("malformed_tool_call"), whole.get("malformed_tool_call"))
        return whole

    def test_forced(self):
        for says, named, rest in self.DIALECTS:
            s = stub(says=says)
            self.addCleanup(s.close)
            for choice, text in ((self.NAMED, named), ("required", rest)):
                for think in (False, True):
                    with self.subTest(says=says, choice=choice, think=think):
                        said = "hm</think>" + text if think else text
                        c = self.ask(s, {"messages": [{"role": "user", "content": said}], "tools": self.TOOLS,
                                         "tool_choice": choice, "max_tokens": 60, "enable_thinking": think,
                                         "parallel_tool_calls": False})
                        # The stub's own template adds "2 tools" to the prompt: content, after the call.
                        self.assertEqual((len(c["message"]["tool_calls"]), c["finish_reason"]), (1, "tool_calls"), c)
                        f = c["message"]["tool_calls"][0]["function"]
                        self.assertEqual((f["name"], json.loads(f["arguments"])), ("sub", {"a": 5}))
                        self.assertEqual(c["message"].get("reasoning_content"), "hm" if think else None)

    def test_parallel(self):
        call = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n"
        s = stub(says="<function=")
        self.addCleanup(s.close)
        tokens = s.post(COMPLETIONS, {"prompt": call * 3, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
        for parallel, n in ((True, 3), (None, 3), (False, 1)):
            c = self.ask(s, {"messages": [{"role": "user", "content": call * 3}], "tools": self.TOOLS, "max_tokens": tokens,
                             "parallel_tool_calls": parallel})
            self.assertEqual(len(c["message"]["tool_calls"]), n, c)
        s.until("idle", requests_running=0)

    def test_malformed(self):
        s = stub(says="<function=")
        self.addCleanup(s.close)
        for text, content, calls, tokens in [
            ("<tool_call>what?</tool_call>", "<tool_call>what?</tool_call>", 0, None),
            ("<tool_call>\n<function=add>\n<parameter=s>\nab", None, 1, None),
        ]:
            n = s.post(COMPLETIONS, {"prompt": text, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
            c = self.ask(s, {"messages": [{"role": "user", "content": text}], "tools": self.TOOLS, "max_tokens": n})
            self.assertEqual((c["message"]["content"], len(c["message"].get("tool_calls", [])), c["finish_reason"],
                              c["malformed_tool_call"]), (content, calls, "length", True))

    def test_budget(self):
        s = stub()
        self.addCleanup(s.close)
        for field, budget in (({"thinking_budget": 3}, 3), ({"thinking_token_budget": 0}, 0),
                              ({"thinking": {"type": "enabled", "budget_tokens": 7}}, 7), ({"reasoning_effort": "low"}, 1024)):
            body = dict(user("on and on ", enable_thinking=True, max_tokens=budget + 20), **field)
            r = s.post(CHAT, body).json()
            # The budget, and what ends the thought.
            thought = r["usage"]["completion_tokens_details"]["reasoning_tokens"]
            self.assertTrue(budget < thought <= budget + 3, thought)
            self.assertIn("on", r["choices"][0]["message"]["content"])
        body = user("ab", max_tokens=5, reasoning_effort="none")
        self.assertNotIn("reasoning_content", s.post(CHAT, body).json()["choices"][0]["message"])


class Prompts(Shared):
    def test_tokenize(self):
        text = "hello <|im_end|>"
        r = self.s.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
        self.assertEqual((r["count"], r["max_model_len"]), (len(r["tokens"]), 100000))
        self.assertEqual("".join(r["token_strs"]), text)
        self.assertEqual(r["count"], self.tokens(text))
        self.assertEqual(self.s.post("/detokenize", {"tokens": r["tokens"]}).json(), {"prompt": text, "content": text})
        self.assertEqual(self.s.post("/detokenize", {"tokens": r["tokens"], "skip_special_tokens": True}).json()["prompt"],
                         "hello ")
        plain = self.s.post("/tokenize", {"content": text, "parse_special": False}).json()
        self.assertGreater(plain["count"], r["count"])
        self.assertEqual(self.s.post("/tokenize", {"prompt": ""}).json()["tokens"], [])
        chat = user("abc", tools=Tools.TOOLS, temperature=0)
        r = self.s.post("/tokenize", chat).json()
        self.assertEqual(r["count"], self.tokens("abc2 tools"))
        self.assertEqual(self.s.post("/detokenize", {"tokens": r["tokens"]}).json()["prompt"], "abc2 tools")
        # A user's words are never special tokens.
        self.assertEqual(self.s.post("/tokenize", user(text)).json()["count"], plain["count"])

    def test_apply_template(self):
        r = self.s.post("/apply-template", user("abc", enable_thinking=True))
        self.assertEqual(r.json()["prompt"], "abc<think>")
        self.assertEqual(self.s.post("/apply-template", {"messages": []}).status, 400)

    def test_unknown(self):
        for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]}), ("/apply-template", user("x")),
                           ("/v1/messages/count_tokens", user("x")), ("/v1/messages", user("x", max_tokens=1)),
                           ("/v1/responses", {"input": "x", "max_output_tokens": 1})):
            r = self.s.post(path, dict(body, zork=1))
            self.assertEqual((r.status, r.headers["x-weft-warning"]), (200, "unknown fields: zork"), path)
            self.assertNotIn("x-weft-warning", self.s.post(path, body).headers)
        # Inside of objects they have their path.
        tool = {"name": "f", "input_schema": {}, "zork": 1}
        for path, body, name in (("/v1/messages", user("x", tools=[tool]), "tools.zork"),
                                 ("/v1/messages", user("x", tool_choice={"type": "auto", "zork": 1}), "tool_choice.zork"),
                                 (CHAT, user("x", response_format={"type": "text", "zork": 1}), "response_format.zork"),
                                 (CHAT, user("x", response_format={"type": "json_schema", "json_schema": {
                                     "name": "x", "schema": {"type": "boolean"}, "zork": 1}}), "response_format.json_schema.zork"),
                                 ("/v1/responses", {"input": "x", "reasoning": {"zork": 1}}, "reasoning.zork"),
                                 ("/v1/responses", {"input": "x", "chat_template_kwargs": {"zork": 1}}, "chat_template_kwargs.zork")):
            self.assertEqual(self.s.post(path, body).headers["x-weft-warning"], "unknown fields: " + name)

    def test_thoughts_by_other_names(self):
        """A thought of the history is one by whatever name a server gave it."""
        m = {"role": "assistant", "content": "n2"}
        file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.addCleanup(file.close)
        file.write("{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}")
        file.flush()
        s = stub(template=file.name)
        self.addCleanup(s.close)

        def prompt(**more):
            r = s.post("/apply-template", {"messages": [{"role": "user", "content": "n1"}, dict(m, **more), {"role": "user", "content": "n3"}]})
            self.assertEqual(r.status, 200, r.text())
            return r.json()["prompt"]
        plain, want = prompt(), prompt(reasoning_content="hm, so")
        self.assertNotEqual(plain, want)
        details = [{"type": "reasoning.text", "text": "hm, "}, {"type": "reasoning.encrypted", "data": "x"}, {"type": "reasoning.summary", "summary": "so"}]
        for more in ({"reasoning": "hm, so"}, {"thinking": "hm, so"}, {"reasoning_details": details}, {"reasoning_content": None, "reasoning": "hm, so"},
                     {"reasoning_content": "", "reasoning": "hm, so"}, {"reasoning_content": "hm, so", "reasoning": "other"},
                     {"reasoning": "hm, so", "reasoning_details": details}):
            self.assertEqual(prompt(**more), want, more)
        for more in ({"reasoning": None}, {"reasoning": ""}, {"reasoning_details": []}, {"reasoning_details": None}):
            self.assertEqual(prompt(**more), plain, more)
        for name, value in (("reasoning", 5), ("reasoning", {"text": "x"}), ("thinking", True), ("reasoning_content", ["x"]), ("reasoning_details", "x")):
            r = self.s.post("/apply-template", {"messages": [dict(m, **{name: value})]})
            self.assertEqual((r.status, r.error()["param"]), (400, "messages[0]." + name))

    def test_systems(self):
        """Several at the beginning are one where the template wants that; elsewhere they stay as they are."""
        body = {"messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"},
                             {"role": "user", "content": "C"}]}
        self.assertEqual(self.s.post("/apply-template", body).json()["prompt"], "ABC")
        s = stub(says="one system")
        self.addCleanup(s.close)
        self.assertEqual(s.post("/apply-template", body).json()["prompt"], "A\n\nBC")
        self.assertEqual(s.post("/apply-template", user("C")).json()["prompt"], "C")
        body["messages"].append({"role": "system", "content": "D"})
        self.assertEqual(s.post("/apply-template", body).json()["prompt"], "A\n\nBC<system-reminder>\nD\n</system-reminder>")
        # All APIs alike, and a reminder leaves what stood before it as it was.
        talk = [{"role": "user", "content": "n1"}, {"role": "assistant", "content": "n2"}]
        later = [{"role": "system", "content": "D"}, {"role": "user", "content": "n3"}]
        want = len("n1n2<system-reminder>\nD\n</system-reminder>n3")
        for path, body in ((CHAT, {"messages": talk + later}), ("/v1/messages", {"messages": talk + later}),
                           ("/v1/responses", {"input": talk + [dict(later[0], role="developer"), later[1]]})):
            r = s.post(path, dict(body, max_tokens=want) if path != "/v1/responses" else dict(body, max_output_tokens=want))
            self.assertEqual(r.status, 200, r.text())
            self.assertIn("n1n2<system-reminder>\\nD\\n</system-reminder>n3", r.text())

    def test_models(self):
        """Both APIs' clients ask there."""
        r = self.s.ask("GET", "/v1/models").json()
        m, = r["data"]
        self.assertEqual((r["object"], r["has_more"], r["first_id"], r["last_id"]), ("list", False, "stub", "stub"))
        self.assertEqual((m["id"], m["object"], m["type"], m["display_name"], m["max_model_len"], m["max_input_tokens"]),
                         ("stub", "model", "model", "stub", 100000, 100000))
        self.assertEqual(calendar.timegm(time.strptime(m["created_at"], "%Y-%m-%dT%H:%M:%SZ")), m["created"])
        self.assertEqual(self.s.ask("GET", "/v1/models/stub").json(), m)
        self.assertEqual(self.s.ask("GET", "/v1/models?client_version=0.171.0").json(), r | {"models": []})     # Codex

    def test_props(self):
        r = self.s.ask("GET", "/props").json()
        self.assertEqual((r["model"], r["context"], r["chat"], r["thinking"], r["tools"]), ("stub", 100000, True, "by request", True))

    def test_errors(self):
        for path, body, param in [("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"),
                                  ("/tokenize", {"prompt": "x", "model": "y"}, "model"), ("/tokenize", {"prompt": "x", "content": "y"}, "prompt"), ("/detokenize", {}, "tokens"),
                                  ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"), ("/detokenize", {"tokens": "x"}, "tokens")]:
            r = self.s.post(path, body)
            self.assertEqual((r.status, r.error()["param"]), (404 if param == "model" else 400, param))


class Waiting(unittest.TestCase):
    def test_keep_alive(self):
        s = stub(keep_alive_ms=10)
        self.addCleanup(s.close)
        for path in (CHAT, MESSAGES, RESPONSES, COMPLETIONS, "/completion"):
            for say in ("queue", "prefill"):
                c = s.connect()
                body = {RESPONSES: {"input": "say " + say}, CHAT: user("say " + say), MESSAGES: user("say " + say)}.get(
                    path, {"prompt": "say " + say})
                c.request("POST", path, dict(body, stream=True))
                for _ in range(3):
                    c.until(b": keep-alive\n\n")
                c.close()
        s.until("idle", requests_running=0, requests_waiting=0)
        # A stream with something to say is whole, comments or not.
        body = user("say slow", max_tokens=30)
        whole = s.post(CHAT, body).json()["choices"][0]["message"]["content"]
        text = s.post(CHAT, dict(body, stream=True)).text().replace(": keep-alive\n\n", "")
        parts = [json.loads(p[6:]) for p in text.split("\n\n")[:-2]]
        self.assertEqual("".join(p["choices"][0]["delta"].get("content", "") for p in parts), whole)

    def test_progress(self):
        s = stub()
        self.addCleanup(s.close)
        for ask in (False, True):
            got = [e.get("prompt_progress") for e in s.post(CHAT, user("hello", stream=True, max_tokens=2,
                                                                      return_progress=ask)).events()]
            got += [e.get("prompt_progress") for _, e in events(s.post(MESSAGES, user("hello", stream=True, max_tokens=2,
                                                                                     return_progress=ask)))]
            got += [e.get("prompt_progress") for _, e in events(s.post(RESPONSES, {"input": "hello", "stream": True,
                                                                                  "max_output_tokens": 2, "return_progress": ask}))]
            got = [g for g in got if g]
            self.assertEqual(len(got), 3 * ask)
            for g in got:
                self.assertEqual((g["cache"], g["processed"], set(g)), (0, g["total"], {"total", "cache", "processed", "time_ms"}))


MESSAGES = "/v1/messages"


def events(reply):
    """(name, object) of each event of a stream with names."""
    out = []
    for part in reply.text().split("\n\n")[:-1]:
        lines = part.split("\n")
        assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), part
        out.append((lines[0][7:], json.loads(lines[1][6:])))
        assert out[-1][1]["type"] == out[-1][0], part
    return out


class Anthropic(Shared):
    TOOLS = [{"name": t["function"]["name"], "description": "d", "input_schema": t["function"]["parameters"]}
             for t in Tools.TOOLS]
    CALL = "<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>"

    def both(self, text, **more):
        """The message whole, checked against what the stream adds up to."""
        body = dict(user(text, max_tokens=self.tokens(text)), **more)
        r = self.s.post(MESSAGES, body, {"anthropic-version": "2023-06-01", "x-api-key": "none"})
        self.assertEqual(r.status, 200, r.text())
        whole = r.json()
        stream = self.s.post(MESSAGES, dict(body, stream=True))
        got = events(stream)
        self.assertEqual(got[0][0], "message_start")
        m = got[0][1]["message"]
        self.assertEqual((m["content"], m["stop_reason"]), ([], None))
        self.assertEqual([n for n, _ in got[-2:]], ["message_delta", "message_stop"])
        open_block = None
        for name, e in got[1:-2]:
            if name == "content_block_start":
                self.assertIsNone(open_block)
                self.assertEqual(e["index"], len(m["content"]))
                m["content"].append(e["content_block"])
                open_block = e["index"]
                partial = ""
            elif name == "content_block_stop":
                self.assertEqual(e["index"], open_block)
                open_block = None
                if partial:
                    m["content"][-1]["input"] = json.loads(partial)
            else:
                self.assertEqual((name, e["index"]), ("content_block_delta", open_block))
                d, b = e["delta"], m["content"][-1]
                if d["type"] == "input_json_delta":
                    partial += d["partial_json"]
                else:
                    key = d["type"][:-len("_delta")]
                    b[key] += d[key]
        self.assertIsNone(open_block)
        m.update(got[-2][1]["delta"])
        m["usage"] = got[-2][1]["usage"]
        for x in (m, whole):
            self.assertRegex(x.pop("id"), r"^msg_\w{22}$")
            for b in x["content"]:
                if b["type"] == "tool_use":
                    self.assertRegex(b.pop("id"), r"^toolu_\w{22}$")
        self.assertEqual(m, whole)
        return whole

    def test_text(self):
        m = self.both("hello world", system="Be. ")
        self.assertEqual(m["type"], "message")
        self.assertEqual(m["stop_reason"], "max_tokens")
        self.assertTrue(m["content"][0]["text"].startswith("Be. "))
        self.assertEqual(m["usage"]["cache_read_input_tokens"], 0)
        self.assertEqual(m["usage"]["input_tokens"], self.tokens("Be. hello world"))

    def test_thinking_and_tools(self):
        m = self.both("hm</think>Let me." + self.CALL, tools=self.TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
        thought = m["usage"]["output_tokens_details"]["thinking_tokens"]
        self.assertTrue(0 < thought < m["usage"]["output_tokens"], m["usage"])
        self.assertEqual([b["type"] for b in m["content"]], ["thinking", "text", "tool_use"])
        self.assertEqual((m["content"][0]["thinking"], m["content"][1]["text"]), ("hm", "Let me."))
        m = self.both("hm</think>Let me." + self.CALL, tools=self.TOOLS, thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"})
        self.assertEqual([b["type"] for b in m["content"]], ["thinking", "text", "tool_use"])
        self.assertEqual((m["content"][0]["thinking"], m["content"][1]["text"]), ("", "Let me."))
        self.assertTrue(m["content"][0]["signature"])
        self.assertEqual((m["content"][2]["name"], m["content"][2]["input"]), ("add", {"a": 5, "s": "x"}))

    def test_tool_choice(self):
        s = stub(says="<function=")
        self.addCleanup(s.close)
        rest = "<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>"
        body = dict(user(rest, max_tokens=60), tools=self.TOOLS,
                    tool_choice={"type": "tool", "name": "sub", "disable_parallel_tool_use": True})
        m = s.post(MESSAGES, body).json()
        self.assertEqual((m["stop_reason"], [(b["type"], b["name"], b["input"]) for b in m["content"]]),
                         ("tool_use", [("tool_use", "sub", {"a": 5})]))
        m = s.post(MESSAGES, dict(body, tool_choice={"type": "none"})).json()
        self.assertEqual(m["content"][0]["type"], "text")

    def test_malformed(self):
        m = self.both("<tool_call>what?</tool_call>", tools=self.TOOLS)
        self.assertEqual((m["content"][0]["text"], m["malformed_tool_call"]), ("<tool_call>what?</tool_call>", True))

    def test_history(self):
        body = {"max_tokens": 1, "system": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}},
                                            {"type": "text", "text": "B"}],
                "tools": self.TOOLS, "messages": [
            {"role": "user", "content": [{"type": "text", "text": "C"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "not shown by this template", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "D"},
                {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "E"}], "is_error": True},
                {"type": "tool_result", "tool_use_id": "t"},
                {"type": "text", "text": "F"}]}]}
        r = self.s.post(MESSAGES, body)
        self.assertEqual(r.status, 200, r.text())
        # The stub's template says what failed.
        self.assertEqual(r.json()["usage"]["input_tokens"], self.tokens("ABCDE!F2 tools"))
        del body["max_tokens"]
        r = self.s.post(MESSAGES + "/count_tokens", body)
        self.assertEqual(r.json(), {"input_tokens": self.tokens("ABCDE!F2 tools")})

    def test_errors(self):
        for body, status, kind, words in [
            ({}, 400, "invalid_request_error", "messages is missing"),
            (user("x", model="claude"), 404, "not_found_error", '"claude" is not served'),
            (user("x", stop_sequences=["a", 5]), 400, "invalid_request_error", "stop_sequences[1]"),
            (user("x", temperature="hot"), 400, "invalid_request_error", "temperature"),
            (user("x", thinking={"type": "loud"}), 400, "invalid_request_error", "thinking.type"),
            (user("x", thinking={"type": "enabled", "display": "loud"}), 400, "invalid_request_error", "thinking.display"),
            (user("x", tools=[{"name": "f"}]), 400, "invalid_request_error", "tools[0].input_schema"),
            (user("x", tool_choice={"type": "tool", "name": "f"}), 400, "invalid_request_error", "no tools"),
            (user("x", tools=[5]), 400, "invalid_request_error", "tools[0] must be an object"),
            (user("x", tools=[{"name": "f", "input_schema": {}, "strict": "yes"}]), 400, "invalid_request_error", "true or false"),
            (user("x", response_format={"type": "json_object"}), 400, "invalid_request_error", "use output_config.format"),
            (user("x", reasoning_effort="low"), 400, "invalid_request_error", "use output_config.effort"),
            (user("x", parallel_tool_calls=False), 400, "invalid_request_error", "use tool_choice.disable_parallel_tool_use"),
            ({"messages": [{"role": "user", "content": []}]}, 400, "invalid_request_error", "messages[0].content is empty"),
            ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": 5}]}, {"role": "user", "content": "x"}]},
             400, "invalid_request_error", "messages[0].content[0].thinking must be a string"),
            ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": "no"}]}]}, 400,
             "invalid_request_error", "messages[0].content[0].is_error must be true or false"),
            (user("x", metadata=5), 400, "invalid_request_error", "metadata must be an object"),
            ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 400, "invalid_request_error",
             "messages[0].content[0].source.type"),
            ({"messages": [{"role": "assistant", "content": ""}]}, 400, "invalid_request_error", "last message"),
            ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]}, 400, "invalid_request_error", "last message"),
            (user("say full"), 503, "overloaded_error", "queue"),
            (user("say fail"), 500, "api_error", "stub"),
        ]:
            with self.subTest(body=body):
                r = self.s.post(MESSAGES, body)
                self.assertEqual(r.status, status, r.text())
                e = r.json()
                self.assertEqual((e["type"], e["error"]["type"]), ("error", kind))
                self.assertIn(words, e["error"]["message"])
        self.assertEqual(self.s.ask("GET", MESSAGES).json()["type"], "error")
        r = self.s.post(MESSAGES, user("say fail", stream=True))
        self.assertEqual(events(r)[-1][0], "error")
        s = stub(api_key="sesame")
        self.addCleanup(s.close)
        self.assertEqual(s.post(MESSAGES, user("x")).json()["error"]["type"], "authentication_error")


RESPONSES = "/v1/responses"


class Responses(Shared):
    TOOLS = [dict(t["function"], type="function") for t in Tools.TOOLS]

    def both(self, text, **more):
        """The response whole, checked against what the stream adds up to, event by event."""
        body = dict({"input": text, "max_output_tokens": self.tokens(text)}, **more)
        r = self.s.post(RESPONSES, body)
        self.assertEqual(r.status, 200, r.text())
        whole = r.json()
        got = events(self.s.post(RESPONSES, dict(body, stream=True)))
        self.assertEqual([e["sequence_number"] for _, e in got], list(range(len(got))))
        self.assertEqual([n for n, _ in got[:2]], ["response.created", "response.in_progress"])
        self.assertEqual((got[0][1]["response"]["status"], got[0][1]["response"]["output"]), ("in_progress", []))
        items, text = [], ""
        for name, e in got[2:-1]:
            at = e["output_index"]
            if name == "response.output_item.added":
                self.assertEqual(at, len(items))
                items.append(e["item"])
                self.assertEqual(e["item"]["status"], "in_progress")
                text = ""
                continue
            self.assertEqual(at, len(items) - 1)
            if name == "response.output_item.done":
                self.assertEqual(e["item"]["id"], items[-1]["id"])
                items[-1] = e["item"]
                continue
            self.assertEqual(e["item_id"], items[-1]["id"])
            if name.endswith(".delta"):
                text += e["delta"]
            elif name == "response.function_call_arguments.done":
                self.assertEqual(e["arguments"], text)
            elif name.endswith("text.done"):
                self.assertEqual(e["text"], text)
            elif name == "response.content_part.done":
                self.assertEqual(e["part"]["text"], text)
            else:
                self.assertEqual((name, e["part"]["text"]), ("response.content_part.added", ""))
        last = got[-1][1]["response"]
        self.assertEqual(got[-1][0], "response." + last["status"])
        self.assertEqual(items, last["output"])
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + whole["id"]).json(), whole)
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + last["id"]).json(), last)
        kept = json.loads(json.dumps(whole))
        for x in (last, whole):
            self.assertRegex(x.pop("id"), r"^resp_\w{22}$")
            x.pop("created_at")
            for i in x["output"]:
                self.assertRegex(i.pop("id"), r"^(rs|msg|fc)_\w{22}$")
                if i["type"] == "function_call":
                    self.assertRegex(i.pop("call_id"), r"^call_\w{22}$")
        self.assertEqual(last, whole)
        return kept

    def test_text(self):
        r = self.both("hello world", instructions="Be. ", metadata={"a": "b"}, temperature=0.5)
        self.assertEqual((r["status"], r["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual(r["output"][0]["content"][0]["text"][:4], "Be. ")
        self.assertEqual((r["metadata"], r["temperature"], r["instructions"]), ({"a": "b"}, 0.5, "Be. "))
        self.assertEqual(r["usage"]["input_tokens"], self.tokens("Be. hello world"))

    def test_thinking_and_tools(self):
        r = self.both("hm</think>Let me." + Anthropic.CALL, tools=self.TOOLS, chat_template_kwargs={"enable_thinking": True})
        self.assertEqual([i["type"] for i in r["output"]], ["reasoning", "message", "function_call"])
        self.assertEqual(r["output"][0]["content"], [{"type": "reasoning_text", "text": "hm"}])
        self.assertEqual((r["output"][2]["name"], json.loads(r["output"][2]["arguments"])), ("add", {"a": 5, "s": "x"}))
        self.assertEqual(r["tools"], self.TOOLS)
        self.assertEqual([i["status"] for i in r["output"]], ["completed", "completed", "incomplete"])

    def test_forced(self):
        s = stub(says="<function=")
        self.addCleanup(s.close)
        for choice in ({"type": "function", "name": "sub"}, "required"):
            rest = ("" if choice != "required" else "=sub>") + "<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>"
            r = s.post(RESPONSES, {"input": rest, "max_output_tokens": 60, "tools": self.TOOLS, "tool_choice": choice,
                                   "parallel_tool_calls": False}).json()
            self.assertEqual((r["status"], [(i["name"], i["arguments"], i["status"]) for i in r["output"]]),
                             ("completed", [("sub", '{"a":5}', "completed")]))

    def test_goes_on(self):
        a = self.both("one", instructions="I")
        n = self.tokens
        b = self.s.post(RESPONSES, {"input": "two", "previous_response_id": a["id"], "max_output_tokens": 1}).json()
        self.assertEqual(b["previous_response_id"], a["id"])
        # Instructions are of one response; question and answer stay.
        answer = a["output"][0]["content"][0]["text"]
        self.assertEqual(b["usage"]["input_tokens"], n("one" + answer + "two"))
        c = self.s.post(RESPONSES, {"input": [{"role": "user", "content": "three"}], "previous_response_id": b["id"],
                                    "max_output_tokens": 1, "store": False}).json()
        self.assertEqual(c["usage"]["input_tokens"], n("one" + answer + "two" + b["output"][0]["content"][0]["text"] + "three"))
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + c["id"]).status, 404)
        for i in range(2):
            r = self.s.ask("DELETE", RESPONSES + "/" + a["id"])
            self.assertEqual(r.status, 404 if i else 200)
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + a["id"]).error()["code"], "response_not_found")
        r = self.s.post(RESPONSES, {"input": "x", "previous_response_id": a["id"]})
        self.assertEqual((r.status, r.error()["code"]), (404, "previous_response_not_found"))
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + b["id"]).status, 200)   # it has its own copy

    def test_input_items(self):
        sent = [{"role": "user", "content": "one"}, {"type": "message", "role": "assistant", "content": "two", "id": "msg_mine"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "3"}]
        a = self.s.post(RESPONSES, {"input": "one", "max_output_tokens": 1}).json()["id"]
        b = self.s.post(RESPONSES, {"input": sent, "previous_response_id": a, "max_output_tokens": 1}).json()["id"]
        r = self.s.ask("GET", RESPONSES + "/" + a + "/input_items").json()
        self.assertEqual((r["object"], r["has_more"], [i["content"] for i in r["data"]], r["first_id"] == r["data"][0]["id"]),
                         ("list", False, [[{"type": "input_text", "text": "one"}]], True))
        whole = self.s.ask("GET", RESPONSES + "/" + b + "/input_items?order=asc").json()["data"]
        self.assertEqual([i["type"] for i in whole], ["message", "message", "function_call", "function_call_output"])
        self.assertEqual((whole[1]["id"], whole[1]["content"][0]["type"], whole[3]["output"]), ("msg_mine", "output_text", "3"))
        self.assertEqual(len({i["id"] for i in whole}), 4)
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + b + "/input_items").json()["data"], whole[::-1])
        seen, after = [], ""
        while True:
            r = self.s.ask("GET", RESPONSES + "/" + b + "/input_items?limit=3&order=asc" + after).json()
            seen += r["data"]
            if not r["has_more"]:
                break
            after = "&after=" + r["last_id"]
        self.assertEqual(seen, whole)
        for query in ("limit=0", "limit=x", "order=up"):
            self.assertEqual(self.s.ask("GET", RESPONSES + "/" + b + "/input_items?" + query).status, 400)
        self.assertEqual(self.s.ask("GET", RESPONSES + "/resp_none/input_items").status, 404)

    def test_logprobs(self):
        body = {"input": "hm</think>some words here", "max_output_tokens": 30, "chat_template_kwargs": {"enable_thinking": True}}
        wish = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": 2}
        r = self.both(body["input"], chat_template_kwargs=body["chat_template_kwargs"], **wish)
        part = r["output"][1]["content"][0]
        self.assertEqual("".join(t["token"] for t in part["logprobs"]), part["text"])
        for t in part["logprobs"]:
            self.assertEqual((len(t["top_logprobs"]), bytes(t["bytes"]).decode()), (2, t["token"]))
        self.assertEqual(r["top_logprobs"], 2)
        stream = events(self.s.post(RESPONSES, dict(body, stream=True, **wish)))
        told = [e for name, e in stream if name == "response.output_text.delta"]
        part = stream[-1][1]["response"]["output"][1]["content"][0]
        self.assertEqual([t["token"] for e in told for t in e["logprobs"]], [t["token"] for t in part["logprobs"]])
        self.assertEqual("".join(t["token"] for t in part["logprobs"]), part["text"])
        plain = self.s.post(RESPONSES, body).json()
        self.assertEqual(plain["output"][1]["content"][0]["logprobs"], [])
        for bad in ({"top_logprobs": 21}, {"include": "x"}):
            self.assertEqual(self.s.post(RESPONSES, dict(body, **bad)).status, 400)

    def test_store_is_bounded(self):
        for size, some in ((0, False), (20000, True)):
            s = stub(response_bytes=size)
            self.addCleanup(s.close)
            ids = [s.post(RESPONSES, {"input": "n%d" % i, "max_output_tokens": 1}).json()["id"] for i in range(60)]
            kept = [s.ask("GET", RESPONSES + "/" + i).status == 200 for i in ids]
            self.assertEqual(kept, sorted(kept))            # the latest ones
            self.assertEqual((kept[0], kept[-1]), (False, some))

    def test_history(self):
        body = {"max_output_tokens": 1, "instructions": "I", "tools": self.TOOLS, "input": [
            {"role": "developer", "content": "D"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "not shown"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "C", "annotations": []}]},
            {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{\"a\":1}", "id": None},
            {"type": "function_call_output", "call_id": "c", "output": "E"}]}
        r = self.s.post(RESPONSES, body)
        self.assertEqual(r.status, 200, r.text())
        self.assertEqual(r.json()["usage"]["input_tokens"], self.tokens("IDABCE2 tools"))

    def test_errors(self):
        for body, status, param, words in [
            ({}, 400, "input", "missing"), ({"input": 5}, 400, "input", "integer 5"), ({"input": []}, 400, "input", "empty"),
            ({"input": [{"role": "king", "content": "x"}]}, 400, "input[0].role", "king"),
            ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "input[0].type", "item_reference"),
            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, 400,
             "input[0].content[0].image_url", "text only"),
            ({"input": "x", "tool_choice": {"type": "web_search"}}, 400, "tool_choice", "web_search"),
            ({"input": "x", "text": {"format": {"type": "json_schema"}}}, 400, "text.format.schema", "a JSON schema"),
            ({"input": "x", "reasoning": {"effort": "much"}}, 400, "reasoning.effort", "much"),
            ({"input": [{"role": "user"}]}, 400, "input[0].content", "found nothing"),
            ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]}, 400, "input[0].output", "found the integer 5"),
            ({"input": "x", "tools": [5]}, 400, "tools[0]", "an object"),
            ({"input": "x", "response_format": {"type": "json_object"}}, 400, "response_format", "use text.format"),
            ({"input": "x", "reasoning_effort": "low"}, 400, "reasoning_effort", "use reasoning.effort"),
            ({"input": "x", "conversation": "c"}, 404, "conversation", "no conversation"),
            ({"input": "x", "model": "gpt-4"}, 404, "model", "gpt-4"),
        ]:
            with self.subTest(body=body):
                r = self.s.post(RESPONSES, body)
                self.assertEqual((r.status, r.error()["param"]), (status, param), r.text())
                self.assertIn(words, r.error()["message"])
        kept = self.s.post(RESPONSES, {"input": "x", "max_output_tokens": 1}).json()["id"]
        r = self.s.ask("GET", RESPONSES + "/" + kept + "?stream=true")
        self.assertEqual((r.status, r.error()["param"]), (400, "stream"))
        self.assertEqual(self.s.ask("GET", RESPONSES + "/" + kept + "?stream=false").status, 200)
        last = events(self.s.post(RESPONSES, {"input": "say fail", "stream": True}))[-1]
        self.assertEqual((last[0], last[1]["response"]["status"], last[1]["response"]["error"]["message"]),
                         ("response.failed", "failed", "the stub was told to fail"))
        self.assertEqual(self.s.ask("PUT", RESPONSES + "/x").headers["allow"], "POST, GET, HEAD, DELETE")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
