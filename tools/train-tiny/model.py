"""DeepSeek-V4.1 for training: whole sequences, dense masked attention, no caches.

Sequences may hold several documents (`doc` numbers them): attention, selection and Engram never cross a border, so a
document sees what it would see at position 0, except for absolute RoPE positions, of which only differences matter.
"""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

import quant
from config import engram_multipliers, engram_primes
from layers import (Bf16, Engram, Fp8, Hyper, Moe, Norm, angles, attend, attend_local, attend_selected, attention_out,
                    collapse, fp8_weight, fused, inverse_frequencies, latent, lookup, project, rms, rotate, site_in, site_out)


@dataclass
class Step:
    """What the layers of one forward pass share."""
    positions: torch.Tensor                 # [T]
    doc: torch.Tensor                       # [B,T]
    window: torch.Tensor                    # [B,T,T] bool; blocked: [B,T,2W], see attend_local
    rope: dict                              # ratio > 0 -> (cos, sin)
    dense: bool = False                     # attend to every visible entry (warm-up of the indexer)
    loss_rows: torch.Tensor = None          # query rows on which the indexer learns; None: no indexer loss
    blocked: bool = False                   # the fast attention; needs T to be a multiple of the window
    sinkhorn: int = 20
    entries: torch.Tensor = None            # published by the last KV source: [B,N,hd], keys, ratio, visibility
    index_keys: torch.Tensor = None
    ratio: int = 0
    visible: torch.Tensor = None
    selected: torch.Tensor = None           # published by the last index source: [B,T,N] bool
    candidates: torch.Tensor = None         # [B,T,N] bool, from the candidate source
    index_losses: list = field(default_factory=list)
    trace: dict = None


class Compressor(nn.Module):
    def __init__(self, t, ratio):
        super().__init__()
        self.wkv = Bf16(t.head_dim, t.hidden_size)
        if ratio > 1:
            self.wgate = Bf16(t.head_dim, t.hidden_size, 0.1)
        self.norm = Norm(t.head_dim)


def compress_pair(x, wkv, wgate, norm):
    f = x.float()
    a = F.linear(f, quant.bf16_weight(wkv)).unflatten(1, (-1, 2))
    b = F.linear(f, quant.bf16_weight(wgate)).unflatten(1, (-1, 2))
    w = torch.sigmoid(b[:, :, 0] - b[:, :, 1])                     # softmax over two tokens
    return rms((w * a[:, :, 0] + (1 - w) * a[:, :, 1]).to(x.dtype), norm)


def compress_one(x, wkv, norm):
    return rms(F.linear(x, wkv.to(torch.bfloat16).to(x.dtype)), norm)


def entry(c, cos, sin):
    return quant.fp4_16(rotate(c, cos, sin))


def index_vector(x, cos, sin):
    return quant.fp4_32(rotate(x, cos, sin))


def index_scores(iq, w, keys):
    """[B,T,N]: sum over heads of w * relu(q . k); head by head, so that no [B,T,heads,N] tensor is kept."""
    s = 0
    for h in range(iq.shape[2]):
        s = s + w[..., h:h + 1].float() * F.relu(torch.matmul(iq[:, :, h], keys.transpose(1, 2)).float())
    return s


def entry_attention(q, e, visible):
    """Mean over heads of the attention distribution over visible entries. q [B,R,H,d], e [B,N,d]."""
    s = torch.einsum("brhd,bnd->bhrn", q, e).float() * q.shape[-1] ** -0.5
    return torch.softmax(s.masked_fill(~visible.unsqueeze(1), -1e9), -1).mean(1)


all_index_scores = fused(index_scores)


class Indexer(nn.Module):
    def __init__(self, t, owner, source):
        super().__init__()
        self.heads, self.topk = t.index_n_heads, t.index_topk
        self.factor = t.index_head_dim ** -0.5 * t.index_n_heads ** -0.5
        if owner:
            self.wk = Bf16(t.index_head_dim, t.head_dim)
            self.k_norm = Norm(t.index_head_dim)
        if source:
            self.wq_b = Fp8(t.index_n_heads * t.index_head_dim, t.q_lora_rank)
            self.weights_proj = Bf16(t.index_n_heads, t.hidden_size)


def keep_top(scores, k):
    """bool mask of the k largest finite scores of each row."""
    top = torch.topk(scores, min(k, scores.shape[-1]), -1)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, top.indices, top.values > float("-inf"))


