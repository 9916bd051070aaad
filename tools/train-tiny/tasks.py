"""Questions and answers, arithmetic, word tasks, reading and conversations: each generator returns chat messages.

A generator takes a random source and returns a list of turns [(question, reasoning, answer)]. Reasoning is a list of
sentences; how many are kept depends on the reasoning effort of the prompt.
"""
import words as W
from grammar import a, fill, listing

F = fill


# ------------------------------------------------------------------------------------------------ knowledge
def capital(rng):
    c = rng.choice(list(W.CAPITALS))
    cap = W.CAPITALS[c]
    the = "the Netherlands" if c == "Netherlands" else c
    if rng.random() < 0.25:
        return [(f"Which country has {cap} as its capital?" if rng.random() < .5 else f"{cap} is the capital of which country?",
                 [f"The user asks about {cap}.", f"{cap} is the capital of {the}."], F(rng, f"[{cap} is the capital of {the}.|That is {the}.]"))]
    return [(F(rng, f"[What is the capital of {the}?|What is the capital city of {the}?|Which city is the capital of {the}?|Name the capital of {the}.|Tell me the capital of {the}.]"),
             [f"The user wants to know the capital of {the}.", f"I know that it is {cap}."],
             F(rng, f"[The capital of {the} is {cap}.|{cap} is the capital of {the}.|It is {cap}.]"))]


def continent(rng):
    k = rng.choice(list(W.CONTINENT))
    c = rng.choice(W.CONTINENT[k])
    the = "the Netherlands" if c == "Netherlands" else c
    return [(F(rng, f"[On which continent is {the}?|Where is {the}?|Which continent is {the} on?]"), [f"{the} is a country.".replace("the N", "The N"), f"It lies in {k}."],
             F(rng, f"[{the} is in {k}.|It is in {k}.]"))]


def table(rng, d, ask, say, why):
    k = rng.choice(list(d))
    v = d[k]
    slots = dict(k=k, v=v, ak=a(k), av=a(str(v)), K=str(k).capitalize(), V=str(v).capitalize())
    return [(F(rng, ask, slots), [F(rng, x, slots) for x in why], F(rng, say, slots))]


