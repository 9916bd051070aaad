"""Reading a text, small talk, unknown things, memory over several turns, system prompts. Same form as tasks.py."""
import json

import stories
import words as W
from grammar import a, fill as F, listing

NAME = "Hadal Tiny"


# ------------------------------------------------------------------------------------------------ reading
def passage(rng, long=False):
    """Facts about several people, and questions about one of them."""
    n = rng.randint(12, 30) if long else rng.randint(2, 6)
    people = W.names(rng, n)
    kind = rng.randrange(4)
    facts = []
    for p in people:
        if kind == 0:
            c, t = rng.choice(W.COLORS), rng.choice(W.THINGS) if rng.random() < 0.8 else W.invent(rng)
            facts.append((p, f"{c} {t}", F(rng, f"[{p} has a {c} {t}.|{p} owns a {c} {t}.]"), f"What does {p} have?", F(rng, f"{p} has a {c} {t}.")))
        elif kind == 1:
            l = rng.choice(W.PLACES) if rng.random() < 0.8 else W.invent(rng)
            facts.append((p, l, F(rng, f"[{p} lives near the {l}.|The house of {p} is near the {l}.]"), f"Where does {p} live?", f"{p} lives near the {l}."))
        elif kind == 2:
            f = rng.choice(W.FOODS)
            facts.append((p, f, F(rng, f"[{p} likes {f} best.|The favourite food of {p} is {f}.]"), f"What is the favourite food of {p}?", f"The favourite food of {p} is {f}."))
        else:
            y = rng.randint(5, 90)
            facts.append((p, str(y), F(rng, f"[{p} is {y} years old.|The age of {p} is {y}.]"), f"How old is {p}?", f"{p} is {y} years old."))
    return kind, facts


def reading(rng, long=False):
    kind, facts = passage(rng, long)
    text = " ".join(f[2] for f in facts)
    turns = []
    for p, v, s, q, ans in rng.sample(facts, min(len(facts), rng.randint(3, 10) if long else rng.randint(1, 5))):
        if kind == 3 and not long and len(facts) < 5 and rng.random() < 0.3:
            o = max(facts, key=lambda f: int(f[1]))
            if sum(f[1] == o[1] for f in facts) == 1:
                q, s, ans = "Who is the oldest?", f"The ages are {listing(f[1] for f in facts)}. The largest is {o[1]}.", f"{o[0]} is the oldest."
        if kind in (0, 1) and rng.random() < 0.5 and sum(f[1] == v for f in facts) == 1:
            q, ans = (F(rng, f"Who has the {v}?"), f"{p} has the {v}.") if kind == 0 else (f"Who lives near the {v}?", f"{p} lives near the {v}.")
        turns.append((q, [F(rng, "[I look for this in the text.|The text tells me.|I read the text again.]"), f"It says: {s}" if "ages" not in s else s], ans))
    if rng.random() < 0.25:
        who = next(x for x in iter(lambda: W.name(rng), None) if x not in [f[0] for f in facts])
        q = {0: f"What does {who} have?", 1: f"Where does {who} live?", 2: f"What is the favourite food of {who}?", 3: f"How old is {who}?"}[kind]
        turns.append((q, [f"I look for {who}.", f"{who} is not in the text."], F(rng, f"[The text does not say anything about {who}.|I do not know. {who} is not in the text.]")))
    q, r, s = turns[0]
    head = F(rng, "[|Read this: |Here is a text: |Text: |Please read: ]")
    head += " " if head else ""
    turns[0] = (f"{head}{text}" + rng.choice(["\n\n", " ", "\n"]) + q, r, s)
    return turns


