"""Makes reported.json: answers whose calls other servers or clients did not read, as public trackers report them, and what was
meant.  The form of each text is the thread's; names and values are ours.  Run: make_reported.py > reported.json"""
import json
import sys

D = "\uff5cDSML\uff5c"
B, S = "\uff5c", "\u2581"
TOOLS = {
    "bash": {"command": "string", "description": "string", "timeout": "integer"},
    "read": {"filePath": "string", "offset": "integer", "limit": "integer"},
    "write": {"filePath": "string", "content": "string"},
    "edit": {"filePath": "string", "oldString": "string", "newString": "string", "replaceAll": "boolean"},
    "get_weather": {"city": "string", "state": "string", "days": "integer", "unit": "string", "longitude": "number"},
    "search": {"query": "string", "max_results": "integer", "exclude": "array", "safe": "boolean", "cursor": ["string", "null"],
               "opts": "object", "data_refs": "array"},
    "grep_tool": {"pattern": "string", "path": "string", "-A": "integer", "-n": "boolean", "include": "string"},
    "now": {}, "list_mailboxes": {}, "Glob": {"pattern": "string"},
    "memory_get": {"from": "integer"}, "resize": {"size": "array"},
    "Calendar.create_event": {"title": "string", "metadata": "object"}, "web-browsing": {"url": "string"},
    "mcp__scihub__search_by_title": {"title": "string", "num_results": "integer"},
    "connect": {"connections": "object"}, "google:mcp:create-pdf-file": {"filename": "string", "content": "string"},
}
SAYS = {"qwen": "<tool_call> <function=", "hermes": "<tool_call>", "glm": "<arg_key>", "minimax": "<minimax:tool_call>",
        "kimi": "<|tool_call_begin|>", "mistral": "[ARGS]", "mistral list": "[TOOL_CALLS]", "gemma": "<|tool_call>",
        "harmony": "<|channel|>commentary", "lfm": "<|tool_call_start|>", "dsml": D, "deepseek": "tool%scall%sbegin" % (S, S),
        "llama": "Environment: ipython", "granite": "<|tool_call|>", "seed": "<seed:tool_call>"}
cases = []


def case(thread, dialect, text, *calls, content="", thought="", thinking=False, talk=False):
    cases.append({"dialect": dialect, "why": thread, "says": SAYS[dialect], "thinking": thinking, "text": text, "thought": thought,
                  "content": content, "calls": [[n, a] for n, a in calls]})
    if talk:
        cases[-1]["talk"] = True  # of calls, besides


def f(name, *parameters, nl="\n"):
    return "<function=%s>\n" % name + "".join("<parameter=%s>\n%s%s</parameter>\n" % (k, v, nl) for k, v in parameters) + "</function>"


def q(*a, **k):
    return "<tool_call>\n" + f(*a, **k) + "\n</tool_call>"


bash = lambda c, **k: ("bash", dict(command=c, **k))
read = lambda p, **k: ("read", dict(filePath=p, **k))