TABLES = [
    (W.BABIES, "[What is a baby {k} called?|What do you call a young {k}?|How do you call a baby {k}?]", "[A baby {k} is called {av}.|It is called {av}.|A young {k} is {av}.]", ["The user asks for the young of {ak}.", "A young {k} is {av}."]),
    (W.SOUNDS, "[What sound does a {k} make?|What does a {k} say?|Which sound does a {k} make?]", "[A {k} says \"{v}\".|A {k} makes the sound \"{v}\".|It says \"{v}\".]", ["The animal is {ak}.", "Its sound is {v}."]),
    ({k: W.NUMBERS[v] if v else "no" for k, v in W.LEGS.items()}, "[How many legs does a {k} have?|How many legs has a {k} got?|Do you know how many legs a {k} has?]", "[A {k} has {v} legs.|It has {v} legs.]", ["I think of {ak}.", "It has {v} legs."]),
    (W.HOMES, "[Where does a {k} live?|What is the home of a {k} called?]", "[A {k} lives in {av}.|The home of {ak} is called {av}.]", ["The user asks about the home of {ak}.", "That is {av}."]),
    (W.EATS, "[What does a {k} eat?|What do {k}s like to eat?|What is the food of a {k}?]".replace("What do {k}s like to eat?|", ""), "[A {k} eats {v}.|It eats {v}.]", ["The animal is {ak}.", "It eats {v}."]),
    (W.OPPOSITES, "[What is the opposite of {k}?|What is the opposite of \"{k}\"?|Tell me the opposite of {k}.|Give me an antonym of {k}.]", "[The opposite of {k} is {v}.|The opposite of \"{k}\" is \"{v}\".|It is {v}.]", ["I need the word that means the reverse of {k}.", "That is {v}."]),
    (W.SYNONYMS, "[What is another word for {k}?|Give me a synonym of {k}.|Which word means the same as \"{k}\"?]", "[Another word for {k} is {v}.|A synonym of {k} is {v}.]", ["I need a word with the same meaning as {k}.", "One is {v}."]),
    (W.PLURALS, "[What is the plural of {k}?|What is the plural of \"{k}\"?|How do you write more than one {k}?]", "[The plural of {k} is {v}.|The plural of \"{k}\" is \"{v}\".|One {k}, two {v}.]", ["The singular is {k}.", "The plural is {v}."]),
    (W.PAST, "[What is the past tense of {k}?|What is the past tense of \"{k}\"?|Put \"{k}\" into the past.]", "[The past tense of {k} is {v}.|The past tense of \"{k}\" is \"{v}\".]", ["The verb is {k}.", "Its past tense is {v}."]),
    (W.JOBS, "[What does a {k} do?|What is the job of a {k}?|What is the work of a {k}?]", "[{ak} {v}.|A {k} is a person who {v}.]", ["A {k} is a job.", "{ak} {v}."]),
    ({v: k for k, v in W.JOBS.items()}, "[Who {k}?|What do you call a person who {k}?]", "[{av} {k}.|A person who {k} is {av}.]", ["I look for a job.", "{av} {k}."]),
    (W.USES, "[What is a {k} for?|What can you do with a {k}?|What do you use a {k} for?|Why do people use a {k}?]".replace("{k}", "{k}"), "[You use it to {v}.|You can use a {k} to {v}.|It is used to {v}.]", ["The thing is called {k}.", "People use it to {v}."]),
    (W.MADE, "[What is {k} made of?|What do you make {k} from?|What is {k} made from?]", "[{K} is made from {v}.|It is made from {v}.]", ["The user asks about {k}.", "It is made from {v}."]),
    (W.COLOR_OF, "[What is the colour of {k}?|What colour is {k}?|Which colour is {k}?]", "[It is {v}.|The colour is {v}.|It is usually {v}.]", ["I think of {k}.", "The colour is {v}."]),
    ({m: n for m, n in W.MONTH_DAYS.items()}, "[How many days does {k} have?|How many days are there in {k}?]", "[{k} has {v} days.|There are {v} days in {k}.]", ["The month is {k}.", "It has {v} days."]),
    (W.SHAPES, "[How many sides does a {k} have?|How many corners does a {k} have?]", "[A {k} has {v}.|It has {v}.]", ["The shape is {ak}.", "The number is {v}."]),
]


def lookup(rng):
    d, ask, say, why = rng.choice(TABLES)
    turns = table(rng, d, ask, say, why)
    return [(q, [w[0].upper() + w[1:] for w in r], s[0].upper() + s[1:]) for q, r, s in turns]


def fact(rng):
    q, s = rng.choice(W.FACTS)
    pre = F(rng, "[|||Please tell me: |I have a question. |Can you explain this? |Do you know this? ]")
    pre += " " if pre else ""
    return [(pre + q, [F(rng, "[The user asks a question about the world.|This is a question about nature and things.|I should explain it simply.]"), "I will give a short and clear answer."], s)]


def about(rng):
    """A few sentences about an animal, a country or a job, made of the same facts."""
    k = rng.randrange(3)
    if k == 0:
        x = rng.choice([z for z in W.EATS if z in W.LEGS or z in W.SOUNDS])
        parts = [F(rng, f"[{a(x)} is an animal.|The {x} is an animal.]"), f"It eats {W.EATS[x]}."]
        if x in W.LEGS:
            parts.append(f"It has {W.NUMBERS[W.LEGS[x]] if W.LEGS[x] else 'no'} legs.")
        if x in W.SOUNDS:
            parts.append(f"It says \"{W.SOUNDS[x]}\".")
        if x in W.BABIES:
            parts.append(f"A baby {x} is called {a(W.BABIES[x])}.")
        if x in W.HOMES:
            parts.append(f"It lives in {a(W.HOMES[x])}.")
        name = rng.choice([a(x), "the " + x, x + "s"]) if x not in ("mouse", "sheep") else "the " + x
    elif k == 1:
        c = rng.choice([c for v in W.CONTINENT.values() for c in v if c != "Netherlands"])
        where = next(k for k, v in W.CONTINENT.items() if c in v)
        parts, name, x = [f"{c} is a country in {where}.", f"Its capital is {W.CAPITALS[c]}."], c, c
    else:
        x = rng.choice(list(W.JOBS))
        parts, name = [F(rng, f"[{a(x)} is a person who {W.JOBS[x]}.|{a(x)} {W.JOBS[x]}.]"), F(rng, "[It is an important job.|Many people have this job.|This work is useful for everybody.]")], a(x)
    return [(F(rng, f"[Tell me about|Tell me something about|What do you know about|Describe|Write about] {name}.").replace("know about " + name + ".", "know about " + name + "?"),
             [f"The user wants to hear about {x}.", "I collect what I know."], " ".join(parts))]


