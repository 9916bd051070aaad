"""Tool calls: made-up tool schemas, requests that need one of them (or none), results, and answers from the results."""
import json

import words as W
from grammar import a, fill as F, listing



def schema(name, description, **params):
    """params: name=(type, description) or (type, description, enum); a name ending in _ is optional"""
    props, need = {}, []
    for k, p in params.items():
        key = k.rstrip("_")
        props[key] = {"type": p[0], "description": p[1]}
        if len(p) > 2:
            props[key]["enum"] = p[2]
        if not k.endswith("_"):
            need.append(key)
    return {"name": name, "description": description, "parameters": {"type": "object", "properties": props, "required": need}}


def free_text(r):
    """A short text of no fixed form, to be copied into an argument."""
    w = lambda: r.choice([r.choice(W.THINGS), r.choice(W.ANIMALS), r.choice(W.FOODS), r.choice(W.PLACES), r.choice(W.ADJ), W.invent(r)])
    return F(r, r.choice(["The {a} is {b}", "{a} and {b}", "I need a {a} for the {b}", "{a} {b} {c}", "{n} is at the {a}", "The {a} of {n} is {b}",
                          "bring {n} the {a}", "no {a} today", "{n} wants {a}, {b} and {c}"]), dict(a=w(), b=w(), c=w(), n=W.name(r)))


