#!/usr/bin/env python3
"""Writes golden parses of model outputs with the official stream parser (PyPI deepseek-recipe).

    VENV/bin/python tools/oracle-text/make_outputs.py src/text/testdata/outputs.jsonl [COUNT] [SEED]

Outputs are well formed, or malformed in ways that both parsers recover from alike. (Keys with blanks or quotes and
a missing closing tag between two invokes are left out: there the official parser gives broken JSON or joins calls.)
"""
import json
import random
import sys

import deepseek_recipe as R

D = "｜DSML｜"


def parse(text, thinking, in_calls):
    request = R.ChatCompletionRequest({"model": "DeepSeek-V4.1-Flash", "stream": True,
                                       "messages": [{"role": "user", "content": "x"}]}).convert(R.ConversionOptions())
    options = R.ParsingOptions(parse_tool_calls=True, starts_in_tool_calls=in_calls,
                               thinking_initial_stage=R.ThinkingInitialStage.ReasoningStart if thinking else None)
    stream = R.StreamProcessor(R.ChatCompletionRequest.chunk_generator(request, "id", "m"), options, None)
    chunks = stream.push(R.InferenceChunk.ready())
    chunks += stream.push(R.InferenceChunk.text(text, 1))
    chunks += stream.push(R.InferenceChunk.finish(R.InferenceFinishReason.Stop)) + stream.finish()
    reasoning, content, calls = "", "", {}
    for chunk in chunks:
        for choice in json.loads(chunk.to_json())["choices"]:
            delta = choice["delta"]
            reasoning += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                entry = calls.setdefault(call["index"], ["", ""])
                entry[0] += call["function"].get("name") or ""
                entry[1] += call["function"].get("arguments") or ""
    return reasoning, content, list(calls.values())


def main():
    out, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 250, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    words = ["hello", " ", "\n", "\n\n", "中文", "😀", "<", "</", "<b>", "think", "a < b", "｜", "DSML", "calls>", "\\", "\"",
             "2>&1", "</tool>", "é", "\t", "```json\n{}\n```", "<｜", "</think"]

    def text(n=6):
        return "".join(rng.choice(words) for _ in range(rng.randint(0, n)))

    def guarded(string):
        # Behind the beginning of a tag the official parser keeps a line break that it drops elsewhere.
        return string + "." if string.rstrip("\n").endswith(("<", "</", "<｜", "</think", "<｜DSML", "</DSML")) else string

    values = [lambda: ("true", text()), lambda: ("true", "find /tmp"), lambda: ("true", "cmd 2>&1"),
              lambda: ("false", json.dumps(rng.choice([1, -2.5, True, None, [], {"a": [1, {"b": "<c>"}]}, "s", 10 ** 25]),
                                           ensure_ascii=False)),
              lambda: ("true", f"<{D} parameter name=\"q\" string=\"true\">in"), lambda: ("false", "[1,  2,\n3]")]

    def parameter():
        kind, value = rng.choice(values)()
        name = rng.choice(["a", "path", "中", "argument", "n>m"])
        return f"<{D} parameter name=\"{name}\" string=\"{kind}\">{value}</{D} parameter>\n"

    def invoke():
        body = "".join(parameter() for _ in range(rng.randint(0, 3)))
        return f"<{D} invoke name=\"{rng.choice(['f', 'get_weather', 'mcp__x-y'])}\">\n{body or rng.choice(['', chr(10)])}</{D} invoke>\n"

    def block():
        return f"<{D} calls>\n" + "".join(invoke() for _ in range(rng.randint(1, 3))) + f"</{D} calls>"

    with open(out, "w", encoding="utf-8") as f:
        for _ in range(count):
            thinking, in_calls = rng.random() < 0.6, False
            output = rng.choice(["", "\n"]) + guarded(text()) + rng.choice(["", "\n\n"]) + "</think>" if thinking else ""
            output += rng.choice(["", "\n\n"]) + text()
            if rng.random() < 0.65:
                markup = rng.choice(["\n\n", "\n\n", "\n", "", "\n\n\n"]) + block()
                mutation = rng.random()
                if mutation < 0.1:
                    markup = markup.replace(D + " ", D)
                elif mutation < 0.2:
                    markup = markup.replace(f"</{D} parameter>", f"</{D} parameter")
                elif mutation < 0.3:
                    markup = markup.replace(f"<{D} calls>\n", "")
                elif mutation < 0.4 and markup.count(" invoke name") == 1:
                    markup = markup.replace(f"</{D} invoke>\n", "").replace(f"</{D} calls>", f"</{D} invoke>\n</{D} calls>")
                output = guarded(output) + markup
                if thinking and rng.random() < 0.1:
                    output = output.replace("</think>", "")
            elif not thinking and rng.random() < 0.2:
                in_calls = True
                output = block().removeprefix(f"<{D} calls>\n")
            reasoning, content, calls = parse(output, thinking, in_calls)
            f.write(json.dumps({"output": output, "thinking": thinking, "in_calls": in_calls, "reasoning": reasoning,
                                "content": content, "calls": calls}, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
