"""Documents of simple English without chat format: causes and effects, days, people, places, animals, talks, letters, advice."""
import random
import re

import stories
import words as W
from everyday import I, LEXICON, MORE_BOYS, MORE_GIRLS, WE, Teller, Who, Words, animal, cut, layout, person
from grammar import a, fill, listing
from reactions import ACTS, ANIMAL_ACTS, ANIMALS, FREE, HABIT_TIMES, PEOPLE, TIMES, WEATHER
from scripts import EVENTS, TALES


def phrase(vp):
    """A verb phrase after its subject: the first verb agrees, "not" asks for do."""
    if vp.startswith("not "):
        return "<do> not " + vp[4:]
    if vp.startswith("cannot "):
        return "<can> not " + vp[7:]
    first, _, rest = vp.partition(" ")
    return f"<{first}> {rest}".strip()


def base(vp):
    """A verb phrase after to or can."""
    return re.sub(r"<(\w+)>", r"\1", vp)


def lower(s):
    return s[0].lower() + s[1:]


def wanted(vp):
    """Can it be something that one decides?"""
    return vp.split()[0] not in "not cannot fall forget miss have catch steal begin know lose find shake smile cry sleep own".split() and not re.search(r"<(can|want|think|expect|like|open|reach|feel)>", vp)


def after(vp):
    """(phrase, sentence that follows or None)"""
    x = vp.split(" // ")
    return x[0], x[1] if len(x) > 1 else None


def tidy(text):
    text = text.replace("can not", "cannot").replace("could cannot", "could not").replace(" .", ".").replace("..", ".")
    text = re.sub(r"\bi\b(?!')", "I", re.sub(r"\b(could|did|does|do) not cannot", r"\1 not", text))
    text = re.sub(r"\bI and (he|she|[A-Z]\w+|(?:the|my) [a-z ]+?) (were|are|like|liked|want|wanted|have|had)\b", lambda m: m[1][0].upper() + m[1][1:] + " and I " + m[2], text)
    text = re.sub(r'"([^"?]*)\?"( (?:\w+ ){0,4}?(?:asked|asks|ask|said|says|say|thought|think|thinks)\b)?', not_asked, text)
    return re.sub(r"([.!?]\"?)\1", r"\1", text)


STATE_VERBS = ["S <be> {x}.", "S <be> {x}.", "S <be> very {x}.", "S <feel> {x}.", "S <be> so {x} that {i} {vp}.", "S <be> {x}, so {i} {vp}.", "S <be> {x} and {vp}.", "Because S <be> {x}, {i} {vp}.",
               "S {vp}, because {i} <be> {x}.", "S <be> {x}. So {i} {vp}.", "S <be> {x}, but {i} {other}.", "When S <be> {x}, {i} {vp}.", "S <be> {x} again.", "That [day|evening|morning], S <be> {x}."]


QUESTION = re.compile(r"(who|what|where|when|why|how|which|whose|is|are|am|do|does|did|can|could|may|shall|will|would|have|has|must|and|really|another|anything|so)\b", re.I)


def not_asked(m):
    """A statement with a question mark behind it, from a template whose other choices are questions."""
    if QUESTION.match(re.split(r"[.!?] |, ", m[1])[-1]) or QUESTION.match(m[1]) and "how strange" not in m[1].lower():
        return m[0]
    return f'"{m[1]},"' + (m[2] or "").replace("asked", "said").replace("asks", "says").replace("ask", "say") if m[2] else f'"{m[1]}."'


def state(rng, t, table, extra=True):
    """A state of the subject and what comes of it."""
    x = rng.choice(list(table))
    vp, then = after(rng.choice(table[x]))
    if x in ("late", "lost", "ill") and rng.random() < .3:
        form = "S <be> {x}, so {i} {vp}."
    else:
        form = rng.choice(STATE_VERBS)
    other, _ = after(rng.choice(FREE if table is PEOPLE else table[rng.choice(list(table))]))
    if form.startswith("S <feel>") and x in ("late", "wet", "lost", "rich", "poor", "busy"):
        form = "S <be> {x}."
    used = "{vp}" in form
    if "that {i}" in form and vp.startswith(("not ", "go", "fall", "begin", "forget", "have", "cannot")) is False and rng.random() < .5:
        form = "S <be> {x}, so {i} {vp}."
    parts = [form.replace("{x}", x).replace("{vp}", phrase(vp)).replace("{other}", phrase(other))]
    if not used:
        parts.append(rng.choice(["S {vp}.", "S {vp}.", "{i} {vp}.", "So S {vp}.", "Then {i} {vp}.", "At last, {i} {vp}.", "After a while, {i} {vp}.", ] + ["{i} <want> to {b}.", "{i} <decide> to {b}."] * wanted(vp)).replace("{vp}", phrase(vp)).replace("{b}", base(vp)))
    if then:
        parts.append(then)
    if extra and rng.random() < .6:
        vp2, then = after(rng.choice(table[x]))
        if vp2 != vp:
            parts.append(rng.choice(["Then {i} {vp}.", "After that, {i} {vp}.", "Later, S {vp}.", "The next day, S {vp}.", "{i} also {vp}.".replace("also ", "")]).replace("{vp}", phrase(vp2)))
            if then:
                parts.append(then)
    return parts


def reaction_doc(rng):
    t = Teller(rng, animal(rng) if rng.random() < .3 else None)
    table = ANIMALS if t.who.i == "it" or t.who.name.split()[-1] in ANIMAL_WORDS else PEOPLE
    out = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        out += t.lines(state(rng, t, table))
    return layout(rng, cut(rng, out))


ANIMAL_WORDS = set("cat dog kitten puppy rabbit bird horse mouse hen duck fox bear squirrel hedgehog owl deer wolf monkey elephant lion turtle frog goose crow Max Bella Rex Luna Snowy Tiger Coco Lucky Spot Daisy Rocky Minka Fluffy Ginger".split())


