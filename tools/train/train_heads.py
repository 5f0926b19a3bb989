"""Train draft heads of weft-tiny (heads.py) on generated conversations, all over one pass of the model.

    nice -n 15 /usr/bin/python3 tools/train/train_heads.py --run tools/train/runs/heads --until 15:00

Stops at the end of the schedule; started again with the same --run it goes on from the last checkpoint, which is written
every minute. With --export the checkpoint is written as folders, weft-tiny-eagle3, weft-tiny-dflash and weft-tiny-dflash2.
"""
import argparse
import collections
import multiprocessing as mp
import os
import random
import time

import torch

import data
import heads
import model
import st
from model import Batch, Model
from tok import Tokenizer
import train
from train import Optim, config, encode, feeder, load_folder


def tokens_of(tokenizer, n):
    """The tokens that assistants say most, of generated conversations, and their share."""
    r, seen = random.Random(7), collections.Counter()
    for _ in range(6000):
        ids, flags = encode(tokenizer, data.make(r), r.random() < 0.5)
        seen.update(i for i, flag in zip(ids, flags) if flag)
    most = sorted(i for i, _ in seen.most_common(n))
    return most, sum(seen[i] for i in most) / sum(seen.values())


def target(folder):
    m = Model(config("tiny"), torch.bfloat16)
    load_folder(m, folder)
    for p in m.parameters():
        p.requires_grad_(False)
    return m


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--run", required=True)
    ap.add_argument("--model", default="models/weft-tiny")
    ap.add_argument("--minutes", type=float, default=60, help="length of the schedule from the first start")
    ap.add_argument("--until", default="", help="HH:MM instead of --minutes")
    ap.add_argument("--heads", default="eagle3,dflash,dflash2", help="which, separated by commas")
    ap.add_argument("--begin", metavar="FOLDER", help="a DFlash head whose weights the DFlash 2 head begins with")
    ap.add_argument("--tokens", type=int, default=1024, help="that the EAGLE-3 head can guess")
    ap.add_argument("--batch", type=int, default=2048, help="tokens in a batch")
    ap.add_argument("--muon", type=float, default=0.02)
    ap.add_argument("--adam", type=float, default=0.002)
    ap.add_argument("--decay", type=float, default=0.7, help="share of the schedule in which the rate falls linearly to zero")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--export", metavar="FOLDER", help="write the folders there, and stop")
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    os.makedirs(a.run, exist_ok=True)
    model.use_fused()
    m, ck = target(a.model), a.run + "/last.pt"
    z = torch.load(ck) if os.path.exists(ck) else None
    if z:
        tokens = z["tokens"]
    else:
        tokens, share = tokens_of(Tokenizer.load(a.model), a.tokens)
        print("%d tokens are %.2f %% of what assistants say" % (len(tokens), 100 * share), flush=True)
    kinds = {"eagle3": lambda: heads.Eagle(m, tokens), "dflash": lambda: heads.Flash(m), "dflash2": lambda: heads.Flash2(m)}
    net = {k: kinds[k]() for k in a.heads.split(",")}
    if a.begin and not z:
        net["dflash2"].load_state_dict({k: torch.tensor(v) for k, v in st.load(a.begin + "/model.safetensors").items()}, strict=False)
    opt = {k: Optim(h) for k, h in net.items()}
    meta = {"step": 0, "start": time.time()}
    if z:
        meta = z["meta"]
        for k in net:
            net[k].load_state_dict(z[k])
            opt[k].state, opt[k].t = z["opt"][k]
    if a.export:
        for k in net:
            net[k].folder("%s/weft-tiny-%s" % (a.export, k), m.cfg["vocab_size"])
        return
    end = meta["start"] + 60 * a.minutes
    if a.until:
        now = time.localtime()
        hour, minute = map(int, a.until.split(":"))
        end = time.mktime((now.tm_year, now.tm_mon, now.tm_mday, hour, minute, 0, 0, 0, -1))
    print({k: sum(p.numel() for p in h.parameters()) for k, h in net.items()}, "parameters", flush=True)
    train.ROWS_OF[:] = [(512, False), (512, False), (1024, True), (2048, True)]     # long rows cost more
    q, progress = mp.Queue(4), mp.Value("d", 0.0)
    mp.Process(target=feeder, args=(q, a.model, a.seed + 1000, meta["step"], progress, dict(data.MIX), a.batch, 0, 1), daemon=True).start()
    gen = torch.Generator()
    gen.manual_seed(a.seed + meta["step"])
    seen, saved, last = {}, time.time(), time.time()
    while True:
        done = progress.value = min(1.0, (time.time() - meta["start"]) / (end - meta["start"]))
        rate = min(1.0, (1 - done) / a.decay) * min(1.0, (meta["step"] + 1) / 60)
        ids, doc, flag = (torch.from_numpy(x) for x in q.get())
        w = heads.Work(m, Batch(doc, m.cfg), ids, doc, flag)
        for k, h in net.items():
            loss, right = h.loss(w) if k == "eagle3" else h.loss(w, gen)
            if not torch.isfinite(loss):
                continue
            loss.backward()
            grads = {n: p.grad for n, p in h.named_parameters()}
            opt[k].step(a.muon * rate, a.adam * rate, list(grads), grads)
            h.zero_grad(set_to_none=True)
            new = [float(loss.detach())] + right
            seen[k] = [0.95 * x + 0.05 * y for x, y in zip(seen[k], new)] if k in seen else new
        meta["step"] += 1
        if meta["step"] % 20 == 0:
            print(time.strftime("%H:%M:%S"), "step", meta["step"], "rate %.3f" % rate, "%.0f tok/s" % (20 * a.batch / (time.time() - last)),
                  *("%s %s" % (k, " ".join("%.3f" % x for x in v)) for k, v in seen.items()), flush=True)
            last = time.time()
        if time.time() - saved > 60 or done >= 1:
            torch.save({"tokens": tokens, "meta": meta, "opt": {k: (o.state, o.t) for k, o in opt.items()},
                        **{k: h.state_dict() for k, h in net.items()}}, ck + ".new")
            os.replace(ck + ".new", ck)
            saved = time.time()
        if done >= 1:
            break


if __name__ == "__main__":
    main()
