#!/usr/bin/python3
"""`weft run --url` against `weft serve`: what a server answers is what the model itself
would, in a pipe and in a terminal.

    test_remote.py WEFT
"""
import ctypes.util
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
from serverkit import PATIENCE, Server
import terminal
from terminal import Terminal

weft = os.path.abspath(sys.argv[1])
bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/weft-tiny/model.safetensors")
if not os.path.exists(bundled):
    print(f"skipped: {os.path.normpath(bundled)} missing")
    sys.exit(77)
if not ctypes.util.find_library("curl"):
    print("skipped: libcurl missing")
    sys.exit(77)
env = {k: v for k, v in os.environ.items() if k not in ("WEFT_MODEL", "WEFT_API_KEY") and "proxy" not in k.lower()}
env["TERM"] = "xterm"
PERU = "What is the capital of Peru?"


def run(*args, stdin="", code=0, **more):
    p = subprocess.run([weft, "run", *args], input=stdin, capture_output=True, text=True, env={**env, **more})
    assert p.returncode == code, f"{args}: exit {p.returncode}, not {code}\n{p.stdout}\n{p.stderr}"
    return p


def serve(*options):
    return Server([weft, "serve", "--port", "0", "--port-file", "{port_file}", *options], env=env)


def test_as_here():
    s = serve("--api-key", "sesame")
    url = f"http://127.0.0.1:{s.port}"
    key = {"WEFT_API_KEY": "sesame"}
    for ask in (["-p", PERU, "--temp", "0"], ["-p", PERU, "--temp", "1.3", "--seed", "5", "--top-k", "40", "-n", "12"],
                ["-p", PERU, "--temp", "0", "--think", "on", "--show-thinking", "-n", "60"],
                ["-p", PERU, "--temp", "0", "--system-prompt", "Be brief."]):
        here = run(*ask, "-n", "40") if "-n" not in ask else run(*ask)
        there = run(*ask, "--url", url, *([] if "-n" in ask else ["-n", "40"]), **key)
        assert there.stdout == here.stdout, (ask, there.stdout, here.stdout)
        assert re.search(r"\[prompt \d+ tokens, \d+ cached; answer \d+, first after", there.stderr), there.stderr
    assert run("--url", url + "/v1/", "--api-key", "sesame", "-n", "5", stdin=PERU).stdout
    assert "API key" in run("--url", url, "-p", "x", code=1).stderr
    assert '"nope" is not served' in run("--url", url, "-m", "nope", "-p", "x", code=1, **key).stderr
    s.close()
    p = run("--url", url, "-p", "x", code=1)
    assert url in p.stderr and p.stderr.count("\n") == 1, p.stderr
    assert "http://" in run("--url", "ftp://x", "-p", "x", code=1).stderr
    assert "object" in run("--url", url, "-p", "x", "--chat-template-args", "5", code=1).stderr


def test_unix_socket():
    with tempfile.TemporaryDirectory() as d:
        s = serve("--host", f"unix:{d}/sock")
        assert run("--url", f"unix:{d}/sock", "-p", PERU, "--temp", "0", "-n", "20").stdout == \
            run("-p", PERU, "--temp", "0", "-n", "20").stdout
        s.close()
        p = run("--url", f"unix:{d}/sock", "-p", "x", code=1)
        assert f"unix:{d}/sock, /v1/models: " in p.stderr and "localhost" not in p.stderr, p.stderr


PROMPT = terminal.PROMPT
STATS = r"\[prompt (\d+) tokens, (\d+) cached[^]]*\]"


def test_conversation():
    s = serve()
    t = Terminal([weft, "run", "--url", f"http://127.0.0.1:{s.port}", "--temp", "0", "-n", "20"], env)
    t.until("weft-tiny.*?Ctrl-D ends.*?" + PROMPT)
    t.type("What is the capital of France?\r")
    first = t.until(STATS)
    t.until(PROMPT)
    t.type("And of Peru?\r")
    second = t.until(STATS)
    assert int(second[1]) > int(first[1]) + 10, second[0]      # the first turn is part of it
    t.until(PROMPT)
    t.type("/new\r")
    t.until(PROMPT)
    t.type("What is the capital of France?\r")
    assert t.until(STATS)[1] == first[1]
    t.until(PROMPT)
    t.type("\x04")
    assert t.end() == 0
    t = Terminal([weft, "run", "--url", f"http://127.0.0.1:{s.port}", "--temp", "50", "--seed", "1"], env)
    t.until(PROMPT)
    t.type("Hello\r")
    t.until("Hello\r\n.{8}")
    t.type("\x03")                      # Ctrl-C stops the answer, and the server with it
    t.until("stopped|; cut at the limit|first after")
    t.until(PROMPT)
    s.until("nothing runs", requests_running=0, requests_waiting=0)
    t.type("\x04")
    assert t.end() == 0
    s.close()


