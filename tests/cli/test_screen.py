#!/usr/bin/python3
"""What a person sees of `weft run`: the screen of a real terminal emulator (tmux), with keys and pastes as it sends them.

    test_screen.py WEFT

Waits for the program to write, then looks at the screen; never for time to pass."""
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

import terminal

weft = os.path.abspath(sys.argv[1])
if not shutil.which("tmux"):
    print("skipped: no tmux")
    sys.exit(77)


class Screen:
    """A program in a terminal of 80 by 24, with a tmux of its own."""

    def __init__(self, folder, argv, env):
        own = tempfile.mkdtemp(dir=folder)     # a server that ends may still have its socket
        self.socket, fifo, self.env = os.path.join(own, "tmux"), os.path.join(own, "written"), env
        os.mkfifo(fifo)
        self.written = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)     # to see that something was written
        # The program begins once its writing is seen.
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "read begin; exec " + shlex.join(argv))
        self.tmux("pipe-pane", "exec cat > " + shlex.quote(fifo))
        self.keys("Enter")

    def tmux(self, *args):
        p = subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *args], capture_output=True, text=True, env=self.env)
        assert p.returncode == 0, (args, p.stderr)
        return p.stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def text(self, text):
        self.tmux("send-keys", "-l", text)

    def paste(self, text):
        """As from the clipboard: marked, if the program has asked for that."""
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p", "-r")

    def until(self, pattern):
        while True:
            shown = self.tmux("capture-pane", "-p")
            if re.search(pattern, shown, re.M):
                return shown
            if not select.select([self.written], [], [], terminal.SILENCE)[0]:
                raise AssertionError(f"silent before {pattern!r}:\n{shown}")
            os.read(self.written, 65536)

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True)
        os.close(self.written)


class Writer(BaseHTTPRequestHandler):
    """A server whose answer comes in two halves, the second when the first was seen."""
    halves = ("## Towns\n\nTwo of *them*:\n\n| Town | 中文 | What is said of it |\n|---|--:|---|\n| **Lima** | 利马 | ",
              "on the coast of the sea |\n| Bonn | 1 | small |\n\nThe end.")
    seen = threading.Event()

    def do_GET(self):
        self.answer(json.dumps({"data": [{"id": "writer"}]}))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(*(f"data: {json.dumps({'choices': [{'delta': {'content': half}}]})}\n\n" for half in self.halves))

    def answer(self, *parts):
        self.send_response(200)
        self.end_headers()
        for i, part in enumerate(parts):
            if i:
                self.seen.wait(terminal.SILENCE)
            self.wfile.write(part.encode())
            self.wfile.flush()

    def log_message(self, *args):
        pass


