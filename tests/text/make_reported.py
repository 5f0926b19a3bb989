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
    "inspect": {"code": "string", "options": "object", "items": "array", "count": "integer", "active": "boolean", "empty": "null"},
    "connect": {"connections": "object"}, "google:mcp:create-pdf-file": {"filename": "string", "content": "string"},
}
SAYS = {"qwen": "<tool_call> <function=", "hermes": "<tool_call>", "glm": "<arg_key>", "minimax": "<minimax:tool_call>",
        "kimi": "<|tool_call_begin|>", "mistral": "[ARGS]", "mistral list": "[TOOL_CALLS]", "gemma": "<|tool_call>",
        "harmony": "<|channel|>commentary", "lfm": "<|tool_call_start|>", "dsml": D + "function_calls>", "dsml 4": D + "tool_calls>", "deepseek": "tool%scall%sbegin" % (S, S),
        "llama": "Environment: ipython", "granite": "<|tool_call|>", "cohere": "<|START_ACTION|>",
        "apertus": "<|tools_prefix|>", "seed": "<seed:tool_call>"}
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
case("mlx-lm PR 1337", "dsml 4", wrap(inv("get_weather", ("city", "true", "Paris"), ("days", "false", "3")) + "\n" + inv("now"), "tool_calls"), ("get_weather", {"city": "Paris", "days": 3}), ("now", {}))
case("sglang#40236, the older block", "dsml 4", wrap(inv("now")), ("now", {}))
case("sglang#40236, the block is closed alone", "dsml 4", inv("get_weather", ("city", "true", "Lima")) + "\n</%stool_calls>" % D, ("get_weather", {"city": "Lima"}))
case("colibri PR 948, thoughts before", "dsml 4", "Rain?</think>\n\n" + wrap(inv("get_weather", ("city", "true", "Lima")), "tool_calls"), ("get_weather", {"city": "Lima"}), thinking=True, thought="Rain?")
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

# ---- more of Qwen3-Coder and 3.5 to 3.6
case("mlx-lm PR 1330, a date for an integer", "qwen", q("memory_get", ("from", "2026-01-15")), ("memory_get", {"from": "2026-01-15"}))
case("mlx-lm PR 1330, words for a number", "qwen", q("get_weather", ("longitude", "far west")), ("get_weather", {"longitude": "far west"}))
case("mlx-lm PR 1310, no object", "qwen", q("search", ("query", "q"), ("opts", "none of them")), ("search", {"query": "q", "opts": "none of them"}))
case("mlx-lm PR 1310, no array", "qwen", q("search", ("query", "q"), ("exclude", "red, blue")), ("search", {"query": "q", "exclude": "red, blue"}))
case("maclocal-api#38, a number on one line", "qwen", "<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>\n<parameter=timeout>30</parameter>\n</function>\n</tool_call>", bash("ls", timeout=30))
case("maclocal-api#38, a boolean", "qwen", q("search", ("query", "q"), ("safe", "false")), ("search", {"query": "q", "safe": False}))
for v in ("true", "4", "[60,30]", '{"type": "bar"}', "null", "1e5", "02134"):
    case("smg PR 1841 and mlxcel#1336, a string that looks like %s" % v, "qwen", q("search", ("query", v)), ("search", {"query": v}))