def yes_no(rng):
    """Right and wrong statements as questions."""
    k, right = rng.randrange(6), rng.random() < 0.5
    if k == 0:
        c, d = rng.sample([c for c in W.CAPITALS if c != "Netherlands"], 2)
        cap = W.CAPITALS[c if right else d]
        return [(F(rng, f"Is {cap} the capital of {c}?"), [f"The capital of {c} is {W.CAPITALS[c]}."], f"Yes, {cap} is the capital of {c}." if right else f"No, the capital of {c} is {W.CAPITALS[c]}.")]
    if k == 1:
        x = rng.choice(list(W.LEGS))
        n = W.LEGS[x] if right else rng.choice([v for v in (0, 2, 4, 6, 8) if v != W.LEGS[x]])
        say = W.NUMBERS[W.LEGS[x]] if W.LEGS[x] else "no"
        return [(f"Does {a(x)} have {W.NUMBERS[n] if n else 'no'} legs?", [f"{a(x)} has {say} legs.".capitalize()], F(rng, f"Yes, {a(x)} has {say} legs." if right else f"No, {a(x)} has {say} legs."))]
    if k == 2:
        x = rng.choice(list(W.COLOR_OF))
        c = W.COLOR_OF[x] if right else rng.choice([v for v in W.COLORS if v != W.COLOR_OF[x]])
        return [(f"Is the colour of {x} {c}?", [f"I think of {x}. It is {W.COLOR_OF[x]}."], f"Yes, it is {c}." if right else f"No, it is {W.COLOR_OF[x]}.")]
    if k == 3:
        x, y = number(rng), number(rng)
        return [(f"Is {x} [bigger|more|larger] than {y}?".replace("[bigger|more|larger]", rng.choice(["bigger", "more", "larger"])), [f"I compare {x} and {y}."], (f"Yes, {x} is bigger than {y}." if x > y else f"No, {x} is not bigger than {y}."))]
    if k == 4:
        kinds = [("an animal", W.ANIMALS), ("a colour", W.COLORS), ("a planet", W.PLANETS), ("a month", W.MONTHS), ("a job", list(W.JOBS)), ("a tree", W.TREES)]
        (k1, p1), (k2, p2) = rng.sample(kinds, 2)
        x = rng.choice([v for v in p1 if v not in p2])
        return [(f"Is {x} {k1 if right else k2}?", [f"{x} is {k1}."], f"Yes, {x} is {k1}." if right else f"No, {x} is {k1}.")]
    x = rng.choice(list(W.OPPOSITES))
    y = rng.choice([v for v in W.OPPOSITES.values() if v != W.OPPOSITES[x]])
    return [(f"Is \"{W.OPPOSITES[x] if right else y}\" the opposite of \"{x}\"?", [f"The opposite of {x} is {W.OPPOSITES[x]}."], f"Yes, the opposite of {x} is {W.OPPOSITES[x]}." if right else f"No, the opposite of {x} is {W.OPPOSITES[x]}.")]


def order(rng):
    seq, kind = rng.choice([(W.DAYS, "day"), (W.MONTHS, "month"), (W.PLANETS, "planet")])
    i, n = rng.randrange(len(seq)), len(seq)
    if kind == "planet" or rng.random() < 0.3:
        name = dict(day="day of the week", month="month of the year", planet="planet from the sun")[kind]
        return [(F(rng, f"[What is|Which is] the {W.ORDINALS[i]} {name}?"), [f"I count: {', '.join(seq[:i + 1])}.", f"Number {i + 1} is {seq[i]}."], f"The {W.ORDINALS[i]} {name} is {seq[i]}.")]
    if rng.random() < 0.5:
        return [(F(rng, f"[Which {kind} comes after {seq[i]}?|What {kind} is after {seq[i]}?|What comes after {seq[i]}?]"), [f"After {seq[i]} comes {seq[(i + 1) % n]}."], F(rng, f"[{seq[(i + 1) % n]} comes after {seq[i]}.|After {seq[i]} comes {seq[(i + 1) % n]}.]"))]
    return [(F(rng, f"[Which {kind} comes before {seq[i]}?|What {kind} is before {seq[i]}?]"), [f"Before {seq[i]} is {seq[(i - 1) % n]}."], F(rng, f"[{seq[(i - 1) % n]} comes before {seq[i]}.|It is {seq[(i - 1) % n]}.]"))]


