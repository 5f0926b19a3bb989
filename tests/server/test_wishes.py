"""What clients ask for beside the answer: honoured, ignored and told, or refused by name, the same in every API; and
tools that are no functions.  Run as: test_wishes.py STUB_SERVER TOKENIZER.JSON"""
import json
import sys
import unittest

from serverkit import CHAT, COMPLETIONS, SharedStub, stub, user

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PATHS = {CHAT: user("ab", max_tokens=2), MESSAGES: user("ab", max_tokens=2), RESPONSES: {"input": "ab", "max_output_tokens": 2},
         COMPLETIONS: {"prompt": "ab", "max_tokens": 2}}

# Where, what, and what the warning says; None: it is honoured, or changes nothing.
TAKEN = [
    (MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, "context_management"),
    (MESSAGES, {"diagnostics": {"previous_message_id": "x"}}, "diagnostics"),
    (MESSAGES, {"speed": "fast"}, "speed"),
    (MESSAGES, {"service_tier": "auto"}, None),
    (MESSAGES, {"service_tier": "flex"}, "service_tier"),
    (MESSAGES, {"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    (MESSAGES, {"output_config": {"task_budget": {"type": "tokens", "total": 5}}}, "output_config.task_budget"),
    (MESSAGES, {"thinking": {"type": "adaptive"}}, None),
    (MESSAGES, {"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"}}, None),
    (MESSAGES, {"stop": ["zz"], "max_tokens": None, "max_completion_tokens": 2}, None),
    (CHAT, {"store": True, "verbosity": "low", "prediction": {"type": "content", "content": "x"}, "moderation": {}},
     "store, verbosity, prediction, moderation"),
    (CHAT, {"service_tier": "flex"}, "service_tier"),
    (CHAT, {"store": False, "verbosity": "medium", "service_tier": "auto", "include_reasoning": False}, None),
    (CHAT, {"reasoning": {}}, None),
    (CHAT, {"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning.summary"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (CHAT, {"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    (CHAT, {"repeat_penalty": 1.1}, None),
    # of samplers that are off, as llama-server's page sends them
    (CHAT, {"dynatemp_range": 0, "dynatemp_exponent": 1, "xtc_probability": 0, "xtc_threshold": 0.1, "typ_p": 1, "dry_multiplier": 0, "dry_base": 1.75,
            "dry_allowed_length": 2, "dry_penalty_last_n": -1, "mirostat": 0, "mirostat_tau": 5, "mirostat_eta": 0.1, "reasoning_format": "auto",
            "draft_model": ""}, None),
    (CHAT, {"samplers": ["top_k"], "backend_sampling": True, "draft_model": "small"}, "samplers, backend_sampling, draft_model"),
    (RESPONSES, {"truncation": "auto", "max_tool_calls": 3}, "truncation, max_tool_calls"),
    (RESPONSES, {"client_metadata": {"a": "b"}}, None),
    (RESPONSES, {"truncation": "disabled", "store": True, "text": {"verbosity": "medium"}}, None),
    (RESPONSES, {"text": {"verbosity": "low"}, "reasoning": {"effort": "medium", "summary": "auto"}}, "text.verbosity"),
    (RESPONSES, {"context_management": [{"type": "compaction"}]}, "context_management"),
    (RESPONSES, {"include": ["reasoning.encrypted_content", "web_search_call.action.sources"]}, "include.web_search_call.action.sources"),
    (COMPLETIONS, {"store": True, "service_tier": "flex"}, "store, service_tier"),
]
REFUSED = [
    (CHAT, {"best_of": 2}, "best_of"), (CHAT, {"modalities": ["audio"]}, "modalities"), (CHAT, {"lora": [{"id": 0}]}, "lora"),
    (CHAT, {"functions": [{"name": "f"}]}, "functions"), (CHAT, {"typ_p": 0.5}, "typ_p"), (CHAT, {"reasoning_format": "none"}, "reasoning_format"), (CHAT, {"use_beam_search": True}, "use_beam_search"),
    (MESSAGES, {"parallel_tool_calls": False}, "parallel_tool_calls"), (RESPONSES, {"prompt": "c"}, "prompt"),
    (COMPLETIONS, {"allowed_token_ids": [1]}, "allowed_token_ids"),
]
# Names of other servers, of one thing.
LIMITS = [
    (CHAT, "n_predict"), (CHAT, "max_output_tokens"), (CHAT, "max_new_tokens"), (CHAT, "max_completion_tokens"),
    (COMPLETIONS, "n_predict"), (COMPLETIONS, "max_completion_tokens"), (COMPLETIONS, "num_predict"),
    (MESSAGES, "max_completion_tokens"), (MESSAGES, "max_output_tokens"), (RESPONSES, "max_tokens"),
    (RESPONSES, "max_completion_tokens"),
]
EMPTY = [None, {}, {"type": "object"}, {"type": "object", "properties": {}}, {"type": "object", "properties": {}, "required": []},
         {"$schema": "x", "type": "object", "title": "t", "properties": {}}, {"type": "object", "additionalProperties": False}]


def events(r):
    return [json.loads(p.split("data: ", 1)[1]) for p in r.text().split("\n\n")[:-1] if not p.endswith("[DONE]")]


class Fields(SharedStub):
    def test_taken(self):
        for path, more, told in TAKEN:
            with self.subTest(path=path, more=more):
                r = self.s.post(path, dict(PATHS[path], **more))
                self.assertEqual(r.status, 200, r.text())
                self.assertEqual(r.headers.get("x-weft-warning"), told and "ignored fields: " + told)
                self.assertIn("ab", r.text())

    def test_an_unknown_field_is_no_better(self):
        r = self.s.post(CHAT, dict(PATHS[CHAT], zork=1, store=True))
        self.assertEqual(r.headers["x-weft-warning"], "unknown fields: zork; ignored fields: store")

    def test_the_log_tells(self):
        s = stub(log_format="json", log_level="info")
        self.addCleanup(s.close)
        s.post(CHAT, dict(PATHS[CHAT], zork=1, store=True))
        s.post(CHAT, PATHS[CHAT])
        first, second = s.records("request")
        self.assertEqual(first["warning"], "unknown fields: zork; ignored fields: store")
        self.assertNotIn("warning", second)

    def test_refused(self):
        for path, more, name in REFUSED:
            with self.subTest(path=path, more=more):
                r = self.s.post(path, dict(PATHS[path], **more))
                self.assertEqual(r.status, 400, r.text())
                self.assertIn(name, r.json()["error"]["message"])

    def test_strict(self):
        s = stub(strict=1)
        self.addCleanup(s.close)
        for path, more, told in TAKEN:
            with self.subTest(path=path, more=more):
                r = s.post(path, dict(PATHS[path], **more))
                self.assertEqual(r.status, 400 if told else 200, r.text())
                if told:
                    self.assertIn(told.split(", ")[0], r.json()["error"]["message"])
        r = s.post(RESPONSES, dict(PATHS[RESPONSES], tools=[{"type": "web_search"}]))
        self.assertEqual(r.status, 400)
        self.assertIn("web_search", r.error()["message"])

    def test_names_of_a_limit(self):
        for path, name in LIMITS:
            body = {k: v for k, v in PATHS[path].items() if not k.startswith("max_")}
            with self.subTest(path=path, name=name):
                r = self.s.post(path, dict(body, **{name: 5}))
                self.assertEqual(r.status, 200, r.text())
                self.assertNotIn("x-weft-warning", r.headers)
                u = r.json()["usage"]
                self.assertEqual(u.get("completion_tokens", u.get("output_tokens")), 5)
        # -1 is no bound, and of two names of one thing the one that is the API's own counts.
        s = stub(ctx=50)
        self.addCleanup(s.close)
        for more in ({"max_tokens": -1}, {"n_predict": -1}):
            self.assertEqual(s.post(CHAT, user("ab", **more)).json()["choices"][0]["finish_reason"], "length")
        self.assertEqual(s.post(CHAT, user("ab", max_tokens=3, n_predict=9)).json()["usage"]["completion_tokens"], 3)

    def test_hidden_thoughts(self):
        body = user("hm</think>yes", enable_thinking=True, max_tokens=13)
        self.assertEqual(self.s.post(CHAT, body).json()["choices"][0]["message"]["reasoning_content"], "hm")
        for more in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
            r = self.s.post(CHAT, dict(body, **more)).json()["choices"][0]["message"]
            self.assertNotIn("reasoning_content", r)
            self.assertIn("yes", r["content"])
            self.assertNotIn("reasoning_content", self.s.post(CHAT, dict(body, stream=True, **more)).text())

    def test_summaries(self):
        """A client that asks for a summary of the thought shows nothing else: it is told the thought as one."""
        body = {"input": "hm</think>yes", "max_output_tokens": 13, "reasoning": {"effort": "high", "summary": "auto"}}
        item = self.s.post(RESPONSES, body).json()["output"][0]
        self.assertEqual((item["type"], item["summary"]), ("reasoning", [{"type": "summary_text", "text": "hm"}]))
        told = events(self.s.post(RESPONSES, dict(body, stream=True)))
        self.assertEqual("".join(e["delta"] for e in told if e["type"] == "response.reasoning_summary_text.delta"), "hm")
        self.assertFalse([e for e in told if e["type"].startswith("response.reasoning_text")])
        parts = [e for e in told if e["type"].startswith("response.reasoning_summary_part")]
        self.assertEqual([(e["summary_index"], e["part"]["text"]) for e in parts], [(0, ""), (0, "hm")])


class Names(unittest.TestCase):
    def test_aliases(self):
        s = stub(aliases="claude-sonnet-4-5,gpt-4o")
        self.addCleanup(s.close)
        for name, status in (("stub", 200), ("default", 200), ("claude-sonnet-4-5", 200), ("gpt-4o", 200), ("gpt-4", 404), ("", 404),
                             ("claude-sonnet-4-5,gpt-4o", 404)):
            self.assertEqual(s.post(CHAT, user("x", model=name, max_tokens=1)).status, status, name)
        r = s.ask("GET", "/v1/models").json()
        self.assertEqual([m["id"] for m in r["data"]], ["stub", "claude-sonnet-4-5", "gpt-4o"])
        self.assertEqual((r["first_id"], r["last_id"]), ("stub", "gpt-4o"))
        self.assertEqual(s.ask("GET", "/v1/models/gpt-4o").json()["id"], "gpt-4o")

    def test_any_model(self):
        s = stub(any_model=1)
        self.addCleanup(s.close)
        for name in ("claude-opus-9", "", "gpt-4o"):
            self.assertEqual(s.post(CHAT, user("x", model=name, max_tokens=1)).status, 200, name)


class Tools(unittest.TestCase):
    """The stub says the prompt, which begins with the call; its template adds how many tools it was given."""
    CALL = "<tool_call>\n<function=%s>\n%s</function>\n</tool_call>"
    ARG = "<parameter=%s>\n%s\n</parameter>\n"
    PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
    F = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}

    @classmethod
    def setUpClass(cls):
        cls.s = stub(says="<function=")

    @classmethod
    def tearDownClass(cls):
        cls.s.close()

    def post(self, path, body):
        r = self.s.post(path, body)
        self.assertEqual(r.status, 200, r.text())
        return r

    def test_not_held(self):
        """A tool that is not strict, and whose rules calls are not held to, is told by name in every API, streamed or not, the
        second time too, when its grammar was kept."""
        loose = [{"type": "object", "properties": {"a": p}} for p in ({"enum": None}, {"items": None}, {"$ref": "other.json"},
                                                                      {"type": "string", "pattern": "(?=a)"}, {"uniqueItems": True})]
        loose += [{"anyOf": [{"type": "object", "properties": {k: {"type": "string"}}} for k in "ab"]},
                  {"type": "object", "properties": {"a<b": {"type": "string"}}}, {"type": "object", "additionalProperties": {"type": "integer"}}]
        held = [{}, {"type": "object"}, {"type": "object", "additionalProperties": True}, {"type": "object", "additionalProperties": {}},
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}]

        def asked(strict, *parameters):
            tools = [("f%d" % i, p) for i, p in enumerate(parameters)]
            for stream in (False, True):
                yield self.s.post(CHAT, user("x", stream=stream, max_tokens=1, tools=[
                    {"type": "function", "function": {"name": n, "parameters": p, "strict": strict}} for n, p in tools]))
                yield self.s.post(RESPONSES, {"input": "x", "stream": stream, "max_output_tokens": 1, "tools": [
                    {"type": "function", "name": n, "parameters": p, "strict": strict} for n, p in tools]})
                yield self.s.post(MESSAGES, user("x", stream=stream, max_tokens=1, tools=[
                    {"name": n, "input_schema": dict({"type": "object"}, **p), "strict": strict} for n, p in tools]))
                if not strict:
                    yield self.s.post("/api/chat", user("x", stream=stream, options={"num_predict": 1}, tools=[
                        {"type": "function", "function": {"name": n, "parameters": p}} for n, p in tools]))
        for p in loose:
            for r in asked(False, held[-1], p, held[0], p):
                self.assertEqual((r.status, r.headers.get("x-weft-warning")), (200, "parameters not held: f1, f3"), p)
            for r in asked(True, p):
                self.assertEqual(r.status, 400, p)
        for r in asked(False, *held):
            self.assertEqual((r.status, r.headers.get("x-weft-warning")), (200, None))
        s = stub(says="<function=", strict=1)
        self.addCleanup(s.close)
        for p, status in ((loose[0], 400), (held[-1], 200)):
            r = s.post(CHAT, user("x", max_tokens=1, tools=[{"type": "function", "function": {"name": "f", "parameters": p}}]))
            self.assertEqual((r.status, status == 200 or "parameters not held: f" in r.error()["message"]), (status, True))

    def test_left_out(self):
        hosted = [{"type": t} for t in ("web_search", "local_shell", "mcp", "image_generation", "tool_search")]
        r = self.post(RESPONSES, {"input": "x", "tools": hosted + [self.F], "max_output_tokens": 8})
        self.assertEqual(r.headers["x-weft-warning"], "tools left out: web_search, local_shell, mcp, image_generation, tool_search")
        self.assertIn("x1 tools", r.json()["output"][0]["content"][0]["text"])
        tools = [{"type": "web_search_20250305", "name": "w"}, {"type": "bash_20250124", "name": "bash"},
                 {"name": "f", "input_schema": {"type": "object"}, "defer_loading": True, "input_examples": [{}]}]
        r = self.post(MESSAGES, user("x", tools=tools, max_tokens=8))
        self.assertEqual(r.headers["x-weft-warning"],
                         "ignored fields: tools.defer_loading, tools.input_examples; tools left out: web_search_20250305, bash_20250124")
        self.assertIn("x1 tools", r.json()["content"][0]["text"])
        r = self.post(RESPONSES, {"input": "x", "tools": hosted, "max_output_tokens": 3})     # none is left
        self.assertNotIn("tools", r.json()["output"][0]["content"][0]["text"])
        self.assertEqual(self.s.post(RESPONSES, {"input": "x", "tools": hosted, "tool_choice": "required"}).status, 400)

    def test_custom_in_responses(self):
        said = self.CALL % ("apply_patch", self.ARG % ("input", "*** Begin\n\"é\""))
        body = {"input": said, "tools": [self.PATCH, self.F], "max_output_tokens": 60, "parallel_tool_calls": False}
        item = self.post(RESPONSES, body).json()["output"][0]
        self.assertEqual((item["type"], item["name"], item["input"]), ("custom_tool_call", "apply_patch", "*** Begin\n\"é\""))
        self.assertTrue(item["id"].startswith("ctc_"))
        told = events(self.post(RESPONSES, dict(body, stream=True)))
        kinds = [e["type"] for e in told if "custom" in e["type"] or "output_item" in e["type"]]
        self.assertEqual(kinds, ["response.output_item.added", "response.custom_tool_call_input.delta",
                                 "response.custom_tool_call_input.done", "response.output_item.done"])
        self.assertEqual([e.get("delta", e.get("input")) for e in told if "custom" in e["type"]], ["*** Begin\n\"é\""] * 2)
        self.assertFalse([e for e in told if "function_call_arguments" in e["type"]])
        # One that is cut has its input as far as it came, and what may yet be text of the mark that ends it.
        whole, seen = item["input"], set()
        for n in range(8, 60):
            cut = self.post(RESPONSES, dict(body, max_output_tokens=n)).json()
            if cut["output"] and cut["output"][0]["type"] == "custom_tool_call":
                seen.add(cut["output"][0]["input"].removesuffix("\ufffd"))
                self.assertTrue(all(map((whole + "\n</parameter>").startswith, seen)), seen)
        self.assertGreater(len(seen), 3)
        # It comes back, and so does what it did.
        history = [{"role": "user", "content": "A"}, {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "B"},
                   {"type": "custom_tool_call_output", "call_id": "c", "output": "n7"}]
        text = self.post(RESPONSES, {"input": history, "tools": [self.PATCH], "max_output_tokens": 4}).json()
        self.assertIn("An7", text["output"][0]["content"][0]["text"])

    def test_custom_in_chats(self):
        said = self.CALL % ("apply_patch", self.ARG % ("input", "p"))
        body = user(said, tools=[{"type": "custom", "custom": {"name": "apply_patch"}}], max_tokens=60, parallel_tool_calls=False)
        call, = self.post(CHAT, body).json()["choices"][0]["message"]["tool_calls"]
        self.assertEqual((call["type"], call["custom"]), ("custom", {"name": "apply_patch", "input": "p"}))
        deltas = [d for e in self.post(CHAT, dict(body, stream=True)).events() for d in e["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual((deltas[0]["type"], deltas[0]["custom"]["name"]), ("custom", "apply_patch"))
        self.assertEqual("".join(d["custom"]["input"] for d in deltas), "p")

    def test_namespaces(self):
        space = {"type": "namespace", "name": "mcp__fs", "description": "Files.", "tools": [self.F, dict(self.F, name="g")]}
        said = self.CALL % ("mcp__fs__g", self.ARG % ("a", "5"))
        body = {"input": said, "tools": [space], "max_output_tokens": 60, "parallel_tool_calls": False}
        r = self.post(RESPONSES, body).json()
        item = r["output"][0]
        self.assertEqual((item["type"], item["namespace"], item["name"], item["arguments"]),
                         ("function_call", "mcp__fs", "g", '{"a":5}'))
        told = events(self.post(RESPONSES, dict(body, stream=True)))
        self.assertEqual([e["name"] for e in told if e["type"] == "response.function_call_arguments.done"], ["g"])
        named = dict(body, tool_choice={"type": "function", "name": "g"}, input=self.ARG % ("a", "6") + "</function>\n</tool_call>")
        self.assertEqual(self.post(RESPONSES, named).json()["output"][0]["arguments"], '{"a":6}')

    def test_tools_in_the_input(self):
        """Codex sends its tools as an item of the input; what a search for tools found comes in one too."""
        space = {"type": "namespace", "name": "functions", "description": "", "tools": [dict(self.F, name="g"), dict(self.PATCH, name="p")]}
        said = {"role": "user", "content": self.CALL % ("functions__g", self.ARG % ("a", "5"))}

        def item(kind, *tools):
            return {"type": kind, "role": "developer", "call_id": "c", "execution": "client", "status": "completed", "tools": list(tools)}
        asked = {"type": "tool_search_call", "call_id": "c", "execution": "client", "status": "completed", "arguments": {"query": "q"}}
        first = {"role": "user", "content": "A"}
        deferred = dict(space, tools=[dict(t, defer_loading=True) for t in space["tools"]])
        for items in ([item("additional_tools", space), said], [first, item("additional_tools", self.F), item("additional_tools", space), said],
                      [item("additional_tools"), item("additional_tools", dict(space, tools=[])), item("additional_tools", space), said],
                      [first, asked, item("tool_search_output", deferred), said],
                      [first, asked, item("tool_search_output", deferred), {"type": "message", **said}, item("additional_tools")]):
            body = {"input": items, "tools": [self.F], "max_output_tokens": 400, "parallel_tool_calls": False}
            for stream in (False, True):
                r = self.post(RESPONSES, dict(body, stream=stream))
                call = [e["item"] for e in events(r) if e["type"] == "response.output_item.done"][-1] if stream else r.json()["output"][-1]
                self.assertEqual((call["type"], call.get("namespace"), call["name"], call["arguments"]), ("function_call", "functions", "g", '{"a":5}'))
                self.assertNotIn("x-weft-warning", r.headers)
        # After the body's own; a tool that comes again stands where it stood, as it came last.
        held = lambda n: dict(self.F, strict=True, parameters={"type": "object", "properties": {"a": {"enum": [n]}}, "required": ["a"],
                                                               "additionalProperties": False})
        rest = {"role": "user", "content": self.ARG % ("a", "7") + "</function>\n</tool_call>"}
        named = {"tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": 60}
        for tools, items in (([held(5)], [item("additional_tools", held(7)), rest]), ([], [item("additional_tools", held(5)), item("additional_tools", held(7)), rest])):
            r = self.post(RESPONSES, {"input": items, "tools": tools, **named}).json()
            self.assertEqual(r["output"][-1].get("arguments"), '{"a":7}', r["output"])
        # A plain function in the place of a custom tool is one.
        custom = {"type": "custom", "name": "f"}
        for last, kind in ((held(7), "function_call"), (custom, "custom_tool_call")):
            r = self.post(RESPONSES, {"input": [item("additional_tools", custom, self.PATCH), item("additional_tools", last), rest], **named}).json()
            self.assertEqual(r["output"][-1]["type"], kind)
        # They stay for the responses that go on from this one.
        r = self.post(RESPONSES, {"input": [item("additional_tools", space), first], "max_output_tokens": 2}).json()
        for _ in range(2):
            r = self.post(RESPONSES, {"input": [said], "previous_response_id": r["id"], "max_output_tokens": 200, "parallel_tool_calls": False}).json()
            self.assertEqual(r["output"][-1].get("name"), "g", r["output"])
        for bad, at in (({"tools": {}}, "input[0].tools"), ({"tools": [5]}, "input[0].tools[0]"), ({"tools": [{"type": "function"}]}, "input[0].tools[0].name")):
            for kind in ("additional_tools", "tool_search_output"):
                r = self.s.post(RESPONSES, {"input": [{"type": kind, **bad}, first]})
                self.assertEqual((r.status, r.error()["param"]), (400, at))

    def test_search_for_tools(self):
        """The client's search is a function for the model, and a call of its own kind for the client."""
        search = {"type": "tool_search", "execution": "client", "description": "finds", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}
        body = {"input": self.CALL % ("tool_search", self.ARG % ("query", "pears")), "tools": [search], "max_output_tokens": 60, "parallel_tool_calls": False}
        r = self.post(RESPONSES, body)
        call, = r.json()["output"]
        self.assertEqual({k: call[k] for k in ("type", "execution", "arguments", "status")},
                         {"type": "tool_search_call", "execution": "client", "arguments": {"query": "pears"}, "status": "completed"})
        self.assertTrue(call["call_id"])
        self.assertNotIn("x-weft-warning", r.headers)
        told = events(self.post(RESPONSES, dict(body, stream=True)))
        self.assertEqual([e["type"] for e in told if "item" in e["type"] or "arguments" in e["type"]], ["response.output_item.added", "response.output_item.done"])
        added, done = [e["item"] for e in told if "output_item" in e["type"]]
        self.assertEqual((added["arguments"], done["arguments"], added["call_id"]), ({}, {"query": "pears"}, done["call_id"]))
        # It comes back as it went, with what was found.
        items = [{"role": "user", "content": "A"}, call, {"type": "tool_search_output", "call_id": call["call_id"], "tools": [self.F]}]
        self.assertIn('A[{"type":"function","name":"f"', self.post(RESPONSES, {"input": items, "max_output_tokens": 40}).json()["output"][0]["content"][0]["text"])

    def test_outputs_without_a_text(self):
        for kind, more, text in (("function_call_output", {}, "AB"), ("function_call_output", {"output": None}, "AB"),
                                 ("apply_patch_call_output", {"status": "failed"}, "AfailedB"), ("custom_tool_call_output", {"output": []}, "AB"),
                                 ("tool_search_output", {}, "AB")):
            items = [{"role": "user", "content": "A"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 5}},
                     {"type": kind, "call_id": "c", **more}, {"role": "user", "content": "B"}]
            r = self.post(RESPONSES, {"input": items, "max_output_tokens": 12}).json()
            self.assertIn(text, r["output"][0]["content"][0]["text"], kind)

    def test_allowed(self):
        tools = [self.F, dict(self.F, name="g"), dict(self.F, name="h")]
        allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
        rest = self.ARG % ("a", "5") + "</function>\n</tool_call>"
        r = self.post(RESPONSES, {"input": rest, "tools": tools, "tool_choice": allowed, "max_output_tokens": 40}).json()
        self.assertEqual((r["output"][0]["name"], r["output"][0]["arguments"]), ("g", '{"a":5}'))
        chat = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}}
        wrapped = [{"type": "function", "function": {k: v for k, v in t.items() if k != "type"}} for t in tools]
        r = self.post(CHAT, user(rest, tools=wrapped, tool_choice=chat, max_tokens=40)).json()
        self.assertEqual(r["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "g")
        allowed["mode"] = "auto"
        self.post(RESPONSES, {"input": "x", "tools": tools, "tool_choice": allowed, "max_output_tokens": 4})
        allowed["tools"] = [{"type": "function", "name": "other"}]
        self.assertEqual(self.s.post(RESPONSES, {"input": "x", "tools": tools, "tool_choice": allowed}).status, 400)

    def test_history_of_what_others_ran(self):
        items = [{"role": "user", "content": "A"},
                 {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
                 {"type": "mcp_call", "id": "m", "name": "look", "server_label": "s", "arguments": "{}", "output": "n7"},
                 {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
                 {"type": "local_shell_call_output", "call_id": "c", "output": "n8"},
                 {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
                 {"type": "compaction", "encrypted_content": "x"}, {"role": "user", "content": "B"}]
        r = self.post(RESPONSES, {"input": items, "max_output_tokens": 6})
        self.assertIn("An7n8B", r.json()["output"][0]["content"][0]["text"])
        self.assertEqual(r.headers["x-weft-warning"], "ignored fields: input.compaction")
        r = self.post(RESPONSES, {"input": items, "max_output_tokens": 6, "stream": True})
        self.assertEqual(r.headers["x-weft-warning"], "ignored fields: input.compaction")
        r = self.post(RESPONSES, {"input": items[:-2] + items[-1:], "max_output_tokens": 6})
        self.assertNotIn("x-weft-warning", r.headers)
        talk = [{"role": "user", "content": "A"}, {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            {"type": "text", "text": "C"}]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}},
                {"type": "text", "text": "E"}]}]
        r = self.post(MESSAGES, {"messages": talk, "max_tokens": 60}).json()
        self.assertIn("A[]CThe tool f is available.DE", r["content"][0]["text"])
        talk[1]["content"].insert(0, {"type": "compaction", "content": "x"})
        r = self.post(MESSAGES, {"messages": talk, "max_tokens": 60})
        self.assertIn("A[]CThe tool f is available.DE", r.json()["content"][0]["text"])
        self.assertEqual(r.headers["x-weft-warning"], "ignored fields: messages.compaction")


class NoArguments(unittest.TestCase):
    """A tool without parameters takes {}, however that is said, in each dialect."""
    DIALECTS = [("<function=", "</function>\n</tool_call>"), ("<tool_call>", " {}}\n</tool_call>"),
                ("Environment: ipython", " {}}"), ("[func_name1(", ")]")]

    def test_empty(self):
        for says, rest in self.DIALECTS:
            s = stub(says=says)
            self.addCleanup(s.close)
            for schema in EMPTY:
                f = {"name": "now"} if schema is None else {"name": "now", "parameters": schema}
                with self.subTest(says=says, schema=schema):
                    # The stub's engine does not look at masks, so what the grammar allows is asked of it itself.
                    r = s.post(CHAT, user(rest, tools=[{"type": "function", "function": f}], tool_choice="required", max_tokens=30))
                    self.assertEqual(r.status, 200, r.text())
                    call = r.json()["choices"][0]["message"]["tool_calls"][0]["function"]
                    self.assertEqual((call["name"], json.loads(call["arguments"])), ("now", {}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
