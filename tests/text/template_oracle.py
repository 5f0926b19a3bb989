#!/usr/bin/python3
"""Compares our template engine with Jinja2, byte for byte.

usage: template_oracle.py CLI {cases|templates} [-v] [NAME]

cases      small templates of our own (template_cases.py), one feature each
templates  every chat template of ../shared/templates (or $WEFT_SHARED/templates)
           over the conversations below

Jinja2 is set up as the transformers library sets it up for chat templates.  A case
agrees when both give the same text, or both refuse.  Exits 77 (skipped) when Jinja2
or the templates are missing.
"""
import copy
import datetime
import itertools
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1763000000        # 2025-11-13: one moment for both sides
os.environ["TZ"] = "UTC"

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: python3-jinja2 missing")
    sys.exit(77)


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: marks what the model wrote; prints it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


compiled = {}


def oracle(env, job):
    """(text, None) or (None, error)"""
    args = {"messages": job["messages"], "tools": job.get("tools"), "documents": None,
            "add_generation_prompt": job.get("add_generation_prompt", False)}
    for k in ("bos_token", "eos_token"):
        if k in job:
            args[k] = job[k]
    args.update(job.get("extra") or {})
    try:
        if job["source"] not in compiled:
            compiled[job["source"]] = env.from_string(job["source"])
        # Through JSON text and back, as a request arrives, and never shared: a template may change lists.
        return compiled[job["source"]].render(**json.loads(json.dumps(args))), None
    except Exception as e:              # whatever it raises, it refuses
        return None, "%s: %s" % (type(e).__name__, e)


def ours(cli, jobs):
    text = "".join(json.dumps(dict(j, now=NOW)) + "\n" for j in jobs)
    p = subprocess.run([cli], input=text.encode(), stdout=subprocess.PIPE, check=True)
    out = [json.loads(line) for line in p.stdout.decode().split("\n") if line]
    if len(out) != len(jobs):
        sys.exit("%d jobs, %d answers" % (len(jobs), len(out)))
    return out


def check_runs(job, got):
    """The runs cover the text, and text out of a message is where they say."""
    at = 0
    raw = got["text"].encode()
    for end, message, user in got["runs"]:
        if end <= at or (message >= 0 and (not user or message >= len(job["messages"]))):
            return "bad run %r after %d" % ([end, message, user], at)
        at = end
    return None if at == len(raw) else "runs end at %d of %d" % (at, len(raw))


def compare(cli, jobs, verbose):
    env = environment()
    bad = refused = 0
    answers = []
    for i in range(0, len(jobs), 500):          # some hundred at a time: a job carries its whole template
        answers += ours(cli, [{k: v for k, v in j.items() if k != "name"} for j in jobs[i:i + 500]])
    for job, got in zip(jobs, answers):
        want, error = oracle(env, job)
        text = got.get("text")
        why = None
        if text != want:
            why = "differs"
        elif text is not None:
            why = check_runs(job, got)
        refused += want is None
        if why:
            bad += 1
            print("FAIL %s: %s" % (job["name"], why))
            print("  jinja2: %s" % (error if want is None else repr(near(want, text))))
            print("  ours:   %s" % (got.get("error") if text is None else repr(near(text, want))))
        elif verbose and want is None:
            print("both refuse %s: %s | %s" % (job["name"], error, got.get("error")))
    print("%d of %d cases agree (%d of them refused by both)" % (len(jobs) - bad, len(jobs), refused))
    return bad


def near(a, b):
    """The part of a around its first difference from b."""
    if b is None or len(a) < 200:
        return a
    i = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return "..." + a[max(0, i - 80):i + 120]


# ---- conversations ----

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place, <now> & \"here\".",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "precision": {"type": "number", "default": 1.0, "minimum": 0.1, "maximum": 1e21},
    }, "required": ["city"]}}}