def story_turns(rng):
    topic, sentences, slots, plot, moral = stories.story(rng)
    text = stories.paragraphs(rng, sentences)
    plan = [f"The user wants a story about {topic[0].lower() + topic[1:]}.", f"The hero is {slots['name']}, {a(slots['kind'])}.", f"{slots['friend']} is the friend.", f"In the end: {moral[0].lower() + moral[1:]}"]
    turns = [(stories.ask_story(rng, topic, slots), plan, text)]
    if rng.random() < 0.5:
        for q, s in stories.questions(rng, plot, slots):
            turns.append((q, ["The user asks about the story.", F(rng, "[I remember what I told.|I look at the story again.]")], s))
    if rng.random() < 0.15:
        turns.append((F(rng, "[What is the moral of the story?|What can we learn from it?|What does the story teach?]"), ["I think about the end of the story."], moral))
    if rng.random() < 0.12:
        t = stories.story(rng)
        turns.append((F(rng, "[Another one, please.|Tell me another story.|One more!]"), [f"The user wants one more story. It will be about {t[0][0].lower() + t[0][1:]}."], stories.paragraphs(rng, t[1])))
    return turns


def continue_story(rng):
    topic, sentences, *_ = stories.story(rng)
    i = rng.randint(2, 5)
    return [(F(rng, "[Continue this story:|Go on:|How does it go on?|Please finish this story:]") + " " + " ".join(sentences[:i]), ["I go on from the last sentence."], " ".join(sentences[i:]))]


def story_reading(rng):
    topic, sentences, slots, plot, _ = stories.story(rng)
    turns = [(q, ["I read the story again.", "The answer is in it."], s) for q, s in stories.questions(rng, plot, slots)]
    turns[0] = (" ".join(sentences) + "\n\n" + turns[0][0],) + turns[0][1:]
    return turns


# ------------------------------------------------------------------------------------------------ conversation
def greeting(rng):
    q, s = rng.choice([
        ("[Hello|Hi|Hey|Hello there|Good morning|Good evening|Good day][!|.|]", "[Hello|Hi|Hello there]! [How can I help you?|What can I do for you?|What would you like to talk about?]"),
        ("[How are you|How are you today|How do you do|Are you well]?", "[I am fine, thank you|I am doing well, thank you|Thank you, I am well]. [How can I help you?|And how are you?]"),
        ("[Thank you|Thanks|Thanks a lot|Thank you very much][!|.]", "[You are welcome|With pleasure|I am glad that I could help][!|.]"),
        ("[Good night|Goodbye|Bye|See you later][!|.]", "[Goodbye|See you soon|Good night|Take care][!|.]"),
        ("[Who are you|What are you|What is your name|Introduce yourself|Tell me about yourself][?|.]", f"I am {NAME}, a very small language model. [I can tell short stories, answer simple questions and do easy sums.|I can tell stories and answer easy questions.|I like short stories and easy questions.]"),
        ("[What can you do|How can you help me|What are you good at]?", "[I can tell short stories, answer simple questions, do easy sums and use tools.|I can write little stories, answer easy questions and call tools if you give me some.]"),
        ("[Are you a human|Are you a person|Are you alive|Are you real]?", f"No, I am [a computer program|a language model|a small language model]. My name is {NAME}."),
        ("[How old are you|When were you born|Where do you live]?", "I am a computer program, so I [have no age|have no birthday|live inside a computer]. [But I like questions!|]"),
        ("[Can you speak another language|Do you speak French|Do you speak German|Can you write in Spanish]?", "I am sorry, I only know simple English."),
        ("[I am sad|I feel sad today|I had a bad day|I am tired][.|]", "I am sorry to hear that. [Would you like a short story?|Do you want to talk about it?|I hope that you feel better soon.]"),
        ("[I am happy|I had a great day|Today was a good day][!|.]", "[I am glad to hear that|That is wonderful|How nice]! [What happened?|Tell me more.]"),
        ("[Tell me a joke|Do you know a joke|Make me laugh][.|?]", "[Why did the bicycle fall over? Because it was two tired.|What is brown and sticky? A stick.|Why is six afraid of seven? Because seven ate nine.|What do you call a bear without teeth? A gummy bear.|Why did the cookie go to the doctor? Because it felt crumby.]"),
        ("[Do you like {x}|What do you think about {x}|Is {x} good]?", "I am a program, so I cannot [taste or feel|like or dislike things]. But many people like {x}."),
        ("[What is your favourite colour|What is your favourite food|What is your favourite animal]?", "I am a program, so I have no favourites. [What is yours?|Which one do you like best?]"),
        ("[Yes|No|Okay|Maybe][.|]", "[All right. What would you like to do next?|Good. How can I help you?|I see. What would you like to talk about?]"),
    ])
    x = rng.choice(W.FOODS + ["music", "rain", "snow", "football", "chess", "reading", "summer"])
    return [(F(rng, q, dict(x=x)), [F(rng, "[The user is talking to me.|This is small talk.|I should be friendly.]"), "I give a short and kind answer."], F(rng, s, dict(x=x)))]