def act_doc(rng):
    pet = rng.random() < .25
    t = Teller(rng, animal(rng) if pet else None)
    out = []
    for _ in range(rng.choice([1, 2, 2])):
        table = ANIMAL_ACTS if pet else ACTS
        act = rng.choice(list(table))
        why = rng.choice(table[act])
        out += t.lines([rng.choice(["S {v} because {w}.", "S {v} because {w}.", "S {v}, because {w}.", "Because {w}, S {v}.", "S {v}. {W}.", "{W}, so S {v}.", "S {v}, but {o}.", "{tm}, S {v} because {w}."])
                        .replace("{v}", phrase(act)).replace("{w}", why).replace("{W}", why).replace("{tm}", rng.choice(TIMES)).replace("{o}", rng.choice(["nobody <it:know> why", "F <f:do> not", "it <it:be> not a good idea", "nobody <it:see> {me}"]))])
        out += t.lines([rng.choice(FOLLOW)] if not pet else [rng.choice(["At last, {i} <find> a quiet place.", "Then the girl <it:come> and <it:take> {me} in her arms.", "After a while, everything <it:be> quiet again.", "{i} <wait> there until the evening."])])
        if not pet and rng.random() < .5:
            out += t.lines(state(rng, t, PEOPLE, False))
    return layout(rng, cut(rng, out))


FOLLOW = ["{my} friends <they:do> not understand it.", "F <f:ask> {me} about it.", "\"[Why|What is the matter|Are you all right]?\" <f:ask> F.", "In the evening, {i} <tell> {my} family about it.", "It <it:be> a good idea.", "Nobody <it:say> anything.", "Then {i} <meet> F.",
          "{i} <do> not want to talk about it.", "F <f:come> too.", "After {duration}, {i} <go> home.", "That <it:be> not easy.", "Everybody <it:look> at {me}.", "F <f:smile> and <f:say>, \"[That is good|I know|Of course|Do not worry].\"", "It <it:be> {day}."]


def free(rng):
    return rng.choice(FREE)


def weather_doc(rng):
    t = Teller(rng, tense="past")
    w = rng.choice(list(WEATHER))
    clause = fill(rng, "[" + w + "]")
    vps = rng.sample(WEATHER[w], 2)
    out = t.lines([rng.choice(["{W}, so S {v}.", "{W}, so S {v}.", "{W}, and S {v}.", "{W}. S {v}.", "S {v}, because {w}.", "Because {w}, S {v}.", "{tm}, {w}. S {v}.", "{W}, but S {o}.", "{W}, so S <decide> to {b}."])
                   .replace("{W}", clause).replace("{w}", lower(clause)).replace("{v}", phrase(vps[0])).replace("{b}", base(vps[0]) if wanted(vps[0]) else "stay at home").replace("{tm}", rng.choice(["yesterday", "on {day}", "that day", "last {day}", "one morning"])).replace("{o}", phrase(free(rng)))])
    out += t.lines(["?" + rng.choice(["{i} " + phrase(vps[1]) + ".", "Then {i} " + phrase(vps[1]) + "."]), "?F <f:come> too.", rng.choice(["[After {duration}|In the afternoon|In the evening], [the weather changed|it stopped|the sky was clear again|the stars came out].", "They all had a [good|wonderful] time." if t.who.number == 0 else "It was a [good|nice|quiet|wonderful] day.", "In the evening, {i} " + phrase(free(rng)) + ".", "The next day, {w2}.".replace("{w2}", lower(fill(rng, "[" + rng.choice(list(WEATHER)) + "]")))])])
    if rng.random() < .4:
        out += t.lines(state(rng, t, PEOPLE, False))
    return layout(rng, cut(rng, out))


def day_doc(rng):
    """Free actions in an order of time; also habits in the present."""
    habit = rng.random() < .45
    t = Teller(rng, tense="present" if habit else "past")
    times = HABIT_TIMES if habit else TIMES
    out = []
    for k in range(rng.randint(2, 6)):
        v = phrase(free(rng))
        tm = rng.choice(times)
        form = rng.choice(["S {v}.", "{tm}, S {v}.", "S {v} {tm}.", "{tm}, S {v} and {v2}.", "S <like> to {b}.", "S <want> to {b}, but {i} {v2}.", "S {v}, and then {i} {v2}.", "S and F <they:like> to {b} {tm}." if habit else "S and F <they:want> to {b}.",
                           "When S <be> at home, {i} {v}." if habit else "Before S <go> to bed, {i} {v}.", "S never {v}." if habit else "First, S {v}. Then {i} {v2}."])
        if tm in ("often", "sometimes", "usually", "always") and form.startswith("S {v} {tm}"):
            form = "S {tm} {v}."
        if tm in ("often", "usually", "always"):
            form = "S {tm} {v}." if habit and t.who.number != 9 else "S {v}."
        out += t.lines([form.replace("{v2}", phrase(free(rng))).replace("{v}", v).replace("{b}", base(free(rng))).replace("{tm}", tm)])
        if rng.random() < .3:
            out += t.lines([rng.choice(["It <it:be> [very nice|fun|hard work|quiet there|always the same].", "F <f:help> {me}.", "{i} <like> it very much.", "That <it:make> {me} happy.", "{i} <do> not have much time for it.", "It <it:take> {duration}."])])
    return layout(rng, cut(rng, out))


def event_doc(rng):
    t = Teller(rng)
    return layout(rng, cut(rng, t.lines(rng.choice(EVENTS))))


def tale_doc(rng):
    t = Teller(rng, Who("the child", "it", "it", "its", "itself", 3), "past")
    return layout(rng, cut(rng, t.lines(rng.choice(TALES))))


