"""Odd bytes by the thousand: each field of each API, and model folders, with values that nobody should send.

    odd.py fields WEFT MODEL [--count N] [--seed N]
    odd.py folders WEFT MODEL [--count N] [--seed N]

`fields` takes whole bodies of every POST endpoint apart: each value in them, at any depth, is replaced by each of ODD, left
out, wrapped and doubled.  Every reply must be JSON or a stream of it, an error must say something, and nothing is a 5xx;
the server ends well, which with sanitizers says that nothing leaked.  `folders` damages copies of a model's files, in their
JSON, their bytes and their kind, and gives them to `weft inspect` and `weft run`: an answer, or exit code 1 and one line that says why.
--count 0 tries everything that there is (fields), or 542 (folders).  The suite draws few; the seed is printed.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

from serverkit import CHAT, COMPLETIONS, Gone, Server, sanitized

HOLE = "@hole@"
DEEP = 100000
ODD = [b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"2", b"3", b"0.5", b"-0.5", b"1e-320", b"1e308", b"1e999", b"-1e999",
       b"2147483647", b"2147483648", b"-2147483649", b"4294967296", b"9007199254740993", b"9223372036854775807",
       b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"9" * 400, b"0." + b"1" * 400,
       b'""', b'" "', b'"\\u0000"', b'"a\\u0000b"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ufeff"', b'"\\uffff"', b'"e\\u0301"',
       "\"\U0001f600\u202e\"".encode(), b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"' + b"a" * 70000 + b'"', b'"true"',
       b'"null"', b'"1"', b'"%s%n%999999d"', b'"../../../../etc/passwd"', b'"file:///etc/passwd"', b'"data:image/png;base64,AAAA"',
       b'"<|im_end|>"', b'"</think>"', b'"{{ 1/0 }}"', b'"auto"', b'"json"', b'"text"', b"[]", b"{}", b"[null]", b"[[]]", b"[0]", b"[-1]",
       b"[1e99]", b'["",""]', b'{"":null}', b'{"type":"x"}', b'{"type":"text"}', b'{"type":"object"}', b'{"type":{}}',
       b'[{"type":"text","text":"x"}]', b'[{"type":"image_url","image_url":{"url":"x"}}]', b'{"a":1,"a":2}',
       b"[" * 60 + b"]" * 60, b'{"a":' * 60 + b"1" + b"}" * 60, b"[" * 600 + b"]" * 600, b"[" * DEEP, b"[" + b"0," * 3000 + b"0]",
       b"NaN", b"Infinity", b"01", b"[1,]", b"'x'", b"\x00"]
CHANGES = ["drop", "list", "object", "double"]

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather", "strict": False, "parameters": {
    "type": "object", "required": ["city"], "additionalProperties": False, "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^[a-z]*$"}, "days": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["sun", 1, None]}, "list": {"type": "array", "items": {"$ref": "#/$defs/x"}, "maxItems": 2}},
    "$defs": {"x": {"anyOf": [{"const": "a"}, {"type": "null"}]}}}}}
CALLED = [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"lima\"}"}}]
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "repetition_context_size": 8,
            "presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": {"15": -1}, "seed": 1, "stop_token_ids": [3],
            "ignore_eos": False, "min_tokens": 1, "skip_special_tokens": True, "priority": 0, "speculation": True,
            "num_draft_tokens": 2, "user": "u", "metadata": {"a": "b"}, "cache_salt": "s", "cache_report": True, "model": "default",
            "lora": [], "best_of": 1, "keep_alive": "5m", "id_slot": 0, "n_keep": 0}
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"},
            {"role": "assistant", "content": None, "tool_calls": CALLED, "reasoning_content": "hm"},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "user", "content": "and?"}]


def bodies():
    """(path, body): each field that an endpoint knows stands in one of them at least."""
    stops = {"stop": ["x", "yy"]}
    forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": TOOL["function"]["parameters"]}}},
             {"guided_json": {"type": "integer"}}, {"guided_regex": "a|b"}, {"guided_choice": ["a", "b"]}, {"grammar": 'root ::= "a" | "b"'},
             {"structured_outputs": {"json": {"type": "boolean"}}}, {"structured_outputs": {"choice": ["c"]}}]
    yield CHAT, dict(SAMPLING, **stops, messages=MESSAGES, tools=[TOOL], tool_choice="auto", parallel_tool_calls=False, max_tokens=2, n=1,
                     logprobs=True, top_logprobs=1, stream=True, stream_options={"include_usage": True}, reasoning_effort="low",
                     thinking_budget=2, chat_template_kwargs={"enable_thinking": True}, return_progress=False, functions=[],
                     modalities=["text"], documents=[], add_generation_prompt=True)
    yield CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], "max_tokens": 2, "stream": True,
                 "tool_choice": {"type": "function", "function": {"name": "weather"}}, "thinking": {"type": "enabled", "budget_tokens": 2}}
    yield CHAT, {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "max_completion_tokens": 2, "continue_final_message": True,
                 "add_generation_prompt": False, "reasoning": {"effort": "low", "max_tokens": 2, "exclude": False, "enabled": True}}
    for form in forms:
        yield CHAT, dict(form, messages=[{"role": "user", "content": "x"}], max_tokens=2)
    yield COMPLETIONS, dict(SAMPLING, **stops, prompt="x", max_tokens=2, echo=False, suffix="", logprobs=2, n=2, stream=True,
                            add_special_tokens=True, stream_options={"include_usage": True})
    yield COMPLETIONS, {"prompt": [[1, 2], [3]], "max_tokens": 1, "prompt_logprobs": 1}
    yield "/v1/responses", dict(model="default", input=[
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}", "id": "f", "status": "completed"},
        {"type": "function_call_output", "call_id": "c", "output": "rain"}], instructions="i", store=False, max_output_tokens=2,
        tools=[dict(TOOL["function"], type="function")], tool_choice={"type": "function", "name": "weather"}, parallel_tool_calls=True,
        reasoning={"effort": "low", "summary": "auto"}, text={"format": {"type": "text"}, "verbosity": "medium"}, truncation="disabled",
        include=["message.output_text.logprobs"], top_logprobs=1, stream=True, stream_options={"include_obfuscation": False},
        previous_response_id=None, background=False, client_metadata={"a": "b"}, metadata={"a": "b"})
    yield "/v1/responses/input_tokens", {"input": "x", "instructions": "i"}
    anthropic = dict(max_tokens=2, system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}], messages=[
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"},
                                          {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "lima"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": False, "content": [{"type": "text", "text": "r"}]}]}],
        tools=[{"name": "weather", "description": "d", "input_schema": TOOL["function"]["parameters"]}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True}, thinking={"type": "enabled", "budget_tokens": 2, "display": "omitted"},
        output_config={"effort": "low"}, stop_sequences=["x"], metadata={"user_id": "u"}, stream=False, temperature=0.5, top_k=3, top_p=0.5)
    yield "/v1/messages", anthropic
    yield "/v1/messages/count_tokens", {k: anthropic[k] for k in ("messages", "system", "tools", "thinking")}
    yield "/completion", dict(prompt="x", n_predict=2, n_probs=2, input_extra=[], stream=True, stop=["x"], cache_prompt=True, samplers=["top_k"],
                              grammar='root ::= "a"', json_schema={}, return_tokens=False, t_max_predict_ms=0)
    yield "/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}], "prompt": "c", "n_predict": 2}
    ollama = {"model": "default", "stream": False, "think": True, "format": "json", "keep_alive": 5,
              "options": {"num_predict": 2, "temperature": 0.5, "seed": 1, "stop": ["x"], "num_ctx": 64, "top_k": 3}}
    yield "/api/chat", dict(ollama, tools=[TOOL], messages=[{"role": "user", "content": "x", "images": []}, {
        "role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "lima"}}}]},
        {"role": "tool", "tool_name": "weather", "content": "rain"}])
    yield "/api/generate", dict(ollama, prompt="x", system="s", suffix="", raw=False, template="", context=[], images=[])
    yield "/v1beta/models/default:generateContent", {
        "contents": [{"role": "user", "parts": [{"text": "x"}, {"text": "y"}]},
                     {"role": "model", "parts": [{"text": "hm", "thought": True}, {"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}]},
                     {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"output": "r"}, "parts": []}}]}],
        "systemInstruction": {"parts": [{"text": "s"}]}, "safetySettings": [], "labels": {}, "cachedContent": "",
        "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "OBJECT", "required": ["a"], "properties": {
            "a": {"type": "INTEGER", "nullable": True, "minimum": 1}, "b": {"type": "ARRAY", "items": {"type": "STRING"}, "maxItems": "3"}}}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"temperature": 0.5, "topP": 0.9, "topK": 5, "maxOutputTokens": 2, "stopSequences": ["x"], "candidateCount": 1, "seed": 1,
                             "presencePenalty": 0, "frequencyPenalty": 0, "responseMimeType": "text/plain", "responseLogprobs": False,
                             "responseModalities": ["TEXT"], "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 1}}}
    yield "/v1beta/models/default:streamGenerateContent?alt=sse", {
        "contents": [{"parts": [{"text": "x"}]}], "generationConfig": {"maxOutputTokens": 2, "responseMimeType": "application/json", "responseSchema": {
            "type": "OBJECT", "properties": {"a": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}]}}}}}
    yield "/v1beta/models/default:countTokens", {"contents": [{"parts": [{"text": "x"}]}]}
    yield "/api/show", {"model": "default", "verbose": False}
    yield "/api/embed", {"model": "default", "input": ["x", "y"], "truncate": False, "dimensions": 4, "options": {}}
    yield "/api/embeddings", {"model": "default", "prompt": "x"}
    yield "/v1/embeddings", {"input": ["x"], "encoding_format": "float", "dimensions": 4, "user": "u"}
    yield "/tokenize", {"prompt": "x", "add_special_tokens": True, "with_pieces": True, "return_token_strs": True, "model": "default"}
    yield "/tokenize", {"messages": [{"role": "user", "content": "x"}]}
    yield "/detokenize", {"tokens": [1, 2], "skip_special_tokens": False}
    yield "/apply-template", {"messages": MESSAGES, "tools": [TOOL], "chat_template_kwargs": {"a": 1}}
    yield "/lora-adapters", []
    for what in ("explain", "warm", "pin", "unpin"):
        yield "/v1/cache/" + what, {"prompt": "x", "cache_salt": "s"}
        yield "/v1/cache/" + what, {"messages": [{"role": "user", "content": "x"}]}
    yield "/v1/cache/drop", {"cache_salt": "s"}
    yield "/v1/cache/drop", {"all": True}


def places(v, at=()):
    """The ways to every value in v."""
    yield at
    for k in v if isinstance(v, dict) else range(len(v)) if isinstance(v, list) else ():
        yield from places(v[k], at + (k,))


def changed(body, at, how):
    """The JSON text of body whose value at that place is one of ODD (bytes), or changed in one of CHANGES."""
    whole = {"": copy.deepcopy(body)}
    here, key = whole, ""
    for k in at:
        here, key = here[key], k
    if how == "drop":
        del here[key]
    elif how == "list":
        here[key] = [here[key]]
    elif how == "object":
        here[key] = {"x": here[key]}
    elif how == "double":
        here[key] = [here[key], here[key]] if not isinstance(here[key], list) else here[key] * 2
    else:
        here[key] = HOLE
    text = json.dumps(whole.get("")).encode() if "" in whole else b""
    return text.replace(json.dumps(HOLE).encode(), how) if isinstance(how, bytes) else text


class Asker:
    """One thread's connection, which is opened again when the server closed it."""

    def __init__(self, server):
        self.s, self.c = server, None

    def ask(self, path, text):
        for fresh in (False, True):
            if self.c is None:
                self.c, fresh = self.s.connect(), True
            try:
                self.c.request("POST", path, text, {"Content-Length": len(text)})
                r = self.c.reply()
            except (Gone, OSError):
                self.close()
                if fresh:
                    raise
                continue
            if r.headers.get("connection") == "close":
                self.close()
            return r

    def close(self):
        if self.c:
            self.c.close()
        self.c = None


