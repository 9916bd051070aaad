#!/usr/bin/env python3
"""Train hadal-tiny on one GPU in one go: backbone and draft module, rounding of weights and caches included.

    train.py --data DATA --rows ROWS --model DIR --out DIR --seconds 540 [--start DIR] [--deadline TIME]

--model holds config.json and engram_token_map.npy (corpus.py writes them), --rows the packed sequences. The schedule
runs on the clock: the learning rate reaches its end when the seconds are over, whatever the machine's speed. Phases by
elapsed share: dense attention over entries (the indexer only learns), then top-k selection, then the draft module joins.
With --start the weights of a checkpoint are trained further: no dense phase, and learning rates scaled to --lr. What there is at
half time, at three quarters and at the end is exported, so that a run that is cut off leaves a model.
"""
import argparse
import glob
import json
import lzma
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import checkpoint
import layers
import mix
from config import load_config
from dspark import DSpark
from layers import fused
from model import Model
from optim import Adam, Muon

DENSE_UNTIL, DRAFT_FROM, DECAY_FROM = 0.10, 0.35, 0.40
PROMPT_WEIGHT = 0.15                      # loss weight of tokens that a user, a tool or a system prompt would write
SLOT_WEIGHT = (1.0, 0.9, 0.8, 0.7, 0.6)   # later drafts are reached less often
PAD, LEARN = 2, 1 << 15


@fused
def token_loss(x, head, target, weight):
    logits = F.linear(x, head.to(torch.bfloat16).to(x.dtype))
    loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum(), logits.detach()


@fused
def draft_loss(x, markov, head, markov_head, teacher, conf, w):
    """x, markov [B,A,K,.]; teacher [B,A,K,V] logits of the backbone at the same positions. Cross entropy against the
    backbone's distribution; the confidence head learns whether both have the same arg-max."""
    bf = lambda w: w.to(torch.bfloat16).to(x.dtype)
    logits = F.linear(x, bf(head.detach())).float() + F.linear(markov, bf(markov_head)).float()
    t = teacher.float()
    ce = -(torch.softmax(t, -1) * torch.log_softmax(logits, -1)).sum(-1)
    same = (logits.argmax(-1) == t.argmax(-1)).float()
    bce = F.binary_cross_entropy_with_logits(conf, same, reduction="none")
    return (ce * w).sum() / w.sum(), (bce * w).sum() / w.sum(), same