# ---- Qwen3-Coder and 3.5 to 3.6
case("ollama#16686", "qwen", "I'll use the Glob tool.\n\n" + f("Glob", ("pattern", "*.md")) + "\n</tool_call>", ("Glob", {"pattern": "*.md"}), content="I'll use the Glob tool.")
case("ollama#18530", "qwen", "Let me look for it first.\n\n" + f("grep_tool", ("pattern", "main"), ("path", "src")) + "\n</tool_call>", ("grep_tool", {"pattern": "main", "path": "src"}), content="Let me look for it first.")
case("ollama#16686, nothing before", "qwen", f("bash", ("command", "ls")) + "\n</tool_call>", bash("ls"))
case("macprovider#427, no wrapper at all", "qwen", f("bash", ("command", "ls -la")), bash("ls -la"))
case("macprovider#427, two", "qwen", f("bash", ("command", "ls")) + "\n" + f("now"), bash("ls"), ("now", {}))
case("llama.cpp#26763", "qwen", q("bash", ("command", "git status"), nl=""), bash("git status"))
case("llama.cpp#26763, another call behind", "qwen", q("bash", ("command", "git status"), nl="") + "\n" + q("read", ("filePath", "/a"), nl=""), bash("git status"), read("/a"))
case("llama.cpp#26763, several parameters", "qwen", q("edit", ("filePath", "a.py"), ("oldString", "x = 1"), ("newString", "x = 2"), nl=""), ("edit", {"filePath": "a.py", "oldString": "x = 1", "newString": "x = 2"}))
case("pwilkin/llama.cpp#9", "qwen", q("bash", ("command", "cd /home/me/dev && git status"), ("description", "Check git status")), bash("cd /home/me/dev && git status", description="Check git status"))
case("pwilkin/llama.cpp#9, quotes", "qwen", q("bash", ("command", 'test -d .plan && echo "exists" || echo "missing"'), ("description", "Check")), bash('test -d .plan && echo "exists" || echo "missing"', description="Check"))
case("pwilkin/llama.cpp#9, three calls", "qwen", "\n".join([q("bash", ("command", "ls")), q("read", ("filePath", "/p/STATE.md")), q("read", ("filePath", "/p/ROAD.md"))]), bash("ls"), read("/p/STATE.md"), read("/p/ROAD.md"))
case("llama.cpp#20260", "qwen", "I will look at the file now.\n\n" + q("read", ("filePath", "main.c")), read("main.c"), content="I will look at the file now.")
case("llama.cpp#20260, behind a thought", "qwen", "I need the title.\n</think>\n\nSearching.\n\n" + q("mcp__scihub__search_by_title", ("title", "Gated nets"), ("num_results", "5")), ("mcp__scihub__search_by_title", {"title": "Gated nets", "num_results": 5}), thinking=True, thought="I need the title.", content="Searching.")
case("llama.cpp#22878", "qwen", "\n" + q("read", ("filePath", "/w/USER.md")) + "\n" + q("read", ("filePath", "/w/MEMORY.md")), read("/w/USER.md"), read("/w/MEMORY.md"))
case("QwenPaw#3560", "qwen", q("bash", ("command", "python3 -c 'print(1)'")), bash("python3 -c 'print(1)'"))
case("vllm#37829", "qwen", "<tool_call>\n<function=get_weather>\n<parameter=city>\nDallas\n<parameter=state>\nTX\n</parameter>\n</function>\n</tool_call>", ("get_weather", {"city": "Dallas", "state": "TX"}))
case("Rapid-MLX#3419", "qwen", q("edit", ("filePath", "a.py"), ("oldString", "        if ok:\n            go()"), ("newString", "        if not ok:\n            stop()")), ("edit", {"filePath": "a.py", "oldString": "        if ok:\n            go()", "newString": "        if not ok:\n            stop()"}))
case("Rapid-MLX#3419, one line", "qwen", q("edit", ("filePath", "a.py"), ("oldString", "    pass"), ("newString", "    return 1")), ("edit", {"filePath": "a.py", "oldString": "    pass", "newString": "    return 1"}))
case("mlx-lm#1712", "qwen", q("write", ("filePath", "a.jsx"), ("content", "const a = `x\n${b}`;\nreturn <div>{a}</div>;")), ("write", {"filePath": "a.jsx", "content": "const a = `x\n${b}`;\nreturn <div>{a}</div>;"}))
case("mlx-lm#1712, backticks in an array", "qwen", q("search", ("query", "q"), ("exclude", '["use `code` here"]')), ("search", {"query": "q", "exclude": ["use `code` here"]}))
case("club-3090#72", "qwen", "The wrapper is written <tool_call> and then a name.", content="The wrapper is written <tool_call> and then a name.")
case("club-3090#72, and a call behind", "qwen", "A <tool_call> tag opens it.\n\n" + q("now"), ("now", {}), content="A <tool_call> tag opens it.", talk=True)
case("lmstudio#1592", "qwen", "some write `<function=...>`, others <tool_call>; I answer.\n</think>\n\nDone.", thinking=True, thought="some write `<function=...>`, others <tool_call>; I answer.", content="Done.")
case("lmstudio#1592, a whole call as talk", "qwen", "e.g. <tool_call>\n<function=now>\n</function>\n</tool_call> would do.\n</think>\n\n" + q("now"), ("now", {}), thinking=True, thought="e.g. <tool_call>\n<function=now>\n</function>\n</tool_call> would do.")
case("vllm#42021", "qwen", "Weather of one city.\n</think>\n\n" + q("get_weather", ("city", "Lima")), ("get_weather", {"city": "Lima"}), thinking=True, thought="Weather of one city.")
case("ollama PR 13764", "qwen", "</think>\n" + q("now"), ("now", {}), thinking=True)
case("retail-shopping-assistant PR 215", "qwen", q("search", ("query", "black dress"), ("exclude", '["red", "blue"]'), ("opts", '{"price": {"max": 100}}')), ("search", {"query": "black dress", "exclude": ["red", "blue"], "opts": {"price": {"max": 100}}}))
case("vllm#21544, in tags", "qwen", q("bash", ("command", "mkdir -p test/{test1,test2")), bash("mkdir -p test/{test1,test2"))
# ---- Hermes
h = lambda n, a: '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (n, a)
case("vllm#21544", "hermes", h("bash", '{"command": "mkdir -p test/{test1,test2"}'), bash("mkdir -p test/{test1,test2"))
case("vllm#10395", "hermes", h("get_weather", '{"city": "Dallas", "state": "TX", "unit": "fahrenheit"}'), ("get_weather", {"city": "Dallas", "state": "TX", "unit": "fahrenheit"}))
case("vllm#10589, no arguments", "hermes", h("now", "{}"), ("now", {}))
case("openvino#3838", "hermes", h("search", '{"query": "1+1"}'), ("search", {"query": "1+1"}))
case("openvino#3838, quotes", "hermes", h("search", '{"query": "say \\"1+1\\""}'), ("search", {"query": 'say "1+1"'}))
case("vllm#18791", "hermes", "看起来出现了错误。\n\n" + h("get_weather", '{"city": "Lima", "days": 5}'), ("get_weather", {"city": "Lima", "days": 5}), content="看起来出现了错误。")
case("vllm#17506", "hermes", "<think>\nI call it.\n</think>\n\n" + h("get_weather", '{"city": "Lima"}'), ("get_weather", {"city": "Lima"}), thought="I call it.")
case("QwenLM/Qwen3#1459", "hermes", "<think>\nMaybe <tool_call> is next.\n</think>\n\nNo.", thought="Maybe <tool_call> is next.", content="No.")
case("granite-io#49", "hermes", '<tool_call>{"name": "now", "arguments": {}}', ("now", {}))
case("tt-inference-server#4386", "hermes", "Simple.\n</think>\n\n" + h("get_weather", '{"city": "London"}'), ("get_weather", {"city": "London"}), thinking=True, thought="Simple.")
# ---- GLM
g = lambda n, *a: "<tool_call>%s%s</tool_call>" % (n, "".join("<arg_key>%s</arg_key><arg_value>%s</arg_value>" % x for x in a))
case("vllm PR 32097", "glm", g("now"), ("now", {}))
case("vllm PR 32097, a line break", "glm", "<tool_call>now\n</tool_call>", ("now", {}))
case("vmlx-swift PR 228", "glm", "<think>I list them.</think>" + g("list_mailboxes"), ("list_mailboxes", {}), thought="I list them.")
case("vllm PR 47190", "glm", "<tool_call>bashcommand</arg_key><arg_value>echo test</arg_value></tool_call>", bash("echo test"))
case("vllm PR 47190, with an underscore", "glm", "<tool_call>grep_toolpattern</arg_key><arg_value>main</arg_value></tool_call>", ("grep_tool", {"pattern": "main"}))
case("vllm PR 47190, spaced", "glm", "<tool_call>search query</arg_key><arg_value>weft</arg_value></tool_call>", ("search", {"query": "weft"}))
case("vllm PR 47190, more arguments", "glm", "<tool_call>bashcommand</arg_key><arg_value>ls</arg_value><arg_key>timeout</arg_key><arg_value>5</arg_value></tool_call>", bash("ls", timeout=5))
case("sigit PR 95", "glm", "<tool_call>bash<tool_call>command</arg_key><arg_value>ls</arg_value></tool_call>", bash("ls"))
case("ds4 PR 582, integer", "glm", g("search", ("query", "10"), ("max_results", "10")), ("search", {"query": "10", "max_results": 10}))
case("ds4 PR 582, array", "glm", g("search", ("query", "q"), ("exclude", "[]")), ("search", {"query": "q", "exclude": []}))
case("ds4 PR 582, boolean", "glm", g("search", ("query", "true"), ("safe", "true")), ("search", {"query": "true", "safe": True}))
case("ds4 PR 582, null", "glm", g("search", ("query", "q"), ("cursor", "null")), ("search", {"query": "q", "cursor": None}))
case("ds4 PR 582, object", "glm", g("search", ("query", "q"), ("opts", '{"a": [1]}')), ("search", {"query": "q", "opts": {"a": [1]}}))
case("mlx-lm PR 792, JSON", "glm", '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>', bash("ls"))
case("mlx-lm PR 792, a name and JSON", "glm", '<tool_call>bash {"command": "ls"}</tool_call>', bash("ls"))
case("exo PR 2187", "glm", "<tool_call>read\n<arg_key>filePath</arg_key> \n <arg_value>/a</arg_value>\n<arg_key>offset</arg_key>\n<arg_value>5</arg_value>\n</tool_call>", read("/a", offset=5))
case("GLM-5#84", "glm", "<tool_call>read<arg_key>filePath</arg_key><arg_value>/home/me/x</arg_value></tool_call>", read("/home/me/x"))
case("GLM-5#84, long text", "glm", g("bash", ("command", "ls"), ("description", "Explore the structure and data flow")), bash("ls", description="Explore the structure and data flow"))
case("pwilkin/llama.cpp#5", "glm", "<think></think>\n" + "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls -la</arg_value>\n</tool_call>", bash("ls -la"))
# ---- MiniMax
m = lambda *c, sep="\n", ind="": "<minimax:tool_call>" + sep + sep.join(ind + '<invoke name="%s">%s%s</invoke>' % (n, sep, "".join('%s<parameter name="%s">%s</parameter>%s' % (ind * 2, k, v, sep) for k, v in a)) for n, a in c) + sep + "</minimax:tool_call>"
case("MiniMax-M2.5#10", "minimax", m(("bash", [("command", "ls")]), ind="  "), bash("ls"))
case("oh-my-pi#2759", "minimax", m(("read", [("filePath", "/a"), ("limit", "20")])), read("/a", limit=20))
case("vllm PR 38803, markup in a value", "minimax", m(("write", [("filePath", "t.xml"), ("content", "<item>\n  <a>1</a>\n</item>")])), ("write", {"filePath": "t.xml", "content": "<item>\n  <a>1</a>\n</item>"}))
case("sglang#16057, a value", "minimax", m(("search", [("query", "hi"), ("cursor", "abc")])), ("search", {"query": "hi", "cursor": "abc"}))
case("sglang#16057, null", "minimax", m(("search", [("query", "hi"), ("cursor", "null")])), ("search", {"query": "hi", "cursor": None}))
case("vllm-ascend#12815", "minimax", m(("grep_tool", [("pattern", "x"), ("-A", "3"), ("-n", "true")])), ("grep_tool", {"pattern": "x", "-A": 3, "-n": True}))
case("vllm-mlx PR 231, two", "minimax", m(("bash", [("command", "ls")]), ("now", [])), bash("ls"), ("now", {}))
case("vllm-mlx PR 231, no parameters", "minimax", m(("now", [])), ("now", {}))
case("vllm-mlx PR 231, a thought", "minimax", "<think>\nGo.\n</think>\n\n" + m(("now", [])), ("now", {}), thought="Go.")
case("vllm-mlx PR 231, JSON values", "minimax", m(("search", [("query", "q"), ("exclude", '["a", "b"]')])), ("search", {"query": "q", "exclude": ["a", "b"]}))
case("mlx-openai-server PR 124", "minimax", m(("read", [("filePath", "/Users/me/it's.js")])), read("/Users/me/it's.js"))
case("llama.cpp PR 16932, on one line", "minimax", m(("bash", [("command", "ls")]), sep=""), bash("ls"))
# ---- Kimi
k = lambda *c: "".join("<|tool_call_begin|>%s<|tool_call_argument_begin|>%s<|tool_call_end|>" % x for x in c)
ks = lambda *c: "<|tool_calls_section_begin|>" + k(*c) + "<|tool_calls_section_end|>"
case("litellm#12679", "kimi", ks(("functions.bash:0", '{"command": "ls"}')), bash("ls"))
case("vllm PR 32216, the thought is not closed", "kimi", "I call it now.<|tool_calls_section_begin|>" + k(("functions.get_weather:0", '{"city": "Tokyo"}')) + "<|tool_calls_section_end|>", ("get_weather", {"city": "Tokyo"}), thinking=True, thought="I call it now.")
case("vllm PR 32216, no section either", "kimi", "I call it now." + k(("functions.now:0", "{}")), ("now", {}), thinking=True, thought="I call it now.")
case("llama.cpp PR 17376, singular section", "kimi", "<|tool_call_section_begin|>" + k(("functions.now:0", "{}")) + "<|tool_call_section_end|>", ("now", {}))
case("dynamo PR 8208, the section is not closed", "kimi", "<|tool_calls_section_begin|>" + k(("functions.bash:0", '{"command": "ls"}'), ("functions.now:1", "{}")), bash("ls"), ("now", {}))
case("vllm#24478", "kimi", ks(("functions.read:0", '{"filePath": "/a"}'), ("functions.read:1", '{"filePath": "/b"}')), read("/a"), read("/b"))
case("ik_llama.cpp#955", "kimi", ks(*[("functions.read:%d" % i, '{"filePath": "/%d"}' % i) for i in range(5)]), *[read("/%d" % i) for i in range(5)])
case("vllm#54701, large index", "kimi", ks(("functions.bash:166", '{"command": "ls"}')), bash("ls"))
case("dynamo PR 6407, no prefix", "kimi", ks(("bash:0", '{"command": "ls"}')), bash("ls"))
case("ik_llama.cpp#942, text before", "kimi", "Let me check.\n" + ks(("functions.now:0", "{}")), ("now", {}), content="Let me check.")
case("llama.cpp PR 17376, blanks", "kimi", "<|tool_calls_section_begin|>\n<|tool_call_begin|> functions.bash:0 <|tool_call_argument_begin|> {\"command\": \"ls\"} <|tool_call_end|>\n<|tool_calls_section_end|>", bash("ls"))
# ---- Mistral
case("mlx-lm#1374", "mistral", '[TOOL_CALLS][{"name": "search", "arguments": {"query": "2+3"}}]', ("search", {"query": "2+3"}))
case("mlx-lm#1374, a blank", "mistral list", '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "2+3"}}]', ("search", {"query": "2+3"}))
case("mlx-lm PR 1643", "mistral list", '[TOOL_CALLS][{"name": "read", "arguments": {"filePath": "/tmp/a"}, "id": "abcdefghi"}]', read("/tmp/a"))
case("Rapid-MLX#579", "mistral", '[TOOL_CALLS]read[ARGS]{"filePath": "/a"}', read("/a"))
case("Rapid-MLX#579, two", "mistral", '[TOOL_CALLS]read[ARGS]{"filePath": "/a"}[TOOL_CALLS]now[ARGS]{}', read("/a"), ("now", {}))
case("mlx-lm#1406", "mistral", 'Reading.[TOOL_CALLS]read[ARGS]{"filePath": "/a"}', read("/a"), content="Reading.")
case("vllm PR 54844, two marks", "mistral list", '[TOOL_CALLS][{"name": "now", "arguments": {}}][TOOL_CALLS][{"name": "read", "arguments": {"filePath": "/a"}}]', ("now", {}), read("/a"))
case("vllm PR 54844, an object alone", "mistral list", '[TOOL_CALLS]{"name": "now", "arguments": {}}', ("now", {}))
case("vllm#15549", "mistral list", '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "San Francisco, CA", "unit": "celsius"}}]', ("get_weather", {"city": "San Francisco, CA", "unit": "celsius"}))
case("lmstudio#797", "mistral", '[TOOL_CALLS]get_weather[CALL_ID]a1B2c3D4e[ARGS]{"city": "Lima"}', ("get_weather", {"city": "Lima"}))
# ---- Gemma 4
G = '<|"|>'
t = lambda n, a: "<|tool_call>call:%s{%s}<tool_call|>" % (n, a)
case("ollama PR 15255", "gemma", t("bash", "command:%sgrep \"a b\" x%s" % (G, G)), bash('grep "a b" x'))
case("vllm#51284", "gemma", t("search", "query:%sq%s,data_refs:[%sds_1%s]" % (G, G, G, G)), ("search", {"query": "q", "data_refs": ["ds_1"]}))
case("vllm#51284, JSON strings", "gemma", t("search", "query:%sq%s,data_refs:[\"ds_1\"]" % (G, G)), ("search", {"query": "q", "data_refs": ["ds_1"]}))
case("vllm#51284, Python strings", "gemma", t("search", "query:%sq%s,data_refs:['ds_1']" % (G, G)), ("search", {"query": "q", "data_refs": ["ds_1"]}))
case("vllm#51284, a JSON object", "gemma", t("search", "query:%sq%s,opts:{\"mode\": \"fast\"}" % (G, G)), ("search", {"query": "q", "opts": {"mode": "fast"}}))
case("hermes-agent PR 7449, parentheses", "gemma", '<|tool_call>call:get_weather(city: "Lima", days: 2)<tool_call|>', ("get_weather", {"city": "Lima", "days": 2}))
case("hermes-agent PR 7449, single quotes", "gemma", "<|tool_call>call:get_weather(city: 'Lima', unit: 'c')<tool_call|>", ("get_weather", {"city": "Lima", "unit": "c"}))
case("hermes-agent PR 7449, braces", "gemma", '<|tool_call>call:get_weather{city: "Lima"}<tool_call|>', ("get_weather", {"city": "Lima"}))
case("hermes-agent PR 7449, Korean", "gemma", t("search", "query:%s서울 날씨%s" % (G, G)), ("search", {"query": "서울 날씨"}))
case("hermes-agent PR 7449, two", "gemma", t("now", "") + t("search", "query:%sq%s" % (G, G)), ("now", {}), ("search", {"query": "q"}))
case("omlx PR 1854, a name with colons", "gemma", t("google:mcp:create-pdf-file", "filename:%sa.pdf%s,content:%sx%s" % (G, G, G, G)), ("google:mcp:create-pdf-file", {"filename": "a.pdf", "content": "x"}))
case("omlx PR 1854, single quotes", "gemma", t("google:mcp:create-pdf-file", "filename: 'out.pdf'"), ("google:mcp:create-pdf-file", {"filename": "out.pdf"}))
case("omlx PR 1854, commas in them", "gemma", t("google:mcp:create-pdf-file", "filename: 'a.pdf', content: 'one, two: {three}'"), ("google:mcp:create-pdf-file", {"filename": "a.pdf", "content": "one, two: {three}"}))
case("ollama#17882", "gemma", t("google:mcp:create-pdf-file", "content:%sx%s,filename='report.docx'" % (G, G)), ("google:mcp:create-pdf-file", {"content": "x", "filename": "report.docx"}))
case("ollama#17882, double quotes", "gemma", t("google:mcp:create-pdf-file", "content:%sx%s,filename=\"report.docx\"" % (G, G)), ("google:mcp:create-pdf-file", {"content": "x", "filename": "report.docx"}))
case("ollama#18390", "gemma", t("connect", "connections:{Basic LLM Chain:{main:[%sChat Model%s]}}" % (G, G)), ("connect", {"connections": {"Basic LLM Chain": {"main": ["Chat Model"]}}}))
case("ollama#15315", "gemma", t("grep_tool", "include:%s*.py%s,path:%s/data%s,pattern:%s:\\s*\\w+%s" % (G, G, G, G, G, G)), ("grep_tool", {"include": "*.py", "path": "/data", "pattern": ":\\s*\\w+"}))
case("ollama#15315, a quote that is not opened as its own", "gemma", t("grep_tool", "path:%s/data%s,pattern:':\\s*\\w+%s" % (G, G, G)), ("grep_tool", {"path": "/data", "pattern": ":\\s*\\w+"}))
case("vllm PR 39075", "gemma", t("search", "query:%sWhat is \"machine learning\"?%s" % (G, G)), ("search", {"query": 'What is "machine learning"?'}))
case("mlx-lm PR 1105", "gemma", t("search", "query:%sv%s,max_results:42,safe:true,opts:{a:[1,{b:null}]}" % (G, G)), ("search", {"query": "v", "max_results": 42, "safe": True, "opts": {"a": [1, {"b": None}]}}))
# ---- Harmony
A = "<|channel|>analysis<|message|>"
case("kekzl/imp PR 1719", "harmony", A + "We need it.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Berlin\"}", ("get_weather", {"city": "Berlin"}), thought="We need it.")
case("mlxcel#654", "harmony", A + "Read it.<|end|><|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"filePath\":\"/etc/hosts\"}<|call|>", read("/etc/hosts"), thought="Read it.")
case("odysseus#4522", "harmony", "<|channel|>commentary to=functions.search<|message|>{\"query\":\"x\"}<|call|>", ("search", {"query": "x"}))
case("Rapid-MLX#480", "harmony", "<|channel|>commentary to=functions.get_weather json<|message|>{\"city\":\"Paris\"}<|call|>", ("get_weather", {"city": "Paris"}))
case("vllm#51977", "harmony", " to=functions.web-browsing<|channel|>commentary json<|message|>{\"url\":\"https://a.example\"}<|call|>", ("web-browsing", {"url": "https://a.example"}))
case("vllm#23567, recipient behind the role", "harmony", A + "So.<|end|><|start|>assistant to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", ("now", {}), thought="So.")
case("vllm#23567, a preamble", "harmony", "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.now json<|message|>{}<|call|>", ("now", {}), content="I will look.")
case("lmdeploy PR 3962, two thoughts", "harmony", A + "One.<|end|><|start|>assistant" + A + "Two.<|end|><|start|>assistant<|channel|>final<|message|>Done.<|return|>", thought="One.Two.", content="Done.")
case("sglang PR 9043", "harmony", A + "Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{\"query\": \"a {b\"}<|call|>", ("search", {"query": "a {b"}), thought="Hm.")
case("dynamo PR 9593, no message end", "harmony", "<|channel|>final<|message|>All done", content="All done")
case("harmony#38, analysis alone", "harmony", A + "Only thought", thought="Only thought")
case("hermes-agent PR 84231", "harmony", "<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{\n  \"command\": \"ls\"\n}<|call|>", bash("ls"))
case("vllm#22284", "harmony", "<|channel|>analysis to=functions.now <|constrain|>json<|message|>{}<|call|>", ("now", {}))
# ---- LFM2
lf = lambda c: "<|tool_call_start|>[%s]<|tool_call_end|>" % c
case("sglang PR 27614", "lfm", lf('Calendar.create_event(title="demo", metadata={"reminder": true})'), ("Calendar.create_event", {"title": "demo", "metadata": {"reminder": True}}))
case("sglang PR 27614, null", "lfm", lf('search(query="q", cursor=null, safe=false)'), ("search", {"query": "q", "cursor": None, "safe": False}))
case("sglang PR 27614, dotted beside flat", "lfm", lf('now(), Calendar.create_event(title="x")'), ("now", {}), ("Calendar.create_event", {"title": "x"}))
case("vllm PR 48171, a bracket", "lfm", lf("bash(command='grep -F \"]\" log.txt')"), bash('grep -F "]" log.txt'))
case("vllm PR 48171, line breaks", "lfm", lf("bash(command='cat > f.py << EOF\nprint(1)\nEOF')"), bash("cat > f.py << EOF\nprint(1)\nEOF"))
case("vllm PR 48171, a backslash at the end", "lfm", lf("write(filePath='a', content='pattern \\\\')"), ("write", {"filePath": "a", "content": "pattern \\"}))
case("vllm PR 48171, a negative number", "lfm", lf("get_weather(longitude=-74.0046539)"), ("get_weather", {"longitude": -74.0046539}))
case("vllm PR 48171, a tuple", "lfm", lf("resize(size=(800, 600))"), ("resize", {"size": [800, 600]}))
case("vllm PR 48171, a keyword of Python", "lfm", lf("memory_get(from=1)"), ("memory_get", {"from": 1}))
case("vllm PR 48171, a blank", "lfm", "<|tool_call_start|> [now()]<|tool_call_end|>", ("now", {}))
case("mlx-swift-lm PR 91", "lfm", lf("get_weather(city='Lima')"), ("get_weather", {"city": "Lima"}))
case("little-coder#42", "lfm", "I read it." + lf("read(filePath='/home/user/foo.c')"), read("/home/user/foo.c"), content="I read it.")
case("lmstudio#1979", "lfm", lf('bash(command="ls desktop")'), bash("ls desktop"))
case("mlx-lm PR 1246", "lfm", lf('search(query="q", opts={"a": [1, {"b": "c"}]}, exclude=["x", "y"])'), ("search", {"query": "q", "opts": {"a": [1, {"b": "c"}]}, "exclude": ["x", "y"]}))
# ---- DeepSeek
ds = lambda *w: "<%s%s%s>" % (B, S.join(w), B)
v31 = lambda *c: ds("tool", "calls", "begin") + "".join(ds("tool", "call", "begin") + n + ds("tool", "sep") + a + ds("tool", "call", "end") for n, a in c) + ds("tool", "calls", "end")
case("vllm PR 23454", "deepseek", v31(("get_weather", '{"city": "Shanghai"}')), ("get_weather", {"city": "Shanghai"}))
case("sglang PR 9446, the thought is not closed", "deepseek", "I need the weather." + v31(("get_weather", '{"city": "Shanghai"}')), ("get_weather", {"city": "Shanghai"}), thinking=True, thought="I need the weather.")
case("vllm PR 23330, the older form", "deepseek", ds("tool", "calls", "begin") + ds("tool", "call", "begin") + "function" + ds("tool", "sep") + "get_weather\n```json\n{\"city\": \"SF\"}\n```" + ds("tool", "call", "end") + ds("tool", "calls", "end"), ("get_weather", {"city": "SF"}))
case("smg PR 897, two", "deepseek", v31(("now", "{}"), ("read", '{"filePath": "/a"}')), ("now", {}), read("/a"))
case("smg PR 897, nested", "deepseek", v31(("search", '{"query": "q", "opts": {"a": {"b": "}"}}}')), ("search", {"query": "q", "opts": {"a": {"b": "}"}}}))
case("smg PR 897, text before", "deepseek", "Let me see." + v31(("now", "{}")), ("now", {}), content="Let me see.")
inv = lambda n, *a: '<%sinvoke name="%s">\n' % (D, n) + "".join('<%sparameter name="%s" string="%s">%s</%sparameter>\n' % (D, k, s, v, D) for k, s, v in a) + "</%sinvoke>" % D
wrap = lambda t, w="function_calls": "<%s%s>\n%s\n</%s%s>" % (D, w, t, D, w)
case("smg PR 895", "dsml", wrap(inv("get_weather", ("city", "true", "Tokyo"), ("days", "false", "5"))), ("get_weather", {"city": "Tokyo", "days": 5}))
case("dynamo PR 4822", "dsml", wrap(inv("search", ("query", "true", "q"), ("exclude", "false", '["a"]'), ("safe", "false", "true"))), ("search", {"query": "q", "exclude": ["a"], "safe": True}))
case("dynamo PR 4822, two", "dsml", wrap(inv("get_weather", ("city", "true", "Lima")) + "\n" + inv("get_weather", ("city", "true", "Oslo"))), ("get_weather", {"city": "Lima"}), ("get_weather", {"city": "Oslo"}))
case("sglang#40236, the other block", "dsml", wrap(inv("now"), "tool_calls"), ("now", {}))
case("sglang#40236, no block", "dsml", inv("get_weather", ("city", "true", "Lima")), ("get_weather", {"city": "Lima"}))
case("sglang#40236, no block, text around", "dsml", "First.\n\n" + inv("get_weather", ("city", "true", "Lima")) + "\n\nThen.", ("get_weather", {"city": "Lima"}), content="First.Then.")
case("sglang#40236, the block is not closed", "dsml", "<%sfunction_calls>\n" % D + inv("now"), ("now", {}))
case("smg PR 895, JSON in the call", "dsml", wrap('<%sinvoke name="get_weather">\n{"city": "Tokyo"}\n</%sinvoke>' % (D, D)), ("get_weather", {"city": "Tokyo"}))
case("vmlx#165", "dsml", "Reading.\n\n" + wrap(inv("read", ("filePath", "true", "/a b.md"))), read("/a b.md"), content="Reading.")
# ---- Llama, Granite, Seed
case("Rapid-MLX#700", "llama", '{"name": "search", "parameters": {"query": "你好"}}', ("search", {"query": "你好"}))
case("Rapid-MLX PR 703, python_tag", "llama", '<|python_tag|>{"name": "search", "parameters": {"query": "x"}}', ("search", {"query": "x"}))
case("Rapid-MLX PR 703, arguments", "llama", '{"name": "search", "arguments": {"query": "x"}}', ("search", {"query": "x"}))
case("Rapid-MLX PR 703, talk", "llama", 'Here is a user: {"name": "Alice"}', content='Here is a user: {"name": "Alice"}')
case("llama-models#266", "llama", '<|python_tag|>{ "type": "function", "name": "get_weather", "parameters": {"city": "Lima"} }', ("get_weather", {"city": "Lima"}))
case("llama-models#266, without the tag", "llama", '{"type": "function", "name": "get_weather", "parameters": {"city": "Lima"}}', ("get_weather", {"city": "Lima"}))
case("ollama#13519", "llama", '```json\n{"name": "search", "parameters": {"query": "install"}}\n```', ("search", {"query": "install"}))
case("vllm#16214", "llama", '<|python_start|>{"name": "search", "parameters": {"query": "news"}}<|python_end|>', ("search", {"query": "news"}))
case("ollama#7824", "llama", '[get_weather(city="Lima"), now()]', ("get_weather", {"city": "Lima"}), ("now", {}))
case("dynamo PR 2457", "granite", '<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "read", "arguments": {"filePath": "/a"}}]', ("now", {}), read("/a"))
case("lmstudio#797, Seed", "seed", "<seed:think>No dependencies.</seed:think>\n<seed:tool_call>\n<function=bash>\n<parameter=command>for i in 1 2; do\n  echo $i\ndone</parameter>\n</function>\n</seed:tool_call>", bash("for i in 1 2; do\n  echo $i\ndone"), thought="No dependencies.")

tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {k: {"type": t} for k, t in p.items()}}}}
         for n, p in TOOLS.items()]
json.dump({"tools": tools, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
print()