def units(rng):
    small, big, n = rng.choice(W.UNITS)
    if rng.random() < 0.5:
        return [(F(rng, f"How many {small} [are there in|are in|does] {big}[?|?]").replace("does " + big, "are in " + big), [f"{big[0].upper() + big[1:]} has {n} {small}."], F(rng, f"[There are {n} {small} in {big}.|{big} has {n} {small}.]"))]
    k = rng.randint(2, 9)
    word = big.split()[1]
    many = {"century": "centuries", "dozen": "dozen"}.get(word, word + "s")
    return [(f"How many {small} are in {k} {many}?", [f"{big[0].upper() + big[1:]} has {n} {small}.", f"{k} times {n} is {k * n}."], F(rng, f"[There are {k * n} {small} in {k} {many}.|{k} {many} are {k * n} {small}.]"))]


def mix(rng):
    (x, y), z = rng.choice(list(W.MIX.items()))
    if rng.random() < .5:
        x, y = y, x
    return [(F(rng, f"[What do you get if you mix {x} and {y}?|Which colour do {x} and {y} make?|I mix {x} and {y} paint. What colour do I get?]"), [f"The colours are {x} and {y}.", f"Together they make {z}."], F(rng, f"[{x} and {y} make {z}.|You get {z}.]"))]


# ------------------------------------------------------------------------------------------------ arithmetic
def add_steps(x, y):
    if x < 10 and y < 10:
        return [f"{x} + {y} = {x + y}."]
    out, carry, i, xs, ys = [], 0, 0, str(x)[::-1], str(y)[::-1]
    while i < max(len(xs), len(ys)):
        p, q = int(xs[i]) if i < len(xs) else 0, int(ys[i]) if i < len(ys) else 0
        t = p + q + carry
        out.append(f"{('Ones', 'Tens', 'Hundreds', 'Thousands')[i]}: {p} + {q}{' + 1' if carry else ''} = {t}{', carry 1' if t > 9 else ''}.")
        carry = t // 10
        i += 1
    return out + [f"So the sum is {x + y}."]


def sub_steps(x, y):
    if y < 10:
        return [f"{x} - {y} = {x - y}."]
    t = y // 10 * 10
    return [f"{x} - {t} = {x - t}.", f"{x - t} - {y - t} = {x - y}."]


def mul_steps(x, y):
    if x < 10 and y < 10:
        return [f"{x} times {y} is {x * y}."]
    if x < y:
        x, y = y, x
    t = x // 10 * 10
    return [f"{x} is {t} + {x - t}.", f"{t} * {y} = {t * y}.", f"{x - t} * {y} = {(x - t) * y}.", f"{t * y} + {(x - t) * y} = {x * y}."]


def number(rng):
    r = rng.random()
    return rng.randint(1, 9) if r < .3 else rng.randint(10, 99) if r < .8 else rng.randint(100, 999)


