"""The real shapes that make-checkpoint and make-gguf write."""
from collections import namedtuple

VOCAB = 248320

# Linear attention has heads of 128; every fourth layer is full attention.
# inner: of the MLP, 0 with experts; top_k of the experts see a token, each of expert_inner, and a shared one as large.
Shape = namedtuple("Shape", "hidden layers heads kv_heads dim linear_k_heads linear_v_heads inner tied experts top_k expert_inner")

SHAPES = {
    "qwen3.5-0.8b": Shape(1024, 24, 8, 2, 256, 16, 16, 3584, True, 0, 0, 0),
    "qwen3.5-4b": Shape(2560, 32, 16, 4, 256, 16, 32, 9216, True, 0, 0, 0),
    "qwen3.6-35b-a3b": Shape(2048, 40, 16, 2, 256, 16, 32, 0, False, 256, 8, 512),
}

Tower = namedtuple("Tower", "width depth heads inner")

TOWERS = {
    "qwen3.5-0.8b": Tower(768, 12, 12, 3072),
    "qwen3.5-4b": Tower(1024, 24, 16, 4096),
    "qwen3.6-35b-a3b": Tower(1152, 27, 16, 4304),
}


def byte_names():
    """The byte-level alphabet: printable bytes stand for themselves, the others for U+0100 and on."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    names, extra = {}, 0
    for b in range(256):
        if b in keep:
            names[b] = chr(b)
        else:
            names[b] = chr(256 + extra)
            extra += 1
    return names
