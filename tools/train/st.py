"""Read and write safetensors files with the standard library and numpy.

bfloat16 has no numpy type: it travels as uint16 bit patterns.
"""
import json
import struct

import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U32": np.uint32,
         "I32": np.int32, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}


def bf16_bits(x):
    """float32 array -> uint16 bit patterns, rounded to nearest even."""
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(u):
    return (np.asarray(u).astype(np.uint32) << 16).view(np.float32)


def load(path):
    """name -> array; BF16 and F16 come back as float32."""
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, d in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        lo, hi = d["data_offsets"]
        a = np.frombuffer(raw[8 + n + lo:8 + n + hi], dtype=TYPES[d["dtype"]])
        if d["dtype"] == "BF16":
            a = bf16_value(a)
        elif d["dtype"] == "F16":
            a = a.astype(np.float32)
        out[name] = a.reshape(d["shape"])
    return out


def save(path, tensors):
    """tensors: name -> (dtype string, array of the matching numpy type)."""
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    # Large types first, as the usual writer does: every tensor stays aligned.
    for name, (dtype, a) in sorted(tensors.items(), key=lambda t: (-np.dtype(TYPES[t[1][0]]).itemsize, t[0])):
        b = np.ascontiguousarray(a, dtype=TYPES[dtype]).tobytes()
        head[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + len(b)]}
        blobs.append(b)
        at += len(b)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for b in blobs:
            f.write(b)
