#!/usr/bin/env python3
"""Hadal beside llama.cpp and ftllm on a CPU: the programs in turns, tokens a second times multiply-adds or bytes of a
token.

usage: compare.py --hadal BINARY --checkpoint FOLDER [--llama-bench BINARY --gguf FILE] [--ftllm BINARY]
       (needs gguf from PyPI)

FOLDER is what `hadal synth configs/v41-mini.json` wrote, FILE what make_gguf.py made of the same configuration:
random weights of the same sizes, not the same model, so what is compared is work a second. Counted are the multiply-
adds that a token needs and the bytes of the weights that a decoded token reads, from the tensors of either file;
what a program does beyond that is its own affair. Not counted for Hadal, though in its time: the conditioning of the
draft module (main_proj, wkv of the draft stages), which llama.cpp's model lacks. Engram rows and token embeddings
are looked up, no multiply-adds.
"""
import argparse
import json
import math
import pathlib
import re
import shlex
import statistics
import struct
import subprocess
import sys
from collections import defaultdict

ITEM_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}


class Work:
    """What one token takes, by part of the model: multiply-adds and bytes of weights."""

    def __init__(self):
        self.macs, self.bytes = defaultdict(float), defaultdict(float)
        self.keys = []  # a layer: position -> (multiply-adds a key, keys) of attention, then of index scores

    def add(self, part, macs, size):
        self.macs[part] += macs
        self.bytes[part] += size

    def count(self, parts, name, macs, size):
        """Adds a tensor to the first of `parts` whose pattern its name has: (pattern, part, share of its multiply-adds
        and of its bytes that a token takes). Without a part it is not counted."""
        part, mac_share, byte_share = next(p[1:] for p in parts if re.search(p[0], name))
        if part:
            self.add(part, mac_share * macs, byte_share * size)

    def attention(self, position):
        return sum(macs * count(position) for macs, count in self.keys)

    def prefill(self, tokens):
        """Multiply-adds a token of a prompt whose last row alone gives logits."""
        macs = dict(self.macs)
        macs["head"] /= tokens
        macs["attention"] = sum(self.attention(p) for p in range(tokens)) / tokens
        return macs


