"""One random document of the corpus: which generators, how often, and in which form of the prompt format."""
import os
import re

import calls
import plain as everyday_texts
import stories
import talk
import tasks
from chat import document, render
from grammar import fill

SHORT = [(tasks.capital, 3), (tasks.continent, 1.5), (tasks.lookup, 12), (tasks.fact, 5), (tasks.about, 4), (tasks.yes_no, 4), (tasks.order, 2.5), (tasks.units, 1.5), (tasks.mix, .7),
         (tasks.sums, 9), (tasks.word_problem, 5), (tasks.compare, 2.5), (tasks.counting, 1), (tasks.spelling, 4), (tasks.name_some, 4),
         (tasks.odd_one, 1.5), (tasks.sentence_with, 2), (tasks.fix, 1.5), (talk.greeting, 6), (talk.unknown, 3.5), (tasks.can_do, 7), (tasks.plain_sums, 4), (talk.everyday_turns, 7), (talk.continue_text, 4), (talk.repeat, 4), (talk.record, 3)]
LONG = [(talk.story_turns, 30), (talk.continue_story, 5), (talk.story_reading, 8), (talk.reading, 30), (talk.memory, 9)]
GENERATORS = [g for g, _ in SHORT]
WEIGHTS = [w for _, w in SHORT]


def short(rng):
    return rng.choices(GENERATORS, WEIGHTS)[0](rng)


def reasoning(rng, sentences, effort):
    """Low effort: the decisive sentence. High effort: everything, with a beginning and an end."""
    if effort <= 35:
        return sentences[-1]
    if effort <= 80:
        return " ".join(sentences)
    head = fill(rng, "[Let me think about this step by step.|I will think carefully.|Let me go step by step.]")
    tail = fill(rng, "[I have checked it.|This is right, so I can answer.|Now I can answer.|I am ready to answer.]")
    return " ".join([head] + sentences + [tail])


def pick_effort(rng):
    return rng.choice([rng.randint(1, 100), 50, 75, 75, 75, 100])


def conversation(rng):
    """Pieces of one chat document."""
    r = rng.random()
    thinking = rng.random() < 0.45
    effort = pick_effort(rng)
    system, tools = None, None
    if r < 0.22:
        turns, tools = calls.tool_messages(rng, lambda q: q.choice([short, tasks.lookup, talk.greeting, tasks.capital])(q))
        if rng.random() < 0.35:
            system = talk.persona(rng, [("Repeat", [], "")])[0]
        messages = []
        for t in turns:
            if t[0] == "assistant":
                messages.append(dict(role="assistant", reasoning=reasoning(rng, t[1], effort), content=t[2], calls=t[3]))
            else:
                messages.append(dict(role=t[0], content=t[1]))
    else:
        if r < 0.50:
            turns = rng.choices([g for g, _ in LONG], [w for _, w in LONG])[0](rng)
        elif r < 0.55:
            turns = talk.reading(rng, long=True)
        elif r < 0.80:
            turns = short(rng)
        else:
            turns = sum((short(rng) for _ in range(rng.randint(2, 7))), [])
            if rng.random() < 0.3:
                turns = talk.greeting(rng) + turns
        if rng.random() < 0.4:
            system, turns = talk.persona(rng, turns)
        messages = []
        for q, why, s in turns:
            messages += [dict(role="user", content=q), dict(role="assistant", reasoning=reasoning(rng, why, effort), content=s)]
    if system is not None:
        messages.insert(0, dict(role="system", content=system))
    return render(messages, thinking, effort, tools)


def plain(rng):
    """A story, or questions and answers, without any chat format."""
    if rng.random() < 0.75:
        topic, sentences, *_ = stories.story(rng)
        text = stories.paragraphs(rng, sentences)
        if rng.random() < 0.2:
            text = topic[0].upper() + topic[1:] + "\n\n" + text
        return document(text)
    turns = sum((short(rng) for _ in range(rng.randint(2, 6))), [])
    return document("\n\n".join(f"Question: {q}\nAnswer: {s}" for q, _, s in turns))


def held_out():
    """Openings that the card judges continuations of; no document may hold one of them."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openings.txt"), encoding="utf-8") as f:
        return [line.rstrip("\n") for line in f]


OPENINGS = re.compile("|".join(map(re.escape, held_out())))
KINDS = dict(everyday=lambda r: document(everyday_texts.everyday(r)), chat=conversation, story=plain, recall=lambda r: document(talk.recall(r)), copies=lambda r: document(talk.copies(r)))
SHARES = dict(everyday=0.66, chat=0.225, story=0.05, recall=0.05, copies=0.015)          # of documents; tokens: see README.md


def generated(rng, kind=None):
    """A document of a kind drawn by SHARES."""
    while True:
        d = KINDS[kind or rng.choices(list(SHARES), list(SHARES.values()))[0]](rng)
        if not OPENINGS.search("".join(p[0] for p in d)):
            return d