def sums(rng):
    kind = rng.choice("++--**/")
    x, y = number(rng), number(rng)
    if kind == "-":
        x, y = max(x, y), min(x, y)
        z, why, names = x - y, sub_steps(x, y), ["{x} - {y}", "{x} minus {y}"]
    elif kind == "+":
        z, why, names = x + y, add_steps(x, y), ["{x} + {y}", "{x} plus {y}", "the sum of {x} and {y}"]
    elif kind == "*":
        x, y = rng.randint(2, 30), rng.randint(2, 9)
        z, why, names = x * y, mul_steps(x, y), ["{x} * {y}", "{x} times {y}", "{x} x {y}"]
    else:
        y, z = rng.randint(2, 9), rng.randint(2, 12)
        x = y * z
        why, names = [f"I look for a number that gives {x} when I multiply it by {y}.", f"{z} times {y} is {x}."], ["{x} / {y}", "{x} divided by {y}"]
    e = rng.choice(names).format(x=x, y=y)
    q = F(rng, f"[What is {e}?|Calculate {e}.|{e} = ?|How much is {e}?|Please compute {e}.|{e}]")
    if e.startswith("the"):
        q = F(rng, f"[What is {e}?|Calculate {e}.|Please give me {e}.]")
        return [(q, [f"I need {e}."] + why, F(rng, f"[It is {z}.|The sum is {z}.]"))]
    return [(q, [f"I need to compute {e}."] + why, F(rng, f"[{e} = {z}.|The answer is {z}.|{e} is {z}.|{z}]" if " = " not in q else f"[{e} = {z}|{z}]"))]


def word_problem(rng):
    n1, n2 = rng.sample(W.GIRLS + W.BOYS, 2)
    he = "she" if n1 in W.GIRLS else "he"
    t = rng.choice(["apple", "ball", "book", "coin", "cookie", "key", "pear", "plum", "pencil", "shell", "button", "stone", "egg", "stamp"])
    ts = t + "s"
    x, y = rng.randint(3, 40), rng.randint(2, 30)
    kind = rng.randrange(6)
    if kind == 0:
        z, why = x + y, [f"{n1} starts with {x} {ts} and gets {y} more.", f"{x} + {y} = {x + y}."]
        q = f"{n1} has {x} {ts}. {n2} gives {'her' if he == 'she' else 'him'} {y} more. How many {ts} does {n1} have now?"
    elif kind == 1:
        x, y = max(x, y) + 1, min(x, y)
        z, why = x - y, [f"{n1} has {x} {ts} and gives away {y}.", f"{x} - {y} = {x - y}."]
        q = F(rng, f"{n1} has {x} {ts}. {he.title()} [gives {y} of them to {n2}|loses {y} of them|sells {y} of them]. How many {ts} [are left|does {n1} have left|does {he} have now]?")
    elif kind == 2:
        x, y = rng.randint(2, 9), rng.randint(2, 9)
        z, why = x * y, [f"There are {x} boxes with {y} {ts} each.", f"{x} * {y} = {x * y}."]
        q = f"{n1} has {x} boxes. In each box there are {y} {ts}. How many {ts} are there?"
        return [(q, why, F(rng, f"[There are {z} {ts}.|There are {z} {ts} in all.]"))]
    elif kind == 3:
        y, z = rng.randint(2, 8), rng.randint(2, 9)
        q = f"{n1} shares {y * z} {ts} equally among {y} children. How many {ts} does each child get?"
        return [(q, [f"I divide {y * z} by {y}.", f"{y} * {z} = {y * z}, so it is {z}."], F(rng, f"[Each child gets {z} {ts}.|Every child gets {z} {ts}.]"))]
    elif kind == 4:
        z, why = x + y, [f"I add the {ts} of both.", f"{x} + {y} = {x + y}."]
        q = f"{n1} has {x} {ts} and {n2} has {y} {ts}. How many {ts} do they have together?"
        return [(q, why, F(rng, f"[Together they have {z} {ts}.|They have {z} {ts}.]"))]
    else:
        p = rng.randint(2, 9)
        k = rng.randint(2, 9)
        return [(f"One {t} costs {p} coins. How much do {k} {ts} cost?", [f"One {t} costs {p} coins.", f"{k} * {p} = {k * p}."], F(rng, f"[{k} {ts} cost {k * p} coins.|They cost {k * p} coins.]"))]
    return [(q, why, F(rng, f"[{n1} has {z} {ts}{' left' if kind == 1 else ''}.|{he.title()} has {z} {ts}{' left' if kind == 1 else ''}.]"))]