def hadal_work(folder):
    config = json.loads((folder / "config.json").read_text())
    c = config.get("text_config", config)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as f:
            tensors.update(json.loads(f.read(struct.unpack("<Q", f.read(8))[0])))
    tensors.pop("__metadata__", None)
    w = Work()
    share = c["num_experts_per_tok"] / c["n_routed_experts"]
    parts = [(r"^embed\.weight$", None, 0, 0), (r"engram\.embed", "Engram", 0, 1), (r"\.engram\..*wkv", "Engram", 1, 1),
             (r"\.engram\.", "Engram", 0, 1), (r"\.ffn\.experts\.", "experts", share, share),
             (r"\.ffn\.shared", "shared expert", 1, 1), (r"\.ffn\.gate", "router", 1, 1),
             (r"hc_", "hyper-connections", 1, 1), (r"\.compressor\.|\.indexer\.", "compressor, indexer", 1, 1),
             (r"^head\.weight$", "head", 1, 1), (r"", "projections", 1, 1)]
    for name, tensor in tensors.items():
        if name.startswith("mtp."):
            continue
        shape = tensor["shape"]
        elements = math.prod(shape)
        size = elements * ITEM_BYTES[tensor["dtype"]]
        macs = elements if len(shape) == 2 and name.endswith((".weight", "_fn")) else 0
        if tensor["dtype"] == "I8":
            macs *= 2  # two e2m1 codes a byte
        if "engram.embed" in name:  # the rows that are looked up
            size *= (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] / shape[0]
        if ".indexer.wk" in name:  # of every compressed row
            ratio = c["compress_ratios"][int(name.split(".")[1])]
            macs, size = macs / ratio, size / ratio
        w.count(parts, name, macs, size)
    window, top_k = c["sliding_window"], c["index_topk"]
    per_key = 2 * c["num_attention_heads"] * c["head_dim"]
    for layer in range(c["num_hidden_layers"]):
        ratio = c["compress_ratios"][layer]
        w.keys.append((per_key, lambda p: min(p + 1, window)))
        if ratio:
            w.keys.append((per_key, lambda p, ratio=ratio: min((p + 1) // ratio, top_k)))
        if layer in c["index_source_layer_ids"]:
            w.keys.append((c["index_n_heads"] * c["index_head_dim"], lambda p, ratio=ratio: (p + 1) // ratio))
    return w


def llama_work(file):
    import gguf

    reader = gguf.GGUFReader(file)
    architecture = reader.get_field("general.architecture").contents()

    def key(name):
        return reader.get_field(f"{architecture}.{name}").contents()

    w = Work()
    share = key("expert_used_count") / key("expert_count")
    ratios = key("attention.compress_ratios") if architecture == "deepseek4" else None
    parts = [(r"^token_embd\.weight$", None, 0, 0), (r"_exps\.", "experts", share, share),
             (r"_shexp\.", "shared expert", 1, 1), (r"ffn_gate_inp|exp_probs", "router", 1, 1),
             (r"hc_", "hyper-connections", 1, 1), (r"_ape", "compressor, indexer", 0, 1),  # added, not multiplied
             (r"compressor|indexer", "compressor, indexer", 1, 1), (r"^output\.weight$", "head", 1, 1),
             (r"", "projections", 1, 1)]
    for tensor in reader.tensors:
        name, shape = tensor.name, [int(n) for n in tensor.shape]
        size = float(tensor.n_bytes)
        macs = math.prod(shape) if len(shape) > 1 else 0
        w.count(parts, name, macs, size)
    heads = key("attention.head_count")
    for layer in range(key("block_count")):
        if architecture == "deepseek2":
            w.keys.append((heads * (key("attention.key_length") + key("attention.value_length")), lambda p: p + 1))
            continue
        per_key, window, ratio = 2 * heads * key("attention.key_length"), key("attention.sliding_window"), ratios[layer]
        w.keys.append((per_key, lambda p, window=window: min(p + 1, window)))
        if ratio == 4:
            top_k = key("attention.indexer.top_k")
            w.keys.append((per_key, lambda p, top_k=top_k: min((p + 1) // 4, top_k)))
            score = key("attention.indexer.head_count") * key("attention.indexer.key_length")
            w.keys.append((score, lambda p: (p + 1) // 4))
        elif ratio:
            w.keys.append((per_key, lambda p, ratio=ratio: (p + 1) // ratio))
    return w


class Runner:
    def __init__(self, arguments):
        self.a = arguments
        self.before = shlex.split(arguments.before)

    def run(self, command):
        command = [*self.before, *map(str, command)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            end = f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            sys.exit(f"{shlex.join(command)}: status {done.returncode}\n{end}")
        return done.stdout

    def hadal(self, case, length):
        """Seconds a token."""
        common = [self.a.checkpoint, "--threads", self.a.threads, "--json"]
        if case == "prefill":
            # A long prompt warms itself.
            steps = ["--steps", 2, "--warm-up", 1] if length <= 512 else ["--steps", 1, "--warm-up", 0]
            shape = ["--tokens", length, "--context", length, "--prefill", "full", *steps]
            tokens = length
        else:
            shape = ["--batch", 1, "--context", length, "--steps", 60, "--warm-up", 5]
            tokens = 1
        line = self.run([self.a.hadal, "bench", case, *common, *shape]).strip().splitlines()[-1]
        return json.loads(line)["step_ms"]["median"] / 1000 / tokens

    def llama(self, case, length, file):
        common = ["-m", file, "-t", self.a.threads, "-o", "json", *shlex.split(self.a.llama_options)]
        if case == "prefill":
            repeats = ["-r", 2] if length <= 512 else ["-r", 1, "--no-warmup"]
            shape, tokens = ["-p", length, "-n", 0, *repeats], length
        else:
            shape, tokens = ["-p", 0, "-n", 60, "-d", length, "-r", 2], 60
        result = json.loads(self.run([self.a.llama_bench, *common, *shape]))[0]
        return statistics.median(result["samples_ns"]) / 1e9 / tokens

    def ftllm(self, case, length):
        shape = ["--input_tokens", length, "--output_tokens", 1 if case == "prefill" else 33]
        out = self.run([self.a.ftllm, "benchmark", self.a.ftllm_checkpoint or self.a.checkpoint,
                        "-t", self.a.threads, "--batch", 1, "--warmup", 0, *shape, *shlex.split(self.a.ftllm_options)])
        name, tokens = ("TTFT avg", length) if case == "prefill" else ("TPOP avg", 1)
        return float(re.search(rf"{name}\s+([\d.]+) ms", out).group(1)) / 1000 / tokens


def path(text):
    return pathlib.Path(text).absolute()


def print_work(name, w, prefills):
    parts = sorted(w.macs, key=w.macs.get, reverse=True)
    print(f"{name}, a token: part, million multiply-adds, MB of weights")
    for part in parts:
        print(f"  {part:22} {w.macs[part] / 1e6:8.2f} {w.bytes[part] / 1e6:8.2f}")
    print(f"  {'sum':22} {sum(w.macs.values()) / 1e6:8.2f} {sum(w.bytes.values()) / 1e6:8.2f}")
    for tokens in prefills:
        macs = w.prefill(tokens)
        print(f"  in a prompt of {tokens}: {sum(macs.values()) / 1e6:.2f}, "
              f"of which attention {macs['attention'] / 1e6:.2f} and head {macs['head'] / 1e6:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hadal", type=path, required=True)
    parser.add_argument("--checkpoint", type=path, required=True)
    parser.add_argument("--llama-bench", type=path)
    parser.add_argument("--gguf", type=path)
    parser.add_argument("--llama-options", default="", help="further options of llama-bench")
    parser.add_argument("--ftllm", type=path)
    parser.add_argument("--ftllm-checkpoint", type=path,
                        help="the same checkpoint with a tokenizer beside it, which ftllm asks for")
    parser.add_argument("--ftllm-options", default="--device cpu", help="further options of ftllm benchmark")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cases", default="prefill:512,prefill:2048,decode:512",
                        help="STEP:LENGTH, of the prompt or of the context")
    parser.add_argument("--before", default="", help="a command to put before each measurement, as in 'taskset -c 0,1'")
    parser.add_argument("--record", type=pathlib.Path, help="write work and pairs of all cases, for bench/results")
    parser.add_argument("--json", type=pathlib.Path,
                        help="append what was measured, one line a pair; the table is of all its lines")
    a = parser.parse_args()
    cases = [(case, int(length)) for case, length in (text.split(":") for text in filter(None, a.cases.split(",")))]
    runner = Runner(a)
    prefills = [length for case, length in cases if case == "prefill"]

    own = hadal_work(a.checkpoint)
    print_work("hadal", own, prefills)
    peers = []
    if a.gguf:
        other = llama_work(a.gguf)
        print_work("llama.cpp", other, prefills)
        peers.append(("llama.cpp", other, lambda case, length: runner.llama(case, length, a.gguf)))
    if a.ftllm:
        peers.append(("ftllm", own, runner.ftllm))

    pairs = []  # what was measured, this time and before
    if a.json and a.json.exists():
        pairs = [json.loads(line) for line in a.json.read_text().splitlines()]
    for _ in range(a.pairs):
        for case, length in cases:
            for name, _, measure in peers:
                pair = {"case": case, "length": length, "peer": name,
                        "seconds_a_token": [runner.hadal(case, length), measure(case, length)]}
                pairs.append(pair)
                if a.json:
                    with a.json.open("a") as f:
                        f.write(json.dumps(pair) + "\n")

    works = {"hadal": own} | {name: work for name, work, _ in peers if work is not own}
    record = {"threads": a.threads, "llama_options": a.llama_options, "ftllm_options": a.ftllm_options,
              "work_a_token": {n: {"multiply_adds": w.macs, "weight_bytes": w.bytes} for n, w in works.items()},
              "cases": []}
    print("case, peer, pairs: tokens/s of hadal and of the peer, rates of both, "
          "ratio of rates (median, least, most of pairs)")
    for case, length in cases:
        for name, work, _ in peers:
            here = [p["seconds_a_token"] for p in pairs if (p["case"], p["length"], p["peer"]) == (case, length, name)]
            if not here:
                continue
            if case == "prefill":
                ours, theirs = (sum(w.prefill(length).values()) for w in (own, work))
                unit = "GMAC/s"
            else:
                ours, theirs = (sum(w.bytes.values()) for w in (own, work))
                unit = "GB/s"
            ratio = sorted((ours / mine) / (theirs / other) for mine, other in here)
            mine, other = (statistics.median(column) for column in zip(*here))
            record["cases"].append({"case": case, "length": length, "peer": name, "unit": unit,
                                    "work_a_token": [ours, theirs], "seconds_a_token": here,
                                    "ratio": statistics.median(ratio)})
            print(f"{case} {length}, {name}, {len(here)}: {1 / mine:.1f} and {1 / other:.1f}; "
                  f"{ours / mine / 1e9:.1f} and {theirs / other / 1e9:.1f} {unit}; "
                  f"{statistics.median(ratio):.2f} ({ratio[0]:.2f} to {ratio[-1]:.2f})")
    if a.record:
        a.record.write_text(json.dumps(record, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