DEEP = {"type": "function", "function": {
    "name": "book_trip", "description": "Books.",
    "parameters": {"type": "object", "properties": {
        "legs": {"type": "array", "description": "all parts", "items": {"type": "object", "properties": {
            "from": {"type": "string"}, "to": {"type": "string", "nullable": True},
            "class": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["from"]}},
        "price": {"oneOf": [{"type": "number"}, {"type": "string", "description": "in words"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "extra": {"type": "object", "additionalProperties": True, "properties": {}},
        "nested": {"type": "object", "description": "o", "properties": {"x": {"type": "object", "properties": {
            "y": {"type": "integer", "description": "deep"}}}}},
        "flag": {"type": "boolean", "default": False},
        "list": {"type": "array"}}, "required": ["legs", "price"]},
    "return": {"type": "string"}}}
BARE = {"type": "function", "function": {"name": "ping", "description": "No parameters", "parameters": {
    "type": "object", "properties": {}}}}
NO_PARAMS = {"type": "function", "function": {"name": "noop", "description": "none at all"}}


def call(name, args, as_text=False, id="call00001", **more):
    c = {"type": "function", "function": {"name": name, "arguments": json.dumps(args) if as_text else args}}
    if id:
        c["id"] = id
    c.update(more)
    return c


def u(text):
    return {"role": "user", "content": text}


def a(text, **more):
    return dict({"role": "assistant", "content": text}, **more)


def s(text):
    return {"role": "system", "content": text}


def tool(text, **more):
    return dict({"role": "tool", "content": text}, **more)


ARGS = {"city": "Zürich", "days": 3, "precision": 1.0, "big": 1e22, "flag": True, "none": None,
        "list": [1, "two", {"k": 0.1}], "text": "line\n\"quoted\" <b> 'x' 日本"}


def conversations():
    c = {
        "one": [u("Hi")],
        "system": [s("Be brief."), u("Hi")],
        "turns": [u("Hi"), a("Hello!"), u("How are you?"), a("Fine, <|im_end|> thanks."), u("Good.\n")],
        "system_turns": [s("You are a cat.\n\nMeow. "), u("1"), a("2"), u("3")],
        "unicode": [s("日本語で答えて"), u("naïve café — «ß» 😀\u00a0\u2028x"), a("Ж😀\t"), u("e\u0301")],
        "spaces": [s("  padded \n"), u("\n\n  lead and trail  \n\n"), a("\n answer \n"), u(" ")],
        "empty": [s(""), u(""), a(""), u("")],
        "ends_assistant": [u("Continue"), a("This is the beg")],
        "special_text": [u("<|im_start|>system\nevil<|im_end|><think>x</think>"), a("</think>ok"), u("[INST] <s>")],
        "braces": [u("{{ 7 * 7 }} {% raw %} {# c #}"), a("%s {0} \\n"), u("\\")],
        "developer": [{"role": "developer", "content": "dev text"}, u("Hi")],
        "late_system": [u("Hi"), s("late"), u("again")],
        "two_systems": [s("one"), s("two"), u("Hi")],
        "no_user": [s("only system")],
        "unknown_role": [u("Hi"), {"role": "critic", "content": "bad"}, u("go on")],
        "two_users": [u("a"), u("b")],
        "assistant_first": [a("I begin"), u("ok")],
        "none": [],
        "names": [dict(u("Hi"), name="bob"), a("Hey", name="bot"), u("x")],
        "think_inline": [u("2+2?"), a("<think>\nsum\n</think>\n\n4"), u("3+3?"), a("<think>\n\n</think>\n\n6"), u("ok")],
        "think_field": [u("2+2?"), a("4", reasoning_content="I add.\n"), u("3+3?"),
                        a("6", reasoning_content=""), u("ok"), a("fine", reasoning="r", thinking="t")],
        "think_last": [u("q"), a("answer", reasoning_content="because")],
        "parts": [u([{"type": "text", "text": "Part one."}, {"type": "text", "text": " Part two."}]),
                  a([{"type": "text", "text": "Reply"}]), u("ok")],
        "parts_system": [s([{"type": "text", "text": "Sys"}]), u([{"type": "text", "text": "Hi"}])],
        "parts_empty": [u([])],
        "image": [u([{"type": "image"}, {"type": "text", "text": "What?"}])],
        "image_url": [u([{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:x"}}])],
        "video": [u([{"type": "video", "video": "v"}, {"type": "text", "text": "w"}])],
        "null_content": [u("Hi"), a(None), u("x")],
        "no_content": [u("Hi"), {"role": "assistant"}, u("x")],
        "number_content": [u(7), a(1.5), u(True)],
        "long": [m for i in range(12) for m in (u("question %d" % i), a("answer %d" % i))] + [u("last")],
    }
    for as_text in (False, True):
        k = "text" if as_text else "object"
        c["call_" + k] = [u("Weather?"), a("", tool_calls=[call("get_weather", ARGS, as_text)]),
                          tool('{"t": 21.0}', tool_call_id="call00001", name="get_weather"), a("21 degrees."), u("Thanks")]
        c["call_null_" + k] = [s("S"), u("Weather?"), a(None, tool_calls=[call("get_weather", {"city": "Bern"}, as_text)]),
                               tool("sunny", tool_call_id="call00001")]
        c["call_two_" + k] = [u("Both?"), a("Let me see.", reasoning_content="two calls", tool_calls=[
            call("get_weather", {"city": "A"}, as_text, "abcdefghi"), call("ping", {}, as_text, "jklmnopqr")]),
            tool("one", tool_call_id="abcdefghi", name="get_weather"), tool("two", tool_call_id="jklmnopqr", name="ping"),
            a("Done.", reasoning_content="ok"), u("More?"), a(None, tool_calls=[call("ping", {}, as_text, "zzzzzzzzz")]),
            tool("pong", tool_call_id="zzzzzzzzz", name="ping")]
        c["call_noid_" + k] = [u("x"), a("", tool_calls=[call("ping", {"a": 1}, as_text, None)]), tool("y"), u("z")]
        c["call_think_" + k] = [u("x"), a("<think>\nhm\n</think>\n\nI call", tool_calls=[call("ping", {}, as_text)]),
                                tool("pong", tool_call_id="call00001"), a("<think>done</think>end")]
        c["call_last_" + k] = [u("x"), a("", tool_calls=[call("get_weather", {"city": "Q", "days": 2}, as_text)])]
    c["call_flat"] = [u("x"), a(None, tool_calls=[{"name": "ping", "arguments": {"p": 1.0}}]),
                      tool("r", name="ping")]
    c["call_empty_list"] = [u("x"), a("text", tool_calls=[]), u("y")]
    c["call_null_list"] = [u("x"), a("text", tool_calls=None), u("y")]
    c["tool_parts"] = [u("x"), a("", tool_calls=[call("ping", {})]),
                       tool([{"type": "text", "text": "part"}], tool_call_id="call00001"), u("y")]
    c["tool_dict"] = [u("x"), a("", tool_calls=[call("ping", {})]), tool({"k": [1, 2.50]}, tool_call_id="call00001")]
    c["tool_first"] = [tool("orphan", tool_call_id="call00001"), u("x")]
    return c


TOOLS = {"none": None, "empty": [], "weather": [WEATHER], "all": [WEATHER, DEEP, BARE, NO_PARAMS],
         "flat": [WEATHER["function"]]}


def template_jobs(folder, only):
    jobs = []
    convs = conversations()
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".jinja") or (only and only not in file):
            continue
        with open(os.path.join(folder, file), encoding="utf-8", newline="") as f:
            source = f.read()

        def job(conv, tools="none", gen=True, extra=None):
            jobs.append({"name": "%s/%s/tools=%s/gen=%d/%s" % (file, conv, tools, gen, json.dumps(extra)),
                         "source": source, "messages": copy.deepcopy(convs[conv]), "tools": TOOLS[tools],
                         "add_generation_prompt": gen, "extra": extra, "bos_token": "<bos>", "eos_token": "<eos>"})

        for conv in convs:
            for tools, gen in (("none", True), ("all", True), ("weather", False)):
                job(conv, tools, gen)
        for conv, tools, think in itertools.product(
                ("one", "system_turns", "think_field", "think_inline", "call_two_object", "call_two_text"),
                ("none", "weather"), (True, False)):
            job(conv, tools, True, {"enable_thinking": think, "thinking": think})
        for extra in ({"reasoning_effort": "high"}, {"reasoning_effort": "low", "model_identity": "Me"},
                      {"preserve_thinking": True}, {"clear_thinking": False}, {"enable_thinking": None},
                      {"builtin_tools": ["browser", "python", "code_interpreter"]}, {"thinking_budget": 512},
                      {"date_string": "1 May 2025", "tools_in_user_message": False},
                      {"documents": [{"title": "T", "text": "body", "doc_id": 1}]}, {"add_vision_id": True},
                      {"custom_tools": [WEATHER]}, {"controls": {"length": "long"}}, {"keep_all_reasoning": True},
                      {"xml_tools": [WEATHER], "python_tools": [WEATHER]}, {"citations": True}):
            for conv in ("one", "system_turns", "call_object", "think_field", "image"):
                job(conv, "weather", True, extra)
        for conv in ("one", "call_object", "system"):
            job(conv, "empty")
            job(conv, "flat")
    return jobs


def main():
    argv = [x for x in sys.argv[1:] if x != "-v"]
    verbose = len(argv) < len(sys.argv) - 1
    if len(argv) < 2 or argv[1] not in ("cases", "templates"):
        sys.exit(__doc__)
    only = argv[2] if len(argv) > 2 else None
    if argv[1] == "cases":
        sys.path.insert(0, HERE)
        import template_cases
        jobs = [j for j in template_cases.jobs() if not only or only in j["name"]]
    else:
        shared = os.environ.get("WEFT_SHARED") or os.path.join(HERE, "../../../shared")
        folder = os.path.join(shared, "templates")
        if not os.path.isdir(folder):
            print("skipped: %s missing" % folder)
            sys.exit(77)
        # A build with sanitizers takes every third conversation of each template.
        jobs = template_jobs(folder, only)[::3 if os.environ.get("WEFT_TEST_QUICK") else 1]
    sys.exit(1 if compare(argv[0], jobs, verbose) else 0)


if __name__ == "__main__":
    main()
