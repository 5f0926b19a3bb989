#!/usr/bin/python3
"""`weft ppl` against the same figures computed naively from what `weft logits` writes.
Run as: test_ppl.py WEFT MODELS HELD_OUT_TEXT"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy")
    sys.exit(77)

WEFT, MODELS, TEXT = sys.argv[1:4]
TINY, QUANT = (os.path.join(MODELS, n) for n in ("weft-tiny", "weft-tiny-4bit"))
CTX = "300"


def run(*args, code=0):
    p = subprocess.run([WEFT, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240)
    assert p.returncode == code, "%s: exit %d, not %d\n%s\n%s" % (args, p.returncode, code, p.stdout, p.stderr)
    return p


def ppl(*args):
    p = run("ppl", *args, "--json")
    assert not p.stderr, p.stderr
    return json.loads(p.stdout)


def tensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    t = head["logits"]
    return np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"]).astype(np.float64)


def logits(work, model, ids, *args):
    path = os.path.join(work, "ids.json")
    with open(path, "w") as f:
        json.dump(ids, f)
    run("logits", model, "--ids", path, "--out", path + ".out", *args)
    return tensors(path + ".out")


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def naive(work, model, texts, setting, against):
    kl, same, loss = [], [], [[], []]
    for ids in texts:
        q, p = (log_softmax(logits(work, model, ids, *a)) for a in (setting, against))
        kl += list((np.exp(p) * (p - q)).sum(axis=1))
        same += list(p.argmax(axis=1) == q.argmax(axis=1))
        for side, x in enumerate((p, q)):
            loss[side] += [-x[i, t] for i, t in enumerate(ids[1:])]
    kl = np.sort(kl)
    return {"kl_mean": kl.mean(), "kl_median": kl[-(-len(kl) // 2) - 1], "kl_p999": kl[-(-len(kl) * 999 // 1000) - 1], "kl_max": kl[-1],
            "same_top": np.mean(same), "against_perplexity": np.exp(np.mean(loss[0])), "perplexity": np.exp(np.mean(loss[1])),
            "kl_standard_error": kl.std(ddof=1) / np.sqrt(len(kl))}


def compare(work, model, texts, args, setting, against):
    path = os.path.join(work, "texts.json")
    with open(path, "w") as f:
        json.dump(texts, f)
    got = ppl(model, "--ids", path, *setting, *args)
    want = naive(work, model, texts, setting, against)
    assert got["tokens"] == sum(map(len, texts)) and got["texts"] == len(texts)
    assert got["scored"] == sum(len(t) - 1 for t in texts)
    for key, v in want.items():
        assert abs(got[key] - v) <= 1e-6 * abs(v) + 1e-12, (args, key, got[key], v)
    assert got["kl_max"] > 0


def main():
    work = tempfile.TemporaryDirectory()
    pieces = open(TEXT, encoding="utf-8", newline="").read().split("\f")
    short = [p for p in pieces if len(p) < 900][:3]
    texts = [json.loads(run("tokenize", TINY, "--special", p).stdout) for p in short]

    f32 = ["--arith", "f32"]
    compare(work.name, TINY, texts, ["--against", "exact"], [], f32)
    compare(work.name, QUANT, texts, ["--against", "exact"], [], f32)
    compare(work.name, TINY, [texts[0][:1], texts[1]], ["--against", "exact"], [], f32)

    # A text is its ids; a form feed parts texts, and two of them have none between.
    path = os.path.join(work.name, "text")
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write("\f".join([short[0], "", short[1]]))
    with open(path + ".json", "w") as f:
        json.dump(texts[:2], f)
    by_text = ppl(TINY, "--text", path, "--special", "--against", "exact")
    by_ids = ppl(TINY, "--ids", path + ".json", "--against", "exact")
    assert by_text.pop("read") == path and by_ids.pop("read") == path + ".json"
    assert by_text == by_ids

    # Longer ones are cut, and how they are computed changes nothing.
    ids = json.loads(run("tokenize", TINY, "--special", pieces[0]).stdout)[:310]
    with open(path + ".json", "w") as f:
        json.dump(ids, f)
    with open(path + ".cut.json", "w") as f:
        json.dump([ids[:300], ids[300:]], f)
    whole = ppl(TINY, "--ids", path + ".json", "-c", CTX, "--against", "exact")
    for args in (["--prefill-step-size", "7"], ["-t", "1"], ["--prefill-step-size", "4096"]):
        assert ppl(TINY, "--ids", path + ".json", "-c", CTX, "--against", "exact", *args) == whole, args
    cut = ppl(TINY, "--ids", path + ".cut.json", "-c", CTX, "--against", "exact")
    assert {**cut, "read": ""} == {**whole, "read": ""} and whole["texts"] == 2

    # Nothing to compare: perplexity alone, and the same.
    alone = ppl(TINY, "--ids", path + ".json", "-c", CTX)
    assert alone["perplexity"] == whole["perplexity"] and "kl_mean" not in alone and "against" not in alone
    assert ppl(TINY, "--ids", path + ".json", "-c", CTX, "--against", "none") == alone
    table = run("ppl", TINY, "--ids", path + ".json", "-c", CTX, "--against", "exact").stdout
    assert "\nKL divergence  mean " in table and "\nagainst        f32 arithmetic, f32 in attention layers 0-1 of 2" in table, table

    # What is refused, and by what name.
    def refused(*args, code=2):
        return run("ppl", *args, code=code).stderr

    assert "--text FILE or --ids FILE is needed" in refused(TINY)
    assert "--text a and --ids b" in refused(TINY, "--text", "a", "--ids", "b")
    assert "--special is about --text" in refused(TINY, "--special", "--ids", "b")
    assert "'neither' is not one of bf16|exact|none" in refused(TINY, "--ids", "b", "--against", "neither")
    assert "/no/such" in refused(TINY, "--text", "/no/such", code=1)
    for text, message in (("[]", "an empty array"), ("[[1], []]", "an empty array"), ("7", "integer"), ("[1, -1]", "element 1"),
                          ("[[1, 2], [3.5]]", "element 0"), ("[1, 99999]", "element 1 is 99999"), ("[5]", "1 tokens"), ("[1,", "ids.json")):
        bad = os.path.join(work.name, "ids.json")
        with open(bad, "w") as f:
            f.write(text)
        p = refused(TINY, "--ids", bad, code=1)
        assert message in p and p.count("\n") == 1, (text, p)
    with open(path, "wb") as f:
        f.write(b"abc\xff")
    assert path in refused(TINY, "--text", path, code=1)


main()
