#!/usr/bin/env python3
"""Compare this model with logits of independent implementations on tiny random checkpoints.

    check_goldens.py FOLDER...      folders with config.json, model-*.safetensors, logits.safetensors, dspark.safetensors

float32, cache rounding on, inputs of linears not rounded. Passes if every prompt of at most 40 tokens agrees to 1e-4 of
its largest logit, 95% of the positions of the longest prompt to 1e-3, and the drafts to 1e-3 with equal ids.
"""
import sys

import numpy as np
import torch

from checkpoint import load, read_safetensors
from config import load_config
from dspark import DSpark
from model import Model


def check(folder):
    t = load_config(folder)
    model, draft = Model(t, np.load(f"{folder}/engram_token_map.npy")), DSpark(t)
    load(folder, model, draft)
    want, bad, taps = read_safetensors(f"{folder}/logits.safetensors"), 0, {}
    prompts = sorted((k[:-4] for k in want if k.endswith(".ids")), key=lambda s: int(s[1:]))
    for n in prompts:
        ids = want[n + ".ids"].long()[None]
        logits, taps[n] = model.run(ids)
        ref = want.get(n + ".logits_fp32", want[prompts[-1] + ".logits_fp32"])[:ids.shape[1]]
        err = (logits[0] - ref).abs().amax(-1) / ref.abs().max()
        short = ids.shape[1] <= 40
        ok = err.max() < 1e-4 if short else (err < 1e-3).float().mean() >= 0.95
        bad += not ok
        print(f"{folder} {n:5} max {err.max():.1e}  within 1e-3: {(err < 1e-3).float().mean():.3f}  {'ok' if ok else 'BAD'}")
    d = read_safetensors(f"{folder}/dspark.safetensors")
    for key in sorted(k[:-len(".anchor")] for k in d if k.endswith(".anchor")):
        n, p = key.split(".")
        p = int(p[1:])
        hidden = taps[n][0, :p + 1]
        w = d[key + ".main_hidden"].shape[0]
        e0 = (hidden[-w:] - d[key + ".main_hidden"]).abs().max() / hidden.abs().max()
        ids, logits, conf = draft.draft(model, hidden[None], int(d[key + ".anchor"]), p)
        ref = d[key + ".quant.draft_logits"]
        err, same = (logits - ref).abs().max() / ref.abs().max(), ids == d[key + ".quant.draft_ids"].tolist()
        ec = (conf - d[key + ".quant.confidence"].flatten()).abs().max()
        ok = err < 1e-3 and same and ec < 1e-3
        bad += not ok
        print(f"{folder} {key:9} draft {err:.1e} confidence {ec:.1e} main_hidden {e0:.1e} same ids {same}  {'ok' if ok else 'BAD'}")
    return bad


if __name__ == "__main__":
    torch.manual_seed(0)
    sys.exit(1 if sum(check(f) for f in sys.argv[1:]) else 0)
