"""A model with several chat templates: one shows requests with tools, one the others, whatever API they come by and wherever
the templates lie.  Run as: test_templates.py WEFT models/weft-tiny"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from serverkit import Server

WEFT, TINY = sys.argv[1:3]
PLAIN = ("PLAIN{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
RAG = "{{ raise_exception('rag') }}"
F = {"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]}
CHAT = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": F}}]
MESSAGES = [{"name": "f", "description": "d", "input_schema": F}]
RESPONSES = [{"type": "function", "name": "f", "description": "d", "parameters": F}]
HELLO = [{"role": "user", "content": "hi"}]


def own_template():
    with open(os.path.join(TINY, "chat_template.jinja")) as f:
        return "TOOLS" + f.read()


def named(**texts):
    return [{"name": k, "template": v} for k, v in texts.items()]


def folder(d, config=None, files={}):
    """weft-tiny with these templates instead of its own."""
    for f in os.listdir(TINY):
        if f not in ("chat_template.jinja", "tokenizer_config.json"):
            os.symlink(os.path.join(os.path.abspath(TINY), f), os.path.join(d, f))
    with open(os.path.join(TINY, "tokenizer_config.json")) as f:
        j = json.load(f)
    j.pop("chat_template", None)
    if config:
        j["chat_template"] = config
    with open(os.path.join(d, "tokenizer_config.json"), "w") as f:
        json.dump(j, f)
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(d, name)), exist_ok=True)
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
    return d


class Templates(unittest.TestCase):
    def temp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        return d.name

    def serve(self, model, *more):
        s = Server([WEFT, "serve", model, "--port", "0", "--port-file", "{port_file}", "--threads", "1", *more])
        self.addCleanup(s.close)
        return s

    def shown(self, s, **body):
        r = s.post("/apply-template", dict({"messages": HELLO}, **body))
        self.assertEqual(r.status, 200, r.text())
        return r.json()["prompt"]

    def check_both(self, s, plain="PLAIN", tools="TOOLS"):
        """Which template shows what."""
        self.assertTrue(self.shown(s).startswith(plain))
        self.assertTrue(self.shown(s, tools=[]).startswith(plain))
        self.assertTrue(self.shown(s, tools=None).startswith(plain))
        self.assertTrue(self.shown(s, tools=CHAT, tool_choice="none").startswith(plain))
        for choice in ("auto", "required", {"type": "function", "function": {"name": "f"}}):
            self.assertTrue(self.shown(s, tools=CHAT, tool_choice=choice).startswith(tools), choice)

    def test_folders(self):
        own = own_template()
        more = "additional_chat_templates/"
        for config, files in (
            (named(default=PLAIN, tool_use=own, rag=RAG), {}),
            (named(rag=RAG, tool_use=own, default=PLAIN), {}),
            (None, {"chat_template.jinja": PLAIN, more + "tool_use.jinja": own, more + "rag.jinja": RAG}),
            (PLAIN, {more + "tool_use.jinja": own}),
            (named(default=PLAIN, tool_use=RAG), {more + "tool_use.jinja": own}),
        ):
            d = folder(self.temp(), config, files)
            self.check_both(self.serve(d))

    def test_one_for_all(self):
        """A template of its own for tools is one more, never a condition."""
        own = own_template()
        for config, files in ((own, {}), (named(default=own, rag=RAG), {}), (named(tool_use=own), {}),
                              (named(default=own, tool_use=PLAIN), {"chat_template.jinja": own})):
            self.check_both(self.serve(folder(self.temp(), config, files)), "TOOLS", "TOOLS")

    def test_given(self):
        """--chat-template takes the place of all of them."""
        d = self.temp()
        given = os.path.join(self.temp(), "given.jinja")
        with open(given, "w") as f:
            f.write("GIVEN" + own_template())
        s = self.serve(folder(d, named(default=PLAIN, tool_use=RAG)), "--chat-template", given)
        self.check_both(s, "GIVEN", "GIVEN")

    def test_gguf(self):
        """A GGUF file made of the folder has them, and a folder made of the folder; a folder made of the file too."""
        own = own_template()
        more = "additional_chat_templates/"
        for config, files in ((named(tool_use=own, default=PLAIN), {}),
                              (None, {"chat_template.jinja": PLAIN, more + "tool_use.jinja": own})):
            d = folder(self.temp(), config, files)
            out = self.temp()
            for kind, source, name in (("affine8", d, "folder"), ("BF16", d, "plain.gguf"), ("Q8_0", os.path.join(out, "plain.gguf"), "q8.gguf"),
                                       ("affine8", os.path.join(out, "plain.gguf"), "again")):
                name = os.path.join(out, name)
                p = subprocess.run([WEFT, "quantize", source, "--type", kind, "--out", name, "--threads", "1"], capture_output=True, text=True)
                self.assertEqual(p.returncode, 0, p.stderr)
                self.check_both(self.serve(name))

    def test_names_in_gguf(self):
        """Names that become one key of a GGUF file: the first is kept, and the others are told of."""
        d = folder(self.temp(), named(default=PLAIN, **{"a b": RAG, "a_b": PLAIN, "": RAG, "é": RAG}))
        out = os.path.join(self.temp(), "x.gguf")
        p = subprocess.run([WEFT, "quantize", d, "--type", "Q8_0", "--out", out, "--threads", "1"], capture_output=True, text=True)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn('"a_b"', p.stderr)
        with open(out, "rb") as f:
            head = f.read(1 << 24)
        self.assertEqual([head.count(b"tokenizer.chat_template" + k) for k in (b".a_b", b".__", b"s", b".")], [1, 1, 1, 2])
        self.assertTrue(self.shown(self.serve(out)).startswith("PLAIN"))

    def test_answers(self):
        """Calls by each API, whole and streamed: the dialect of the template with tools counts, and thinking as it says."""
        s = self.serve(folder(self.temp(), named(default=PLAIN, tool_use=own_template())))
        for stream in (False, True):
            for path, body in (
                ("/v1/chat/completions", {"messages": HELLO, "tools": CHAT, "tool_choice": "required", "max_tokens": 60}),
                ("/v1/messages", {"messages": HELLO, "tools": MESSAGES, "tool_choice": {"type": "any"}, "max_tokens": 60}),
                ("/v1/responses", {"input": "hi", "tools": RESPONSES, "tool_choice": "required", "max_output_tokens": 60}),
            ):
                r = s.post(path, dict(body, stream=stream, temperature=0))
                self.assertEqual(r.status, 200, (path, r.text()))
                said = r.text().replace("\\", "").replace(" ", "")
                self.assertTrue('"a":"x"' in said or '"a":"' in said and 'x"' in said, (path, r.text()))
                del body["tools"], body["tool_choice"]
                self.assertEqual(s.post(path, dict(body, stream=stream, temperature=0)).status, 200, path)
            r = s.post("/api/chat", {"messages": HELLO, "tools": CHAT, "stream": stream, "options": {"num_predict": 4}})
            self.assertEqual(r.status, 200, r.text())
        # Thinking can be turned off by the template with tools alone.
        ask = lambda **more: s.post("/v1/chat/completions", dict({"messages": HELLO, "max_tokens": 2}, **more))
        self.assertEqual(ask(enable_thinking=True).status, 400)
        self.assertEqual(ask(enable_thinking=True, tools=CHAT, tool_choice="none").status, 400)
        self.assertEqual(ask(enable_thinking=True, tools=CHAT).status, 200)
        thinks = lambda **more: s.post("/v1/messages", dict({"messages": HELLO, "max_tokens": 2, "thinking": {"type": "enabled", "budget_tokens": 1}}, **more))
        self.assertIn("x-weft-warning", thinks().headers)
        self.assertNotIn("x-weft-warning", thinks(tools=MESSAGES).headers)
        self.assertNotIn("x-weft-warning", ask(tools=CHAT, chat_template_kwargs={"enable_thinking": False}).headers)
        self.assertIn("x-weft-warning", ask(chat_template_kwargs={"enable_thinking": False}).headers)
        # A history of calls is shown by either.
        past = HELLO + [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                        {"role": "tool", "tool_call_id": "1", "content": "done"}]
        self.assertEqual(ask(messages=past, tools=CHAT).status, 200)
        self.assertEqual(ask(messages=past).status, 200)

    def test_effort(self):
        """A template that knows both says apart whether its model thinks and how much: no effort is no thought, and any other one is."""
        both = ("{% if reasoning_effort is defined and reasoning_effort not in ['low', 'high'] %}{{ raise_exception('effort ' ~ reasoning_effort) }}"
                "{% endif %}<think>{{ enable_thinking | default('as ever') }} {{ reasoning_effort | default('as ever') }} " + PLAIN)
        s = self.serve(folder(self.temp(), both))
        for body, want in (({}, "as ever as ever"), ({"reasoning_effort": "none"}, "False as ever"), ({"reasoning_effort": "high"}, "True high"),
                           ({"reasoning": {"effort": "low"}}, "True low"), ({"enable_thinking": False, "reasoning_effort": "low"}, "False low"),
                           ({"enable_thinking": True, "reasoning_effort": "none"}, "True as ever"), ({"enable_thinking": True}, "True as ever"),
                           ({"reasoning_effort": "none", "chat_template_kwargs": {"reasoning_effort": "low"}}, "False low")):
            self.assertTrue(self.shown(s, **body).startswith("<think>" + want + " PLAIN"), (body, self.shown(s, **body)))
        r = s.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2, "reasoning_effort": "max"})
        self.assertEqual(r.status, 400, r.text())
        self.assertIn("effort max", r.text())

    def test_fitted(self):
        """Each is shown what it takes: one has no system message further on, the other shows it in its place."""
        strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}{% endfor %}"
        messages = HELLO + [{"role": "assistant", "content": "yes"}, {"role": "system", "content": "be brief"}] + HELLO
        for plain, tools in ((PLAIN, own_template() + strict), (PLAIN + strict, "TOOLS" + PLAIN + "{% if tools %}{{ tools }}{% endif %}")):
            s = self.serve(folder(self.temp(), named(default=plain, tool_use=tools)))
            for given, template in ((None, plain), (CHAT, tools)):
                self.assertEqual("system-reminder" in self.shown(s, messages=messages, tools=given), strict in template)

    def test_told(self):
        s = self.serve(folder(self.temp(), named(default=PLAIN, tool_use=own_template())))
        props = s.ask("GET", "/props").json()
        self.assertEqual((props["chat_template"], props["chat_template_tool_use"]), (PLAIN, own_template()))
        self.assertTrue(props["tools"])
        self.assertIn("tools", s.post("/api/show", {"model": "default"}).json()["capabilities"])
        s = self.serve(folder(self.temp(), own_template()))
        self.assertNotIn("chat_template_tool_use", s.ask("GET", "/props").json())

    def test_broken(self):
        """One that cannot be compiled is told of by its name, before anything is served."""
        d = folder(self.temp(), named(default=PLAIN, tool_use="{{ messages | nosuchfilter }}"))
        p = subprocess.run([WEFT, "serve", d, "--port", "0"], capture_output=True, text=True)
        self.assertEqual(p.returncode, 1)
        self.assertIn("chat template tool_use", p.stderr)
        self.assertIn("nosuchfilter", p.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