PERSON = ["S <be> [a {job}|{number} years old|from {country}|very {trait}|{trait} and {trait2}|tall and thin|small but strong|a good {job}].", "S <work> in a {work}.", "S <work> in a {work} in {city}.", "S <work> as a {job}.", "S <live> in {city}.", "S <live> in a [small|big|old|nice] [house|flat] near the {place}.",
          "S <have> {hair} hair and {eyes} eyes.", "S <have> {small} [children|brothers|sisters|cats|dogs].", "S <have> a {pet}. It <it:be> called [Coco|Max|Bella|Lucky|Rex].", "{my} favourite [food|dish] <it:be> {food}.", "{my} favourite colour <it:be> {color}.", "{my} hobby <it:be> {hobby}.", "{my} hobbies <they:be> {hobby} and {hobby2}.",
          "S <like> {hobby}, {hobby2} and {hobby3}.", "S <like> {food}, but {i} <do> not like {food2}.", "S <do> not like [{food}|getting up early|loud music|the rain|big cities|spiders].", "S <can> [swim|sing|cook|dance|play the {instrument}|ride a horse|speak English and French] very well.", "S <can> not [swim|sing|cook|drive a car].",
          "S <get> up at {time} every day.", "S <go> to [work|school|town] by {vehicle}.", "S often <wear> a {color} {wear}.", "S <be> [never|always|often] [late|in a good mood|at home in the evening|friendly].", "Everybody <it:like> {me}, because {i} <be> so {trait}.", "On {day}s, S <play> {sport} with {name}.", "At the weekend, S {free}.", "In the evening, S {free}.",
          "As a child, {i} wanted to be a {job}.", "S <want> to travel to {country} one day.", "S <dream> of [a house by the sea|a trip around the world|a garden with an old {tree}|a life in {city}].", "S <know> a lot about [animals|plants|the stars|old songs|{country}|{sport}].", "{my} best friend <it:be> {name}.", "F <f:be> {my} [neighbour|best friend].", "S <make> the best {food} in the [world|village|town].", "S <tell> the best stories.", "S <play> the {instrument} in a small band.", "In {season}, S {free}."]


def person_doc(rng):
    t = Teller(rng, tense=rng.choice(["present", "present", "present", "past"]))
    parts = rng.sample(PERSON, rng.randint(3, 8))
    if rng.random() < .4:
        parts.sort(key=PERSON.index)
    if t.who.number != 3:
        parts = [p for p in parts if "a {job}" not in p and "child" not in p and "Everybody" not in p]
        if t.who.number == 0:
            parts = [re.sub(r"\ba good \{job\}|as a \{job\}", "friendly" if "good" in p else "in a {work}", p).replace("hobby <it:be>", "hobby <it:be>") for p in parts]
    out = t.lines([p.replace("{free}", phrase(free(rng))) for p in parts])
    return layout(rng, out)


THINGS = ["The {X} <it:be> {size} and {color}.", "It <it:be> made of [wood|metal|glass|stone|paper|leather|silver|gold].", "It <it:be> very old.", "My [grandfather|mother|aunt|father] <it:give> it to me.", "It <it:stand> [in the {room}|near the window|on the {furniture}|behind the door|in the corner].",
          "I [found|bought|got] it [in {city}|at the market|many years ago|on a journey|last {season}].", "Nobody <it:know> where it <it:come> from.", "I <like> it very much.", "When you look at it, you think of [summer|the sea|old times|home].", "It <it:cost> only {number} [euros|pounds|dollars].", "It <it:be> still in good condition."]
ROOMS = ["The {place} <it:be> {size}.", "The {place} <it:be> [full of people|empty|very quiet|closed|open every day|near the {place2}|a place where you can meet friends].", "There <they:be> [many people|{number} chairs|some old pictures|{flower} and {flower2}|children everywhere|birds in the trees] there.", "In the middle <it:stand> a {tree}.", "On the left <it:be> [a bench|a wall|a row of trees|the {place3}], and on the right <it:be> [a road|a garden|an old house|the {nature}].",
         "The walls <they:be> {color}.", "The windows <they:be> [big|small|open|dirty].", "Behind it <it:be> the {nature}.", "You can [see the {nature}|hear the birds|smell the flowers|buy {item}] there.", "In {season}, it <it:be> [very beautiful|cold|full of life|quiet].", "People <they:come> from [far away|all over the town|{country}] to see it.", "A {animal} <it:sit> [on the wall|under a tree|by the door].", "It <it:smell> of [bread|flowers|fish|coffee|paint|old books].", "I <like> to go there [in the morning|with my friends|on {day}s|when I am sad].", "The picture on the {furniture} <it:be> of [a ship|a woman|the sea|a {animal}|mountains]."]
HOUSE = ["The [kitchen|bedroom|living room|bathroom|hall|garage|attic|office|classroom|shop|café|garden] <it:be> [full of {item}|full of people|small but bright|dark and cold|warm|empty|clean|full of old things|on the first floor|behind the house].", "There <it:be> [a {furniture}|a big {furniture}|an old {furniture}|a {color} {furniture}] in the [corner|middle|room] and [a {furniture2}|some flowers] by the window.",
         "On the table <they:be> [{item} and {item2}|some books|a glass and {small} plates|cups and spoons].", "On the wall <it:hang> [a clock|a mirror|a picture of the {nature}|a map of {country}].", "[Somebody|A woman|{name}] <it:cook> {meal}.", "The door <it:be> [open|closed|{color}].", "The light <it:be> on.", "From outside, you <they:hear> [the rain|children|music|a dog|the church bell].", "A {pet} <it:sleep> [under the {furniture}|on the {furniture}|by the stove]."]
SUBJECTS = [THINGS, ROOMS, HOUSE]


def description_doc(rng):
    t = Teller(rng, Who("I", *I), rng.choice(["present", "present", "past"]))
    t.said = True
    kind = rng.choice(SUBJECTS)
    thing = rng.choice("table chair bed lamp house car clock watch bicycle boat bag coat ring vase picture box bridge tower door guitar piano book mirror cup".split())
    parts = rng.sample(kind, rng.randint(3, min(6, len(kind))))
    if rng.random() < .7:
        parts.sort(key=kind.index)
    out = t.lines([p.replace("{X}", thing) for p in parts])
    return " ".join(x.replace("I gives", "I give").replace(" gives it to me", " gave it to me") for x in out)


