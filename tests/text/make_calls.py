"""Makes calls.json: answers with calls of functions as models write them, in every dialect, and what is meant.

The kinds of trouble are our own choice: arguments that hold brackets, quotes, tags or code; empty ones;
numbers and truths; text and thoughts around calls; several calls; line breaks where templates have none; ends that are missing; names
with dots and dashes.  Each kind is written in each dialect.  Run: make_calls.py > calls.json"""
import json
import sys

SPACED = "look up:all"
BAR, DASH = "\uff5c", "\u2581"


def ds(*words):
    return "<%s%s%s>" % (BAR, DASH.join(words), BAR)


def compact(v):
    return json.dumps(v, ensure_ascii=False)


def bare(v):
    return v if isinstance(v, str) else compact(v)


def python(v):
    if isinstance(v, dict):
        return "{" + ", ".join("%s: %s" % (json.dumps(k), python(x)) for k, x in v.items()) + "}"
    if isinstance(v, list):
        return "[" + ", ".join(map(python, v)) + "]"
    return {True: "True", False: "False", None: "None"}[v] if v is None or isinstance(v, bool) else compact(v)


def gemma(v):
    if isinstance(v, str):
        return '<|"|>%s<|"|>' % v
    if isinstance(v, dict):
        return "{" + ",".join("%s:%s" % (k, gemma(x)) for k, x in v.items()) + "}"
    return "[" + ",".join(map(gemma, v)) + "]" if isinstance(v, list) else compact(v)


def marked(name, key, end, attributes=False, own=""):
    def write(n, a):
        out = name[0] + n + name[1] + "\n"
        for k, v in a.items():
            more = ' string="%s">' % ("true" if isinstance(v, str) else "false") if attributes else ""
            out += key[0] + k + key[1] + more + own + bare(v) + key[2] + "\n"
        return out + end
    return write


def qwen(n, a):
    return "<tool_call>\n<function=%s>\n" % n + "".join("<parameter=%s>\n%s\n</parameter>\n" % (k, bare(v)) for k, v in a.items()) + "</function>\n</tool_call>"


def hermes(n, a):
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (n, compact(a))


def objects(name, arguments, extra=""):
    return lambda n, a: '{"%s": "%s", "%s": %s%s}' % (name, n, arguments, compact(a), extra)


def py(n, a):
    return n + "(" + ", ".join("%s=%s" % (k, python(v)) for k, v in a.items()) + ")"


def dsml(block):
    tag = lambda name: BAR + "DSML" + BAR + name
    return dict(says=tag(block + ">"), one=marked(("<%s name=\"" % tag("invoke"), '">'), ("<%s name=\"" % tag("parameter"), '"', "</%s>" % tag("parameter")),
                "</%s>" % tag("invoke"), True), around=("<%s>\n" % tag(block), "\n</%s>" % tag(block)), between="\n", close="\n</%s>" % tag(block))