case("llamadart#530", "qwen", q("inspect", ("code", "123"), ("options", "{}"), ("items", "[]"), ("count", "7"), ("active", "true"), ("empty", "null")), ("inspect", {"code": "123", "options": {}, "items": [], "count": 7, "active": True, "empty": None}))
case("renderers PR 52, True", "qwen", q("search", ("query", "q"), ("safe", "True")), ("search", {"query": "q", "safe": True}))
case("renderers PR 52, a null that may be", "qwen", q("search", ("query", "q"), ("cursor", "null")), ("search", {"query": "q", "cursor": None}))
case("renderers PR 52, the function is not closed", "qwen", "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</tool_call>", bash("ls"))
case("renderers PR 52, parameter and function are not closed", "qwen", "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</function>\n</tool_call>", bash("ls"))
case("llama.cpp#24807, closed twice", "qwen", "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</parameter>\n</function>\n</tool_call>", bash("ls"))
case("llama.cpp#24807, closed twice before another", "qwen", "<tool_call>\n<function=read>\n<parameter=filePath>\n/a\n</parameter>\n</parameter>\n<parameter=limit>\n5\n</parameter>\n</function>\n</tool_call>", read("/a", limit=5))
case("llama.cpp#24807, a required parameter is missing", "qwen", q("write", ("filePath", "/w/context.clj")), ("write", {"filePath": "/w/context.clj"}))
case("llama.cpp#27363, another order", "qwen", q("edit", ("newString", "b"), ("filePath", "a.py"), ("oldString", "a")), ("edit", {"newString": "b", "filePath": "a.py", "oldString": "a"}))
case("atlas PR 73, a number", "qwen", q("get_weather", ("city", "Lima"), ("days", "10"), ("longitude", "3.14")), ("get_weather", {"city": "Lima", "days": 10, "longitude": 3.14}))
case("llama.cpp#17932, a call in the thought's midst", "qwen", "Let me see.\n" + q("now") + "\n", ("now", {}), content="Let me see.")
# ---- more of Hermes
case("ollama#17274, no such tool: the client may say so", "hermes", '<tool_call>\n{"name": "Apply tags", "arguments": {"tags": ["a"]}}\n</tool_call>', ("Apply tags", {"tags": ["a"]}))
case("vllm#19056", "hermes", h("search", '{"query": "具体有哪些提升", "exclude": [{"h2": "一、背景", "guideline": "阐述目标"}, {"h2": "二、技术", "guideline": "分析"}]}'), ("search", {"query": "具体有哪些提升", "exclude": [{"h2": "一、背景", "guideline": "阐述目标"}, {"h2": "二、技术", "guideline": "分析"}]}))
case("vllm PR 21360", "hermes", h("search", '{"exclude": [{"value": 1}, {"value": 2}]}'), ("search", {"exclude": [{"value": 1}, {"value": 2}]}))
case("llama-cpp-python#1784", "hermes", h("get_weather", '{"city": "San Francisco, CA, USA"}') + "\n" + h("search", '{"query": "San Francisco, CA, USA", "cursor": "2024-10-01"}'), ("get_weather", {"city": "San Francisco, CA, USA"}), ("search", {"query": "San Francisco, CA, USA", "cursor": "2024-10-01"}))
case("vllm PR 43934, Granite 4", "hermes", '<tool_call>{"name": "now", "arguments": {}}</tool_call><tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>', ("now", {}), bash("ls"))
# ---- more of GLM
case("vllm PR 54971, the key is closed twice", "glm", "<tool_call>read<arg_key>filePath</arg_key></arg_key><arg_value>/tmp/x</arg_value></tool_call>", read("/tmp/x"))
case("vllm PR 54971, the key is opened twice", "glm", "<tool_call>read<arg_key><arg_key>filePath</arg_key><arg_value>/tmp/x</arg_value></tool_call>", read("/tmp/x"))
case("fw-ai python-sdk#119", "glm", "<tool_call>now</arg_value></tool_call>", ("now", {}))
case("fw-ai python-sdk#119, and another call", "glm", "<tool_call>now</arg_value></tool_call>\n" + g("bash", ("command", "ls")), ("now", {}), bash("ls"))
case("rtp-llm PR 525", "glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>杭州</arg_value>\n</tool_call>", ("get_weather", {"city": "杭州"}))
case("lmstudio#1528", "glm", g("read", ("filePath", "1.jpg")) + "\n" + g("read", ("filePath", "2.jpg")), read("1.jpg"), read("2.jpg"))
case("inferencer-feedback#101", "glm", g("edit", ("filePath", "a"), ("oldString", "b"), ("newString", "c")), ("edit", {"filePath": "a", "oldString": "b", "newString": "c"}))
for v in ("true", "4", "[60,30]", '{"type": "bar"}'):
    case("smg PR 1841, a string that looks like %s" % v, "glm", g("search", ("query", v)), ("search", {"query": v}))
# ---- more of MiniMax
case("frontend-crates PR 245", "minimax", m(("get_weather", [("city", "Montréal </minimax:tool_call> café")])), ("get_weather", {"city": "Montréal </minimax:tool_call> café"}))
for v in ("02134", "1e5", "true", "yes"):
    case("mlxcel#1336, a string that looks like %s" % v, "minimax", m(("search", [("query", v)])), ("search", {"query": v}))
