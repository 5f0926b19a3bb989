"""The C parts of the training graph (fused.c) as torch functions. Built on first use with the C compiler."""
import ctypes
import os
import subprocess

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
D, CK = 64, 32


def build():
    src, so = HERE + "/fused.c", HERE + "/runs/fused.so"
    os.makedirs(HERE + "/runs", exist_ok=True)
    if not os.path.exists(so) or os.path.getmtime(so) < os.path.getmtime(src):
        new = f"{so}.{os.getpid()}"
        subprocess.check_call(["gcc", "-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC", src, "-o", new, "-lm"])
        os.replace(new, so)
    return ctypes.CDLL(so)


C = build()


def P(t):
    return ctypes.c_void_p(t.data_ptr())


def L(n):
    return ctypes.c_long(n)


class Core(torch.autograd.Function):
    """y = [q k v z] projections -> convolution, delta rule, gated norm -> bf16 [B, T, Hv*D]"""

    @staticmethod
    def forward(ctx, y, w4, g, beta, nw, pos, Hk, Hv):
        B, T, W = y.shape
        Cw = 2 * Hk * D + Hv * D
        y, g, beta, nw = y.contiguous(), g.contiguous(), beta.contiguous(), nw.contiguous()
        w4 = w4.t().contiguous()
        pre, c = torch.empty(B, T, Cw), torch.empty(B, T, Cw)
        o, saved = torch.empty(B, T, Hv * D), torch.empty(B, Hv, T // CK, D * D)
        out, rs = torch.empty(B, T, Hv * D, dtype=torch.bfloat16), torch.empty(B, T, Hv)
        C.conv_fwd(P(y), L(W), P(w4), P(pos), P(pre), P(c), B, T, Cw)
        C.gdn_fwd(P(c), P(g), P(beta), P(pos), P(o), P(saved), B, T, Hk, Hv)
        z = ctypes.c_void_p(y.data_ptr() + 2 * Cw)
        C.gated_fwd(P(o), P(nw), z, L(W), P(out), P(rs), L(B * T), Hv)
        ctx.save_for_backward(y, w4, g, beta, nw, pos, pre, c, o, saved, rs)
        ctx.dims = Hk, Hv, Cw
        return out

    @staticmethod
    def backward(ctx, dout):
        y, w4, g, beta, nw, pos, pre, c, o, saved, rs = ctx.saved_tensors
        Hk, Hv, Cw = ctx.dims
        B, T, W = y.shape
        dout = dout.contiguous()
        z = ctypes.c_void_p(y.data_ptr() + 2 * Cw)
        do, dz, dnw = torch.empty_like(o), torch.empty(B, T, Hv * D, dtype=torch.bfloat16), torch.empty(2, D)
        C.gated_bwd(P(dout), P(o), P(nw), z, L(W), P(rs), P(do), P(dz), P(dnw), L(B * T), Hv)
        dc, dg, dbeta = torch.empty_like(c), torch.empty_like(g), torch.empty_like(beta)
        C.gdn_bwd(P(do), P(c), P(g), P(beta), P(pos), P(saved), P(dc), P(dg), P(dbeta), B, T, Hk, Hv)
        dx, dw = torch.empty(B, T, Cw, dtype=torch.bfloat16), torch.empty(B, 4, Cw)
        C.conv_bwd(P(dc), P(y), L(W), P(pre), P(w4), P(pos), P(dx), P(dw), B, T, Cw)
        return torch.cat([dx, dz], -1), dw.sum(0).t(), dg, dbeta, dnw.sum(0), None, None, None


class Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, begin):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        B, T, Hq, _ = q.shape
        o, lse = torch.empty_like(q), torch.empty(B, Hq, T)
        C.attn_fwd(P(q), P(k), P(v), P(begin), P(o), P(lse), B, T, Hq, k.shape[2])
        ctx.save_for_backward(q, k, v, o, lse, begin)
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse, begin = ctx.saved_tensors
        do = do.contiguous()
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        B, T, Hq, _ = q.shape
        C.attn_bwd(P(do), P(q), P(k), P(v), P(o), P(lse), P(begin), P(dq), P(dk), P(dv), B, T, Hq, k.shape[2])
        return dq, dk, dv, None


class Norm(torch.autograd.Function):
    """Over the last axis, float32 in, bf16 out."""

    @staticmethod
    def forward(ctx, x, w):
        x, w = x.contiguous(), w.contiguous()
        W = x.shape[-1]
        N = x.numel() // W
        out, rs = torch.empty(x.shape, dtype=torch.bfloat16), torch.empty(N)
        C.norm_fwd(P(x), P(w), P(out), P(rs), L(N), W)
        ctx.save_for_backward(x, w, rs)
        return out

    @staticmethod
    def backward(ctx, dy):
        x, w, rs = ctx.saved_tensors
        dy = dy.contiguous()
        W = x.shape[-1]
        dx, dw = torch.empty_like(x), torch.empty(2, W)
        C.norm_bwd(P(dy), P(x), P(w), P(rs), P(dx), P(dw), L(rs.numel()), W)
        return dx, dw.sum(0)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gu):
        gu = gu.contiguous()
        I = gu.shape[-1] // 2
        out = torch.empty(gu.shape[:-1] + (I,), dtype=gu.dtype)
        C.swiglu_fwd(P(gu), P(out), L(out.numel() // I), I)
        ctx.save_for_backward(gu)
        return out

    @staticmethod
    def backward(ctx, dy):
        (gu,) = ctx.saved_tensors
        dy, d = dy.contiguous(), torch.empty_like(gu)
        I = dy.shape[-1]
        C.swiglu_bwd(P(dy), P(gu), P(d), L(dy.numel() // I), I)
        return d
