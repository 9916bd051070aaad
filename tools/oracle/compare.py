#!/usr/bin/env python3
"""Compare `hadal logits` with an oracle on the same ids.

    compare.py CHECKPOINT (--ids 5,17,3 | --ids-file F.npy | --random N) [--oracle nemo|transcription]
               [--numerics fp32|bf16|official] [--backend cpu] [--hadal build/hadal] [--bound 1e-4]

Prints the largest |difference| as a part of the largest |logit|, mean and worst KL(oracle || hadal), the share of positions
with the same top token and the first position beyond the bound. Exit status 1 when there is one (`fp32`), so that it can
stand in a script. `nemo` is a published package (oracle.py) and has no `official` rounding; `transcription` is
official_fp64.py.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("checkpoint", type=pathlib.Path)
    group = ap.add_mutually_exclusive_group(required=True)
    group.add_argument("--ids")
    group.add_argument("--ids-file", type=pathlib.Path)
    group.add_argument("--random", type=int, metavar="N", help="N random ids")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--oracle", choices=("nemo", "transcription"), default="nemo")
    ap.add_argument("--numerics", choices=("fp32", "bf16", "official"), default="fp32")
    ap.add_argument("--backend", default="cpu")
    ap.add_argument("--threads", default="2")
    ap.add_argument("--hadal", default="build/hadal")
    ap.add_argument("--bound", type=float, default=1e-4)
    args = ap.parse_args()
    if args.oracle == "nemo" and args.numerics == "official":
        ap.error("nemo does not round the inputs of linears: use --oracle transcription")
    if args.random:
        text = json.loads((args.checkpoint / "config.json").read_text())["text_config"]
        ids = np.random.default_rng(args.seed).integers(3, text["vocab_size"] - 4, args.random)
    elif args.ids_file:
        ids = np.load(args.ids_file).reshape(-1)
    else:
        ids = np.array([int(i) for i in args.ids.replace(",", " ").split()])

    with tempfile.TemporaryDirectory() as folder:
        prompt, want, got = (str(pathlib.Path(folder) / n) for n in ("ids.npy", "oracle.npy", "hadal.npy"))
        np.save(prompt, ids.astype(np.int32))
        script = ["oracle.py", "--dtype", "float32" if args.numerics == "fp32" else "bfloat16"]
        if args.oracle == "transcription":
            script = ["official_fp64.py", "--numerics", args.numerics]
        subprocess.run([sys.executable, str(FOLDER / script[0]), str(args.checkpoint), "--ids-file", prompt, "--out", want,
                        *script[1:]], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([args.hadal, "logits", str(args.checkpoint), "--ids-file", prompt, "--out", got, "--all", "--prefill",
                        "full", "--numerics", args.numerics, "--backend", args.backend, "--threads", args.threads],
                       check=True, stdout=subprocess.DEVNULL)
        a, b = np.load(want), np.load(got)
    if a.shape != b.shape:
        sys.exit(f"shapes differ: oracle {a.shape}, hadal {b.shape}")
    error = np.abs(a - b).max(1) / np.abs(a).max()
    p, q = log_softmax(a), log_softmax(b)
    kl = (np.exp(p) * (p - q)).sum(-1)
    bad = np.flatnonzero(~(error <= args.bound))
    print(f"{args.checkpoint} {args.oracle} {args.numerics} {args.backend}: {len(ids)} positions, "
          f"max relative difference {error.max():.3e}, mean KL {kl.mean():.3e}, worst KL {kl.max():.3e}, "
          f"same top token {np.mean(a.argmax(1) == b.argmax(1)):.4f}, first differing position "
          f"{bad[0] if len(bad) else 'none'}, {len(bad)} beyond {args.bound:g}")
    sys.exit(1 if len(bad) and args.numerics == "fp32" else 0)


if __name__ == "__main__":
    main()