case("frontend-crates PR 83, the block is not closed", "minimax", '<minimax:tool_call>\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n', bash("ls"), ("now", {}))
# ---- more of Kimi
case("exo#2281", "kimi", ks(("functions_get_weather_1", '{"city": "Lima"}')), ("get_weather", {"city": "Lima"}))
case("exo PR 2282, a name with underscores", "kimi", ks(("functions_grep_tool_3", '{"pattern": "x"}')), ("grep_tool", {"pattern": "x"}))
case("exo PR 2282, both forms", "kimi", ks(("functions.read:0", '{"filePath": "/a"}'), ("functions_read_1", '{"filePath": "/b"}')), read("/a"), read("/b"))
case("llama.cpp#24658", "kimi", k(("functions_bash_2", '{"command": "gh pr view 2"}'), ("functions_bash_3", '{"command": "gh pr checks 2"}'), ("functions_bash_4", '{"command": "git diff"}')) + "<|tool_calls_section_end|>", bash("gh pr view 2"), bash("gh pr checks 2"), bash("git diff"))
case("sglang PR 21377, neither point nor colon", "kimi", ks(("functionsbash5", '{"command": "ls -la ~/.config 2>/dev/null || echo \\"none\\""}'), ("functionsbash6", '{"command": "ls"}')), bash('ls -la ~/.config 2>/dev/null || echo "none"'), bash("ls"))
case("sglang PR 21377, no colon", "kimi", ks(("functions.bash5", '{"command": "ls"}')), bash("ls"))
case("exo PR 1757, another mark", "kimi", ks(("functions.bash!166", '{"command": "ls"}')), bash("ls"))
case("vllm PR 44137, a mark in an argument", "kimi", ks(("functions.write:0", '{"filePath": "a", "content": "<|tool_call_begin|>"}')), ("write", {"filePath": "a", "content": "<|tool_call_begin|>"}))
case("unsloth PR 5624, no number", "kimi", ks(("functions.search", '{"query": "x"}')), ("search", {"query": "x"}))
case("unsloth PR 5624, no number and no end", "kimi", '<|tool_call_begin|>functions.search<|tool_call_argument_begin|>{"query": "x"}', ("search", {"query": "x"}))
# ---- more of Mistral
case("vllm#30651", "mistral", '[TOOL_CALLS]write{"filePath": "/w/blabla.txt", "content": "This is a test file."}', ("write", {"filePath": "/w/blabla.txt", "content": "This is a test file."}))
case("vllm PR 30724, a brace before", "mistral", 'As {this} says.[TOOL_CALLS]now[ARGS]{}', ("now", {}), content="As {this} says.")
case("mlx-lm#1307", "mistral", '[TOOL_CALLS]bash[ARGS]{"command": "ls -la", "timeout": 5}', bash("ls -la", timeout=5))
case("vllm PR 30724, a brace before a list", "mistral list", 'As {this} says.[TOOL_CALLS][{"name": "now", "arguments": {}}]', ("now", {}), content="As {this} says.")
case("vllm#20028, two in a list", "mistral list", '[TOOL_CALLS][{"name": "read", "arguments": {"filePath": "/a"}}, {"name": "read", "arguments": {"filePath": "/b"}}]', read("/a"), read("/b"))
# ---- more of Gemma 4
case("vllm#53642", "gemma", "<|tool_call>call:bash(command:%sls -a%s)<tool_call|>" % (G, G), bash("ls -a"))
case("vllm#53642, a right one behind", "gemma", "<|tool_call>call:bash(command:%sls -a%s)<tool_call|>" % (G, G) + t("now", ""), bash("ls -a"), ("now", {}))
case("omlx PR 1886", "gemma", "<|tool_call>call:bash(command=%sls%s, timeout=5)<tool_call|>" % (G, G), bash("ls", timeout=5))
case("vllm#53431", "gemma", "<|tool_call>:bash{command:%sls%s}<tool_call|>" % (G, G), bash("ls"))
case("vllm PR 54778, a dash", "gemma", "<|tool_call>-bash{command:%sls%s}<tool_call|>" % (G, G), bash("ls"))
case("vllm PR 54778, a bare name", "gemma", "<|tool_call>bash{command:%sls%s}<tool_call|>" % (G, G), bash("ls"))
case("mlx-vlm PR 1473", "gemma", "<|tool_call>Calendar.create_event{title:%sx%s}<tool_call|>" % (G, G), ("Calendar.create_event", {"title": "x"}))
case("mlx-lm#1126, a brace is opened", "gemma", t("write", "content:%sif (x) { console.log(y)%s" % (G, G)), ("write", {"content": "if (x) { console.log(y)"}))
case("mlx-lm#1126, a brace is closed", "gemma", t("write", "content:%stest } only%s" % (G, G)), ("write", {"content": "test } only"}))
case("sglang PR 39240", "gemma", t("search", "query:weather in Tokyo%s" % G), ("search", {"query": "weather in Tokyo"}))
case("sglang PR 39240, a comma", "gemma", t("search", "query:Paris, France%s,max_results:5" % G), ("search", {"query": "Paris, France", "max_results": 5}))
case("ollama#15315, backticks", "gemma", t("edit", "filePath:%sa.css%s,newString:`.coin {\n  color: 'red';\n}`" % (G, G)), ("edit", {"filePath": "a.css", "newString": ".coin {\n  color: 'red';\n}"}))
case("vllm PR 54257, nested", "gemma", t("search", "query:%sq%s,opts:{mode:{x:%sy%s}}" % (G, G, G, G)), ("search", {"query": "q", "opts": {"mode": {"x": "y"}}}))
# ---- more of Harmony
case("vllm-mlx PR 562", "harmony", A + "We search.<|end|><|start|>assistant<|channel|>analysis to=functions.search code<|message|>\n{\"query\":\"Display\"}<|call|>", ("search", {"query": "Display"}), thought="We search.")
case("llama.cpp PR 15181", "harmony", A + "Go.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{ \"city\": \"Lima\" }<|call|>", ("get_weather", {"city": "Lima"}), thought="Go.")
case("lmstudio#942", "harmony", "<|start|>assistant<|channel|>commentary to=functions.search<|constrain|>json<|message|>{\"opts\":{\"sd\":{\"main\":{\"cpu\":\"100m\"}}}}<|call|>", ("search", {"opts": {"sd": {"main": {"cpu": "100m"}}}}))
case("mlxcel PR 658, pretty, not ended", "harmony", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\n  \"city\": \"Lima\",\n  \"days\": 2\n}", ("get_weather", {"city": "Lima", "days": 2}))
case("mlxcel PR 658, one after the other", "harmony", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.read <|constrain|>json<|message|>{\"filePath\":\"/a\"}<|call|>", ("now", {}), read("/a"))
case("dynamo PR 2999", "harmony", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"San Francisco\"}", ("get_weather", {"city": "San Francisco"}))
# ---- more of LFM2
case("llama.cpp#23838", "lfm", lf("search(query='current temperature in Mexico City', max_results=5)"), ("search", {"query": "current temperature in Mexico City", "max_results": 5}))
case("llama.cpp PR 24071", "lfm", "The list is items = [1, 2] and [x].", content="The list is items = [1, 2] and [x].")
case("browser-ai PR 212, a comma", "lfm", lf('search(query="Doe, Jane")'), ("search", {"query": "Doe, Jane"}))
case("browser-ai PR 212, two", "lfm", lf('search(query="a"), get_weather(city="b")'), ("search", {"query": "a"}), ("get_weather", {"city": "b"}))
case("mlx-lm#1785", "lfm", lf("write(filePath='/tmp/hello.py', content='# Hello, world!')"), ("write", {"filePath": "/tmp/hello.py", "content": "# Hello, world!"}))
case("mlx-swift-lm#493", "lfm", lf('search(opts={"x": "a)]b"})'), ("search", {"opts": {"x": "a)]b"}}))
case("mlx-swift-lm PR 152", "lfm", lf("bash(command=\"requests.get('url')\")"), bash("requests.get('url')"))
case("mlx-lm PR 1707", "lfm", lf('memory_get(from=1), search(query="x)")'), ("memory_get", {"from": 1}), ("search", {"query": "x)"}))
case("mlxcel PR 786, a comma in a list", "lfm", lf('search(exclude=["a,b", "c"])'), ("search", {"exclude": ["a,b", "c"]}))
case("mlxcel PR 786, blanks", "lfm", lf('search(query = "x", max_results = 3)'), ("search", {"query": "x", "max_results": 3}))
case("llama.cpp PR 24667", "lfm", lf("bash(command='print(1)\\nprint(2)')"), bash("print(1)\nprint(2)"))
case("tabbyAPI PR 464", "lfm", lf("web_fetch(url='/home/user1/workspace')").replace("web_fetch", "Glob").replace("url", "pattern"), ("Glob", {"pattern": "/home/user1/workspace"}))
# ---- more of DeepSeek
case("vllm PR 45877, the value ends with a mark's letters", "dsml", wrap(inv("bash", ("command", "true", "make 2>&1"))), bash("make 2>&1"))
case("sglang#35563", "dsml", wrap("\n".join([inv("now"), inv("list_mailboxes"), inv("get_weather", ("city", "true", "Lima"), ("days", "false", "-7"))])), ("now", {}), ("list_mailboxes", {}), ("get_weather", {"city": "Lima", "days": -7}))
case("sglang PR 19662", "dsml", wrap(inv("search", ("exclude", "false", '[{"content": "查询数据", "status": "pending"}, {"content": "对比", "status": "pending"}]'))), ("search", {"exclude": [{"content": "查询数据", "status": "pending"}, {"content": "对比", "status": "pending"}]}))
case("sglang PR 39632, nested arrays", "dsml", wrap(inv("search", ("data_refs", "false", "[[1, [2, 3]], [[], {}]]"))), ("search", {"data_refs": [[1, [2, 3]], [[], {}]]}))
case("vllm#42878, lines", "dsml", wrap(inv("write", ("filePath", "true", "a"), ("content", "true", "one\n\n  two </x>\n"))), ("write", {"filePath": "a", "content": "one\n\n  two </x>\n"}))
# ---- more of Llama and Seed
case("dynamo PR 9536", "llama", '<|python_tag|>{"name":"get_weather","arguments":{"city":"NYC"}};{"name":"search","arguments":{"query":"EST"}}', ("get_weather", {"city": "NYC"}), ("search", {"query": "EST"}))
case("unsloth PR 5620, a blank behind the semicolon", "llama", '<|python_tag|>{"name": "now", "parameters": {}}; {"name": "read", "parameters": {"filePath": "/a"}}', ("now", {}), read("/a"))
case("vllm#30722", "llama", '[search(query="q", exclude=["a", "b (c)"])]', ("search", {"query": "q", "exclude": ["a", "b (c)"]}))
case("vllm PR 32505, deep", "llama", '[search(opts={"a": [{"b": 1}], "c": {"d": [2]}})]', ("search", {"opts": {"a": [{"b": 1}], "c": {"d": [2]}}}))
case("vllm#26573", "seed", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Barcelona, Spain</parameter>\n<parameter=days>2</parameter>\n</function>\n</seed:tool_call>", ("get_weather", {"city": "Barcelona, Spain", "days": 2}))
case("vllm PR 32430, a budget told in the thought", "seed", "<seed:think>Hm.<seed:cot_budget_reflect>I used 5 tokens.</seed:cot_budget_reflect>Go.</seed:think>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>", ("now", {}), thought="Hm.<seed:cot_budget_reflect>I used 5 tokens.</seed:cot_budget_reflect>Go.")
# ---- what degraded Nemotron writes
n3 = "<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>"
case("Rapid-MLX PR 1031, the call is not closed", "qwen", "<tool_call>\n" + n3, bash("ls"))
case("Rapid-MLX PR 1031, no wrapper", "qwen", n3, bash("ls"))
case("Rapid-MLX PR 1031, on one line", "qwen", "<tool_call><function=memory_get><parameter=from>1</parameter></function></tool_call>", ("memory_get", {"from": 1}))
w3 = "<function=get_weather><parameter=city>Paris</parameter></function>"
weather = ("get_weather", {"city": "Paris"})
case("Rapid-MLX PR 1031, JSON in the function", "qwen", '<tool_call><function=search>{"query": "2*3"}</function></tool_call>', ("search", {"query": "2*3"}))
case("Rapid-MLX PR 1031, JSON in the function, no wrapper", "qwen", '<function=search>{"query": "2*3"}</function>', ("search", {"query": "2*3"}))
case("Rapid-MLX PR 1031, JSON in the function, in lines", "qwen", '<tool_call>\n<function=search>\n{"query": "2*3"}\n</function>\n</tool_call>\n' + q("now"), ("search", {"query": "2*3"}), ("now", {}))
case("Rapid-MLX PR 1031, words before the wrapper's end", "qwen", "<tool_call>" + w3 + " some junk </tool_call>", weather, content="some junk")
case("Rapid-MLX PR 1031, words before the function", "qwen", "<tool_call>Let me check the weather." + w3 + "</tool_call>", weather, content="Let me check the weather.")
case("Rapid-MLX PR 1031, words around a bare call", "qwen", "Sure, I'll do that.\n" + w3 + "\nDone.", weather, content="Sure, I'll do that.Done.")
case("Rapid-MLX PR 1031, no function at all", "qwen", "<tool_call>garbled, no function here</tool_call>", content="<tool_call>garbled, no function here</tool_call>")
case("Rapid-MLX PR 703, a function in a tag", "llama", '<function=get_weather>{"city": "Paris"}</function>', weather)
case("Rapid-MLX PR 703, a function in a tag behind words", "llama", 'I look. <function=get_weather>{"city": "Paris"}</function>', weather, content="I look.")
case("LocalAI PR 3010, two functions in tags", "llama", '<function=get_weather>{"city": "Boston, MA", "unit": "celsius"}</function>\n<function=now>{}</function>', ("get_weather", {"city": "Boston, MA", "unit": "celsius"}), ("now", {}))
case("Rapid-MLX PR 703, a tag of no tool", "llama", 'Write <function=name>{"a": 1}</function> then.', content='Write <function=name>{"a": 1}</function> then.')
# ---- JSON that is nearly so.  The thread of mlxcel PR 783 is not to be had any more; what it was about is known.
py = "{'query': 'it\\'s \"x\"', 'safe': True, 'cursor': None, 'exclude': ['a, b', {'c': 1}]}"
meant = ("search", {"query": 'it\'s "x"', "safe": True, "cursor": None, "exclude": ["a, b", {"c": 1}]})
case("mlxcel PR 783, a dictionary of Python", "hermes", h("search", py), meant)
case("mlxcel PR 783, all of it", "hermes", "<tool_call>\n{'name': 'search', 'arguments': " + py + "}\n</tool_call>", meant)
case("mlxcel PR 783, Llama", "llama", '{"name": "search", "parameters": ' + py + "}", meant)
case("mlxcel PR 783, Llama, all of it", "llama", "{'name': 'search', 'parameters': " + py + "}", meant)
case("mlxcel PR 783, Mistral", "mistral", "[TOOL_CALLS]search[ARGS]" + py, meant)
case("mlxcel PR 783, Mistral's list", "mistral list", "[TOOL_CALLS][{'name': 'search', 'arguments': " + py + "}]", meant)
case("mlxcel PR 783, Kimi", "kimi", ks(("functions.search:0", py)), meant)
case("mlxcel PR 783, Harmony", "harmony", "<|channel|>commentary to=functions.search <|constrain|>json<|message|>" + py + "<|call|>", meant)
case("mlxcel PR 783, GLM", "glm", "<tool_call>search\n" + py + "</tool_call>", meant)
case("mlxcel PR 783, Granite", "granite", "<|tool_call|>[{'name': 'search', 'arguments': " + py + "}]", meant)
case("mlxcel PR 783, Command", "cohere", "<|START_ACTION|>[{'tool_name': 'search', 'parameters': " + py + "}]<|END_ACTION|>", meant)
case("mlxcel PR 783, in a string", "llama", '{"name": "search", "parameters": "{\'query\': \'x\'}"}', ("search", {"query": "x"}))
case("vllm-mlx#63, a list of Python", "qwen", q("search", ("query", "q"), ("exclude", "['python', 'tutorial']")), ("search", {"query": "q", "exclude": ["python", "tutorial"]}))
case("vllm-mlx#63, a dictionary of Python", "qwen", q("search", ("opts", "{'theme': 'dark', 'size': 14, 'on': True}")), ("search", {"opts": {"theme": "dark", "size": 14, "on": True}}))
case("mlx-lm PR 1004, a string stays one", "qwen", q("search", ("query", "{'key': 'value'}")), ("search", {"query": "{'key': 'value'}"}))
case("mlx-lm PR 1004, GLM", "glm", g("search", ("opts", "{'key': None}")), ("search", {"opts": {"key": None}}))
case("mlx-lm PR 1071, commas before ends", "hermes", h("search", '{"query": "a,}", "exclude": [1, 2,],\n}'), ("search", {"query": "a,}", "exclude": [1, 2]}))
case("mlx-lm PR 1071, a comma before the last end", "hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Lima"},}</tool_call>', ("get_weather", {"city": "Lima"}))
case("mlx-lm PR 1071, a member behind the arguments", "hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Lima"}, "id": "call_}1"}</tool_call>', ("get_weather", {"city": "Lima"}))
case("mlx-lm PR 899, a regular expression", "hermes", h("search", '{"query": "\\d+\\.\\w*", "safe": True}'), ("search", {"query": "\\d+\\.\\w*", "safe": True}))
case("mlx-lm PR 899, a path", "mistral", '[TOOL_CALLS]read[ARGS]{"filePath": "C:\\Data\\.env"}', read("C:\\Data\\.env"))
case("mlx-lm PR 899, a line break in a string", "hermes", h("write", '{"filePath": "a", "content": "one\n\ttwo"}'), ("write", {"filePath": "a", "content": "one\n\ttwo"}))
case("agno#5106", "glm", "Let me see.\n<tool_call>bash <arg_key>command</arg_key> <arg_value>git status --porcelain</arg_value> </tool_call>", bash("git status --porcelain"), content="Let me see.")
# ---- Granite, Apertus, Command
case("ollama#11505", "granite", '<|tool_call|>[{"arguments": {"content": "| Month | Savings |\\n|---|---|\\n| May | $250 |"}, "name": "write"}]', ("write", {"content": "| Month | Savings |\n|---|---|\n| May | $250 |"}))
case("mlx-lm PR 1663", "apertus", '<|tools_prefix|>[{"get_weather": {"city": "London"}}]<|tools_suffix|>', ("get_weather", {"city": "London"}))
case("mlx-lm PR 1663, two", "apertus", '<|tools_prefix|>[{"get_weather": {"city": "London"}}, {"now": {}}]<|tools_suffix|>', ("get_weather", {"city": "London"}), ("now", {}))
case("mlx-lm PR 1663, a thought", "apertus", '<|inner_prefix|>I look.<|inner_suffix|><|tools_prefix|>[{"now": {}}]<|tools_suffix|>', ("now", {}), thought="I look.")
case("smg PR 315", "cohere", '<|START_RESPONSE|>Let me help.<|END_RESPONSE|>\n<|START_ACTION|>\n{"tool_name": "search", "parameters": {"query": "rust"}}\n<|END_ACTION|>', ("search", {"query": "rust"}), content="Let me help.")
case("smg#305, several", "cohere", '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "now", "parameters": {}}, {"tool_call_id": "1", "tool_name": "bash", "parameters": {"command": "ls"}}]<|END_ACTION|>', ("now", {}), bash("ls"))
case("lmstudio#2194", "cohere", '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "read", "parameters": {"filePath": "/a"}}\n]<|END_ACTION|>', read("/a"))
case("mlx-vlm PR 1298", "cohere", '<|START_THINKING|>I look it up.<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0", "tool_name": "search", "parameters": {"query": "x"}}]<|END_ACTION|>', ("search", {"query": "x"}), thought="I look it up.")
case("mlx-vlm PR 1298, marks of text", "cohere", "<|START_TEXT|>No tool is needed.<|END_TEXT|>", content="No tool is needed.")
# ---- Gemma 4 and Llama 4
case("omlx#581", "gemma", '<|tool_call>call:bash{command:"ls"}<tool_call|>', bash("ls"))
case("ollama#15315, quoted and closed by a mark", "gemma", t("grep_tool", "path:%s/data%s,pattern:':\\s*\\w+'%s" % (G, G, G)), ("grep_tool", {"path": "/data", "pattern": ":\\s*\\w+"}))
case("vllm#22917", "llama", '[now(), get_weather(city="Dublin, Ireland", unit="2025-04-14")]', ("now", {}), ("get_weather", {"city": "Dublin, Ireland", "unit": "2025-04-14"}))
# ---- several calls, or none of anything, in one piece of a stream
case("sglang#31915", "hermes", h("get_weather", '{"city": "Lima", "days": 1}') + "\n" + h("get_weather", '{"city": "Oslo", "days": 2}'), ("get_weather", {"city": "Lima", "days": 1}), ("get_weather", {"city": "Oslo", "days": 2}))
case("sglang#37634", "hermes", h("now", "{}") + "\n" + h("now", "{}"), ("now", {}), ("now", {}))
case("sglang#37634, GLM", "glm", g("now") + g("bash", ("command", "ls")) + g("now"), ("now", {}), bash("ls"), ("now", {}))
case("sglang#37634, three by semicolons", "llama", '<|python_tag|>{"name": "now", "parameters": {}};{"name": "now", "parameters": {}};{"name": "read", "parameters": {"filePath": "/a"}}', ("now", {}), ("now", {}), read("/a"))
case("sglang#35564, MiniMax", "minimax", m(("get_weather", []), sep=""), ("get_weather", {}))
case("sglang#35564, Mistral", "mistral list", '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]', ("now", {}), ("now", {}))
case("sglang#35564, Command", "cohere", '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "now", "parameters": {}}]<|END_ACTION|>', ("now", {}))
case("sglang#35564, GLM", "glm", g("memory_get", ("from", "123")), ("memory_get", {"from": 123}))
case("sglang PR 34898, words before", "mistral", 'Sure.\n[TOOL_CALLS]get_weather[ARGS]{"city":"SF"}', ("get_weather", {"city": "SF"}), content="Sure.")
case("sglang PR 34898, two", "mistral", '[TOOL_CALLS]get_weather[ARGS]{"city":"SF"}[TOOL_CALLS]get_weather[ARGS]{"city":"NY"}', ("get_weather", {"city": "SF"}), ("get_weather", {"city": "NY"}))
case("sglang PR 34898, words behind", "mistral", '[TOOL_CALLS]get_weather[ARGS]{"city":"SF"}\nThat is all.', ("get_weather", {"city": "SF"}), content="That is all.")
# ---- arguments as a string of JSON
case("mlx-swift-lm#169", "hermes", h("get_weather", '"{\\"city\\": \\"Paris\\"}"'), ("get_weather", {"city": "Paris"}))
case("mlx-swift-lm PR 252, of none", "hermes", h("now", '"{}"'), ("now", {}))
case("mlx-swift-lm PR 172, in a list", "granite", '<|tool_call|>[{"name": "get_weather", "arguments": "{\\"city\\": \\"Tokyo\\", \\"unit\\": \\"celsius\\"}"}]', ("get_weather", {"city": "Tokyo", "unit": "celsius"}))
# ---- DeepSeek V3 and R1
fenced = lambda n, a: ds("tool", "call", "begin") + "function" + ds("tool", "sep") + n + "\n```json\n" + a + "\n```" + ds("tool", "call", "end")
case("Rapid-MLX PR 795", "deepseek", ds("tool", "calls", "begin") + "\n" + fenced("get_weather", '{"city": "Tokyo"}') + "\n" + ds("tool", "calls", "end"), ("get_weather", {"city": "Tokyo"}))
case("tt-inference-server#3683", "deepseek", ds("tool", "calls", "begin") + fenced("get_weather", '{"city":"San Francisco"}') + "\n" + fenced("now", "{}") + ds("tool", "calls", "end"), ("get_weather", {"city": "San Francisco"}), ("now", {}))
case("dynamo PR 4253, lines in JSON", "deepseek", ds("tool", "calls", "begin") + fenced("search", '{\n  "query": "a",\n  "opts": {\n    "b": 1\n  }\n}') + ds("tool", "calls", "end"), ("search", {"query": "a", "opts": {"b": 1}}))
case("vllm#28219", "llama", '{"name": "get_weather", "parameters": {"city": "Lima", "days": 2}}', ("get_weather", {"city": "Lima", "days": 2}))
case("mlx-swift-lm PR 205, JSON that is no call", "hermes", 'The file says {"name": "Alice", "age": 5}.', content='The file says {"name": "Alice", "age": 5}.')

