"""Doubly stochastic mixing matrices of the hyper-connections: softmax over rows, then alternating normalisation.

On a GPU one kernel keeps a token's 16 values in registers through all iterations. As 40 separate operations the forward
and backward pass would be launch and traffic bound, and torch.compile needs 7 s for the unrolled loop. The kernel stores
only the sums: backwards, x = y * sum gives every intermediate again.
"""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:                                                     # CPU only
    triton = None

EPS = 1e-6


def reference(z, iters):
    c = torch.softmax(z, -1) + EPS
    c = c / (c.sum(-2, keepdim=True) + EPS)
    for _ in range(iters - 1):
        c = c / (c.sum(-1, keepdim=True) + EPS)
        c = c / (c.sum(-2, keepdim=True) + EPS)
    return c


if triton:
    @triton.jit
    def forward_kernel(z, c, sums, n, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        at = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        x = tl.load(z + at, t[:, None, None] < n, 0.0)
        x = tl.exp(x - tl.max(x, 2)[:, :, None])
        x = x / tl.sum(x, 2)[:, :, None] + 1e-6
        out = sums + t[:, None] * 4 + i[None, :]
        ok = t[:, None] < n
        s = tl.sum(x, 1) + 1e-6
        tl.store(out, s, ok)
        x = x / s[:, None, :]
        for _ in range(ITERS - 1):
            out += n * 4
            s = tl.sum(x, 2) + 1e-6
            tl.store(out, s, ok)
            x = x / s[:, :, None]
            out += n * 4
            s = tl.sum(x, 1) + 1e-6
            tl.store(out, s, ok)
            x = x / s[:, None, :]
        tl.store(c + at, x, t[:, None, None] < n)

    @triton.jit
    def backward_kernel(c, dc, sums, dz, n, ITERS: tl.constexpr, BLOCK: tl.constexpr):
        t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        i = tl.arange(0, 4)
        at = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        y = tl.load(c + at, t[:, None, None] < n, 0.0)
        d = tl.load(dc + at, t[:, None, None] < n, 0.0)
        ok = t[:, None] < n
        out = sums + t[:, None] * 4 + i[None, :] + n * 4 * (2 * ITERS - 2)
        for _ in range(ITERS - 1):
            s = tl.load(out, ok, 1.0)
            d = (d - tl.sum(d * y, 1)[:, None, :]) / s[:, None, :]
            y = y * s[:, None, :]
            out -= n * 4
            s = tl.load(out, ok, 1.0)
            d = (d - tl.sum(d * y, 2)[:, :, None]) / s[:, :, None]
            y = y * s[:, :, None]
            out -= n * 4
        s = tl.load(out, ok, 1.0)
        d = (d - tl.sum(d * y, 1)[:, None, :]) / s[:, None, :]
        y = y * s[:, None, :] - 1e-6
        d = y * (d - tl.sum(d * y, 2)[:, :, None])
        tl.store(dz + at, d, t[:, None, None] < n)


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, iters):
        z = z.contiguous()
        n = z.numel() // 16
        c, sums = torch.empty_like(z), torch.empty(2 * iters - 1, n, 4, device=z.device)
        forward_kernel[(triton.cdiv(n, 64),)](z, c, sums, n, iters, 64)
        ctx.save_for_backward(c, sums)
        ctx.iters = iters
        return c

    @staticmethod
    def backward(ctx, dc):
        c, sums = ctx.saved_tensors
        dz, n = torch.empty_like(c), c.numel() // 16
        backward_kernel[(triton.cdiv(n, 64),)](c, dc.contiguous(), sums, dz, n, ctx.iters, 64)
        return dz, None


def sinkhorn(z, iters):
    return _Kernel.apply(z, iters) if z.is_cuda else reference(z, iters)
