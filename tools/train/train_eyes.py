"""Train weft-tiny-eyes: a tower, and a copy of weft-tiny's text model that learns to read its rows, on generated pictures.

    nice -n 5 /usr/bin/python3 tools/train/train_eyes.py --run tools/train/runs/eyes --until 13:25
    /usr/bin/python3 tools/train/train_eyes.py --run tools/train/runs/eyes --export models/weft-tiny-eyes

In the first steps the tower is trained alone, by a linear reading of its rows (what stands where, how many, which digit): that is
cheap. Then both by the answers of the text model to questions about pictures, a few about each; one step in five is of text alone.
Every batch is of new pictures, so that what would have been answered before the batch was learned from is a fair score: it is
logged by kind of question. Goes on from a checkpoint when started again; the schedule follows the clock.
"""
import argparse
import collections
import os
import random
import shutil
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

import data
import export
import eyes
import model
import pictures
import train
from check_model import load_hf
from render import render
from tok import Tokenizer
from train import Optim

SIZES = [((128, 128), .6), ((160, 96), .1), ((96, 160), .1), ((128, 96), .1), ((96, 128), .1)]
QUESTIONS = 1, 1, 1, 1, 3       # about a picture: an answer tells of the next ones
READ = 9 * (len(pictures.SHAPES) + 1 + len(pictures.COLOURS) + 1) + 7 + 11      # what the linear reading says

CELL = [len(pictures.SHAPES) + 11, len(pictures.COLOURS) + 1, len(pictures.PLACES) + 1]        # and what it says of each row


def conversation(r, scene):
    """-> (messages, kinds of its answers)"""
    q = pictures.questions(r, scene)
    # a description and a count are as frequent as any other kind, however many shapes there are
    by = collections.defaultdict(list)
    for x in q:
        by[x[0]].append(x)
    kinds = [k for k in sorted(by) if k != "unknown" or r.random() < .35]
    r.shuffle(kinds)
    asked = [r.choice(by[k]) for k in kinds[:r.choice(QUESTIONS)]]
    if r.random() < .06:
        f = data.fact_question(r, False)
        asked.insert(r.randint(0, len(asked)), ("fact", f[0], f[1]))
    mark = eyes.START + eyes.PAD + eyes.END
    out = []
    for i, (_, question, answer) in enumerate(asked):
        if i == 0:
            question = mark + question if r.random() < .7 else question + mark
        out += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return out, [k for k, _, _ in asked]


def read_of(scene):
    """Targets of the linear reading, -1 for what is not asked."""
    shapes, colours, places = sorted(pictures.SHAPES), sorted(pictures.COLOURS), sorted(pictures.PLACES)
    at = [[-1, -1] for _ in places]
    count, digit = -1, -1
    if scene["kind"] == "shapes":
        at = [[0, 0] for _ in places]
        for it in scene["items"]:
            at[places.index(it["place"])] = [1 + shapes.index(it["kind"]), 1 + colours.index(it["colour"])]
    if scene["kind"] == "digit":
        digit = scene["items"][0]["kind"]
    else:
        count = len(scene["items"])
    return [x for p in at for x in p] + [count, digit]


def cells_of(scene, R, C):
    """Of each row of the prompt, what has its middle there: shape or digit, colour, place; 0 for nothing, -1 for what is not asked."""
    out = [[0, 0, 0] for _ in range(R * C)]
    for it in scene["items"]:
        kind = 1 + sorted(pictures.SHAPES).index(it["kind"]) if it["kind"] in pictures.SHAPES else 1 + len(pictures.SHAPES) + it["kind"]
        place = 1 + sorted(pictures.PLACES).index(it["place"]) if "place" in it else -1
        out[min(R - 1, int(it["y"] * R)) * C + min(C - 1, int(it["x"] * C))] = [kind, 1 + sorted(pictures.COLOURS).index(it["colour"]), place]
    return out


def cells_loss(cells, seen, want):
    """One linear reading for every row: what the text model attends to has to be told by the row itself, not by where it stands."""
    z = cells(seen * 10).split(CELL, -1)
    total = 0
    for k in range(3):
        for some, weight in (want[..., k] > 0, 1), (want[..., k] == 0, .3):
            total = total + weight * F.cross_entropy(z[k][some], want[..., k][some])
    return total