def compare(rng):
    x, y = number(rng), number(rng)
    if x == y:
        y += 1
    k = rng.randrange(4)
    if k == 0:
        return [(F(rng, f"[Which is bigger, {x} or {y}?|Which number is larger: {x} or {y}?]"), [f"I compare {x} and {y}.", f"{max(x, y)} is more than {min(x, y)}."], F(rng, f"[{max(x, y)} is bigger.|{max(x, y)} is bigger than {min(x, y)}.]"))]
    if k == 1:
        return [(F(rng, f"[Is {x} even or odd?|Is the number {x} odd or even?]"), [f"The last digit of {x} is {x % 10}.", f"{x % 10} is {'odd' if x % 2 else 'even'}."], f"{x} is {'odd' if x % 2 else 'even'}.")]
    if k == 2:
        s, d = rng.randint(1, 20), rng.randint(1, 10)
        seq = [s + d * i for i in range(5)]
        return [(F(rng, f"[What comes next: {', '.join(map(str, seq[:4]))}?|Continue the sequence: {', '.join(map(str, seq[:4]))}, ...]"), [f"The numbers grow by {d}.", f"{seq[3]} + {d} = {seq[4]}."], F(rng, f"[{seq[4]}|The next number is {seq[4]}.]"))]
    n = rng.sample(range(1, 99), rng.randint(3, 5))
    up = rng.random() < 0.6
    return [(F(rng, f"[Sort|Order|Put in order] these numbers{'' if up else ' from large to small'}: {', '.join(map(str, n))}"), [f"The {'smallest' if up else 'largest'} is {(min if up else max)(n)}."], ", ".join(map(str, sorted(n, reverse=not up))))]


def counting(rng):
    x, y = sorted(rng.sample(range(1, 30), 2))
    y = min(y, x + 14)
    up = rng.random() < 0.7
    seq = list(range(x, y + 1)) if up else list(range(y, x - 1, -1))
    return [(F(rng, f"[Count|Please count] from {seq[0]} to {seq[-1]}."), [f"I start at {seq[0]} and go {'up' if up else 'down'}."], ", ".join(map(str, seq)))]


# ------------------------------------------------------------------------------------------------ words
def word(rng):
    return rng.choice(W.THINGS + W.ANIMALS + W.FOODS + W.PLACES[:12] + W.ADJ + W.COLORS)


def spelling(rng):
    w, k = word(rng), rng.randrange(7)
    s = "-".join(w)
    if k == 0:
        return [(F(rng, f"[Spell the word {w}.|How do you spell \"{w}\"?|Spell {w}.]"), [f"The letters are {s}."], F(rng, f"[{s}|It is spelled {s}.]"))]
    if k == 1:
        return [(F(rng, f"[How many letters does \"{w}\" have?|How many letters are in the word {w}?]"), [f"The letters are {s}.", f"I count {len(w)}."], f"The word \"{w}\" has {len(w)} letters.")]
    if k == 2:
        return [(f"What is the first letter of \"{w}\"?", [f"The letters are {s}.", f"The first one is {w[0]}."], f"The first letter of \"{w}\" is \"{w[0]}\".")]
    if k == 3:
        return [(f"What is the last letter of \"{w}\"?", [f"The letters are {s}.", f"The last one is {w[-1]}."], f"The last letter of \"{w}\" is \"{w[-1]}\".")]
    if k == 4:
        return [(F(rng, f"[Write the word {w} backwards.|Reverse the word \"{w}\".]"), [f"The letters are {s}.", f"Backwards they are {'-'.join(w[::-1])}."], w[::-1])]
    if k == 5:
        return [(F(rng, f"[Write \"{w}\" in capital letters.|Put {w} in upper case.]"), ["I make every letter big."], w.upper())]
    ws = list({word(rng) for _ in range(rng.randint(3, 5))})
    rng.shuffle(ws)
    return [(f"Put these words in alphabetical order: {', '.join(ws)}", [f"The first letters are {', '.join(x[0] for x in ws)}."], ", ".join(sorted(ws)))]


KINDS = [("animals", W.ANIMALS), ("colours", W.COLORS), ("kinds of food", W.FOODS), ("places", W.PLACES), ("planets", W.PLANETS),
         ("days of the week", W.DAYS), ("months", W.MONTHS), ("trees", W.TREES), ("jobs", list(W.JOBS)), ("countries", list(W.CAPITALS)),
         ("capital cities", list(W.CAPITALS.values())), ("things", W.THINGS)]


