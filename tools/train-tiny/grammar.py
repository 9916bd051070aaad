"""A tiny text grammar: "[a|b|c]" picks one, "(maybe) text?" stays or goes, "{slot}" is filled in, articles are mended."""
import re

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"\b([Aa]) (?=(?:hour|honest)|(?!(?:one|uni|use|eu|ukulele))[aeiouAEIOU])")


def fill(rng, text, slots=None):
    """Choices first (innermost outwards), then slots, so that slot text is never parsed."""
    while True:
        text, n = CHOICE.subn(lambda m: rng.choice(m[1].split("|")), text)
        if not n:
            break
    if slots is not None:
        text = SLOT.sub(lambda m: str(slots[m[1]]), text)
    text = ARTICLE.sub(lambda m: m[1] + "n ", text)
    text = re.sub(r" {2,}", " ", text).strip()
    return re.sub(r"(^|[.!?]\s+|\n)([a-z])", lambda m: m[1] + m[2].upper(), text)


def lines(rng, parts, slots):
    """parts: strings; a part starting with '?' is kept half of the time."""
    out = []
    for p in parts:
        if p.startswith("?"):
            if rng.random() < 0.5:
                continue
            p = p[1:]
        out.append(fill(rng, p, slots))
    return out


def listing(words):
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def a(noun):
    return ("an " if noun[0] in "aeiou" and not noun.startswith(("uni", "use", "one", "ukulele")) else "a ") + noun
