#!/usr/bin/python3
"""The program from outside: usage errors, help, tokenize, run in a pipe and in a terminal.

    test_program.py WEFT

Uses the bundled model, which WEFT must find by itself. Waits for what the program
prints, never for time to pass; a limit on the whole run is the caller's.
"""
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import terminal

weft = os.path.abspath(sys.argv[1])
bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/weft-tiny/model.safetensors")
if not os.path.exists(bundled):
    print(f"skipped: {os.path.normpath(bundled)} missing")
    sys.exit(77)
env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
env["TERM"] = "xterm"


def run(*args, stdin="", code=0, **more):
    p = subprocess.run([weft, *args], input=stdin, capture_output=True, text=True, env={**env, **more})
    assert p.returncode == code, f"{args}: exit {p.returncode}, not {code}\n{p.stdout}\n{p.stderr}"
    return p


def test_usage():
    assert re.fullmatch(r"weft \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?\n", run("--version").stdout)
    assert "no command" in run(code=2).stderr
    p = run("srve", code=2)
    assert "unknown command 'srve'; did you mean 'serve'?" in p.stderr and not p.stdout
    commands = re.findall(r"^  (\w+(?: \w+)?)  ", run("--help").stdout, re.M)
    assert commands == ["serve", "run", "logits", "inspect", "tokenize", "ppl", "quantize", "pull", "list", "models", "agents", "rm", "pack", "cache", "bench",
                        "bench serve", "completion", "man"], commands
    for c in commands:
        text = run(*c.split(), "--help").stdout
        assert text.startswith(f"usage: weft {c} ") and "\nExamples:\n" in text, c
        assert max(map(len, text.split("\n"))) <= 110, f"{c} --help is too wide"
        p = run(*c.split(), "--frobnicate", code=2)
        assert "unknown option --frobnicate" in p.stderr and f"weft {c} --help" in p.stderr
    assert run("help", "bench", "serve").stdout == run("bench", "serve", "--help").stdout
    for c in ["serve"], ["run"], ["inspect"], ["bench", "serve"]:
        assert run(*c, "help").stdout == run(*c, "--help").stdout
    assert "did you mean 'serve'?" in run("help", "srve", code=2).stderr
    for c in [], *([*c.split()] for c in commands):
        narrow, wide = (run(*c, "--help", COLUMNS=str(n)).stdout for n in (50, 100))
        assert all(len(line) <= 50 or " " not in line.strip() for line in narrow.split("\n")), (c, narrow)
        assert narrow.replace("\\\n", " ").split() == wide.split(), c
        # An example that is copied is the same words to a shell.
        _, _, narrow = narrow.replace("\\\n", "").partition("\nExamples:\n")
        _, _, wide = wide.partition("\nExamples:\n")
        assert [shlex.split(line) for line in narrow.splitlines()] == [shlex.split(line) for line in wide.splitlines()], c
    for wide in 60, 72, 100:
        for c in ["serve"], ["run"], ["quantize"]:
            text = run(*c, "--help", "all", COLUMNS=str(wide)).stdout
            words, examples = text.split("\nExamples:\n")
            long = [line for line in words.split("\n")[1:] if len(line) > wide and " " in line.strip()]
            assert not long, (wide, c, long)
            assert words.split() == run(*c, "--help", "all").stdout.split("\nExamples:\n")[0].split(), (wide, c)
    assert "--api-key: the key is empty" in run("serve", "--api-key", "", code=2).stderr
    assert "which model?" in run("quantize", "--type", "affine4", "--out", "/no/such/folder/x", code=2).stderr
    with open("/dev/full", "w") as full:
        for args in ["--help"], ["inspect"], ["tokenize", "x"], ["run", "-p", "x", "-n", "1"], ["run", "-p", "x"]:
            p = subprocess.run([weft, *args], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
            assert p.returncode == 1 and p.stderr.endswith("weft: cannot write standard output\n"), (args, p)
    assert "array, not an object" in run("run", "-p", "x", "--chat-template-args", "[]", code=1).stderr
    assert "/no/such/folder" in run("run", "/no/such/folder", "-p", "x", code=1).stderr
    assert "/no/such" in run("run", "-p", "x", code=1, WEFT_MODEL="/no/such").stderr
    p = run("run", "-c", "99999999", "-p", "x", code=1)
    assert "99999999" in p.stderr and p.stderr.count("\n") == 1, p.stderr


def test_models():
    """Names that weft pull takes, by memory, which holds what is fetched."""
    lines = run("models").stdout.split("\n\n")[0].split("\n")[1:]
    rows = [re.fullmatch(r" *(\d+) GB +(\S+) +[\d.]+B (?: +[\d.]+B)? +([\d.]+) GB  \S.*", line).groups() for line in lines]
    assert len(rows) > 5 and [int(r[0]) for r in rows] == sorted(int(r[0]) for r in rows), rows
    for memory, name, download in rows:
        assert float(download) < int(memory), name
        p = run("rm", name, code=1, HF_HUB_CACHE="/no/such/cache")
        assert f"{name.split(':')[0]}: not in the cache" in p.stderr, p.stderr


def test_short_help():
    few, all_ = run("serve", "--help").stdout, run("serve", "--help", "all").stdout
    options = lambda text: re.findall(r"^  (?:-\w+, |    )--([a-z-]+)", text, re.M)
    assert 10 <= len(options(few)) <= 20 and 40 < len(options(all_)) <= 60, (options(few), len(options(all_)))
    assert f"{len(options(all_)) - len(options(few))} more options: weft serve --help all" in few
    assert set(options(few)) < set(options(all_)) and run("help", "serve", "all").stdout == all_
    for word, instead in [("download", "weft pull"), ("ls", "weft list"), ("ps", "/v1/models"), ("chat", "weft run")]:
        p = run(word, "x", code=2)
        assert instead in p.stderr and "did you mean" not in p.stderr, p.stderr
    for option, instead in [("-ngl", "processor"), ("--jinja", "Jinja"), ("-hf", "--pull"), ("-cb", "together"), ("--ssl-key-file", "TLS"),
                            ("--log-file", "standard error"), ("--pid-file", "--port-file"), ("--context", "--ctx-size"),
                            ("--model-path", "--model"), ("--dtype", "quantize"), ("--embeddings", "/v1/embeddings"), ("--no-mmap", "memory"),
                            ("--trust-remote-code", "no code")]:
        p = run("serve", option, "1", code=2)
        assert instead in p.stderr and "did you mean" not in p.stderr, p.stderr
    for word, instead in [("create", "--alias"), ("cp", "--alias"), ("push", "sends no model"), ("search", "weft models"), ("perplexity", "weft ppl")]:
        p = run(word, "x", code=2)
        assert instead in p.stderr and "did you mean" not in p.stderr, p.stderr
    # A word is near another if few of its letters differ; a few that are exchanged are.
    for word, want in [("srve", "serve"), ("sevre", "serve"), ("quantzie", "quantize"), ("lst", "list")]:
        assert f"did you mean '{want}'?" in run(word, code=2).stderr, word
    for word in "xp", "sorts", "tuna", "port":
        assert "did you mean" not in run(word, code=2).stderr, word
    for option, want in [("--prot", "port"), ("--hots", "host"), ("--paralel", "parallel"), ("--api-kye", "api-key")]:
        assert f"did you mean --{want}?" in run("serve", option, "1", code=2).stderr, option
    for option in "--ssh-key-file", "--dog-file":
        assert "did you mean" not in run("serve", option, "1", code=2).stderr, option


def test_sources():
    """The command line counts more than the environment, and that more than the file."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "options")
        context = lambda *args, **env: re.search(r"sequences of (\d+) tokens", run("inspect", *args, **env).stdout)[1]

        def write(text):
            with open(path, "w") as f:
                f.write(text)
        write("# what is common to all\nctx-size = 128 # for tests\n\nport=1 \r\n  strict\t# here\nhost = '::1' # \"\nlora = 'a # b'\n")
        assert context("--config", path) == "128" and context(WEFT_CONFIG=path) == "128"
        assert context("--config", path, WEFT_CTX_SIZE="256") == "256"
        assert context("--config", path, "--ctx-size", "512", WEFT_CTX_SIZE="256") == "512"
        assert context(WEFT_CTX_SIZE="") == context()
        assert "the variable WEFT_CTX_SIZE: --ctx-size: 'x' is not" in run("inspect", code=2, WEFT_CTX_SIZE="x").stderr
        for text, want in [("a\nprot = 1", ":1: unknown option a"), ("prot = 1", "did you mean --port?"),
                           ("port = x", ":1: --port: 'x' is not a whole number"), ("port", "port needs a value"),
                           ("strict = maybe", "--strict: 'maybe' is neither true nor false"),
                           ("# first\nport 3 # three", ":2: 'port 3' has no =; a line is NAME = VALUE"),
                           ("strict true", ":1: 'strict true' has no ="), ("[model]\nmodel weft-tiny", ":2: 'model weft-tiny' has no =")]:
            write(text)
            assert want in run("serve", "--config", path, code=2).stderr, text
        p = run("serve", "--config", os.path.join(d, "none"), code=2)
        assert os.path.join(d, "none") in p.stderr, p.stderr


def test_shells():
    script = run("completion", "bash").stdout
    ask = lambda *words: subprocess.run(
        ["bash", "-c", script + "\nCOMP_WORDS=(" + " ".join(map(shlex.quote, words)) + f"); COMP_CWORD={len(words) - 1}; "
         "_weft; echo ${COMPREPLY[@]}"], capture_output=True, text=True, check=True).stdout.split()
    assert ask("weft", "ser") == ["serve"]
    assert ask("weft", "serve", "--prompt-cache-d") == ["--prompt-cache-dir", "--prompt-cache-disk-bytes"]
    assert ask("weft", "run", "--think", "o") == ["on", "off"]
    assert ask("weft", "inspect", "--port") == []
    assert ask("weft", "completion", "") == ["bash", "zsh", "fish"] and ask("weft", "bench", "s") == ["serve"]
    assert ask("weft", "bench", "serve", "--rat") == ["--rate"]
    assert ask("weft", "serve", "--log-level", "") == ["error", "warn", "info", "debug"]
    assert ask("weft", "serve", "--kv-bits", "") == [] == ask("weft", "serve", "--host", "-")
    assert "bench" in ask("weft", "help", "") and ask("weft", "help", "inspe") == ["inspect"]
    assert "#compdef weft" in run("completion", "zsh").stdout and "complete -c weft" in run("completion", "fish").stdout
    with tempfile.TemporaryDirectory() as d:
        script = os.path.join(d, "_weft")
        if shutil.which("fish"):
            with open(script, "w") as f:
                f.write(run("completion", "fish").stdout)
            for line, want in [("weft ser", ["serve"]), ("weft run --think ", ["off", "on"]), ("weft bench s", ["serve"]),
                               ("weft serve --prompt-cache-d", ["--prompt-cache-dir", "--prompt-cache-disk-bytes"]),
                               ("weft completion ", ["bash", "fish", "zsh"]), ("weft inspect --port", [])]:
                p = subprocess.run(["fish", "-N", "-c", "source $argv[1]; complete -C $argv[2]", script, line], capture_output=True, text=True, cwd=d)
                assert sorted(x.split("\t")[0] for x in p.stdout.splitlines()) == want, (line, p)
        if shutil.which("zsh"):
            with open(script, "w") as f:
                f.write(run("completion", "zsh").stdout)
            assert subprocess.run(["zsh", "-fn", script], capture_output=True).returncode == 0
    assert "not bash, zsh or fish" in run("completion", "csh", code=2).stderr
    page = run("man").stdout
    for option in re.findall(r"--([a-z-]+)", run("serve", "--help", "all").stdout):
        assert "\\-\\-" + option.replace("-", "\\-") in page, option


def test_tokenize():
    ids = run("tokenize", "Hello, wörld €").stdout
    assert re.fullmatch(r"\[\d+(, \d+)*\]\n", ids)
    assert run("tokenize", stdin="Hello, wörld €").stdout == ids
    with tempfile.TemporaryFile() as f:                 # from where it stands
        f.write("before Hello, wörld €".encode())
        f.flush()
        os.lseek(f.fileno(), 7, os.SEEK_SET)
        assert subprocess.run([weft, "tokenize"], stdin=f, capture_output=True, text=True, env=env).stdout == ids
    folder = os.open("/", os.O_RDONLY)
    for args in ["tokenize"], ["run"]:
        p = subprocess.run([weft, *args], stdin=folder, capture_output=True, text=True, env=env)
        assert p.returncode == 1 and p.stderr.endswith(f"weft {args[0]}: standard input: Is a directory\n"), (args, p)
    os.close(folder)
    pieces = run("tokenize", "--pieces", "Hello, wörld €").stdout.splitlines()
    assert [int(p.split()[0]) for p in pieces] == [int(i) for i in ids.strip("[]\n").split(",")]
    assert run("tokenize", "").stdout == "[]\n"
    plain, special = (run("tokenize", *a, "<|im_end|>").stdout for a in ([], ["--special"]))
    assert plain != special and "," not in special
    assert "UTF-8" in subprocess.run([weft, "tokenize"], input=b"a\xff", capture_output=True, env=env).stderr.decode()


def test_once():
    ask = ["run", "--temp", "0", "-n", "24"]
    p = run(*ask, "-p", "What is the capital of France?")
    assert p.stdout.strip() and "\033" not in p.stdout and "tokens" not in p.stdout
    assert re.search(r"\[prompt \d+ tokens, 0 cached.*; answer \d+", p.stderr), p.stderr
    # The same from standard input, in chunks, on one thread.
    for more in [[], ["--tune", "prefill-step-size=3"], ["--threads", "1"], ["--prompt-cache-bytes", "0"]]:
        assert run(*ask, *more, stdin="What is the capital of France?").stdout == p.stdout, more
    a, b, c = (run("run", "--temp", "20", "-n", "24", "--seed", s, "-p", "Hello").stdout for s in ("1", "1", "2"))
    assert a == b != c
    assert run(*ask, "--log-level", "error", "-p", "x").stderr == ""
    assert run("run", "-n", "0", "-p", "x").stdout == ""


def test_question():
    """One word with blanks asks; what is piped in follows it; nothing at all is an error."""
    prompt = lambda p: int(re.search(r"prompt (\d+) tokens", p.stderr)[1])
    alone = run("run", "-n", "1", "-p", "What is it?")
    assert prompt(run("run", "-n", "1", "What is it?")) == prompt(alone)
    model = os.path.dirname(bundled)
    assert prompt(run("run", "-n", "1", model, "What is it?")) == prompt(alone)
    assert prompt(run("run", "-n", "1", "-m", model, "What is it?")) == prompt(alone)
    joined, typed = run("run", "-n", "1", "-p", "Say", stdin="this."), run("run", "-n", "1", stdin="Say\n\nthis.")
    assert prompt(joined) == prompt(typed) and joined.stdout == typed.stdout
    for p in run("run", "-p", "", code=2), run("run", stdin=" \n", code=2), run("run", code=2):
        assert "nothing was asked" in p.stderr and not p.stdout
    assert "two questions" in run("run", "-p", "a", model, "b c", code=2).stderr
    assert "one argument too many" in run("run", "a", "b", "c", code=2).stderr
    # A word that names no model is the question about what is piped in; without that, or if it may be a model's name, the
    # message tells how it is asked.
    assert prompt(run("run", "-n", "1", "Say", stdin="this.")) == prompt(typed)
    assert prompt(run("run", "-n", "1", "Grüße!", stdin="this.")) > 0
    for word in "org/hello", "hello-7b", "hello:Q4_K_M":
        assert f"{word.split(':')[0]}: no such folder" in run("run", word, stdin="x", code=1).stderr, word
    p = subprocess.run([weft, "run", "hello"], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    assert p.returncode == 1 and "weft run -p 'hello'" in p.stderr, p.stderr
    p = subprocess.run([weft, "run", "/hello"], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    assert p.returncode == 1 and "-p" not in p.stderr and "no such file or folder" in p.stderr, p.stderr


def test_redirected():
    """Typed at a terminal, written to a file: one answer, which the end of the input begins, and nothing else in the file."""
    question = "What is the capital of France?"
    alone = run("run", "--temp", "0", "-n", "9", "-p", question).stdout
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "answer")
        t = terminal.Terminal(["/bin/sh", "-c", f"exec {shlex.quote(weft)} run --temp 0 -n 9 > {shlex.quote(path)}"], env)
        t.until("Ctrl-D")
        t.type(question + "\n\x04")
        t.until(r"\[prompt ")
        assert t.end() == 0
        with open(path) as f:
            assert f.read() == alone
        t = terminal.Terminal(["/bin/sh", "-c", f"exec {shlex.quote(weft)} run > {shlex.quote(path)}"], env)
        t.until("Ctrl-D")
        t.type("\x03")
        assert t.end() == -signal.SIGINT


def test_memory():
    """--memory bounds the plan that is printed, and is refused with numbers when nothing is left."""
    for mb in (40, 200):
        p = run("run", "--memory", f"{mb}M", "-n", "1", "-p", "x", "--log-level", "info")
        plan = re.search(r"memory (\d+) MB: weights mapped (\d+), step (\d+), states (\d+), keys and values up to (\d+)", p.stderr)
        assert plan and mb // 4 < int(plan[1]) <= mb and int(plan[2]) > 0 and int(plan[5]) > 0, p.stderr
    p = run("run", "--memory", "9M", "-p", "x", code=1)
    assert "--memory 9 MB" in p.stderr and "weights" in p.stderr, p.stderr
    # The least that works leaves the draft head out, of which nobody has spoken; 1.1 MB of it are more than a step.
    for kb in range(9000, 18000, 500):
        p = subprocess.run([weft, "run", "--memory", f"{kb}K", "-n", "1", "-p", "x"], capture_output=True, text=True)
        if not p.returncode:
            break
    assert not p.returncode and "drafting without the model's draft head: with its 1 MB nothing is left" in p.stderr, (kb, p.stderr)
    p = run("run", "--memory", f"{kb}K", "-n", "1", "-p", "x", "--draft-kind", "head", code=1)
    assert "nothing is left" in p.stderr or "least" in p.stderr, p.stderr
    assert "draft head" not in run("run", "--memory", "40M", "-n", "1", "-p", "x").stderr
    # Less than a context: the context is what fits, for whoever asks.
    p = run("run", "--memory", "18M", "-n", "1", "-p", "x", "--log-level", "info")
    at = re.search(r"context (\d+) \(of (\d+): .*\((\d+) tokens\)", p.stderr, re.S)
    fits, of, tokens = map(int, at.groups())
    assert 256 <= fits < of and tokens - 64 < fits <= tokens, p.stderr
    p = run("run", "--memory", "18M", "-c", str(of - 1), "-n", "1", "-p", "x ", "--log-level", "warn")
    assert f"--ctx-size {of - 1}" in p.stderr and f"holds {fits} tokens" in p.stderr, p.stderr
    p = run("run", "--memory", "18M", "-n", "1", "-p", "x y " * fits, code=1)
    assert f"context holds {fits}" in p.stderr, p.stderr
    assert "context of 256 is the least" in run("run", "--kv-bytes", "100K", "-p", "x", code=1).stderr
    run("run", "--kv-bytes", "100K", "-c", "64", "-n", "1", "-p", "x")


def test_special_files():
    """A pipe (or a device) that is to be written stays one, and gets the bytes that a file would."""
    with tempfile.TemporaryDirectory() as d:
        ids, plain, pipe = (os.path.join(d, n) for n in ("ids", "plain", "pipe"))
        with open(ids, "w") as f:
            f.write("[5, 6, 7]")
        run("logits", "--ids", ids, "--out", plain)
        os.mkfifo(pipe)
        got = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
        try:
            run("logits", "--ids", ids, "--out", pipe)
            assert stat.S_ISFIFO(os.stat(pipe).st_mode)
            with open(plain, "rb") as f:
                assert got.communicate()[0] == f.read()
        finally:
            got.kill()      # with a file in the pipe's place it would wait for ever
        assert sorted(os.listdir(d)) == ["ids", "pipe", "plain"], os.listdir(d)


def Terminal(*args):
    return terminal.Terminal([weft, *args], env)


PROMPT = terminal.PROMPT
STATS = r"\[prompt (\d+) tokens, (\d+) cached[^]]*\]"


def test_conversation():
    t = Terminal("run", "--temp", "0", "-n", "20")
    t.until("Ctrl-D ends.*?" + PROMPT)
    t.type("What is the capital of France?\r")
    first = t.until(STATS)
    assert first[2] == "0"
    t.until(PROMPT)
    # The second turn computes only what is new.
    t.type("And of Peru?\r")
    second = t.until(STATS)
    assert int(second[2]) > int(first[1]) / 2, second[0]
    t.until(PROMPT)
    t.type("half a line\x03")           # Ctrl-C drops the line
    t.until(PROMPT)
    t.type("/new\r")
    t.until(PROMPT)
    t.type("What is the capital of France?\r")
    again = t.until(STATS)
    # From its last token but one, or where copies are dear from the place before the answer's header.
    assert again[1] == first[1] and int(first[1]) - 8 <= int(again[2]) < int(first[1]), again[0]
    t.until(PROMPT)
    t.type("\x1b[A")                    # history
    t.until("capital of France")
    t.type("\r")
    t.until(STATS)
    t.until(PROMPT)
    t.type("/quit\r")
    assert t.end() == 0


def test_commands():
    """What begins with a slash, several lines as one message, and what is kept over runs."""
    with tempfile.TemporaryDirectory() as d:
        state = {**env, "XDG_STATE_HOME": d}
        t = terminal.Terminal([weft, "run", "--temp", "0", "-n", "4"], state)
        t.until("Ctrl-D ends.*?" + PROMPT)

        def tokens(text):
            t.type(text + "\r")
            m = t.until(STATS)
            t.until(PROMPT)
            return int(m[1])

        def says(text, want):
            t.type(text + "\r")
            t.until(want)
            t.until(PROMPT)

        one = tokens("Say this")
        says("/undo", "1 questions is taken back")
        says("/undo", "nothing was said")
        three = tokens("Say\\\rthis\\\rtwice")
        says("/new", "a new conversation")
        assert three > one
        # The same three lines pasted, as a terminal marks them; and between quotes.
        assert tokens("\x1b[200~Say\rthis\rtwice\x1b[201~") == three
        says("/clear", "")
        assert tokens('"""Say\rthis\rtwice"""') == three
        says("/new", "")
        assert tokens("\x1b[200~Say this\x1b[201~") == one
        t.type("   \r")                 # blanks are no message
        t.until(PROMPT)
        t.type("/retry\r")
        assert int(t.until(STATS)[1]) == one
        t.until(PROMPT)
        path = os.path.join(d, "talk.json")
        says(f"/save {path}", "1 question saved")
        says(f"/save {path}", f"cannot make {path}: .*/save! {path}")
        says(f"/save! {path}", "1 question saved")
        saved = json.load(open(path))
        assert [m["role"] for m in saved] == ["user", "assistant"] and saved[0]["content"] == "Say this"
        says("/system Be brief.", "new conversation")
        assert tokens("Say this") > one
        says(f"/load {path}", "1 questions loaded")
        assert tokens("And this") > one
        with open(path, "w") as f:
            f.write('[{"role": "robot", "content": "x"}]')
        says(f"/load {path}", "not a list of messages")
        says("/set temp x", "not a number")
        says("/set tmp 1", "did you mean temp")
        says("/set max-tokens 1", "max-tokens is 1")
        says("/load /no/such", "weft run: /no/such: No such file")
        says("/think maybe", "on.off")
        says("/help", "/retry")
        says("/nonsense", "not known")
        t.type("/quit\r")
        assert t.end() == 0
        t = terminal.Terminal([weft, "run", "--temp", "0", "-n", "4"], state)
        t.until("Ctrl-D ends.*?" + PROMPT)
        t.type("\x12nonsen")            # Ctrl-R finds what an earlier run was told
        t.until("/nonsense")
        t.type("\x03")
        t.until(PROMPT)
        t.type("\x04")
        assert t.end() == 0
        assert stat.S_IMODE(os.stat(os.path.join(d, "weft/history")).st_mode) == 0o600


def test_inspect_json():
    """The members of version 1, and no others; figures as the text has them."""
    text, report = run("inspect").stdout, json.loads(run("inspect", "--json").stdout)
    shape = {name: sorted(v) if isinstance(v, dict) else sorted(v[0]) if isinstance(v, list) and v else None for name, v in report.items()}
    assert shape == {
        "object": None, "version": None, "name": None, "path": None, "architecture": None, "class": None,
        "layers": ["all", "attention", "experts", "recurrent"], "experts": ["all", "per_token"],
        "width": None, "vocabulary": None, "context": None,
        "attention": ["dim_k", "dim_v", "heads", "index", "layers", "window"],
        "recurrent": ["conv_channels", "conv_width", "dim_k", "dim_v", "heads_k", "heads_v"], "images": None, "sounds": None,
        "embedder": None, "draft_head": ["bytes", "layers", "mixtures", "parameters"],
        "parameters": ["in_files", "used"], "files": ["bytes", "count"],
        "formats": ["bytes", "elements", "group", "matrices", "name"], "vectors": ["bytes", "tensors"],
        "ignored": shape["ignored"],
        "memory": ["context", "keys_values", "kv_bytes_per_token", "sequences", "state_bytes_per_sequence", "states", "step",
                   "step_tokens", "tables", "together", "weights"]}, shape
    assert (report["object"], report["version"], report["name"]) == ("inspection", 1, "weft-tiny"), report
    assert f"({report['parameters']['used']}) used" in text, text
    assert f"width          {report['width']}; vocabulary {report['vocabulary']} rows; context {report['context']}\n" in text, text
    layers = report["layers"]
    assert f"layers         {layers['all']}: {layers['attention']} attention, {layers['recurrent']} recurrent" in text, text
    m = report["memory"]
    assert m["together"] == m["weights"] + m["keys_values"] + m["states"] + m["step"], m
    assert re.search(r"together +[0-9.]+ MB  with every sequence full; --memory: ", text), text
    assert f"{m['kv_bytes_per_token']} bytes per token" in text and f"{m['state_bytes_per_sequence']} bytes per sequence" in text, text
    small = json.loads(run("inspect", "--json", "-c", "100", "-np", "3", "--tensors").stdout)
    assert (small["memory"]["context"], small["memory"]["sequences"]) == (100, 3), small["memory"]
    assert sum(t["bytes"] for t in small["tensors"]) == report["files"]["bytes"], report["files"]
    assert sum(t["ignored"] is not None for t in small["tensors"]) == sum(r["tensors"] for r in report["ignored"])
    assert "--json" in run("inspect", "--help", "all").stdout


def test_inspect_embedder():
    """What an encoder gives; it keeps nothing of a text."""
    for name, gives in ("bert", "vectors of 48 numbers"), ("bge_reranker", "scores of texts and pairs"):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/_embed", name, "hf-bf16")
        text, report = run("inspect", folder).stdout, json.loads(run("inspect", folder, "--json").stdout)
        assert f"gives          {gives}; texts of at most" in text and "none are kept" in text, text
        assert report["embedder"]["gives"] == gives.split()[0] and report["memory"]["keys_values"] == 0, report


def test_inspect_tower():
    """A model that sees: its tower as text and as JSON, and its tensors not among the ignored."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../shared/golden/qwen3_5_vl/hf-f32")
    if not os.path.isdir(folder):
        print("skipped:", os.path.normpath(folder), "missing")
        return
    text, report = run("inspect", folder).stdout, json.loads(run("inspect", folder, "--json").stdout)
    tower = report["images"]
    assert sorted(tower) == ["blocks", "both_ways", "bytes", "family", "heads", "merge", "parameters", "patch", "width"], tower
    assert f"images         {tower['family']}: {tower['blocks']} blocks of {tower['width']}, {tower['heads']} heads; " in text, text
    assert tower["parameters"] > 0 and not any("visual" in r["first"] for r in report["ignored"]), report["ignored"]