def name_some(rng):
    kind, pool = rng.choice(KINDS)
    n = rng.randint(2, 5)
    pick = rng.sample(pool, n)
    q = F(rng, f"[Name|Give me|List|Tell me] {W.NUMBERS[n] if rng.random() < .7 else n} {kind}.")
    if rng.random() < 0.4:
        return [(q + rng.choice([" Use a list.", " Write a list.", " One per line."]), [f"The user wants {n} {kind} in a list."], "\n".join("- " + x for x in pick))]
    if rng.random() < 0.2:
        return [(q + " Number them.", [f"The user wants {n} {kind} with numbers."], "\n".join(f"{i + 1}. {x}" for i, x in enumerate(pick)))]
    return [(q, [f"The user wants {n} {kind}.", f"I can think of {listing(pick)}."], F(rng, f"[{W.NUMBERS[n]} {kind} are {listing(pick)}.|Here are {W.NUMBERS[n]} {kind}: {listing(pick)}.|{listing(pick)}.]"))]


def odd_one(rng):
    (k1, p1), (k2, p2) = rng.sample(KINDS[:3] + KINDS[6:10], 2)
    xs = rng.sample(p1, 3)
    o = rng.choice([x for x in p2 if x not in p1])
    all4 = xs + [o]
    rng.shuffle(all4)
    return [(F(rng, f"[Which word does not belong: {', '.join(all4)}?|Find the odd one out: {', '.join(all4)}.]"), [f"{listing(xs)} are {k1}.", f"{o} is one of the {k2}."], F(rng, f"[{o} does not belong. The others are {k1}.|It is {o}, because the others are {k1}.]"))]


def sentence_with(rng):
    w = rng.choice(W.THINGS + W.ANIMALS + W.FOODS)
    n = rng.choice(W.GIRLS + W.BOYS)
    s = F(rng, {0: f"[{n} has a {w}.|{n} found a {w} near the {rng.choice(W.PLACES)}.|There is a {rng.choice(W.COLORS)} {w} on the table.|Yesterday {n} saw a {w} at the {rng.choice(W.PLACES)}.|I would like to draw a {w}.]",
                1: f"[The {w} is {rng.choice(W.COLORS)} and {rng.choice(W.ADJ[:6])}.|{n} likes the {w} very much.|Where is the {w} of {n}?]"}[rng.randrange(2)])
    return [(F(rng, f"[Write a sentence with the word \"{w}\".|Use the word {w} in a sentence.|Make a sentence with {w}.]"), [f"I need a simple sentence that contains {w}."], s)]


def fix(rng):
    n, t, p = rng.choice(W.GIRLS + W.BOYS), rng.choice(W.THINGS), rng.choice(W.PLACES)
    bad, good = rng.choice([(f"{n} have a {t}.", f"{n} has a {t}."), (f"{n} go to the {p} every day.", f"{n} goes to the {p} every day."),
        (f"They was at the {p}.", f"They were at the {p}."), (f"{n} goed to the {p}.", f"{n} went to the {p}."), (f"{n} and I is friends.", f"{n} and I are friends."),
        (f"Yesterday {n} find a {t}.", f"Yesterday {n} found a {t}."), (f"{n.lower()} is at the {p}.", f"{n} is at the {p}."), (f"He don't have a {t}.", f"He doesn't have a {t}.")])
    good = F(rng, good)
    return [(F(rng, f"[Correct this sentence: {bad}|Find the mistake: {bad}|Is this right? {bad}]").replace("Is this right? " + bad, "Please correct: " + bad), ["I look at the verb and the spelling.", f"The right sentence is: {good}"], good)]


# ------------------------------------------------------------------------------------------------ what things are and can do
IS = dict(ice="cold hard", snow="cold white", fire="hot", sugar="sweet", honey="sweet yellow", salt="white salty", stone="hard heavy", iron="hard heavy", gold="yellow expensive", water="wet", grass="green soft", glass="hard", wool="soft warm", milk="white", lemons="sour yellow", coffee="hot brown",
          chocolate="sweet brown", bread="soft", coal="black", blood="red", cotton="soft light", sand="dry", steel="hard strong", feathers="light soft", cheese="yellow", rain="wet", soup="hot", winter="cold", summer="warm", night="dark", mud="wet brown", silver="grey expensive", silk="soft")