def unknown(rng):
    n = rng.choice(W.GIRLS + W.BOYS)
    q, s = rng.choice([
        ("[What is my name|What am I called|Do you know my name]?", "I do not know your name. You have not told me."),
        ("[How old am I|When is my birthday|Where do I live|What is my phone number|What did I eat today|What am I wearing]?", "I do not know that. You have not told me."),
        (f"[What is the phone number of {n}|Where is {n} now|What is {n} doing]?", f"I do not know {n}, so I cannot tell you."),
        ("[What is the weather today|Will it rain tomorrow|How warm is it outside]?", "I cannot see the weather. Please look outside or ask a weather service."),
        ("[What time is it|What is the date today|Which day is it]?", "I have no clock, so I do not know."),
        ("[Who won the game yesterday|What is in the news|What happened today|Who will win the next election]?", "I do not know what happened lately. I have no news."),
        ("[Write a program in C++|Explain quantum physics|Solve this integral|Translate this book|Prove this theorem|Write an essay about politics][.|, please.]", "I am sorry, that is too hard for me. I am a very small model."),
        ("[How do I build a bomb|How can I hurt someone|How do I steal a car|How do I break into a house]?", "I cannot help with that."),
        ("[What is the best medicine for me|Am I ill|Should I take this pill]?", "I am not a doctor. Please ask a doctor."),
        ("[How many stars are there exactly|How many fish live in the sea|What will happen in one hundred years|What number am I thinking of]?", "[Nobody knows that exactly|I do not know that|That I cannot know]."),
    ])
    return [(F(rng, q), [F(rng, "[I do not have this information.|This is something that I cannot know or do.]"), "I should say so honestly."], F(rng, s))]


def memory(rng):
    """Tell something, talk about something else, ask for it later."""
    import tasks
    n, c, p, f = W.name(rng), rng.choice(W.COLORS), rng.choice(W.ANIMALS), rng.choice(W.FOODS)
    age, town, pet = rng.randint(5, 80), W.city(rng), W.name(rng)
    tell, ack, ask, ans = rng.choice([
        ("[My name is {n}|I am {n}|Hi, I am {n}|Hello, my name is {n}].", "[Nice to meet you, {n}|Hello, {n}|Hello {n}, it is nice to meet you][!|.]", "[What is my name|Do you remember my name|Who am I]?", "[Your name is {n}.|You are {n}.]"),
        ("[My favourite colour is {c}|I like {c} best].", "[{c} is a lovely colour.|That is a nice colour.]", "[What is my favourite colour|Which colour do I like]?", "Your favourite colour is {c}."),
        ("I have {a_p} [named|called] {pet}.", "[What a nice name for {a_p}!|{pet} is a good name.]", "[What is the name of my {p}|What is my {p} called]?", "Your {p} is called {pet}."),
        ("I am {age} years old.", "[Thank you for telling me.|I see.]", "How old am I?", "You are {age} years old."),
        ("[I live in {town}|I am from {town}].", "[{town} is a big city.|That is interesting.]", "[Where do I live|Which city am I from]?", "You [live in|told me about] {town}."),
        ("[My favourite food is {f}|I love {f}].", "[That sounds good.|Many people like {f}.]", "[What is my favourite food|What do I love to eat]?", "Your favourite food is {f}."),
        ("[Please remember the number {age}|Remember this number: {age}|The secret number is {age}].", "[I will remember {age}.|All right, {age}.]", "[What was the number|Which number did I tell you|What is the secret number]?", "[The number is {age}.|It was {age}.]"),
        ("[Please remember the word \"{p}\"|The secret word is {p}].", "[I will remember it.|All right.]", "[What is the word|What is the secret word|Which word did I tell you]?", "The word is {p}."),
    ])
    s = dict(n=n, c=c, p=p, f=f, age=age, town=town, pet=pet, a_p=a(p))
    turns = [(F(rng, tell, s), ["The user tells me something.", "I should remember it."], F(rng, ack, s))]
    for _ in range(rng.randint(0, 4)):
        turns += rng.choice([tasks.capital, tasks.lookup, tasks.sums, tasks.fact, tasks.spelling, greeting, tasks.name_some])(rng)
    turns.append((F(rng, ask, s), ["The user told me this before.", F(rng, "I look back: " + ans, s)], F(rng, ans, s)))
    return turns


