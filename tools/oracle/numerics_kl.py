#!/usr/bin/env python3
"""KL divergence of the next token's distribution in a numeric mode from that in fp32, over the held-out text of a model in windows.

    numerics_kl.py --hadal build/release/hadal [--model models/hadal-tiny] [--window 512] [--modes bf16,official,fp8]

Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np


def log_probabilities(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hadal", required=True)
    parser.add_argument("--model", default="models/hadal-tiny")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--modes", default="bf16,official,fp8")
    o = parser.parse_args()
    modes = o.modes.split(",")

    def hadal(*arguments):
        return subprocess.run([o.hadal, *arguments], check=True, capture_output=True, text=True).stdout

    text = str(pathlib.Path(o.model) / "eval/heldout.txt")
    ids = [t["id"] if isinstance(t, dict) else t
           for t in (lambda j: j.get("ids") or j["tokens"])(json.loads(hadal("tokenize", o.model, "--file", text, "--special", "--json")))]
    divergence = {mode: [] for mode in modes}
    same = dict.fromkeys(modes, 0)
    with tempfile.TemporaryDirectory() as folder:
        def run(mode, window):
            hadal("logits", o.model, "--ids", ",".join(map(str, window)), "--all", "--prefill", "full", "--numerics", mode, "--out", folder + "/x.npy")
            return log_probabilities(np.load(folder + "/x.npy"))

        for begin in range(0, len(ids) - o.window, o.window):
            window = ids[begin:begin + o.window]
            want = run("fp32", window)
            for mode in modes:
                have = run(mode, window)
                divergence[mode].append((np.exp(want) * (want - have)).sum(-1))
                same[mode] += int((want.argmax(-1) == have.argmax(-1)).sum())
    for mode in modes:
        d = np.concatenate(divergence[mode])
        print(f"{mode}: mean {d.mean():.2e}, largest {d.max():.2f}, same most likely token {100 * same[mode] / len(d):.1f}% of {len(d)}")


if __name__ == "__main__":
    main()