def judge(path, r):
    """What is wrong with a reply, or None."""
    if not 200 <= r.status < 500 and r.status != 501:
        return "status %d" % r.status
    kind = r.headers.get("content-type", "")
    try:
        if "event-stream" in kind:
            texts = [line[6:] for line in r.text().splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        elif "ndjson" in kind:
            texts = r.text().splitlines()
        else:
            texts = [r.text()] if r.body else []
        said = [json.loads(t, parse_constant=lambda name: 1 / 0) for t in texts]
    except (ValueError, ZeroDivisionError) as e:
        return "no JSON: %s" % e
    if r.status >= 400:
        error = said[0].get("error") if said and isinstance(said[0], dict) else None
        if not (error if isinstance(error, str) else (error or {}).get("message")):
            return "an error that says nothing"
    return None


def fields(args, dice):
    tried = [(path, body, at, how) for path, body in bodies() for at in places(body) for how in ODD + CHANGES]
    dice.shuffle(tried)
    tried = tried[:args.count or len(tried)]
    server = Server([args.weft, "serve", args.model, "--port", "0", "--port-file", "{port_file}", "--ctx-size", "512", "--threads", "1",
                     "--draft-kind", "ngram"])
    try:
        ask_all(args, server, tried)
    finally:
        server.proc.poll() is None and server.proc.kill()


def ask_all(args, server, tried):
    for path, body in bodies():     # a body that is refused as it is would hide what its fields do
        r = server.post(path, body)
        assert r.status == 200, (path, r.status, r.text())
    own, askers, statuses, wrong = threading.local(), [], {}, []

    def one(case):
        if not hasattr(own, "asker"):
            own.asker = Asker(server)
            askers.append(own.asker)
        path, body, at, how = case
        text = changed(body, at, how)
        try:
            r = own.asker.ask(path, text)
            problem = judge(path, r)
            statuses[r.status] = statuses.get(r.status, 0) + 1
        except (Gone, OSError) as e:
            problem, r = "no reply: %r" % e, None
        if problem:
            wrong.append((path, at, how[:60], problem, r and r.text()[:300], text[:2000]))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, tried))
    for a in askers:
        a.close()
    for w in wrong[:20]:
        print("WRONG: %s at %s %s: %s\n  reply %s\n  body %s" % w)
    assert not wrong, "%d of %d replies are wrong" % (len(wrong), len(tried))
    r = server.post(COMPLETIONS, {"prompt": "still there?", "max_tokens": 2})
    assert r.status == 200, r.text()
    server.close()
    print("fields: %d requests (seed %d): %s" % (len(tried), args.seed, ", ".join("%d: %d" % kv for kv in sorted(statuses.items()))))


