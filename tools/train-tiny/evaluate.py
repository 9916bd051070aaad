#!/usr/bin/env python3
"""Evaluate an exported checkpoint: float32, weights dequantised from the files, cache rounding on.

    evaluate.py reference --model models/hadal-tiny --data DATA    held-out perplexity and reference data -> MODEL/eval
    evaluate.py talk --model models/hadal-tiny [--prompts FILE]    greedy answers, drafted and verified; tokens per step
    evaluate.py curve --log log.json --model models/hadal-tiny     loss curves -> MODEL/eval/loss.png

Greedy answers come from the drafting loop itself: one forward pass of the backbone checks five drafts, so the mean number of
tokens per pass is measured on the text that it writes.
"""
import argparse
import json
import math
import os
import random
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import chat
import checkpoint
import mix
from config import load_config
from dspark import DSpark
from model import Model

EOS = 1


def open_model(folder):
    t = load_config(folder)
    model, draft = Model(t, np.load(f"{folder}/engram_token_map.npy")), DSpark(t)
    checkpoint.load(folder, model, draft)
    return model, draft, Tokenizer.from_file(f"{folder}/tokenizer.json")


@torch.no_grad()
def nll(model, ids):
    """Negative log likelihoods of ids[1:]."""
    logits, _ = model.run(torch.tensor([ids]))
    return F.cross_entropy(logits[0, :-1], torch.tensor(ids[1:]), reduction="none").double()


@torch.no_grad()
def generate(model, draft, ids, limit):
    """Greedy continuation by drafting. Returns new ids, verification passes, tokens of each pass."""
    out, passes = list(ids), []
    logits, taps = model.run(torch.tensor([out]))
    out.append(int(logits[0, -1].argmax()))
    while out[-1] != EOS and len(out) - len(ids) < limit:
        p = len(out) - 2                                       # taps cover 0..p, the token of p+1 is known
        drafts, _, _ = draft.draft(model, taps, out[-1], p)
        logits, new_taps = model.run(torch.tensor([out + drafts]))
        best = logits[0, p + 1:].argmax(-1).tolist()           # what the backbone says after p+1, p+2, ...
        n = 0
        while n < len(drafts) and drafts[n] == best[n] and best[n] != EOS:
            n += 1
        out += best[:n + 1]
        passes.append(n + 1)
        taps = new_taps[:, :len(out) - 1]
    new = out[len(ids):]
    if EOS in new:
        new = new[:new.index(EOS) + 1]
    return new, passes


def write_floats(path, tensors):
    """float32 and int32 arrays as safetensors"""
    head, pos, body = {}, 0, []
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        head[name] = {"dtype": {"float32": "F32", "int32": "I32"}[str(x.dtype)], "shape": list(x.shape), "data_offsets": [pos, pos + len(raw)]}
        pos, _ = pos + len(raw), body.append(raw)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(body))


