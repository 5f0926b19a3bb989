"""Gemma 4 with its ears, quantised as mlx-vlm stores it, gives bit for bit the logits of a plain folder of the values that its
codes stand for.

    mlx_of_folder.py WEFT SHARED_GOLDEN

Names lose `model.` (the text's become language_model.model.*), kernels have their channels last, and each matrix whose rows are
groups of 32 is packed codes of 4 bits with scales and biases: of the text, of the 12B's projections, of the tower for sounds.
The order of a kernel's channels is that of its sums, so against Hugging Face's order logits are compared within 1e-3.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

from gguf_of_folder import all_tensors
from projector_of_folder import MARK, bits, many_rows, write_tokenizer

GROUP, BITS = 32, 4
MARKS = ["<|image>", "<image|>", "<|image|>", "<|audio>", "<audio|>", "<|audio|>"]


def widened(v):
    return (v.astype("<u4") << 16).view("<f4")


def quantised(w):
    """Packed codes, scales, biases; and the values that they stand for."""
    rows = w.reshape(w.shape[0], -1, GROUP)
    low, high = rows.min(-1), rows.max(-1)
    scale = bits(np.maximum((high - low) / (2 ** BITS - 1), np.float32(1e-3)))
    bias = bits(low)
    s, b = widened(scale)[..., None], widened(bias)[..., None]
    codes = np.clip(np.rint((rows - b) / s), 0, 2 ** BITS - 1).astype("<u4")
    value = (codes.astype("<f4") * s + b).astype("<f4").reshape(w.shape)
    packed = (codes.reshape(w.shape[0], -1, 8) << (np.arange(8, dtype="<u4") * BITS)).sum(-1).astype("<u4")
    return packed, scale, bias, value


def name_of(name):
    name = name.removeprefix("model.")
    return "language_model.model." + name.removeprefix("language_model.") if name.startswith("language_model.") else name


def write(folder, tensors, config):
    os.mkdir(folder)
    kinds, head, data = {"uint32": "U32", "uint16": "BF16", "float32": "F32"}, {}, b""
    for name, v in tensors.items():
        part = np.ascontiguousarray(v).tobytes()
        head[name] = {"dtype": kinds[str(v.dtype)], "shape": list(v.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    said = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(said)) + said + data)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    write_tokenizer(folder, MARKS, config["text_config"]["vocab_size"])
    return folder


def both(tmp, folder):
    """The folder quantised; one of the values with mlx's kernels, and one with its own."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    mlx, last, plain, packed, tensors = {}, {}, {}, [], all_tensors(folder)
    many_rows(tensors, config["text_config"], [n for n in tensors if "embed_tokens" in n])
    config["text_config"]["vocab_size_per_layer_input"] = config["text_config"]["vocab_size"]
    config.update(image_token_id=MARK + 2, boa_token_id=MARK + 3, eoa_token_id=MARK + 4, eoa_token_index=MARK + 4, audio_token_id=MARK + 5)
    for name, v in tensors.items():
        to = name_of(name)
        matrix = v.ndim == 2 and v.shape[1] % GROUP == 0 and name.endswith(".weight")
        if matrix:
            mlx[to], mlx[to[:-6] + "scales"], mlx[to[:-6] + "biases"], v = quantised(v)
            packed.append(to)
        elif "conv.weight" in name:
            mlx[to] = bits(v.transpose(0, 2, 3, 1))
        elif "depthwise_conv1d" in name:
            mlx[to] = bits(v.transpose(0, 2, 1))
        else:
            mlx[to] = bits(v)
        plain[name] = v if matrix else bits(v)
        last[name] = mlx[to] if "conv.weight" in name else plain[name]
    said = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    return (write(os.path.join(tmp, "mlx"), mlx, {**config, "quantization": said, "quantization_config": said}),
            write(os.path.join(tmp, "last"), last, config), write(os.path.join(tmp, "plain"), plain, config), config, packed)


def logits(weft, model, ids, files):
    given = [x for f in files for x in ("--sound" if f.endswith(".wav") else "--image", f)]
    p = subprocess.run([weft, "logits", model, "--ids", ids, "--arith", "f32", "--out", ids + ".out", "--threads", "2", *given],
                       capture_output=True)
    if p.returncode or b"warn" in p.stderr.lower():
        return None, p.stderr.decode()
    with open(ids + ".out", "rb") as f:
        return f.read(), ""


def check(weft, folder, names, wanted):
    files = [os.path.join(folder, n) for n in names]
    with tempfile.TemporaryDirectory() as tmp:
        mlx, last, plain, config, packed = both(tmp, folder)
        missing = [w for w in wanted if w not in packed]
        if missing:
            return "not packed: %s" % missing
        ids = os.path.join(tmp, "ids")
        with open(ids, "w") as f:
            json.dump([5, 6] + [x for n in names for x in (config["audio_token_id" if n.endswith(".wav") else "image_token_id"], 8)], f)
        read = [logits(weft, model, ids, files) for model in (mlx, last, plain)]
        for out, why in read:
            if out is None:
                return why
        got, want, own = (out for out, why in read)
        if got != want:
            return "other bits"
        a, b = (np.frombuffer(v[8 + struct.unpack("<Q", v[:8])[0]:], "<f4") for v in (got, own))
        if not np.abs(a - b).max() < 1e-3:
            return "%g from the other order of channels" % np.abs(a - b).max()
        return "sounds make no difference" if logits(weft, mlx, ids, files[::-1])[0] == got else None


def main():
    weft, shared = sys.argv[1:]
    failed = ran = 0
    for name, files, wanted in (
            ("gemma4_unified", ("s1.wav", "small.png", "s2.wav"), ("embed_audio.embedding_projection.weight", "vision_embedder.patch_dense.weight")),
            ("gemma4_sound", ("s1.wav", "s2.wav"), ("audio_tower.subsample_conv_projection.input_proj_linear.weight",))):
        folder = os.path.join(shared, name, "hf-bf16")
        if not os.path.isdir(folder):
            print("skipped: no %s" % folder)
            continue
        why = check(weft, folder, files, wanted)
        ran += 1
        failed += why is not None
        print("FAIL" if why else "ok  ", name, why or "")
    return 1 if failed else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
