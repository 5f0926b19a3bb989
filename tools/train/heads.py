"""Draft heads for weft-tiny: the graphs of EAGLE-3, DFlash and DFlash 2 over a frozen model, their losses, their folders.

All read the outputs of the layers TAPS of the model. A head learns the model's own distribution over the next token,
not the token that the text has: it is asked what the model will say.
"""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import st
from model import Linear, Norm, SwiGLU, Weight, lin

TAPS = [1, 3, 6]        # layers, counted from 0
HEADS, KV, D = 4, 2, 64
EPS = 1e-6
AHEAD = 3               # guesses of EAGLE-3 that are unrolled in training
BLOCK, LAYERS = 6, 2    # of DFlash: the last token and five guesses
MASK = 2047             # DFlash's mask: a row of the embedding that no token has
CONV, GROUP = 2, 16     # of DFlash 2: rows of a convolution; channels that share the part of a kernel that is a row's own
RANK, TOP = 32, 16      # of its selector
LATER = 0.8             # weight of each guess against the one before


def init(m, layers):
    for name, p in m.named_parameters():
        if p.dim() == 2:
            std = p.shape[1] ** -0.5 * 0.7
            nn.init.normal_(p, 0, std / (2 * layers) ** 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else std)


def taps_of(m, ids, b):
    """What the heads are given, and the hidden rows that the model's logits are made of."""
    h, out = m.embed_tokens.weight[ids], []
    for i, layer in enumerate(m.layers):
        h = layer(h, b, m.ctype)
        if i in TAPS:
            out.append(h)
    return torch.cat(out, -1), Norm.apply(h, 1 + m.norm.weight, 1e-6, torch.float32)


def turns(at, theta):
    angle = at.float()[..., None] * theta ** (-torch.arange(0, D, 2).float() / D)
    return angle.cos()[..., None, :], angle.sin()[..., None, :]