class Trainer:
    def __init__(self, a, device):
        self.a, self.device, t = a, device, load_config(a.model)
        self.t = t
        with open(f"{a.model}/config.json") as f:
            self.config = json.load(f)
        torch.manual_seed(a.seed)
        with torch.device(device):
            self.model, self.draft = Model(t, np.load(f"{a.model}/engram_token_map.npy")), DSpark(t)
        if a.start:
            checkpoint.load(a.start, self.model, self.draft)
        self.model.dtype = torch.bfloat16
        b, n = a.batch, a.length
        self.ids = torch.zeros(b, n, dtype=torch.int64, device=device)
        self.factor = torch.zeros((), device=device)
        self.rows = torch.arange(0, n, 8, device=device)                 # query rows of the indexer's loss
        self.anchors = torch.arange(0, n, 8, device=device)
        self.slots = torch.tensor(SLOT_WEIGHT, device=device)
        self.stats = torch.zeros(8, device=device)
        self.valid = {}
        for file in sorted(glob.glob(f"{a.data}/valid-*.npy.xz")):
            with lzma.open(file) as f:
                rows = torch.from_numpy(np.load(f).astype(np.int64))[:, :n]
            rows = rows[:len(rows) // b * b] if len(rows) >= b else rows[torch.arange(b) % len(rows)]
            self.valid[os.path.basename(file)[6:-7]] = rows.to(device)
        self.graphs, self.pool = {}, None
        self.optimisers = [self.make_optimiser(self.model), self.make_optimiser(self.draft)]

    def make_optimiser(self, module):
        """[Muon, Adam] of one module"""
        kinds, muon, adam = checkpoint.kinds(module), [], {}
        for name, (_, p) in kinds.items():
            if not isinstance(p, torch.nn.Parameter):
                continue                                                 # router bias: moved by balance()
            small = p.dim() < 2 or min(p.shape[-2:]) < 32 or ".hc_" in name
            if name.endswith(("embed.weight", "head.weight", "head.head.weight")) or small:
                lr = 1e-2 if "engram.embed" in name else 5e-3 if name.endswith("embed.weight") else 3e-3
                adam.setdefault(lr, []).append(p)
            else:
                muon.append(p)
        return [Muon(muon, self.a.lr), Adam([(ps, lr * self.a.lr / 0.02) for lr, ps in adam.items()])]

    # ------------------------------------------------------------------------------------------ one step
    def losses(self, dense, with_draft):
        raw, t = self.ids, self.t
        ids = raw & (LEARN - 1)
        doc = (ids == 0).cumsum(1)
        target = F.pad(ids[:, 1:], (0, 1), value=PAD)
        learn = F.pad(raw[:, 1:] >= LEARN, (0, 1), value=False)
        inside = F.pad(doc[:, 1:] == doc[:, :-1], (0, 1), value=False) & (target != PAD)
        weight = torch.where(learn, 1.0, PROMPT_WEIGHT) * inside
        s = self.model.step(ids, doc, blocked=True, dense=dense, loss_rows=self.rows, sinkhorn=self.a.sinkhorn)
        x, taps = self.model(ids, s)
        main, logits = token_loss(x, self.model.head.weight, target, weight)
        blocks = list(self.model.layers)
        index, out = sum(s.index_losses) / len(s.index_losses), {}
        if with_draft:
            k, p = t.dspark_block_size, self.anchors
            at = p.unsqueeze(1) + 1 + torch.arange(k, device=p.device)                                  # teacher rows
            safe = at.clamp(max=ids.shape[1] - 1)
            xh = self.draft.rows(self.model, taps, doc, ids[:, safe[:, 0]], p, self.a.sinkhorn)
            e = self.draft.markov(ids[:, safe], xh.dtype)
            ok = (at < ids.shape[1] - 1) & (doc[:, safe] == doc[:, p].unsqueeze(2))
            w = weight[:, safe] * ok
            d, c, same = draft_loss(self.draft.base_hidden(xh), e, self.model.head.weight,
                                    self.draft.mtp[-1].markov_head.head.weight, logits[:, safe],
                                    self.draft.confidence(xh.detach(), e.detach()), w * self.slots)
            full = (w >= 1).all(-1)                                       # anchors inside an answer
            run = 1 + same.cumprod(-1).sum(-1)
            out = dict(draft=d, confidence=c, accepted=(run * full).sum() / full.sum().clamp_min(1))
            blocks += list(self.draft.mtp)
        balance = sum(b.ffn.balance for b in blocks) / len(blocks)
        total = main + index + 0.01 * balance + out.get("draft", 0) + 0.1 * out.get("confidence", 0)
        zero = torch.zeros((), device=self.device)
        worst = torch.stack([b.ffn.load.max() * b.ffn.load.numel() / b.ffn.topk for b in blocks]).max()
        stats = [main, index, balance, out.get("draft", zero), out.get("confidence", zero), out.get("accepted", zero), worst]
        return total, torch.stack([x.detach() for x in stats]), blocks

    @torch.no_grad()
    def balance(self, blocks):
        for b in blocks:
            g = b.ffn.gate
            g.bias += self.factor * 4e-3 * torch.sign(b.ffn.load.mean() - b.ffn.load)

    def step(self, dense, with_draft):
        active = self.optimisers if with_draft else self.optimisers[:1]
        for p in list(self.model.parameters()) + list(self.draft.parameters()):
            p.grad = None
        total, stats, blocks = self.losses(dense, with_draft)
        total.backward()
        for _, adam in active:
            for group in adam.groups:
                torch.nn.utils.clip_grad_norm_(group[0], 1.0)
        for muon, adam in active:
            muon.step(self.factor)
            adam.step(self.factor)
        self.balance(blocks)
        self.stats[:7].copy_(stats)

    def prepare(self, kinds):
        """Compile and record each kind of step once, with learning rate 0, so that the clock later measures training only."""
        self.factor.zero_()
        for kind in kinds:
            t0 = time.time()
            if self.device != "cuda":
                self.graphs[kind] = lambda kind=kind: self.step(*kind)
                continue
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.step(*kind)
                torch.cuda.synchronize()
                t1 = time.time()
                self.step(*kind)
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            eager = time.time() - t1
            self.graphs[kind] = lambda kind=kind: self.step(*kind)
            if self.a.graph:
                g = torch.cuda.CUDAGraph()
                try:
                    with torch.cuda.graph(g, pool=self.pool):
                        self.step(*kind)
                    self.pool = self.pool or g.pool()                     # the graphs never run at the same time
                    self.graphs[kind] = g.replay
                except RuntimeError as e:
                    print(f"no graph: {e}", flush=True)
            torch.cuda.synchronize()
            t2 = time.time()
            for _ in range(3):
                self.graphs[kind]()
            torch.cuda.synchronize()
            print(f"prepare {kind}: warm-up {t1 - t0:.1f} s, without graph {eager * 1e3:.1f} ms, step {(time.time() - t2) / 3 * 1e3:.1f} ms, "
                  f"memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB", flush=True)
        for pair in self.optimisers:
            for o in pair:
                o.reset()

    # ------------------------------------------------------------------------------------------ the run
    def batches(self):
        """Every part once, as the parts are completed; then all of them, again and again."""
        gen, epoch, files, rows, complete = torch.Generator().manual_seed(self.a.seed), 0, set(), [], False
        while True:
            complete = complete or os.path.exists(f"{self.a.rows}/complete")
            new = set(glob.glob(f"{self.a.rows}/train-*.npy")) - files
            if not complete and len(new) < (1 if files else self.a.first):
                time.sleep(0.1)
                continue
            if new:
                files |= new
                part = torch.from_numpy(np.concatenate([np.load(f) for f in sorted(new)]).astype(np.int32))[:, :self.a.length].to(self.device)
                rows.append(part)
                print(f"{time.time() - BEGIN:.0f} s: {len(files)} parts, {sum(r.numel() for r in rows) / 1e6:.1f} M tokens", flush=True)
            else:
                part, epoch = torch.cat(rows), epoch + 1
            order = torch.randperm(len(part), generator=gen).to(part.device)
            for i in range(0, len(order) - self.a.batch + 1, self.a.batch):
                yield part[order[i:i + self.a.batch]], epoch

    def run(self, seconds, save):
        a, log, step, gen = self.a, [], 0, np.random.default_rng(self.a.seed)
        dense_until = 0 if a.start else DENSE_UNTIL
        kinds = [(True, False)] * (not a.start) + [(False, False), (False, True)]
        self.ids.copy_(next(iter(self.valid.values()))[:a.batch])
        self.prepare(kinds)
        self.before = self.evaluate()
        for pair in self.optimisers:
            for o in pair:
                o.reset()
        data = self.batches()
        next(data)
        start, saved, slower, best = time.time(), 0, 1.0, 20.0
        state = list(self.model.state_dict().values()) + list(self.draft.state_dict().values())
        good, good_at = [x.clone() for x in state], 0
        left = a.deadline - start if a.deadline else seconds - (start - BEGIN)
        share = 0.0
        print(f"training for {left:.0f} s", flush=True)
        while True:
            share = (time.time() - start) / left
            if share >= 1 or (a.steps and step >= a.steps):
                break
            if a.steps:
                share = step / a.steps
            lr = min(1.0, share / 0.01 + 0.02) * min(1.0, max(0.0, (1 - share) / (1 - DECAY_FROM)) + 0.005)
            batch, epoch = next(data)
            self.ids.copy_(batch)
            offset = int(gen.integers(8))
            self.rows.copy_(torch.arange(offset, a.length, 8, device=self.device))
            self.anchors.copy_(self.rows)
            self.factor.fill_(lr * slower)
            self.graphs[(share < dense_until, share >= DRAFT_FROM)]()
            step += 1
            if step % a.log == 0:
                v = self.stats.tolist()
                log.append([round(time.time() - start, 2), step, epoch, round(lr, 4)] + [round(x, 4) for x in v[:7]])
                if step % (5 * a.log) == 0:
                    print(f"{log[-1][0]:6.1f} s step {step} epoch {epoch} lr {lr:.3f} main {v[0]:.4f} index {v[1]:.4f} balance {v[2]:.3f} "
                          f"draft {v[3]:.4f} conf {v[4]:.3f} accepted {v[5]:.3f} load {v[6]:.2f}", flush=True)
                if not v[0] < best + 1.5:                     # diverged (or not a number): back to the last good state
                    slower *= 0.5
                    print(f"diverged at step {step}; back to step {good_at} with {slower} of the learning rate", flush=True)
                    torch._foreach_copy_(state, good)
                    for pair in self.optimisers:
                        for o in pair:
                            o.reset()
                elif step % (20 * a.log) == 0:
                    torch._foreach_copy_(good, state)
                    good_at, best = step, min(best, v[0])
            if share > (0.5, 0.75, 2)[saved]:
                saved += 1
                save(log)
        return log

    def evaluate(self):
        """Means of the statistics over the held-out sequences of each kind, with selection on."""
        self.factor.zero_()
        out = {}
        for kind, rows in self.valid.items():
            got = []
            for i in range(0, len(rows) - self.a.batch + 1, self.a.batch):
                self.ids.copy_(rows[i:i + self.a.batch])
                self.graphs[(False, True)]()                 # learning rate 0: nothing moves
                got.append(self.stats.tolist())
            out[kind] = [round(float(x), 4) for x in np.mean(got, 0)[:7]]
            print(f"held out, {kind}: " + " ".join(f"{n} {x}" for n, x in zip("main index balance draft confidence accepted load".split(), out[kind])), flush=True)
        return out


@torch.no_grad()
def samples(model, folder, device, count=64, length=56):
    """Greedy continuations of openings.txt, all in one batch: rows are padded on the right, which no token sees."""
    layers.COMPILE = False
    tok = Tokenizer.from_file(f"{folder}/tokenizer.json")
    starts = [[0] + tok.encode(x, add_special_tokens=False).ids for x in mix.held_out()[:count]]
    ids = torch.zeros(len(starts), max(map(len, starts)) + length, dtype=torch.int64, device=device)
    for i, x in enumerate(starts):
        ids[i, :len(x)] = torch.tensor(x)
    at = torch.tensor([len(x) for x in starts], device=device)
    rows = torch.arange(len(starts), device=device)
    for k in range(length):
        best = model.run(ids, torch.zeros_like(ids))[0][rows, at - 1].argmax(-1)
        ids[rows, at] = best
        at += 1
    for x, n in zip(ids.tolist(), starts):
        new = x[len(n):len(n) + length]
        new = new[:new.index(1)] if 1 in new else new
        print(tok.decode(n[1:]) + " >>> " + tok.decode(new), flush=True)


BEGIN = time.time()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--data", required=True, help="output of corpus.py prepare")
    ap.add_argument("--rows", required=True, help="output of corpus.py generate; may still be running")
    ap.add_argument("--model", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--start", help="checkpoint to start from")
    ap.add_argument("--seconds", type=float, default=540)
    ap.add_argument("--deadline", type=float, default=0, help="clock time (seconds since 1970) at which training ends, instead of --seconds")
    ap.add_argument("--steps", type=int, default=0, help="stop after so many steps (tests)")
    ap.add_argument("--first", type=int, default=10, help="parts of the corpus to wait for")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--length", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=0.02, help="of Muon")
    ap.add_argument("--sinkhorn", type=int, default=20)
    ap.add_argument("--log", type=int, default=10)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--graph", type=int, default=1)
    ap.add_argument("--compile", type=int, default=1)
    a = ap.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers.COMPILE = bool(a.compile)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    tr = Trainer(a, device)
    n = lambda m: sum(p.numel() for p in m.parameters())
    print(f"{device}: {n(tr.model) / 1e6:.2f} M parameters, draft module {n(tr.draft) / 1e6:.2f} M", flush=True)

    def save(log, valid=None):
        checkpoint.save(a.out, tr.config, tr.model, tr.draft)
        with open(f"{a.out}/log.json", "w") as f:
            json.dump({"columns": "seconds step epoch lr main index balance draft confidence accepted load".split(), "rows": log,
                       "before": tr.before, "valid": valid, "tokens_per_step": a.batch * a.length}, f)
    log = tr.run(a.seconds, save)
    valid = tr.evaluate()
    save(log, valid)
    print(f"done after {time.time() - BEGIN:.0f} s", flush=True)
    samples(tr.model, a.model, device)
    print(f"samples after {time.time() - BEGIN:.0f} s", flush=True)


if __name__ == "__main__":
    main()
