"""The number formats of DeepSeek-V4.1: rounding with straight-through gradients, and codes for export.

Everything that the model stores rounded is rounded in training as well, so a published weight or cache entry costs
nothing that training has not already paid:

  fp8_32     window latents          E4M3, one power-of-two scale per 32 channels
  fp4_32     indexer queries, keys   E2M1, one power-of-two scale per 32 channels
  fp4_16     compressed latents      E2M1, one E4M3 scale per 16 channels
  fp8_block  dense weights           E4M3, one power-of-two scale per 32x32 block
  mxfp4      expert weights          E2M1, one power-of-two scale per 32 inputs
"""
import torch


def pow2ceil(t):
    """Smallest power of two >= t, from the bits of a positive normal float32."""
    return ((t.contiguous().view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32)


def e2m1(x):
    """Nearest of 0 .5 1 1.5 2 3 4 6, ties to the even code. torch.round is round-half-to-even and the step is
    constant between powers of two, so rounding in units of the step has the right ties."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.copysign(torch.round(a / step) * step, x)


def _blocks(x, n):
    return x.float().unflatten(-1, (x.shape[-1] // n, n))


def round_fp8_32(x):
    b = _blocks(x, 32)
    s = pow2ceil(b.abs().amax(-1, keepdim=True).clamp_min(1e-4) * (1 / 448))
    return (e4m3(b / s) * s).flatten(-2).to(x.dtype)


def round_fp4_32(x):
    b = _blocks(x, 32)
    s = pow2ceil(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -126) * (1 / 6))
    return (e2m1((b / s).clamp(-6, 6)) * s).flatten(-2).to(x.dtype)


def round_fp4_16(x):
    b = _blocks(x, 16)
    s = e4m3(b.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -9) / 6)
    return (e2m1((b / s).clamp(-6, 6)) * s).flatten(-2).to(x.dtype)


def _weight_blocks(w):
    n, k = w.shape[-2:]
    return w.unflatten(-1, (k // 32, 32)).unflatten(-3, (n // 32, 32))          # [..., N/32, 32, K/32, 32]


def fp8_block_scale(w):
    a = _weight_blocks(w).abs().amax((-3, -1), keepdim=True)
    return pow2ceil(a.clamp_min(1e-20) * (1 / 448))


def round_fp8_block(w):
    s = fp8_block_scale(w)
    return (e4m3(_weight_blocks(w) / s) * s).flatten(-2).flatten(-3, -2)


def mxfp4_scale(w):
    return pow2ceil(_blocks(w, 32).abs().amax(-1, keepdim=True).clamp_min(1e-20) * (1 / 6))


def round_mxfp4(w):
    s = mxfp4_scale(w)
    return (e2m1((_blocks(w, 32) / s).clamp(-6, 6)) * s).flatten(-2)


class _Straight(torch.autograd.Function):
    """Forward: the rounded value, exactly. Backward: identity (x + (q - x).detach() would lose low bits of q)."""

    @staticmethod
    def forward(ctx, x, rounded):
        return rounded.clone()

    @staticmethod
    def backward(ctx, g):
        return g, None


def straight(x, rounded):
    return _Straight.apply(x, rounded) if torch.is_grad_enabled() and x.requires_grad else rounded


def fp8_32(x):
    return straight(x, round_fp8_32(x.detach()))


def fp4_32(x):
    return straight(x, round_fp4_32(x.detach()))


def fp4_16(x):
    return straight(x, round_fp4_16(x.detach()))


def fp8_block(w):
    return straight(w, round_fp8_block(w.detach()))


def mxfp4(w):
    return straight(w, round_mxfp4(w.detach()))


def bf16_weight(w):
    """A weight published as BF16, used in float32 arithmetic."""
    return w.to(torch.bfloat16).to(torch.float32)


# ---------------------------------------------------------------------------------------------- codes for export
def ue8m0_byte(s):
    return ((s.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8)


def encode_fp8_block(w):
    s = fp8_block_scale(w)
    q = (_weight_blocks(w) / s).clamp(-448, 448).to(torch.float8_e4m3fn)
    return q.view(torch.uint8).flatten(-2).flatten(-3, -2), ue8m0_byte(s.squeeze(-1).squeeze(-2))


def encode_fp8_rows(w):
    b = _blocks(w, 32)
    s = pow2ceil(b.abs().amax(-1, keepdim=True).clamp_min(1e-4) * (1 / 448))
    return (b / s).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).flatten(-2), ue8m0_byte(s.squeeze(-1))


E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


def encode_mxfp4(w):
    s = mxfp4_scale(w)
    v = e2m1((_blocks(w, 32) / s).clamp(-6, 6)).flatten(-2)
    code = torch.searchsorted(E2M1, v.abs().contiguous()).to(torch.uint8) | (torch.signbit(v).to(torch.uint8) << 3)
    return code[..., 0::2] | (code[..., 1::2] << 4), ue8m0_byte(s.squeeze(-1))


def decode_ue8m0(b):
    return torch.ldexp(torch.ones(b.shape), b.to(torch.int32) - 127)


def decode_fp8(q, s, rows=32):
    w = q.view(torch.float8_e4m3fn).to(torch.float32)
    s = decode_ue8m0(s).repeat_interleave(rows, 0).repeat_interleave(32, 1)
    return w * s[:w.shape[0], :w.shape[1]]


def decode_mxfp4(q, s):
    q = q.view(torch.uint8)
    code = torch.stack([q & 15, q >> 4], -1).flatten(-2).long()
    v = E2M1[code & 7] * torch.where(code > 7, -1.0, 1.0)
    return v * decode_ue8m0(s).repeat_interleave(32, -1)
