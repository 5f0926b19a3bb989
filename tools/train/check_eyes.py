"""Prove the training graph with pictures: a tower of random weights in weft-tiny, against `weft logits --image`.

    /usr/bin/python3 tools/train/check_eyes.py build/weft models/weft-tiny

Several sizes, so that places are interpolated, and two pictures in one prompt. The pictures have the size that the tower sees.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch

import eyes
import pictures
import st
from check_model import load_hf
from tok import Tokenizer


def main():
    weft, folder = sys.argv[1:3]
    t = Tokenizer.load(folder)
    pad = t.special[eyes.PAD]
    d = tempfile.mkdtemp()
    for f in os.listdir(folder):
        shutil.copy(f"{folder}/{f}", d)
    m = load_hf(d)
    torch.manual_seed(1)
    tower = eyes.Tower()
    for p in tower.parameters():        # biases and gains too, and vectors as large as the text model's
        p.data += .1 * torch.randn_like(p)
    tower.merger.linear_fc2.weight.data *= 3
    for p in tower.parameters():
        p.data = p.data.bfloat16().float()
    eyes.write(d, tower)
    r, worst = random.Random(1), 0
    for sizes in [(128, 128)], [(160, 96)], [(96, 128), (128, 128)]:
        ids, full, seen = [], [], []
        for i, (w, h) in enumerate(sizes):
            im = pictures.draw(pictures.scene(r), w, h)
            open(f"{d}/{i}.png", "wb").write(pictures.png(im))
            before, after = t.encode("<|im_start|>user\n" + eyes.START), t.encode(eyes.END + "What do you see?<|im_end|>\n")
            ids += before + [pad] + after
            full += before + [pad] * (h * w // 1024) + after
            with torch.no_grad():
                seen.append(tower(im[None])[0])
        json.dump(ids, open(d + "/ids.json", "w"))
        args = [weft, "logits", d, "--ids", d + "/ids.json", "--out", d + "/out.safetensors", "--arith", "f32"]
        for i in range(len(sizes)):
            args += ["--image", f"{d}/{i}.png"]
        subprocess.check_call(args)
        want = st.load(d + "/out.safetensors")["logits"]
        T = len(full)
        x = torch.tensor([full + [0] * (-T % 64)])
        at = eyes.positions(full, pad, [(h // 32, w // 32) for w, h in sizes])
        b = eyes.Sight(torch.tensor([[0] * T + [1] * (-T % 64)]), torch.tensor([at + [(0,) * 3] * (-T % 64)]), m.cfg)
        with torch.no_grad():
            got = m.logits(eyes.hidden(m, x, torch.cat(seen), pad, b))[0, :T].numpy()
        assert got.shape == want.shape, (got.shape, want.shape)
        worst = max(worst, float(np.abs(got - want).max()))
        print(sizes, "largest difference of a logit", float(np.abs(got - want).max()), "of", float(np.abs(want).max()), "rows between", float(torch.cat(seen).abs().max()))
    shutil.rmtree(d)
    assert worst < 1e-3, worst


if __name__ == "__main__":
    main()
