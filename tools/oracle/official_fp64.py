#!/usr/bin/env python3
"""A transcription of the forward pass (specification, section 3) in float64, for the rounding of the published code.

    official_fp64.py CHECKPOINT --ids 5,17,3 | --ids-file F.npy --out logits.npy [--numerics official|bf16|fp32]
                     [--accumulate float64|float32]

Written from the specification alone. All arithmetic is float64; a value is rounded only where the published code rounds
it: to BF16 at the boundaries of section 3.11, by Q1, Q2, Q3 in the caches (every mode), by Q1 at the inputs of FP8 and FP4
linears except wo_a (`official`), and to BF16 three times in the index scores (`official`). Two things are float32 because
their bits are part of the model: rotary frequencies and angles, and the scales of the quantisers.

--accumulate float32 sums every matrix product in float32 in numpy's order. Two correct implementations differ about as
much as the two runs do; bounds of tests come from that.

The whole prompt is computed at once, so it says nothing about caches: those are compared with a prompt by other tests.
"""
import argparse
import pathlib

import numpy as np

from checkpoint import Checkpoint, E2M1, E4M3

POSITIVE_E4M3 = E4M3[:127]
F32 = np.float32


# ---- rounding -------------------------------------------------------------------------------------------------
def bf16(x: np.ndarray) -> np.ndarray:
    """Nearest, ties to even, of values that are first rounded to float32, as every implementation has them."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).view(F32).astype(np.float64)


def nearest(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The nearest value of an ascending non-negative grid, ties to the even code; the sign is kept."""
    size = np.abs(x)
    middle = (grid[1:] + grid[:-1]) / 2
    code = np.searchsorted(middle, size)
    code += (size == middle[np.minimum(code, len(middle) - 1)]) & (code % 2 == 1) & (code < len(middle))
    return np.copysign(grid[code], x)


def pow2ceil(t: np.ndarray) -> np.ndarray:
    mantissa, exponent = np.frexp(t)
    return np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))


def blocks(x: np.ndarray, size: int) -> np.ndarray:
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def scaled(x: np.ndarray, scale: np.ndarray, limit: float, grid: np.ndarray) -> np.ndarray:
    quotient = (x.astype(F32) / scale.astype(F32)).astype(np.float64)
    return nearest(np.clip(quotient, -limit, limit), grid) * scale


def q1(x: np.ndarray) -> np.ndarray:
    b = blocks(x.astype(F32), 32)
    top = np.maximum(np.abs(b).max(-1, keepdims=True), F32(1e-4))
    return scaled(b, pow2ceil((top * F32(1 / 448)).astype(F32).astype(np.float64)), 448, POSITIVE_E4M3).reshape(x.shape)


def q2(x: np.ndarray) -> np.ndarray:
    b = blocks(x.astype(F32), 32)
    top = np.maximum(np.abs(b).max(-1, keepdims=True), F32(6 * 2.0 ** -126))
    return scaled(b, pow2ceil((top * F32(1 / 6)).astype(F32).astype(np.float64)), 6, E2M1).reshape(x.shape)