SIZE = dict(elephant="very big", horse="big", cow="big", lion="big", bear="big", dog="friendly", cat="small", mouse="very small", bee="very small", ant="tiny", rabbit="small", fox="clever", wolf="wild", pig="fat", sheep="quiet", goat="curious", hen="small",
            duck="small", owl="quiet", frog="small and green", squirrel="quick", monkey="funny", penguin="funny", spider="small", panda="black and white", snake="long", snail="slow", turtle="slow", whale="huge", giraffe="very tall", crocodile="dangerous", eagle="strong", swan="white", hedgehog="small", deer="shy", donkey="grey", camel="strong", butterfly="light", crab="small", fish="quiet")
CAN = dict(elephant=("swim", "fly"), horse=("run fast", "climb trees"), cow=("give milk", "fly"), lion=("run fast", "fly"), bear=("climb and swim", "fly"), dog=("swim and run", "fly"), cat=("climb trees", "fly"), mouse=("run fast", "fly"), bee=("fly", "swim"), ant=("carry heavy things", "swim"), rabbit=("run and jump", "fly"),
           fox=("run fast", "fly"), wolf=("run for hours", "climb trees"), pig=("swim", "fly"), sheep=("walk far", "fly"), goat=("climb rocks", "fly"), hen=("lay eggs", "swim"), duck=("swim and fly", "climb trees"), owl=("fly and see in the dark", "swim"), frog=("jump and swim", "fly"), squirrel=("climb trees", "fly"),
           monkey=("climb trees", "fly"), penguin=("swim", "fly"), spider=("make a web", "fly"), panda=("climb trees", "fly"), snake=("swim", "walk"), snail=("carry its house", "run"), turtle=("swim", "fly"), whale=("swim and dive", "walk"), giraffe=("run fast", "fly"), crocodile=("swim", "fly"), eagle=("fly very high", "swim"),
           swan=("swim and fly", "climb trees"), hedgehog=("roll into a ball", "fly"), deer=("run and jump", "fly"), donkey=("carry heavy bags", "fly"), camel=("walk for days without water", "fly"), butterfly=("fly", "swim"), crab=("walk sideways", "fly"), fish=("swim", "walk"))
LIVES = dict(elephant="in Africa and Asia", horse="on a farm", cow="on a farm", lion="in Africa", bear="in the forest", dog="with people", cat="with people", mouse="in houses and fields", bee="in a hive", ant="in an anthill", rabbit="in the fields", fox="in the forest", wolf="in the forest", pig="on a farm", sheep="on a farm", goat="on a farm",
             hen="on a farm", duck="near the water", owl="in the forest", frog="near the water", squirrel="in the trees", monkey="in the trees", penguin="in the south, where it is cold", spider="in its web", panda="in China", snake="in warm places", snail="in gardens", turtle="in the sea and on land", whale="in the sea", giraffe="in Africa",
             crocodile="in warm rivers", eagle="in the mountains", swan="on lakes", hedgehog="in gardens", deer="in the forest", donkey="on a farm", camel="in the desert", butterfly="in gardens and fields", crab="on the beach", fish="in the water")


def animal_doc(rng):
    """Facts about an animal, in the singular or the plural."""
    x = rng.choice(list(SIZE))
    many = rng.random() < .35
    plural = W.PLURALS.get(x, x + "s")
    s = rng.choice([plural, plural]) if many else rng.choice([a(x), "the " + x])
    it = "they" if many else "it"
    v = lambda one, more: more if many else one
    facts = [f"{s} {v('is', 'are')} {v(a(SIZE[x] + ' animal') if not SIZE[x].startswith('very') else 'a ' + SIZE[x] + ' animal', SIZE[x] + (' animals' if 'and' not in SIZE[x] else ''))}.",
             f"{it} {v('lives', 'live')} {LIVES[x]}.", f"{it} can {CAN[x][0]}, but {it} cannot {CAN[x][1]}." if rng.random() < .5 else f"{it} can {CAN[x][0]}."]
    if x in W.EATS:
        facts.append(f"{it} {v('eats', 'eat')} {W.EATS[x]}.")
    if x in W.LEGS and not many:
        facts.append(f"It has {W.NUMBERS[W.LEGS[x]] if W.LEGS[x] else 'no'} legs.")
    if x in W.BABIES:
        facts.append(f"A baby {x} is called {a(W.BABIES[x])}.")
    if x in W.SOUNDS and not many:
        facts.append(f"It says \"{W.SOUNDS[x]}\".")
    rest = facts[1:]
    rng.shuffle(rest)
    more = ["People like {p}.", "Children often draw {p}.", "You can see {p} in the zoo.", "There are many stories about {p}.", "I saw one last {season}.", "My {rel} is afraid of {p}.", "In winter, {it} {needs} more food."]
    m = fill(rng, rng.choice(more), Words(rng, p=plural, it=it, rel=rng.choice(["sister", "brother", "aunt"]), needs=v("needs", "need")))
    return fill(rng, " ".join([facts[0]] + rest[:rng.randint(1, len(rest))] + ([m] if rng.random() < .4 else [])))


