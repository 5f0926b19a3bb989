"""Calls at a server: what the client receives is what its schema allows and what was generated, in three dialects and three
APIs, streamed and whole; what cannot be held is refused by name.  Run as: test_calls.py WEFT models/weft-tiny

Schemas hold one value each, so a call has to come back as that value, whatever its strings look like."""
import json
import os
import random
import sys
import tempfile
import unittest

from serverkit import Server

WEFT, TINY = sys.argv[1:3]
HERMES = "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>"
GLM = ("<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>"
       "{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}</tool_call>")
FRAME = ("{% if tools %}<|im_start|>system\n{{ tools | tojson }}\n{% set c = {'function': {'name': 'N', 'arguments': {'K': 'V'}}} %}CALL"
         "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}CALL"
         "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Texts that end a value, a call or a string in one form or another.
HARD = ["</parameter>", "</function>", "</tool_call>", "<parameter=k>", "</arg_value>", "<arg_key>k</arg_key>", "\"", "'", "\\", "]", "}", ",",
        "\n", " ", "5", "true", "null", "é", "😀", "x", "{", "["]
KEYS = ["k", "edits", "file_path", "n"]


def random_text(r):
    return "".join(r.choice(HARD) + r.choice(["", " a "]) for _ in range(r.randrange(1, 4)))


def random_value(r, depth=0):
    kind = r.randrange(4 if depth > 1 else 6)
    if kind == 0:
        return r.choice([True, False, None])
    if kind == 1:
        return r.choice([0, -7, 12, 2.5, 1000000])
    if kind < 4:
        return random_text(r)
    if kind == 4:
        return [random_value(r, depth + 1) for _ in range(r.randrange(3))]
    return {k: random_value(r, depth + 1) for k in r.sample(KEYS, r.randrange(3))}


def kind_of(v):
    return {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null"}[type(v)]


def schema_of(r, value):
    """A schema of these arguments alone, said in one of the ways that schemas say it."""
    members, defs = {}, {}
    for k, v in value.items():
        way = r.randrange(4)
        one = {"const": v} if way == 0 else {"enum": [v]} if way == 1 else {"type": kind_of(v), "const": v}
        if way == 3:
            defs[k] = one
            one = {"$ref": "#/$defs/" + k}
        members[k] = one
    whole = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    way = r.randrange(4)
    if way == 1:
        defs["whole"] = whole
        whole = {"$ref": "#/$defs/whole"}
    elif way == 2:
        whole = {"anyOf": [whole]}
    elif way == 3:
        whole = {"allOf": [whole], "description": "d"}
    return {**whole, "$defs": defs}


class Calls(unittest.TestCase):
    def served(self, see, template=None):
        with tempfile.TemporaryDirectory() as to:
            for name in os.listdir(TINY):
                os.symlink(os.path.join(os.path.realpath(TINY), name), os.path.join(to, name))
            if template:
                with open(os.path.join(TINY, "tokenizer_config.json")) as f:
                    config = json.load(f)
                config.pop("chat_template", None)
                os.unlink(os.path.join(to, "tokenizer_config.json"))
                with open(os.path.join(to, "tokenizer_config.json"), "w") as f:
                    json.dump(config, f)
                if os.path.lexists(os.path.join(to, "chat_template.jinja")):
                    os.unlink(os.path.join(to, "chat_template.jinja"))
                with open(os.path.join(to, "chat_template.jinja"), "w") as f:
                    f.write(FRAME.replace("CALL", template))
            server = Server([WEFT, "serve", to, "--port", "0", "--port-file", "{port_file}", "--threads", "1"])
            try:
                see(server)
            finally:
                server.close()

    def ask(self, server, api, schema, strict=True, **more):
        f = {"name": "f", "description": "d", "parameters": schema, "strict": strict}
        if api == "chat":
            body = {"messages": [{"role": "user", "content": "Call f."}], "tools": [{"type": "function", "function": f}],
                    "tool_choice": "required", "max_tokens": 400}
            return server.post("/v1/chat/completions", {**body, "temperature": 0, **more})
        if api == "responses":
            return server.post("/v1/responses", {"input": "Call f.", "tools": [{"type": "function", **f}], "tool_choice": "required",
                                                 "max_output_tokens": 400, "temperature": 0, **more})
        f["input_schema"] = f.pop("parameters")
        return server.post("/v1/messages", {"messages": [{"role": "user", "content": "Call f."}], "tools": [f], "max_tokens": 400,
                                            "tool_choice": {"type": "any"}, "temperature": 0, **more})

    def arguments(self, server, api, schema, **more):
        r = self.ask(server, api, schema, **more)
        self.assertEqual(r.status, 200, r.text())
        if more.get("stream"):
            pieces = [c.get("function", {}).get("arguments") or "" for e in r.events() for choice in e.get("choices", [])
                      for c in choice["delta"].get("tool_calls", [])]
            return json.loads("".join(pieces))
        j = r.json()
        if api == "chat":
            self.assertFalse(j["choices"][0]["message"].get("content"), r.text())
            return json.loads(j["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
        if api == "responses":
            return json.loads([x for x in j["output"] if x["type"] == "function_call"][0]["arguments"])
        return [b for b in j["content"] if b["type"] == "tool_use"][0]["input"]

    def random_calls(self, server, seed, times):
        held = 0
        for i in range(times):
            r = random.Random(seed * 1000 + i)
            value = {k: random_value(r) for k in r.sample(KEYS, r.randrange(1, 4))}
            schema = schema_of(r, value)
            first = self.ask(server, "chat", schema)
            # What has no spelling in the form of calls is refused by name.
            if first.status == 400:
                self.assertRegex(first.error()["message"], "cannot hold it: no value of", json.dumps(schema))
                continue
            held += 1
            for api, more in [("chat", {}), ("chat", {"stream": True}), ("responses", {}), ("messages", {})]:
                self.assertEqual(self.arguments(server, api, schema, **more), value, json.dumps(schema))
        self.assertGreater(held, times // 3)

    def test_random_tagged(self):
        self.served(lambda s: self.random_calls(s, 1, TIMES))

    def test_random_json(self):
        self.served(lambda s: self.random_calls(s, 2, TIMES), HERMES)

    def test_random_marked(self):
        self.served(lambda s: self.random_calls(s, 3, TIMES), GLM)

    def test_refused(self):
        self.served(self.refused)

    def refused(self, server):
        one = {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"], "additionalProperties": False}
        other = {"type": "object", "properties": {"c": {"type": "boolean"}}, "required": ["c"], "additionalProperties": False}
        for schema in ({"anyOf": [one, other]}, {"type": "object", "patternProperties": {"^x": {}}},
                       {"type": "object", "properties": {"": {}}, "required": [""]},
                       {"type": "object", "properties": {"a": {"const": "a </parameter> b"}, "n": {"enum": [5]}}, "required": ["a", "n"]}):
            for api in ("chat", "responses", "messages"):
                r = self.ask(server, api, schema)
                self.assertEqual(r.status, 400, r.text())
                self.assertIn("\"f\" is strict", r.text().replace("\\", ""))
            self.assertEqual(self.ask(server, "chat", schema, strict=False).status, 200)
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0}
        for form in ({}, {"name": "x"}, {"name": "x", "strict": True}, one):
            r = server.post("/v1/chat/completions", {**chat, "response_format": {"type": "json_schema", "json_schema": form}})
            self.assertEqual(r.status, 400, r.text())
            self.assertIn("json_schema.schema", r.text())
        for expression in ("\\Aab\\Z", "a\\h", "[[:digit:]]"):
            r = server.post("/v1/chat/completions", {**chat, "guided_regex": expression})
            self.assertEqual((r.status, r.error()["code"]), (400, "unsupported_grammar"), r.text())

    def test_others(self):
        self.served(self.others)

    def others(self, server):
        chat = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
        schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
        # The beginning of a demanded call that the limit cuts is no content.
        for limit in range(1, 4):
            for more in ({}, {"stream": True}):
                r = self.ask(server, "chat", schema, max_tokens=limit, **more)
                self.assertEqual(r.status, 200, r.text())
                self.assertNotIn("tool_call>", r.text())
                if not more and not r.json()["choices"][0]["message"].get("tool_calls"):
                    self.assertTrue(r.json()["choices"][0]["malformed_tool_call"], r.text())
        # No arguments, as clients write them that cannot tell an empty map from an empty list.
        def prompt(arguments):
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
            return server.post("/apply-template", {"messages": chat["messages"] + [{"role": "assistant", "content": "", "tool_calls": [call]},
                                                   {"role": "tool", "tool_call_id": "c", "content": "ok"}]}).json()["prompt"]
        for none in ("[]", "null", " [ ] ", [], None):
            self.assertEqual(prompt(none), prompt("{}"), none)
        self.assertNotEqual(prompt("[1]"), prompt("{}"))
        # A custom tool's expression is the whole input.
        for expression in ("[ab]{3}", "^(?P<month>May|June) (?P<day>[0-9]{2})$", "x|yy"):
            tool = {"type": "custom", "name": "stamp", "description": "", "format": {"type": "grammar", "syntax": "regex", "definition": expression}}
            r = server.post("/v1/responses", {"input": "Go.", "tools": [tool], "tool_choice": "required", "temperature": 0, "max_output_tokens": 60})
            self.assertEqual(r.status, 200, r.text())
            said = [x["input"] for x in r.json()["output"] if x["type"] == "custom_tool_call"]
            self.assertRegex(said[0], "\\A(?:%s)\\Z" % expression)
        tool["format"]["definition"] = "(?i)x"
        r = server.post("/v1/responses", {"input": "Go.", "tools": [tool]})
        self.assertEqual((r.status, r.error()["code"]), (400, "unsupported_grammar"), r.text())


TIMES = int(os.environ.get("WEFT_CALLS", 0)) or (4 if os.environ.get("WEFT_TEST_QUICK") else 12)
if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main(verbosity=1)