def weather(r):
    c, u = W.city(r), r.choice(["celsius", "fahrenheit"])
    name = r.choice(["get_weather", "weather", "get_current_weather"])
    key = r.choice(["city", "location"])
    unit = r.random() < 0.4
    t, sky = r.randint(-5, 35), r.choice(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy"])
    s = schema(name, "Get the current weather of a city.", **{key: ("string", "Name of the city")}, **({"unit_": ("string", "Unit of the temperature", ["celsius", "fahrenheit"])} if unit else {}))
    ask = F(r, f"[What is the weather in {c}?|How is the weather in {c}?|What is the weather like in {c} today?|Is it warm in {c}?|Tell me the weather in {c}.|How warm is it in {c}?]")
    args = {key: c}
    if unit and r.random() < 0.6:
        ask = f"{ask[:-1]} in {u}{ask[-1]}" if "today" not in ask else f"{ask} Use {u}."
        args["unit"] = u
    return s, ask, args, {"temperature": t, "condition": sky}, F(r, f"[In {c} it is {sky}, and the temperature is {t} degrees.|It is {sky} in {c} with {t} degrees.|The weather in {c} is {sky}. The temperature is {t} degrees.]"), f"The user wants to know the weather in {c}."


def calculator(r):
    x, y, op = r.randint(2, 9999), r.randint(2, 999), r.choice("+-*")
    name, key = r.choice(["calculator", "calculate", "compute"]), r.choice(["expression", "expr"])
    e = f"{x} {op} {y}"
    word = {"+": "plus", "-": "minus", "*": "times"}[op]
    z = eval(e)
    return schema(name, "Evaluate an arithmetic expression.", **{key: ("string", "The expression, for example 2 + 3")}), F(r, f"[What is {e}?|Calculate {e}.|How much is {x} {word} {y}?|What is {x} {word} {y}?]"), {key: e}, {"result": z}, F(r, f"[{e} = {z}.|The result is {z}.|It is {z}.]"), f"The user wants the result of {e}."


def two_numbers(r):
    x, y, (name, word, op) = r.randint(2, 999), r.randint(2, 999), r.choice([("add", "plus", "+"), ("multiply", "times", "*"), ("subtract", "minus", "-")])
    z = eval(f"{x}{op}{y}")
    return schema(name, f"{name.capitalize()} two numbers.", a=("integer", "First number"), b=("integer", "Second number")), F(r, f"[What is {x} {word} {y}?|How much is {x} {word} {y}?|{x} {op} {y} = ?]"), {"a": x, "b": y}, {"result": z}, F(r, f"[{x} {word} {y} is {z}.|The result is {z}.]"), f"The user wants to know {x} {word} {y}."


def search(r):
    thing = free_text(r).lower() if r.random() < 0.3 else r.choice(["the history of " + W.city(r), "how to bake " + r.choice(W.FOODS), r.choice(W.ANIMALS) + " facts", "the news about " + r.choice(list(W.CAPITALS)), "cheap flights to " + W.city(r), "books about " + r.choice(W.PLANETS)])
    name, key, lim = r.choice(["search", "web_search", "search_web"]), r.choice(["query", "q"]), r.random() < 0.4
    n = r.randint(1, 10)
    s = schema(name, "Search the web.", **{key: ("string", "Search words")}, **({"limit_": ("integer", "Number of results")} if lim else {}))
    args = {key: thing}
    ask = F(r, f"[Search for {thing}.|Look up {thing}.|Please search the web for {thing}.|Find something about {thing}.]")
    if lim and r.random() < 0.6:
        ask, args["limit"] = F(r, f"[Search for {thing} and give me {n} results.|Find {n} results for {thing}.]"), n
    title = "All about " + thing
    return s, ask, args, {"results": [title]}, F(r, f"[I found this: {title}.|The search gives: {title}.|The first result is \"{title}\".]"), f"The user wants me to search for {thing}."


def calendar(r):
    what = r.choice(["lunch with " + r.choice(W.GIRLS + W.BOYS), "meeting with " + r.choice(W.GIRLS + W.BOYS), "dentist", "football", "piano lesson", "birthday of " + r.choice(W.GIRLS + W.BOYS), "doctor"])
    day, h = r.choice(W.DAYS), r.randint(7, 20)
    t = f"{h:02d}:{r.choice(['00', '15', '30', '45'])}"
    name = r.choice(["create_event", "add_event", "add_to_calendar"])
    return schema(name, "Add an event to the calendar.", title=("string", "Title of the event"), day=("string", "Day of the week"), time=("string", "Time as HH:MM")), F(r, f"[Add {what} on {day} at {t}.|Put {what} on my calendar for {day} at {t}.|Please add an event: {what}, {day}, {t}.|Create an event for {what} on {day} at {t}.]"), {"title": what, "day": day, "time": t}, {"status": "ok"}, F(r, f"[I added {what} on {day} at {t}.|Done. {what[0].upper() + what[1:]} is on {day} at {t}.]"), "The user wants a new event in the calendar."


def timer(r):
    n = r.randint(1, 90)
    name, key = r.choice([("set_timer", "minutes"), ("start_timer", "minutes"), ("set_timer", "duration_minutes")])
    return schema(name, "Start a timer.", **{key: ("integer", "Duration in minutes")}), F(r, f"[Set a timer for {n} minutes.|Start a timer of {n} minutes.|Wake me in {n} minutes.|Please set a timer: {n} minutes.]"), {key: n}, {"status": "started"}, F(r, f"[The timer is set for {n} minutes.|I started a timer of {n} minutes.]"), f"The user wants a timer of {n} minutes."


def lights(r):
    room, on = r.choice(["kitchen", "bedroom", "garden", "hall", "bathroom", "garage", "office"]), r.random() < 0.5
    name = r.choice(["set_light", "switch_light", "control_light"])
    return schema(name, "Switch a light on or off.", room=("string", "Name of the room"), on=("boolean", "true for on, false for off")), F(r, f"[Switch the light in the {room} {'on' if on else 'off'}.|Turn {'on' if on else 'off'} the light in the {room}.|Please turn the {room} light {'on' if on else 'off'}.]"), {"room": room, "on": on}, {"status": "ok"}, f"The light in the {room} is now {'on' if on else 'off'}.", f"The user wants the light in the {room} {'on' if on else 'off'}."


def mail(r):
    to = W.name(r)
    text = F(r, "[I will be late|See you tomorrow|Happy birthday|Please call me|Dinner is ready|Thank you for the {t}|I am at the {p}|Can we meet on {d}]", dict(t=r.choice(W.THINGS), p=r.choice(W.PLACES), d=r.choice(W.DAYS)))
    if r.random() < 0.5:
        text = free_text(r)
    name, k1, k2 = r.choice([("send_message", "to", "text"), ("send_email", "recipient", "body"), ("send_message", "recipient", "message")])
    return schema(name, "Send a message to a person.", **{k1: ("string", "Who gets the message"), k2: ("string", "Text of the message")}), F(r, f"[Write to {to}: {text}|Send this to {to}: {text}|Tell {to}: {text}|Send a message to {to}: {text}]"), {k1: to, k2: text}, {"status": "sent"}, F(r, f"[I sent your message to {to}.|Done. {to} gets the message \"{text}\".]"), f"The user wants to send a message to {to}."


def clock(r):
    c, t = W.city(r), f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    name, key = r.choice([("get_time", "city"), ("current_time", "location"), ("get_time", "place")])
    return schema(name, "Get the current time in a city.", **{key: ("string", "Name of the city")}), F(r, f"[What time is it in {c}?|How late is it in {c}?|Tell me the time in {c}.]"), {key: c}, {"time": t}, F(r, f"[It is {t} in {c}.|The time in {c} is {t}.]"), f"The user asks for the time in {c}."


def convert(r):
    x, f, t, k = r.choice([(r.randint(2, 99), "kilometres", "miles", .621), (r.randint(2, 99), "kilograms", "pounds", 2.205), (r.randint(2, 99), "metres", "feet", 3.281), (r.randint(2, 99), "litres", "gallons", .264)])
    z = round(x * k, 2)
    return schema("convert_units", "Convert a value to another unit.", value=("number", "The value"), from_unit=("string", "Unit of the value"), to_unit=("string", "Wanted unit")), F(r, f"[How many {t} are {x} {f}?|Convert {x} {f} to {t}.|What is {x} {f} in {t}?]"), {"value": x, "from_unit": f, "to_unit": t}, {"result": z}, F(r, f"[{x} {f} are {z} {t}.|The result is {z} {t}.]"), f"The user wants {x} {f} in {t}."


def shopping(r):
    items = r.sample(W.FOODS, r.randint(1, 4))
    name = r.choice(["add_to_list", "add_items"])
    return schema(name, "Add items to the shopping list.", items=("array", "Names of the items")), F(r, f"[Put {listing(items)} on my shopping list.|Add {listing(items)} to the list.|I need to buy {listing(items)}.]"), {"items": items}, {"count": len(items)}, F(r, f"[I added {listing(items)} to your list.|Done. Your list has {listing(items)}.]"), f"The user wants {listing(items)} on the list."


def dictionary(r):
    w = r.choice(W.THINGS + W.ANIMALS + W.ADJ) if r.random() < 0.7 else W.invent(r)
    d = F(r, "[a common word of everyday life|a word that children learn early|a short and old English word]")
    return schema(r.choice(["define", "get_definition", "dictionary"]), "Look up the meaning of a word.", word=("string", "The word")), F(r, f"[What does \"{w}\" mean?|Define {w}.|Look up the word {w}.|What is the meaning of {w}?]"), {"word": w}, {"definition": d}, F(r, f"[The word {w} means: {d}.|The dictionary says: {d}.]"), f"The user wants the meaning of {w}."


def music(r):
    what = r.choice(["jazz", "rock", "piano music", "a song about " + a(r.choice(W.ANIMALS)), "quiet music", "children's songs"])
    v = r.randint(1, 10)
    vol = r.random() < 0.4
    args = {"query": what}
    ask = F(r, f"[Play {what}.|I want to hear {what}.|Please play {what}.]")
    if vol and r.random() < .6:
        ask, args["volume"] = f"Play {what} at volume {v}.", v
    return schema("play_music", "Play music.", query=("string", "What to play"), **({"volume_": ("integer", "Volume from 1 to 10")} if vol else {})), ask, args, {"status": "playing"}, F(r, f"[I am playing {what}.|Here is {what}.|Now playing {what}.]"), f"The user wants to hear {what}."


def coin(r):
    x = r.choice(["heads", "tails"])
    n = r.randint(4, 100)
    if r.random() < .5:
        return schema("flip_coin", "Flip a coin."), F(r, "[Flip a coin.|Heads or tails?|Please flip a coin for me.]"), {}, {"result": x}, F(r, f"[It is {x}.|The coin shows {x}.]"), "The user wants me to flip a coin."
    k = r.randint(1, n)
    return schema("random_number", "Draw a random number.", minimum=("integer", "Smallest number"), maximum=("integer", "Largest number")), F(r, f"[Give me a random number from 1 to {n}.|Draw a number between 1 and {n}.]"), {"minimum": 1, "maximum": n}, {"number": k}, F(r, f"[The number is {k}.|I drew {k}.]"), "The user wants a random number."


def stock(r):
    n, v = r.choice(W.THINGS), r.randint(0, 60)
    p = round(r.uniform(1, 90), 2)
    return schema("get_price", "Get the price of a product.", product=("string", "Name of the product"), currency_=("string", "Currency, for example EUR")), F(r, f"[How much is a {n}?|What does a {n} cost?|What is the price of a {n}?]"), {"product": n}, {"price": p, "in_stock": v}, F(r, f"[A {n} costs {p}.|The price is {p}, and there are {v} in stock.]"), f"The user asks for the price of a {n}."


ALL = [weather, weather, calculator, two_numbers, search, calendar, timer, lights, mail, clock, convert, shopping, dictionary, music, coin, stock]


def tool_messages(rng, other):
    """messages, tools. `other`: generator of turns that need no tool."""
    main = rng.choice(ALL)
    s, ask, args, result, answer, why = main(rng)
    tools = [s]
    for g in rng.sample(ALL, rng.randint(0, 3)):
        t = g(rng)[0]
        if t["name"] not in [x["name"] for x in tools] and g is not main:
            tools.append(t)
    rng.shuffle(tools)
    choose = F(rng, f"[I should call {s['name']}.|The tool {s['name']} can do this.|I will use {s['name']}.]")
    m, n = [], rng.random()
    if n < 0.15:                                                   # nothing to call
        q, r, ans = other(rng)[0]
        return [("user", q), ("assistant", r + ["I need no tool for this."], ans, None)], tools
    if n < 0.20 and len(tools) > 1:                                # the tool that would be needed is not there
        lacking = [t for t in tools if t is not s]
        return [("user", ask), ("assistant", [why, "I have no tool for this."], F(rng, "[I am sorry, I have no tool for that.|I cannot do that, because I have no tool for it.]"), None)], lacking
    if n < 0.30 and args:                                          # two calls of the same tool
        s2 = None
        for _ in range(30):
            b = main(rng)
            if b[0] == s and b[2] != args and set(b[2]) == set(args):
                s2 = b
                break
        if s2:
            m = [("user", ask + rng.choice([" And: ", " Also: ", " Then: ", "\n"]) + s2[1]), ("assistant", [why, s2[5], choose], "", [(s["name"], args), (s["name"], s2[2])]),
                 ("tool", json.dumps(result)), ("tool", json.dumps(s2[3])), ("assistant", ["I have both results."], answer + " " + s2[4], None)]
            return m, tools
    lead = F(rng, "[||||I will look that up.|Let me check.|One moment.]")
    m = [("user", ask), ("assistant", [why, choose], lead, [(s["name"], args)])]
    if rng.random() < 0.85:
        if rng.random() < 0.06:
            m += [("tool", json.dumps({"error": "service not available"})), ("assistant", ["The tool gave an error."], F(rng, "[I am sorry, the service is not available.|Sorry, that did not work. The service is not available.]"), None)]
        else:
            m += [("tool", json.dumps(result)), ("assistant", [F(rng, "[I have the result.|The tool gave an answer.|Now I can answer.]")], answer, None)]
        if rng.random() < 0.25:
            q, r, ans = other(rng)[0]
            m += [("user", q), ("assistant", r, ans, None)]
    return m, tools