TALKS = [s.split("|||") for s in [
    "Where are you going?|||[I am going to the {place}.|To the {place}.|Home.|I want to visit my {rel}.]|||[May I come with you?|Can I come too?|Why?]|||[Of course.|Yes, come along.|No, I have to go alone.|Because I have to buy some {item}.]|||[Then let us go together.|All right. See you later!]",
    "What is your name?|||[My name is {name}.|I am {name}.|{name}. And you?]|||[Nice to meet you, {name}. I am {name2}.|My name is {name2}.|That is a nice name. I am {name2}.]|||[Where do you come from?|Do you live here?|How old are you?]|||[I come from {city}.|Yes, in the house near the {place}.|I am {number} years old.]",
    "Are you hungry?|||[Yes, very.|A little.|No, thank you.|Yes, I have not eaten all day.]|||[There is some {food} in the kitchen.|Would you like some {food}?|We can go to a restaurant.]|||[That would be nice.|Thank you, I love {food}.|I would like some {food2}.]|||[Sit down, please.|Here you are.|Wait a moment.]",
    "What did you do [yesterday|on {day}|last weekend]?|||[I went to the {place}.|I stayed at home and read a book.|I played {sport} with {name}.|Nothing special.]|||[Was it nice?|Did you have fun?|How was it?]|||[Yes, it was great.|It was too cold.|Not really. It rained all day.|Yes, and I met {name2} there.]|||[Next time I will come too.|I was at home all day.|That sounds good.]",
    "[How are you?|How do you feel today?]|||[I am fine, thank you.|Not so well. I have {ill}.|I am tired.|Very well, and you?]|||[I am fine too.|Oh, I am sorry.|You should go to bed.|I had a long day.]|||[Thank you.|I will.|Let us have some tea.|See you tomorrow.]",
    "[Excuse me, where|Hello, where|Can you tell me where] is the {place}?|||[Go straight on and then turn left.|It is next to the {place2}.|I do not know. I am new here.|It is not far. You can walk.]|||[Thank you very much.|How long does it take?|Is it open today?]|||[You are welcome.|Ten minutes.|Yes, until {evening_time}.]",
    "[Have you seen my {thing}?|Where is my {thing}?|I cannot find my {thing}.]|||[Look under the {furniture}.|Maybe it is in the {room}.|Did you look in your bag?]|||[I have looked there.|It is not there.|No. Can you help me?]|||[Of course. Let us look together.|You always lose your things.|Then ask {name2}.]",
    "How much [is the {wear}|are the {item}|is the {furniture}]?|||[{number} euros.|It is {number} pounds.|Only {small} dollars.]|||[That is too much.|That is cheap.|I will take it.|Can I pay with a card?]|||[Yes, of course.|I am sorry.|Here you are. Thank you.|I can give it to you for less.]",
    "Can you help me, please?|||[Of course. What can I do?|Yes, what is wrong?|I am sorry, I have no time.]|||[I cannot open the door.|This {furniture} is too heavy for me.|I do not understand this question.|I have lost my {thing}.]|||[Let me try.|We can do it together.|That is easy.|Let us ask {name}.]|||[Thank you so much.|You are very kind.]",
    "What is the weather like?|||[It is {weather}.|It is raining.|The sun is shining.|It is very cold.]|||[Then let us stay at home.|Then we can go to the {nature}.|I need my {wear}.|Good, I want to work in the garden.]|||[Good idea.|All right.|And what do we do tomorrow?]",
    "What would you like to [eat|drink], please?|||[I would like some {food}, please.|A glass of {drink}, please.|What do you have today?|{dish} and a glass of {drink}.]|||[Anything else?|With pleasure.|We have {food2} and {food3}.]|||[No, thank you.|Yes, some {food3}, please.|Then I will take the {food2}.]|||[It will be ready soon.|Here you are.|Enjoy your meal.]",
    "When does the {vehicle} leave?|||[At {time}.|In ten minutes.|It is already gone.|I do not know.]|||[Then we must hurry.|Thank you.|Is there another one today?]",
    "Why are you [sad|crying|so quiet]?|||[I have lost my {thing}.|My {pet} is ill.|Nobody wants to play with me.|I miss my {rel}.]|||[Do not cry. I will help you.|I am sorry to hear that.|Come and play with me.|Everything will be all right.]|||[Thank you.|You are a good friend.|Do you really think so?]",
    "Do you like {food}?|||[Yes, very much.|No, I do not.|Yes, but I like {food2} better.|I have never tried it.]|||[I eat it every day.|My {rel} makes the best {food}.|I do not like it either.]|||[Can I come to dinner?|Really?|What is your favourite food?]",
    "[Look, there is a {animal}!|Did you see the {animal}?]|||[Where?|I cannot see it.|Yes, how beautiful!]|||[Over there, under the {tree}.|It is gone now.|Be quiet, or it will run away.]|||[It is so small.|I have never seen one before.|Now I see it.]",
    "[Hurry up|Come on|Get up], {name}! [It is late.|It is already {time}.|We have to go.]|||[I am coming.|Just five minutes more.|I cannot find my {wear}.]|||[The {vehicle} will not wait for us.|Your breakfast is on the table.|Everybody is waiting.]|||[I am ready.|All right, all right.|Then we take a taxi.]",
]]
RELATIVES = "mother sister brother grandmother father uncle aunt cousin grandfather friend".split()


def talk_doc(rng):
    names = rng.sample(LEXICON["name"], 3)
    words = Words(rng, rel=rng.choice(RELATIVES), name=names[2], name2=names[1])
    turns = rng.choice(TALKS)
    lines = [fill(rng, x, words) for x in turns]
    t = Teller(rng, tense="past")
    if turns is TALKS[1]:
        return "\n".join(f"{'AB'[i % 2]}: {x}" for i, x in enumerate(lines))
    if rng.random() < .35:                                           # as a play
        who = names[:2] if rng.random() < .6 else rng.choice([["Mother", "Child"], ["Teacher", "Student"], ["A", "B"], ["Woman", "Man"], ["Customer", "Waiter"]])
        return "\n".join(f"{who[i % 2]}: {x}" for i, x in enumerate(lines))
    people = [t.say("S"), t.say("F")]
    out = []
    for i, x in enumerate(lines):
        who = (people[i % 2] if i < 2 or rng.random() < .5 else [t.who.i, t.friend.i][i % 2])
        who = who if who == "I" or who[0].isupper() and who.split()[0] not in ("The", "My", "A", "One", "He", "She", "They", "We", "Our", "His", "Her", "That") else lower(who)
        who = re.sub(r"^(a|one) ", "the ", who) if i > 1 else who
        tag = rng.choice(["asked", "asked", "said"] if x.endswith("?") else ["said", "said", "answered", "replied"] if i else ["said", "called"])
        form = rng.random()
        body = x[:-1] + "," if x.endswith(".") else x
        if form < .6 or i < 1:
            out.append(f"\"{body}\" {tag} {who}." if who not in ("I", "he", "she", "they", "we") else f"\"{body}\" {who} {tag}.")
        elif form < .8:
            out.append(f"{who[0].upper() + who[1:]} {tag}, \"{x}\"")
        else:
            out.append(f"\"{x}\"")
    end = t.lines([rng.choice(["?Then they went [home|away|on together].", "?S smiled.", "?F looked at {me} and [laughed|nodded|smiled].", "?They both laughed."])])
    return rng.choice([" ", "\n", "\n"]).join(out + end)