# ---- the end of a value inside of one
ENDS = ["</parameter>", "</function>", "</tool_call>", "<parameter=query>", "</arg_value>", "<arg_key>x</arg_key>", "</invoke>", "</seed:tool_call>",
        "</minimax:tool_call>", "</%sparameter>" % D, "<|tool_call_end|>", "\n</parameter>\n</function>\n</tool_call>",
        "</arg_value>\n</tool_call>", "</parameter>\n</invoke>\n</minimax:tool_call>", "]<|tool_call_end|>", "it's", "]", "}"]
dsml = lambda n, a: "<%sfunction_calls>\n<%sinvoke name=\"%s\">\n" % (D, D, n) + "".join(
    "<%sparameter name=\"%s\" string=\"%s\">%s</%sparameter>\n" % (D, k, str(isinstance(v, str)).lower(), v if isinstance(v, str) else js(v), D)
    for k, v in a.items()) + "</%sinvoke>\n</%sfunction_calls>" % (D, D)
sd = lambda n, a: "<seed:tool_call>\n" + "<function=%s>\n" % n + "".join(
    "<parameter=%s>%s</parameter>\n" % (k, v if isinstance(v, str) else js(v)) for k, v in a.items()) + "</function>\n</seed:tool_call>"
js = lambda v: json.dumps(v, ensure_ascii=False)
bare = lambda a: [(k, v if isinstance(v, str) else js(v)) for k, v in a.items()]
SPELLED = {"qwen": lambda n, a: q(n, *bare(a)), "glm": lambda n, a: g(n, *bare(a)), "minimax": lambda n, a: m((n, bare(a))), "seed": sd, "dsml": dsml,
           "lfm": lambda n, a: lf("%s(%s)" % (n, ", ".join("%s=%s" % (k, js(v)) for k, v in a.items()))),
           "hermes": lambda n, a: h(n, js(a))}
