"""DeepSeek V4 as published, with experts packed in fp4 and attention in FP8, gives bit for bit the logits of a plain folder of the
values that its codes stand for; its experts are the same from disk; and what is broken says which tensor.

    fp4_of_folder.py WEFT EXPERTS_TEST FOLDER

FOLDER is a small plain one.  Its experts are drawn anew, because rows of theirs must be groups of 32.  A byte of an expert's
I8 codes has two inputs, the first in its low half.  Scales are F8_E8M0: of 32 inputs of an expert's row, and of a block of
everything else.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

from few_bits import read, write

INNER, GROUP, BLOCK = 64, 32, 16  # BLOCK: published is 128
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], "<f4")
FP8 = re.compile(r"layers\.\d+\.(attn\.(indexer\.)?w[a-z_]+|ffn\.shared_experts\.w\d)\.weight$")


def e4m3(code):
    e, m = (code >> 3 & 15).astype(int), (code & 7).astype("<f4")
    return np.where(code > 127, -1, 1) * np.where(e == 0, m * 2.0 ** -9, (8 + m) * 2.0 ** (e - 10))


def bf16(v):
    """Of values that are exact in it."""
    raw = np.ascontiguousarray(v, "<f4").view("<u4")
    assert not (raw & 0xFFFF).any()
    return "BF16", list(v.shape), (raw >> 16).astype("<u2").tobytes()


def spread(scale, shape, high, wide):
    """2^(scale - 127) of each element, where high rows and wide inputs share one."""
    return np.exp2(scale.astype(float) - 127).repeat(high, 0).repeat(wide, 1)[:shape[0], :shape[1]]


def both(name, shape, rng):
    """Tensors of a matrix as published, and plain."""
    expert = ".experts." in name
    high, wide = (1, GROUP) if expert else (BLOCK, BLOCK)
    scale = rng.integers(122, 125, (-(-shape[0] // high), -(-shape[1] // wide))).astype("u1")
    if expert:
        code = rng.integers(0, 16, shape).astype("u1")
        kind, raw, value = "I8", code[:, ::2] | code[:, 1::2] << 4, np.where(code > 7, -1, 1) * E2M1[code & 7]
    else:
        code = (rng.integers(0, 0x3C, shape) | rng.integers(0, 2, shape) << 7).astype("u1")
        kind, raw, value = "F8_E4M3", code, e4m3(code)
    return ({name: (kind, list(raw.shape), raw.tobytes()),
             name[:-6] + "scale": ("F8_E8M0", list(scale.shape), scale.tobytes())},
            {name: bf16(value * spread(scale, shape, high, wide))})


def make(source):
    """The config, and the tensors as published and plain."""
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    inner, rng, packed, plain = config["moe_intermediate_size"], np.random.default_rng(1), {}, {}
    for name, t in read(os.path.join(source, "model.safetensors")).items():
        shape = [INNER if n == inner and "experts" in name else n for n in t[1]]
        if ".experts." in name or FP8.match(name):
            a, b = both(name, shape, rng)
            packed.update(a)
            plain.update(b)
        else:
            packed[name] = plain[name] = t
    config["moe_intermediate_size"] = INNER
    return config, packed, plain


def put(tmp, name, config, tensors):
    folder = os.path.join(tmp, name)
    os.mkdir(folder)
    write(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    return folder


def published(config):
    return {**config, "expert_dtype": "fp4", "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}}


def logits(weft, folder, ids):
    p = subprocess.run([weft, "logits", folder, "--ids", ids, "--arith", "f32", "--out", ids + ".out", "--threads", "2"],
                       capture_output=True, text=True)
    if p.returncode or "warn" in p.stderr.lower():
        return None, p.stderr
    with open(ids + ".out", "rb") as f:
        return f.read(), ""


def parameters(weft, folder):
    return re.search(r"parameters\s+(.*)", subprocess.run([weft, "inspect", folder], capture_output=True, text=True).stdout)[1]


def broken(packed):
    """(what it is, tensors, what the error says)"""
    w, attn = "layers.1.ffn.experts.2.w2", "layers.1.attn.wq_b"
    for what, name, t in (("codes by bytes", w + ".weight", ("I8", [32, INNER], bytes(32 * INNER))),
                          ("too few codes", w + ".weight", ("I8", [31, INNER // 2], bytes(31 * INNER // 2))),
                          ("scales of 16", w + ".scale", ("F8_E8M0", [32, INNER // 16], bytes(32 * INNER // 16))),
                          ("scales turned", w + ".scale", ("F8_E8M0", [INNER // 32, 32], bytes(INNER))),
                          ("scales in floats", w + ".scale", ("F32", [32, INNER // 32], bytes(4 * INNER))),
                          ("no scales", w + ".scale", None),
                          ("a block's scales too few", attn + ".scale", ("F8_E8M0", [7, 1], bytes(7)))):
        yield what, {k: v for k, v in {**packed, name: t}.items() if v}, attn if name.startswith(attn) else w


def check(weft, experts_test, source, tmp):
    config, packed, plain = make(source)
    ids = os.path.join(tmp, "ids")
    with open(ids, "w") as f:
        json.dump([i * 7 % 60 + 1 for i in range(60)], f)
    ours, theirs = put(tmp, "packed", published(config), packed), put(tmp, "plain", config, plain)
    read_both = [logits(weft, folder, ids) for folder in (ours, theirs)]
    for out, why in read_both:
        if out is None:
            return why
    if read_both[0] != read_both[1]:
        return "other bits than the values'"
    if parameters(weft, ours) != parameters(weft, theirs):
        return "%s parameters, not %s" % (parameters(weft, ours), parameters(weft, theirs))
    p = subprocess.run([experts_test, ours], capture_output=True, text=True)
    if p.returncode:
        return "experts on disk: " + p.stdout + p.stderr
    for i, (what, tensors, named) in enumerate(broken(packed)):
        out, why = logits(weft, put(tmp, str(i), published(config), tensors), ids)
        if out is not None or named not in why:
            return "%s: %s" % (what, why or "are read")
    return None


def main():
    with tempfile.TemporaryDirectory() as tmp:
        why = check(*sys.argv[1:], tmp)
    print("FAIL %s" % why if why else "ok")
    return why is not None


if __name__ == "__main__":
    sys.exit(main())
