"""Naive forward passes in float64: what the families' published equations say, token by token, without caches.

Written from the specifications of the families and not from weft's C, so that the two check each other.  Everything is
plain lists: a row is a list of floats, a matrix a list of rows, and a model a function from token ids to a row of logits
for each of them.  Slow and short on purpose.  make.py writes the vectors that tests read.
"""
import math
from operator import mul


# ---- numbers ----

def dot(a, b):
    return sum(map(mul, a, b))


def linear(w, x, bias=None):
    y = [dot(row, x) for row in w]
    return [a + b for a, b in zip(y, bias)] if bias else y


def add(a, b, by=1.0):
    return [x + by * y for x, y in zip(a, b)]


def rms(x, gain=None, eps=1e-6, one=0.0):
    r = 1.0 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * r * (g + one) for v, g in zip(x, gain)] if gain else [v * r for v in x]


def unit(x):
    r = 1.0 / math.sqrt(dot(x, x) + 1e-6)
    return [v * r for v in x]


def sigmoid(v):
    return 1.0 / (1.0 + math.exp(-v)) if v >= 0 else math.exp(v) / (1.0 + math.exp(v))


def silu(v):
    return v * sigmoid(v)


def gelu_tanh(v):
    return 0.5 * v * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (v + 0.044715 * v ** 3)))


def softplus(v):
    return v if v > 30 else math.log1p(math.exp(v))


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = sum(e)
    return [v / total for v in e]


def heads_of(x, n):
    d = len(x) // n
    return [x[i * d:(i + 1) * d] for i in range(n)]


def best(x, k):
    """The places of the k largest; the lower place of equal ones."""
    return sorted(range(len(x)), key=lambda i: (-x[i], i))[:k]