# Such a text alone is one that no reader could tell from the end of the value.
BARE = {"qwen": ENDS[:1] + ENDS[4:11], "glm": ENDS[:5] + ENDS[6:12], "minimax": ENDS[:1] + ENDS[4:6] + ENDS[7:8] + ENDS[9:11],
        "seed": ENDS[:1] + ENDS[4:7] + ENDS[8:11], "dsml": ENDS, "lfm": ENDS, "hermes": ENDS}
for dialect, spell in SPELLED.items():
    for end in ENDS:
        inside = "a %s b" % end
        case("the end inside of a list", dialect, spell("search", {"query": "q", "exclude": [inside, end], "safe": True}),
             ("search", {"query": "q", "exclude": [inside, end], "safe": True}))
        case("the end inside of an object", dialect, spell("search", {"opts": {"k": inside, "l": [end]}, "max_results": 5}),
             ("search", {"opts": {"k": inside, "l": [end]}, "max_results": 5}))
    for end in BARE[dialect]:
        case("the end inside of a text", dialect, spell("write", {"filePath": "/a", "content": "a %s b" % end}),
             ("write", {"filePath": "/a", "content": "a %s b" % end}))
        case("the end at the end of a text", dialect, spell("write", {"content": "a\n%s.\nb" % end, "filePath": "/a"}),
             ("write", {"content": "a\n%s.\nb" % end, "filePath": "/a"}))

tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {k: {"type": t} for k, t in p.items()}}}}
         for n, p in TOOLS.items()]
json.dump({"tools": tools, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
print()
