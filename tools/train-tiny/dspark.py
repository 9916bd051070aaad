"""DSpark, the draft module `mtp.0..2`: from hidden states up to position p and the token of p+1 it proposes p+2..p+6."""
import torch
import torch.nn.functional as F
from torch import nn

import quant
from layers import Bf16, Fp8, Norm, angles, collapse, fused, lookup, rms
from model import Block, first_copy


@fused
def draft_attention(q, ring, own, ring_mask, sink):
    """q [B,A,K,H,d]; ring [B,A,W,d] verified positions; own [B,A,K,d]: the K draft rows see each other."""
    d = q.shape[-1]
    kv = torch.cat([ring, own], 2)
    mask = F.pad(ring_mask, (0, own.shape[2]), value=True)
    s = torch.einsum("bakhd,basd->bahks", q, kv).float() * d ** -0.5
    s = s.masked_fill(~mask[:, :, None, None, :], float("-inf"))
    sink = sink.view(1, 1, -1, 1, 1).expand(s.shape[:4] + (1,))
    p = torch.softmax(torch.cat([s, sink], -1), -1)[..., :-1]
    return torch.einsum("bahks,basd->bakhd", p.to(q.dtype), kv)


class MarkovHead(nn.Module):
    def __init__(self, vocab, rank):
        super().__init__()
        self.embed, self.head = nn.Module(), Bf16(vocab, rank, 0.1)
        self.embed.weight = nn.Parameter(torch.randn(vocab, rank) * 0.5)


class ConfidenceHead(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.proj = Bf16(1, n, 0.1)


class DSpark(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.t, n = t, t.num_nextn_predict_layers
        self.mtp = nn.ModuleList(Block(t, -1, 0, t.dspark_n_routed_experts, t.dspark_num_experts_per_tok)
                                 for _ in range(n))
        self.mtp[0].main_proj = Fp8(t.hidden_size, len(t.dspark_target_layer_ids) * t.hidden_size)
        self.mtp[0].main_norm = Norm(t.hidden_size)
        self.mtp[-1].norm = Norm(t.hidden_size)
        self.mtp[-1].markov_head = MarkovHead(t.vocab_size, t.dspark_markov_rank)
        self.mtp[-1].confidence_head = ConfidenceHead(t.hidden_size + t.dspark_markov_rank)

    def rows(self, model, taps, doc, anchor_ids, anchors, sinkhorn=20):
        """anchors [A]: positions p; anchor_ids [B,A]: tokens of p+1. Returns the collapsed hidden [B,A,K,D]."""
        t, (b, n) = self.t, doc.shape
        a, k, w = anchors.numel(), t.dspark_block_size, t.sliding_window
        x = self.mtp[0].main_proj(taps)
        x = rms(x, self.mtp[0].main_norm.weight)
        back = anchors.unsqueeze(1) - torch.arange(w - 1, -1, -1, device=doc.device)                  # [A,W]
        ring_mask = (back >= 0) & (doc[:, back.clamp_min(0)] == doc[:, anchors].unsqueeze(2))          # [B,A,W]
        ids = torch.full((b, a, k), t.dspark_noise_token_id, device=doc.device)
        ids[..., 0] = anchor_ids
        pos = anchors.unsqueeze(1) + 1 + torch.arange(k, device=doc.device)                           # [A,K]
        cos, sin = (v.reshape(a * k, -1) for v in angles(model.inv_plain, pos))
        main_cos, main_sin = angles(model.inv_plain, torch.arange(n, device=doc.device))
        h = model.embedding(ids.flatten(1)).detach().unsqueeze(2).expand(-1, -1, 4, -1).contiguous()
        h.requires_grad_(torch.is_grad_enabled())         # as in the backbone: one compiled variant less
        pre = first_copy(ids.flatten(1))
        for stage in self.mtp:
            at = stage.attn
            ring = at.latent(x, main_cos, main_sin).index_select(1, back.clamp_min(0).flatten()).unflatten(1, back.shape)

            def attention(y, at=at, ring=ring):
                _, q, own = at.project(y, cos, sin)
                own = own.unflatten(1, (a, k))
                o = draft_attention(q.unflatten(1, (a, k)), ring, own, ring_mask, at.attn_sink)
                return at.output(o.flatten(1, 2), cos, sin)
            h, pre = stage(h, pre, attention, sinkhorn)
        return collapse(h, pre).unflatten(1, (a, k))

    def base_hidden(self, xh):
        return rms(xh, self.mtp[-1].norm.weight)

    def markov(self, ids, dtype):
        m = self.mtp[-1].markov_head
        return lookup(m.embed.weight, ids, dtype)

    def confidence(self, xh, e):
        """logit of P(draft accepted | earlier ones accepted)"""
        w = quant.bf16_weight(self.mtp[-1].confidence_head.proj.weight)
        return F.linear(torch.cat([xh.float(), e.float()], -1), w).squeeze(-1)

    @torch.no_grad()
    def draft(self, model, taps, anchor_id, p):
        """Greedy chain after position p of one sequence: taps [1,p+1,3D]. Returns ids, logits, confidences."""
        doc = torch.zeros(taps.shape[:2], dtype=torch.long, device=taps.device)
        anchors = torch.tensor([p], device=taps.device)
        out = torch.tensor([[anchor_id]], device=taps.device)
        xh = self.rows(model, taps, doc, out, anchors)
        base = model.logits(self.base_hidden(xh))[0, 0]
        ids, logits, conf = [], [], []
        for i in range(self.t.dspark_block_size):
            e = self.markov(out[0], xh.dtype)
            l = base[i] + self.mtp[-1].markov_head.head(e)[0].float()
            conf.append(torch.sigmoid(self.confidence(xh[0, 0, i], e[0])))
            out = l.argmax().view(1, 1)
            ids.append(int(out))
            logits.append(l)
        return ids, torch.stack(logits), torch.stack(conf)
