#!/usr/bin/python3
"""The law of few bits over families whose golden models have heads too small for codes.

    few_bits.py WEFT LAW_TEST SHARED_GOLDEN

Codes go by groups of 32 or 64, and most goldens' heads have 8 or 16 numbers.  Here their configs get wider heads; each tensor
that weft then finds of the wrong shape is made anew, of random numbers, until it finds none.  `law_test --kv` has the rest.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

FAMILIES = ("mistral4 step3p5 plamo2 glm5_next mixtral cohere2 cohere2_moe seed_oss exaone4 ernie4_5 ernie4_5_moe mimo_v2_flash olmoe granitemoe "
            "gemma llama4_text hunyuan_v1_dense phimoe apertus arcee afmoe internlm3 bailing_moe bailing_moe_v1 kimi_k25 granite_swa "
            "granitemoe_swa bailing_hybrid deepseek_v32 glm_moe_dsa qwen4_exp").split()
FEW = 4                 # of them where WEFT_TEST_QUICK is set
HEAD, LATENT = 64, 64
ATTEMPTS = 200          # tensors of a family that may change


def read(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for k, t in head.items() if k != "__metadata__"}


def write(path, tensors):
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(data for _, _, data in tensors.values()))


def made(rng, name, dtype, shape):
    """Random numbers: about 1 for the gains of norms, the inverse root of their inputs for matrices."""
    v = rng.standard_normal(shape) * (0.5 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.5) + (len(shape) < 2 and "norm" in name)
    v = v.astype("<f4")
    return dtype, shape, (v if dtype == "F32" else ((v.view("<u4") + 0x8000) >> 16).astype("<u2")).tobytes()


def widen(c):
    """Heads of 64, latent rows of 64 and rotated keys of 64 (none where there are none)."""
    for key in ("head_dim", "swa_head_dim", "hidden_size_per_head"):
        if c.get(key):
            c[key] = HEAD
    if "kv_lora_rank" in c:
        turned = HEAD if c["qk_rope_head_dim"] else 0
        c.update(kv_lora_rank=LATENT, qk_rope_head_dim=turned, qk_nope_head_dim=32, v_head_dim=32, qk_head_dim=32 + turned)
        c.update({"rotary_dim": turned} if "rotary_dim" in c else {})
    elif "head_dim" not in c and "hidden_size_per_head" not in c:
        c["head_dim"] = HEAD
    if c["model_type"] == "mimo_v2_flash":
        c.update(partial_rotary_factor=0.5, v_head_dim=32, swa_v_head_dim=32)
    if c["model_type"] == "bailing_moe":
        c.update({"rotary_dim": HEAD // 2} if "rotary_dim" in c else {})
    for key in ("index_head_dim", "indexer_head_dim"):
        if key in c:
            c[key] = HEAD
    if "attention_other_setting" in c:
        c["attention_other_setting"]["head_dim"] = HEAD
    for rope in (c.get("rope_scaling"), c.get("rope_parameters")):
        for key in ("short_factor", "long_factor"):
            if rope and key in rope:
                rope[key] = (rope[key] * HEAD)[:HEAD // 2]
        if rope and "mrope_section" in rope:
            rope["mrope_section"] = [4 * n for n in rope["mrope_section"]]


def make(weft, source, folder):
    """Returns what stood in the way, or ""."""
    with open(os.path.join(source, "config.json")) as f:
        c = json.load(f)
    widen(c.get("text_config", c))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f)
    tensors, rng = {}, np.random.default_rng(1)
    for name in sorted(os.listdir(source)):
        if name.endswith(".safetensors") and name.startswith("model"):
            tensors.update(read(os.path.join(source, name)))
    said = ""
    for _ in range(ATTEMPTS):
        write(os.path.join(folder, "model.safetensors"), tensors)
        p = subprocess.run([weft, "inspect", folder], capture_output=True, text=True)
        if not p.returncode:
            return ""
        said = p.stderr.strip().splitlines()[-1]
        wrong = re.search(r"tensor (\S+): .*asks for \[?([\d, ]+)\]?", said)
        if not wrong or wrong[1] not in tensors:
            return said
        tensors[wrong[1]] = made(rng, wrong[1], tensors[wrong[1]][0], [int(n) for n in wrong[2].split(",")])
    return said


def main():
    weft, law, shared = sys.argv[1:4]
    if not os.path.isdir(shared):
        print("skipped: no %s" % shared)
        return 77
    failed = 0
    for name in FAMILIES[:FEW] if os.environ.get("WEFT_TEST_QUICK") else FAMILIES:
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(tmp, name + "-bf16")
            os.mkdir(folder)
            why = make(weft, os.path.join(shared, name, "hf-bf16"), folder)
            p = None if why else subprocess.run([law, "--kv", folder], capture_output=True, text=True, env={**os.environ, "WEFT_TEST_QUICK": "1"})
            if why or p.returncode:
                failed += 1
                print("FAIL %s: %s" % (name, why or p.stdout + p.stderr))
            else:
                print("ok   %s: %d policies" % (name, p.stdout.count("ok ")), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
