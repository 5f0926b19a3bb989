"""`weft agents`: what it prints is what each client's own reader takes, and --write loses nothing.

    test_agents.py WEFT
"""
import ctypes.util
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

weft = os.path.abspath(sys.argv[1])
if not ctypes.util.find_library("curl"):
    print("skipped: libcurl missing")
    sys.exit(77)
ODD = 'org/mo"del\'s \\ name'
MODELS = [{"id": "first", "max_model_len": 4096}, {"id": ODD, "max_model_len": 65536}, {"id": "bare"}]
keys = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        keys.append(self.headers.get("Authorization"))
        body = json.dumps({"object": "list", "data": MODELS}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
URL = "http://127.0.0.1:%d" % server.server_port
home = tempfile.mkdtemp()
env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_") and "proxy" not in k.lower()}
env["HOME"] = home


def run(*args, code=0, **more):
    p = subprocess.run([weft, "agents", *args], capture_output=True, text=True, env={**env, **more}, stdin=subprocess.DEVNULL)
    assert p.returncode == code, f"{args}: exit {p.returncode}, not {code}\n{p.stdout}\n{p.stderr}"
    return p.stderr if code else p.stdout


def yaml(text):
    """The scalars of a file as simple as these: its strings in double quotes are JSON's."""
    pairs = [line.lstrip(" -").split(": ", 1) for line in text.splitlines() if ": " in line]
    return {k: json.loads(v) if v[0] == '"' else v for k, v in pairs}


def look(name, *args, **more):
    """The address, model, key and limits that the client would read."""
    text = run(name, "--url", URL, *args, **more)
    if name == "claude":
        e = json.loads(text)["env"]
        assert e["ANTHROPIC_SMALL_FAST_MODEL"] == e["ANTHROPIC_MODEL"]
        return e["ANTHROPIC_BASE_URL"] + "/v1", e["ANTHROPIC_MODEL"], e["ANTHROPIC_AUTH_TOKEN"], None
    if name == "codex":
        t = tomllib.loads(text)
        p = t["model_providers"][t["model_provider"]]
        assert p["wire_api"] == "responses" and p.get("env_key") in ("WEFT_API_KEY", None)
        return p["base_url"], t["model"], "a key" if "env_key" in p else "none", t["model_context_window"]
    if name in ("opencode", "kilo"):
        t = json.loads(text)
        provider, model = t["model"].split("/", 1)
        p = t["provider"][provider]
        limit = p["models"][model]["limit"]
        assert limit["output"] == limit["context"] // 4
        return p["options"]["baseURL"], model, p["options"]["apiKey"], limit["context"]
    if name == "qwen":
        t = json.loads(text)
        (m,) = t["modelProviders"][t["security"]["auth"]["selectedType"]]
        assert m["id"] == m["name"] == t["model"]["name"]
        limit = m["generationConfig"]
        assert limit["samplingParams"]["max_tokens"] == limit["contextWindowSize"] // 4
        return m["baseUrl"], m["id"], t["env"][m["envKey"]], limit["contextWindowSize"]
    if name in ("pi", "openclaw"):
        t = json.loads(text)
        (provider, p), = (t["providers"] if name == "pi" else t["models"]["providers"]).items()
        (m,) = p["models"]
        assert p["api"] == "openai-completions" and m["maxTokens"] == m["contextWindow"] // 4
        if name == "openclaw":
            assert t["agents"]["defaults"]["model"]["primary"] == provider + "/" + m["id"]
        return p["baseUrl"], m["id"], p["apiKey"], m["contextWindow"]
    if name == "crush":
        add, model, *slots = [shlex.split(line) for line in text.splitlines()]
        flags, limits = (dict(zip(words[3::2], words[4::2])) for words in (add, model))
        assert add[:3] == ["provider", "add", "weft"] and flags["--type"] == "openai-compat"
        assert model[:2] == ["model", "add"] and slots == [["model", slot, model[2]] for slot in ("large", "small")]
        assert int(limits["--default-max-tokens"]) == int(limits["--context-window"]) // 4
        assert model[2] == "weft/" + limits["--name"]
        # What Crush's own `provider add` and `model add` take; it refuses any other flag.
        assert flags.keys() == {"--name", "--type", "--base-url", "--api-key"}, flags
        assert limits.keys() == {"--name", "--context-window", "--default-max-tokens"}, limits
        assert "$" not in re.sub(r"\\[$`\\]", "", flags["--api-key"]), "Crush would look for a variable"
        key = re.sub(r"\\([$`\\])", r"\1", flags["--api-key"])
        return flags["--base-url"], limits["--name"], key, int(limits["--context-window"])
    if name == "gemini":
        line, rest = text.split("\n", 1)
        e = dict(word.split("=", 1) for word in shlex.split(line)[4:])
        t = json.loads(rest)
        assert t["security"]["auth"]["selectedType"] == "gemini-api-key"
        return e["GOOGLE_GEMINI_BASE_URL"] + "/v1", t["model"]["name"], e["GEMINI_API_KEY"], None
    if name == "continue":
        y = yaml(text)
        return y["apiBase"], y["model"], y["apiKey"], None
    if name == "aider":
        y = yaml(text)
        assert y["model"].startswith("openai/")
        return y["openai-api-base"], y["model"][7:], y["openai-api-key"], None
    words = shlex.split(text)
    return words[words.index("-b") + 1], words[words.index("-m") + 1], words[words.index("-k") + 1], None


agents = dict(line.split(None, 1) for line in run().splitlines())
assert list(agents) == ["claude", "codex", "opencode", "kilo", "continue", "qwen", "pi", "openclaw", "gemini", "crush", "aider", "cline"], agents
for name in agents:
    for args, more, model, context in (([], {}, "first", 4096), ([ODD], {}, ODD, 65536), (["bare", "--api-key", 'k"$1`\\'], {}, "bare", 32768),
                                       ([], {"WEFT_API_KEY": "k2"}, "first", 4096)):
        key = "k2" if more else args[2] if len(args) > 1 else None
        del keys[:]
        url, got, told, limit = look(name, *args, **more)
        assert (url, got) == (URL + "/v1", model), (name, url, got)
        if name == "codex" and key:
            told = key if told == "a key" else told
        assert told == (key or "none") and limit in (context, None), (name, told, limit)
        assert keys == ["Bearer " + key if key else None]
assert look("aider", "--url", URL + "/v1/")[0] == URL + "/v1"

# What is wrong is named, and nothing is written.
assert "did you mean 'codex'?" in run("codx", code=2)
assert "serves no model of the name 'zork'; its first is 'first'" in run("codex", "zork", "--url", URL, code=2)
assert "an address of http" in run("codex", "--url", "unix:/x", code=2)
refused = run("codex", "--url", "http://127.0.0.1:1", code=1)
assert "127.0.0.1:1" in refused and "is it running? `weft serve` starts one" in refused, refused
assert "has no file of settings" in run("cline", "--url", URL, "--write", code=2)
assert "HOME" in run("codex", "--url", URL, "--write", code=2, HOME="")
assert os.listdir(home) == []

# Written where the client looks; what was there stays beside it, and is written over by nothing.
for name, file in agents.items():
    if file.startswith("("):
        continue
    path = os.path.join(home, file.removeprefix("~/"))
    assert run(name, "--url", URL, "--write") == f"wrote {path}\n"
    first = open(path).read()
    assert first == run(name, "--url", URL)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert run(name, "--url", URL, "--write") == f"{path} has these settings already\n"
    out = run(name, ODD, "--url", URL, "--write")
    assert f"what was there is in {path}.bak" in out, out
    second = open(path).read()
    assert open(path + ".bak").read() == first and second == run(name, ODD, "--url", URL)
    assert "are both there: nothing was written" in run(name, "bare", "--url", URL, "--write", code=2)
    assert open(path).read() == second and open(path + ".bak").read() == first
server.shutdown()
