"""A GGUF file after the header of another one: its matrices in another format with random values, its vectors as their names want
them.  The other file's numbers are not looked at, so it may be what `weft quantize --type Q8_0` makes of an empty checkpoint."""
import struct

import numpy as np

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}    # bytes of a value by its type
F32, F16, BF16, Q8_0 = 0, 1, 30, 8


class Reader:
    def __init__(self, path):
        self.f = open(path, "rb")
        magic, _, self.tensors, self.pairs = self.unpack("<4sIQQ")
        if magic != b"GGUF":
            raise SystemExit("%s: no GGUF file" % path)

    def unpack(self, form):
        return struct.unpack(form, self.f.read(struct.calcsize(form)))

    def string(self):
        return self.f.read(self.unpack("<Q")[0])

    def skip(self, kind):
        if kind in SIZES:
            self.f.seek(SIZES[kind], 1)
        elif kind == STRING:
            self.string()
        else:
            of, n = self.unpack("<IQ")
            if of in SIZES:
                self.f.seek(SIZES[of] * n, 1)
            for _ in range(n if of not in SIZES else 0):
                self.skip(of)

    def pair(self):
        """The key, and all bytes of the pair."""
        begin = self.f.tell()
        key = self.string().decode()
        self.skip(self.unpack("<I")[0])
        end = self.f.tell()
        self.f.seek(begin)
        return key, self.f.read(end - begin)

    def tensor(self):
        """Name, type, dimensions with the innermost last."""
        name = self.string().decode()
        dims = self.unpack("<%dQ" % self.unpack("<I")[0])
        kind, _ = self.unpack("<IQ")
        return name, kind, dims[::-1]


def floats_of(name, dims, rng):
    """Means and spreads that keep a deep model's numbers in their usual range."""
    last = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.split(".")[-1]
    x = rng.standard_normal(dims)
    if "norm" in last:
        return 0 * x if name.endswith(".bias") else 1 + 0.02 * x
    if last == "ssm_a":
        return -np.exp(rng.uniform(0, 2.7, dims))
    if last == "ssm_d":
        return 1 + 0.1 * x
    if last == "ssm_dt":
        return x - 4
    if "conv" in last:
        return 0.1 * x if name.endswith(".bias") else 0.3 * x
    if last == "exp_probs_b":
        return 0 * x
    return x * dims[-1] ** -0.5 if len(dims) > 1 else 0.02 * x


def write(source, maker, out, file_type):
    """out: a Writer of make-gguf, maker: its Maker.  rope_freqs are not written: a model of random weights has no use for them."""
    r = Reader(source)
    for _ in range(r.pairs):
        key, raw = r.pair()
        if key != "general.file_type":
            out.meta.append(raw)
    out.put("general.file_type", 4, file_type)
    for name, kind, dims in [r.tensor() for _ in range(r.tensors)]:
        if name == "rope_freqs.weight":
            continue
        if kind == Q8_0:
            maker.matrix(name.removesuffix(".weight"), *dims)
        elif kind in (F32, F16, BF16):
            maker.floats(name, dims, lambda name=name, dims=dims: floats_of(name, dims, maker.rng))
        else:
            raise SystemExit("%s: tensor %s is of type %d: F32, F16, BF16 and Q8_0 are taken" % (source, name, kind))
