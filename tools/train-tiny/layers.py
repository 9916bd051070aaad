"""Building blocks of DeepSeek-V4.1: norms, RoPE, hyper-connections, attention, experts, Engram.

Activations keep the dtype of the embedding they start from: float32 to compare with references, bfloat16 to train.
Every function decorated with @fused is compiled by torch.compile when COMPILE is set: the model is narrow and keeps
four residual copies, so it is bound by memory traffic and launches, not by arithmetic.
"""
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

import quant
from sinkhorn import sinkhorn

COMPILE = False


def fused(fn):
    compiled = []

    @functools.wraps(fn)
    def call(*args):
        if not COMPILE:
            return fn(*args)
        if not compiled:
            compiled.append(torch.compile(fn, dynamic=False))
        return compiled[0](*args)
    return call


def fp8_weight(w, dtype):
    return quant.fp8_block(w).to(dtype)


def lookup(table, ids, dtype):
    """Rows of a table published as BF16. index_select: the gradient of F.embedding synchronises with the host."""
    return table.index_select(0, ids.flatten()).unflatten(0, ids.shape).to(torch.bfloat16).to(dtype)


def fp4_weight(w, dtype):
    return quant.mxfp4(w).to(dtype)


class Fp8(nn.Module):
    """Linear layer published as FP8 with 32x32 blocks."""

    def __init__(self, n, k, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) * gain / k ** 0.5)

    def forward(self, x):
        return F.linear(x, fp8_weight(self.weight, x.dtype))


class Bf16(nn.Module):
    def __init__(self, n, k, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) * gain / k ** 0.5)

    def forward(self, x):
        return F.linear(x, self.weight.to(torch.bfloat16).to(x.dtype))


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))


def rms(x, w):
    f = x.float()
    return (quant.bf16_weight(w) * (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-20))).to(x.dtype)