def reference(a):
    model, draft, tok = open_model(a.model)
    folder = f"{a.model}/eval"
    os.makedirs(folder, exist_ok=True)
    with open(f"{a.data}/held.json", encoding="utf-8") as f:
        held = json.load(f)
    count = {k: max(1, round(a.documents * x)) for k, x in dict(chat=0.25, everyday=0.5, story=0.09, recall=0.08, wordnet=0.08).items()}
    kinds = {k: ["".join(p[0] for p in d) for d in held[k][-n:]] for k, n in count.items()}
    docs, kind_of = [d for k in kinds.values() for d in k], [k for k, ds in kinds.items() for _ in ds]
    text = "".join(docs)
    with open(f"{folder}/heldout.txt", "w", encoding="utf-8", newline="\n") as f:
        f.write(text)
    ids = tok.encode(text, add_special_tokens=False).ids
    starts = [i for i, x in enumerate(ids) if x == 0] + [len(ids)]
    out = {"precision": "float32, weights dequantised, cache rounding on, inputs of linears not rounded",
           "file": "heldout.txt", "ids": len(ids), "documents": len(starts) - 1}
    parts, per_doc, t0 = {}, [], time.time()
    for i, (b, e) in enumerate(zip(starts, starts[1:])):
        per_doc.append(nll(model, ids[b:e]))
        if i % 20 == 0:
            print(f"document {i}, {time.time() - t0:.0f} s", flush=True)
        parts.setdefault(kind_of[i], []).append(per_doc[-1])
    ppl = lambda xs: math.exp(float(torch.cat(xs).mean()))
    out["by_document"] = {
        "how": "the file is split at every BOS id (0); each document is run on its own from position 0, and all its ids after BOS count",
        "tokens": sum(len(x) for x in per_doc), "perplexity": ppl(per_doc),
        **{k: {"documents": len(xs), "tokens": sum(len(x) for x in xs), "perplexity": ppl(xs)} for k, xs in parts.items()},
        "nll_of_each_document": [round(float(x.sum()), 4) for x in per_doc]}
    w = 512
    windows = [nll(model, ids[i:i + w]) for i in range(0, len(ids) - 1, w) if len(ids[i:i + w]) > 1]
    out["by_window"] = {"how": f"the ids of the whole file are cut into windows of {w}; each is run on its own from position 0, and all its ids but the first count",
                        "window": w, "tokens": sum(len(x) for x in windows), "perplexity": ppl(windows)}
    print(json.dumps({k: (v if not isinstance(v, dict) else {x: y for x, y in v.items() if x != "nll_of_each_document"}) for k, v in out.items()}, indent=1), f"{time.time() - t0:.0f} s", flush=True)
    prompts, out["prompts"] = default_prompts()[:8], []
    for name, pieces in prompts:
        p = tok.encode("".join(x[0] for x in pieces), add_special_tokens=False).ids
        new, passes = generate(model, draft, p, 96)
        out["prompts"].append({"name": name, "ids": p, "greedy": new, "tokens_per_pass": passes})
        print(name, sum(passes) / max(1, len(passes)), repr(tok.decode(new, skip_special_tokens=False)), flush=True)
    tensors = {}
    for i in (0, 3):                                             # a chat answer and a tool call: logits of the last 3 positions
        p = out["prompts"][i]
        logits, taps = model.run(torch.tensor([p["ids"]]))
        tensors[f"p{i}.ids"] = np.array(p["ids"], np.int32)
        tensors[f"p{i}.logits_last2"] = logits[0, -2:].numpy().astype(np.float32)
        ids5, dl, conf = draft.draft(model, taps[:, :-1], p["ids"][-1], len(p["ids"]) - 2)
        tensors[f"p{i}.draft_ids"] = np.array(ids5, np.int32)
        tensors[f"p{i}.draft_logits_first"] = dl[0].numpy().astype(np.float32)
        tensors[f"p{i}.draft_confidence"] = conf.numpy().astype(np.float32)
    write_floats(f"{folder}/logits.safetensors", tensors)
    with open(f"{folder}/reference.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=None, separators=(",", ":"))


def default_prompts():
    import calls
    u = lambda *xs, **k: chat.render([dict(role="user" if i % 2 == 0 else "assistant", content=x) for i, x in enumerate(xs)], **k)
    r = random.Random(7)
    weather, timer, mail = calls.weather(r)[0], calls.timer(r)[0], calls.mail(r)[0]
    system = lambda s, x, **k: chat.render([dict(role="system", content=s), dict(role="user", content=x)], **k)
    return [
        ("capital", u("What is the capital of Norway?")),
        ("story", u("Tell me a story about a fox and an owl.")),
        ("sum, thinking", u("What is 47 + 38?", thinking=True)),
        ("tool call", u("What is the weather in Lisbon?", tools=[weather, timer])),
        ("tool call, thinking", u("Set a timer for 12 minutes.", thinking=True, tools=[weather, timer, mail])),
        ("continuation", [(chat.BOS + "Once upon a time, there was a little rabbit named", False)]),
        ("memory", u("My name is Omar.", "Nice to meet you, Omar!", "What is 6 times 7?", "42", "What is my name?")),
        ("unknown", u("What is my phone number?")),
        ("word problem, thinking", u("Anna has 12 apples. Ben gives her 7 more. How many apples does Anna have now?", thinking=True, effort=100)),
        ("low effort", u("What is the opposite of hot?", thinking=True, effort=10)),
        ("who", u("Who are you?")),
        ("persona", system("Answer in capital letters.", "What does a cow eat?")),
        ("reading", u("Tom has a red ball. Nina has a green kite. Paul has a blue hat.\n\nWho has the green kite?")),
        ("off the grammar", u("Can dogs swim?")),
        ("off the grammar 2", u("Please help me, I am bored on this rainy Sunday.")),
        ("off the grammar 3", u("Write a poem about the sea.")),
        ("list", u("Name five animals. One per line.")),
        ("json", u("Give me name and age as JSON: My name is Lea. I am 31 years old.")),
        ("message tool", u("Tell Kate: The train is late", tools=[mail, timer])),
        ("no tool needed", u("What is a baby cat called?", tools=[weather])),
        ("story, words", u("Write a story with the words \"lamp\", \"bridge\" and \"bear\".")),
        ("division", u("What is 56 divided by 8?")),
        ("multiplication, thinking", u("What is 23 times 4?", thinking=True)),
        ("definition", [(chat.BOS + "harbor:", False)]),
    ]


def talk(a):
    model, draft, tok = open_model(a.model)
    prompts = default_prompts()
    rng = random.Random(a.seed)
    for i in range(a.random):                                    # prompts of the grammar that were not trained on
        pieces = mix.conversation(rng)
        last = max(k for k, p in enumerate(pieces) if p[1])
        prompts.append((f"grammar {i}", pieces[:last]))
    steps, tokens, t0 = 0, 0, time.time()
    per = []
    for name, pieces in prompts:
        text = "".join(p[0] for p in pieces)
        new, passes = generate(model, draft, tok.encode(text, add_special_tokens=False).ids, a.limit)
        said = tok.decode(new, skip_special_tokens=False)
        steps, tokens = steps + len(passes), tokens + sum(passes)
        per.append(sum(passes) / max(1, len(passes)))
        shown = text[text.rfind(chat.USER):] if chat.USER in text else text
        print(f"--- {name} ({per[-1]:.2f} tokens per pass)\n{shown}\n>>> {said}", flush=True)
    print(f"=== {tokens} tokens in {steps} passes: {tokens / steps:.3f} tokens per pass (drafts and bonus), {time.time() - t0:.0f} s")


def curve(a):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    with open(a.log) as f:
        log = json.load(f)
    c = {n: np.array([r[i] for r in log["rows"]]) for i, n in enumerate(log["columns"])}
    smooth = lambda y: np.convolve(np.pad(y, (10, 10), "edge"), np.ones(21) / 21, "valid")
    x = c["step"] * log["tokens_per_step"] / 1e6
    fig, ax = plt.subplots(1, 3, figsize=(9, 2.6), dpi=80)
    ax[0].plot(x, c["main"], lw=.3, alpha=.5)
    ax[0].plot(x, smooth(c["main"]))
    ax[0].set_ylim(0.3, 2.5)
    ax[0].set_title("loss")
    on = c["draft"] > 0
    ax[1].plot(x[on], smooth(c["draft"][on]), label="draft")
    ax[1].plot(x, 10 * smooth(c["index"]), label="indexer x10")
    ax[1].set_ylim(0, 3)
    ax[1].legend(fontsize=7)
    ax[1].set_title("draft and indexer loss")
    ax[2].plot(x[on], smooth(c["accepted"][on]))
    ax[2].set_title("tokens per step (teacher forced)")
    for q in ax:
        q.set_xlabel("million tokens", fontsize=8)
        q.tick_params(labelsize=7)
    fig.tight_layout()
    fig.savefig(f"{a.model}/eval/loss.png")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = ap.add_subparsers(required=True)
    r = sub.add_parser("reference")
    r.add_argument("--data", required=True)
    r.add_argument("--documents", type=int, default=130)
    r.set_defaults(run=reference)
    t = sub.add_parser("talk")
    t.add_argument("--random", type=int, default=40)
    t.add_argument("--seed", type=int, default=77)
    t.add_argument("--limit", type=int, default=160)
    t.set_defaults(run=talk)
    c = sub.add_parser("curve")
    c.add_argument("--log", required=True)
    c.set_defaults(run=curve)
    for p in (r, t, c):
        p.add_argument("--model", default="models/hadal-tiny")
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)                                     # the matrices are too small for more
    a.run(a)


if __name__ == "__main__":
    main()
