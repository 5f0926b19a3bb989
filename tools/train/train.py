"""Train weft-tiny (or its drafter) on generated conversations, with a schedule that follows the clock.

    nice -n 5 /usr/bin/python3 tools/train/train.py --run tools/train/runs/tiny --minutes 95

Stops at the end of the schedule; started again with the same --run it goes on from the last checkpoint.
"""
import argparse
import json
import math
import multiprocessing as mp
import os
import random
import signal
import time

import numpy as np
import torch
import torch.nn.functional as F

import data
import model
import st
from model import Batch, Model
from render import render
from tok import ROWS, Tokenizer

KINDS = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]


def config(size):
    c = dict(vocab_size=ROWS, rms_norm_eps=1e-6, head_dim=64, linear_key_head_dim=64, linear_value_head_dim=64, linear_conv_kernel_dim=4, tie_word_embeddings=True,
             rope_parameters=dict(mrope_interleaved=True, mrope_section=[3, 3, 2], rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25))
    if size == "tiny":
        c.update(hidden_size=192, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, linear_num_key_heads=2, linear_num_value_heads=4, layer_types=KINDS * 2, mtp_num_hidden_layers=1)
    else:
        c.update(hidden_size=128, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1, linear_num_key_heads=1, linear_num_value_heads=2, layer_types=[KINDS[0], KINDS[0], KINDS[3]], mtp_num_hidden_layers=0)
    c["num_hidden_layers"] = len(c["layer_types"])
    return c


# ---------------------------------------------------------------- batches
def encode(t, s, blocks=False):
    ids, flags = [], []
    for text, flag in render(s["messages"], s["tools"], blocks=blocks):
        x = t.encode(text)
        ids += x
        flags += [flag] * len(x)
    return ids, flags


ROWS_OF = [(512, False), (1024, False), (1024, True), (2048, True)]     # length of a row, and whether it begins with a long recall
BLOCKS = 0.5            # share of the conversations with a think block before every answer


def batch(t, seed, progress, mix, size=8192, row_seed=None):
    """One batch of `size` tokens: rows of 512, 1024 or 2048, packed with whole conversations."""
    r = random.Random(seed)
    # long rows cost more; a part of them teaches the recall over distance: short first
    T, far = (r if row_seed is None else random.Random(row_seed)).choices(ROWS_OF, [0.42, 0.22, 0.16 + 0.15 * progress, 0.08 + 0.08 * progress])[0]
    B = size // T
    rows, open_rows = [[] for _ in range(B)], list(range(B))
    left = [T] * B
    if far:
        for b in range(B):
            while True:
                ids, fl = encode(t, data.make(r, task="recall", tokens=int(r.uniform(0.35, 0.85) * T)), r.random() < BLOCKS)
                if len(ids) <= T:
                    break
                if r.random() < 0.02:
                    ids, fl = [], []
                    break
            rows[b].append((ids, fl))
            left[b] -= len(ids)
    tries = 0
    while tries < 12:
        ids, fl = encode(t, data.make(r, mix=mix), r.random() < BLOCKS)
        fits = [b for b in range(B) if left[b] >= len(ids)]
        if not fits:
            tries += 1
            continue
        b = min(fits, key=lambda b: left[b]) if r.random() < 0.5 else r.choice(fits)
        rows[b].append((ids, fl))
        left[b] -= len(ids)
    ids = np.zeros((B, T), np.int64)
    doc = np.full((B, T), -1, np.int64)
    flag = np.zeros((B, T), np.float32)
    for b in range(B):
        r.shuffle(rows[b])
        at = 0
        for n, (x, f) in enumerate(rows[b]):
            ids[b, at:at + len(x)], doc[b, at:at + len(x)], flag[b, at:at + len(x)] = x, n, f
            at += len(x)
    return ids, doc, flag