def batch(r, t, n, talk, alone=.25):
    """-> pictures, targets of both readings; of the first `talk` also ids, positions, documents, number of the answer by token, kinds by answer"""
    size = r.choices([s for s, _ in SIZES], [w for _, w in SIZES])[0]
    R, C = size[1] // 32, size[0] // 32
    pad = t.special[eyes.PAD]
    ims, ids, at, doc, answer, kinds, read, cells = [], [], [], [], [], [], [], []
    for k in range(n):
        scene = pictures.scene(r, alone=alone)
        ims.append(pictures.draw(scene, *size))
        read.append(read_of(scene))
        cells.append(cells_of(scene, R, C))
        if k >= talk:
            continue
        messages, asked = conversation(r, scene)
        x, fl, number = [], [], len(kinds) - 1
        for text, flag in render(messages, blocks=True):
            y = []
            for v in t.encode(text):
                y += [pad] * (R * C) if v == pad else [v]
            number += flag
            x += y
            fl += [number if flag else -1] * len(y)
        ids += x
        at += eyes.positions(x, pad, [(R, C)])
        doc += [k] * len(x)
        answer += fl
        kinds += asked
    fill = -len(ids) % 64
    return (np.stack(ims), torch.tensor(read), torch.tensor(cells), torch.tensor([ids + [0] * fill]), torch.tensor([at + [(0,) * 3] * fill]), torch.tensor([doc + [-1] * fill]),
            np.array(answer + [-1] * fill), kinds)


