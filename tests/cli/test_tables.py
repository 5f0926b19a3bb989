#!/usr/bin/python3
"""Tables on disk (docs/experts-from-disk.md) through the program: the memory plan, answers, a server's figures.

    test_tables.py WEFT MODEL

MODEL is the bundled model, which gets an output matrix of its own here, so that its embedding is a table.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../server"))
from serverkit import Server

weft, bundled = map(os.path.abspath, sys.argv[1:3])
env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
PERU = "What is the capital of Peru?"


def run(*args, code=0):
    p = subprocess.run([weft, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    assert p.returncode == code, f"{args}: exit {p.returncode}, not {code}\n{p.stdout}\n{p.stderr}"
    return p


def untied(folder):
    """Makes the model, with more rows, so that the table has 15.7 MB; returns its bytes."""
    rows, hidden = 40960, 192
    for name in os.listdir(bundled):
        if name not in ("model.safetensors", "config.json"):
            shutil.copy(os.path.join(bundled, name), folder)
    with open(os.path.join(bundled, "config.json")) as f:
        config = json.load(f)
    for c in config, config["text_config"]:
        c["tie_word_embeddings"] = False
    config["text_config"]["vocab_size"] = rows
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(bundled, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    name = "model.language_model.embed_tokens.weight"
    begin, end = header[name]["data_offsets"]
    table = (data[begin:end] * (rows * hidden * 2 // (end - begin) + 1))[:rows * hidden * 2]
    for name in name, "lm_head.weight":
        header[name] = {"dtype": "BF16", "shape": [rows, hidden], "data_offsets": [len(data), len(data) + len(table)]}
        data += table
    # Bytes that nobody owns are an error: the old table's are given to a tensor of another name.
    header["old"] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
    return rows * hidden * 2


def test_program(folder, size):
    """What the plan says, when tables go to disk by themselves, and that answers are the same."""
    plan = ["inspect", "--memory", folder, "-np", "1"]
    part = {t: {m[1]: float(m[2]) for m in re.finditer(r"^  (\S.*?) +([\d.]+) MB", run(*plan, "--tables", t).stdout, re.M)}
            for t in ("auto", "memory", "disk")}
    memory, disk = part["memory"], part["disk"]
    assert part["auto"] == memory and "tables" not in memory, part
    assert abs(memory["weights"] - disk["weights"] - size / 1e6) < 0.2 and 0 < disk["tables"] < 5, part
    assert disk["together"] < memory["together"] - 10, part
    report = json.loads(run("inspect", "--json", "--tables", "disk", folder).stdout)["memory"]
    assert report["tables"] == size and abs(report["weights"] / 1e6 - disk["weights"]) < 0.2, report
    assert "may be read from disk" in run("inspect", folder).stdout
    ask = ["run", folder, "-n", "8", "--temp", "0", "-p", PERU, "--log-level", "info"]
    want, got = run(*ask, "--tables", "memory"), run(*ask, "--tables", "disk")
    assert "tables on disk: 1, of 15 MB" in got.stderr and "tables on disk" not in want.stderr, got.stderr
    assert got.stdout == want.stdout and got.stdout.strip(), (got.stdout, want.stdout)
    # Too little for all weights: the table goes to disk by itself, and only then.  Texts whose tokens are remembered take 8 MB of the
    # machine's memory, and little of such a budget.
    together = memory["together"] - 8.4
    tight = ["--memory", f"{int(together * 1000 - 5000)}K"]
    got = run(*ask, *tight)
    assert "tables on disk" in got.stderr and got.stdout == want.stdout, got.stderr
    assert "nothing is left" in run(*ask, *tight, "--tables", "memory", code=1).stderr
    assert "tables on disk" not in run(*ask, "--memory", "400M").stderr
    # A context that would be cut for the table's sake.
    tight = ["--memory", f"{int(together + 4)}M"]
    assert "of 4096" in run(*ask, *tight, "--tables", "memory").stderr
    got = run(*ask, *tight)
    assert "tables on disk" in got.stderr and "of 4096" not in got.stderr and got.stdout == want.stdout, got.stderr
    p = run("run", "--tables", "disk", "-p", "x", code=1)
    assert "--tables disk: weft-tiny has no table" in p.stderr, p.stderr
    assert "not one of auto|memory|disk" in run("run", "--tables", "both", "-p", "x", code=2).stderr


def test_commands(folder, size):
    """The same numbers from `logits`, in chunks as well; `ppl` and `bench` take it."""
    with tempfile.TemporaryDirectory() as d:
        ids, out = os.path.join(d, "ids.json"), os.path.join(d, "out")
        with open(ids, "w") as f:
            json.dump([i * 97 % 2048 for i in range(200)], f)
        got = []
        for more in ["--tables", "memory"], ["--tables", "disk"], ["--tables", "disk", "--split", "1,7,64", "-t", "2"]:
            run("logits", folder, "--ids", ids, "--out", out, "--greedy", "8", "--alongside", "2", *more)
            with open(out, "rb") as f:
                got.append(f.read())
        assert got[0] == got[1] == got[2]
        with open(ids, "w") as f:
            json.dump([i * 89 % 2048 for i in range(300)], f)
        a, b = (run("ppl", folder, "--ids", ids, "--against", "none", "--json", "--tables", t).stdout for t in ("memory", "disk"))
        figures = [{k: v for k, v in json.loads(x).items() if "second" not in k} for x in (a, b)]
        assert figures[0] == figures[1], figures
    bench = ["bench", folder, "-p", "32", "-n", "8", "-r", "1", "--tables", "disk"]
    assert re.search(r"tables on disk: [1-9]\d*\.\d KB read a token", run(*bench).stdout)
    row = json.loads(run(*bench, "--json").stdout)[0]
    assert row["table_bytes_per_token"] > 0 and 0 <= row["table_wait_share"] < 1, row


def test_server(folder, size):
    """Requests side by side, with the model's own draft head, which looks up rows of the same table; and what is counted."""
    def answers(*more):
        s = Server([weft, "serve", folder, "--port", "0", "--port-file", "{port_file}", "--draft-kind", "head", *more], env=env)
        got = [None] * 4

        def ask(i):
            body = {"temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": PERU + " Why?" * i}]}
            got[i] = s.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        m = {k: v for k, v in s.metrics().items() if k.startswith("weft_table")}
        s.close()
        return got, m

    (want, none), (got, m) = answers("--tables", "memory"), answers("--tables", "disk")
    assert got == want and all(want), (got, want)
    assert not none, none
    assert m["weft_tables"] == 1 and m["weft_table_bytes"] == size and m["weft_table_rows_failed_total"] == 0, m
    assert m["weft_table_rows_total"] > 4 * 20 and 0 < m["weft_table_reads_total"] <= m["weft_table_rows_total"], m
    assert m["weft_table_read_bytes_total"] >= 4096 * m["weft_table_reads_total"] and "weft_table_wait_seconds_total" in m, m


with tempfile.TemporaryDirectory() as folder:
    size = untied(folder)
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 4 or name in sys.argv[3:]):
            test(folder, size)
            print("ok", name)