def rope(x, pos, theta, dims=None, adjacent=False):
    """Turns the first dims of x: pairs half of dims apart, or adjacent ones."""
    dims = len(x) if dims is None else dims
    out = list(x)
    for i in range(dims // 2):
        a, b = (2 * i, 2 * i + 1) if adjacent else (i, i + dims // 2)
        c, s = math.cos(pos * theta ** (-2.0 * i / dims)), math.sin(pos * theta ** (-2.0 * i / dims))
        out[a], out[b] = x[a] * c - x[b] * s, x[b] * c + x[a] * s
    return out


# ---- blocks: functions from the rows of a sequence to as many rows ----

def attend(q, k, v, scale, window=0, cap=0.0, seen=None):
    """q [rows][heads][d], k and v [rows][heads of keys][...]; a row sees `window` rows, itself included, or those of seen."""
    out = []
    for t, row in enumerate(q):
        share, y, first = len(row) // len(k[0]), [], max(0, t - window + 1) if window else 0
        at = seen[t] if seen else range(first, t + 1)
        for h, one in enumerate(row):
            z = [scale * dot(one, k[j][h // share]) for j in at]
            p = softmax([cap * math.tanh(s / cap) for s in z] if cap else z)
            y += [dot(p, [v[j][h // share][c] for j in at]) for c in range(len(v[0][0]))]
        out.append(y)
    return out


def attention(w, x, c, layer):
    """The usual block.  c says what differs: theta (None: no positions), dims, adjacent, norms, scale, window, cap."""
    n, m = c['num_attention_heads'], c['num_key_value_heads']
    f = c['_attention'](layer)
    q, k, v = [], [], []
    for pos, u in enumerate(x):
        if 'qkv_proj' in w:
            y, d = linear(w['qkv_proj'], u), len(w['qkv_proj']) // (n + 2 * m)
            a, b, e = y[:n * d], y[n * d:(n + m) * d], y[(n + m) * d:]
        else:
            a, b, e = (linear(w[s + '_proj'], u, w.get(s + '_proj.bias')) for s in 'qkv')
        if f.get('whole'):
            a, b = rms(a, w['q_norm'], f['eps']), rms(b, w['k_norm'], f['eps'])
        a, b = heads_of(a, n), heads_of(b, m)
        if f.get('norms'):
            a, b = ([rms(h, w[s + '_norm'], f['eps']) for h in r] for s, r in (('q', a), ('k', b)))
        if f.get('theta'):
            a, b = ([rope(h, pos, f['theta'], f.get('dims'), f.get('adjacent', False)) for h in r] for r in (a, b))
        q.append(a), k.append(b), v.append(heads_of(e, m))
    scale = f.get('scale', len(q[0][0]) ** -0.5)
    return [linear(w['o_proj'], y) for y in attend(q, k, v, scale, f.get('window', 0), f.get('cap', 0.0))]


def mlp(w, x, act=silu, limit=0.0):
    if 'gate_up_proj' in w:
        y = linear(w['gate_up_proj'], x)
        gate, up = y[:len(y) // 2], y[len(y) // 2:]
    else:
        gate, up = linear(w['gate_proj'], x), linear(w['up_proj'], x)
    gate = [act(g) for g in gate]
    if limit:
        gate, up = [min(g, limit) for g in gate], [max(-limit, min(limit, u)) for u in up]
    return linear(w['down_proj'], [g * u for g, u in zip(gate, up)])


def part(w, path):
    """The tensors under a path, named by what follows it; .weight is left out of names."""
    out = {}
    for name, t in w.items():
        if name.startswith(path + '.'):
            rest = name[len(path) + 1:]
            out[rest[:-7] if rest.endswith('.weight') else rest] = t
    return out


def convolve(w, rows, bias=None):
    """Causal, each channel by itself, then SiLU; w [channels][width], newest input last."""
    bias = bias or [0.0] * len(w)
    out = []
    for t in range(len(rows)):
        out.append([silu(bias[c] + sum(w[c][j] * rows[t - len(w[c]) + 1 + j][c] for j in range(len(w[c]))
                                       if t - len(w[c]) + 1 + j >= 0)) for c in range(len(w))])
    return out


def delta(q, k, v, decay, beta):
    """One head: S <- diag(decay) S, then S <- S + k (beta (v - S'k))', o = S'q; decay a row of [dk] per token."""
    s, out = [[0.0] * len(v[0]) for _ in k[0]], []
    for t in range(len(q)):
        s = [[a * y for y in row] for a, row in zip(decay[t], s)]
        e = [beta[t] * (v[t][c] - sum(k[t][i] * s[i][c] for i in range(len(s)))) for c in range(len(v[t]))]
        s = [add(row, e, k[t][i]) for i, row in enumerate(s)]
        out.append([sum(q[t][i] * s[i][c] for i in range(len(s))) for c in range(len(v[t]))])
    return out


def columns(w, name):
    """A convolution's weight [channels][1][width] without its middle."""
    return [row[0] if isinstance(row[0], list) else row for row in w[name]]


# ---- families: {tensors}, config, ids -> rows of logits ----

def embedded(w, ids, name='model.embed_tokens.weight', by=1.0):
    return [[by * v for v in w[name][i]] for i in ids]


def headed(w, rows, eps, one=0.0, embed='model.embed_tokens.weight'):
    head = w.get('lm_head.weight', w[embed])
    return [linear(head, rms(x, w['model.norm.weight'], eps, one)) for x in rows]


def pre_norm_model(w, c, ids, ffn=None):
    """h += s attention(norm h); h += s ffn(norm h): llama and its kin."""
    eps, s = c['rms_norm_eps'], c.get('residual_multiplier', 1.0)
    h = embedded(w, ids, by=c.get('embedding_multiplier', 1.0))
    for i in range(c['num_hidden_layers']):
        p = part(w, f'model.layers.{i}')
        y = attention(part(p, 'self_attn') or part(w, f'model.layers.{i}.self_attn'),
                      [rms(x, p['input_layernorm'], eps) for x in h], c, i)
        h = [add(x, b, s) for x, b in zip(h, y)]
        for t, x in enumerate(h):
            u = rms(x, p['post_attention_layernorm'], eps)
            h[t] = add(x, (ffn or mlp)(part(w, f'model.layers.{i}.mlp'), u), s)
    return [[v / c.get('logits_scaling', 1.0) for v in row] for row in headed(w, h, eps)]


def granite(w, c, ids):
    c = dict(c, _attention=lambda i: {'theta': c['rope_theta'], 'scale': c['attention_multiplier']})
    return pre_norm_model(w, c, ids)


def smollm3(w, c, ids):
    c = dict(c, _attention=lambda i: {'theta': c['rope_theta'] if c['no_rope_layers'][i] else None})
    return pre_norm_model(w, c, ids)


def phi3(w, c, ids):
    dims = int(c['hidden_size'] // c['num_attention_heads'] * c['partial_rotary_factor'])
    c = dict(c, _attention=lambda i: {'theta': c['rope_theta'], 'dims': dims, 'window': c['sliding_window']})
    return pre_norm_model(w, c, ids)


def qwen2_moe(w, c, ids):
    def ffn(p, x):
        if 'gate' not in p:
            return mlp(p, x)
        score = softmax(linear(p['gate'], x))
        chosen = best(score, c['num_experts_per_tok'])
        total = sum(score[e] for e in chosen) if c['norm_topk_prob'] else 1.0
        y = [sigmoid(linear(p['shared_expert_gate'], x)[0]) * v for v in mlp(part_of(p, 'shared_expert'), x)]
        for e in chosen:
            y = add(y, mlp(part_of(p, f'experts.{e}'), x), score[e] / total)
        return y
    return pre_norm_model(w, dict(c, _attention=lambda i: {'theta': c['rope_theta']}), ids, ffn)


def part_of(p, path):
    """part() of what has lost its .weight already."""
    return {n[len(path) + 1:]: t for n, t in p.items() if n.startswith(path + '.')}


def olmo2(w, c, ids):
    """Norms behind the blocks alone; those of queries and keys over the whole projected row."""
    eps = c['rms_norm_eps']
    h = embedded(w, ids)
    c = dict(c, _attention=lambda i: {'theta': c['rope_theta'], 'whole': True, 'eps': eps})
    for i in range(c['num_hidden_layers']):
        h = olmo_layer(w, c, i, h)
    return headed(w, h, eps)


def olmo_layer(w, c, i, h):
    p, eps = part(w, f'model.layers.{i}'), c['rms_norm_eps']
    y = attention(part(w, f'model.layers.{i}.self_attn'), h, c, i)
    h = [add(x, rms(b, p['post_attention_layernorm'], eps)) for x, b in zip(h, y)]
    m = part(w, f'model.layers.{i}.mlp')
    return [add(x, rms(mlp(m, x), p['post_feedforward_layernorm'], eps)) for x in h]


def olmo_hybrid(w, c, ids):
    """Gated delta net with norms before it; attention without positions and with norms behind it."""
    eps, h = c['rms_norm_eps'], embedded(w, ids)
    c = dict(c, _attention=lambda i: {'theta': None, 'whole': True, 'eps': eps})
    for i, kind in enumerate(c['layer_types']):
        if kind == 'full_attention':
            h = olmo_layer(w, c, i, h)
            continue
        p = part(w, f'model.layers.{i}')
        y = olmo_delta(part(w, f'model.layers.{i}.linear_attn'), c, [rms(x, p['input_layernorm'], eps) for x in h])
        h = [add(x, b) for x, b in zip(h, y)]
        m = part(w, f'model.layers.{i}.mlp')
        h = [add(x, mlp(m, rms(x, p['post_attention_layernorm'], eps))) for x in h]
    return headed(w, h, eps)


def olmo_delta(p, c, x):
    nk, nv = c['linear_num_key_heads'], c['linear_num_value_heads']
    q, k, v = ([heads_of(r, n) for r in convolve(columns(p, s + '_conv1d'), [linear(p[s + '_proj'], u) for u in x])]
               for s, n in (('q', nk), ('k', nk), ('v', nv)))
    a, b, z = ([linear(p[s + '_proj'], u) for u in x] for s in 'abg')
    dk, rows = len(q[0][0]), range(len(x))
    out = [[] for _ in rows]
    for h in range(nv):
        g = h // (nv // nk)
        decay = [[math.exp(-math.exp(p['A_log'][h]) * softplus(a[t][h] + p['dt_bias'][h]))] * dk for t in rows]
        beta = [(2.0 if c['linear_allow_neg_eigval'] else 1.0) * sigmoid(b[t][h]) for t in rows]
        o = delta([[s * dk ** -0.5 for s in unit(q[t][g])] for t in rows], [unit(k[t][g]) for t in rows],
                  [v[t][h] for t in rows], decay, beta)
        for t in rows:
            gate = heads_of(z[t], nv)[h]
            out[t] += [y * silu(s) for y, s in zip(rms(o[t], p['o_norm'], 1e-5), gate)]
    return [linear(p['o_proj'], y) for y in out]


def gemma2(w, c, ids):
    eps, cap = c['rms_norm_eps'], c['final_logit_softcapping']
    h = embedded(w, ids, by=bf16(math.sqrt(c['hidden_size'])))
    f = {'theta': c['rope_theta'], 'scale': c['query_pre_attn_scalar'] ** -0.5, 'cap': c['attn_logit_softcapping']}
    c = dict(c, _attention=lambda i: dict(f, window=0 if i % 2 else c['sliding_window']))
    for i in range(c['num_hidden_layers']):
        p = part(w, f'model.layers.{i}')
        y = attention(part(w, f'model.layers.{i}.self_attn'), [rms(x, p['input_layernorm'], eps, 1.0) for x in h], c, i)
        h = [add(x, rms(b, p['post_attention_layernorm'], eps, 1.0)) for x, b in zip(h, y)]
        m = part(w, f'model.layers.{i}.mlp')
        y = [mlp(m, rms(x, p['pre_feedforward_layernorm'], eps, 1.0), gelu_tanh) for x in h]
        h = [add(x, rms(b, p['post_feedforward_layernorm'], eps, 1.0)) for x, b in zip(h, y)]
    return [[cap * math.tanh(v / cap) for v in row] for row in headed(w, h, eps, 1.0)]


def bf16(v):
    import struct
    u = struct.unpack('<I', struct.pack('<f', v))[0]
    u = (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000
    return struct.unpack('<f', struct.pack('<I', u))[0]


def glm4(w, c, ids):
    eps, h = c['rms_norm_eps'], embedded(w, ids)
    dims = int(c['head_dim'] * c['partial_rotary_factor'])
    c = dict(c, _attention=lambda i: {'theta': c['rope_theta'], 'dims': dims, 'adjacent': True})
    for i in range(c['num_hidden_layers']):
        p = part(w, f'model.layers.{i}')
        y = attention(part(w, f'model.layers.{i}.self_attn'), [rms(x, p['input_layernorm'], eps) for x in h], c, i)
        h = [add(x, rms(b, p['post_self_attn_layernorm'], eps)) for x, b in zip(h, y)]
        m = part(w, f'model.layers.{i}.mlp')
        y = [mlp(m, rms(x, p['post_attention_layernorm'], eps)) for x in h]
        h = [add(x, rms(b, p['post_mlp_layernorm'], eps)) for x, b in zip(h, y)]
    return headed(w, h, eps)


def mamba2(w, c, ids):
    """Mamba-2 alone.  The norm behind the gate goes by groups, as in the original code."""
    eps = c['layer_norm_epsilon']
    h = embedded(w, ids, 'backbone.embeddings.weight')
    for i in range(c['num_hidden_layers']):
        p = part(w, f'backbone.layers.{i}')
        y = ssm(part(w, f'backbone.layers.{i}.mixer'), c, [rms(x, p['norm'], eps) for x in h])
        h = [add(x, b) for x, b in zip(h, y)]
    return [linear(w['lm_head.weight'], rms(x, w['backbone.norm_f.weight'], eps)) for x in h]


def ssm(p, c, x):
    n, d, g, states = c['num_heads'], c['head_dim'], c['n_groups'], c['state_size']
    inner, rows = n * d, [linear(p['in_proj'], u) for u in x]
    z, dt = [r[:inner] for r in rows], [r[-n:] for r in rows]
    mixed = convolve(columns(p, 'conv1d'), [r[inner:-n] for r in rows], p['conv1d.bias'])
    s, out = [[[0.0] * states for _ in range(d)] for _ in range(n)], []
    for t, row in enumerate(mixed):
        y = []
        b, e = heads_of(row[inner:inner + g * states], g), heads_of(row[inner + g * states:], g)
        for h in range(n):
            step = softplus(dt[t][h] + p['dt_bias'][h])
            keep, of = math.exp(-step * math.exp(p['A_log'][h])), h * g // n
            for k in range(d):
                v = row[h * d + k]
                s[h][k] = [keep * a + step * v * q for a, q in zip(s[h][k], b[of])]
                y.append(dot(s[h][k], e[of]) + p['D'][h] * v)
        y = [a * silu(q) for a, q in zip(y, z[t])]
        y = sum((rms(q, None, c['layer_norm_epsilon']) for q in heads_of(y, g)), [])
        out.append(linear(p['out_proj'], [a * q for a, q in zip(y, p['norm'])]))
    return out


def kda(p, c, x):
    n, d, rows = c['num_attention_heads'], c['head_dim'], range(len(x))
    q, k, v = ([heads_of(r, n) for r in convolve(columns(p, s + '_conv1d'), [linear(p[s + '_proj'], u) for u in x])]
               for s in 'qkv')
    if 'f_proj' in p:
        f, z = ([heads_of(linear(p[s + '_proj'], u), n) for u in x] for s in 'fg')
    else:
        f, z = ([heads_of(linear(p[s + '_b_proj'], linear(p[s + '_a_proj'], u)), n) for u in x] for s in 'fg')
    b, bias = [linear(p['b_proj'], u) for u in x], heads_of(p['dt_bias'], n)
    out = [[] for _ in rows]
    for h in range(n):
        rate = math.exp(p['A_log'][h])
        decay = [[math.exp(c['kda_lower_bound'] * sigmoid(rate * (y + s))) for y, s in zip(f[t][h], bias[h])]
                 for t in rows]
        o = delta([[s * d ** -0.5 for s in unit(q[t][h])] for t in rows], [unit(k[t][h]) for t in rows],
                  [v[t][h] for t in rows], decay, [sigmoid(b[t][h]) for t in rows])
        for t in rows:
            out[t] += [y * sigmoid(s) for y, s in zip(rms(o[t], p['o_norm'], c['rms_norm_eps']), z[t][h])]
    return [linear(p['o_proj'], y) for y in out]


def index_key(p, u):
    y = linear(p['indexer.wk'], u)
    middle = sum(y) / len(y)
    return add(rms([v - middle for v in y], p['indexer.k_norm'], 1e-6), p['indexer.k_norm.bias'])


def pools_seen(p, c, x, low):
    """Positions that each row sees: those of the best whole pools, of equal ones the earlier, and all behind the last.  A
    pool's key is the sum of its rows' keys, weighted by a softmax over them of each number."""
    size, keys, seen = c['index_kpool'], [], []
    k, gate = [index_key(p, u) for u in x], [linear(p['indexer.index_kpool_compress_gate'], u) for u in x]
    for at in range(0, len(x) - size + 1, size):
        share = [softmax(list(v)) for v in zip(*(add(g, b) for g, b in zip(gate[at:], p['indexer.index_kpool_compress_ape'])))]
        keys.append([dot(s, v) for s, v in zip(share, zip(*k[at:at + size]))])
    for t, (u, a) in enumerate(zip(x, low)):
        q, w, whole = heads_of(linear(p['indexer.wq_b'], a), c['index_n_heads']), linear(p['indexer.weights_proj'], u), (t + 1) // size
        some = sorted(best([sum(f * max(dot(v, b), 0.0) for f, v in zip(w, q)) for b in keys[:whole]], c['index_topk'] // size))
        seen.append([b * size + i for b in some for i in range(size)] + list(range(whole * size, t + 1)))
    return seen


def indexed(p, c, x, low):
    """The rows that each row sees, rising: those of the highest scores, the earlier of equal ones."""
    q, k, w = [], [], [linear(p['indexer.weights_proj'], u) for u in x]
    for pos, (u, a) in enumerate(zip(x, low)):
        y = index_key(p, u)
        turn = c['rope_theta'], c['qk_rope_head_dim'], c['indexer_rope_interleave']
        q.append([rope(z, pos, *turn) for z in heads_of(linear(p['indexer.wq_b'], a), c['index_n_heads'])])
        k.append(rope(y, pos, *turn))
    return [sorted(best([sum(f * max(dot(z, k[j]), 0.0) for f, z in zip(w[t], q[t])) for j in range(t + 1)],
                        c['index_topk'])) for t in range(len(x))]


def latent(p, c, x, seen=None):
    """seen: what rows see, which a layer with an indexer changes; None: all before them."""
    n, dn, dr, dv = c['num_attention_heads'], c['qk_nope_head_dim'], c['qk_rope_head_dim'], c['v_head_dim']
    r, q, k, v = c['kv_lora_rank'], [], [], []
    eps = c.get('latent_eps', 1e-6)
    low = [rms(linear(p['q_a_proj'], u), p['q_a_layernorm'], eps) for u in x] if 'q_b_proj' in p else x
    if 'indexer.wq_b' in p:
        seen[:] = (pools_seen if 'index_kpool' in c else indexed)(p, c, x, low)
    for pos, u in enumerate(x):
        a = linear(p['q_b_proj'] if 'q_b_proj' in p else p['q_proj'], low[pos])
        q.append([y[:dn] + rope(y[dn:], pos, c['rope_theta'], adjacent=True) for y in heads_of(a, n)])
        y = linear(p['kv_a_proj_with_mqa'], u)
        shared = rope(y[r:], pos, c['rope_theta'], adjacent=True)
        heads = heads_of(linear(p['kv_b_proj'], rms(y[:r], p['kv_a_layernorm'], eps)), n)
        k.append([s[:dn] + shared for s in heads])
        v.append([s[dn:] for s in heads])
    out = []
    for u, y in zip(x, attend(q, k, v, (dn + dr) ** -0.5, seen=seen)):
        if 'g_proj' in p:
            g = [sigmoid(s) for s in linear(p['g_proj'], u)]
            each = 1 if len(g) > n else dv
            y = [s * g[i // each] for i, s in enumerate(y)]
        out.append(linear(p['dense'] if 'dense' in p else p['o_proj'], y))
    return out


def grouped_moe(p, c, x, rejected=-math.inf, run=mlp, inside=None, shared=None):
    """rejected: the score of experts of other groups.  inside: what the experts read, and the shared one does not.
    shared: how that one runs, where otherwise."""
    score = [sigmoid(s) for s in linear(p['gate'], x)]
    biased = add(score, p['gate.expert_bias'] if 'gate.expert_bias' in p else p['gate.e_score_correction_bias'])
    size = len(score) // c['n_group']
    sums = [sum(sorted(biased[g * size:(g + 1) * size])[-2:]) for g in range(c['n_group'])]
    kept = best(sums, c['topk_group'])
    masked = [s if e // size in kept else rejected for e, s in enumerate(biased)]
    chosen = best(masked, c['num_experts_per_tok'])
    total = sum(score[e] for e in chosen) + 1e-20
    y = (shared or run)(part_of(p, 'shared_experts'), x) if inside is None else [0.0] * len(inside)
    for e in chosen:
        y = add(y, run(part_of(p, f'experts.{e}'), x if inside is None else inside),
                c['routed_scaling_factor'] * score[e] / total)
    return y


# ---- families by layers, for those with a draft head: {tensors}, config, path, kind, rows -> rows ----

def deepseek_layer(w, c, at, kind, h):
    """Latent attention; experts of rejected groups score 0."""
    p, eps = part(w, at), c['rms_norm_eps']
    y = latent(part(w, at + '.self_attn'), c, [rms(x, p['input_layernorm'], eps) for x in h])
    return feed(w, c, at, kind, [add(x, b) for x, b in zip(h, y)], 0.0)


def dsa_layer(w, c, at, kind, h):
    """The same, and rows see what the last layer with an indexer chose."""
    p, eps = part(w, at), c['rms_norm_eps']
    y = latent(part(w, at + '.self_attn'), c, [rms(x, p['input_layernorm'], eps) for x in h], kind[1])
    return feed(w, c, at, kind[0], [add(x, b) for x, b in zip(h, y)], 0.0)


def limit_of(c, key, at):
    """The limit of a layer's activations, of a list by layer; 0: none."""
    i, limits = int(at.rsplit('.', 1)[1]), c.get(key) or []
    return limits[i] if i < len(limits) else 0.0


def feed(w, c, at, kind, h, rejected):
    p, m = part(w, at)['post_attention_layernorm'], part(w, at + '.mlp')
    run, shared = (lambda q, u, s=s: mlp(q, u, limit=limit_of(c, s + '_swiglu_limit_list', at))
                   for s in ('expert', 'share_expert'))
    ffn = mlp if kind == 'dense' else lambda q, u: grouped_moe(q, c, u, rejected, run, shared=shared)
    return [add(x, ffn(m, rms(x, p, c['rms_norm_eps']))) for x in h]


def glm4_moe_layer(w, c, at, kind, h):
    """The usual attention, half of a head turned, with norms of queries and keys by head."""
    p, eps = part(w, at), c['rms_norm_eps']
    f = {'theta': c['rope_theta'], 'dims': int(c['head_dim'] * c['partial_rotary_factor']), 'norms': True, 'eps': eps}
    y = attention(part(w, at + '.self_attn'), [rms(x, p['input_layernorm'], eps) for x in h],
                  dict(c, _attention=lambda i: f), 0)
    return feed(w, c, at, kind, [add(x, b) for x, b in zip(h, y)], 0.0)


def bailing_layer(w, c, at, kind, h):
    """Ling 3.0: Kimi Delta Attention with a bounded decay, latent attention with a gate, mixture in groups."""
    mixer, ffn = kind
    p, eps = part(w, at), c['rms_norm_eps']
    y = mixer(part(w, at + '.attention'), c, [rms(x, p['input_layernorm'], eps) for x in h])
    return feed(w, c, at, ffn, [add(x, b) for x, b in zip(h, y)], -math.inf)


def nemotron_layer(w, c, at, kind, h):
    """One mixer, by its letter: Mamba-2, attention without positions, or a mixture of relu squared without gates."""
    p = part(w, at + '.mixer')
    x = [rms(r, part(w, at)['norm'], c['layer_norm_epsilon']) for r in h]
    if kind == 'M':
        y = ssm(p, dict(c, num_heads=c['mamba_num_heads'], head_dim=c['mamba_head_dim'],
                        state_size=c['ssm_state_size']), x)
    elif kind == '*':
        y = attention(p, x, dict(c, _attention=lambda i: {}), 0)
    else:
        y = [relu2_mixture(p, c, u) for u in x]
    return [add(a, b) for a, b in zip(h, y)]


def relu2(p, x):
    return linear(p['down_proj'], [max(v, 0.0) ** 2 for v in linear(p['up_proj'], x)])


def relu2_mixture(p, c, x):
    if 'fc1_latent_proj' not in p:
        return grouped_moe(p, c, x, 0.0, relu2)
    y = linear(p['fc2_latent_proj'], grouped_moe(p, c, x, 0.0, relu2, linear(p['fc1_latent_proj'], x)))
    return add(y, relu2(part_of(p, 'shared_experts'), x))


# ---- Qwen3.8-Flash-Next: residual streams; rows of h are lists of streams ----

def stream_norms(gain, x, eps):
    """Each stream by itself, side by side."""
    return [v for g, s in zip(heads_of(gain, len(x)), x) for v in rms(s, g, eps, 1.0)]


def gates(p, x, eps):
    """What a block reads of streams x, and what it is multiplied with where it joins each."""
    n, count = stream_norms(p['hc_norm'], x, eps), len(x)
    low = [silu(v / count) for v in linear(p['input_mix_weight_down'], n)]
    mixed = [sigmoid(m) * v / count for m, v in zip(linear(p['input_mix_weight_up'], low), n)]
    by = [2.0 * sigmoid(v / count) for v in linear(p['block_inject_weight'], n)] if 'block_inject_weight' in p else None
    return [sum(v) for v in zip(*heads_of(mixed, count))], by


def around(p, h, block, eps):
    """h with what a block, a function of rows, makes of what the gates give it."""
    read = [gates(p, x, eps) for x in h]
    return [[add(s, y, j) for s, j in zip(x, by)] for x, (_, by), y in zip(h, read, block([u for u, _ in read]))]


def qwen4_delta(p, c, x):
    nk, nv, dk = c['linear_num_key_heads'], c['linear_num_value_heads'], c['linear_key_head_dim']
    qkv = convolve(columns(p, 'conv1d'), [linear(p['in_proj_qkv'], u) for u in x])
    q, k = ([[unit(v) for v in heads_of(r[i * nk * dk:(i + 1) * nk * dk], nk)] for r in qkv] for i in range(2))
    v = [heads_of(r[2 * nk * dk:], nv) for r in qkv]
    a, b, z = ([linear(p['in_proj_' + s], u) for u in x] for s in 'abz')
    out = [[] for _ in x]
    for h in range(nv):
        g = h // (nv // nk)
        decay = [[math.exp(-math.exp(p['A_log'][h]) * softplus(s[h] + p['dt_bias'][h]))] * dk for s in a]
        o = delta([[s * dk ** -0.5 for s in r[g]] for r in q], [r[g] for r in k], [r[h] for r in v], decay,
                  [sigmoid(s[h]) for s in b])
        for t, y in enumerate(o):
            out[t] += [s * sigmoid(u) for s, u in zip(rms(y, p['norm'], c['rms_norm_eps']), heads_of(z[t], nv)[h])]
    return [linear(p['out_proj'], y) for y in out]


def blocks_seen(p, c, x, turn):
    """Positions that each row sees: those of the best whole blocks, of equal ones the earlier, and all behind the last."""
    n, size, eps = c['indexer_n_heads'], c['indexer_compress_ratio'], c['rms_norm_eps']
    both = [heads_of(linear(p['indexer.index_qk_proj'], u), n + 1) for u in x]
    keys = []
    for at in range(0, len(x) - size + 1, size):
        mean = [sum(v) / size for v in zip(*(r[n] for r in both[at:at + size]))]
        keys.append(rope(rms(mean, p['indexer.k_layernorm'], eps, 1.0), at, *turn))
    seen = []
    for t, r in enumerate(both):
        q, whole = [rope(rms(v, p['indexer.q_layernorm'], eps, 1.0), t, *turn) for v in r[:n]], (t + 1) // size
        score = [sum(max(dot(v, k), 0.0) for v in q) for k in keys[:whole]]
        some = sorted(best(score, c['indexer_budget'] // size))
        seen.append([b * size + i for b in some for i in range(size)] + list(range(whole * size, t + 1)))
    return seen


def qwen4_attention(p, c, x):
    nq, d, eps = c['num_attention_heads'], c['head_dim'], c['rms_norm_eps']
    rows, nk = range(len(x)), c['num_key_value_heads']
    turn = c['rope_parameters']['rope_theta'], int(d * c['partial_rotary_factor'])
    both = [heads_of(linear(p['q_proj'], u), nq) for u in x]
    q = [[rope(rms(v[:d], p['q_norm'], eps, 1.0), t, *turn) for v in both[t]] for t in rows]
    k = [[rope(rms(v, p['k_norm'], eps, 1.0), t, *turn) for v in heads_of(linear(p['k_proj'], x[t]), nk)] for t in rows]
    y = attend(q, k, [heads_of(linear(p['v_proj'], u), nk) for u in x], d ** -0.5, seen=blocks_seen(p, c, x, turn))
    gate = [[g for v in r for g in v[d:]] for r in both]
    return [linear(p['o_proj'], [a * sigmoid(g) for a, g in zip(r, s)]) for r, s in zip(y, gate)]


def qwen4_moe(p, c, x):
    score = softmax(linear(p['gate'], x))
    chosen = best(score, c['num_experts_per_tok'])
    total = sum(score[e] for e in chosen)
    y = [v * sigmoid(linear(p['shared_expert_gate'], x)[0]) for v in mlp(part_of(p, 'shared_expert'), x)]
    for e in chosen:
        both = linear(p['experts.gate_up_proj'][e], x)
        inner = [silu(g) * u for g, u in zip(*heads_of(both, 2))]
        y = add(y, linear(p['experts.down_proj'][e], inner), score[e] / total)
    return y


def ngram_rows(p, c, ids):
    """Of each token the rows of the table, side by side."""
    most, end = c['ngram_size'], c['eos_token_id']
    mult, size, offset = (p['ple_embedding.' + n][1] for n in ('layer_multipliers', 'ngram_heads_vocab_sizes', 'ngram_heads_offsets'))
    table = [r for i in range(c['split_ngram_parts']) for r in p[f'ple_embedding.ngram_embedding.shard_{i}']]
    out = []
    for t in range(len(ids)):
        last = [ids[t]]
        for s in range(1, most):
            last.append(end if t < s or last[-1] == end and s > 1 else ids[t - s])
        row = []
        for h in range(len(size)):
            mix = 0
            for i in range(h // c['heads_per_ngram'] + 2):
                mix ^= last[i] * mult[i]
            row += table[mix % size[h] + offset[h]]
        out.append(row)
    return out


def ngram_memory(p, c, ids, h):
    eps, width, every, joined = c['rms_norm_eps'], len(h[0][0]), c['ngram_size'], []
    for e, x in zip(ngram_rows(p, c, ids), h):
        count, key, v = len(x), linear(p['key_proj'], e), linear(p['value_proj'], e)
        k = heads_of(stream_norms(p['norm_key'], heads_of(key, count), eps), count)
        q = heads_of(stream_norms(p['norm_query'], x, eps), count)
        g = [dot(a, b) / math.sqrt(width) for a, b in zip(k, q)]
        g = [math.copysign(math.sqrt(max(abs(s), 1e-6)), s) if s else 0.0 for s in g]
        joined.append([[sigmoid(s) * a for a in v] for s in g])
    normed, w, out = [stream_norms(p['norm_conv'], u, eps) for u in joined], columns(p, 'conv1d'), []
    for t, (x, u) in enumerate(zip(h, joined)):
        y = [silu(sum(row[j] * normed[t - (len(row) - 1 - j) * every][i] for j in range(len(row))
                      if t >= (len(row) - 1 - j) * every)) for i, row in enumerate(w)]
        out.append([add(add(a, b), d) for a, b, d in zip(x, u, heads_of(y, len(x)))])
    return out


def qwen4_layer(w, c, at, kind, h):
    p, eps = {n: part(w, f'{at}.{n}') for n in ('self_attn', 'linear_attn', 'mlp')}, c['rms_norm_eps']
    mixer = (lambda x: qwen4_delta(p['linear_attn'], c, x)) if kind == 'linear_attention' else \
        (lambda x: qwen4_attention(p['self_attn'], c, x))
    h = around(part(w, at + '.attn_hyper_connection'), h, mixer, eps)
    return around(part(w, at + '.mlp_hyper_connection'), h, lambda x: [qwen4_moe(p['mlp'], c, u) for u in x], eps)


def qwen4_streams(w, c, ids):
    h = [[list(w['model.embed_tokens.weight'][i]) for _ in range(c['hc_count'])] for i in ids]
    for i, kind in enumerate(c['layer_types']):
        if i + 1 in c['ple_layer_ids']:
            h = ngram_memory(part(w, f'model.layers.{i}.ple'), c, ids, h)
        h = qwen4_layer(w, c, f'model.layers.{i}', kind, h)
    return h


def qwen4_ends(w, c, at, h):
    p = part(w, at + '.hyper_connection_mixer')
    return [linear(w['lm_head.weight'], gates(p, x, c['rms_norm_eps'])[0]) for x in h]


def qwen4_draft(w, c, ids, given):
    p, eps, h = part(w, 'mtp'), c['rms_norm_eps'], []
    for i, g in zip(ids, given):
        e = linear(p['fc_embedding'], rms(w['model.embed_tokens.weight'][i], p['pre_fc_norm_embedding'], eps, 1.0))
        h.append([add(e, linear(p['fc_hidden'], s)) for s in
                  heads_of(rms(g, p['pre_fc_norm_hidden'], eps, 1.0), c['hc_count'])])
    h = qwen4_layer(w, c, 'mtp.layers.0', 'full_attention', h)
    return [sum(x, []) for x in h], qwen4_ends(w, c, 'mtp', h)


QWEN4 = {'logits': lambda w, c, ids: qwen4_ends(w, c, 'model', qwen4_streams(w, c, ids)), 'draft': qwen4_draft,
         'given': lambda w, c, ids: [sum(x, []) for x in qwen4_streams(w, c, ids)]}


# ---- GLM-5.3-Flash: residual streams that a balanced matrix mixes ----

def stream_gates(p, site, c, x):
    """What a block reads of streams x, what it is multiplied with where it joins each, and the matrix that mixes them."""
    n, eps = c['hc_mult'], c['hc_eps']
    z = linear(p[f'hc_{site}_fn'], rms(sum(x, []), None, c['rms_norm_eps']))
    scale = p[f'hc_{site}_scale']
    z = [v * scale[min(i // n, 2)] + b for i, (v, b) in enumerate(zip(z, p[f'hc_{site}_base']))]
    m = [[v + eps for v in softmax(row)] for row in heads_of(z[2 * n:], n)]
    for i in range(2 * c['hc_sinkhorn_iters'] - 1):    # columns first, and last
        if i % 2 == 0:
            m = [list(v) for v in zip(*m)]
        m = [[v / (sum(row) + eps) for v in row] for row in m]
        if i % 2 == 0:
            m = [list(v) for v in zip(*m)]
    read = [sum(sigmoid(v) * s + eps * s for v, s in zip(z, column)) for column in zip(*x)]
    return read, [2.0 * sigmoid(v) for v in z[n:2 * n]], m


def mixed_around(p, site, c, h, block):
    gates_of = [stream_gates(p, site, c, x) for x in h]
    out = []
    for x, (_, post, m), y in zip(h, gates_of, block([g[0] for g in gates_of])):
        out.append([[post[b] * v + sum(m[a][b] * x[a][i] for a in range(len(x))) for i, v in enumerate(y)]
                    for b in range(len(x))])
    return out


def glm5_mlp(p, x, limit):
    gate, up = linear(p['gate_proj'], x), linear(p['up_proj'], x)
    return linear(p['down_proj'], [silu(min(g, limit)) * max(-limit, min(limit, u)) for g, u in zip(gate, up)])


def glm5_blocks(w, c, at, kind):
    p, l, limit = part(w, at), c['linear_attn_config'], c['swiglu_limit']
    run = lambda q, u: glm5_mlp(q, u, limit)
    m, a = part(w, at + '.mlp'), part(w, at + '.self_attn')
    linear_c = dict(c, num_attention_heads=l['num_heads'], head_dim=l['head_dim'], kda_lower_bound=l['gate_lower_bound'])
    latent_c = dict(c, latent_eps=c['rms_norm_eps'])
    normed = lambda name, x: [rms(u, p[name], c['rms_norm_eps']) for u in x]
    mixer = lambda x: kda(a, linear_c, normed('input_layernorm', x)) if kind[0] == 'linear_attention' else \
        latent(a, latent_c, normed('input_layernorm', x), [])
    ffn = lambda x: [run(m, u) if kind[1] == 'dense' else grouped_moe(m, c, u, 0.0, run)
                     for u in normed('post_attention_layernorm', x)]
    return p, mixer, ffn


def glm5_plain_layer(w, c, at, kind, h):
    for block in glm5_blocks(w, c, at, kind)[1:]:
        h = [add(x, y) for x, y in zip(h, block(h))]
    return h


def glm5_rows(w, c, ids):
    h = [[list(w['model.embed_tokens.weight'][i]) for _ in range(c['hc_mult'])] for i in ids]
    for i, kind in enumerate(zip(c['layer_types'], c['mlp_layer_types'])):
        p, mixer, ffn = glm5_blocks(w, c, f'model.layers.{i}', kind)
        h = mixed_around(p, 'ffn', c, mixed_around(p, 'attn', c, h, mixer), ffn)
    return [rms([sum(v) / len(x) for v in zip(*x)], w['model.norm.weight'], c['rms_norm_eps']) for x in h]


# ---- DeepSeek V4: streams as above; a window of rows that are key and value, and rows for groups of positions ----

def turn_last(x, pos, c, far):
    d, theta = len(x) - c['qk_rope_head_dim'], c['compress_rope_theta' if far else 'rope_theta']
    return x[:d] + rope(x[d:], pos, theta, adjacent=True)


def group_rows(p, c, x, every, d):
    """Rows of whole groups; those of 4 positions overlap: the first halves of the group before count, too."""
    kv, rows = [linear(p['wkv'], u) for u in x], []
    gate = [add(linear(p['wgate'], u), p['ape'][t % every]) for t, u in enumerate(x)]
    for j in range(len(x) // every):
        own, before = range(j * every, (j + 1) * every), range((j - 1) * every, j * every) if j else ()
        halves = [(t, 0) for t in before] + [(t, d) for t in own] if every == 4 else [(t, 0) for t in own]
        row = [dot(softmax([gate[t][h + i] for t, h in halves]), [kv[t][h + i] for t, h in halves]) for i in range(d)]
        rows.append(turn_last(rms(row, p['norm'], c['rms_norm_eps']), j * every, c, True))
    return rows


def deepseek4_attention(p, c, x, every):
    n, d, eps, far = c['num_attention_heads'], c['head_dim'], c['rms_norm_eps'], every > 0
    low = [rms(linear(p['wq_a'], u), p['q_norm'], eps) for u in x]
    near = [turn_last(rms(linear(p['wkv'], u), p['kv_norm'], eps), t, c, far) for t, u in enumerate(x)]
    past = group_rows(part_of(p, 'compressor'), c, x, every, d) if far else []
    keys = group_rows(part_of(p, 'indexer.compressor'), c, x, every, c['index_head_dim']) if every == 4 else []
    out = []
    for t, u in enumerate(x):
        seen = list(range((t + 1) // every)) if far else []
        if keys:
            q = [turn_last(v, t, c, True) for v in heads_of(linear(p['indexer.wq_b'], low[t]), c['index_n_heads'])]
            w = linear(p['indexer.weights_proj'], u)
            seen = best([sum(f * max(dot(v, keys[j]), 0.0) for f, v in zip(w, q)) for j in seen], c['index_topk'])
        rows, y = [past[j] for j in seen] + near[max(0, t - c['sliding_window'] + 1):t + 1], []
        for h, v in enumerate(heads_of(linear(p['wq_b'], low[t]), n)):
            v = turn_last(rms(v, None, eps), t, c, far)
            share = softmax([dot(v, r) * d ** -0.5 for r in rows] + [p['attn_sink'][h]])
            y += turn_last([dot(share[:-1], z) for z in zip(*rows)], -t, c, far)
        groups = heads_of(y, c['o_groups'])
        mixed = sum((linear(w, g) for w, g in zip(heads_of(p['wo_a'], c['o_groups']), groups)), [])
        out.append(linear(p['wo_b'], mixed))
    return out


def deepseek4_moe(p, c, x, token):
    run = lambda at: glm5_mlp({n + '_proj': p[f'{at}.{w}'] for n, w in (('gate', 'w1'), ('up', 'w3'), ('down', 'w2'))}, x, c['swiglu_limit'])
    score = [math.sqrt(softplus(v)) for v in linear(p['gate'], x)]
    chosen = p['gate.tid2eid'][1][token] if 'gate.tid2eid' in p else best(add(score, p['gate.bias']), c['num_experts_per_tok'])
    total, y = sum(score[e] for e in chosen) + 1e-20, run('shared_experts')
    for e in chosen:
        y = add(y, run(f'experts.{e}'), c['routed_scaling_factor'] * score[e] / total)
    return y


def deepseek4_layer(w, c, at, every, ids, h):
    p, a, m = (part(w, at + of) for of in ('', '.attn', '.ffn'))
    normed = lambda name, x: [rms(u, p[name], c['rms_norm_eps']) for u in x]
    h = mixed_around(p, 'attn', c, h, lambda x: deepseek4_attention(a, c, normed('attn_norm', x), every))
    return mixed_around(p, 'ffn', c, h, lambda x: [deepseek4_moe(m, c, u, t) for u, t in zip(normed('ffn_norm', x), ids)])


def deepseek4_streams(w, c, ids):
    h = [[list(w['embed.weight'][i]) for _ in range(c['hc_mult'])] for i in ids]
    for i in range(c['num_hidden_layers']):
        h = deepseek4_layer(w, c, f'layers.{i}', c['compress_ratios'][i], ids, h)
    return h


def deepseek4_ends(w, c, at, h):
    eps, out = c['rms_norm_eps'], []
    for x in h:
        z = linear(w[at + 'hc_head_fn'], rms(sum(x, []), None, eps))
        by = [sigmoid(v * w[at + 'hc_head_scale'][0] + b) + c['hc_eps'] for v, b in zip(z, w[at + 'hc_head_base'])]
        out.append(linear(w['head.weight'], rms([dot(by, v) for v in zip(*x)], w[at + 'norm.weight'], eps)))
    return out


def deepseek4_draft(w, c, ids, given):
    p, eps, h = part(w, 'mtp.0'), c['rms_norm_eps'], []
    for i, g in zip(ids, given):
        e = linear(p['e_proj'], rms(w['embed.weight'][i], p['enorm'], eps))
        h.append([add(e, linear(p['h_proj'], rms(s, p['hnorm'], eps))) for s in heads_of(g, c['hc_mult'])])
    h = deepseek4_layer(w, c, 'mtp.0', 0, ids, h)
    return [sum(x, []) for x in h], deepseek4_ends(w, c, 'mtp.0.', h)


DEEPSEEK4 = {'logits': lambda w, c, ids: deepseek4_ends(w, c, '', deepseek4_streams(w, c, ids)), 'draft': deepseek4_draft,
             'given': lambda w, c, ids: [sum(x, []) for x in deepseek4_streams(w, c, ids)]}


# ---- models by layers, and their draft heads ----

def deepseek_like(layer, norm='shared_head.norm', embed='embed_tokens', kinds=None):
    """Layers at model.layers.N, and the draft head's one behind the last."""
    def all_kinds(c):
        n = c['num_hidden_layers']
        return [(f'model.layers.{i}', kinds(c, i) if kinds else 'dense' if i < c['first_k_dense_replace'] else 'moe')
                for i in range(n + 1)]
    return {'layer': layer, 'embed': f'model.{embed}.weight', 'norm': 'model.norm.weight', 'eps': 'rms_norm_eps',
            'layers': lambda c: all_kinds(c)[:-1], 'head_layers': lambda c: all_kinds(c)[-1:], 'head_norm': norm,
            'own_embed': embed}


def bailing_kinds(c, i):
    n, every = c['num_hidden_layers'], c['layer_group_size']
    full = (i + 1) % every == 0 or i >= n // every * every
    return latent if full else kda, 'dense' if i < c['first_k_dense_replace'] else 'moe'


def dsa_kinds(c):
    seen = []
    return [(f'model.layers.{i}', (kind, seen)) for i, kind in enumerate(c['mlp_layer_types'] + ['sparse'])]


DEEPSEEK, GLM4_MOE = deepseek_like(deepseek_layer), deepseek_like(glm4_moe_layer)
DSA = dict(deepseek_like(dsa_layer), layers=lambda c: dsa_kinds(c)[:-1], head_layers=lambda c: dsa_kinds(c)[-1:])
GLM5 = dict(deepseek_like(glm5_plain_layer), given=glm5_rows,
            logits=lambda w, c, ids: [linear(w['lm_head.weight'], x) for x in glm5_rows(w, c, ids)],
            head_layers=lambda c: [(f"model.layers.{c['num_hidden_layers']}", ('deepseek_sparse_attention', 'sparse'))])
BAILING = deepseek_like(bailing_layer, 'final_layernorm', 'word_embeddings', bailing_kinds)
NEMOTRON = {'layer': nemotron_layer, 'embed': 'backbone.embeddings.weight', 'norm': 'backbone.norm_f.weight',
            'eps': 'layer_norm_epsilon', 'head_norm': 'final_layernorm', 'own_embed': 'embeddings',
            'layers': lambda c: [(f'backbone.layers.{i}', k) for i, k in enumerate(c['hybrid_override_pattern'])],
            'head_layers': lambda c: [(f'mtp.layers.{i}', k) for i, k in enumerate(c['mtp_hybrid_override_pattern'])]}


def hidden_rows(f, w, c, ids):
    """What the output matrix reads of each token, behind the last norm; or what else a draft head is given."""
    if 'given' in f:
        return f['given'](w, c, ids)
    h = embedded(w, ids, f['embed'])
    for at, kind in f['layers'](c):
        h = f['layer'](w, c, at, kind, h)
    return [rms(x, w[f['norm']], c[f['eps']]) for x in h]


def by_layers(f):
    return f.get('logits') or (lambda w, c, ids: [linear(w['lm_head.weight'], x) for x in hidden_rows(f, w, c, ids)])


def bailing_v3(w, c, ids):
    return by_layers(BAILING)(w, c, ids)


def draft_rows(f, w, c, ids, given):
    """A draft head (DeepSeek-V3, arXiv 2412.19437): a row for each token, beside it what was given for the token before.
    Returns hidden rows behind its norm, and logits of the tokens behind those."""
    if 'draft' in f:
        return f['draft'](w, c, ids, given)
    layers, eps = f['head_layers'](c), c[f['eps']]
    first, last = layers[0][0], layers[-1][0]
    embed = w.get(f'{first}.{f["own_embed"]}.weight', w[f['embed']])
    h = [linear(w[first + '.eh_proj.weight'],
                rms(embed[i], w[first + '.enorm.weight'], eps) + rms(g, w[first + '.hnorm.weight'], eps))
         for i, g in zip(ids, given)]
    for at, kind in layers:
        h = f['layer'](w, c, at, kind, h)
    h = [rms(x, w[f'{last}.{f["head_norm"]}.weight'], eps) for x in h]
    head = w.get(f'{last}.shared_head.head.weight', w['lm_head.weight'])
    return h, [linear(head, x) for x in h]
