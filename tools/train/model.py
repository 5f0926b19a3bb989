"""The qwen3_5 graph for training on a CPU: gated delta net and gated full attention layers.

Parameters carry the names of a Hugging Face checkpoint without the prefix. Master weights are
float32; matrix products run in `ctype` (bfloat16 for training: the machine multiplies it about three
times as fast as float32), the recurrence, the norms and the softmax in float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

fused = None        # the module of that name when training uses the C parts, see use_fused()


def use_fused():
    global fused
    import fused as f
    fused = f


CHUNK = 64          # tokens per chunk of the delta rule
QBLOCK = 256        # query rows per attention block: bounds the score matrix and skips future keys


class Norm(torch.autograd.Function):
    """x / rms(x) * w, computed in float32 with one rounding; hand-written backward: a third of the passes."""

    @staticmethod
    def apply(x, w, eps, out_dtype):
        if fused and out_dtype == torch.bfloat16 and x.dtype == torch.float32:
            return fused.Norm.apply(x, w)
        return super(Norm, Norm).apply(x, w, eps, out_dtype)

    @staticmethod
    def forward(ctx, x, w, eps, out_dtype):
        x = x.float()
        r = torch.rsqrt(x.square().mean(-1, keepdim=True).add_(eps))
        n = x * r
        ctx.save_for_backward(n, r, w)
        return (n * w).to(out_dtype)

    @staticmethod
    def backward(ctx, dy):
        n, r, w = ctx.saved_tensors
        dy = dy.float()
        dw = (dy * n).reshape(-1, n.shape[-1]).sum(0)
        dy = dy * w
        dx = torch.addcmul(dy, n, (dy * n).mean(-1, keepdim=True), value=-1).mul_(r)
        return dx, dw, None, None


class ConvSilu(torch.autograd.Function):
    """Causal depthwise convolution of width 4 and SiLU over [B, T, C]; tap masks stop at document borders."""

    @staticmethod
    def forward(ctx, x, w, masks):
        # masks[d] is [B, T, 1]: 1 where position t-d belongs to the same document as t
        x = x.float()
        y = x * w[:, 3]
        for d in (1, 2, 3):
            y[:, d:] += x[:, :-d] * w[:, 3 - d] * masks[d - 1][:, d:]
        s = torch.sigmoid(y)
        ctx.save_for_backward(x, w, y, s, *masks)
        return y * s

    @staticmethod
    def backward(ctx, dy):
        x, w, y, s, *masks = ctx.saved_tensors
        dy = dy * s * (1 + y * (1 - s))
        C = x.shape[-1]
        dw = torch.empty_like(w)
        dw[:, 3] = (dy * x).reshape(-1, C).sum(0)
        dx = dy * w[:, 3]
        for d in (1, 2, 3):
            m = dy[:, d:] * masks[d - 1][:, d:]
            dw[:, 3 - d] = (m * x[:, :-d]).reshape(-1, C).sum(0)
            dx[:, :-d] += m * w[:, 3 - d]
        return dx, dw, None


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gu):
        ctx.save_for_backward(gu)
        g, u = gu.chunk(2, -1)
        return F.silu(g) * u

    @staticmethod
    def backward(ctx, dy):
        (gu,) = ctx.saved_tensors
        g, u = gu.chunk(2, -1)
        s = torch.sigmoid(g)
        gs = g * s
        out = torch.empty_like(gu)
        h = gu.shape[-1] // 2
        torch.mul(dy, gs, out=out[..., h:])
        torch.mul(dy * u, s + gs - gs * s, out=out[..., :h])
        return out


class Linear(nn.Module):
    def __init__(self, out, inp):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, inp))


def lin(x, *ws):
    """One product with several stacked weights."""
    w = ws[0] if len(ws) == 1 else torch.cat(ws)
    return F.linear(x, w.to(x.dtype))


class Weight(nn.Module):
    def __init__(self, *shape, value=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full(shape, float(value)))


class Batch:
    """What depends on the layout of documents in the rows alone: masks shared by all layers.

    doc: [B, T] document number of each token; rows hold several documents packed one after another.
    """

    def __init__(self, doc, cfg):
        B, T = doc.shape
        self.B, self.T = B, T
        self.masks = []
        for d in (1, 2, 3):
            m = torch.zeros(B, T, 1)
            m[:, d:, 0] = (doc[:, d:] == doc[:, :-d]).float()
            self.masks.append(m)
        self.first = torch.ones(B, T, dtype=torch.bool)
        self.first[:, 1:] = doc[:, 1:] != doc[:, :-1]
        at = torch.arange(T).expand(B, T)
        start = torch.where(self.first, at, torch.zeros_like(at)).cummax(1)[0]
        self.begin = start.int().contiguous()                       # first position of the document
        self.pos = (at - start).clamp(max=3).byte().contiguous()    # position in it, 3 when larger
        R = int(cfg["head_dim"] * cfg["rope_parameters"]["partial_rotary_factor"])
        inv = cfg["rope_parameters"]["rope_theta"] ** (-torch.arange(0, R, 2).float() / R)
        # RoPE sees differences of positions only, so positions may run through packed documents.
        ang = torch.arange(T).float()[:, None] * inv
        self.cos, self.sin, self.R = ang.cos(), ang.sin(), R
        self.blocks = []
        if fused:
            return
        pos = torch.arange(T)
        for lo in range(0, T, QBLOCK):
            hi = min(T, lo + QBLOCK)
            ok = (doc[:, lo:hi, None] == doc[:, None, :hi]) & (pos[lo:hi, None] >= pos[None, :hi])
            # Skip the keys before the first document any row of this block still needs.
            need = ok.any(1).any(0)
            start = int(need.nonzero()[0])
            bias = torch.zeros(B, 1, 1, hi - lo, hi - start).masked_fill_(~ok[:, None, None, :, start:], -1e30)
            self.blocks.append((lo, hi, start, bias))


def rope(x, b):
    """x: [B, T, H, D]; angles by position, or by row and position"""
    h = b.R // 2
    c, s = (t[:x.shape[1], None] if t.dim() == 2 else t[:, :, None] for t in (b.cos, b.sin))
    x1, x2 = x[..., :h], x[..., h:b.R]
    return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s, x[..., b.R:]], -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        H, self.Hq, self.Hk, self.D = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.q_proj = Linear(2 * self.Hq * self.D, H)
        self.k_proj = Linear(self.Hk * self.D, H)
        self.v_proj = Linear(self.Hk * self.D, H)
        self.o_proj = Linear(H, self.Hq * self.D)
        self.q_norm = Weight(self.D)
        self.k_norm = Weight(self.D)

    def forward(self, x, b):
        B, T, Hq, Hk, D = b.B, b.T, self.Hq, self.Hk, self.D
        y = lin(x, self.q_proj.weight, self.k_proj.weight, self.v_proj.weight)
        qg, k, v = y.split([2 * Hq * D, Hk * D, Hk * D], -1)
        qg = qg.reshape(B, T, Hq, 2 * D)
        q, gate = qg[..., :D], qg[..., D:]
        q = rope(Norm.apply(q, 1 + self.q_norm.weight, 1e-6, torch.float32), b) * D ** -0.5
        k = rope(Norm.apply(k.reshape(B, T, Hk, D), 1 + self.k_norm.weight, 1e-6, torch.float32), b)
        v = v.reshape(B, T, Hk, D).float()
        if fused:
            o = fused.Attend.apply(q, k, v, b.begin)
            return lin((o * torch.sigmoid(gate.float())).to(x.dtype).reshape(B, T, Hq * D), self.o_proj.weight)
        q = q.reshape(B, T, Hk, Hq // Hk, D).permute(0, 2, 3, 1, 4)      # [B, Hk, r, T, D]
        kt = k.permute(0, 2, 3, 1)                                        # [B, Hk, D, T]
        v = v.permute(0, 2, 1, 3)
        outs = []
        for lo, hi, start, bias in b.blocks:
            qb = q[:, :, :, lo:hi].reshape(B * Hk, (Hq // Hk) * (hi - lo), D)
            s = torch.bmm(qb, kt[..., start:hi].reshape(B * Hk, D, hi - start))
            s = s.view(B, Hk, Hq // Hk, hi - lo, hi - start) + bias
            p = torch.softmax(s, -1).view(B * Hk, -1, hi - start)
            o = torch.bmm(p, v[:, :, start:hi].reshape(B * Hk, hi - start, D))
            outs.append(o.view(B, Hk, Hq // Hk, hi - lo, D))
        o = torch.cat(outs, 3).permute(0, 3, 1, 2, 4).reshape(B, T, Hq, D)
        o = (o * torch.sigmoid(gate.float())).to(x.dtype).reshape(B, T, Hq * D)
        return lin(o, self.o_proj.weight)


def delta_chunked(q, k, v, g, beta):
    """The gated delta rule in chunks. q,k [B,T,Hk,dk] normalised, v [B,T,Hv,dv], g,beta [B,T,Hv]; float32."""
    B, T, Hk, dk = q.shape
    Hv, dv = v.shape[2], v.shape[3]
    r, N, C = Hv // Hk, T // CHUNK, CHUNK
    q = q.view(B, N, C, Hk, dk).permute(1, 0, 3, 2, 4)                 # [N, B, Hk, C, dk]
    k = k.view(B, N, C, Hk, dk).permute(1, 0, 3, 2, 4)
    v = v.view(B, N, C, Hk, r, dv).permute(1, 0, 3, 4, 2, 5)           # [N, B, Hk, r, C, dv]
    g = g.view(B, N, C, Hk, r).permute(1, 0, 3, 4, 2)
    beta = beta.view(B, N, C, Hk, r).permute(1, 0, 3, 4, 2)
    G = g.cumsum(-1)                                                    # [N, B, Hk, r, C]
    tri = torch.ones(C, C, dtype=torch.bool).tril()
    D = (G[..., :, None] - G[..., None, :]).masked_fill(~tri, -1e30).exp()
    k2, q2 = k.reshape(-1, C, dk), q.reshape(-1, C, dk)
    kt = k2.transpose(1, 2)
    kk = torch.bmm(k2, kt).view(N, B, Hk, 1, C, C)
    qk = torch.bmm(q2, kt).view(N, B, Hk, 1, C, C) * D
    A = (kk * D * beta[..., None]).reshape(-1, C, C)
    eG = G.exp()
    rhs = torch.cat([v * beta[..., None], k[:, :, :, None] * (beta * eG)[..., None]], -1)
    # unitriangular: the solver reads the strict lower part alone, the diagonal counts as ones
    UW = torch.linalg.solve_triangular(A, rhs.reshape(-1, C, dv + dk), upper=False, unitriangular=True)
    UW = UW.view(N, B * Hv, C, dv + dk)
    U, W = UW[..., :dv], UW[..., dv:]
    qe = (q[:, :, :, None] * eG[..., None]).reshape(N, B * Hv, C, dk)
    ke = (k[:, :, :, None] * (G[..., -1:] - G).exp()[..., None]).reshape(N, B * Hv, C, dk).transpose(2, 3)
    last = eG[..., -1].reshape(N, B * Hv, 1, 1)
    qk = qk.reshape(N, B * Hv, C, C)
    # the state alone is sequential
    WQ = torch.cat([W, qe], 2)                                          # one product with S instead of two
    S = torch.zeros(B * Hv, dk, dv)
    outs = []
    for U_n, WQ_n, ke_n, qk_n, l_n in zip(U.unbind(0), WQ.unbind(0), ke.unbind(0), qk.unbind(0), last.unbind(0)):
        WS = torch.bmm(WQ_n, S)
        delta = U_n - WS[:, :C]
        outs.append(torch.baddbmm(WS[:, C:], qk_n, delta))
        S = torch.baddbmm(S * l_n, ke_n, delta)
    o = torch.stack(outs).view(N, B, Hv, C, dv)
    return o.permute(1, 0, 3, 2, 4).reshape(B, T, Hv, dv)


def delta_recurrent(q, k, v, g, beta):
    """The same rule token by token: the definition, for the test."""
    B, T, Hk, dk = q.shape
    Hv, dv = v.shape[2], v.shape[3]
    q, k = (t.repeat_interleave(Hv // Hk, 2) for t in (q, k))
    S = torch.zeros(B, Hv, dk, dv, dtype=q.dtype)
    outs = []
    for t in range(T):
        S = S * g[:, t].exp()[..., None, None]
        m = torch.einsum("bhkv,bhk->bhv", S, k[:, t])
        d = beta[:, t, :, None] * (v[:, t] - m)
        S = S + k[:, t, :, :, None] * d[:, :, None, :]
        outs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]))
    return torch.stack(outs, 1)


class L2(torch.autograd.Function):
    """x * rsqrt(sum x^2 + 1e-6) * scale"""

    @staticmethod
    def forward(ctx, x, scale):
        r = torch.rsqrt(x.square().sum(-1, keepdim=True).add_(1e-6))
        n = x * r
        ctx.save_for_backward(n, r)
        ctx.scale = scale
        return n * scale if scale != 1 else n

    @staticmethod
    def backward(ctx, dy):
        n, r = ctx.saved_tensors
        return torch.addcmul(dy, n, (dy * n).sum(-1, keepdim=True), value=-1).mul_(r * ctx.scale), None


class GDN(nn.Module):
    def __init__(self, c):
        super().__init__()
        H = c["hidden_size"]
        self.Hk, self.Hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.dk, self.dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        self.conv_dim = 2 * self.Hk * self.dk + self.Hv * self.dv
        self.in_proj_qkv = Linear(self.conv_dim, H)
        self.in_proj_z = Linear(self.Hv * self.dv, H)
        self.in_proj_b = Linear(self.Hv, H)
        self.in_proj_a = Linear(self.Hv, H)
        self.conv1d = Weight(self.conv_dim, 1, 4)
        self.A_log = nn.Parameter(torch.zeros(self.Hv))
        self.dt_bias = nn.Parameter(torch.zeros(self.Hv))
        self.norm = Weight(self.dv, value=1.0)
        self.out_proj = Linear(H, self.Hv * self.dv)

    def forward(self, x, b):
        B, T, Hk, Hv, dk, dv = b.B, b.T, self.Hk, self.Hv, self.dk, self.dv
        y = lin(x, self.in_proj_qkv.weight, self.in_proj_z.weight)
        # gates in float32 throughout: an error in g multiplies over the whole sequence
        ba = lin(x.float(), self.in_proj_b.weight, self.in_proj_a.weight)
        beta = torch.sigmoid(ba[..., :Hv])
        g = -self.A_log.exp() * F.softplus(ba[..., Hv:] + self.dt_bias)
        if fused:
            o = fused.Core.apply(y, self.conv1d.weight[:, 0], g, beta, self.norm.weight, b.pos, Hk, Hv)
            return lin(o, self.out_proj.weight)
        # a new document starts from an empty state: exp(-60) = 9e-27
        g = g.masked_fill(b.first[..., None], -60.0)
        qkv, z = y.split([self.conv_dim, Hv * dv], -1)
        c = ConvSilu.apply(qkv, self.conv1d.weight[:, 0], b.masks)
        q, k, v = c.split([Hk * dk, Hk * dk, Hv * dv], -1)
        q = L2.apply(q.reshape(B, T, Hk, dk), dk ** -0.5)
        k = L2.apply(k.reshape(B, T, Hk, dk), 1)
        o = delta_chunked(q, k, v.reshape(B, T, Hv, dv), g, beta)
        o = Norm.apply(o, self.norm.weight, 1e-6, x.dtype) * F.silu(z.reshape(B, T, Hv, dv))
        return lin(o.reshape(B, T, Hv * dv), self.out_proj.weight)


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        H, I = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = Linear(I, H), Linear(I, H), Linear(H, I)

    def forward(self, x):
        glu = fused.SwiGLU if fused and x.dtype == torch.bfloat16 else SwiGLU
        return lin(glu.apply(lin(x, self.gate_proj.weight, self.up_proj.weight)), self.down_proj.weight)


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm = Weight(c["hidden_size"])
        self.post_attention_layernorm = Weight(c["hidden_size"])
        if kind == "full_attention":
            self.self_attn = Attention(c)
        else:
            self.linear_attn = GDN(c)
        self.mixer = [self.self_attn if kind == "full_attention" else self.linear_attn]   # not a submodule twice
        self.mlp = MLP(c)

    def forward(self, h, b, ctype):
        x = Norm.apply(h, 1 + self.input_layernorm.weight, 1e-6, ctype)
        h = h + self.mixer[0](x, b)
        x = Norm.apply(h, 1 + self.post_attention_layernorm.weight, 1e-6, ctype)
        return h + self.mlp(x)


class MTP(nn.Module):
    def __init__(self, c):
        super().__init__()
        H = c["hidden_size"]
        self.fc = Linear(H, 2 * H)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = Weight(H), Weight(H), Weight(H)
        self.layers = nn.ModuleList([Layer(c, "full_attention")])


class Model(nn.Module):
    def __init__(self, cfg, ctype=torch.float32):
        super().__init__()
        self.cfg, self.ctype = cfg, ctype
        self.embed_tokens = Weight(cfg["vocab_size"], cfg["hidden_size"])
        self.layers = nn.ModuleList([Layer(cfg, k) for k in cfg["layer_types"]])
        self.norm = Weight(cfg["hidden_size"])
        self.lm_head = None if cfg.get("tie_word_embeddings") else Linear(cfg["vocab_size"], cfg["hidden_size"])
        self.mtp = MTP(cfg) if cfg.get("mtp_num_hidden_layers") else None
        self.init()

    def init(self):
        L = len(self.layers)
        for name, p in self.named_parameters():
            if name.endswith("A_log"):
                # decay time constants from a few tokens to thousands, spread over the heads
                p.data = torch.linspace(0.0, 2.0, p.numel())
            elif name.endswith("dt_bias"):
                dt = torch.exp(torch.linspace(-7.5, -2.5, p.numel()))
                p.data = torch.log(torch.expm1(dt))
            elif name.endswith("conv1d.weight"):
                nn.init.uniform_(p, -0.3, 0.3)
                p.data[:, 0, 3] += 0.5
            elif p.dim() == 2:
                std = 0.02 if "embed" in name else p.shape[1] ** -0.5 * 0.7
                if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    std /= (2 * L) ** 0.5
                nn.init.normal_(p, 0, std)

    def hidden(self, ids, b):
        h = self.embed_tokens.weight[ids]
        for layer in self.layers:
            h = layer(h, b, self.ctype)
        return Norm.apply(h, 1 + self.norm.weight, 1e-6, torch.float32)

    def logits(self, f):
        w = self.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(f.to(self.ctype), w.to(self.ctype)).float()

    def mtp_hidden(self, f, next_ids, b):
        """f[t] and the token at t+1 -> hidden that predicts the token at t+2."""
        m = self.mtp
        e = Norm.apply(self.embed_tokens.weight[next_ids], 1 + m.pre_fc_norm_embedding.weight, 1e-6, self.ctype)
        x = Norm.apply(f, 1 + m.pre_fc_norm_hidden.weight, 1e-6, self.ctype)
        u = lin(torch.cat([e, x], -1), m.fc.weight).float()
        u = m.layers[0](u, b, self.ctype)
        return Norm.apply(u, 1 + m.norm.weight, 1e-6, torch.float32)