LETTER = ["[how are you|how are you and your family|I hope you are well|thank you for your letter|thank you for the {present0}|I am writing to you from {city}|I have good news|I am sorry that I did not write earlier].", "We have been in {city} for {small} days now.", "The weather is {weather}, and we go to the {nature} every day.", "Yesterday we visited the {place} and ate {food}.", "I have a new [job|flat|friend|{pet}].",
          "My [mother|father|sister|brother] is well again.", "[School|Work] begins again on {day}.", "In {month}, I will [come to {city}|be {number} years old|go to {country}|start a new job].", "We are having a party on {day} at {evening_time}. Can you come?", "Do you still [play the {instrument}|live in {city2}|like {food2}]?", "I often think of [you|our summer by the {nature}|the old days].", "Our {pet} has [{small} babies|run away|grown so much].", "Please [write soon|call me when you can|come and visit us|say hello to {name2}|send me a photo of the {animal}].", "[I miss you|I hope to see you soon|I am looking forward to your answer|Take care]."]


def letter_doc(rng):
    g = rng.choice(["Dear", "Dear", "Dear", "Hello", "Hi", "My dear"]) + " " + rng.choice(["{name}", "{name}", "{name}", "Mum and Dad", "Grandmother", "friend", "Aunt {girl}", "Mr Brown", "Mrs Green"])
    w = Words(rng, present0=rng.choice(["book", "flowers", "photos", "present", "invitation", "cake", "lovely card", "scarf"]))
    parts = [LETTER[0]] + sorted(rng.sample(LETTER[1:-2], rng.randint(1, 5)), key=LETTER.index) + (LETTER[-2:-1] if rng.random() < .5 else []) + LETTER[-1:]
    first = fill(rng, parts[0], w)
    if rng.random() < .6:
        first = first[0].lower() + first[1:] if not first.startswith("I ") else first
    first = first[:-1] + ("?" if first.lower().startswith("how are") else ".")
    body = " ".join([first] + [fill(rng, p, w) for p in parts[1:]])
    sep = rng.choice(["\n\n", "\n", " "])
    bye = fill(rng, rng.choice(["Love,", "Yours,", "Best wishes,", "With love,", "Kind regards,", "Your friend,", "See you soon,"]) + rng.choice([" ", "\n"]) + "{name3}", w)
    return fill(rng, g, w) + "," + sep + body + sep + bye


ADVICE = """You should drink [water|a lot of water] when [it is hot|you are thirsty|you do sport].;You should [wear a coat|put on a hat|wear gloves] when it is cold.;Wash your hands before you eat.;You must not [play|run] on the road.;Look left and right before you cross the street.;If you are tired, go to bed early.;If it rains, take an umbrella.;If you are ill, stay in bed and call a doctor.
If you are lost, ask [a policeman|somebody] for the way.;Brush your teeth every morning and every evening.;Eat fruit and vegetables every day.;Too much sugar is bad for your teeth.;Never swim alone in the {nature}.;You need [flour, milk and eggs|eggs and sugar|butter and flour] to bake a cake.;To make tea, boil some water, put the tea into a pot and wait for a few minutes.;To plant a tree, dig a hole, put the tree into it and give it water.
A good friend [listens to you|helps you when you are sad|tells you the truth|keeps a secret].;When you meet somebody, say hello.;When somebody helps you, say thank you.;Children need a lot of sleep.;A dog needs a walk every day.;A cat sleeps most of the day.;Plants need light and water.;It is dangerous to play with fire.;You can learn a language if you practise every day.;Reading makes you clever.;It is good for you to walk in the fresh air.
In spring, the trees get new leaves and the birds come back.;In summer, the days are long and warm.;In autumn, the leaves turn yellow and red and fall from the trees.;In winter, it is cold and the days are short.;The sun rises in the east and sets in the west.;A week has seven days.;A year has twelve months.;At night, you can see the moon and the stars.;When water gets very cold, it becomes ice.;Ice is cold and hard.;Fire is hot.;Snow is white and cold.;Stones are heavy, and feathers are light.;Sugar is sweet, and lemons are sour.
Bread is made from flour and water.;Milk comes from cows.;Eggs come from hens.;Honey comes from bees.;Wool comes from sheep.;Apples grow on trees.;Potatoes grow in the ground.;Fish live in water.;Birds build nests and lay eggs.;Bees live in a hive and make honey.;Cows eat grass.;A farmer grows food.;A doctor helps people who are ill.;A teacher works in a school.;A baker gets up very early and bakes bread.;A pilot flies a plane.;A cook works in a kitchen.;A postman brings letters.;A nurse works in a hospital.
Most people go to work in the morning and come home in the evening.;Many people have breakfast before they go to work.;People sleep at night.;In a library, you can read books and must be quiet.;In a restaurant, you can order something to eat.;At the market, you can buy fruit and vegetables.;At the station, you can take a train.;You cook in the kitchen and sleep in the bedroom.;A car has four wheels, and a bicycle has two.;A plane is faster than a train.;A train is faster than a bicycle.;An elephant is bigger than a mouse.;Gold is worth more than iron.
An umbrella keeps you dry.;A clock shows the time.;You cut bread with a knife.;You eat soup with a spoon.;You write with a pen.;You can open a door with a key.;Books are made of paper.;Windows are made of glass.;Tables are often made of wood.;A house has walls, windows, doors and a roof.;The sea is deep and its water is salty.;A river flows from the mountains to the sea.;Mountains are higher than hills.;There is often snow on high mountains.;The Earth goes around the sun in one year.;The moon goes around the Earth.""".replace("\n", ";").split(";")
OPINION = ["I [like|love] {season}, because [it is so {weather}|there are many {flower}|we can {b}|my birthday is in {month}].", "My favourite season is {season}.", "My favourite day is {day}, because {i0} [do not have to work|can sleep late|play {sport}|see my friends].", "My favourite animal is the {animal}, because it is so [clever|beautiful|funny|strong|soft].", "My favourite food is {food}.", "I do not like [{food}|loud music|the winter|getting up early|long journeys|cold water|spiders|big dogs|{subject}], because [it is boring|it makes me tired|I had too much of it as a child|it is not good for me|I am afraid].",
           "I don't like {food}, but I eat {food2} every day.", "I like {hobby} more than {hobby2}.", "I think that [{hobby} is fun|{subject} is interesting|cities are too loud|dogs are better than cats|life in the country is good|children should play outside|everybody should learn to cook].", "The best time of the day is [the morning|the evening].", "In my free time, I like to {b}.", "I would like to {b2}.", "When I was a child, I wanted to be a {job}.", "When I am old, I want to live [by the sea|in the mountains|in {city}].", "One day I will [travel to {country}|buy a house|write a book|learn the {instrument}|have a {pet}].", "I prefer {drink} to {drink2}."]