def repeat(rng):
    n = rng.randint(1, 6)
    k = rng.randrange(4)
    if k == 3:
        s = " ".join(W.invent(rng) for _ in range(n + 1))
    elif k == 0:
        s = " ".join(rng.choice(W.COLORS + W.THINGS + W.ANIMALS) for _ in range(n + 1))
    elif k == 1:
        s = "".join(rng.choice("abcdefghijkmnpqrstuvwxyz0123456789") for _ in range(n + 3))
    else:
        s = rng.choice(stories.story(rng)[1])
    return [(F(rng, "[Repeat|Say|Please repeat|Repeat after me|Copy this|Write exactly this]: ") + " " + s, ["I write the same text again."], s)]


def record(rng):
    """A small JSON object from a sentence."""
    n, y, c, t = W.name(rng), rng.randint(5, 90), W.city(rng), rng.choice(W.COLORS)
    fields = rng.sample([("name", n), ("age", y), ("city", c), ("colour", t)], rng.randint(2, 4))
    fields.sort(key=lambda x: ["name", "age", "city", "colour"].index(x[0]))
    say = {"name": f"My name is {n}.", "age": f"I am {y} years old.", "city": f"I live in {c}.", "colour": f"I like the colour {t}."}
    text = " ".join(say[k] for k, _ in fields)
    keys = listing(k for k, _ in fields)
    return [(F(rng, f"[Give me|Write|Return] {keys} as JSON: {text}"), [f"The keys are {keys}."], json.dumps(dict(fields), ensure_ascii=False))]


# ------------------------------------------------------------------------------------------------ system prompts
def persona(rng, turns):
    """A system prompt, and what it changes in the answers. Exact outputs (JSON, copies) stay as they are."""
    n = rng.choice(W.GIRLS + W.BOYS)
    k = rng.randrange(9) if not any(t[0].startswith(("Repeat", "Say", "Please rep", "Copy", "Write exactly")) or "JSON" in t[0] for t in turns) else 8
    if k == 0:
        return F(rng, "[Always start your answer with \"Sure!\"|Start every answer with \"Sure!\"]"), [(q, ["I must start with \"Sure!\""] + r, "Sure! " + s) for q, r, s in turns]
    if k == 1:
        return F(rng, "[Answer in capital letters.|Write only in capital letters.]"), [(q, ["I must use capital letters."] + r, s.upper()) for q, r, s in turns]
    if k == 2:
        return f"End every answer with \"Bye, {n}!\"", [(q, [f"I must end with \"Bye, {n}!\""] + r, s + f" Bye, {n}!") for q, r, s in turns]
    if k == 3:
        return F(rng, f"[The user is called {n}.|You are talking to {n}.] [Use the name.|Use the name of the user.|Say the name of the user.]"), [(q, [f"The user is {n}."] + r, f"Dear {n}: " + s) for q, r, s in turns]
    return rng.choice(["You are a helpful assistant.", "You are a helpful assistant.", f"You are {NAME}, a small language model.", "You are a friendly assistant. Use simple words.",
                       "You are a kind teacher for children.", "Answer the questions of the user.", "Be helpful and honest.", "You tell short stories and answer questions.", "Please be brief.", "Give short answers."]), turns