def feeder(q, folder, seed, step, progress, mix, size, rank, ranks):
    torch.set_num_threads(1)
    t = Tokenizer.load(folder)
    while True:
        # all ranks take rows of one length in a step, so that none waits for the others
        q.put(batch(t, (seed * 1000003 + step) * ranks + rank, progress.value, mix, size // ranks, seed * 1000003 + step))
        step += 1


# ---------------------------------------------------------------- optimiser
def orthogonal(X):
    """Nearest orthogonal matrices, roughly: five Newton-Schulz steps of the quintic used by Muon. X: [n, rows <= cols]"""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = (X / (X.flatten(1).norm(dim=1)[:, None, None] + 1e-7)).bfloat16()
    for _ in range(5):
        A = X @ X.transpose(1, 2)
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.float()


class Optim:
    """Muon for the matrices inside the layers, Adam for embedding, gates, convolutions and norms."""

    def __init__(self, m):
        self.p, self.kind = dict(m.named_parameters()), {}
        self.state = {}
        for n, p in self.p.items():
            muon = p.dim() == 2 and not any(x in n for x in ("embed", "in_proj_a", "in_proj_b", "lm_head", "codebook"))
            self.kind[n] = "muon" if muon else "adam"
            self.state[n] = [torch.zeros_like(p)] if muon else [torch.zeros_like(p), torch.zeros_like(p)]
        self.t = 0

    def share(self, ranks):
        """Divide the parameters among the ranks: matrices of one shape stay together."""
        groups = {}
        for n, p in self.p.items():
            shape = tuple(sorted(p.shape)) if self.kind[n] == "muon" else n
            groups.setdefault(shape, []).append(n)
        load, mine = [0] * ranks, [[] for _ in range(ranks)]
        cost = lambda names: sum(self.p[n].numel() * (min(self.p[n].shape) if self.kind[n] == "muon" else 10) for n in names)
        for names in sorted(groups.values(), key=cost, reverse=True):
            # the largest group is cut in two
            for part in (names[::2], names[1::2]) if len(names) > 12 else (names,):
                i = load.index(min(load))
                load[i] += cost(part)
                mine[i] += part
        return mine

    @torch.no_grad()
    def step(self, muon_lr, adam_lr, names, grads, wd=0.02):
        self.t += 1
        groups = {}
        for n in names:
            p, g, s = self.p[n], grads[n], self.state[n]
            if self.kind[n] == "muon":
                s[0].mul_(0.95).add_(g)
                u = g.add(s[0], alpha=0.95)
                u = u.t() if u.shape[0] > u.shape[1] else u
                groups.setdefault(u.shape, []).append((p, u))
            else:
                s[0].lerp_(g, 0.1)
                s[1].mul_(0.97).addcmul_(g, g, value=0.03)
                d = (s[1] / (1 - 0.97 ** self.t)).sqrt_().add_(1e-9)
                p.addcdiv_(s[0], d, value=-adam_lr / (1 - 0.9 ** self.t))
        # matrices of one shape go through the iteration together
        for shape, members in groups.items():
            for (p, _), u in zip(members, orthogonal(torch.stack([u for _, u in members]))):
                u = u if u.shape == p.shape else u.t()
                p.mul_(1 - muon_lr * wd).add_(u, alpha=-muon_lr * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def losses(m, ids, doc, flag, gen, other=0.1, mtp_share=0.5):
    ids, doc, flag = torch.from_numpy(ids), torch.from_numpy(doc), torch.from_numpy(flag)
    b = Batch(doc, m.cfg)
    f = m.hidden(ids, b)
    nxt = torch.roll(ids, -1, 1)
    same = torch.zeros_like(doc, dtype=torch.bool)
    same[:, :-1] = (doc[:, 1:] == doc[:, :-1]) & (doc[:, 1:] >= 0)
    fl = torch.roll(flag, -1, 1)
    # every assistant token, and one in ten of the rest at a small weight
    w = torch.where(fl > 0, torch.ones(()), (torch.rand(fl.shape, generator=gen) < 0.1).float() * other) * same
    at = w.view(-1).nonzero()[:, 0]
    wt = w.view(-1)[at]
    lo = m.logits(f.view(-1, f.shape[-1])[at])
    ce = F.cross_entropy(lo, nxt.view(-1)[at], reduction="none")
    loss = (ce * wt).sum() / wt.sum()
    a = wt == 1
    main, acc = float(ce.detach()[a].mean()), float((lo.detach()[a].argmax(-1) == nxt.view(-1)[at][a]).float().mean())
    if m.mtp is None or mtp_share == 0:
        return loss, main, acc, 0.0
    fm = m.mtp_hidden(f, nxt, b)
    two = torch.zeros_like(same)
    two[:, :-1] = same[:, :-1] & same[:, 1:] & (torch.roll(fl, -1, 1)[:, :-1] > 0)
    at = two.view(-1).nonzero()[:, 0]
    ce = F.cross_entropy(m.logits(fm.view(-1, fm.shape[-1])[at]), torch.roll(ids, -2, 1).view(-1)[at])
    return loss + mtp_share * ce, main, acc, float(ce.detach())


def load_folder(m, folder):
    """The weights of an exported folder (Hugging Face names, bf16) into m."""
    z = st.load(os.path.join(folder, "model.safetensors"))
    cut = lambda n: n[len("model.language_model."):] if n.startswith("model.language_model.") else n
    m.load_state_dict({cut(n): torch.from_numpy(np.array(x, np.float32)) for n, x in z.items()})


def save(path, m, opt, meta):
    torch.save({"model": m.state_dict(), "opt": opt.state, "t": opt.t, "meta": meta}, path + ".new")
    os.replace(path + ".new", path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--run", required=True)
    ap.add_argument("--size", default="tiny")
    ap.add_argument("--from", dest="source", default="", help="an exported folder whose weights to start from")
    ap.add_argument("--tokenizer", default="models/weft-tiny")
    ap.add_argument("--minutes", type=float, default=0, help="length of the schedule from the first start")
    ap.add_argument("--until", default="", help="HH:MM instead of --minutes")
    ap.add_argument("--muon", type=float, default=0.02)
    ap.add_argument("--adam", type=float, default=0.003)
    ap.add_argument("--decay", type=float, default=0.6, help="share of the schedule in which the rate falls linearly to zero")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--mix", default="", help="task=weight,... changes of the mix")
    ap.add_argument("--batch", type=int, default=8192, help="tokens in a batch")
    ap.add_argument("--ranks", type=int, default=2, help="processes, one thread each")
    ap.add_argument("--mtp", type=float, default=0.2)
    ap.add_argument("--plain", action="store_true", help="torch alone, without the C parts")
    a = ap.parse_args()
    if not a.plain:
        model.use_fused()
    os.makedirs(a.run, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    cfg = config(a.size)
    json.dump(cfg, open(a.run + "/config.json", "w"), indent=1)
    m = Model(cfg, torch.bfloat16)
    opt = Optim(m)
    if a.source:
        load_folder(m, a.source)
    meta = {"step": 0, "tokens": 0, "start": time.time(), "seconds": 0.0}
    ck = a.run + "/last.pt"
    if os.path.exists(ck):
        z = torch.load(ck)
        m.load_state_dict(z["model"])
        opt.state, opt.t, meta = z["opt"], z["t"], z["meta"]
        print("resumed at step", meta["step"], flush=True)
    start = meta["start"]
    if a.until:
        h, mi = map(int, a.until.split(":"))
        lt = time.localtime()
        end = time.mktime((lt.tm_year, lt.tm_mon, lt.tm_mday, h, mi, 0, 0, 0, -1))
    else:
        end = start + 60 * a.minutes
    mix = dict(data.MIX)
    for kv in filter(None, a.mix.split(",")):
        k, v = kv.split("=")
        mix[k] = float(v)
    # Each rank is a process with its own batch and one thread; they meet twice a step. On a machine that others use as well,
    # two threads in step lose a third of their time waiting for each other inside every operation.
    R = a.ranks
    for p in m.parameters():
        p.data.share_memory_()
    for st in opt.state.values():
        for x in st:
            x.share_memory_()
    flat = [torch.zeros(sum(p.numel() for p in m.parameters())).share_memory_() for _ in range(R)]
    stats, stop, rate = torch.zeros(R, 3).share_memory_(), mp.Value("i", 0), mp.Value("d", 0.0)
    barrier, owned = mp.Barrier(R), opt.share(R)
    kids = []
    rank = 0
    for i in range(1, R):
        pid = os.fork()
        if pid == 0:
            rank = i
            break
        kids.append(pid)
    q, progress = mp.Queue(4), mp.Value("d", 0.0)
    progress.value = (time.time() - start) / (end - start)
    w = mp.Process(target=feeder, args=(q, a.tokenizer, a.seed, meta["step"], progress, mix, a.batch, rank, R), daemon=True)
    w.start()
    gen = torch.Generator()
    gen.manual_seed(a.seed + meta["step"] * R + rank)
    log = open(a.run + "/log.csv", "a")
    if rank == 0 and log.tell() == 0:
        log.write("time,step,tokens,row,loss,accuracy,mtp_loss,rate,tokens_per_second\n")
    saved = begun = last = time.time()
    base = meta["seconds"]
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))        # save, then go
    if rank == 0:
        print("parameters", sum(p.numel() for p in m.parameters()), "ends in", round((end - time.time()) / 60, 1), "min", flush=True)
    avg, mtp_seen = None, 0.0
    while True:
        progress.value = (time.time() - start) / (end - start)
        ids, doc, flag = q.get()
        loss, main_loss, acc, mtp = losses(m, ids, doc, flag, gen, mtp_share=a.mtp if meta["step"] % 2 else 0)
        loss.backward()
        at = 0
        for p in m.parameters():
            n = p.numel()
            if p.grad is None:
                flat[rank][at:at + n].zero_()
            else:
                flat[rank][at:at + n] = p.grad.reshape(-1)
                p.grad = None
            at += n
        stats[rank] = torch.tensor([main_loss, acc, mtp])
        if rank == 0:
            stop.value = int(bool(asked) or time.time() >= end)
            rate_now = min(1.0, max(0.0, 1 - progress.value) / a.decay) * min(1.0, (opt.t + 1) / 60)
            rate.value = rate_now
        barrier.wait()
        # every rank sums what it owns; the clip needs the norm of all gradients outside Muon
        grads, at, sq = {}, 0, 0.0
        for n, p in opt.p.items():
            k = p.numel()
            if n in owned[rank] or opt.kind[n] == "adam":
                g = sum(f[at:at + k] for f in flat) / R
                if opt.kind[n] == "adam":
                    sq += float(g.square().sum())
                grads[n] = g.view(p.shape)
            at += k
        norm = math.sqrt(sq)
        if norm > 1:
            for n in grads:
                if opt.kind[n] == "adam":
                    grads[n] /= norm
        if math.isfinite(norm) and bool(torch.isfinite(stats).all()):
            opt.step(a.muon * rate.value, a.adam * rate.value, owned[rank], grads)
        barrier.wait()
        meta["step"] += 1
        meta["tokens"] += a.batch
        if rank == 0:
            meta["seconds"] = base + time.time() - begun
            now = time.time()
            main_loss, acc, mtp = stats.mean(0).tolist()
            mtp_seen = mtp or mtp_seen
            avg = main_loss if avg is None else 0.95 * avg + 0.05 * main_loss
            log.write(f"{now:.0f},{meta['step']},{meta['tokens']},{ids.shape[1]},{main_loss:.4f},{acc:.4f},{mtp_seen:.4f},{rate.value:.4f},{a.batch / (now - last):.0f}\n")
            log.flush()
            if meta["step"] % 10 == 0:
                print(f"{time.strftime('%H:%M:%S')} step {meta['step']} tokens {meta['tokens'] / 1e6:.2f}M row {ids.shape[1]} loss {avg:.3f} acc {acc:.3f} mtp {mtp_seen:.3f} rate {rate.value:.3f} norm {norm:.2f} {a.batch / (now - last):.0f} tok/s", flush=True)
            last = now
            if now - saved > 180 or stop.value:
                save(ck, m, opt, meta)
                saved = time.time()
        if stop.value:
            break
    w.terminate()
    if rank:
        os._exit(0)
    for k in kids:
        os.waitpid(k, 0)
    print("done", flush=True)


if __name__ == "__main__":
    main()
