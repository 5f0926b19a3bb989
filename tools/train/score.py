"""Exact-match scores of a checkpoint on held-out samples, in torch, to steer the training.

    /usr/bin/python3 tools/train/score.py tools/train/runs/tiny/last.pt [samples per task] [--train]

Greedy decoding gives the expected text exactly when every expected token is the argmax given the ones
before it, so one forward pass over packed conversations scores them all; nothing is generated.
"""
import collections
import json
import os
import random
import sys

import numpy as np
import torch

import data
import model
import train
from render import render
from tok import Tokenizer

SETS = [("facts", dict(task="facts")), ("unknown", dict(task="unknown")), ("arithmetic", dict(task="arithmetic")), ("spell", dict(task="spell")), ("lists", dict(task="lists")),
        ("multiturn", dict(task="multiturn")), ("tools", dict(task="tools")), ("json", dict(task="json")), ("chat", dict(task="chat")),
        ("recall 250", dict(task="recall", tokens=250)), ("recall 1000", dict(task="recall", tokens=1000)), ("recall 1800", dict(task="recall", tokens=1700))]


def last_answer(t, s):
    """ids, and 1 where the last answer (what the model must write) stands"""
    ids, fl = [], []
    for text, flag in render(s["messages"], s["tools"]):
        x = t.encode(text)
        ids += x
        fl += [flag] * len(x)
    # only what follows the last prompt counts: cut flags before the last zero run but the think block split
    n = len(fl)
    runs, i = [], 0
    while i < n:
        j = i
        while j < n and fl[j] == fl[i]:
            j += 1
        runs.append((fl[i], i, j))
        i = j
    ones = [r for r in runs if r[0]]
    out = np.zeros(n, np.float32)
    out[ones[-1][1]:ones[-1][2]] = 1
    if s["think"] and len(ones) > 1 and ones[-1][1] == ones[-2][2]:
        out[ones[-2][1]:ones[-2][2]] = 1
    return ids, out


def pack(t, samples, T):
    rows, cur = [], []
    left = T
    for k, s in enumerate(samples):
        ids, fl = last_answer(t, s)
        if len(ids) > T:
            continue
        if len(ids) > left:
            rows.append(cur)
            cur, left = [], T
        cur.append((k, ids, fl))
        left -= len(ids)
    return rows + [cur]


@torch.no_grad()
def score(m, t, samples, T=512):
    ok = {}
    rows = pack(t, samples, T)
    per = max(1, 8192 // T)
    for i in range(0, len(rows), per):
        part = rows[i:i + per]
        ids, doc, flag = np.zeros((len(part), T), np.int64), np.full((len(part), T), -1, np.int64), np.zeros((len(part), T), np.float32)
        for b, row in enumerate(part):
            at = 0
            for k, x, f in row:
                ids[b, at:at + len(x)], doc[b, at:at + len(x)], flag[b, at:at + len(x)] = x, k, f
                at += len(x)
        x = torch.from_numpy(ids)
        f = m.hidden(x, model.Batch(torch.from_numpy(doc), m.cfg))
        # position p predicts the token at p+1
        p = torch.from_numpy(flag[:, 1:]).bool()
        pred = m.logits(f[:, :-1][p]).argmax(-1).numpy()
        want, owner = ids[:, 1:][p.numpy()], doc[:, 1:][p.numpy()]
        for k, a, b in zip(owner, pred, want):
            ok[k] = ok.get(k, True) and a == b
    return ok


def load(path, ctype=torch.bfloat16):
    if os.path.isdir(path):                             # an exported folder
        size = "tiny" if json.load(open(os.path.join(path, "config.json")))["text_config"]["num_hidden_layers"] == 8 else "draft"
        m = model.Model(train.config(size), ctype)
        train.load_folder(m, path)
        return m, {"step": 0, "tokens": 0}
    z = torch.load(path)
    size = "tiny" if "layers.7.mlp.up_proj.weight" in z["model"] else "draft"
    m = model.Model(train.config(size), ctype)
    m.load_state_dict(z["model"])
    return m, z["meta"]


def main():
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    test = "--train" not in sys.argv
    torch.set_num_threads(1)
    model.use_fused()
    m, meta = load(sys.argv[1])
    t = Tokenizer.load("models/weft-tiny")
    print("step", meta["step"], "tokens", meta["tokens"], "held-out" if test else "training distribution")
    total = []
    only = [x[7:].split(",") for x in sys.argv if x.startswith("--only=")]
    for name, kw in SETS:
        if only and name not in only[0]:
            continue
        r = random.Random(zlib_seed(name))
        long = kw.get("tokens", 0) > 400
        samples = [data.make(r, test, **kw) for _ in range(n // 2 if long else n)]
        ok = score(m, t, samples, 2304 if long else 768)
        by = collections.defaultdict(list)
        wrong = []
        for k, v in ok.items():
            by[samples[k]["task"]].append(v)
            if not v:
                wrong.append(samples[k])
        print(f"{name:12s} {np.mean(list(ok.values())):.3f} of {len(ok)}   " + "  ".join(f"{k} {np.mean(v):.2f}/{len(v)}" for k, v in sorted(by.items())), flush=True)
        if "-v" in sys.argv:
            for s in wrong[:6]:
                print("      wrong:", repr(s["messages"][-2].get("content", ""))[-90:], "->", repr(s["messages"][-1].get("content") or s["messages"][-1].get("tool_calls"))[:90])


def zlib_seed(name):
    import zlib
    return zlib.crc32(name.encode())


if __name__ == "__main__":
    main()
