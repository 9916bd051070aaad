"""Byte-level BPE in the form of DeepSeek's tokenizer.json: ids 0..2 BOS EOS pad, bytes, merges, added tokens at the end."""
import json
import re
import unicodedata

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import chat

SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
NAMED = ["latest_reminder", "action", "query", "authority", "domain", "task", "political", "entity", "title", "safety", "answer",
         "search", "read_url", "begin▁sys", "end▁sys", "fim▁hole", "fim▁begin", "fim▁end", "begin▁of▁repo▁name",
         "end▁of▁repo▁name", "begin▁of▁file▁name", "end▁of▁file▁name", "begin▁of▁file", "end▁of▁file", "extracted_url",
         "end_of_query", "search▁begin", "search▁end"]
ADDED = [chat.SYSTEM, chat.USER, chat.ASSISTANT, chat.THINK, chat.END_THINK, chat.DSML, "<|EOT|>"] + \
        [f"<｜{n}｜>" for n in NAMED] + [chat.IMAGE]


def train(texts, vocab_size):
    """Numbers stay single digits: merged digits would be drawn from chance and make arithmetic harder to learn."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([])
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)
    tok.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(ADDED), special_tokens=[chat.BOS, chat.EOS, chat.PAD],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    specials = re.compile("|".join(map(re.escape, [chat.BOS, chat.EOS, chat.PAD] + ADDED)))
    digits = re.compile(r"(?<=\d)(?=\d)")
    tok.train_from_iterator((digits.sub(" ", p) for t in texts for p in specials.split(t) if p), trainer)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (chat.BOS, chat.EOS, chat.PAD)])
    tok.add_tokens([AddedToken(t, special=False, normalized=t == chat.SYSTEM) for t in ADDED])
    assert tok.get_vocab_size() == vocab_size, tok.get_vocab_size()
    return tok


def engram_token_map(tok):
    """Compressed id of every token: ids whose text is equal after normalisation (case, accents, spaces) share one."""
    keys, out = {}, []
    strip = lambda s: "".join(c for c in s if not unicodedata.combining(c))
    for i in range(tok.get_vocab_size()):
        text = tok.decode([i], skip_special_tokens=False)
        if "\ufffd" in text:
            key = tok.id_to_token(i)
        else:
            s = strip(unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))).lower()
            s = re.sub(r"[ \t\r\n]+", " ", s)
            s = " " if s == " " else s.strip()
            key = s or text
        out.append(keys.setdefault(key, len(keys)))
    return np.array(out, np.int32)


def save(tok, folder):
    tok.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer.json", encoding="utf-8") as f:     # compact: half the size of the indented form
        d = json.load(f)
    d["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in d["model"]["merges"]]
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(d, f, ensure_ascii=False, separators=(",", ":"))
    config = {"add_bos_token": False, "add_eos_token": False, "bos_token": chat.BOS, "eos_token": chat.EOS, "pad_token": chat.PAD,
              "clean_up_tokenization_spaces": False, "legacy": True, "model_max_length": 8192, "unk_token": None,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as f:
        json.dump(config, f, ensure_ascii=False, indent=1)
    with open(f"{folder}/generation_config.json", "w") as f:
        json.dump({"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "do_sample": True, "temperature": 1.0, "top_p": 0.95}, f, indent=1)
    m = engram_token_map(tok)
    np.save(f"{folder}/engram_token_map.npy", m)
    return int(m.max()) + 1