def q3(x: np.ndarray) -> np.ndarray:
    b = blocks(x.astype(F32), 16)
    top = np.maximum(np.abs(b).max(-1, keepdims=True), F32(6 * 2.0 ** -9))
    scale = nearest(np.minimum((top / F32(6)).astype(np.float64), 448), POSITIVE_E4M3)
    return scaled(b, scale, 6, E2M1).reshape(x.shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- Engram constants (3.9, 10.11) ----------------------------------------------------------------------------
def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


def engram_constants(text: dict) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """layer -> multipliers, primes [ngram - 2, head], row offsets of the columns"""
    used, result = set(), {}
    bound = max(1, (2 ** 63 - 1) // text["engram_compressed_vocab_size"] // 2)
    for layer in text["engram_layer_ids"]:
        primes = []
        for _ in range(text["engram_max_ngram_size"] - 1):
            candidate = text["engram_vocab_size"] - 1
            for _ in range(text["engram_n_heads"]):
                candidate += 1
                while candidate in used or not is_prime(candidate):
                    candidate += 1
                used.add(candidate)
                primes.append(candidate)
        generator = np.random.default_rng(10007 * layer)
        multipliers = generator.integers(0, bound, size=text["engram_max_ngram_size"], dtype=np.int64) * 2 + 1
        offsets = np.concatenate([[0], np.cumsum(primes)[:-1]])
        result[layer] = multipliers, np.array(primes).reshape(-1, text["engram_n_heads"]), offsets
    return result


def top_k(scores: np.ndarray, k: int) -> np.ndarray:
    """Mask of the k largest finite scores of each row; ties go to the lower index (10.4)."""
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    mask = np.zeros(scores.shape, bool)
    np.put_along_axis(mask, order, True, -1)
    return mask & np.isfinite(scores)


class Model:
    def __init__(self, checkpoint: Checkpoint, numerics: str, accumulate: str = "float64"):
        self.w, self.t = checkpoint, checkpoint.text
        self.rounds = numerics != "fp32"
        self.official = numerics == "official"
        self.accumulate = np.dtype(accumulate)
        self.ratios = self.t["compress_ratios"][:self.t["num_hidden_layers"]]
        self.eps = self.t["rms_norm_eps"]
        self.trace: dict[str, np.ndarray] = {}

    # ---- parts
    def act(self, x):
        return bf16(x) if self.rounds else x.astype(F32).astype(np.float64)

    def product(self, a, b):
        """a b^T"""
        if self.accumulate == np.float32:
            return (a.astype(F32) @ b.astype(F32).T).astype(np.float64)
        return a @ b.T

    def linear(self, x, name):
        if self.official and self.w.quantised(name):
            x = q1(x)
        return self.act(self.product(x, self.w[name]))

    def unit(self, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)

    def norm(self, x, name):
        return self.act(self.w[name + ".weight"] * self.unit(x))

    def angles(self, layer_ratio: int, positions: np.ndarray) -> np.ndarray:
        """float32 steps, rounded one by one (3.1)"""
        t, dim = self.t, self.t["qk_rope_head_dim"]
        theta = t["compress_rope_theta"] if layer_ratio else t["rope_theta"]
        exponent = np.arange(0, dim, 2).astype(F32) / F32(dim)
        power = np.array([float(theta) ** float(e) for e in exponent]).astype(F32)
        inverse = F32(1) / power
        scaling = t.get("rope_scaling") if layer_ratio else None
        if scaling:
            def at(beta):
                return dim * np.log(scaling["original_max_position_embeddings"] / (beta * 2 * np.pi)) / (2 * np.log(theta))
            low = max(np.floor(at(scaling["beta_fast"])), 0)
            high = min(np.ceil(at(scaling["beta_slow"])), dim - 1)
            ramp = np.clip((np.arange(dim // 2).astype(F32) - F32(low)) / F32(max(high - low, 1e-3)), F32(0), F32(1))
            inverse = (inverse / F32(scaling["factor"])) * ramp + inverse * (F32(1) - ramp)
        return (positions.astype(F32)[:, None] * inverse).astype(np.float64)

    def rotate(self, x, angles, inverse=False):
        """x [rows, ..., channels]; the last channels are adjacent pairs."""
        dim = 2 * angles.shape[1]
        shape = [len(x)] + [1] * (x.ndim - 2) + [dim // 2]
        turn = np.exp((-1j if inverse else 1j) * angles).reshape(shape)
        pairs = (x[..., -dim::2] + 1j * x[..., x.shape[-1] - dim + 1::2]) * turn
        out = x.copy()
        out[..., -dim::2], out[..., x.shape[-1] - dim + 1::2] = pairs.real, pairs.imag
        return self.act(out)

    # ---- residual copies (3.2)
    def mixes(self, h, prefix):
        n = self.t["hc_mult"]
        flat = h.reshape(len(h), -1)
        m = self.product(flat, self.w[prefix + "_fn"]) / np.sqrt((flat * flat).mean(-1, keepdims=True) + self.eps)
        z = m * np.repeat(self.w[prefix + "_scale"], [n, n, n * n]) + self.w[prefix + "_base"]
        eps = self.t["hc_eps"]
        c = z[:, 2 * n:].reshape(-1, n, n)
        c = np.exp(c - c.max(-1, keepdims=True))
        c = c / c.sum(-1, keepdims=True) + eps
        c = c / (c.sum(1, keepdims=True) + eps)
        for _ in range(self.t["hc_sinkhorn_iters"] - 1):
            c = c / (c.sum(2, keepdims=True) + eps)
            c = c / (c.sum(1, keepdims=True) + eps)
        return sigmoid(z[:, :n]) + eps, 2 * sigmoid(z[:, n:2 * n]), c

    def collapse(self, h, pre):
        return self.act((pre[:, :, None] * h).sum(1))

    def expand(self, y, h, post, c):
        return self.act(post[:, :, None] * y[:, None] + np.einsum("tjk,tjd->tkd", c, h))

    # ---- Engram (3.9)
    def engram_rows(self, ids, layer):
        multipliers, primes, offsets = self.constants[layer]
        compressed = self.token_map[ids]
        pad = self.token_map[self.t["engram_pad_token_id"]]
        rolled, columns = None, []
        for shift, multiplier in enumerate(multipliers):
            token = np.full(len(ids), pad, np.int64)
            token[shift:] = compressed[:len(ids) - shift] if shift < len(ids) else []
            rolled = token * multiplier if shift == 0 else rolled ^ (token * multiplier)
            if shift:
                columns += [rolled % p for p in primes[shift - 1]]
        return np.stack(columns, 1) + offsets

    def engram(self, h, ids, layer):
        p = f"layers.{layer}.engram."
        copies, d = h.shape[1:]
        e = self.w[p + "embed"][self.engram_rows(ids, layer)].reshape(len(ids), -1)
        kv = self.linear(self.act(e), p + "wkv")
        key, value = kv[:, :copies * d].reshape(-1, copies, d), kv[:, copies * d:]
        weight = self.w[p + "q_weight"] * self.w[p + "k_weight"]
        dot = (self.unit(h) * weight * self.unit(key)).sum(-1) / np.sqrt(d)
        gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), 1e-6)), dot))
        return self.act(h + gate[:, :, None] * value[:, None])

    # ---- attention (3.3 to 3.6)
    def compress(self, x, p, ratio):
        w = self.w
        if ratio == 1:
            return self.norm(self.linear(x, p + "compressor.wkv"), p + "compressor.norm")
        groups, dim = len(x) // ratio, self.t["head_dim"]
        x = x[:groups * ratio]
        a = self.product(x, w[p + "compressor.wkv"]).reshape(groups, ratio, dim)
        b = self.product(x, w[p + "compressor.wgate"]).reshape(groups, ratio, dim)
        b = np.exp(b - b.max(1, keepdims=True))
        return self.norm(self.act((a * b / b.sum(1, keepdims=True)).sum(1)), p + "compressor.norm")

    def select(self, x, qr, p, layer, ratio, angles):
        t, rows = self.t, len(x)
        heads, dim = t["index_n_heads"], t["index_head_dim"]
        iq = q2(self.rotate(self.linear(qr, p + "indexer.wq_b").reshape(rows, heads, dim), angles))
        weight = self.act(self.linear(x, p + "indexer.weights_proj") * (dim ** -0.5 * heads ** -0.5))
        dots = self.product(iq.reshape(rows * heads, dim), self.keys).reshape(rows, heads, len(self.keys))
        third = bf16 if self.official else lambda v: v
        parts = third(weight[:, :, None] * np.maximum(third(dots), 0))
        scores = third(parts.sum(1)) if self.official else parts.sum(1).astype(F32).astype(np.float64)
        entries = scores.shape[1]
        visible = (np.arange(rows) + 1) // ratio
        scores = np.where(np.arange(entries) < visible[:, None], scores, -np.inf)
        if layer == t["candidate_source_layer_id"] and entries:
            size = t["candidate_block_size"]
            padded = np.full((rows, -(-entries // size) * size), -np.inf)
            padded[:, :entries] = scores
            of_block = blocks(padded, size).max(-1)
            newest = (visible - 1) // size
            seen = visible > 0
            finite = np.where(np.isfinite(of_block), of_block, -np.inf)
            # +inf is no finite score: the newest block is ranked by a number above all others.
            finite[np.arange(rows)[seen], newest[seen]] = np.finfo(np.float64).max
            self.candidates = top_k(finite, t["candidate_topk_blocks"]).repeat(size, 1)[:, :entries]
        elif 0 <= t["candidate_source_layer_id"] < layer:
            scores = np.where(self.candidates, scores, -np.inf)
        self.trace[f"{layer}.index_scores"] = scores
        return top_k(scores, t["index_topk"])

    def attention(self, x, layer):
        t, w, rows = self.t, self.w, len(x)
        p, ratio = f"layers.{layer}.attn.", self.ratios[layer]
        heads, dim = t["num_attention_heads"], t["head_dim"]
        positions = np.arange(rows)
        angles = self.angles(ratio, positions)
        qr = self.norm(self.linear(x, p + "wq_a"), p + "q_norm")
        q = self.rotate(self.linear(qr, p + "wq_b").reshape(rows, heads, dim), angles)
        keys = q1(self.rotate(self.norm(self.linear(x, p + "wkv"), p + "kv_norm"), angles))
        back = positions[:, None] - positions
        seen = (back >= 0) & (back < t["sliding_window"])
        self.trace[f"{layer}.window_kv"] = keys
        if ratio:
            if layer in t["kv_source_layer_ids"]:
                latent = self.compress(x, p, ratio)
                group_angles = self.angles(ratio, np.arange(len(latent)) * ratio)
                self.keys = q2(self.rotate(self.norm(self.linear(latent, p + "indexer.wk"), p + "indexer.k_norm"),
                                           group_angles))
                self.entries = q3(self.rotate(latent, group_angles))
            if layer in t["index_source_layer_ids"]:
                self.selected = self.select(x, qr, p, layer, ratio, angles)
            keys = np.concatenate([keys, self.entries])
            seen = np.concatenate([seen, self.selected], 1)
        scores = self.product(q.reshape(rows * heads, dim), keys).reshape(rows, heads, -1) * dim ** -0.5
        scores = np.where(seen[:, None], scores, -np.inf)
        top = np.maximum(scores.max(-1, keepdims=True), -1e30)
        e = np.exp(scores - top)
        total = e.sum(-1, keepdims=True) + np.exp(w[p + "attn_sink"][:, None] - top)
        weight = bf16(e) if self.rounds else e
        o = self.product(weight.reshape(rows * heads, -1), keys.T).reshape(rows, heads, dim) / total
        o = self.rotate(self.act(o), angles, inverse=True)
        grouped = o.reshape(rows, t["o_groups"], -1)
        wo_a = w[p + "wo_a"].reshape(t["o_groups"], t["o_lora_rank"], -1)
        u = np.stack([self.act(self.product(grouped[:, g], wo_a[g])) for g in range(t["o_groups"])], 1)
        return self.linear(u.reshape(rows, -1), p + "wo_b")

    # ---- experts (3.7, 3.8)
    def expert(self, x, p, weight):
        limit = self.t["swiglu_limit"]
        gate, up = np.minimum(self.linear(x, p + "w1"), limit), np.clip(self.linear(x, p + "w3"), -limit, limit)
        return self.linear(self.act(weight * (gate * sigmoid(gate) * up)), p + "w2")

    def moe(self, x, layer):
        t, p = self.t, f"layers.{layer}.ffn."
        logit = self.product(x, self.w[p + "gate.weight"]) / t.get("gate_temp", 1.0)
        scores = np.sqrt(np.where(logit > 20, logit, np.log1p(np.exp(np.minimum(logit, 20)))))
        chosen = top_k((scores + self.w[p + "gate.bias"]).astype(F32), t["num_experts_per_tok"])
        weight = np.where(chosen, scores, 0)
        weight = weight / (weight.sum(-1, keepdims=True) + 1e-20) * t["routed_scaling_factor"]
        out = np.zeros_like(x)
        for e in range(t["n_routed_experts"]):
            rows = np.flatnonzero(chosen[:, e])
            if len(rows):
                out[rows] += self.expert(x[rows], f"{p}experts.{e}.", weight[rows, e, None])
        return self.act(out + self.expert(x, p + "shared_experts.", 1.0))

    # ---- all
    def block(self, h, pre, ids, layer):
        p = f"layers.{layer}."
        if layer in (self.t.get("engram_layer_ids") or []):
            h = self.engram(h, ids, layer)
        pre_a, post_a, c_a = self.mixes(h, p + "hc_attn")
        y = self.attention(self.norm(self.collapse(h, pre), p + "attn_norm"), layer)
        h = self.expand(y, h, post_a, c_a)
        pre_f, post_f, c_f = self.mixes(h, p + "hc_ffn")
        y = self.moe(self.norm(self.collapse(h, pre_a), p + "ffn_norm"), layer)
        return self.expand(y, h, post_f, c_f), pre_f

    def logits(self, ids) -> np.ndarray:
        ids = np.asarray(ids, np.int64)
        if self.t.get("engram_layer_ids"):
            self.constants = engram_constants(self.t)
            self.token_map = np.load(self.w.directory / "engram_token_map.npy").astype(np.int64)
        copies = self.t["hc_mult"]
        h = np.repeat(self.w["embed"][ids][:, None], copies, 1)
        pre = np.zeros((len(ids), copies))
        pre[:, 0] = 1
        for layer in range(self.t["num_hidden_layers"]):
            h, pre = self.block(h, pre, ids, layer)
            self.trace[f"{layer}.h"], self.trace[f"{layer}.pre"] = h, pre
        return self.product(self.norm(self.collapse(h, pre), "norm"), self.w["head"]).astype(F32)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("checkpoint", type=pathlib.Path)
    group = ap.add_mutually_exclusive_group(required=True)
    group.add_argument("--ids", help="token ids, separated by commas or spaces")
    group.add_argument("--ids-file", type=pathlib.Path)
    ap.add_argument("--out", type=pathlib.Path, required=True)
    ap.add_argument("--numerics", choices=("official", "bf16", "fp32"), default="official")
    ap.add_argument("--accumulate", choices=("float64", "float32"), default="float64")
    args = ap.parse_args()
    ids = np.load(args.ids_file) if args.ids_file else [int(i) for i in args.ids.replace(",", " ").split()]
    np.save(args.out, Model(Checkpoint(args.checkpoint), args.numerics, args.accumulate).logits(ids))


if __name__ == "__main__":
    main()