AGAINST = dict(cold="hot", hot="cold", hard="soft", soft="hard", white="black", black="white", sweet="sour", sour="sweet", heavy="light", light="heavy", wet="dry", dry="wet", warm="cold", dark="bright", expensive="cheap", strong="weak", salty="sweet", yellow="blue", green="red", red="green", brown="pink", grey="red")


def can_do(rng):
    """Abilities of animals, properties of things, where animals live: as people ask for them."""
    from plain import CAN, LIVES, SIZE
    k = rng.randrange(5)
    if k < 2:
        x = rng.choice(list(CAN))
        yes = rng.random() < 0.5
        what = CAN[x][0 if yes else 1]
        first = rng.choice(what.split(" and ")) if what.count(" and ") == 1 and "dark" not in what else what
        many = W.PLURALS.get(x, x + "s")
        q = F(rng, f"[Can {a(x)} {first}?|Can {many} {first}?|Is {a(x)} able to {first}?|Do you know if {many} can {first}?]")
        who = many if many in q else a(x)
        return [(q, [f"I think of {a(x)}.", f"{who.capitalize()} {'can' if yes else 'cannot'} {what}."], F(rng, f"Yes, {who} can {what}." if yes else f"No, {who} cannot {what}. [But {'they' if who == many else 'it'} can {CAN[x][0]}.|]"))]
    if k == 2:
        x = rng.choice(list(IS))
        p = rng.choice(IS[x].split())
        yes = rng.random() < 0.5
        v = "are" if x in ("lemons", "feathers") else "is"
        q = f"{v.capitalize()} {x} {p if yes else AGAINST[p]}?"
        return [(q, [f"I think of {x}.", f"{x.capitalize()} {v} {p}."], f"Yes, {x} {v} {p}." if yes else f"No, {x} {v} {p}.")]
    if k == 3:
        x = rng.choice(list(LIVES))
        many = W.PLURALS.get(x, x + "s")
        return [(F(rng, f"[Where do {many} live?|Where does {a(x)} live?|Where can I find {a(x)}?]"), [f"I think of {a(x)}."], F(rng, f"[{many} live|{a(x)} lives] {LIVES[x]}."))]
    x, y = rng.sample(["a mouse", "a cat", "a dog", "a sheep", "a horse", "an elephant", "a whale"], 2)
    size = ["a mouse", "a cat", "a dog", "a sheep", "a horse", "an elephant", "a whale"].index
    big = x if size(x) > size(y) else y
    small = y if big == x else x
    if rng.random() < 0.5:
        return [(f"Which is bigger, {x} or {y}?", [f"I compare {x} and {y}."], F(rng, f"{big} is bigger than {small}."))]
    return [(f"Is {x} bigger than {y}?", [f"I compare {x} and {y}."], f"Yes, {x} is bigger than {y}." if big == x else f"No, {x} is smaller than {y}.")]


def plain_sums(rng):
    """Sums in the words of a shop or a kitchen."""
    x, y = sorted((rng.randint(2, 100), rng.randint(1, 60)), reverse=True)
    n = rng.choice(W.GIRLS + W.BOYS)
    t = rng.choice("apples eggs books coins pencils cookies stamps balls".split())
    q, z = rng.choice([(f"I have {x} {t} and lose {y}. How many are left?", x - y), (f"I have {x} {t}. I give {n} {y}. How many do I have now?", x - y), (f"If you have {x} {t} and I take {y} away, how many {t} do you have?", x - y),
                       (f"What is {x} take away {y}?", x - y), (f"Take {y} from {x}.", x - y), (f"Add {x} and {y}.", x + y), (f"What do you get when you add {y} to {x}?", x + y), (f"There are {x} {t} on the table and {y} in the box. How many are there in all?", x + y), (f"What is 100 minus {min(x, 100)}?", 100 - min(x, 100)), (f"100 - {min(x, 100)}", 100 - min(x, 100)), (f"Subtract {y} from {x}.", x - y)])
    op = f"{x} - {y} = {z}." if z == x - y and "100 " not in q else f"{x} + {y} = {z}." if z == x + y else f"100 - {100 - z} = {z}."
    return [(q, [op], F(rng, f"[{z}|The answer is {z}.|{op[:-1]}.]"))]
