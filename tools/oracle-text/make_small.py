#!/usr/bin/env python3
"""Writes the small tokenizer of the unit tests and its golden encodings, both with the `tokenizers` library.

    VENV/bin/python tools/oracle-text/make_small.py src/text/testdata

The tokenizer has the published layout (three splits, byte level, added tokens with the spellings of V4.1) and a few
hundred merges, trained on Python's own documentation and a few lines of other languages.
"""
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import compare

SPLITS = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
          "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
# (spelling, special, normalized) as in the published file
LAST = [("<｜System｜>", False, True), ("<｜fim▁hole｜>", False, True), ("<｜User｜>", False, True),
        ("<｜Assistant｜>", False, True), ("<|EOT|>", False, True), ("<think>", False, True), ("</think>", False, True),
        ("｜DSML｜", False, True), ("<｜latest_reminder｜>", False, True), ("<｜action｜>", False, True),
        ("<｜query｜>", False, True), ("<｜authority｜>", False, True), ("<｜domain｜>", False, True),
        ("<｜title｜>", False, True), ("<｜read_url｜>", False, True), ("<｜deepseek_image｜>", False, True),
        ("<｜/ref｜>", True, False), ("<｜ref｜>", True, False), ("<dsml:", False, True),
        ("<|place_holder_mm_span_0021|>", True, False)]
OTHER = ("深度求索的模型在中文和英文上训练。今天天气很好，我们去公园散步。请用简单的语言解释什么是人工智能。"
         "これは日本語のテストです。カタカナとひらがな。 Привет, как дела? Всё хорошо. Γειά σου κόσμε. 안녕하세요 세계. "
         "😀😁😂🤣😃😄😅 👍🏽 👩‍💻 ❤️ שלום עולם مرحبا بالعالم नमस्ते दुनिया ") * 20


def main():
    folder = sys.argv[1]
    import pydoc_data.topics
    prose = "\n".join(pydoc_data.topics.topics[k] for k in sorted(pydoc_data.topics.topics))[:200000]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=FIRST, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([prose, OTHER], trainer)
    content = json.loads(tokenizer.to_str())
    content["normalizer"] = {"type": "Sequence", "normalizers": []}
    base = len(content["model"]["vocab"])
    plain_token = {"single_word": False, "lstrip": False, "rstrip": False}
    content["added_tokens"] = (
        [{"id": i, "content": t, **plain_token, "normalized": False, "special": True} for i, t in enumerate(FIRST)]
        + [{"id": base + i, "content": t, **plain_token, "normalized": n, "special": s}
           for i, (t, s, n) in enumerate(LAST)])
    content["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")

    full = Tokenizer.from_file(path)
    plain = Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
    vocabulary = [full.decode([i], skip_special_tokens=False) for i in range(full.get_vocab_size())]
    added = [t["content"] for t in content["added_tokens"]]
    # The reference text of a case is limited, so that the file stays small.
    cases = [s[:120] for _, s in compare.strings_of(400, 7, vocabulary, added)[:400]]
    cases += [f"x {t}\n{t}>".encode() for t in added]
    rng = random.Random(3)
    cases += ["".join(rng.choice(added) for _ in range(4)).encode() for _ in range(10)]
    with open(os.path.join(folder, "encodings.jsonl"), "w", encoding="utf-8") as f:
        for raw in cases:
            text = raw.decode("utf-8", errors="replace")
            row = {"hex" if text.encode() != raw else "text": raw.hex() if text.encode() != raw else text,
                   "plain": plain.encode(text, add_special_tokens=False).ids,
                   "special": full.encode(text, add_special_tokens=False).ids}
            if text.encode() != raw:
                row["replaced"] = text
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
