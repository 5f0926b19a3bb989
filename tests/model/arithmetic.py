"""The number of the arithmetic (src/host/identity.h) against arithmetic.txt: digests of the logits of every family in
tests/golden and of the bundled one, by kind of cached keys and values, and of the states that a server keeps of it.  They
are the same on every processor.

    arithmetic.py WEFT [--few | --bundled] [--levels LEVEL,...] [--run COMMAND] [--write]

--few, or WEFT_TEST_QUICK: the bundled model and some others; --bundled: that one alone.  --levels: by default the last level here of each arithmetic.  --run: words
before the program, as `qemu-aarch64 -L DIR`.  --write: write the table, for a new number only."""
import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(TOP, "tests/model/arithmetic.txt")
KINDS = {"16": [], "8": ["--kv-bits", "8"], "4": ["--kv-bits", "4", "--tune", "kv-quant-scheme=uniform"],
         "turned": ["--kv-bits", "3", "--tune", "kv-quant-scheme=turboquant"], "f32": ["--tune", "arith=f32"]}
FEW = {"models/weft-tiny", "tests/golden/qwen3_5/mlx-q4", "tests/golden/mamba2_grouped/hf-bf16", "tests/golden/olmo3/mlx-q4"}
N = 150
PROMPT = "The sea is blue because light of other colours goes deeper. " * 12


def number():
    with open(os.path.join(TOP, "src/host/identity.h")) as f:
        return int(re.search(r"enum { ARITHMETIC = (\d+) }", f.read()).group(1))


def arithmetic_of(level):
    """The name of a level's orders of rounding (src/quant/format.h)."""
    return {"avx512bf16": "bf16", "amx": "bf16", "bf16": "bfmmla"}.get(level, "plain")


def models(o):
    found = ["models/weft-tiny"]
    if o.bundled:
        return found
    for d, folders, files in os.walk(os.path.join(TOP, "tests/golden")):
        folders[:] = [f for f in folders if not f.startswith("_")]  # parts of models, and models without logits
        if "config.json" in files and any(f.endswith(".safetensors") and not f.startswith(("golden", "draft", "vision"))
                                          for f in files):
            found.append(os.path.relpath(d, TOP))
    return sorted(f for f in found if not o.few or f in FEW)


def levels(weft):
    r = subprocess.run(weft + ["logits", "models/weft-tiny", "--ids", "x", "--out", "x", "--cpu", "none"], cwd=TOP,
                       stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    here = re.search(r"this machine has ([^)]*)\)", r.stderr).group(1).replace(" and ", ", ").split(", ")
    return list({arithmetic_of(level): level for level in here}.values())


def logits(weft, level, model, kind, tmp):
    """The digest of a model's logits; None: it cannot be read so."""
    out = os.path.join(tmp, "out")
    ids = os.path.join(tmp, "ids.json")
    with open(ids, "w") as f:
        json.dump([i * 7 % 60 + 1 for i in range(N)], f)  # vocabularies have 64 words and more
    r = subprocess.run(weft + ["logits", model, "--ids", ids, "--out", out, "--cpu", level, "--threads", "2"] + KINDS[kind],
                       cwd=TOP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if r.returncode > 0 and "head" in r.stderr:  # a kind that is not for heads of this size
        return None
    assert r.returncode == 0, (model, kind, level, r.returncode, r.stderr[-2000:])
    with open(out, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:32]


def states(weft, level, tmp):
    """The digest of what a server of the bundled model keeps of a prompt: tokens and payloads, without the heads, which
    hold the identity."""
    kept, port = os.path.join(tmp, "kept-" + level), os.path.join(tmp, "port-" + level)
    with open(os.path.join(tmp, "log"), "w+") as log:
        p = subprocess.Popen(weft + ["serve", "models/weft-tiny", "--port", "0", "--port-file", port, "--cpu", level, "--threads",
                                     "2", "--prompt-cache-dir", kept], cwd=TOP, stdout=log, stderr=log)
        try:
            while not os.path.exists(port) and p.poll() is None:
                time.sleep(0.02)
            assert p.poll() is None, open(log.name).read()
            with open(port) as f:
                at = int(f.read())
            body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
            request = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % at, json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=600).read()
        finally:
            p.send_signal(signal.SIGTERM)
            code = p.wait()
        assert code == 0, (code, open(log.name).read())
    parts = []
    for d, _, files in os.walk(kept):
        for name in files:
            if name.endswith((".page", ".snap")):
                with open(os.path.join(d, name), "rb") as f:
                    data = f.read()
                parts.append(hashlib.sha256(data[160:]).digest())
    assert parts, "nothing was kept"
    return hashlib.sha256(b"".join(sorted(parts))).hexdigest()[:32]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("weft")
    args.add_argument("--few", action="store_true")
    args.add_argument("--bundled", action="store_true")
    args.add_argument("--levels")
    args.add_argument("--run", default="")
    args.add_argument("--write", action="store_true")
    o = args.parse_args()
    o.few |= bool(os.environ.get("WEFT_TEST_QUICK"))
    weft = o.run.split() + [os.path.abspath(o.weft)]
    now, lines = {}, []
    with tempfile.TemporaryDirectory() as tmp:
        for level in o.levels.split(",") if o.levels else levels(weft):
            for model in models(o):
                for kind in KINDS:
                    d = logits(weft, level, model, kind, tmp)
                    if d:
                        now.setdefault((model, kind, "f32" if kind == "f32" else arithmetic_of(level)), set()).add(d)
            now.setdefault(("models/weft-tiny", "states", arithmetic_of(level)), set()).add(states(weft, level, tmp))
    table, of = {}, None
    if os.path.exists(TABLE):
        with open(TABLE) as f:
            for line in f:
                if line.startswith("arithmetic"):
                    of = int(line.split()[1])
                elif not line.startswith("#"):
                    d, kind, arithmetic, model = line.split()
                    table[model, kind, arithmetic] = d
    for key, d in sorted(now.items()):
        if len(d) > 1:
            lines.append("%s %s %s: levels of one arithmetic disagree" % key)
        elif key not in table:
            lines.append("%s %s %s: not in the table" % key)
        elif d != {table[key]}:
            lines.append("%s %s %s: other bits" % key)
    for key in table:
        if key not in now and key[0] in models(o) and key[2] in {k[2] for k in now}:
            lines.append("%s %s %s: in the table, and cannot be computed" % key)
    if of != number():
        lines.append("the table is of arithmetic %s, the program of %d" % (of, number()))
    if o.write:
        changed = [line for line in lines if line.endswith("other bits")]
        if changed and of == number():
            sys.exit("\n".join(changed) + "\na change of bits takes a new number: ARITHMETIC in src/host/identity.h")
        table.update({key: min(d) for key, d in now.items()})
        with open(TABLE, "w") as f:
            f.write("# Digests of logits and of kept states, by kind of keys and values and by arithmetic: tests/model/arithmetic.py.\n")
            f.write("arithmetic %d\n" % number())
            for (model, kind, arithmetic), d in sorted(table.items()):
                f.write("%s %s %s %s\n" % (d, kind, arithmetic, model))
        return
    if lines:
        print("\n".join(lines))
        sys.exit("the arithmetic is not that of tests/model/arithmetic.txt.  A change that is meant takes the next number in "
                 "src/host/identity.h, and then: tests/model/arithmetic.py WEFT --write")
    print("%d digests of arithmetic %d" % (len(now), number()))


main()