def test_inspect_head():
    """A checkpoint's own draft head, as text and as JSON, and its tensors not among the ignored."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/deepseek_mtp/hf-bf16")
    text, report = run("inspect", folder).stdout, json.loads(run("inspect", folder, "--json").stdout)
    head = report["draft_head"]
    assert (head["layers"], head["mixtures"]) == (1, 1) and not report["ignored"], report
    assert head["parameters"] + report["parameters"]["used"] == report["parameters"]["in_files"], report
    assert f"draft head     1 layer, a mixture of experts; " in text and f"({head['parameters']}) parameters" in text, text


def test_inspect_given_heads():
    """Draft heads in files of their own, by --draft-model: what they are, or why they cannot draft."""
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
    model, flash, eagle = (os.path.join(golden, n) for n in ("qwen3_5/mlx-q4", "_draft/dflash2", "_draft/eagle3_speculators"))
    args = ("inspect", model, "--draft-model", flash, "--draft-model", eagle, "--draft-model", model)
    text, report = run(*args).stdout, json.loads(run(*args, "--json").stdout)
    a, b, c = report["draft_heads"]
    assert (a["kind"], a["layers"], a["outputs"], a["block"]) == ("dflash2", 2, [1, 5], 7), a
    assert (b["kind"], b["layers"], b["outputs"], b["block"]) == ("eagle3", 1, [1, 3, 4], 0), b
    assert a["bytes"] > a["parameters"] > 0 and "a whole model and no draft head" in c["refused"], (a, c)
    assert f"draft head     dflash2, from {flash}: 2 layers over the outputs of layers 1, 5; 7 guesses in one pass\n" in text, text
    assert f"draft head     refused: {model}: a whole model" in text, text


def test_other_folders():
    """A folder that is no model to talk to is told what it is, before what it lacks; of a model only the tokenizer is missed."""
    model = os.path.dirname(bundled)
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(bundled, d)
        for config, want in (({"model_type": "zork9"}, 'model_type "zork9" is not known'),
                             ({"model_type": "llama", "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 9},
                              "a draft head without its model: serve that, with --draft-model"),
                             (json.load(open(os.path.join(model, "config.json"))), "tokenizer.json: not there, and text needs it")):
            with open(os.path.join(d, "config.json"), "w") as f:
                json.dump(config, f)
            assert want in run("run", d, "-p", "a b", code=1).stderr, want


def test_bad_head():
    """A checkpoint whose draft head cannot be bound is no worse for it: why is said, and nothing of the head counts as used."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/deepseek_mtp/hf-bf16")
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        header = f.read(int.from_bytes(f.read(8), "little"))
        data = f.read()
    at = "model.layers.2."
    for name, change, why in (("hnorm.weight", lambda h, n: h.pop(n), f"tensor {at}hnorm.weight: missing"),
                              ("eh_proj.weight", lambda h, n: h[n].update(shape=[64, 32]), f"{at}eh_proj.weight: is [64, 32], "),
                              ("mlp.experts.7.down_proj.weight", lambda h, n: h[n].update(shape=[16, 32]), "is [16, 32], "),
                              ("eh_proj.weight", lambda h, n: h.pop(n), None)):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(source, "config.json"), os.path.join(folder, "config.json"))
            tensors = json.loads(header)
            change(tensors, at + name)
            text = json.dumps(tensors).encode()
            with open(os.path.join(folder, "model.safetensors"), "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text + data)
            text, report = run("inspect", folder).stdout, json.loads(run("inspect", folder, "--json").stdout)
            assert report["draft_head"] is None and all(n.startswith(at) for r in report["ignored"] for n in [r["first"]]), report
            assert sum(r["tensors"] for r in report["ignored"]) == sum(n.startswith(at) for n in tensors), report["ignored"]
            if why:
                assert "draft head     refused, it cannot be bound: " in text and why in text, text
                assert why in report["draft_head_refused"], report
            else:
                assert "draft head" not in text.replace("draft head: read when", ""), text


def test_layers_of_a_head():
    """The layers of Nemotron's draft head by letters or by names; those that are not done are refused by name."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/nemotron_h_mtp/hf-bf16")
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    letters, names = "mtp_hybrid_override_pattern", "mtp_layers_block_type"
    del config[letters]
    for more, layers, why in (({letters: "*E"}, 2, None), ({names: ["attention", "moe"]}, 2, None), ({}, None, None),
                              ({letters: "ME"}, None, "layer 0 is of a kind that is not done; done: *-E"),
                              ({letters: "EE"}, None, "a draft head without attention is not done"),
                              ({names: ["attention", 3]}, None, "layer 1 is of a kind"), ({letters: "*" * 5000}, None, "5000 layers"),
                              ({letters: "*EE"}, None, "mtp.layers.2.final_layernorm.weight: missing")):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(source, "model.safetensors"), os.path.join(folder, "model.safetensors"))
            with open(os.path.join(folder, "config.json"), "w") as f:
                json.dump({**config, **more}, f)
            report = json.loads(run("inspect", folder, "--json").stdout)
            head = report["draft_head"]
            assert (head and head["layers"]) == layers and (why or "") in report.get("draft_head_refused", ""), (more, report)
            assert ("draft_head_refused" in report) == (why is not None), (more, report)


def test_picture():
    """The bundled model that sees, asked about the demonstration's pictures, and what it is asked without one."""
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    model, picture = os.path.join(tree, "models/weft-tiny-eyes"), os.path.join(tree, "tools/train/eval/shapes.png")
    if not os.path.exists(os.path.join(model, "model.safetensors")):
        return
    for name, question, answer in (("stars", "How many stars are there?", "The number of stars is 4."),
                                   ("stars", "What colour are the stars?", "The colour of the stars is blue."),
                                   ("shapes", "What colour is the circle?", "The colour of the circle is red."),
                                   (None, "What is the capital of France?", "The capital of France is Paris.")):
        shown = ["--image", os.path.join(tree, "tools/train/eval", name + ".png")] if name else []
        assert run("run", model, *shown, "-p", question, "--temp", "0").stdout == answer + "\n", question
    report = json.loads(run("inspect", model, "--json").stdout)
    assert sorted(report["images"]) == ["blocks", "both_ways", "bytes", "family", "heads", "merge", "parameters", "patch", "width"], report
    assert "weft-tiny has no tower" in run("run", "--image", picture, "-p", "x", code=1).stderr


def test_picture_typed():
    """A path among the words of a message, or after /image, shows what --image does."""
    tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    model, pictures = os.path.join(tree, "models/weft-tiny-eyes"), os.path.join(tree, "tools/train/eval")
    if not os.path.exists(os.path.join(model, "model.safetensors")):
        return
    with tempfile.TemporaryDirectory() as d:
        spaced, broken = os.path.join(d, "my shapes.png"), os.path.join(d, "broken.png")
        shutil.copy(os.path.join(pictures, "shapes.png"), spaced)
        with open(broken, "wb") as f:
            f.write(b"no picture")
        t = terminal.Terminal([weft, "run", model, "--temp", "0"], {**env, "XDG_STATE_HOME": d, "COLUMNS": "500"})
        stats = r"\[prompt (\d+) tokens, (\d+) cached"

        def asked(line, answer):
            t.type(line + "\r")
            t.until(re.escape(answer))
            n = int(t.until(stats)[1])
            t.until(PROMPT)
            return n

        t.until(PROMPT)
        # Dropped on the terminal, with quotes or backslashes; the answer of before is forgotten each time.
        first = asked(f"'{spaced}' What colour is the circle?", "The colour of the circle is red.")
        assert asked("/retry", "The colour of the circle is red.") == first
        t.type("/new\r")
        t.until("a new conversation.*?" + PROMPT)
        again = asked(spaced.replace(" ", "\\ ") + " What colour is the circle?", "The colour of the circle is red.")
        assert again == first, (first, again)
        t.type("/new\r")
        t.until("a new conversation.*?" + PROMPT)
        asked(f"/image {pictures}/stars.png What colour are the stars?", "The colour of the stars is blue.")
        t.type("/new\r")
        t.until("a new conversation.*?" + PROMPT)
        t.type(f"/image '{spaced}'\r")
        t.until("the next message shows it.*?" + PROMPT)
        assert asked("What colour is the circle?", "The colour of the circle is red.") == first
        # What cannot be read is named, and is no turn.
        for line in (f"/image {d}/gone.png What is it?", f"/image '{d}/no such.png'"):
            t.type(line + "\r")
            t.until(r"weft run: [^\n]*/(gone|no such)\.png[^\n]*No such file")
            t.until(PROMPT)
        t.type(f"{spaced!r} {broken} What is it?\r")
        t.until(r"weft run: [^\n]*broken\.png: [^\n]*")
        t.until(PROMPT)
        t.type("/undo\r")
        t.until("the last of 1 questions")
        t.until(PROMPT)
        # A path of nothing is text.
        assert asked("What is the capital of France, gone.png?", "") < first
        t.type("\x04")
        assert t.end() == 0
        # A model that reads text says so.
        t = Terminal("run", "--temp", "0", "-n", "5")
        t.until(PROMPT)
        t.type(f"{spaced!r} What is it?\r")
        t.until(r"\[weft-tiny reads text only: [^\n]*my shapes\.png is sent as text\]")
        t.until(stats)
        t.until(PROMPT)
        t.type(f"/image {spaced!r}\r")
        t.until("weft run: [^\n]*weft-tiny has no tower")
        t.until(PROMPT)
        t.type("\x04")
        assert t.end() == 0


def test_bad_tower():
    """A model whose tower cannot be bound runs as text, and says so; nothing of the tower counts as used."""
    with tempfile.TemporaryDirectory() as folder:
        for f in os.listdir(os.path.dirname(bundled)):
            if not f.startswith(("config", "model")):
                os.symlink(os.path.abspath(os.path.join(os.path.dirname(bundled), f)), os.path.join(folder, f))
        with open(os.path.join(os.path.dirname(bundled), "config.json")) as f:
            config = json.load(f)
        config["vision_config"] = {"hidden_size": 64, "depth": 0}
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        with open(bundled, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            data = f.read()
        header["model.visual.patch_embed.proj.weight"] = {"dtype": "F32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
        text = json.dumps(header).encode()
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + data + bytes(16))
        why = "vision_config.depth: 0 is not between 1 and"
        assert f"images         refused, the tower cannot be bound: {folder}/config.json: {why}" in run("inspect", folder).stdout
        report = json.loads(run("inspect", folder, "--json").stdout)
        assert report["images"] is None and why in report["images_refused"], report
        assert any("visual" in r["first"] for r in report["ignored"]), report["ignored"]
        want = run("run", "-p", "x", "-n", "8", "--temp", "0").stdout
        assert run("run", folder, "-p", "x", "-n", "8", "--temp", "0").stdout == want
        picture = os.path.join(folder, "a.png")
        with open(picture, "wb") as f:
            f.write(b"x")
        p = run("run", folder, "-p", "x", "--image", picture, code=1)
        assert "reads text only, images are refused" in p.stderr and p.stderr.count(why) == 2, p.stderr


def test_bench():
    """Rows and what is in them; how fast is nobody's business here."""
    rows = json.loads(run("bench", "-p", "40,8", "-n", "3", "-d", "0,70", "-b", "1,3", "-r", "2", "-t", "1", "--json").stdout)
    assert [r["test"] for r in rows] == ["pp40", "pp8", "tg3", "tg3 x3", "pp40 @ d70", "pp8 @ d70", "tg3 @ d70", "tg3 @ d70 x3"]
    for r in rows:
        assert len(r["runs"]) == 2 and min(r["runs"]) <= r["tokens_per_second"] <= max(r["runs"]) and min(r["runs"]) > 0, r
        assert min(r["ceilings"].values()) > 0 and r["floor_fraction"] > 0 and r["bound_by"] in ("read", "compute"), r
        assert r["threads"] == 1 and r["joins"] == 0 and "profile" not in r, r
        assert "floor_fraction_vectors" not in r, "nothing is int8 in these weights"
    assert [r["steps"] for r in rows[2:4]] == [3, 3]
    profile = json.loads(run("bench", "-p", "0", "-n", "4", "-r", "1", "-d", "100", "--profile", "--json").stdout)[0]["profile"]
    assert {"embed", "norm", "linear", "attend", "recur"} <= {o["operation"] for o in profile["operations"]}, profile
    assert all(o["seconds"] > 0 and o["calls"] >= 4 for o in profile["operations"]), profile
    assert sum(o["seconds"] for o in profile["operations"]) < profile["seconds"]
    # A context that was made up costs what a computed one does.  Rows come by their time, several of one operation.
    filled = json.loads(run("bench", "-p", "0", "-n", "4", "-r", "1", "-d", "100", "--depth-filled", "--profile", "--json").stdout)[0]["profile"]
    counts = [sorted((o["operation"], o["bytes"], o["calls"]) for o in p["operations"]) for p in (profile, filled)]
    assert counts[0] == counts[1], counts
    # A step reads the matrices once, and nothing of the kind twice.
    weights = sum(o["bytes"] for o in profile["operations"] if o["operation"] == "linear") / 4
    matrices = sum(float(m) for m in re.findall(r"matrices +([0-9.]+) MB", run("inspect").stdout))
    assert abs(weights / 1e6 - matrices) < 0.01, (weights, matrices)
    plain, drafted = json.loads(run("bench", "-p", "0", "-n", "40", "-r", "2", "-b", "2", "--draft-pretend", "1", "--draft-fixed",
                                    "--num-draft-tokens", "3", "--json").stdout)
    assert (plain["test"], drafted["test"]) == ("tg40 x2", "tg40 x2 +drafts") and "speedup" not in plain, (plain, drafted)
    assert drafted["tokens_per_step"] == 4 and drafted["drafted_tokens"] == drafted["accepted_draft_tokens"] == 120, drafted
    for kind in (["--draft-kind", "auto"], ["--draft-model", "models/weft-tiny-draft"]):
        if os.path.exists("models/weft-tiny-draft/model.safetensors"):
            table = run("bench", "-p", "0", "-n", "20", "-r", "1", *kind).stdout
            assert "tg20 +drafts" in table and "x without" in table, table
    table = run("bench", "-p", "8", "-n", "2", "-r", "1", "--profile").stdout
    assert re.search(r"^pp8 +\d", table, re.M) and re.search(r"^tg2 +\d", table, re.M) and "GB/s" in table and "linear" in table
    assert json.loads(run("bench", "-p", "0", "-n", "0", "--json").stdout) == []
    for words, part in ((["--batch", "0"], "--batch"), (["-p", "1,x"], "--prompt-tokens"), (["--rate", "1"], "bench"),
                        (["-c", "9"], "unknown option"), (["a", "b"], "too many"), (["-r", "0"], "--repetitions")):
        p = run("bench", *words, code=2)
        assert part in p.stderr and not p.stdout, p.stderr
    p = run("bench", "-d", "99999999", code=1)
    assert "99999999" not in p.stderr or p.stderr.count("\n") == 1, p.stderr
    assert "the model has" in p.stderr, p.stderr


def test_bench_paired():
    """Each round runs both, who is first changing; a ratio is of one round."""
    with tempfile.TemporaryDirectory() as d:
        other, calls = os.path.join(d, "other"), os.path.join(d, "calls")

        def say(text):
            with open(other, "w") as f:
                f.write("#!/bin/sh\necho \"$@\" >> %s\n%s\n" % (calls, text))
            os.chmod(other, 0o700)
        say("echo '[{\"test\":\"pp8\",\"tokens_per_second\":2},{\"test\":\"tg2\",\"tokens_per_second\":4}]'")
        words = ["bench", "-p", "8", "-n", "2", "-r", "3", "-t", "1", "--paired", other]
        rows = json.loads(run(*words, "--json").stdout)
        assert [r["test"] for r in rows] == ["pp8", "tg2"] and [r["other_tokens_per_second"] for r in rows] == [2, 4], rows
        for r in rows:
            assert len(r["ratios"]) == 3 and r["ratio"] == sorted(r["ratios"])[1], r
            assert abs(r["tokens_per_second"] / r["other_tokens_per_second"] / r["ratio"] - 1) < 1e-4, r
        told = open(calls).read().splitlines()
        assert told == ["bench -p 8 -n 2 -r 3 -t 1 --json --json --repetitions=1"] * 3, told
        assert re.search(r"^tg2 +[0-9.]+ +4\.0 +[0-9.]+ +[0-9.]+ to ", run(*words).stdout, re.M)
        for text, part in (("exit 3", "status 3"), ("kill -9 $$", "signal 9"), ("echo nonsense", "byte"), ("echo '[]'", "0 rows"),
                           ("echo '[{\"test\":\"a\"},{}]'", "tokens_per_second"),
                           ("echo '[{\"test\":\"pp9\",\"tokens_per_second\":2},{\"test\":\"tg2\",\"tokens_per_second\":4}]'", "pp9")):
            say(text)
            p = run(*words, code=1)
            assert part in p.stderr and not p.stdout, (text, p.stderr)
        p = run("bench", "--paired", os.path.join(d, "none"), "-p", "8", "-n", "0", code=1)
        assert "does not start" in p.stderr, p.stderr


def test_stop_answer():
    # Hot enough never to end by itself soon; the context is the only other limit.
    t = Terminal("run", "--temp", "50", "--seed", "1")
    t.until("no MODEL was named: weft-tiny .*`weft models`")
    t.until(PROMPT)
    t.type("Hello\r")
    t.until("Hello\r\n.{8}")
    t.type("\x03")
    t.until(r"\[prompt [^]]*\]")
    t.until(PROMPT)
    t.type("\x04")                      # Ctrl-D ends
    assert t.end() == 0


def test_interrupt_once():
    p = subprocess.Popen([weft, "run", "--temp", "50", "--seed", "1", "-p", "Hello"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=env)
    p.stdout.read(8)
    p.send_signal(signal.SIGINT)
    p.communicate()
    assert p.returncode in (0, 1), p.returncode        # 0: it had come to its end


for name, test in list(globals().items()):
    if name.startswith("test_") and (len(sys.argv) < 3 or name in sys.argv[2:]):
        test()
        print("ok", name)
