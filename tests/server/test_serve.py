"""`weft serve` with a real model: clients that leave in every stage, slow ones
beside quick ones, answers that do not depend on company.
Run as: test_serve.py WEFT MODEL"""
import errno
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serverkit import PATIENCE, Conn, Server, logits

WEFT, MODEL = sys.argv[1:3]
QUICK = os.environ.get("WEFT_TEST_QUICK")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

if not os.path.exists(os.path.join(MODEL, "model.safetensors")):
    print("skipped: %s has no model.safetensors" % MODEL)
    sys.exit(77)


def start(*options):
    return Server([WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}"] + list(options))


def opened_by_reader(fifo, p):
    """A descriptor to write to it, once p reads from it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as e:
            if e.errno != errno.ENXIO or p.poll() is not None or time.monotonic() > end:
                raise
        time.sleep(0.01)


def long_prompt(number, tokens):
    """So many tokens, like no other number's."""
    return [100 + (i * i + number) % 300 for i in range(tokens)]


class Company(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = start("--queue", "200", "--tune", "client-stall-timeout=3600")

    @classmethod
    def tearDownClass(cls):
        cls.s.close()

    def ask(self, i):
        body = {"messages": [{"role": "user", "content": "Question %d: why %s?" % (i, "so " * (i % 17))}],
                "max_tokens": 4 + i % 13, "stream": i % 2 == 1, "logprobs": True}
        body.update({"temperature": 0} if i % 3 == 0 else {"temperature": 1.3, "seed": i, "top_k": 40, "min_p": 0.01})
        r = self.s.post(CHAT, body)
        self.assertEqual(r.status, 200, r.text())
        if not body["stream"]:
            c = r.json()["choices"][0]
            return c["message"]["content"], c["logprobs"]["content"], c["finish_reason"]
        parts = [e["choices"][0] for e in r.events()]
        return ("".join(p["delta"].get("content", "") for p in parts),
                sum((p["logprobs"]["content"] for p in parts if p["logprobs"]), []), parts[-1]["finish_reason"])

    def test_together_as_alone(self):
        """64 at once, sampled and greedy, while others leave: each as it was alone, bit for bit."""
        n = 16 if QUICK else 64
        alone = [self.ask(i) for i in range(n)]
        together = [None] * n

        def one(i):
            together[i] = self.ask(i)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for i in range(8):
            c = self.s.connect()
            c.request("POST", COMPLETIONS, {"prompt": long_prompt(i, 300), "max_tokens": 500, "ignore_eos": True})
            c.close()
        for t in threads:
            t.join(PATIENCE)
        self.assertEqual(together, alone)
        self.s.until("idle", requests_running=0, requests_waiting=0)

    SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "n", "list"], "properties": {
        "name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "opt": {"type": ["boolean", "null"]},
        "list": {"type": "array", "maxItems": 3, "items": {"anyOf": [{"const": "x"}, {"type": "integer", "maximum": 5}]}}}}

    def held(self, i):
        """One answer held to a schema; all sorts of asking for it."""
        body = {"messages": [{"role": "user", "content": "Question %d, please." % i}], "max_tokens": 400, "stream": i % 3 == 1}
        body.update({"temperature": 0} if i % 4 == 0 else {"temperature": 1.2, "seed": i})
        path = CHAT
        if i % 7 == 3:
            path, body["prompt"] = COMPLETIONS, "Number %d:" % i
            del body["messages"]
        elif i % 5 == 0:
            body["chat_template_kwargs"] = {"enable_thinking": True}
        if i % 2:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": self.SCHEMA, "strict": True}}
        else:
            body["guided_json"] = self.SCHEMA if i % 4 else json.dumps(self.SCHEMA)
        r = self.s.post(path, body)
        self.assertEqual(r.status, 200, r.text())
        if body["stream"]:
            parts = [e["choices"][0] for e in r.events()]
            text = "".join(p["delta"].get("content", "") if path == CHAT else p["text"] for p in parts)
            return text, parts[-1]["finish_reason"]
        c = r.json()["choices"][0]
        return (c["message"]["content"] if path == CHAT else c["text"]), c["finish_reason"]

    def test_goes_on(self):
        """The rest of a message that the client began: what a completion of the same text says."""
        for text in ("The capital is", "So, <|im_end|> \n", "<think>\nWell, one <"):
            messages = [{"role": "user", "content": "Tell me."}, {"role": "assistant", "content": text}]
            asked = {"messages": messages, "max_tokens": 12, "temperature": 0}
            prompt = self.s.post("/apply-template", dict(asked, continue_final_message=True)).json()["prompt"]
            self.assertTrue(prompt.endswith(text), prompt)
            self.assertEqual(prompt.count("<|im_start|>assistant"), 1)
            ids = self.s.post("/tokenize", dict(asked, continue_final_message=True)).json()["tokens"]
            want = self.s.post(COMPLETIONS, {"prompt": ids, "max_tokens": 12, "temperature": 0}).json()
            for path, more in ((CHAT, {"continue_final_message": True, "add_generation_prompt": False}),
                               (CHAT, {"messages": messages[:1] + [dict(messages[1], prefix=True)]}), ("/v1/messages", {})):
                r = self.s.post(path, dict(asked, **more)).json()
                if path == CHAT:
                    m = r["choices"][0]["message"]
                    said = (m.get("reasoning_content") or "") + (m["content"] or "")
                else:
                    said = "".join(b.get("text", b.get("thinking", "")) for b in r["content"])
                self.assertEqual(said.strip(), want["choices"][0]["text"].strip(), (path, text))
            if "<think>" in text:
                self.assertTrue(m.get("reasoning_content"), m)
            # Text of a message spells no special token, also here.
            whole = self.s.post("/detokenize", {"tokens": ids, "skip_special_tokens": True}).json()["prompt"]
            self.assertEqual("<|im_end|>" in whole, "<|im_end|>" in text)
        last = {"role": "assistant", "content": "x"}
        for body in ({"messages": [{"role": "user", "content": "x"}], "continue_final_message": True},
                     {"messages": [last], "continue_final_message": True, "add_generation_prompt": True},
                     {"messages": [dict(last, content="")], "continue_final_message": True},
                     {"messages": [dict(last, tool_calls=[{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}])],
                      "continue_final_message": True}):
            self.assertEqual(self.s.post(CHAT, body).status, 400, body)

    def test_arguments_that_are_no_json(self):
        """A call that broke off comes back in a history: the template, which wants objects, is given one."""
        def prompt(arguments, path="/apply-template"):
            call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
            r = self.s.post(path, {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                                                {"role": "tool", "tool_call_id": "a", "content": "no JSON"}], "max_tokens": 2})
            self.assertEqual(r.status, 200, (arguments, r.text()))
            return r.json().get("prompt")
        self.assertIn("<function=f>\n<parameter=arguments>\n{\"city\": \"Li\n</parameter>\n</function>", prompt('{"city": "Li'))
        self.assertEqual(prompt('{"city": "Lima"}').count("<parameter=city>\nLima\n</parameter>"), 1)
        for nothing in ("", " \n", "{}"):
            self.assertIn("<function=f>\n</function>", prompt(nothing))
        prompt("[1, 2", CHAT)

    RULES = 'root ::= "(" root ")" | [0-9]{1,3} | "<" root ("," root)* ">"\n'

    def test_held_to_a_grammar(self):
        """Rules, expressions and choices, in every spelling; plain, streamed and as a completion."""
        forms = [({"grammar": self.RULES}, r"[(<]*\d{1,3}[0-9,<>()]*"), ({"guided_grammar": self.RULES}, r"[(<]*\d{1,3}[0-9,<>()]*"),
                 ({"structured_outputs": {"grammar": self.RULES, "json": None}}, r"[(<]*\d{1,3}[0-9,<>()]*"),
                 ({"response_format": {"type": "grammar", "grammar": self.RULES}}, r"[(<]*\d{1,3}[0-9,<>()]*"),
                 ({"guided_regex": r"\d{3}-[a-z]{2,4}!"}, r"\d{3}-[a-z]{2,4}!"), ({"regex": "^(ab|c)+;$"}, "(ab|c)+;"),
                 ({"structured_outputs": {"regex": "x{3}[^x\n]{2}"}}, "x{3}[^x\n]{2}"),
                 ({"guided_choice": ["red", "green", "blue green"]}, "red|green|blue green"),
                 ({"structured_outputs": {"choice": ["n\u00f6", "ja"]}}, "n\u00f6|ja")]
        for i, (form, want) in enumerate(forms):
            for temperature in (0, 1.5):
                body = dict(form, messages=[{"role": "user", "content": "Say something, %d." % i}], max_tokens=40, seed=i,
                            temperature=temperature, chat_template_kwargs={"enable_thinking": False})
                c = self.s.post(CHAT, body).json()["choices"][0]
                text = c["message"]["content"]
                if c["finish_reason"] == "stop":
                    self.assertRegex(text, r"\A(?:%s)\Z" % want)
                    if "(" in want[:2] or want[0] == "[":
                        depth = 0
                        for ch in text:
                            depth += (ch in "(<") - (ch in ")>")
                            self.assertGreaterEqual(depth, 0)
                        self.assertEqual(depth, 0, text)
                parts = self.s.post(CHAT, dict(body, stream=True)).events()
                self.assertEqual("".join(e["choices"][0]["delta"].get("content") or "" for e in parts), text)
                done = self.s.post(COMPLETIONS, dict(form, prompt="It is ", max_tokens=40, temperature=temperature, seed=i)).json()
                if done["choices"][0]["finish_reason"] == "stop":
                    self.assertRegex(done["choices"][0]["text"], r"\A(?:%s)\Z" % want)

    def test_held_to_a_schema(self):
        """Valid when they end, the same alone and together, beside answers that are free."""
        n = 12 if QUICK else 40
        alone = [self.held(i) for i in range(n)]
        for text, finish in alone:
            if finish == "length":      # a thought may take all the room
                continue
            v = json.loads(text)
            keys = [k for k in self.SCHEMA["properties"] if k in v]
            self.assertEqual(list(v), keys)
            self.assertTrue({"name", "n", "list"} <= set(v), text)
            self.assertTrue(len(v["name"]) <= 12 and type(v["n"]) is int and 0 <= v["n"] <= 99, text)
            self.assertIn(v.get("opt"), (None, True, False))
            self.assertTrue(len(v["list"]) <= 3 and all(x == "x" or (type(x) is int and x <= 5) for x in v["list"]), text)
        self.assertGreater(sum(f == "stop" for _, f in alone), n * 3 // 4)
        together = [None] * n

        def one(i):
            together[i] = self.held(i)
            if i % 3 == 0:
                self.ask(i)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)

    TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "required": ["city", "days", "unit"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "maxLength": 15}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["c", "f"]}, "at": {"type": "object", "required": ["x"], "additionalProperties": False,
                                                "properties": {"x": {"type": "boolean"}}}}}}},
        {"type": "function", "function": {"name": "stop", "parameters": {
            "type": "object", "properties": {}, "additionalProperties": False}}}]

    def check_call(self, f):
        v = json.loads(f["arguments"])
        if f["name"] == "stop":
            self.assertEqual(v, {})
            return
        self.assertEqual(f["name"], "weather")
        self.assertEqual([x for x in ("city", "days", "unit", "at") if x in v], list(v))
        self.assertTrue(type(v["city"]) is str and len(v["city"]) <= 15, v)
        self.assertTrue(type(v["days"]) is int and 1 <= v["days"] <= 9, v)
        self.assertIn(v["unit"], ("c", "f"))
        self.assertTrue("at" not in v or type(v["at"]["x"]) is bool, v)

    def test_held_without_tags(self):
        """Calls in the forms of Llama, which are the whole answer."""
        for says, dialect in (("Environment: ipython", "llama"), ("[func_name1(", "python")):
            with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
                f.write("{%% if tools %%}%s{%% endif %%}{%% for m in messages %%}{{ m.content }}\n{%% endfor %%}" % says)
                f.flush()
                s = start("--chat-template", f.name)
            self.addCleanup(s.close)
            self.assertEqual(s.ask("GET", "/props").json()["tools"], dialect)
            whole = 0
            for i in range(8 if QUICK else 24):
                choice = "required" if i % 2 else {"type": "function", "function": {"name": "weather"}}
                body = {"messages": [{"role": "user", "content": "Weather number %d?" % i}], "max_tokens": 200, "seed": i,
                        "temperature": 1.4, "tools": self.TOOLS, "tool_choice": choice, "parallel_tool_calls": i % 3 == 0}
                c = s.post(CHAT, body).json()["choices"][0]
                calls = [t["function"] for t in c["message"].get("tool_calls", [])]
                if c["finish_reason"] == "length":          # it may have been cut
                    calls = calls[:-1]
                else:
                    self.assertEqual((c["finish_reason"], c["message"]["content"]), ("tool_calls", None), c)
                    self.assertNotIn("malformed_tool_call", c)
                    self.assertTrue(len(calls) == 1 or (i % 2 and i % 3 == 0 and calls), c)
                for f in calls:
                    self.check_call(f)
                    whole += 1
            self.assertGreater(whole, 4 if QUICK else 12)

    def call(self, i):
        """What an answer that must call calls."""
        choice = "required" if i % 2 else {"type": "function", "function": {"name": "weather"}}
        body = {"messages": [{"role": "user", "content": "Weather number %d?" % i}], "max_tokens": 500, "temperature": 1.4, "seed": i,
                "tools": self.TOOLS, "tool_choice": choice}
        if i % 3 == 0:
            body["chat_template_kwargs"] = {"enable_thinking": True}
            body["thinking_budget"] = 30
        r = self.s.post(CHAT, body)
        self.assertEqual(r.status, 200, r.text())
        c = r.json()["choices"][0]
        return c["finish_reason"], [t["function"] for t in c["message"].get("tool_calls", [])]

    def test_held_to_tools(self):
        """Whatever a warm sampler picks, arguments are what the tools say; the same alone and together."""
        n = 12 if QUICK else 40
        alone = [self.call(i) for i in range(n)]
        whole = 0
        for finish, calls in alone:
            for k, f in enumerate(calls):
                if finish == "length" and k == len(calls) - 1:
                    continue            # it may have been cut
                self.check_call(f)
                whole += 1
        self.assertGreater(whole, n * 3 // 4)
        together = [None] * n

        def one(i):
            together[i] = self.call(i)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(together, alone)
        # A tool without parameters takes none, however its schema says so.
        for more in ({}, {"parameters": None}, {"parameters": {}}, {"parameters": {"type": "object", "properties": {}}}):
            now = {"type": "function", "function": dict(more, name="now")}
            r = self.s.post(CHAT, {"messages": [{"role": "user", "content": "What time is it?"}], "tools": [now], "temperature": 1,
                                   "seed": 3, "tool_choice": "required", "max_tokens": 60})
            self.assertEqual(r.status, 200, r.text())
            call, = r.json()["choices"][0]["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], call["function"]["arguments"]), ("now", "{}"))
        strict = {"type": "function", "function": {"name": "s", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}}}
        r = self.s.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": [strict]})
        self.assertEqual((r.status, r.error()["code"]), (400, "unsupported_schema"), r.text())
        self.assertIn("/properties/a/uniqueItems", r.error()["message"])

    def test_stops_are_for_the_answer(self):
        """A stop string that stands in the thought ends nothing there; where it stands in the answer, it does."""
        body = {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "temperature": 0, "max_tokens": 200,
                "reasoning_effort": "low"}
        m = self.s.post(CHAT, body).json()["choices"][0]["message"]
        thought, answer = m["reasoning_content"], m["content"]
        self.assertTrue(thought and answer)
        n = 0
        for stop in sorted(set(thought)):
            r = self.s.post(CHAT, dict(body, stop=[stop])).json()["choices"][0]
            self.assertEqual((r["message"]["reasoning_content"], r["message"]["content"]), (thought, answer.split(stop)[0]), stop)
            n += 1
        self.assertGreater(n, 3)

    def test_a_message_starts_with_what_was_cached(self):
        """Clients that read the usage of the first event alone count as those that read the last."""
        cached = []
        for _ in range(2):
            r = self.s.post("/v1/messages", {"messages": [{"role": "user", "content": "Who begins? " * 30}], "max_tokens": 3, "stream": True})
            told = [json.loads(e.split("data: ", 1)[1]) for e in r.text().split("\n\n") if "data: " in e]
            first, last = (next(e for e in told if e["type"] == kind) for kind in ("message_start", "message_delta"))
            self.assertIs(told[0], first)
            for name in ("input_tokens", "cache_read_input_tokens"):
                self.assertEqual(first["message"]["usage"][name], last["usage"][name])
            cached.append(first["message"]["usage"]["cache_read_input_tokens"])
        self.assertGreater(cached[1], cached[0])

    def test_no_seed(self):
        """-1 is no seed, as front ends of llama-server and ollama mean it."""
        ask = lambda seed: self.s.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 12, "temperature": 3, "seed": seed}).json()["choices"][0]["text"]
        self.assertEqual(len({ask(5) for _ in range(4)}), 1)
        self.assertGreater(len({ask(-1) for _ in range(4)}), 1)

    def test_names(self):
        """Several options or commas; those of the command line take the place of the variable's."""
        argv = [WEFT, "serve", MODEL, "--port", "0", "--port-file", "{port_file}"]
        for more, want in ((["--alias", "a", "--alias", "b,c"], ["a", "b", "c"]), ([], ["x", "y"])):
            s = Server(argv + more, env=dict(os.environ, WEFT_ALIAS="x,y"))
            self.addCleanup(s.close)
            self.assertEqual([m["id"] for m in s.ask("GET", "/v1/models").json()["data"]], want)

    def test_forms_of_bias(self):
        """By id, as OpenAI's clients write it, and in pairs, as llama-server's do; false forbids."""
        ask = lambda bias: self.s.post(COMPLETIONS, {"prompt": "The capital of", "max_tokens": 8, "temperature": 0, "logit_bias": bias}).json()["choices"][0]["text"]
        plain = ask({})
        token = self.s.post("/tokenize", {"prompt": plain, "add_special_tokens": False}).json()["tokens"][0]
        self.assertEqual(ask([]), plain)
        other = ask({str(token): -100})
        self.assertNotEqual(other, plain)
        self.assertEqual([ask([[token, -100]]), ask([[token, False]])], [other, other])

    def test_what_the_model_is(self):
        with open(os.path.join(MODEL, "config.json")) as f:
            config = json.load(f)
        config = config.get("text_config", config)
        meta = self.s.ask("GET", "/v1/models").json()["data"][0]["meta"]
        self.assertEqual((meta["n_ctx_train"], meta["n_embd"]), (config["max_position_embeddings"], config["hidden_size"]))
        self.assertTrue(0 < meta["n_params"] < meta["size"] <= os.path.getsize(os.path.join(MODEL, "model.safetensors")))
        tag = self.s.ask("GET", "/api/tags").json()["models"][0]
        self.assertEqual((tag["size"], tag["details"]["format"], tag["details"]["parameter_size"]),
                         (meta["size"], "safetensors", "%.1fM" % (meta["n_params"] / 1e6)))
        quant = tag["details"]["quantization_level"]
        self.assertEqual(quant, "affine%d" % config["quantization"]["bits"] if "quantization" in config else "bf16")
        page = self.s.ask("GET", "/metrics").text()
        self.assertRegex(page, r'(?m)^weft_model_info\{model="[^"]+",quantization="%s"\} 1$' % quant)
        version = subprocess.run([WEFT, "--version"], capture_output=True, text=True).stdout.split()
        self.assertIn('weft_build_info{version="%s",commit="%s",' % (version[1], version[2].strip("()") if version[2:] else "unknown"), page)
        info = self.s.post("/api/show", {"model": tag["name"]}).json()["model_info"]
        arch = info["general.architecture"]
        self.assertEqual((info["general.parameter_count"], info[arch + ".embedding_length"]), (meta["n_params"], meta["n_embd"]))

    def test_embeddings(self):
        """One vector to the bit, whatever was cached, cut or computed beside it; texts that say alike are near."""
        texts = ["The capital of Peru is Lima.", "Lima is the capital of Peru.", "3 + 4 = 7", "Say this. " * 60]
        ask = lambda s, given: [d["embedding"] for d in s.post("/v1/embeddings", {"input": given}).json()["data"]]
        want = [ask(self.s, t)[0] for t in texts]
        self.assertEqual(ask(self.s, texts), want)              # found in the cache, and together
        for more in (["--prompt-cache-bytes", "0"], ["--tune", "prefill-step-size=3"], ["--threads", "1"], ["--draft-kind", "none"]):
            other = start(*more)
            self.addCleanup(other.close)
            self.assertEqual(ask(other, texts[::-1]), want[::-1], more)
        near = lambda a, b: sum(x * y for x, y in zip(a, b))
        for v in want:
            self.assertAlmostEqual(near(v, v), 1, delta=1e-5)
        self.assertGreater(near(want[0], want[1]), near(want[0], want[2]))

    def test_logprobs_of_prompts(self):
        """What evaluations ask for (echo with logprobs) are the numbers of `weft logits`."""
        ids = self.s.post("/tokenize", {"prompt": "The capital of France is Paris, and 3 + 4 is 7."}).json()["tokens"]
        rows = logits(WEFT, MODEL, ids)
        want = [None]
        best = [None]
        for i, row in enumerate(rows[:-1]):
            top = max(row)
            want.append(row[ids[i + 1]] - top - math.log(math.fsum(math.exp(v - top) for v in row)))
            best.append(row.index(top))
        for more in ({}, {"stream": True}, {"stop": [" "]}):
            r = self.s.post(COMPLETIONS, dict({"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}, **more))
            self.assertEqual(r.status, 200, r.text())
            parts = [e["choices"][0] for e in r.events()] if "stream" in more else r.json()["choices"]
            got = sum((c["logprobs"]["token_logprobs"] for c in parts if c["logprobs"]), [])[:len(ids)]
            tops = sum((c["logprobs"]["top_logprobs"] for c in parts if c["logprobs"]), [])[:len(ids)]
            self.assertEqual(got[0], None)
            for i in range(1, len(ids)):
                self.assertAlmostEqual(got[i], want[i], delta=2e-4)
                text = self.s.post("/detokenize", {"tokens": [best[i]]}).json()["prompt"]
                self.assertEqual(list(tops[i]), [text] if "\ufffd" not in text else list(tops[i]))

    def test_reader_that_does_not_read(self):
        n_tokens = 200 if QUICK else 1000
        c = self.s.connect(rcvbuf=4096)
        c.request("POST", COMPLETIONS, {"prompt": "On and on", "max_tokens": n_tokens, "ignore_eos": True, "stream": True,
                                        "logprobs": 20, "temperature": 1, "seed": 1})
        c.until(b"data:")
        for i in range(5):
            self.ask(i)
        self.s.until("the engine finished for it", requests_running=0)
        n = sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in self.events(c) if e["choices"][0]["logprobs"])
        self.assertEqual(n, n_tokens)
        c.close()

    def events(self, c):
        """The rest of a chunked stream of which a head and a little were read."""
        text = c.until(b"data: [DONE]").replace(b"\r\n", b"\n")
        for line in text.split(b"\n"):
            if line.startswith(b" {") or line.startswith(b"data: {"):
                yield json.loads(line[line.index(b"{"):])

    def test_an_empty_answer(self):
        r = self.s.post(COMPLETIONS, {"prompt": "x", "max_tokens": 0}).json()
        self.assertEqual((r["choices"][0]["text"], r["choices"][0]["finish_reason"], r["usage"]["completion_tokens"]),
                         ("", "length", 0))


class Leaving(unittest.TestCase):
    LEFT = 'clients_left_total{stage="%s"}'

    def test_leave(self):
        s = start("--parallel", "1", "--tune", "prefill-step-size=8")
        self.addCleanup(s.close)
        n = 0
        for stream in (False, True):
            for how in ("close", "reset", "half_close"):
                n += 1
                # One decodes for long; one waits behind it.
                a, b = s.connect(), s.connect()
                a.request("POST", COMPLETIONS, {"prompt": "On and on", "max_tokens": 3500, "ignore_eos": True, "stream": True})
                a.until(b"data:")
                b.request("POST", COMPLETIONS, {"prompt": "Waiting", "max_tokens": 5, "stream": stream})
                s.until("one runs, one waits", requests_running=1, requests_waiting=1)
                getattr(b, how)()
                s.until("the one waiting left", requests_running=1, requests_waiting=0, **{self.LEFT % "queued": n})
                getattr(a, how)()
                s.until("the one decoding left", requests_running=0)
                a.close()
                b.close()
                # A long prompt, in steps of 8 tokens.
                c = s.connect()
                c.request("POST", COMPLETIONS, {"prompt": long_prompt(n, 3500), "max_tokens": 500, "ignore_eos": True,
                                                "stream": stream})
                s.until("the prompt is computed", requests_running=1)
                getattr(c, how)()
                s.until("the one in prefill left", requests_running=0)
                # On a machine that was busy elsewhere it may have come as far as decoding.
                m = s.metrics()
                stages = [m["weft_" + self.LEFT % stage] for stage in ("prefill", "decode")]
                self.assertEqual(sum(stages), 2 * n, stages)
                c.close()
        self.assertEqual(s.post(COMPLETIONS, {"prompt": "Still there?", "max_tokens": 3}).status, 200)


class Limits(unittest.TestCase):
    def serve(self, *options):
        s = start(*options)
        self.addCleanup(s.close)
        return s

    def endless(self, s, **more):
        c = s.connect()
        self.addCleanup(c.close)
        c.request("POST", COMPLETIONS, dict({"prompt": "On and on", "max_tokens": 3500, "ignore_eos": True, "stream": True},
                                            **more))
        return c

    def test_a_cancelled_prompt_is_kept(self):
        """Left half way through a long prompt, and asked again: it goes on from there."""
        s = self.serve("--tune", "prefill-step-size=8")
        n = 1000 if QUICK else 3200
        for how in ("close", "delete"):
            ids = long_prompt(len(how), n)
            steps = s.metrics()["weft_steps_total"]
            c = s.connect()
            c.request("POST", COMPLETIONS, {"prompt": ids, "max_tokens": 500, "ignore_eos": True}, {"x-request-id": how})
            s.at_least("weft_steps_total", steps + n // 8 // 2)
            if how == "delete":
                self.assertEqual(s.ask("DELETE", "/v1/requests/delete").status, 200)
                self.assertEqual(c.reply().status, 499)
            c.close()
            s.until("idle", requests_running=0)
            usage = s.post(COMPLETIONS, {"prompt": ids, "max_tokens": 1}).json()["usage"]
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 0.45 * n, how)
        m = s.metrics()
        self.assertEqual(m["weft_step_tokens_count"], m["weft_steps_total"])
        self.assertGreater(m["weft_step_tokens_sum"], n)
        self.assertLess(m['weft_step_tokens_bucket{le="4"}'], m['weft_step_tokens_bucket{le="8"}'])

    def test_share(self):
        s = self.serve("--parallel", "1", "--queue", "4")
        self.endless(s, user="ann").until(b"data:")
        for n in range(5):
            c = self.endless(s, user="ann")
            status, _, headers = c.head()
            if status != 200:
                break
        self.assertEqual(status, 429)
        self.assertGreaterEqual(int(headers["retry-after"]), 1)
        self.assertEqual(json.loads(c.exactly(int(headers["content-length"])))["error"]["code"], "client_over_share")
        self.assertEqual(self.endless(s, user="bob").head()[0], 200)
        self.assertEqual(s.metrics()['weft_requests_refused_total{limit="share"}'], 1)

    def test_deadline(self):
        s = self.serve("--parallel", "1")
        running = self.endless(s)
        running.until(b"data:")
        r = s.post(COMPLETIONS, {"prompt": "In time?"}, {"x-request-deadline-ms": "40"})
        self.assertIn((r.status, r.error()["code"]), ((503, "deadline"), (504, "deadline")))
        self.assertEqual(s.ask("GET", "/health").status, 200)
        running.close()
        r = s.post(COMPLETIONS, {"prompt": "No hurry", "max_tokens": 2}, {"x-request-deadline-ms": "100000000"})
        self.assertEqual(r.status, 200)


class Program(unittest.TestCase):
    def test_port_in_use(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            held.listen()
            port = held.getsockname()[1]
            # It is told before there is a model.
            r = subprocess.run([WEFT, "serve", "/no/such/model", "--port", str(port)], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(r.returncode, 1)
        self.assertIn("port %d" % port, r.stderr)
        self.assertIn("in use; --port N names another one", r.stderr)

    def test_while_it_loads(self):
        """Who connects while the model is loaded waits for the answer; loading waits for a template from a pipe."""
        with tempfile.TemporaryDirectory() as d:
            fifo, path, port_file = (os.path.join(d, name) for name in ("template", "sock", "port"))
            os.mkfifo(fifo)
            argv = [WEFT, "serve", MODEL, "--host", "unix:" + path, "--port-file", port_file]
            p = subprocess.Popen(argv + ["--chat-template", fifo], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                template = opened_by_reader(fifo, p)
                waiting, gone = Conn(path), Conn(path)
                waiting.request("POST", CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
                gone.request("GET", "/health")
                gone.close()
                second = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(second.returncode, 1)
                self.assertIn("in use", second.stderr)
                self.assertFalse(os.path.exists(port_file))
                with os.fdopen(template, "w") as f:
                    f.write("{% for m in messages %}{{ m.content }}{% endfor %}")
                self.assertEqual(waiting.reply().status, 200)
                self.assertTrue(os.path.exists(port_file))
                waiting.close()
                p.send_signal(signal.SIGTERM)
                self.assertEqual(p.wait(PATIENCE), 0, p.stderr.read())
                self.assertFalse(os.path.exists(path))
            finally:
                p.kill()
                p.communicate()

    def test_stopped_at_once(self):
        """Who waits for the port file may stop the server the moment it comes."""
        for _ in range(2 if QUICK else 10):
            p = subprocess.Popen([WEFT, "serve", MODEL, "--port", "0", "--port-file", "/dev/stdout"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertGreater(int(p.stdout.readline()), 0)
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=PATIENCE)
            self.assertEqual(p.returncode, 0, err)

    def test_load_that_fails(self):
        """What was made in order to listen is gone."""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "sock")
            r = subprocess.run([WEFT, "serve", "/no/such/model", "--host", "unix:" + path], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(r.returncode, 1)
            self.assertIn("/no/such/model", r.stderr)
            self.assertFalse(os.path.exists(path))
            r = subprocess.run([WEFT, "serve", MODEL, "--host", "unix:/" + 199 * "x"], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(r.returncode, 1)
            self.assertIn("1 to 107 bytes, not 200", r.stderr)

    def test_queue_and_signals(self):
        s = start("--parallel", "1", "--queue", "1", "--alias", "mine", "--tune", "max-connections=50",
                  "--grace-seconds", "1")
        a = s.connect()
        a.request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True, "model": "mine"})
        a.until(b"data:")
        self.assertEqual(s.ask("GET", "/v1/models").json()["data"][0]["id"], "mine")
        held = []
        while True:             # fill the queue, whatever its exact size
            c = s.connect()
            c.request("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True})
            status, _, headers = c.head()
            held.append(c)
            if status != 200:
                break
            self.assertLess(len(held), 4)
        self.assertEqual((status, headers["retry-after"]), (503, "1"))
        for c in held:
            c.close()
        s.signal()              # and it ends with work under way
        self.assertEqual(s.wait(), 0)
        a.close()
        s.close()


class Speculation(unittest.TestCase):
    def test_usage(self):
        """What is guessed ahead changes nothing but usage; a request can do without."""
        with_drafts, without = start("--parallel", "2"), start("--draft-kind", "none")
        self.addCleanup(with_drafts.close)
        self.addCleanup(without.close)
        told = [0, 0]
        for i in range(6):
            body = {"prompt": "one two three four one two three four one two three" + " four" * (i % 2), "max_tokens": 60,
                    "ignore_eos": True, "logprobs": 2, "temperature": i % 3 / 2, "seed": i}
            plain = without.post(COMPLETIONS, body).json()
            for how in ({}, {"num_draft_tokens": 2}, {"speculation": True}, {"speculation": False}, {"num_draft_tokens": 0}):
                r = with_drafts.post(COMPLETIONS, {**how, **body}).json()
                self.assertEqual(r["choices"], plain["choices"])
                self.assertEqual(r["usage"]["completion_tokens"], 60)
                counts = r["usage"]["completion_tokens_details"]
                if False in how.values() or 0 in how.values():
                    self.assertEqual(counts, {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0})
                told[0] += counts["accepted_prediction_tokens"]
                told[1] += counts["rejected_prediction_tokens"]
        self.assertEqual(with_drafts.post(COMPLETIONS, {**body, "num_draft_tokens": 17}).status, 400)
        page = with_drafts.ask("GET", "/metrics").text()

        def total(name):
            found = re.findall(r'^%s{[^}]*drafter="(?:ngram|mtp)"} (\d+)' % name, page, re.M)
            self.assertEqual(len(found), 2, page)
            return sum(map(int, found))

        self.assertEqual(total("weft_draft_accepted_tokens_total"), told[0])
        self.assertEqual(total("weft_drafted_tokens_total"), sum(told))
        self.assertNotIn("drafter=", without.ask("GET", "/metrics").text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