def advice_doc(rng):
    if rng.random() < .5:
        return " ".join(fill(rng, x, Words(rng)) for x in rng.sample(ADVICE, rng.randint(1, 4)))
    w = Words(rng, i0="I")
    t = Teller(rng, Who("I", *I), "present")
    t.said = True
    out = [t.say(x.replace("{b}", base(free(rng))).replace("{b2}", base(free(rng))).replace("{i0}", "I")) for x in rng.sample(OPINION, rng.randint(1, 4))]
    return " ".join(out)


def plan_doc(rng):
    """Tomorrow, and what would be."""
    t = Teller(rng, tense="present")
    tm = rng.choice(["tomorrow", "next week", "next {day}", "on {day}", "next {season}", "in {month}", "this evening", "tonight", "after the holidays", "soon", "next year"])
    out = t.lines([rng.choice(["{tm}, S <will> {b}.", "S <will> {b} {tm}.", "{tm}, S <want> to {b}.", "S <be> going to {b} {tm}.", "If the weather <it:be> good, S <will> {b} {tm}.", "S <have> to {b} {tm}, so {i} <can> not {b2}.", "S <hope> to {b} {tm}."]).replace("{tm}", tm).replace("{b}", base(free(rng))).replace("{b2}", base(free(rng)))])
    for _ in range(rng.randint(1, 3)):
        out += t.lines([rng.choice(["Then {i} <will> {b}.", "F <f:will> come too.", "{i} <be> already looking forward to it.", "If it <it:rain>, {i} <will> {b}.", "After that, {i} <want> to {b}.", "{i} <must> not forget {my} {thing}.", "F <f:will> {b}.", "It <it:will> be [fun|a long day|very nice]."]).replace("{b}", base(free(rng)))])
    return " ".join(out)


SCENE = ["S <sit> on the [chair|sofa|bed|bench|wall|floor] and <look> at F.", "S <open> the [drawer|cupboard|bag|box] and <take> out {object}.", "S <put> on {my} {wear} and <go> out.", "S <stand> at the window and <look> down at the street.", "S <turn> around and <see> F.", "S <hold> {object} in {my} hand.", "S <shake> {my} head.", "S <nod> and <say> nothing.", "S <look> at {my} watch. It <it:be> {time}.", "S <run> as fast as {i} <can>, but the {vehicle} <it:be> gone.",
         "S <run> to the door and <open> it.", "There <it:be> nobody there.", "There <it:be> a knock at the door.", "The phone <it:ring>. It <it:be> F.", "The {vehicle} <it:stop>, and F <f:get> out.", "The door <it:open>, and F <f:come> in.", "Suddenly, the light <it:go> out.", "F <f:smile> and <f:say>, \"[Come in|Good morning|Sit down, please|I have something for you|Let us go].\"", "\"[Where have you been|What happened|Who is that|Can you hear it|What time is it]?\" <f:ask> F.", "\"[I do not know|It is nothing|I am here|Wait for me|Look at this],\" S <say>.",
         "S <can> not believe it.", "S <walk> down the street and <turn> left at the {place}.", "S <walk> through the {wood} and <come> to [a small house|an old bridge|a {place}].", "S <find> {object} under the {furniture}.", "S <ask> F for [help|the way|a glass of {drink}|the key|some money].", "F <f:give> {me} {object}.", "The baby <it:begin> to cry.", "A {animal} <it:run> across the road.", "The sun <it:go> down behind the {nature}.", "The street <it:be> [empty|dark|full of people].", "The sky <it:turn> [dark|red|grey].", "It <it:begin> to [rain|snow].", "Nobody <it:say> a word.", "Then everything <it:be> quiet.",
         "S <try> again and again.", "At last, S <have> an idea.", "S <think> about [the letter|F|the long way home|the old days].", "S <forget> to close the [door|window].", "S <want> to go home, but [the door <it:be> closed|it <it:be> too late|F <f:do> not let {me} go|{i} <have> no money].", "S <buy> {dish} and <eat> it at once.", "S <do> not know what to [say|do].", "S <take> the {vehicle} to the {place}.", "S <ask> a question, but nobody <it:answer>.", "S <know> the answer, but {i} <say> nothing.", "S <break> [a cup|a plate|a glass|the window].", "S <fall> and <hurt> {my} {part}.", "F <f:help> {me}."]


