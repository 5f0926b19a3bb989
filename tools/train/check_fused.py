"""Compare loss and gradients of the fused graph with the plain one, on packed documents, and time both."""
import time

import torch

import model
import train


def run(m, data):
    m.zero_grad()
    t = time.time()
    g = torch.Generator()
    g.manual_seed(1)
    loss, *_ = train.losses(m, *data, g)
    loss.backward()
    return float(loss), {n: p.grad.clone() for n, p in m.named_parameters()}, time.time() - t


def main():
    torch.set_num_threads(2)
    t = train.Tokenizer.load("models/weft-tiny")
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        m = model.Model(train.config("tiny"), dtype)
        for seed in (1, 3, 12):
            data = train.batch(t, seed, 1, train.data.MIX)
            model.fused = None
            a = run(m, data)
            model.use_fused()
            m.ctype = torch.bfloat16
            b = run(m, data)
            m.ctype = dtype
            worst = sorted(((float((a[1][n] - b[1][n]).norm() / (a[1][n].norm() + 1e-12)), n) for n in a[1]), reverse=True)[:4]
            print(dtype, data[0].shape, "loss", a[0], b[0], "seconds %.2f %.2f" % (a[2], b[2]), worst)


main()
