"""The tower of weft-tiny-eyes, of Qwen3.5's kind in miniature, and weft-tiny with pictures in its prompt: graphs in torch.

A picture of h x w patches becomes h/2 * w/2 rows of the prompt; after it positions go on by the longer of the two.
"""
import json
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import st
from model import Batch, Linear, Norm, Weight

PATCH, MERGE = 16, 2
AREA = 128 * 96, 128 * 128     # least and most pixels of a picture when its patches are cut: 12 to 16 rows of the prompt
CONFIG = dict(deepstack_visual_indexes=[], depth=4, hidden_act="gelu_pytorch_tanh", hidden_size=96, in_channels=3, initializer_range=0.02, intermediate_size=256,
              model_type="qwen3_5", num_heads=3, num_position_embeddings=64, out_hidden_size=192, patch_size=PATCH, spatial_merge_size=MERGE, temporal_patch_size=1)
PROCESSOR = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True, image_mean=[.5] * 3, image_processor_type="Qwen2VLImageProcessorFast", image_std=[.5] * 3,
                 merge_size=MERGE, patch_size=PATCH, resample=3, rescale_factor=1 / 255, size=dict(longest_edge=AREA[1], shortest_edge=AREA[0]), temporal_patch_size=1)
START, END, PAD = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"


def patches(im):
    """uint8 [N, H, W, 3] -> float [N, patches, 3 * PATCH * PATCH], in the order of the rows that they become"""
    N, H, W, _ = im.shape
    x = torch.from_numpy(im).float() / 127.5 - 1
    x = x.view(N, H // 32, 2, PATCH, W // 32, 2, PATCH, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)      # N R Q i j c y x
    return x.reshape(N, H // PATCH * (W // PATCH), 3 * PATCH * PATCH)


def places(h, w):
    """[patches, 2] row and column of each patch in that order"""
    r, c = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    rc = torch.stack([r, c], -1).view(h // 2, 2, w // 2, 2, 2).permute(0, 2, 1, 3, 4)
    return rc.reshape(h * w, 2)


class LayerNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6)


class Affine(Linear):
    def __init__(self, out, inp, std=None):
        super().__init__(out, inp)
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.normal_(self.weight, 0, std or inp ** -.5)

    def forward(self, x, ctype):
        return F.linear(x.to(ctype), self.weight.to(ctype), self.bias.to(ctype)).float()


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, i = c["hidden_size"], c["intermediate_size"]
        self.heads = c["num_heads"]
        self.norm1, self.norm2 = LayerNorm(h), LayerNorm(h)
        self.attn, self.mlp = nn.Module(), nn.Module()
        small = (2 * c["depth"]) ** -.5
        self.attn.qkv, self.attn.proj = Affine(3 * h, h), Affine(h, h, small * h ** -.5)
        self.mlp.linear_fc1, self.mlp.linear_fc2 = Affine(i, h), Affine(h, i, small * i ** -.5)

    def forward(self, x, cos, sin, ctype):
        N, n, h = x.shape
        q, k, v = self.attn.qkv(self.norm1(x), ctype).view(N, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        turn = lambda a: a * cos + torch.cat([-a[..., a.shape[-1] // 2:], a[..., :a.shape[-1] // 2]], -1) * sin
        p = torch.softmax(turn(q) @ turn(k).transpose(2, 3) * q.shape[-1] ** -.5, -1)
        x = x + self.attn.proj((p @ v).transpose(1, 2).reshape(N, n, h), ctype)
        return x + self.mlp.linear_fc2(F.gelu(self.mlp.linear_fc1(self.norm2(x), ctype), approximate="tanh"), ctype)


class Tower(nn.Module):
    def __init__(self, c=CONFIG, ctype=torch.float32):
        super().__init__()
        self.c, self.ctype = c, ctype
        h = c["hidden_size"]
        self.patch_embed = nn.Module()
        self.patch_embed.proj = Affine(h, 3 * PATCH * PATCH)
        self.pos_embed = Weight(c["num_position_embeddings"], h)
        nn.init.normal_(self.pos_embed.weight, 0, .2)
        self.blocks = nn.ModuleList([Block(c) for _ in range(c["depth"])])
        self.merger = nn.Module()
        self.merger.norm = LayerNorm(h)
        self.merger.linear_fc1 = Affine(4 * h, 4 * h)
        self.merger.linear_fc2 = Affine(c["out_hidden_size"], 4 * h, .0085)      # rows as large as weft-tiny's embeddings

    def table(self, h, w):
        """The learned places, interpolated between corners."""
        side = int(math.isqrt(self.c["num_position_embeddings"]))
        grid = self.pos_embed.weight.view(side, side, -1)
        for n, axis in (h, 0), (w, 1):
            s = torch.linspace(0, side - 1, n)
            lo = s.floor().long()
            hi, d = (lo + 1).clamp(max=side - 1), (s - lo).view([-1, 1, 1] if axis == 0 else [1, -1, 1])
            grid = grid.index_select(axis, lo) * (1 - d) + grid.index_select(axis, hi) * d
        return grid

    def forward(self, im):
        """uint8 [N, H, W, 3] -> [N, rows, out]"""
        N, h, w = im.shape[0], im.shape[1] // PATCH, im.shape[2] // PATCH
        rc = places(h, w)
        x = self.patch_embed.proj(patches(im), self.ctype) + self.table(h, w)[rc[:, 0], rc[:, 1]]
        d = self.c["hidden_size"] // self.c["num_heads"]
        omega = 10000.0 ** (-torch.arange(0, d // 2, 2).float() / (d // 2))
        phi = torch.cat([rc[:, :1] * omega, rc[:, 1:] * omega], -1)
        phi = torch.cat([phi, phi], -1)
        for b in self.blocks:
            x = b(x, phi.cos(), phi.sin(), self.ctype)
        x = self.merger.norm(x).reshape(N, h * w // 4, -1)
        return self.merger.linear_fc2(F.gelu(self.merger.linear_fc1(x, self.ctype)), self.ctype)

    def tensors(self):
        """As a checkpoint has them: name -> (dtype, bits)"""
        out = {}
        for n, p in self.named_parameters():
            a = p.detach().numpy()
            if n == "patch_embed.proj.weight":
                a = a.reshape(-1, 3, 1, PATCH, PATCH)
            out["model.visual." + n] = ("BF16", st.bf16_bits(a))
        return out


def write(folder, tower, text=None):
    """The tower in a model's folder: with text, the text model's tensors, in one file with these, else in a file beside theirs;
    the config's settings and the processor's."""
    name = folder + ("/model.safetensors" if text else "/model-visual.safetensors")
    st.save(name + ".new", {**(text or {}), **tower.tensors()})
    os.replace(name + ".new", name)
    config = json.load(open(folder + "/config.json"))
    config["vision_config"] = tower.c
    for name, j in ("config.json", config), ("preprocessor_config.json", PROCESSOR):
        with open(f"{folder}/{name}", "w") as f:
            f.write(json.dumps(j, indent=2) + "\n")


class Sight(Batch):
    """Rows in which pictures stand: positions by three axes, [B, T, 3]."""

    def __init__(self, doc, at, cfg):
        super().__init__(doc, cfg)
        p = cfg["rope_parameters"]
        inv = p["rope_theta"] ** (-torch.arange(0, self.R, 2).float() / self.R)
        axis = [a if a and i < 3 * p["mrope_section"][a] else 0 for i, a in ((i, i % 3) for i in range(self.R // 2))]
        ang = at[..., axis].float() * inv
        self.cos, self.sin = ang.cos(), ang.sin()


def positions(ids, pad, grids):
    """ids of one conversation, its pictures in full; grids: (rows, columns) of each -> [n][3]"""
    out, i, nxt, grids = [], 0, 0, list(grids)
    while i < len(ids):
        if ids[i] == pad:
            R, C = grids.pop(0)
            out += [(nxt, nxt + r, nxt + c) for r in range(R) for c in range(C)]
            i, nxt = i + R * C, nxt + max(R, C)
        else:
            out.append((nxt,) * 3)
            i, nxt = i + 1, nxt + 1
    return out


def hidden(m, ids, seen, pad, b):
    """The text model over ids [B, T], seen [rows, hidden] where the placeholders are."""
    h = m.embed_tokens.weight[ids]
    if seen is not None:
        h = h.index_put(torch.nonzero(ids == pad, as_tuple=True), seen.to(h.dtype))
    for layer in m.layers:
        h = layer(h, b, m.ctype)
    return Norm.apply(h, 1 + m.norm.weight, 1e-6, torch.float32)