def rope(x, by):
    """x [..., heads, D], both halves of it turned by the position."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * by[0] - b * by[1], b * by[0] + a * by[1]], -1)


def by_head(x, heads):
    """[B, n, heads * D] or [B, n, heads, D] -> [B, HEADS, n, D]"""
    x = x.reshape(x.shape[0], x.shape[1], heads, D).transpose(1, 2)
    return x if heads == HEADS else x.repeat_interleave(HEADS // heads, 1)


class Attention(nn.Module):
    def __init__(self, hidden, inner, norms=False):
        super().__init__()
        self.q_proj, self.k_proj = Linear(HEADS * D, inner), Linear(KV * D, inner)
        self.v_proj, self.o_proj = Linear(KV * D, inner), Linear(hidden, HEADS * D)
        if norms:
            self.q_norm, self.k_norm = Weight(D, value=1.0), Weight(D, value=1.0)


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = Linear(inner, hidden), Linear(inner, hidden), Linear(hidden, inner)

    def forward(self, x):
        return lin(SwiGLU.apply(lin(x, self.gate_proj.weight, self.up_proj.weight)), self.down_proj.weight)


# ---------------------------------------------------------------- EAGLE-3
class EagleLayer(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.input_layernorm, self.hidden_norm = Weight(hidden, value=1.0), Weight(hidden, value=1.0)
        self.post_attention_layernorm = Weight(hidden, value=1.0)
        self.self_attn, self.mlp = Attention(hidden, 2 * hidden), MLP(hidden, inner)


class Eagle(nn.Module):
    """A row of token t is made of its embedding and of what the model gave for token t - 1, and guesses token t + 1."""
    theta, inner = 10000.0, 256

    def __init__(self, of, tokens, ctype=torch.bfloat16):
        super().__init__()
        hidden = of.cfg["hidden_size"]
        self.ctype, self.tokens = ctype, tokens
        self.fc = Linear(hidden, len(TAPS) * hidden)
        self.midlayer, self.norm = EagleLayer(hidden, self.inner), Weight(hidden, value=1.0)
        self.lm_head = Linear(len(tokens), hidden)
        init(self, 1)
        self.lm_head.weight.data = of.embed_tokens.weight.data[tokens].clone()
        self.norm.weight.data = 1 + of.norm.weight.data

    def rows(self, embed, given, at):
        """Query, key, value and residual of rows."""
        y, c, a = self.midlayer, self.ctype, self.midlayer.self_attn
        both = torch.cat([Norm.apply(embed, y.input_layernorm.weight, EPS, c), Norm.apply(given, y.hidden_norm.weight, EPS, c)], -1)
        q, k, v = lin(both, a.q_proj.weight, a.k_proj.weight, a.v_proj.weight).split([HEADS * D, KV * D, KV * D], -1)
        by = turns(at, self.theta)
        q = rope(q.reshape(*q.shape[:2], HEADS, D), by) * D ** -0.5
        k = rope(k.reshape(*k.shape[:2], KV, D), by)
        return by_head(q.to(c), HEADS), by_head(k.to(c), KV), by_head(v, KV)

    def rest(self, x, o):
        y = self.midlayer
        x = x + lin(o.transpose(1, 2).flatten(2), y.self_attn.o_proj.weight).float()
        return x + y.mlp(Norm.apply(x, y.post_attention_layernorm.weight, EPS, self.ctype)).float()

    def logits(self, x):
        return lin(Norm.apply(x, self.norm.weight, EPS, self.ctype), self.lm_head.weight).float()

    def unroll(self, w, ahead):
        """The head's hidden rows of each depth [B, n, hidden], of the positions w.near alone: at depth k those whose last k
        tokens are guesses, if the text were what it guessed."""
        T = w.ids.shape[1]
        at, near, row = torch.arange(T)[None], w.near, torch.arange(w.ids.shape[0])[:, None]
        taps = torch.roll(lin(w.taps.to(self.ctype), self.fc.weight).float(), 1, 1)
        q, k0, v0 = self.rows(w.embed, taps, at.expand(w.ids.shape))
        q, own = q.transpose(1, 2)[row, near].transpose(1, 2), (k0, v0)
        given, embed = taps[row, near], w.embed[row, near]
        out, keys, values = [], [None], [None]
        for k in range(ahead):
            if k:
                given = out[-1][row, w.before[1]]
                q, key, value = self.rows(embed, given, near)
                keys.append(key)
                values.append(value)
            # Rows that are true, but for the document's first; where there are none, one of no meaning.
            ok = (at[:, None] <= near[:, :, None] - k) & (at[:, None] > w.begin[row, near][:, :, None])
            s = [(q @ own[0].transpose(2, 3)).float().masked_fill(~ok[:, None], -1e30)]
            back = lambda x, n: x.transpose(1, 2)[row, w.before[n]].transpose(1, 2)
            guessed = [(back(keys[j], k - j), back(values[j], k - j)) for j in range(1, k + 1)]
            s += [(q * n).float().sum(-1, keepdim=True) for n, _ in guessed]
            p = torch.softmax(torch.cat(s, -1) if k else s[0], -1).to(self.ctype)
            o = p[..., :T] @ own[1]
            for j, (_, v) in enumerate(guessed):
                o = o + p[..., T + j:T + j + 1] * v
            out.append(self.rest(given, o))
        return out

    def loss(self, w):
        """w: Work. The loss, and per depth the share of guesses that are the model's pick."""
        total, weight, right = 0.0, 0.0, []
        want = w.want[:, self.tokens]
        known = torch.zeros(w.want.shape[1], dtype=torch.bool)
        known[self.tokens] = True
        soft, best = torch.softmax(want, -1), w.want.argmax(-1)
        for k, x in enumerate(self.unroll(w, AHEAD)):
            deep = w.depth >= k + 1
            use = deep & known[best]
            lo = self.logits(x[w.at_row[use], w.slot[use]])
            ce = -(soft[use] * torch.log_softmax(lo, -1)).sum(-1).mean()
            total, weight = total + LATER ** k * ce, weight + LATER ** k
            hit = (torch.as_tensor(self.tokens)[lo.detach().argmax(-1)] == best[use]).float().sum()
            right.append(float(hit / deep.float().sum()))
        return total / weight, right

    def folder(self, path, vocab):
        tokens = torch.as_tensor(self.tokens)
        t = {n: ("BF16", st.bf16_bits(p.detach().numpy())) for n, p in self.named_parameters()}
        t["d2t"] = ("I64", (tokens - torch.arange(len(tokens))).numpy())
        known = np.zeros(vocab, np.bool_)
        known[self.tokens] = True
        t["t2d"] = ("BOOL", known)
        hidden = self.norm.weight.shape[0]
        write(path, t, dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_act="silu", hidden_size=hidden,
            intermediate_size=self.inner, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=D, num_hidden_layers=1,
            vocab_size=vocab, draft_vocab_size=len(tokens), rms_norm_eps=EPS, rope_theta=self.theta, rope_scaling=None,
            attention_bias=False, mlp_bias=False, max_position_embeddings=4096, tie_word_embeddings=False, torch_dtype="bfloat16",
            eagle_config=dict(eagle_aux_hidden_state_layer_ids=[i + 1 for i in TAPS], use_aux_hidden_state=True)))