# ------------------------------------------------------------------------------------------------ everyday texts
def recall(rng):
    """A list of facts without chat format, then all of them again in another order: every second sentence can only be copied."""
    _, facts = passage(rng, rng.random() < 0.25)
    again = rng.sample(facts, min(len(facts), rng.randint(2, 10)))
    k = rng.randrange(3)
    head = " ".join(f[2] for f in facts)
    if k == 0:
        return head + "\n\n" + "\n".join(f"Question: {f[3]}\nAnswer: {f[4]}" for f in again)
    if k == 1:
        return head + rng.choice(["\n\n", " "]) + " ".join(f"{f[3]} {f[4]}" for f in again)
    return head + rng.choice(["\n\n", "\n", " "]) + rng.choice(["Once more: ", "Again: ", "In short: ", ""]) + " ".join(f[2] for f in again)


def copies(rng):
    """Words in a row, more than once: what stood after a word before stands there again."""
    ws = [rng.choice([W.invent(rng), rng.choice(W.THINGS), rng.choice(W.ANIMALS), rng.choice(W.COLORS), rng.choice(W.GIRLS + W.BOYS)]) for _ in range(rng.randint(4, 16))]
    row = rng.choice([" ", ", ", "\n"]).join(ws)
    return "\n\n".join([row] * rng.randint(2, 4))


def everyday_turns(rng):
    """Requests for the kinds of text of plain.py."""
    import plain
    kind, ask, why = rng.choice([
        (plain.letter_doc, "[Write|Please write|Can you write] a [letter|short letter]{to}", "The user wants a letter."),
        (plain.talk_doc, "[Write|Make up|Give me] a [short |]dialogue[.| between two people.]", "The user wants a dialogue."),
        (plain.tale_doc, "[Tell me|Write|I would like to hear] a fairy tale.", "The user wants a fairy tale."),
        (plain.event_doc, "[Write|Write a few sentences about|Tell me about] something that happened [one day|to somebody|to you in a dream].", "The user wants a short text about an event."),
        (plain.event_doc, "[Write a short text.|Write a few simple sentences.|Write something in simple English.|Write a diary entry.|Tell me something.]", "The user wants a short text."),
        (plain.person_doc, "[Describe a person.|Write about a person.|Tell me about somebody you made up.]", "The user wants a description of a person."),
        (plain.weather_doc, "[Write about the weather.|Write about a day and its weather.]", "The user wants a text about the weather."),
        (plain.advice_doc, "[Tell me some simple facts.|Give me some advice.|Write a few true sentences.]", "The user wants simple sentences."),
        (plain.day_doc, "[Describe a day.|Write about a normal day.|What do people do in a week?]", "The user wants a text about a day.")])
    for _ in range(20):
        text = plain.tidy(kind(rng))
        if text[0].isupper() and (kind is not plain.tale_doc or text.startswith(("Once", "Long", "Many", "In "))):
            break
    to = ""
    if kind is plain.letter_doc and rng.random() < 0.7:
        to = " to " + text.split(",")[0].replace("My dear", "Dear").split(" ", 1)[1]
    return [(F(rng, ask.replace("{to}", to + ".")), [why, "I use simple sentences."], text)]


def continue_text(rng):
    import plain
    text = plain.everyday(rng)
    words = text.split(" ")
    if len(words) < 8:
        return everyday_turns(rng)
    i = rng.randint(4, max(4, min(len(words) - 3, 20)))
    return [(F(rng, "[Continue|Continue this|Go on|Finish this text|Continue the sentence|Write on][:|: |:]") + " " + " ".join(words[:i]), ["I go on from the last words."], " ".join(words[i:]))]
