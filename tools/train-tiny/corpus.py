#!/usr/bin/env python3
"""Build the training data.

    corpus.py prepare --text DIR --out DATA [--model models/hadal-tiny] [--fresh]
        held-out documents by kind and encoded external text; --fresh: also a new tokenizer and config.json. DIR holds the
        unpacked Debian package wordnet-base (see README.md).
    corpus.py generate --data DATA --out ROWS [--tokens 100e6] [--parts 36] [--workers 12]
        the training sequences: external text and generated text, packed. 10 M tokens take a core about 100 s, so this
        runs on the training machine while the training step is compiled and the first parts are trained on.

Sequences are uint16; bit 15 marks tokens that the model itself would write (full loss weight).
"""
import argparse
import json
import lzma
import multiprocessing
import os
import random
import re
import time

import numpy as np
from tokenizers import Tokenizer

import mix
import tokenizer
from chat import document
from config import tiny_config

LENGTH, PAD_ID, LEARN = 1024, 2, 1 << 15


def wordnet(folder):
    """Documents of a few glosses each: "word: meaning. Example." """
    out = []
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"{folder}/usr/share/wordnet/data.{part}", encoding="latin-1") as f:
            for line in f:
                if line.startswith("  "):
                    continue
                words = line.split(" | ")[0].split()
                gloss = line.split(" | ", 1)[1].strip()
                name = words[4].replace("_", " ").split("(")[0]
                m = re.split(r'; "', gloss)
                text = f"{name}: {m[0].strip().rstrip(';')}."
                for e in m[1:2]:
                    text += f' Example: "{e.rstrip(chr(34)).rstrip()}"'
                if name.isascii() and text.isascii():
                    out.append(text)
    rng = random.Random(1)
    rng.shuffle(out)
    return ["\n".join(out[i:i + 6]) for i in range(0, len(out), 6)]


SENTENCE = re.compile(r"(I|you|he|she|it|we|they|the|his|her|my|our|their|there|this|these|don't|do|please|everybody|nobody|when|if) ")


def examples(folder):
    """Example sentences of WordNet that begin like sentences, two in a document."""
    out = []
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"{folder}/usr/share/wordnet/data.{part}", encoding="latin-1") as f:
            for line in f:
                if not line.startswith("  "):
                    for e in re.findall(r'; "([^"]+)"', line.split(" | ", 1)[1]):
                        e = e.strip().rstrip(".;,")
                        if SENTENCE.match(e) and e.isascii() and 4 <= len(e.split()) <= 25 and "`" not in e:
                            out.append(e[0].upper() + e[1:] + ("" if e[-1] in "!?" else "."))
    random.Random(2).shuffle(out)
    return out


def pack(docs, rng):
    """docs: uint16 arrays. First fit into a few open sequences; documents start at even positions (pairs of the ratio-2
    compressor then never span two documents)."""
    rows, open_rows = [], []
    for d in docs:
        if len(d) % 2:
            d = np.append(d, np.uint16(PAD_ID))
        if len(d) > LENGTH:
            d = d[:LENGTH]
        fits = [r for r in open_rows if r[0] + len(d) <= LENGTH]
        if fits:
            r = max(fits, key=lambda r: r[0])
        else:
            if len(open_rows) >= 64:
                full = max(open_rows, key=lambda r: r[0])
                open_rows.remove(full)
                rows.append(full[1])
            r = [0, []]
            open_rows.append(r)
        r[0] += len(d)
        r[1].append(d)
    rows += [r[1] for r in open_rows]
    out = np.full((len(rows), LENGTH), PAD_ID, np.uint16)
    for i, r in enumerate(rows):
        c = np.concatenate(r)
        out[i, :len(c)] = c
    return out[rng.permutation(len(out))]


def encode(tok, docs):
    """docs: lists of pieces -> uint16 arrays with the learn bit."""
    flat = [p for d in docs for p in d]
    ids = tok.encode_batch_fast([p[0] for p in flat], add_special_tokens=False)
    out, k = [], 0
    for d in docs:
        parts = []
        for _, learn in d:
            parts.append(np.array(ids[k].ids, np.uint16) | (LEARN if learn else 0))
            k += 1
        out.append(np.concatenate(parts).astype(np.uint16))
    return out


def write(path, array):
    with lzma.open(path, "wb", preset=2) as f:
        np.save(f, array)


