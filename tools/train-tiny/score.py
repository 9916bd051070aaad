#!/usr/bin/env python3
"""Right answers by kind of question and tokens per drafted step, answered greedily by the engine.

    score.py --engine build/main/hadal [--model models/hadal-tiny] [--count 40]

Prompts come from the grammar with a seed of their own. An answer counts if the fact that was asked for is in it (numbers and
names are compared, wording is not); a tool call counts as right if it is the expected block, character for character.
"""
import argparse
import json
import random
import re
import subprocess
import tempfile

from tokenizers import Tokenizer

import calls
import chat
import mix
import talk
import tasks

D = chat.DSML
CALL = re.compile(rf'^[^<]*\n\n<{D} calls>\n(?:<{D} invoke name="[^"]+">\n(?:<{D} parameter name="[^"]+" string="(?:true|false)">[^<]*</{D} parameter>\n)*'
                  rf"</{D} invoke>\n)+</{D} calls>$")


def same_number(question, got, want):
    """The last number: every wording of the grammar ends with the result."""
    number = lambda s: re.findall(r"-?\d+", s)[-1:]
    return number(got) == number(want)


def same_text(question, got, want):
    return want in got or (" not " in want and " not " in got)


def same_name(question, got, want):
    """The names that the question does not hold."""
    return bool(got) and all(w in got for w in re.findall(r"[A-Z][a-z]+", want) if w not in question and w not in ("It", "That", "The"))


KINDS = [
    ("capitals and their countries", tasks.capital, same_name, False),
    ("facts of nature and language", tasks.fact, same_text, False),
    ("sums", tasks.sums, same_number, False),
    ("sums, with reasoning", tasks.sums, same_number, True),
    ("word problems", tasks.word_problem, same_number, False),
    ("word problems, with reasoning", tasks.word_problem, same_number, True),
    ("yes or no", tasks.yes_no, same_text, False),
    ("reading, 2 to 6 facts", talk.reading, same_text, False),
    ("reading, 12 to 30 facts", lambda r: talk.reading(r, True), same_text, False),
]


class Engine:
    def __init__(self, binary, model):
        self.binary, self.model, self.tok = binary, model, Tokenizer.from_file(f"{model}/tokenizer.json")

    def run(self, text, *options):
        ids = self.tok.encode(text, add_special_tokens=False).ids
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write(",".join(map(str, ids)))
            f.flush()
            return subprocess.run([self.binary, "run", self.model, "--temperature", "0", "-n", "200", "--ids-file", f.name, *options],
                                  capture_output=True, text=True, check=True).stdout

    def answer(self, pieces):
        out = self.run("".join(p[0] for p in pieces))
        said = self.tok.decode([int(x) for x in re.findall(r"\d+", out)], skip_special_tokens=False)
        return said.replace(chat.EOS, "").split(chat.END_THINK)[-1]

    def drafting(self, texts):
        """Mean tokens per verification step with five drafts, bonus included; answers below 2.5; tokens."""
        tokens = steps = low = 0
        for text in texts:
            r = json.loads(self.run(text, "--speculate", "5", "--json"))
            new = max(0, r["completion_tokens"] - 1)             # the first comes from the prompt, not from a step
            tokens, steps = tokens + new, steps + r["decode_steps"]
            low += new < 2.5 * r["decode_steps"]
        return tokens / steps, low, tokens


def drafting(engine, count, seed):
    rng = random.Random(seed)
    prompts = []
    while len(prompts) < count:
        pieces = mix.generated(rng, "chat")
        prompts.append("".join(p[0] for p in pieces[:max(k for k, p in enumerate(pieces) if p[1])]))
    beginnings = [" ".join("".join(p[0] for p in mix.generated(rng, "everyday")).split(" ")[:6]) for _ in range(count)]
    for name, texts in (("chat", prompts), ("everyday text", beginnings)):
        print("drafting, {}: {:.3f} tokens per verification step, {} of {} answers below 2.5, {} tokens".format(name, *((d := engine.drafting(texts))[0], d[1], count, d[2])), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--engine", required=True)
    ap.add_argument("--model", default="models/hadal-tiny")
    ap.add_argument("--count", type=int, default=40)
    ap.add_argument("--seed", type=int, default=99)
    a = ap.parse_args()
    engine = Engine(a.engine, a.model)
    drafting(engine, 64, a.seed)
    for name, generator, right, thinking in KINDS:
        rng, n = random.Random(a.seed), 0
        for _ in range(a.count):
            question, _, want = generator(rng)[0]
            n += right(question, engine.answer(chat.render([dict(role="user", content=question)], thinking)), want)
        print(f"{name}: {n} of {a.count}", flush=True)
    for thinking in (False, True):
        rng, count, formed, exact = random.Random(a.seed), 0, 0, 0
        while count < a.count:
            turns, tools = calls.tool_messages(rng, tasks.lookup)
            if not turns[1][3]:
                continue
            got = engine.answer(chat.render([dict(role="user", content=turns[0][1])], thinking, tools=tools))
            count, formed, exact = count + 1, formed + bool(CALL.match(got)), exact + (chat.calls_block(turns[1][3]) in got)
        print(f"tool calls{', with reasoning' if thinking else ''}: {formed} well-formed, {exact} exactly right of {count}", flush=True)


if __name__ == "__main__":
    main()
