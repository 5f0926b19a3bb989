#!/usr/bin/python3
"""The law of the row through the program: `weft logits --arith fast` writes the same
bytes whatever --split, --alongside, --resume-at, --threads and --draft say.

    law_program.py WEFT FOLDER...

A prompt of 300 tokens and 20 greedy steps.  Of the first folder every third --resume-at
is tried at the best level, a tenth of those elsewhere: law_test takes every one, and here
each costs a start of the program.  Each level that this
machine has is compared with its own plain run.  Below the best level, which takes up to
twenty times as long, the prompt has 150 tokens, and there is one way of each kind.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

N, FEW, GREEDY = 300, 150, 20
FOLDER = object()       # stands for the model itself


def levels(weft, folder, ids, out):
    """Names of the levels this machine has, best last."""
    r = subprocess.run([weft, "logits", folder, "--ids", ids, "--out", out, "--cpu", "none"], stderr=subprocess.PIPE, text=True)
    named = re.search(r"this machine has ([^)]*)\)", r.stderr)
    if not named:
        sys.exit("FAIL --cpu none: %s" % r.stderr.strip())
    return re.split(", | and ", named[1])


def few_ways():
    yield ("--split", "63,65,2,129")
    yield ("--split", "5,1", "--alongside", "2", "--resume-at", "123", "--threads", "3")
    yield ("--alongside", "3", "--threads", "2")
    yield ("--draft", "ngram", "--num-draft-tokens", "5")
    yield ("--draft", "model", "--draft-model", FOLDER, "--split", "5,1", "--resume-at", "160", "--threads", "3")
    yield ("--resume-at", "64")


def ways(every):
    yield from (("--split", s) for s in ("1", "7", "64", "1,7,64", "63,65,2,129", "300"))
    yield from (("--threads", str(t)) for t in (1, 2, 3))
    yield from (("--alongside", str(n)) for n in (1, 4))
    yield ("--split", "1,7,64", "--alongside", "3", "--threads", "2")
    yield ("--split", "5,1", "--alongside", "2", "--resume-at", "123", "--threads", "3")
    yield from (("--draft", "ngram", "--num-draft-tokens", str(k)) for k in (1, 5, 16))
    yield ("--draft", "model", "--draft-model", FOLDER, "--alongside", "2")
    yield ("--draft", "model", "--draft-model", FOLDER, "--split", "5,1", "--resume-at", "310", "--threads", "3")
    yield from (("--resume-at", str(k)) for k in range(1, N + GREEDY - 1, every))


def check(weft, folder, level, every, work):
    """every: of the places to resume at; 0: one way of each kind, over a shorter prompt."""
    ids, out = os.path.join(work, "ids.json"), os.path.join(work, "out.safetensors")
    bad = count = 0
    with open(ids, "w") as f:
        json.dump([(i * i * 7 + i * 13 + 5) % 509 % 384 for i in range(N if every else FEW)], f)

    def run(*options):
        r = subprocess.run([weft, "logits", folder, "--ids", ids, "--out", out, "--arith", "fast", "--cpu", level,
                            "--ctx-size", "512", "--greedy", str(GREEDY), "--log-level", "error", *options],
                           stderr=subprocess.PIPE, text=True)
        if r.returncode:
            sys.exit("FAIL %s %s: %s" % (folder, " ".join(options), r.stderr.strip()))
        with open(out, "rb") as f:
            return f.read()

    want = run("--threads", "1")
    for options in ways(every) if every else few_ways():
        count += 1
        if run(*(folder if o is FOLDER else o for o in options)) != want:
            bad += 1
            print("FAIL %s, %s: %s differs" % (folder, level, " ".join(map(str, options))))
    print("%s %s, %s: %d ways, the same bytes" % ("ok  " if not bad else "FAIL", folder, level, count), flush=True)
    return bad


def main():
    weft, folders = sys.argv[1], sys.argv[2:]
    quick, bad = bool(os.environ.get("WEFT_TEST_QUICK")), 0
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "ids.json"), "w") as f:
            json.dump([(i * i * 7 + i * 13 + 5) % 509 % 384 for i in range(N)], f)
        have = levels(weft, folders[0], os.path.join(work, "ids.json"), os.path.join(work, "out.safetensors"))
        for i, folder in enumerate(folders[:1] if quick else folders):
            for level in have[-1:] if quick else have:
                every = 0 if level != have[-1] else 100 if quick else 3 if i == 0 else 60
                bad += check(weft, folder, level, every, work)
    return 1 if bad else 0


sys.exit(main())
