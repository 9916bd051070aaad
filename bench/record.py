#!/usr/bin/env python3
"""Writes what `hadal bench prefill|decode|kernel --json` printed, one file a measurement, into bench/results.

usage: bench/record.py PREFIX COMMIT < lines      (PREFIX: the card, as in h200)
"""
import json
import pathlib
import sys


def name(result):
    numerics = "" if result["numerics"] == "bf16" else "-" + result["numerics"]  # bf16 is the default of the program
    if result["mode"] == "kernels":
        return "kernels" + numerics
    if result["mode"].startswith("prefill"):
        return result["mode"].replace(" ", "-") + numerics
    return f"decode-b{result['batch']}-{result['context'] // 1024}k{numerics}"


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def text(result):
    # Kernels one a line, which is what a reader and a difference want.
    kernels = result.get("kernels")
    if kernels is None:
        return json.dumps(result, indent=1) + "\n"
    head = json.dumps({key: value for key, value in result.items() if key != "kernels"})
    lines = ",\n ".join(json.dumps(kernel) for kernel in kernels)
    return f'{head[:-1]}, "kernels": [\n {lines}]}}\n'


def main():
    prefix, commit = sys.argv[1:]
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    for line in sys.stdin:
        if not line.startswith("{"):
            continue
        result = {"commit": commit} | rounded(json.loads(line))
        file = folder / f"{prefix}-{name(result)}.json"
        file.write_text(text(result))
        print(file)


if __name__ == "__main__":
    main()