# says: what the template has; one: how a call is written; around, between: of all calls; think; close: what may be missing at the end.
DIALECTS = {
    "qwen3-coder": dict(says="<tool_call> <function=", one=qwen, between="\n", close="\n</tool_call>"),
    "hermes": dict(says="<tool_call>", one=hermes, between="\n", close="\n</tool_call>"),
    "llama": dict(says="Environment: ipython", one=objects("name", "parameters"), between="; ", alone=True),
    "pythonic": dict(says="[func_name1(", one=py, around=("[", "]"), between=", ", alone=True),
    "lfm2": dict(says="<|tool_list_start|>", one=py, around=("<|tool_call_start|>[", "]<|tool_call_end|>"), between=", ", close="<|tool_call_end|>"),
    "olmo3": dict(says="<function_calls>", one=py, around=("<function_calls>", "</function_calls>"), between="\n", close="</function_calls>"),
    "mistral-list": dict(says="[TOOL_CALLS]", one=objects("name", "arguments", ', "id": "abcDEF123"'), around=("[TOOL_CALLS][", "]"), between=", ",
                         close="]"),
    "mistral": dict(says="[TOOL_CALLS] [ARGS]", one=lambda n, a: "[TOOL_CALLS]%s[ARGS]%s" % (n, compact(a)), between="",
                    think=("[THINK]", "[/THINK]")),
    "mistral-ids": dict(says="[TOOL_CALLS] [CALL_ID] [ARGS]", one=lambda n, a: "[TOOL_CALLS]%s[CALL_ID]abcDEF123[ARGS]%s" % (n, compact(a)), between="",
                        think=("[THINK]", "[/THINK]")),
    "granite": dict(says="<|tool_call|>", one=objects("name", "arguments"), around=("<|tool_call|>[", "]"), between=", ", close="]"),
    "nemotron-2": dict(says="<TOOLCALL>", one=objects("name", "arguments"), around=("<TOOLCALL>[", "]</TOOLCALL>"), between=", ", close="</TOOLCALL>"),
    "apriel": dict(says="<tool_calls>", one=objects("name", "arguments"), around=("<tool_calls>[", "]</tool_calls>"), between=", ", close="</tool_calls>"),
    "cohere": dict(says="<|START_ACTION|>", one=objects("tool_name", "parameters", ', "tool_call_id": "0"'),
                   around=("<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"), between=",\n    ", close="<|END_ACTION|>",
                   think=("<|START_THINKING|>", "<|END_THINKING|>")),
    "apertus": dict(says="<|tools_prefix|>", one=lambda n, a: '{"%s": %s}' % (n, compact(a)), around=("<|tools_prefix|>[", "]<|tools_suffix|>"),
                    between=", ", close="<|tools_suffix|>", think=("<|inner_prefix|>", "<|inner_suffix|>")),
    "kimi": dict(says="<|tool_call_begin|>", one=lambda n, a: "<|tool_call_begin|>functions.%s:0<|tool_call_argument_begin|>%s<|tool_call_end|>" % (n, compact(a)),
                 around=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"), between="", close="<|tool_calls_section_end|>"),
    "deepseek-v3.1": dict(says=ds("tool", "call", "begin"), one=lambda n, a: ds("tool", "call", "begin") + n + ds("tool", "sep") + compact(a) + ds("tool", "call", "end"),
                          around=(ds("tool", "calls", "begin"), ds("tool", "calls", "end")), between="", close=ds("tool", "calls", "end")),
    "deepseek-r1": dict(says=ds("tool", "call", "begin"), one=lambda n, a: ds("tool", "call", "begin") + "function" + ds("tool", "sep") + n + "\n```json\n"
                        + compact(a) + "\n```" + ds("tool", "call", "end"), around=(ds("tool", "calls", "begin"), ds("tool", "calls", "end")), between="\n",
                        close=ds("tool", "calls", "end")),
    "deepseek-v3.2": dsml("function_calls"),
    "deepseek-v4": dsml("tool_calls"),
    "minimax": dict(says="<minimax:tool_call>", one=marked(('<invoke name="', '">'), ('<parameter name="', '">', "</parameter>"), "</invoke>"),
                    around=("<minimax:tool_call>\n", "\n</minimax:tool_call>"), between="\n", close="\n</minimax:tool_call>"),
    "seed": dict(says="<seed:tool_call>", one=lambda n, a: "<seed:tool_call>\n" + marked(("<function=", ">"), ("<parameter=", ">", "</parameter>"),
                 "</function>")(n, a) + "\n</seed:tool_call>", between="\n", close="\n</seed:tool_call>", think=("<seed:think>", "</seed:think>")),
    "glm": dict(says="<arg_key>", one=lambda n, a: "<tool_call>%s\n" % n + "".join("<arg_key>%s</arg_key>\n<arg_value>%s</arg_value>\n" % (k, bare(v))
                for k, v in a.items()) + "</tool_call>", between="\n"),
    "functionary": dict(says="<function=example_function_name>{", one=lambda n, a: "<function=%s>%s</function>" % (n, compact(a)), between="",
                        close="</function>"),
    "gemma-4": dict(says="<|tool_call>", one=lambda n, a: "<|tool_call>call:%s{%s}<tool_call|>" % (n, gemma(a)[1:-1]), between="", close="<tool_call|>",
                    think=("<|channel>thought\n", "<channel|>")),
    "harmony": dict(says="<|channel|>commentary", one=lambda n, a: "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>" % (n, compact(a)),
                    between="<|start|>assistant", close="<|call|>", think=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
                    text="<|channel|>commentary<|message|>%s<|end|><|start|>assistant", after="<|start|>assistant<|channel|>final<|message|>%s"),
    "harmony-role": dict(says="<|channel|>commentary", one=lambda n, a: "<|start|>assistant to=functions.%s<|channel|>commentary json<|message|>%s<|call|>"
                         % (n, compact(a)), between="", close="<|call|>", think=("<|channel|>analysis<|message|>", "<|end|>"),
                         text="<|channel|>commentary<|message|>%s<|end|>", after="<|start|>assistant<|channel|>final<|message|>%s"),
}

# Each: why somebody met it, and the calls.
ARGUMENTS = [
    ("no arguments", [("f", {})]),
    ("a plain string", [("f", {"s": "Paris"})]),
    ("brackets in a string", [("f", {"s": "if (a[0] == '}') { return ']'; }"})]),
    ("quotes and backslashes", [("f", {"s": "say \"hi\" to C:\\new\\table"})]),
    ("line breaks and tabs: a file", [("f", {"s": "#include <stdio.h>\nint main(void)\n{\n\tputs(\"a\\n\");\n}"})]),
    ("markup", [("f", {"s": "<div class=\"a\"><b>x</b></div> & <tool>"})]),
    ("other scripts", [("f", {"s": "naïve 日本語 🙂 \u200d"})]),
    ("a number", [("f", {"i": 5})]),
    ("a string that is a number", [("f", {"s": "0042"})]),
    ("a string that looks like JSON", [("f", {"s": "{\"a\": [1, 2]}"})]),
    ("truths and nothing", [("f", {"b": True, "m": None})]),
    ("nested", [("f", {"o": {"k": [1, {"z": "y"}], "e": {}}})]),
    ("a list", [("f", {"l": ["a", "b", 3]})]),
    ("several arguments", [("f", {"s": "a", "i": 1, "b": False})]),
    ("two calls", [("f", {"s": "a"}), ("g", {"s": "b"})]),
    ("three calls of one function", [("f", {"i": 1}), ("f", {"i": 2}), ("f", {"i": 3})]),
    ("a name with dashes and underscores", [("mcp__files-read_2", {"s": "a"})]),
    ("a name with a blank and a colon", [(SPACED, {"s": "a"})]),
    ("a long string", [("f", {"s": "word " * 60 + "end"})]),
    ("an empty string", [("f", {"s": ""})]),
]


def whole(d, calls):
    before, after = d.get("around", ("", ""))
    return before + d["between"].join(d["one"](n, a) for n, a in calls) + after


def case(name, d, why, text, calls, thought="", content="", thinking=False):
    return {"dialect": name, "why": why, "says": d["says"], "thinking": thinking, "text": text, "thought": thought, "content": content,
            "calls": [[n, a] for n, a in calls]}


def main():
    out = []
    for name, d in DIALECTS.items():
        for why, calls in ARGUMENTS:
            if d["one"] is py and calls[0][0] == SPACED:
                continue  # no name of Python's
            out.append(case(name, d, why, whole(d, calls), calls))
        calls = [("f", {"s": "Paris", "i": 5})]
        think = d.get("think", ("<think>\n", "\n</think>\n\n"))
        out.append(case(name, d, "a thought before the call", think[0] + "Use f, with {\"s\"}." + think[1] + whole(d, calls), calls,
                        "Use f, with {\"s\"}."))
        if not d.get("alone"):
            said = d.get("text", "%s\n") % "I will look it up."
            out.append(case(name, d, "text before the call", said + whole(d, calls), calls, content="I will look it up."))
            out.append(case(name, d, "text after the call", whole(d, calls) + d.get("after", "\n%s") % "There.", calls, content="There."))
        text = whole(d, calls)
        if "close" in d:
            out.append(case(name, d, "the last tag is missing", text[:len(text) - len(d["close"])], calls))
        out.append(case(name, d, "blanks behind the call", text + "\n\n", calls))
    json.dump({"tools": [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "b": {"type": "boolean"}, "m": {"type": ["integer", "null"]}, "o": {"type": "object"},
        "l": {"type": "array"}}}}} for n in ("f", "g", "mcp__files-read_2", SPACED)], "cases": out}, sys.stdout, ensure_ascii=False, indent=0)
    print()


main()
