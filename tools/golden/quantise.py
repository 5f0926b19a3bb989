#!/usr/bin/env python3
"""Makes folders in other quantisers' layouts from a plain one, and the logits of the values that they stand for:
tools/golden/quantise.py FOLDER OUT FAMILY [LAYOUT...]

FOLDER is one of make.py's, FAMILY the name of its forward there.  golden.safetensors has prompt_logits and so on as of a
plain folder, and as dequantised.PATH the floats of some matrices, each product rounded to float32 as every reader of the
layout has it: what weft decodes must be these bits.
"""
import json
import os
import random
import struct
import sys

import make
import naive

AWQ_AT = (0, 4, 1, 5, 2, 6, 3, 7)  # the nibble of column c of eight


def f32(v):
    return struct.unpack('<f', struct.pack('<f', v))[0]


def f16(v):
    return struct.unpack('<e', struct.pack('<e', v))[0]


def read(path):
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head, data, out = json.loads(f.read(n)), f.read(), {}
    for name, t in head.items():
        if name == '__metadata__':
            continue
        a, b = t['data_offsets']
        raw, count = data[a:b], 1
        values = [struct.unpack('<f', b'\0\0' + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
        for d in reversed(t['shape'][1:]):
            values = [values[i:i + d] for i in range(0, len(values), d)]
        out[name] = values
    return out


def e4m3(code):
    sign, e, m = (-1.0 if code & 128 else 1.0), code >> 3 & 15, code & 7
    return sign * (m * 2.0 ** -9 if e == 0 else (8 + m) * 2.0 ** (e - 10))


E4M3 = sorted((e4m3(c), c) for c in range(127))  # positive ones, without what is no number


def to_e4m3(v):
    lo, a = min(range(len(E4M3)), key=lambda i: abs(E4M3[i][0] - abs(v))), abs(v)
    return E4M3[lo][1] | (128 if v < 0 else 0)


def words(codes, bits):
    """A row of codes as a stream of 32-bit words, lowest bits first."""
    n = 0
    for i, c in enumerate(codes):
        n |= c << i * bits
    return [n >> 32 * i & 0xFFFFFFFF for i in range((len(codes) * bits + 31) // 32)]


def signed(rows):
    return b''.join(struct.pack('<%dI' % len(r), *r) for r in rows)


def integer_codes(w, group, bits, symmetric, rounded, order=None):
    """codes[o][i], scales[o][g], zeros[o][g]; order[i]: the group of input i."""
    most, codes, scales, zeros = (1 << bits) - 1, [], [], []
    groups = len(w[0]) // group
    for row in w:
        s, z, q = [0.0] * groups, [0] * groups, [0] * len(row)
        for g in range(groups):
            mine = [v for i, v in enumerate(row) if (order[i] if order else i // group) == g]
            if symmetric:
                s[g], z[g] = rounded(max(abs(v) for v in mine) / (most // 2)), (most + 1) // 2
            else:
                lo, hi = min(min(mine), 0.0), max(max(mine), 0.0)
                s[g] = rounded((hi - lo) / most)
                z[g] = min(most, max(1, round(-lo / s[g])))
        for i, v in enumerate(row):
            g = order[i] if order else i // group
            q[i] = min(most, max(0, round(v / s[g]) + z[g]))
        codes.append(q), scales.append(s), zeros.append(z)
    return codes, scales, zeros


def values(codes, scales, zeros, group, order=None):
    def at(i):
        return order[i] if order else i // group
    return [[f32(s[at(i)] * (c - z[at(i)])) for i, c in enumerate(q)] for q, s, z in zip(codes, scales, zeros)]


def halves(rows):
    return b''.join(struct.pack('<%de' % len(r), *r) for r in rows)


def transposed(m):
    return [list(r) for r in zip(*m)]


def gptq(path, w, group, bits=4, order=None, rng=None):
    rows, cols = len(w), len(w[0])
    if order == 'random':
        order = [i // group for i in range(cols)]
        rng.shuffle(order)
    q, s, z = integer_codes(w, group, bits, False, f16, order)
    g = cols // group
    stream = transposed([words(row, bits) for row in q])
    out = {'qweight': ('I32', [cols * bits // 32, rows], signed(stream)),
           'qzeros': ('I32', [g, rows * bits // 32], signed([words([v - 1 for v in r], bits) for r in transposed(z)])),
           'scales': ('F16', [g, rows], halves(transposed(s))),
           'g_idx': ('I32', [cols], struct.pack('<%di' % cols, *(order or [i // group for i in range(cols)])))}
    return {f'{path}.{n}': t for n, t in out.items()}, values(q, s, z, group, order)


def awq(path, w, group, rng):
    q, s, z = integer_codes(w, group, 4, False, f16)
    cols, rows = len(w[0]), len(w)

    def pack(row):
        return [sum(row[8 * k + c] << 4 * AWQ_AT[c] for c in range(8)) for k in range(rows // 8)]
    out = {'qweight': ('I32', [cols, rows // 8], signed([pack(r) for r in transposed(q)])),
           'qzeros': ('I32', [cols // group, rows // 8], signed([pack(r) for r in transposed(z)])),
           'scales': ('F16', [cols // group, rows], halves(transposed(s)))}
    return {f'{path}.{n}': t for n, t in out.items()}, values(q, s, z, group)


def compressed(path, w, group, rng, symmetric=True):
    q, s, z = integer_codes(w, group, 4, symmetric, naive.bf16)
    cols, rows = len(w[0]), len(w)
    out = {'weight_packed': ('I32', [rows, cols // 8], signed([words(r, 4) for r in q])),
           'weight_scale': ('BF16', s),
           'weight_shape': ('I64', [2], struct.pack('<2q', rows, cols))}
    if not symmetric:
        stream = transposed([words(r, 4) for r in transposed(z)])
        out['weight_zero_point'] = ('I32', [len(stream), cols // group], signed(stream))
    return {f'{path}.{n}': t for n, t in out.items()}, values(q, s, z, group)


def fp8(path, w, rng, high, broad, name):
    """Scales for blocks of high rows and broad inputs; 0: of all."""
    rows, cols = len(w), len(w[0])
    high, broad = high or rows, broad or cols
    scales = [[f32(max(abs(w[o][i]) for o in range(r, min(r + high, rows)) for i in range(c, min(c + broad, cols))) / 448)
               for c in range(0, cols, broad)] for r in range(0, rows, high)]
    codes = [[to_e4m3(w[o][i] / scales[o // high][i // broad]) for i in range(cols)] for o in range(rows)]
    out = {f'{path}.weight': ('F8_E4M3', [rows, cols], b''.join(bytes(r) for r in codes)),
           f'{path}.{name}': ('F32', scales)}
    return out, [[f32(scales[o // high][i // broad] * e4m3(c)) for i, c in enumerate(r)] for o, r in enumerate(codes)]


def weights_of(**w):
    return {'config_groups': {'group_0': {'targets': ['Linear'], 'weights': w}}, 'ignore': ['lm_head']}


LAYOUTS = {
    'fp8-block': (lambda p, w, r: fp8(p, w, r, 16, 16, 'weight_scale_inv'),
                  {'quant_method': 'fp8', 'fmt': 'e4m3', 'weight_block_size': [16, 16]}),
    'ct-fp8': (lambda p, w, r: fp8(p, w, r, 1, 0, 'weight_scale'),
               {'quant_method': 'compressed-tensors', 'format': 'float-quantized',
                **weights_of(num_bits=8, type='float', strategy='channel', symmetric=True)}),
    'awq': (lambda p, w, r: awq(p, w, 16, r), {'quant_method': 'awq', 'bits': 4, 'group_size': 16, 'version': 'gemm',
                                               'zero_point': True}),
    'gptq': (lambda p, w, r: gptq(p, w, 16), {'quant_method': 'gptq', 'bits': 4, 'group_size': 16, 'desc_act': False}),
    'gptq-8bit': (lambda p, w, r: gptq(p, w, 16, 8), {'quant_method': 'gptq', 'bits': 8, 'group_size': 16}),
    'gptq-order': (lambda p, w, r: gptq(p, w, 16, 4, 'random', r), {'quant_method': 'gptq', 'bits': 4, 'group_size': 16,
                                                                    'desc_act': True}),
    'ct-int4': (lambda p, w, r: compressed(p, w, 16, r),
                {'quant_method': 'compressed-tensors', 'format': 'pack-quantized',
                 **weights_of(num_bits=4, type='int', strategy='group', group_size=16, symmetric=True)}),
    'ct-int4-zeros': (lambda p, w, r: compressed(p, w, 16, r, False),
                      {'quant_method': 'compressed-tensors', 'format': 'pack-quantized',
                       **weights_of(num_bits=4, type='int', strategy='group', group_size=16, symmetric=False)}),
}


def is_linear(name, t):
    return name.endswith('_proj.weight') and len(t) % 16 == 0 and len(t[0]) % 16 == 0


def quantise(folder, out, family, layout):
    with open(os.path.join(folder, 'config.json')) as f:
        config = json.load(f)
    how, section = LAYOUTS[layout]
    forward, plain, tensors, golden = make.FAMILIES[family]()[2], read(os.path.join(folder, 'model.safetensors')), {}, {}
    rng = random.Random(layout)
    for name, t in list(plain.items()):
        if not is_linear(name, t):
            tensors[name] = ('BF16', t)
            continue
        made, plain[name] = how(name[:-7], t, rng)
        tensors.update(made)
        if len(golden) < 2:
            golden['dequantised.' + name[:-7]] = ('F32', plain[name])
    for seed in range(1, 50):
        logits = make.run(forward, plain, config, random.Random(f'{layout} {seed}'))
        if logits:
            break
    golden.update(logits)
    config['quantization_config'] = section
    to = os.path.join(out, family, layout)
    os.makedirs(to, exist_ok=True)
    with open(os.path.join(to, 'config.json'), 'w') as f:
        json.dump(config, f, indent=1)
        f.write('\n')
    make.write_safetensors(os.path.join(to, 'model.safetensors'), tensors)
    make.write_safetensors(os.path.join(to, 'golden.safetensors'), golden)
    print(f'{family}/{layout}: seed {seed}')


def main():
    for layout in sys.argv[4:] or LAYOUTS:
        quantise(sys.argv[1], sys.argv[2], sys.argv[3], layout)


if __name__ == '__main__':
    main()