class Attention(nn.Module):
    def __init__(self, t, layer, ratio):
        super().__init__()
        self.t, self.layer, self.ratio = t, layer, ratio
        self.owner = layer in t.kv_source_layer_ids
        self.source = layer in t.index_source_layer_ids
        heads, hd = t.num_attention_heads, t.head_dim
        self.wq_a, self.q_norm = Fp8(t.q_lora_rank, t.hidden_size), Norm(t.q_lora_rank)
        self.wq_b = Fp8(heads * hd, t.q_lora_rank)
        self.wkv, self.kv_norm = Fp8(hd, t.hidden_size), Norm(hd)
        self.wo_a = Fp8(t.o_groups * t.o_lora_rank, heads * hd // t.o_groups)
        self.wo_b = Fp8(t.hidden_size, t.o_groups * t.o_lora_rank, 0.3)
        self.attn_sink = nn.Parameter(torch.zeros(heads))
        if self.owner:
            self.compressor = Compressor(t, ratio)
        if self.owner or self.source:
            self.indexer = Indexer(t, self.owner, self.source)

    def latent(self, x, cos, sin):
        return latent(x, fp8_weight(self.wkv.weight, x.dtype), self.kv_norm.weight, cos, sin)

    def project(self, x, cos, sin):
        w = lambda m: fp8_weight(m.weight, x.dtype)
        return project(x, w(self.wq_a), self.q_norm.weight, w(self.wq_b), w(self.wkv), self.kv_norm.weight, cos, sin,
                       self.t.num_attention_heads)

    def output(self, o, cos, sin):
        return attention_out(o, cos, sin, fp8_weight(self.wo_a.weight, o.dtype), fp8_weight(self.wo_b.weight, o.dtype),
                             self.t.o_groups)

    def publish_entries(self, x, s):
        r, cp, ix = self.ratio, self.compressor, self.indexer
        n = x.shape[1] // r
        if r == 1:
            c = compress_one(x, cp.wkv.weight, cp.norm.weight)
        else:
            c = compress_pair(x[:, :n * r], cp.wkv.weight, cp.wgate.weight, cp.norm.weight)
        cos, sin = (a[:n * r:r] for a in s.rope[True])
        s.index_keys = index_vector(rms(ix.wk(c.detach()), ix.k_norm.weight), cos, sin)
        s.entries, s.ratio = entry(c, cos, sin), r
        groups = torch.arange(n, device=x.device)
        ends = s.doc[:, r - 1:n * r:r]                               # a group belongs to the document of its last token
        s.visible = ((groups + 1) * r <= (s.positions + 1).unsqueeze(1)) & (ends.unsqueeze(1) == s.doc.unsqueeze(2))

    def select(self, x, qr, q, s):
        ix, t = self.indexer, self.t
        cos, sin = (a.unsqueeze(1) for a in s.rope[True])
        iq = index_vector(ix.wq_b(qr.detach()).unflatten(-1, (ix.heads, -1)), cos, sin)
        w = (ix.weights_proj(x.detach()) * ix.factor).to(x.dtype)
        if s.loss_rows is not None:
            rows = s.loss_rows
            visible = s.visible.index_select(1, rows)
            with torch.no_grad():
                target = entry_attention(q.detach().index_select(1, rows), s.entries.detach(), visible)
            got = index_scores(iq.index_select(1, rows), w.index_select(1, rows), s.index_keys).masked_fill(~visible, -1e9).log_softmax(-1)
            kl = (target * (target.clamp_min(1e-9).log() - got) * visible).sum(-1)
            some = visible.any(-1)
            s.index_losses.append((kl * some).sum() / some.sum().clamp_min(1))
        if s.dense:
            s.selected = s.visible
        else:
            with torch.no_grad():
                scores = all_index_scores(iq.detach(), w.detach(), s.index_keys.detach()).masked_fill(~s.visible, float("-inf"))
                if self.layer == t.candidate_source_layer_id:
                    s.candidates = self.candidate_entries(scores, s)
                elif s.candidates is not None and self.ratio == 1:
                    scores = scores.masked_fill(~s.candidates, float("-inf"))
                s.selected = keep_top(scores, ix.topk)
        if s.trace is not None:
            s.trace[f"layers.{self.layer}.selected"] = s.selected

    def candidate_entries(self, scores, s):
        size, n = self.t.candidate_block_size, scores.shape[-1]
        pad = -n % size
        b = F.pad(scores, (0, pad), value=float("-inf")).unflatten(-1, (-1, size)).amax(-1)
        newest = (s.positions // size).clamp(max=b.shape[-1] - 1).view(1, -1, 1).expand(b.shape[0], -1, 1)
        b = b.scatter(-1, newest, float("inf"))
        return keep_top(b, self.t.candidate_topk_blocks).repeat_interleave(size, -1)[..., :n]

    def forward(self, x, s):
        cos, sin = s.rope[self.ratio > 0]
        qr, q, kv = self.project(x, cos, sin)
        if self.ratio == 0:
            o = (attend_local if s.blocked else attend)(q, kv, s.window, self.attn_sink)
        else:
            if self.owner:
                self.publish_entries(x, s)
            if self.source:
                self.select(x, qr, q, s)
            if s.blocked:
                o = attend_selected(q, kv, s.window, s.entries, s.selected, self.attn_sink)
            else:
                o = attend(q, torch.cat([kv, s.entries], 1), torch.cat([s.window, s.selected], -1), self.attn_sink)
        return self.output(o, cos, sin)


class Block(nn.Module):
    """One layer. The DSpark stages are blocks as well, with their own attention pattern."""

    def __init__(self, t, layer, ratio, experts, topk, engram=None):
        super().__init__()
        down = 0.5
        self.attn = Attention(t, layer, ratio)
        self.attn_norm, self.ffn_norm = Norm(t.hidden_size), Norm(t.hidden_size)
        self.hc_attn, self.hc_ffn = Hyper(t.hidden_size, 2 * max(layer, 0)), Hyper(t.hidden_size, 2 * max(layer, 0) + 1)
        self.ffn = Moe(t, experts, topk, down)
        if engram is not None:
            self.engram = engram

    def forward(self, h, pre, attention, iters):
        """attention: function of the site's input. Returns the copies and the pre weights of the next site."""
        a, f = self.hc_attn, self.hc_ffn
        x, pre_a, post, c = site_in(h, pre, a, self.attn_norm, iters)
        h = site_out(h, attention(x), post, c)
        x, pre_f, post, c = site_in(h, pre_a, f, self.ffn_norm, iters)
        return site_out(h, self.ffn(x), post, c), pre_f


def first_copy(ids):
    """(1,0,0,0) for every token. Asks for a gradient like the later ones: one compiled variant less."""
    pre = torch.zeros(ids.shape + (4,), device=ids.device)
    pre[..., 0] = 1
    return pre.requires_grad_() if torch.is_grad_enabled() else pre


def final_norm(h, pre, w):
    return rms(collapse(h, pre), w)


class Model(nn.Module):
    def __init__(self, t, token_map):
        super().__init__()
        self.t = t
        primes = engram_primes(t)
        engrams = {l: Engram(t, primes[i], engram_multipliers(t, l)) for i, l in enumerate(t.engram_layer_ids)}
        self.embed = nn.Module()
        self.embed.weight = nn.Parameter(torch.randn(t.vocab_size, t.hidden_size) * 0.5)
        self.layers = nn.ModuleList(
            Block(t, l, t.compress_ratios[l], t.n_routed_experts, t.num_experts_per_tok, engrams.get(l))
            for l in range(t.num_hidden_layers))
        self.norm = Norm(t.hidden_size)
        self.head = Bf16(t.vocab_size, t.hidden_size, 0.5)
        self.register_buffer("token_map", torch.as_tensor(token_map, dtype=torch.int64), persistent=False)
        self.register_buffer("inv_plain", inverse_frequencies(t, False), persistent=False)
        self.register_buffer("inv_yarn", inverse_frequencies(t, True), persistent=False)
        self.dtype = torch.float32

    def embedding(self, ids):
        return lookup(self.embed.weight, ids, self.dtype)

    def engram_tokens(self, ids, doc):
        """[B,T,n]: compressed ids of positions p, p-1, ...; the pad id before the start of the document."""
        m, out = self.token_map[ids], []
        for s in range(self.t.engram_max_ngram_size):
            if s >= m.shape[1]:
                out.append(torch.full_like(m, self.t.engram_pad_token_id))
                continue
            back = F.pad(m[:, :m.shape[1] - s], (s, 0), value=self.t.engram_pad_token_id)
            same = F.pad(doc[:, :doc.shape[1] - s], (s, 0), value=-1) == doc
            out.append(torch.where(same, back, self.t.engram_pad_token_id))
        return torch.stack(out, -1)

    def step(self, ids, doc=None, blocked=False, **options):
        b, n = ids.shape
        w = self.t.sliding_window
        pos = torch.arange(n, device=ids.device)
        doc = torch.zeros_like(ids) if doc is None else doc
        if blocked:
            keys = (pos // w * w - w).unsqueeze(1) + torch.arange(2 * w, device=ids.device)            # [T,2W]
            same = doc[:, keys.clamp_min(0)] == doc.unsqueeze(2)
        else:
            keys, same = pos.unsqueeze(0), doc.unsqueeze(1) == doc.unsqueeze(2)
        back = pos.unsqueeze(1) - keys
        window = (back >= 0) & (back < w) & (keys >= 0) & same
        rope = {True: angles(self.inv_yarn, pos), False: angles(self.inv_plain, pos)}
        return Step(pos, doc, window, rope, blocked=blocked, **options)

    def forward(self, ids, s):
        """Final normed hidden [B,T,D] and main_hidden [B,T,3D], the conditioning of DSpark."""
        h = self.embedding(ids).unsqueeze(2).expand(-1, -1, 4, -1).contiguous()
        pre = first_copy(ids)
        tokens, taps = self.engram_tokens(ids, s.doc), []
        for l, layer in enumerate(self.layers):
            if l in self.t.dspark_target_layer_ids:
                taps.append(h.detach().float().mean(2).to(h.dtype))
            if l in self.t.engram_layer_ids:
                h = layer.engram(h, tokens)
            h, pre = layer(h, pre, lambda x, a=layer.attn: a(x, s), s.sinkhorn)
            if s.trace is not None:
                s.trace[f"layers.{l}.h_out"] = h
        return final_norm(h, pre, self.norm.weight), torch.cat(taps, -1)

    def logits(self, x):
        """float32 logits; the product itself in the dtype of x."""
        return self.head(x).float()

    @torch.no_grad()
    def run(self, ids, doc=None, **options):
        s = self.step(ids, doc, **options)
        x, taps = self(ids, s)
        return self.logits(x), taps