# ---- model folders ----

WEIGHTS = "model.safetensors"


def put(folder, name, data):
    path = os.path.join(folder, name)
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "wb") as f:
        f.write(data)


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        return f.read()


def parted(data):
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]


class Damage:
    """Ways to damage a folder; each returns what it did."""

    def __init__(self, dice, folder):
        self.dice, self.d = dice, folder

    def one_json(self, value):
        """Up to three places of a JSON value changed; those near the root as often as the many below."""
        text, did = None, []
        at = list(places(value))
        pick = self.dice.choice(at if self.dice.randrange(2) else [p for p in at if len(p) <= 2])
        how = self.dice.choice(ODD if self.dice.randrange(5) else CHANGES)
        did.append("%s %s" % (pick, how[:40]))
        text = changed(value, pick, how)
        return text, ", ".join(did)

    def document(self):
        name = self.dice.choice(["config.json"] * 4 + ["tokenizer.json"] * 4 + ["tokenizer_config.json", "generation_config.json"])
        text, did = self.one_json(json.loads(read(self.d, name)))
        put(self.d, name, text)
        return "%s: %s" % (name, did)

    def numbers(self):
        """A number of the config that is another one: sizes that do not fit each other, or overflow."""
        config = json.loads(read(self.d, "config.json"))
        at = [p for p in places(config) if isinstance(self.value(config, p), (int, float))]
        did = []
        text = None
        for _ in range(self.dice.randrange(1, 4)):
            pick = self.dice.choice(at)
            v = self.value(config, pick)
            new = self.dice.choice([v + 1, v - 1, v * 2, -v, 0, 1, 1 << 31, 1 << 62, v * 65536, v // 2 if isinstance(v, int) else v / 2])
            here = config
            for k in pick[:-1]:
                here = here[k]
            here[pick[-1]] = new
            did.append("%s = %s" % (pick, new))
        put(self.d, "config.json", json.dumps(config).encode())
        return "config.json: " + ", ".join(did)

    @staticmethod
    def value(v, at):
        for k in at:
            v = v[k]
        return v

    def bytes(self):
        name = self.dice.choice(sorted(os.listdir(self.d)))
        data = bytearray(read(self.d, name))
        near = len(data) if self.dice.randrange(2) else min(len(data), 4096)
        for _ in range(self.dice.choice([1, 1, 4, 64])):
            if near:
                data[self.dice.randrange(near)] ^= 1 << self.dice.randrange(8)
        put(self.d, name, bytes(data))
        return name + ": bits flipped"

    def cut(self):
        name = self.dice.choice(sorted(os.listdir(self.d)))
        data = read(self.d, name)
        n = self.dice.choice([0, 1, 7, 8, 9, len(data) // 2, len(data) - 1, self.dice.randrange(len(data) + 1)])
        put(self.d, name, data[:n] if self.dice.randrange(4) else data + b"more" * n)
        return "%s: cut at %d, or longer" % (name, n)

    def header(self):
        head, rest = parted(read(self.d, WEIGHTS))
        how = self.dice.randrange(4)
        if how == 0:
            text, did = self.one_json(head)
        elif how == 1:      # what one tensor says of itself
            key = self.dice.choice(sorted(head))
            inner, did = self.one_json(head[key])
            text, did = changed(head, (key,), inner), key + did
        elif how == 2:      # two tensors change places
            a, b = self.dice.sample(sorted(k for k in head if k != "__metadata__"), 2)
            head[a], head[b] = head[b], head[a]
            text, did = json.dumps(head).encode(), "%s and %s" % (a, b)
        else:
            key = self.dice.choice(sorted(k for k in head if k != "__metadata__"))
            at = self.dice.randrange(2)
            head[key]["data_offsets"][at] = self.dice.choice([0, -1, 1 << 40, (1 << 63) - 1, head[key]["data_offsets"][at] + 2, 1 << 64])
            text, did = json.dumps(head).encode(), "offsets of " + key
        n = len(text) if self.dice.randrange(8) else self.dice.choice([0, 1, len(text) - 1, len(text) + 1, 1 << 31, 1 << 63, (1 << 64) - 1])
        put(self.d, WEIGHTS, struct.pack("<Q", n) + text + rest)
        return "header: " + did

    def weights(self):
        """Numbers that are none: not a number, infinity, denormals, everywhere or in places."""
        data = read(self.d, WEIGHTS)
        n = 8 + struct.unpack("<Q", data[:8])[0]
        word = self.dice.choice([b"\xff\xff", b"\x80\x7f", b"\x80\xff", b"\x01\x00", b"\x7f\x7f"])
        out = bytearray(data)
        begin = self.dice.randrange(n, len(data)) & ~1
        end = min(len(data), begin + self.dice.choice([2, 4096, len(data)])) & ~1
        out[begin:end] = word * ((end - begin) // 2)
        put(self.d, WEIGHTS, bytes(out))
        return "weights: %r from %d to %d" % (word, begin, end)

    def index(self):
        head, _ = parted(read(self.d, WEIGHTS))
        names = {k: "part.safetensors" for k in head if k != "__metadata__"}
        os.rename(os.path.join(self.d, WEIGHTS), os.path.join(self.d, "part.safetensors"))
        value = {"metadata": {"total_size": 1}, "weight_map": names}
        if self.dice.randrange(2):
            key = self.dice.choice(sorted(names))
            names[key] = self.dice.choice(["../part.safetensors", "/etc/passwd", "", ".", "nowhere.safetensors", "config.json", "x" * 5000,
                                           "part.safetensors/", "a\x00b", "model.safetensors.index.json", "..\\part.safetensors"])
            text, did = json.dumps(value).encode(), repr(names[key][:40])
        else:
            text, did = self.one_json(value)
        put(self.d, WEIGHTS + ".index.json", text)
        return "index: " + did

    def template(self):
        text = read(self.d, "chat_template.jinja").decode()
        at = self.dice.randrange(len(text))
        more = self.dice.choice(["{% for i in range(1000000000) %}x{% endfor %}", "{{ " * 2000, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                                 "{{ 'a' * 1000000000 }}", "{{ messages[0].content.x.y }}", "{% if", "{{ 1/0 }}", "\0", "{% include '/etc/passwd' %}",
                                 "{{ ''.__class__.__mro__ }}", "{{ raise_exception('no') }}", "{%- set x = [] -%}{%- for i in range(99) -%}"])
        put(self.d, "chat_template.jinja", (text[:at] + more + text[at:]).encode())
        return "template: %s at %d" % (more[:30], at)

    def kind(self):
        """Something else in a file's place."""
        name = self.dice.choice(sorted(os.listdir(self.d)))
        path = os.path.join(self.d, name)
        os.unlink(path)
        how = self.dice.choice(["gone", "folder", "fifo", "loop", "null", "zero", "empty", "proc"])
        if how == "folder":
            os.mkdir(path)
        elif how == "fifo":
            os.mkfifo(path)
        elif how == "loop":
            os.symlink(name, path)
        elif how in ("null", "zero"):
            os.symlink("/dev/" + how, path)
        elif how == "proc":
            os.symlink("/proc/self/mem", path)
        elif how == "empty":
            put(self.d, name, b"")
        return "%s: %s" % (name, how)

    def pipe(self, name):
        os.unlink(os.path.join(self.d, name))
        os.mkfifo(os.path.join(self.d, name))
        return name + ": a pipe"

    WAYS = [document] * 4 + [numbers] * 3 + [bytes, cut, header, header, weights, index, template, kind]


def programme(args, folder):
    yield [args.weft, "inspect", folder]
    yield [args.weft, "run", folder, "-p", "hello", "-n", "4", "-c", "256", "-t", "1", "--temp", "0"]


def limited():
    """An address space in which a size of a damaged file is no reason to fill the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def wrong_end(p):
    err = p.stderr.decode(errors="replace")
    if "Sanitizer" in err or "runtime error" in err:
        return "a sanitizer's report"
    if p.returncode not in (0, 1):
        return "ended with %d" % p.returncode
    if p.returncode == 1 and not any(line.startswith("weft") and len(line) > 8 for line in err.splitlines()):
        return "an error that says nothing"
    return None


def folders(args, dice):
    models = [m for m in (args.model, args.model + "-4bit") if os.path.exists(os.path.join(m, WEIGHTS))]
    ends = {0: 0, 1: 0}
    count = args.count or 542
    bounds = None if sanitized(args.weft) else limited
    pipes = sorted(name for name in os.listdir(args.model) if name != "README.md")    # first, since each once hung a start
    for i in range(len(pipes) + count):
        with tempfile.TemporaryDirectory() as d:
            model = dice.choice(models)
            for name in os.listdir(model):
                if name != "README.md":
                    shutil.copy(os.path.join(model, name), d)
            damage = Damage(random.Random(dice.random()), d)
            did = damage.pipe(pipes[i]) if i < len(pipes) else dice.choice(Damage.WAYS)(damage)
            for argv in programme(args, d):
                said = "folder %d of seed %d, %s (%s): weft %s" % (i, args.seed, did, os.path.basename(model), argv[1])
                try:
                    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, preexec_fn=bounds)
                except subprocess.TimeoutExpired:
                    raise AssertionError(said + " did not end")
                problem = wrong_end(p)
                assert not problem, "%s: %s\n%s" % (said, problem, p.stderr.decode(errors="replace")[-3000:])
                ends[p.returncode] += 1
    print("folders: %d damaged (seed %d): %d runs ended well, %d with an error that says why" % (len(pipes) + count, args.seed, ends[0], ends[1]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["fields", "folders"])
    p.add_argument("weft")
    p.add_argument("model")
    p.add_argument("--count", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    if not os.path.exists(os.path.join(args.model, WEIGHTS)):
        print("skipped: %s has no %s" % (args.model, WEIGHTS))
        sys.exit(77)
    {"fields": fields, "folders": folders}[args.what](args, random.Random(args.seed))


if __name__ == "__main__":
    main()