def test_picture_typed():
    """Images of a conversation with a server: its answer is the one of here, also after /retry and in a loaded conversation."""
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    model, picture = os.path.join(tree, "models/weft-tiny-eyes"), os.path.join(tree, "tools/train/eval/shapes.png")
    if not os.path.exists(os.path.join(model, "model.safetensors")):
        return
    s = serve(model)
    with tempfile.TemporaryDirectory() as d:
        own, counts = {**env, "XDG_STATE_HOME": d}, []

        def asked(t, line):
            t.type(line + "\r")
            t.until("The colour of the circle is red")
            counts.append(t.until(STATS)[1])
            t.until(PROMPT)

        here = Terminal([weft, "run", model, "--temp", "0"], own)
        here.until(PROMPT)
        asked(here, f"{picture} What colour is the circle?")
        here.type("\x04")
        assert here.end() == 0
        for loaded in False, True:
            t = Terminal([weft, "run", "--url", f"http://127.0.0.1:{s.port}", "--temp", "0"], own)
            t.until(PROMPT)
            if loaded:
                t.type(f"/load {d}/saved\r")
                t.until("1 questions loaded")
                t.until(PROMPT)
            else:
                asked(t, f"{picture} What colour is the circle?")
            asked(t, "/retry")
            t.type(f"/save! {d}/saved\r")
            t.until("1 question saved")
            t.until(PROMPT)
            t.type("\x04")
            assert t.end() == 0
        assert len(set(counts)) == 1 and len(counts) == 4, counts
    s.close()


class Odd(BaseHTTPRequestHandler):
    """Other servers' manners."""
    MODELS = json.dumps({"data": [{"id": "odd"}, {"id": "second"}]}).encode()
    asked = None
    ways = {
        "crlf": b'data: {"choices":[{"delta":{"reasoning":"hm"}}]}\r\n\r\ndata:{"choices":[{"delta":{"content":"a\\u0007b"}}]}\r\n\r\n',
        "at-once": b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
                   b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":50}}\n\ndata: [DONE]\n\n',
        "error": b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"error":{"message":"broke"}}\n\n',
        "junk": b'event: x\ndata: {]\n\n: hello\n\ndata: [DONE]\n\ndata: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}',
        "long": b"data: " + b"x" * (2 << 20),
    }

    def do_GET(self):
        self.reply(200, self.MODELS)

    def do_POST(self):
        Odd.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        way = self.path.split("/")[1]
        if way == "refuse":
            self.reply(418, b'{"detail": "teapot"}')
        elif way == "endless":
            self.endless()
        elif way == "broken":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'data: {"choices":[{"delta":{"content":"part"}}]}\n\n')
            self.wfile.flush()
        else:
            self.reply(200, self.ways[way])

    def reply(self, code, body):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def endless(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:         # until the client leaves
                self.wfile.write(b'data: {"choices":[{"delta":{"content":"word "}}]}\n\n')
        except OSError:
            pass

    def log_message(self, *args):
        pass


def test_others():
    odd = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=odd.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{odd.server_port}/"
    ask = ["-p", "x", "--show-thinking"]
    p = run("--url", base + "crlf", *ask)
    assert p.stdout == "hm\n\na\x07b\n", p.stdout         # in a pipe, as it came
    assert "broke" in run("--url", base + "error", *ask, code=1).stderr
    assert run("--url", base + "junk", *ask).stdout == ""
    assert "more than" in run("--url", base + "long", *ask, code=1).stderr
    # A rate is of no time that is too short to measure.
    p = run("--url", base + "at-once", *ask)
    assert "answer 50, first after" in p.stderr, p.stderr
    rate = re.search(r"after [0-9.]+ s, ([0-9.]+)/s", p.stderr)
    assert not rate or float(rate[1]) <= 49 / 0.1, p.stderr
    # What a stream said before it broke is one line, what broke it another, in plain words.
    p = run("--url", base + "broken", *ask, code=1)
    assert p.stdout == "part\n" and "the connection was lost before the end of the answer" in p.stderr, p
    # A word that the server lists is a model, another the question about what is piped in.
    for word, model, text in (("odd", "odd", "x"), ("second", "second", "x"), ("Summarise", "odd", "Summarise\n\nx")):
        run("--url", base + "junk", word, stdin="x")
        assert (Odd.asked["model"], Odd.asked["messages"][0]["content"]) == (model, text), (word, Odd.asked)
    assert run("--url", base[7:] + "junk", *ask).stdout == ""        # without http://
    assert "418: teapot" in run("--url", base + "refuse", *ask, code=1).stderr
    with open("/dev/full", "w") as full:        # nobody can read more, so no more is asked for
        p = subprocess.run([weft, "run", "--url", base + "endless", *ask], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                           text=True, env=env, timeout=PATIENCE)
    assert p.returncode == 1 and p.stderr.endswith("weft: cannot write standard output\n"), p
    # Whether the model sees is not said: a path is text, and /image sends the image.  Other lists say it.
    picture = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/train/eval/shapes.png")
    models = Odd.MODELS
    with tempfile.TemporaryDirectory() as d:
        for also, line, note, kinds in (({}, f"see {picture} now", r"does odd see\?", None),
                                        ({}, f"/image {picture} now", r"\[image ", ["image", "now"]),
                                        ({"models": [{"capabilities": ["multimodal"]}]}, f"a {picture} b {picture}", r"\[image ",
                                         ["a", "image", "b", "image"]),
                                        ({"models": [{"capabilities": ["completion"]}]}, f"see {picture} now", "odd reads text only", None)):
            Odd.MODELS = json.dumps(json.loads(models) | also).encode()
            t = Terminal([weft, "run", "--url", base + "crlf"], {**env, "XDG_STATE_HOME": d})
            t.until(PROMPT)
            t.type(line + "\r")
            t.until(note)
            t.until(PROMPT)
            t.type("\x04")
            assert t.end() == 0
            content = Odd.asked["messages"][0]["content"]
            assert (content if kinds is None else [part.get("text", "image") for part in content]) == (line if kinds is None else kinds), content
    Odd.MODELS = models
    odd.shutdown()
    odd.server_close()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok", name)