# ---------------------------------------------------------------------------------------------- RoPE
def inverse_frequencies(t, compressed):
    """float32 step by step: the rounded frequencies are part of the model (cache rounding flips on one ulp)."""
    n = t.qk_rope_head_dim
    theta = float(t.compress_rope_theta if compressed else t.rope_theta)
    inv = 1.0 / (theta ** (torch.arange(0, n, 2, dtype=torch.int64).float() / n))
    if compressed:
        s = t.rope_scaling
        at = lambda beta: n * math.log(s["original_max_position_embeddings"] / (beta * 2 * math.pi)) / (2 * math.log(theta))
        low, high = max(math.floor(at(s["beta_fast"])), 0), min(math.ceil(at(s["beta_slow"])), n - 1)
        ramp = ((torch.arange(n // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
        inv = (inv / s["factor"]) * ramp + inv * (1 - ramp)
    return inv


def rotate(x, cos, sin):
    """Interleaved pairs of the last channels; cos and sin broadcast over the leading dimensions."""
    n = cos.shape[-1] * 2
    a, b = x[..., -n:].float().unflatten(-1, (n // 2, 2)).unbind(-1)
    r = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([x[..., :-n], r.to(x.dtype)], -1)


def angles(inv, positions):
    a = positions.float().unsqueeze(-1) * inv
    return a.cos(), a.sin()


# ---------------------------------------------------------------------------------------------- hyper-connections
@fused
def mixes(h, pre_prev, fn, scale, base, norm):
    v = h.flatten(-2).float()
    m = F.linear(v, fn) * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-20)
    pre = torch.sigmoid(m[..., 0:4] * scale[0] + base[0:4]) + 1e-6
    post = 2 * torch.sigmoid(m[..., 4:8] * scale[1] + base[4:8])
    z = (m[..., 8:24] * scale[2] + base[8:24]).unflatten(-1, (4, 4))
    return rms(collapse(h, pre_prev), norm), pre, post, z


def site_in(h, pre_prev, site, norm, iters):
    """Input of one site (attention or experts) and its mixing weights. h [B,T,4,D]; `pre_prev` is one site older."""
    x, pre, post, z = mixes(h, pre_prev, site.fn, site.scale, site.base, norm.weight)
    return x, pre, post, sinkhorn(z, iters)


def collapse(h, w):
    return sum(w[..., j:j + 1] * h[..., j, :].float() for j in range(4)).to(h.dtype)


@fused
def site_out(h, y, post, c):
    mixed = sum(c[..., j, :].unsqueeze(-1) * h[..., j, :].unsqueeze(-2).float() for j in range(4))
    return (post.unsqueeze(-1) * y.unsqueeze(-2).float() + mixed).to(h.dtype)


class Hyper(nn.Module):
    """Parameters of one site. Starts close to: read mostly copy `site % 4`, write to all copies, keep the copies."""

    def __init__(self, dim, site):
        super().__init__()
        self.fn = nn.Parameter(torch.randn(24, 4 * dim) * 0.5 / (4 * dim) ** 0.5)
        base = torch.zeros(24)
        base[0:4] = -1.0
        base[site % 4] = 1.0
        base[8:24] = 3.0 * torch.eye(4).flatten()
        self.base = nn.Parameter(base)
        self.scale = nn.Parameter(torch.full((3,), 0.5))


# ---------------------------------------------------------------------------------------------- attention
def attend(q, kv, mask, sink):
    """As written in the specification. q [B,T,H,d], kv [B,S,d] (keys = values), mask [B,T,S]."""
    s = torch.einsum("bthd,bsd->bhts", q, kv).float() * q.shape[-1] ** -0.5
    s = s.masked_fill(~mask.unsqueeze(1), float("-inf"))
    m = s.amax(-1, keepdim=True).clamp_min(-1e30)
    e = torch.exp(s - m)
    z = e.sum(-1, keepdim=True) + torch.exp(sink.view(1, -1, 1, 1) - m)
    return torch.einsum("bhts,bsd->bthd", (e / z).to(q.dtype), kv)


def local_keys(kv, w):
    """[B,T,d] -> [B,T/w,2w,d]: the keys that a block of w queries can see through a window of w."""
    own = kv.unflatten(1, (-1, w))
    return torch.cat([F.pad(own, (0, 0, 0, 0, 1, 0))[:, :-1], own], 2)


@fused
def attend_local(q, kv, local, sink):
    """attend() for window layers with T a multiple of the window: 2w keys a query instead of T."""
    b, t, h, d = q.shape
    w = local.shape[-1] // 2
    k = local_keys(kv, w)
    s = torch.matmul(q.reshape(b, t // w, w * h, d), k.transpose(-1, -2)).view(b, t, h, 2 * w).float() * d ** -0.5
    s = s.masked_fill(~local.unsqueeze(2), float("-inf"))
    sink = sink.view(1, 1, h, 1)
    m = torch.maximum(s.amax(-1, keepdim=True), sink).detach()
    e = torch.exp(s - m)
    p = (e / (e.sum(-1, keepdim=True) + torch.exp(sink - m))).to(q.dtype)
    return torch.matmul(p.view(b, t // w, w * h, 2 * w), k).view(b, t, h, d)


@fused
def attend_selected(q, kv, local, entries, selected, sink):
    """attend() over the window and the selected entries; all heads of all queries share one product per sequence."""
    b, t, h, d = q.shape
    w = local.shape[-1] // 2
    k = local_keys(kv, w)
    s = torch.matmul(q.reshape(b, t // w, w * h, d), k.transpose(-1, -2)).view(b, t, h, 2 * w).float() * d ** -0.5
    g = torch.matmul(q.reshape(b, t * h, d), entries.transpose(-1, -2)).view(b, t, h, -1).float() * d ** -0.5
    s = s.masked_fill(~local.unsqueeze(2), float("-inf"))
    g = g.masked_fill(~selected.unsqueeze(2), float("-inf"))
    sink = sink.view(1, 1, h, 1)
    m = torch.maximum(torch.maximum(s.amax(-1, keepdim=True), g.amax(-1, keepdim=True)), sink).detach()
    e, f = torch.exp(s - m), torch.exp(g - m)
    z = e.sum(-1, keepdim=True) + f.sum(-1, keepdim=True) + torch.exp(sink - m)
    o = torch.matmul((e / z).to(q.dtype).view(b, t // w, w * h, 2 * w), k).view(b, t, h, d)
    return o + torch.matmul((f / z).to(q.dtype).view(b, t * h, -1), entries).view(b, t, h, d)


@fused
def latent(x, w, norm, cos, sin):
    return quant.fp8_32(rotate(rms(F.linear(x, w), norm), cos, sin))


@fused
def project(x, wq_a, q_norm, wq_b, wkv, kv_norm, cos, sin, heads: int):
    """Low-rank query, queries [B,T,H,d], window latent."""
    qr = rms(F.linear(x, wq_a), q_norm)
    q = rotate(F.linear(qr, wq_b).unflatten(-1, (heads, wq_b.shape[0] // heads)), cos.unsqueeze(-2), sin.unsqueeze(-2))
    return qr, q, quant.fp8_32(rotate(rms(F.linear(x, wkv), kv_norm), cos, sin))


@fused
def attention_out(o, cos, sin, wo_a, wo_b, groups: int):
    o = rotate(o, cos.unsqueeze(-2), -sin.unsqueeze(-2)).flatten(-2).unflatten(-1, (groups, wo_a.shape[1]))
    u = torch.einsum("btgk,gnk->btgn", o, wo_a.unflatten(0, (groups, wo_a.shape[0] // groups)))
    return F.linear(u.flatten(-2), wo_b)


# ---------------------------------------------------------------------------------------------- experts
def first_k(v, k):
    """bool mask of the k largest, ties to the lower index. Counting the better ones beats a sort for a dozen values."""
    i = torch.arange(v.shape[-1], device=v.device)
    mine, other = v.unsqueeze(-1), v.unsqueeze(-2)
    return ((other > mine) | ((other == mine) & (i < i.unsqueeze(-1)))).sum(-1) < k


@fused
def moe(x, gate, bias, w13, w2, topk: int, route_scale: float, limit: float):
    """All experts on all tokens, unselected ones with weight 0: with 12 experts of width 96 one dense product is faster
    than sorting tokens. w13 [2,E+1,I,D], w2 [E+1,D,I]; the shared expert is the last one, with weight 1.
    Returns output, the share of tokens of each expert, and the balance loss."""
    s = torch.sqrt(F.softplus(F.linear(x.float(), quant.bf16_weight(gate))))
    chosen = first_k(s.detach() + bias, topk).to(s.dtype)
    w = s * chosen
    w = w / (w.sum(-1, keepdim=True) + 1e-20) * route_scale
    n, inter = w13.shape[1], w13.shape[2]
    g = F.linear(x, w13[0].flatten(0, 1)).float().clamp(max=limit)
    u = F.linear(x, w13[1].flatten(0, 1)).float().clamp(-limit, limit)
    w = torch.cat([w, torch.ones_like(w[..., :1])], -1)
    y = ((F.silu(g) * u).unflatten(-1, (n, inter)) * w.unsqueeze(-1)).to(x.dtype).flatten(-2)
    out = F.linear(y, w2.transpose(0, 1).flatten(1))
    load = chosen.flatten(0, -2).mean(0)
    share = (s / s.sum(-1, keepdim=True)).flatten(0, -2).mean(0)
    return out, load, (load * share).sum() * s.shape[-1] / topk


class Experts(nn.Module):
    """Routed experts of a layer, stacked; published one by one as MXFP4."""

    def __init__(self, n, inter, dim, down):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(n, inter, dim) / dim ** 0.5)
        self.w3 = nn.Parameter(torch.randn(n, inter, dim) / dim ** 0.5)
        self.w2 = nn.Parameter(torch.randn(n, dim, inter) * down / inter ** 0.5)


class SharedExpert(nn.Module):
    def __init__(self, inter, dim, down):
        super().__init__()
        self.w1, self.w3, self.w2 = Fp8(inter, dim), Fp8(inter, dim), Fp8(dim, inter, down)


class Gate(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, dim) / dim ** 0.5)
        self.register_buffer("bias", torch.zeros(n))


class Moe(nn.Module):
    def __init__(self, t, n, topk, down):
        super().__init__()
        self.topk, self.scale, self.limit = topk, t.routed_scaling_factor, t.swiglu_limit
        self.gate = Gate(n, t.hidden_size)
        self.experts = Experts(n, t.moe_intermediate_size, t.hidden_size, down)
        self.shared_experts = SharedExpert(t.moe_intermediate_size, t.hidden_size, down)
        self.load = self.balance = None

    def forward(self, x):
        q4 = lambda w: fp4_weight(w, x.dtype)
        q8 = lambda m: fp8_weight(m.weight, x.dtype).unsqueeze(0)
        e, s = self.experts, self.shared_experts
        w13 = torch.stack([torch.cat([q4(e.w1), q8(s.w1)]), torch.cat([q4(e.w3), q8(s.w3)])])
        y, load, self.balance = moe(x, self.gate.weight, self.gate.bias, w13, torch.cat([q4(e.w2), q8(s.w2)]),
                                    self.topk, self.scale, self.limit)
        self.load = load.detach()
        return y


# ---------------------------------------------------------------------------------------------- Engram
@fused
def engram_add(h, kv, qw, kw):
    b, t, n, d = h.shape
    f, kv = h.float(), kv.float().unflatten(-1, (n + 1, d))
    key, value = kv[..., :n, :], kv[..., n:, :]
    rs = torch.rsqrt(f.square().mean(-1) + 1e-20) * torch.rsqrt(key.square().mean(-1) + 1e-20)
    dot = (f * (quant.bf16_weight(qw) * quant.bf16_weight(kw)) * key).sum(-1) * rs * d ** -0.5
    g = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp_min(1e-6)), dot))
    return (f + g.unsqueeze(-1) * value).to(h.dtype)


def engram_rows(table, rows):
    return quant.fp8_32(table.index_select(0, rows.flatten()).unflatten(0, rows.shape)).flatten(-2)


class EngramTable(nn.Module):
    def __init__(self, rows, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, dim) * 0.5)


class Engram(nn.Module):
    def __init__(self, t, primes, multipliers):
        super().__init__()
        self.primes, self.multipliers, self.per = primes, multipliers, t.engram_n_heads
        self.embed = EngramTable(sum(primes), t.engram_head_dim)
        self.wkv = Fp8((t.hc_mult + 1) * t.hidden_size, len(primes) * t.engram_head_dim, 0.3)
        self.q_weight = nn.Parameter(torch.ones(t.hc_mult, t.hidden_size))
        self.k_weight = nn.Parameter(torch.ones(t.hc_mult, t.hidden_size))

    def rows(self, tokens):
        """tokens [B,T,n]: compressed ids of this and the previous positions -> table rows [B,T,columns]."""
        roll, out, offset = tokens[..., 0] * self.multipliers[0], [], 0
        for i in range(1, tokens.shape[-1]):
            roll = roll ^ (tokens[..., i] * self.multipliers[i])
            for p in self.primes[(i - 1) * self.per:i * self.per]:
                out.append(roll % p + offset)
                offset += p
        return torch.stack(out, -1)

    def forward(self, h, tokens):
        e = engram_rows(self.embed.weight, self.rows(tokens)).to(h.dtype)
        return engram_add(h, self.wkv(e), self.q_weight, self.k_weight)