def test_markdown(folder, env):
    """What comes of an answer is shown at once, and a table when it is complete, as wide as the terminal."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Writer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    argv = [weft, "run", "--url", f"http://127.0.0.1:{server.server_port}", "-p", "x"]
    s = Screen(folder, ["env", "PS1=shell: ", "/bin/bash", "--norc", "--noprofile", "-i"], env)
    try:
        s.until(r"^shell: *$")
        s.tmux("resize-window", "-x", "30", "-y", "40")
        s.text(shlex.join(argv))
        s.keys("Enter")
        shown = s.until(r"^Towns\n\nTwo of them:$")
        assert "Lima" not in shown, shown
        Writer.seen.set()
        shown = s.until(r"^The end\.$")
        want = ("Town │ 中文 │ What is said of\n     │      │ it\n─────┼──────┼─────────────────\n"
                "Lima │ 利马 │ on the coast of\n     │      │ the sea\nBonn │    1 │ small\n\nThe end.")
        assert want in shown, shown
    finally:
        s.close()
    # Elsewhere than at a terminal the text is what came.
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    assert p.stdout == "".join(Writer.halves) + "\n", p.stdout
    server.shutdown()
    server.server_close()


def main():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "TMUX"))}
    env |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as d:
        env["XDG_STATE_HOME"] = d
        s = Screen(d, [weft, "run", "--temp", "0", "-n", "4"], env)
        try:
            s.until("Ctrl-D ends(?:.*\n)+> *$")
            # Three lines pasted are in the line, and are asked as one message.
            s.paste("first line\nsecond line\nthird line")
            s.until(r"\[paste 1: 3 lines\]")
            s.keys("Enter")
            shown = s.until(r"\[prompt \d+ tokens[^]]*\](?:.*\n)+> *$")
            assert len(re.findall(r"\[prompt ", shown)) == 1, shown
            # Arrows move within a line, and go back to earlier ones.
            s.text("What is 3 4?")
            s.keys("Left", "Left")
            s.text("+ ")
            s.until(r"^> What is 3 \+ 4\?$")
            s.keys("C-u")
            s.until(r"^> *$\n*\Z")
            s.text("/help")
            s.keys("Enter")
            shown = s.until(r"/quit(?:.*\n)+> *$")
            for command in ("/system", "/think", "/set", "/save", "/load", "/retry", "/undo", "/clear"):
                assert command in shown, (command, shown)
            s.keys("Up")
            s.until(r"^> /help$")
            # Ctrl-R finds by a part.
            s.keys("C-u", "C-r")
            s.text("hel")
            s.until("/help$")
            s.keys("C-c")
            # An answer can be stopped, and the conversation goes on.
            s.text("/clear")
            s.keys("Enter")
            s.text("Go on and on.")
            s.keys("Enter")
            s.until(r"Go on and on\.\n(?:.*\n)*\[prompt (?:.*\n)+> *$")
            s.keys("C-d")
        finally:
            s.close()
        # Ctrl-Z at the prompt gives the terminal back to the shell, and fg goes on with the line.
        s = Screen(d, ["env", "PS1=shell: ", "/bin/bash", "--norc", "--noprofile", "-i"], env)
        try:
            s.until(r"^shell: *$")
            s.text(shlex.join([weft, "run", "--temp", "0", "-n", "4"]))
            s.keys("Enter")
            s.until("Ctrl-D ends(?:.*\n)+> *$")
            s.text("Say")
            s.until("^> Say$")
            s.keys("C-z")
            s.until(r"Stopped(?:.*\n)+shell: *$")
            s.text("fg")
            s.keys("Enter")
            s.until(r"^fg\n?(?:.*\n)*> Say$|shell: fg\n(?:.*\n)*> Say$")
            s.text(" this")
            s.keys("Enter")
            s.until(r"\[prompt \d+ tokens[^]]*\](?:.*\n)+> *$")
            s.keys("C-d")
            s.until(r"shell: *$")
            # A script that waits for the program stops with it.
            s.text("sh -c '" + shlex.join([weft, "run", "-n", "4"]) + "; :'")
            s.keys("Enter")
            s.until("Ctrl-D ends(?:.*\n)+> *$")
            s.keys("C-z")
            s.until(r"Stopped(?:.*\n)+shell: *$")
            s.text("fg")
            s.keys("Enter")
            s.until(r"fg\nsh -c (?:.*\n)+> *$")
            s.keys("C-d")
            s.until(r"shell: *$")
            # The line of figures stays one line in a narrow terminal.
            s.tmux("resize-window", "-x", "60", "-y", "24")
            s.text(shlex.join([weft, "run", "-n", "4", "-p", "Say"]))
            s.keys("Enter")
            s.until(r"^\[prompt \d+[^\n]*limit\]$")
        finally:
            s.close()
        # Where no locale is set, letters are those that were typed.
        bare = {k: v for k, v in env.items() if k != "LANG" and not k.startswith("LC_")}
        for locale in ({}, {"LC_ALL": "C"}, {"LANG": "none_XX"}):
            t = terminal.Terminal([weft, "run", "--temp", "0", "-n", "2"], bare | locale)
            t.until(terminal.PROMPT)
            t.type("Größe 中文\n")
            t.until("Größe 中文")
            t.until(terminal.PROMPT)
            t.type("\x04")
            assert t.end() == 0
        test_markdown(d, env)
    print("ok")


if __name__ == "__main__":
    main()