def prepare(a):
    """Held-out documents by kind, the encoded external text, and with --fresh tokenizer and config.json."""
    os.makedirs(a.out, exist_ok=True)
    os.makedirs(a.model, exist_ok=True)
    words, lines = wordnet(a.text), examples(a.text)
    print(f"wordnet {len(words)} documents, {len(lines)} example sentences")
    if a.fresh:
        rng = random.Random(0)
        sample = ["".join(p[0] for p in mix.generated(rng)) for _ in range(20000)] + rng.sample(words, 6000)
        compressed = tokenizer.save(tokenizer.train(sample, a.vocab), a.model)
        tok = Tokenizer.from_file(f"{a.model}/tokenizer.json")
        config = tiny_config(a.vocab, compressed, tok.token_to_id("<｜System｜>"), tok.token_to_id("<｜deepseek_image｜>"))
        with open(f"{a.model}/config.json", "w") as f:
            json.dump(config, f, indent=1)
    tok = Tokenizer.from_file(f"{a.model}/tokenizer.json")
    rng, held = random.Random(10 ** 6), {}
    for kind, n in dict(everyday=1100, chat=400, story=400, recall=500).items():
        held[kind] = [mix.generated(rng, kind) for _ in range(n)]
    held["wordnet"] = [document(t) for t in words[:150]] + [document(t) for t in lines[:150]]
    for kind, docs in held.items():
        rows = pack(encode(tok, docs), np.random.default_rng(5))
        print(f"held out: {kind} {len(docs)} documents, {len(rows)} sequences")
        write(f"{a.out}/valid-{kind}.npy.xz", rows)
    with open(f"{a.out}/held.json", "w", encoding="utf-8") as f:
        json.dump(held, f, ensure_ascii=False)
    external = encode(tok, [document(t) for t in words[150:] + lines[150:] + lines[150:]])
    print(f"external text: {sum(map(len, external)) / 1e6:.2f} M tokens")
    write(f"{a.out}/external.npy.xz", np.concatenate(external))


def generate_part(job):
    a, part = job
    tok = Tokenizer.from_file(f"{a.model}/tokenizer.json")
    with lzma.open(f"{a.data}/external.npy.xz") as f:
        flat = np.load(f)
    starts = np.flatnonzero(flat == 0)
    arrays = np.split(flat, starts[1:])[part::a.parts]
    rng, done, limit = random.Random(f"{a.seed}/{part}"), sum(map(len, arrays)), a.tokens / a.parts
    while done < limit:
        more = encode(tok, [mix.generated(rng) for _ in range(2000)])
        arrays += more
        done += sum(map(len, more))
    rng.shuffle(arrays)
    rows = pack(arrays, np.random.default_rng(part))
    np.save(f"{a.out}/part-{part:03d}.tmp.npy", rows)
    os.rename(f"{a.out}/part-{part:03d}.tmp.npy", f"{a.out}/train-{part:03d}.npy")
    return rows.size, int((rows == PAD_ID).sum()), int((rows >= LEARN).sum())


def generate(a):
    os.makedirs(a.out, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    t0 = time.time()
    with multiprocessing.get_context("spawn").Pool(a.workers or a.parts) as pool:
        sizes = np.sum(pool.map(generate_part, [(a, k) for k in range(a.parts)], chunksize=1), 0)
    print(f"corpus: {sizes[0] / 1e6:.1f} M tokens, padding {sizes[1] / sizes[0]:.3f}, written by the model {sizes[2] / sizes[0]:.3f}, "
          f"{time.time() - t0:.0f} s", flush=True)
    open(f"{a.out}/complete", "w").close()


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = ap.add_subparsers(required=True)
    p = sub.add_parser("prepare")
    p.add_argument("--text", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--vocab", type=int, default=8192)
    p.add_argument("--fresh", action="store_true", help="learn a new tokenizer (the weights then start from nothing)")
    p.set_defaults(run=prepare)
    g = sub.add_parser("generate")
    g.add_argument("--data", required=True)
    g.add_argument("--out", required=True)
    g.add_argument("--tokens", type=float, default=100e6)
    g.add_argument("--parts", type=int, default=36)
    g.add_argument("--workers", type=int, default=12, help="processes; training begins when the first parts are there")
    g.add_argument("--seed", type=int, default=1)
    g.set_defaults(run=generate)
    for x in (p, g):
        x.add_argument("--model", default="models/hadal-tiny")
    a = ap.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