# ---------------------------------------------------------------- DFlash
class FlashLayer(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Weight(hidden, value=1.0), Weight(hidden, value=1.0)
        self.self_attn, self.mlp = Attention(hidden, hidden, norms=True), MLP(hidden, inner)


class Flash(nn.Module):
    """A block of the last token and masks, whose rows see what the model gave for all tokens before it, and each other."""
    theta, inner, window = 10000000.0, 256, 1 << 30

    def __init__(self, of, ctype=torch.bfloat16):
        super().__init__()
        hidden = of.cfg["hidden_size"]
        self.ctype = ctype
        self.embed = [of.embed_tokens.weight.data]      # the model's, not a parameter
        self.logits = of.logits
        self.fc = Linear(hidden, len(TAPS) * hidden)
        self.hidden_norm, self.norm = Weight(hidden, value=1.0), Weight(hidden, value=1.0)
        self.layers = nn.ModuleList([FlashLayer(hidden, self.inner) for _ in range(LAYERS)])
        init(self, LAYERS)
        self.norm.weight.data = 1 + of.norm.weight.data

    def keys(self, y, x, at):
        k, v = lin(x, y.self_attn.k_proj.weight, y.self_attn.v_proj.weight).split([KV * D, KV * D], -1)
        k = Norm.apply(k.reshape(*k.shape[:2], KV, D), y.self_attn.k_norm.weight, EPS, torch.float32)
        return by_head(rope(k, turns(at, self.theta)).to(self.ctype), KV), by_head(v, KV)

    def around(self, name, y, x, block):
        """What attention or the MLP of layer y adds for its normed input x [B, A * BLOCK, hidden]."""
        return block(x)

    def says(self, x, before):
        """Of guesses' rows x [n, hidden] behind the tokens before [n]: logits that are each taught, and the guesses."""
        lo = self.logits(x)
        return [lo], lo.detach().argmax(-1)

    def attend(self, y, context, at, pos, ok, h):
        a, (B, T), c = y.self_attn, at.shape, self.ctype
        k0, v0 = self.keys(y, context, at)
        q = Norm.apply(lin(h, a.q_proj.weight).reshape(B, -1, HEADS, D), a.q_norm.weight, EPS, torch.float32)
        q = by_head((rope(q, turns(pos, self.theta)) * D ** -0.5).to(c), HEADS)
        k1, v1 = self.keys(y, h, pos)
        s0 = (q @ k0.transpose(2, 3)).float().masked_fill(~ok, -1e30)
        blocks = lambda t: t.reshape(B, HEADS, -1, BLOCK, t.shape[-1])
        s1 = (blocks(q) @ blocks(k1).transpose(3, 4)).float().view(B, HEADS, -1, BLOCK)
        p = torch.softmax(torch.cat([s0, s1], -1), -1).to(c)
        o = p[..., :T] @ v0 + (blocks(p[..., T:]) @ blocks(v1)).view(B, HEADS, -1, D)
        return lin(o.transpose(1, 2).flatten(2), a.o_proj.weight)

    def forward(self, taps, tok, begin, anchor):
        """taps [B, T, ...]; tok, begin, anchor [B, A]: the last token of each block, its document's first position, and its
        own. Logits of the guesses [B, A, BLOCK - 1, vocab]."""
        c, (B, A), T = self.ctype, tok.shape, taps.shape[1]
        at = torch.arange(T).expand(B, T)
        context = Norm.apply(lin(taps.to(c), self.fc.weight).float(), self.hidden_norm.weight, EPS, c)
        ids = torch.full((B, A, BLOCK), MASK)
        ids[:, :, 0] = tok
        x = self.embed[0][ids].view(B, A * BLOCK, -1)
        pos = (anchor[:, :, None] + torch.arange(BLOCK)).view(B, -1)
        ok = (at[:, None] < anchor[:, :, None]) & (at[:, None] >= begin[:, :, None])
        ok = (ok.repeat_interleave(BLOCK, 1) & (pos[:, :, None] - at[:, None] < self.window))[:, None]
        for y in self.layers:
            attend = lambda h: self.attend(y, context, at, pos, ok, h)
            x = x + self.around("attention_conv", y, Norm.apply(x, y.input_layernorm.weight, EPS, c), attend).float()
            x = x + self.around("mlp_conv", y, Norm.apply(x, y.post_attention_layernorm.weight, EPS, c), y.mlp).float()
        x = Norm.apply(x, self.norm.weight, EPS, c).view(B, A, BLOCK, -1)[:, :, 1:]
        return x

    def loss(self, w, gen):
        B, T = w.begin.shape
        # Anchors whose next token is an assistant's, each row's own; fewer where the row has fewer.
        score = torch.rand(B, T, generator=gen) * w.starts
        score, anchor = score.topk(T // 12, 1)
        row = torch.arange(B)[:, None]
        x = self.forward(w.taps, w.ids[row, anchor], w.begin[row, anchor], anchor)
        total, weight, right = 0.0, 0.0, []
        for i in range(BLOCK - 1):
            # The guess of token anchor + 1 + i is what the model says at anchor + i, while the answer goes on.
            at = (anchor + i).clamp(max=T - 1)
            use = (score > 0) & (anchor + i < T) & (w.run[row, anchor] > i)
            want = w.want[w.index[row, at][use]]
            taught, guess = self.says(x[:, :, i][use], w.ids[row, at][use])
            for lo in taught:
                ce = -(torch.softmax(want, -1) * torch.log_softmax(lo, -1)).sum(-1).mean()
                total, weight = total + LATER ** i * ce, weight + LATER ** i
            right.append(float((guess == want.argmax(-1)).float().mean()))
        return total / weight, right

    def config(self, vocab):
        return dict(architectures=["DFlashDraftModel"], model_type="qwen3", hidden_act="silu", hidden_size=self.norm.weight.shape[0],
            intermediate_size=self.inner, num_attention_heads=HEADS, num_key_value_heads=KV, head_dim=D, num_hidden_layers=LAYERS,
            layer_types=["full_attention"] * LAYERS, vocab_size=vocab, rms_norm_eps=EPS, rope_theta=self.theta, rope_scaling=None,
            attention_bias=False, attention_dropout=0.0, max_position_embeddings=4096, tie_word_embeddings=False,
            torch_dtype="bfloat16", block_size=BLOCK, num_target_layers=8, use_sliding_window=False, sliding_window=None,
            dflash_config=dict(mask_token_id=MASK, target_layer_ids=TAPS))

    def folder(self, path, vocab):
        t = {n: ("BF16", st.bf16_bits(p.detach().numpy())) for n, p in self.named_parameters()}
        write(path, t, self.config(vocab))


# ---------------------------------------------------------------- DFlash 2
class Conv(nn.Module):
    """Begins as one that changes nothing."""

    def __init__(self, hidden):
        super().__init__()
        self.base_kernel = nn.Parameter(torch.zeros(2, CONV, hidden))
        self.base_kernel.data[:, 0] = 1
        self.kernel_projection = Linear(2 * CONV * (hidden // GROUP), hidden)
        self.kernel_projection.weight.data.zero_()

    def forward(self, x, block):
        B, n, hidden = x.shape
        own = lin(x, self.kernel_projection.weight).view(B, n, 2, CONV, hidden // GROUP).repeat_interleave(GROUP, -1)
        kernel = self.base_kernel.to(x.dtype) + own
        for side in range(2):
            rows = x.view(B, -1, BLOCK, hidden)
            x = sum(kernel[:, :, side, j] * F.pad(rows, (0, 0, j, 0))[:, :, :BLOCK].reshape(B, n, hidden) for j in range(CONV))
            x = block(x) if not side else x
        return x


class Selector(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.randn(vocab, RANK) * 0.1)
        self.successor_codebook = nn.Parameter(torch.randn(vocab, RANK) * 0.1)
        self.hidden_projection = Linear(RANK, hidden)
        nn.init.normal_(self.hidden_projection.weight, 0, hidden ** -0.5)


class Flash2(Flash):
    """DFlash with a convolution around every block of a layer, and a selector of the best tokens behind the one before."""

    def __init__(self, of, ctype=torch.bfloat16):
        super().__init__(of, ctype)
        hidden, vocab = of.cfg["hidden_size"], of.cfg["vocab_size"]
        for y in self.layers:
            y.attention_conv, y.mlp_conv = Conv(hidden), Conv(hidden)
        self.candidate_selector = Selector(hidden, vocab)

    def around(self, name, y, x, block):
        return getattr(y, name)(x, block)

    def says(self, x, before):
        s = self.candidate_selector
        lo = self.logits(x)
        score = lo + (s.predecessor_codebook[before] * lin(x, s.hidden_projection.weight).float()) @ s.successor_codebook.t()
        best = lo.detach().topk(TOP, -1)[1]
        return [lo, score], best.gather(1, score.detach().gather(1, best).argmax(-1, True))[:, 0]

    def config(self, vocab):
        c = super().config(vocab)
        c["architectures"], c["is_causal"] = ["DFlash2DraftModel"], False
        c["dflash_config"].update(block_size=c.pop("block_size"), conv_kernel_size=CONV, conv_group_size=GROUP, selector_rank=RANK,
                                  selector_top_k=TOP)
        return c


def write(path, tensors, config):
    os.makedirs(path, exist_ok=True)
    with open(path + "/config.json", "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    st.save(path + "/model.safetensors.new", tensors)
    os.replace(path + "/model.safetensors.new", path + "/model.safetensors")


# ---------------------------------------------------------------- what the model says of a batch
class Work:
    """Of a batch: what the heads read, and the model's logits where an assistant's token follows.

    at: flat positions with logits, in rows of want; near, before, at_row, slot: see gather; index [B, T]: the row of want, or -1; run [B, T]: how many assistant's
    tokens follow one another after the position; depth: of each of at, how many rows before it, itself included, may be
    guesses' rows."""

    def __init__(self, m, b, ids, doc, flag):
        with torch.no_grad():
            self.ids, self.begin = ids, b.begin.long()
            self.embed = m.embed_tokens.weight[ids]
            self.taps, f = taps_of(m, ids, b)
            nxt = torch.zeros_like(flag)
            nxt[:, :-1] = flag[:, 1:] * (doc[:, 1:] == doc[:, :-1]) * (doc[:, 1:] >= 0)
            self.run = torch.zeros(nxt.shape, dtype=torch.long)
            length = torch.zeros(nxt.shape[0], dtype=torch.long)
            for t in range(nxt.shape[1] - 1, -1, -1):
                length = (length + 1) * (nxt[:, t] > 0)
                self.run[:, t] = length
            here = torch.arange(nxt.shape[1])[None] - self.begin
            self.starts = ((nxt > 0) & (here > 0)).float()
            self.at = self.starts.view(-1).nonzero()[:, 0]
            self.depth = here.reshape(-1)[self.at]
            self.index = torch.full(nxt.shape, -1)
            self.index.view(-1)[self.at] = torch.arange(len(self.at))
            self.want = m.logits(f.view(-1, f.shape[-1])[self.at])
            self.gather()

    def gather(self):
        """Positions from AHEAD - 1 before an assistant's token on: near [B, n], those of each row, the last ones repeated;
        before[d] [B, n]: where in near the position d before is, or 0; of each of at, at_row and slot: where it is in near."""
        B, T = self.index.shape
        use = self.starts > 0
        for d in range(1, AHEAD):
            use[:, :-d] |= self.starts[:, d:] > 0
        n = int(use.sum(1).max())
        order = torch.where(use, torch.arange(T)[None], torch.tensor(T)).sort(1)[0][:, :n]
        self.near = order.clamp(max=T - 1)
        slots = torch.zeros(B, T, dtype=torch.long)
        row = torch.arange(B)[:, None].expand(B, n)
        real = order < T
        slots[row[real], order[real]] = torch.arange(n).expand(B, n)[real]
        self.before = [slots.gather(1, (self.near - d).clamp(min=0)) for d in range(AHEAD)]
        self.at_row = self.at // T
        self.slot = slots.view(-1)[self.at]
