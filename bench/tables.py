#!/usr/bin/env python3
"""Writes the tables of whole steps on one H200 from bench/results into docs/performance.md and README.md.

usage: bench/tables.py [--check]     (--check: changes nothing, fails when a table is not that of the records)

A table stands between the lines `<!-- NAME (bench/tables.py) -->` and `<!-- end -->`.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGES = ("sparse attention", "indexer, top-k", "compressor", "experts", "dense projections", "router",
          "hyper-connections", "Engram", "head", "other")
MODES = ("full", "exact", "bounded")
NUMERICS = ("bf16", "fp8")
BATCHES = (1, 32, 128)
CONTEXTS = (8, 32, 128)


def record(name, numerics):
    suffix = "" if numerics == "bf16" else "-" + numerics
    return json.loads((ROOT / f"bench/results/h200-{name}{suffix}.json").read_text())


def prefill(mode, numerics):
    return record(f"prefill-{mode}", numerics)


def decode(batch, context, numerics):
    return record(f"decode-b{batch}-{context}k", numerics)


def speed(result):
    rate = result["tokens_per_s_per_gpu"]
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.1f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def prefill_stages():
    columns = [(mode, numerics) for mode in MODES for numerics in NUMERICS]
    results = [prefill(*column) for column in columns]
    rows = [["**tokens/s/GPU**"] + [f"**{speed(r)}**" for r in results],
            ["step, median (min to max)"] + ["{median:.1f} ({min:.1f} to {max:.1f})".format(**r["step_ms"]) for r in results]]
    for stage in STAGES:
        parts = [r["stages"][stage] for r in results]
        rows.append([stage] + [f"{p['ms']:.2f} / {p['floor_ms']:.2f} ({p['share']:.0%})" for p in parts])
    rows.append(["between operators"] + [f"{r['stages']['gaps']['ms']:.2f}" for r in results])
    return table(["stage"] + [", ".join(column) for column in columns], rows)


def decode_speed():
    head = ["requests"] + [f"{numerics}: {context * 1024:,} tokens each" for numerics in NUMERICS for context in CONTEXTS]
    rows = [[str(batch)] + [f"{speed(r)} ({r['step_ms']['median']:.2f})" for numerics in NUMERICS for context in CONTEXTS
                            for r in [decode(batch, context, numerics)]] for batch in BATCHES]
    return table(head, rows)


def decode_stages():
    columns = [(batch, context, numerics) for batch, context in ((1, 8), (32, 8), (128, 8), (128, 128)) for numerics in NUMERICS]
    results = [decode(*column) for column in columns]
    rows = [[stage] + [f"{r['stages'][stage]['ms']:.2f} / {r['stages'][stage]['floor_ms']:.2f}" for r in results] for stage in STAGES]
    rows.append(["between operators"] + [f"{r['stages']['gaps']['ms']:.2f}" for r in results])
    return table(["stage"] + [f"{batch} x {context}k, {numerics}" for batch, context, numerics in columns], rows)


def summary():
    names = ("every layer for every token (`full`)", "`exact`: the same logits and state", "`bounded`")
    rows = []
    for name, mode, batch in zip(names, MODES, BATCHES):
        rows.append([name] + [f"{prefill(mode, n)['tokens_per_s_per_gpu']:,.0f}" for n in NUMERICS]
                    + [f"{batch} request" + ("s" if batch > 1 else "")]
                    + [f"{decode(batch, 8, n)['tokens_per_s_per_gpu']:,.0f}" for n in NUMERICS])
    shown = [prefill(mode, n) for mode in MODES for n in NUMERICS] + [decode(batch, 8, n) for batch in BATCHES for n in NUMERICS]
    *others, last = sorted({r["commit"] for r in shown})
    commits = f"commits {', '.join(others)} and {last}" if others else f"commit {last}"
    return table(["prefill, 4,096 tokens after 126,976", "bf16", "fp8", "decode, 8,192 tokens of context", "bf16", "fp8"], rows) \
        + f"\nMeasured at {commits}.\n"


# tokens/s/GPU that were to be reached, and at most this share less at 131,072 tokens of context than at 8,192.
GOALS = (("prefill-full", "bf16", 12000), ("prefill-full", "fp8", 20000), ("prefill-exact", "fp8", 28000),
         ("prefill-bounded", "fp8", 36200), ("decode-b1-8k", "fp8", 130), ("decode-b32-8k", "fp8", 1300),
         ("decode-b128-8k", "fp8", 4200))
LOSS = 0.07


def goals():
    rows = [[f"`{name}`, {numerics}", f"{goal:,}", speed(r), f"{r['tokens_per_s_per_gpu'] / goal:.2%}"]
            for name, numerics, goal in GOALS for r in [record(name, numerics)]]
    loss = [1 - decode(b, 128, "fp8")["tokens_per_s_per_gpu"] / decode(b, 8, "fp8")["tokens_per_s_per_gpu"] for b in BATCHES]
    rows.append(["decode at 131,072 tokens, less than at 8,192, fp8", f"at most {LOSS:.0%}", ", ".join(f"{x:.1%}" for x in loss), ""])
    return table(["record", "goal", "reached", "of the goal"], rows)


TABLES = {"goals": goals, "prefill by stage": prefill_stages, "decode": decode_speed, "decode by stage": decode_stages, "summary": summary}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    found = set()
    for file in (ROOT / "docs/performance.md", ROOT / "README.md"):
        text = file.read_text()

        def fill(match):
            found.add(match[2])
            return f"{match[1]}\n{TABLES[match[2]]()}{match[3]}"

        new = re.sub(r"(<!-- ([a-z ]+) \(bench/tables\.py\) -->)\n.*?(<!-- end -->)", fill, text, flags=re.DOTALL)
        if new != text and check:
            sys.exit(f"{file.relative_to(ROOT)}: a table is not that of bench/results; bench/tables.py writes it")
        if new != text:
            file.write_text(new)
            print(file.relative_to(ROOT))
    if found != set(TABLES):
        sys.exit(f"no place for the tables {sorted(set(TABLES) - found)}")


if __name__ == "__main__":
    main()