def scene_doc(rng):
    t = Teller(rng)
    out = t.lines(rng.sample(SCENE, rng.randint(3, 7)))
    if rng.random() < .5:
        out += t.lines(state(rng, t, PEOPLE, False))
    return layout(rng, out)


CLAUSE = ["S {v} until {e}.", "S {v} while F {fv}.", "As soon as S <come> home, {i} {v}.", "S <want> to {b}, but {e}.", "S <can> not {b}, because {e}.", "S <ask> F to {b}.", "S <tell> F about [the {film}|{my} work|a strange dream|the {animal}|{my} plans].", "F <f:ask> {me} to {b}, but {i} <have> no time.", "If S <have> time, {i} {v}.", "S <try> to {b}.", "S <begin> to {b}.", "S <stop> and <listen>.",
          "There <it:be> a {animal} in the {room}, and nobody <it:know> how it <it:come> there.", "There <they:be> {number} people in the {room}.", "Nobody <it:want> to {b}.", "Somebody <it:knock> at the door. It <it:be> F.", "F <f:say> that {fi} <f:have> no time.", "S <think> that [it <it:be> too late|nobody <it:be> at home|F <f:be> right|the {place} <it:be> closed].", "S <know> that {e}.", "S <hope> that {e}.", "{E}, and S {v}.", "{E}, so S {v}.", "{E}. S {v}.", "S {v}, but {e}.", "S {v} and {v2}.", "S {v}, and {e}.",
          "The {room} <it:be> full of [people|smoke|flowers|books|children|boxes|light|old things].", "On the {furniture}, there <it:be> {object}.", "In front of the {place}, S <meet> F.", "S <give> {object} to F.", "F <f:give> {me} {object} and <f:say>, \"[This is for you|Take good care of it|I do not need it any more|Keep it].\"", "\"[I am {x}|I want to go home|I like it here|Let us wait a little|It is getting late],\" S <say>.", "\"Do you want to {b}?\" <f:ask> F. \"[Yes, I would love to|No, thank you|Maybe tomorrow|Not today],\" S <say>.",
          "S <have> to {b}.", "S <do> not like to {b}, but {i} <have> to.", "Without a word, S <go> [out|away|to the door|up the stairs].", "S <look> for {my} {thing}, but {e}.", "S <find> {my} {thing} in the {room}.", "S <sit> down beside F and {v}.", "Every time S {v}, {e}.", "It <it:be> {time} when S <come> home.", "For a long time, S <do> not {b}.", "That <it:be> the first time that S <go> to {city}.", "F <f:be> a good friend.", "F <f:live> in the same street.", "{my} {rel} <it:be> [a {job}|ill|very {trait}|in {city}|at home].", "{my} {rel} <it:want> to {b}."]
HAPPEN = ["it <it:begin> to [rain|snow]", "it <it:get> dark", "the sun <it:go> down", "the {vehicle} <it:come>", "the door <it:be> closed", "nobody <it:be> there", "nobody <it:answer>", "the phone <it:ring>", "the dog <it:bark>", "the light <it:go> out", "the shop <it:be> closed", "the bell <it:ring>", "F <f:come> in", "F <f:be> not at home", "F <f:be> ill", "it <it:be> too {x2}", "it <it:be> too late", "the music <it:stop>", "the baby <it:wake> up",
          "the children <they:begin> to laugh", "there <it:be> no more {food}", "a {animal} <it:run> across the road", "everybody <it:be> asleep", "the {thing} <it:be> gone", "dinner <it:be> ready", "the weather <it:change>", "the water <it:be> too cold", "it <it:be> {day}", "the wind <it:blow> harder", "the road <it:be> empty", "it <it:be> very quiet", "somebody <it:call> {my} name", "the train <it:leave>", "the window <it:be> open", "all the people <they:go> home"]


def clause_doc(rng):
    """Sentences of two clauses in all the usual ways."""
    t = Teller(rng)
    t.words.update(x=rng.choice(list(PEOPLE)[:8]), x2=rng.choice(["cold", "hot", "far", "expensive", "dangerous", "dark", "loud"]), rel=rng.choice(RELATIVES))
    out = []
    for form in rng.sample(CLAUSE, rng.randint(2, 5)):
        e = rng.choice(HAPPEN)
        v = rng.choice([free(rng), after(rng.choice(PEOPLE[rng.choice(list(PEOPLE))]))[0], rng.choice(list(ACTS))])
        if "{b}" in form and not wanted(v):
            v = free(rng)
        out += t.lines([form.replace("{v2}", phrase(free(rng))).replace("{v}", phrase(v)).replace("{b}", base(v)).replace("{fv}", re.sub(r"<(\w+)>", r"<f:\1>", phrase(free(rng)))).replace("{e}", e).replace("{E}", e)])
    if rng.random() < .4:
        out += t.lines(state(rng, t, PEOPLE, False))
    return layout(rng, out)


KINDS = [(reaction_doc, 15), (act_doc, 8), (weather_doc, 8), (day_doc, 12), (event_doc, 17), (tale_doc, 5), (person_doc, 11), (description_doc, 6), (animal_doc, 4), (talk_doc, 9), (letter_doc, 5), (advice_doc, 6), (plan_doc, 4), (scene_doc, 6), (clause_doc, 14)]
FUNCTIONS, WEIGHTS = [k for k, _ in KINDS], [w for _, w in KINDS]


def everyday(rng):
    kind = rng.choices(FUNCTIONS, WEIGHTS)[0]
    text = tidy(kind(rng))
    if rng.random() < .12:
        text += rng.choice(["\n\n", " "]) + tidy(kind(rng))
    return text


if __name__ == "__main__":
    r = random.Random(3)
    for k in FUNCTIONS:
        for _ in range(6):
            print(f"[{k.__name__}]", tidy(k(r)), "\n")