def read_loss(reading, seen, shape, want):
    """-> loss, shares right: of places, counts, digits"""
    grid = seen.view(len(seen), shape[1] // 32, shape[2] // 32, -1).permute(0, 3, 1, 2)
    z = reading(F.interpolate(grid, (4, 4), mode="bilinear", align_corners=True).flatten(1) * 10)
    a, b = len(pictures.SHAPES) + 1, len(pictures.COLOURS) + 1
    place = z[:, :9 * (a + b)].view(-1, 9, a + b)
    loss = lambda z, w: F.cross_entropy(z.reshape(-1, z.shape[-1]), w.reshape(-1), ignore_index=-1, reduction="sum")
    w = want[:, :18].view(-1, 9, 2)
    total = loss(place[..., :a], w[..., 0]) + loss(place[..., a:], w[..., 1]) + 2 * loss(z[:, -18:-11], want[:, 18]) + 2 * loss(z[:, -11:], want[:, 19])
    right = lambda z, w, ok: (z.argmax(-1) == w)[ok].float().mean().item()
    return total / len(want), [right(place[..., :a], w[..., 0], w[..., 0] > 0), right(place[..., a:], w[..., 1], w[..., 1] > 0), right(z[:, -18:-11], want[:, 18], want[:, 18] >= 0),
                               right(z[:, -11:], want[:, 19], want[:, 19] >= 0)]


def update(opt, muon, adam):
    """One step of what has gradients; those outside Muon clipped to a norm of 1."""
    grads = {n: x.grad for n, x in opt.p.items() if x.grad is not None}
    norm = float(torch.stack([g.norm() for n, g in grads.items() if opt.kind[n] == "adam"]).norm())
    for n, g in grads.items():
        if opt.kind[n] == "adam" and norm > 1:
            g.mul_(1 / norm)
    opt.step(muon, adam, list(grads), grads)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--run", required=True)
    ap.add_argument("--model", default="models/weft-tiny")
    ap.add_argument("--until", help="HH:MM")
    ap.add_argument("--look", type=int, default=600, help="steps in which the tower is trained alone")
    ap.add_argument("--pictures", type=int, default=36, help="in a batch")
    ap.add_argument("--muon", type=float, default=.02)
    ap.add_argument("--adam", type=float, default=.003)
    ap.add_argument("--text", type=float, default=.4, help="rate of the text model's weights by that of the tower's; 0: they are frozen")
    ap.add_argument("--every", type=int, default=5, help="one step in so many is of text alone, so that it is not forgotten")
    ap.add_argument("--reading", type=float, default=.1, help="weight of the reading beside the answers at first; it falls to 0")
    ap.add_argument("--decay", type=float, default=.6, help="share of the time in which the rate falls to 0")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--export", help="write the tower into this folder and end")
    a = ap.parse_args()
    torch.set_num_threads(1)
    os.makedirs(a.run, exist_ok=True)
    last = a.run + "/last.pt"
    torch.manual_seed(a.seed)
    tower = eyes.Tower(ctype=torch.bfloat16)
    if a.export:
        z = torch.load(last)
        tower.load_state_dict(z["tower"])
        os.makedirs(a.export, exist_ok=True)
        for f in "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja":
            shutil.copyfile(f"{a.model}-8bit/{f}", f"{a.export}/{f}")
        eyes.write(a.export, tower, export.mlx_tensors(z["model"], 8))
        print(z["meta"])
        return
    model.use_fused()
    t = Tokenizer.load(a.model)
    pad = t.special[eyes.PAD]
    m = load_hf(a.model)
    m.ctype = torch.bfloat16
    m.mtp = None
    m.requires_grad_(a.text > 0)
    text = Optim(m)
    reading = torch.nn.Linear(16 * tower.c["out_hidden_size"], READ)
    cells = torch.nn.Linear(tower.c["out_hidden_size"], sum(CELL))
    opt, opt2 = Optim(tower), torch.optim.Adam([{"params": reading.parameters()}, {"params": cells.parameters(), "lr": 1e-2}], 1e-3)
    meta = {"step": 0, "tokens": 0, "pictures": 0}
    if os.path.exists(last):
        z = torch.load(last)
        tower.load_state_dict(z["tower"])
        reading.load_state_dict(z["reading"])
        opt.state, opt.t, meta = z["state"], z["t"], z["meta"]
        if "cells" in z:
            cells.load_state_dict(z["cells"])
        if "model" in z:
            m.load_state_dict(z["model"])
            text.state, text.t = z["text"], z["text_t"]
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))

    def save():
        torch.save({"tower": tower.state_dict(), "reading": reading.state_dict(), "state": opt.state, "t": opt.t, "meta": meta, "cells": cells.state_dict(), "model": m.state_dict(), "text": text.state, "text_t": text.t}, last + ".new")
        os.replace(last + ".new", last)

    h, mnt = map(int, a.until.split(":"))
    now = time.localtime()
    end = time.time() + ((h * 60 + mnt - now.tm_hour * 60 - now.tm_min) % 1440) * 60 - now.tm_sec
    good, sums, saved = collections.defaultdict(list), np.zeros(4), time.time()
    gen = torch.Generator().manual_seed(a.seed)
    log = open(a.run + "/log.txt", "a")
    while not stop and time.time() < end:
        talk = meta["step"] >= a.look
        if talk:
            meta.setdefault("talk", time.time())
        done = (time.time() - meta["talk"]) / (end - meta["talk"]) if talk else 0
        ims, want, rows, ids, at, doc, answer, kinds = batch(random.Random(a.seed * 1000003 + meta["step"]), t, a.pictures, a.pictures if talk else 0, max(.25, .8 - 2 * done) if talk else .25)
        seen = tower(ims)
        extra, right = read_loss(reading, seen, ims.shape, want)
        own = cells_loss(cells, seen, rows)
        loss = torch.zeros(())
        if talk:
            f = eyes.hidden(m, ids, seen.flatten(0, 1), pad, eyes.Sight(doc, at, m.cfg))
            p = np.nonzero(answer[1:] >= 0)[0]
            target, owner = ids[0, p + 1], torch.from_numpy(answer[p + 1])
            logits = m.logits(f[0, p])
            loss = F.cross_entropy(logits, target)
            wrong = set(owner[logits.argmax(-1) != target].tolist())
            for i, k in enumerate(kinds):
                good[k].append(i not in wrong)
        for k, v in zip(("of shapes", "of colours", "of counts", "of digits"), right):
            if v == v:
                good[k].append(v)
        tower.zero_grad()
        opt2.zero_grad()
        (loss + (a.reading * (1 - done) if talk else .1) * extra + (.2 * (1 - done) + .02) * own).backward()
        rate = min(1, (opt.t + 1) / 50) * min(1, (1 - done) / a.decay)
        update(opt, a.muon * rate, a.adam * rate)
        if talk and a.text:
            rate *= a.text * min(1, (text.t + 1) / 20)
            update(text, a.muon * rate, a.adam * rate)
            m.zero_grad()
            if meta["step"] % a.every == 0:
                train.losses(m, *train.batch(t, a.seed * 1000003 + meta["step"], .5, data.MIX, 2048), gen)[0].backward()
                update(text, a.muon * rate, a.adam * rate)
                m.zero_grad()
        opt2.step()
        sums += float(loss), float(extra), float(own), 1
        meta["step"], meta["pictures"], meta["tokens"] = meta["step"] + 1, meta["pictures"] + len(ims), meta["tokens"] + ids.shape[1]
        if meta["step"] % 25 == 0:
            line = f"{time.strftime('%H:%M:%S')} step {meta['step']} pictures {meta['pictures']} tokens {meta['tokens']} loss {sums[0] / sums[3]:.4f} readings {sums[1] / sums[3]:.3f} {sums[2] / sums[3]:.3f}  " + \
                "  ".join(f"{k} {np.mean(v):.2f}" for k, v in sorted(good.items()))
            print(line, flush=True)
            log.write(line + "\n")
            log.flush()
            good, sums = collections.defaultdict(list), np.zeros(4)
        if time.time() - saved > 120 or meta["step"] == a.look:
            save()
            saved = time.time()
    save()


if __name__ == "__main__":
    main()
