"""Everyday English without any chat format: who does what, in any person and tense, and documents made of it.

Templates are sentences in a small notation on top of grammar.fill:
  S            the subject: named the first time, mostly a pronoun afterwards
  {i} {me} {my} {self}   its pronouns;  F {fi} {fme} {fmy}: the same for a second person
  <go>         a verb in the tense of the document that agrees with the subject; <f:go> with F, <it:go> with a singular thing,
               <they:go> with several
  {food} {food2} ...     words from LEXICON, the same word for the same slot within a document
"""
import re

import words as W
from grammar import fill

IRREGULAR = dict(go="went", see="saw", eat="ate", run="ran", swim="swam", take="took", give="gave", come="came", make="made", find="found",
    buy="bought", bring="brought", think="thought", write="wrote", read="read", sing="sang", drink="drank", fly="flew", sleep="slept", know="knew",
    grow="grew", speak="spoke", fall="fell", build="built", catch="caught", draw="drew", get="got", sit="sat", stand="stood", say="said", tell="told",
    feel="felt", keep="kept", leave="left", lose="lost", meet="met", put="put", ride="rode", ring="rang", rise="rose", sell="sold", send="sent",
    shine="shone", shut="shut", spend="spent", teach="taught", throw="threw", wake="woke", wear="wore", win="won", hear="heard", hold="held", hurt="hurt",
    let="let", lie="lay", pay="paid", begin="began", break_="broke", choose="chose", cut="cut", do="did", drive="drove", forget="forgot", have="had",
    hide="hid", can="could", will="would", must="had to", understand="understood", become="became", blow="blew", burn="burned", dig="dug", feed="fed",
    fight="fought", freeze="froze", lend="lent", light="lit", mean="meant", show="showed", shake="shook", steal="stole", bite="bit", hit="hit",
    sweep="swept", swing="swung", wind="wound", smell="smelled", learn="learned", dream="dreamed", creep="crept", sink="sank", stick="stuck", cost="cost", hang="hung", shoot="shot", set="set", beat="beat", travel="travelled")
IRREGULAR["break"] = IRREGULAR.pop("break_")
DOUBLE = set("stop plan drop step clap nod hug hop grab shop rub chat tap wag pat slip trip beg jog knit fit mop zip".split())


def past(v):
    if v in IRREGULAR:
        return IRREGULAR[v]
    if v.endswith("e"):
        return v + "d"
    if v.endswith("y") and v[-2] not in "aeiou":
        return v[:-1] + "ied"
    return v + (v[-1] if v in DOUBLE else "") + "ed"


def present(v, third):
    if v in ("can", "will", "must") or not third:
        return v
    if v in ("have", "do", "go"):
        return dict(have="has", do="does", go="goes")[v]
    if v.endswith("y") and v[-2] not in "aeiou":
        return v[:-1] + "ies"
    return v + ("es" if v.endswith(("s", "sh", "ch", "x", "o")) else "s")


def verb(v, tense, number):
    """number: 1 (I), 3 (he), 0 (we, they)"""
    if v == "be":
        return {"past": ("were", "was", "was"), "present": ("are", "am", "is")}[tense][{0: 0, 1: 1, 3: 2}[number]]
    return past(v) if tense == "past" else present(v, number == 3)


class Who:
    def __init__(self, name, i, me, my, self_, number):
        self.name, self.i, self.me, self.my, self.self_, self.number = name, i, me, my, self_, number


HE, SHE, IT = ("he", "him", "his", "himself", 3), ("she", "her", "her", "herself", 3), ("it", "it", "its", "itself", 3)
I, WE, THEY = ("I", "me", "my", "myself", 1), ("we", "us", "our", "ourselves", 0), ("they", "them", "their", "themselves", 0)
MORE_GIRLS = "Mary Lisa Helen Grace Laura Julia Rose Susan Linda Betty Marta Elena Aisha Mei Ines Hannah Molly Daisy Ellen Vera Carol Judy Tina Nadia Paula Diana Sally Polly Ada Edith".split()
MORE_BOYS = "John James George David Mark Robert Michael Andrew Simon Frank Harry Charlie Arthur Bill Bob Joe Pedro Marco Hassan Yusuf Igor Lars Otto Martin Daniel Philip Toby Ned Rob Steve".split()
HER_ROLES = "mother sister grandmother aunt wife daughter cousin niece friend neighbour teacher boss".split()
HIS_ROLES = "father brother grandfather uncle husband son cousin nephew friend neighbour teacher boss".split()
WOMEN = ["woman", "old woman", "young woman", "girl", "little girl", "nurse", "queen", "princess", "lady", "shopkeeper", "doctor", "singer", "student", "waitress", "baker", "teacher", "farmer's wife", "tall girl", "new girl", "dancer"]
MEN = ["man", "old man", "young man", "boy", "little boy", "farmer", "king", "prince", "driver", "shopkeeper", "doctor", "fisherman", "baker", "student", "waiter", "teacher", "policeman", "sailor", "gardener", "postman", "tall boy", "new boy", "tailor", "carpenter"]
PETS = "cat dog kitten puppy rabbit bird horse mouse hen duck".split()
WILD = "fox bear squirrel hedgehog owl deer wolf monkey elephant lion turtle frog goose crow".split()


def person(rng, first=True):
    r = rng.random()
    if first and r < 0.13:
        return Who("I", *I)
    if first and r < 0.20:
        return Who(rng.choice(["we", "we", "we", "my " + rng.choice("family parents sister brother friend wife husband cousin".split()) + " and I", "the two of us"]), *WE)
    if r < 0.28:
        both = rng.sample(W.GIRLS + W.BOYS + MORE_GIRLS + MORE_BOYS, 2)
        return Who(rng.choice(["they", "the children", "the boys", "the girls", "my parents", "my grandparents", "our neighbours", "my friends", "the students", "two friends",
                               "the workers", "the twins", "some people", "my brothers", "her parents", "the old couple", "the farmers", " and ".join(both), " and ".join(both)]), *THEY)
    her = rng.random() < 0.5
    forms = SHE if her else HE
    r = rng.random()
    if r < 0.36:
        name = rng.choice((W.GIRLS + MORE_GIRLS) if her else (W.BOYS + MORE_BOYS)) if rng.random() < 0.93 else W.invent(rng).title()
    elif r < 0.62:
        name = rng.choice(["my", "my", "my", "our", "her", "his", "Tom's", "Anna's", "my old", "my little", "my younger", "my older", "my best friend's"]) + " " + rng.choice(HER_ROLES if her else HIS_ROLES)
        name = re.sub(r"(old|little|younger|older) (mother|father|grandmother|grandfather|wife|husband|aunt|uncle|boss|niece|nephew|teacher)", r"\2", name)
        name = re.sub(r"(younger|older|little) (friend|neighbour)", r"old \2", name)
        name = re.sub(r"^our (boss|wife|husband)", r"my \1", name)
    elif r < 0.86:
        name = rng.choice(["the", "the", "the", "the", "a"]) + " " + rng.choice(WOMEN if her else MEN)
        name = re.sub(r"^a (king|queen|new girl|new boy)$", r"the \1", name)
    elif r < 0.92:
        name = (rng.choice(["Mrs", "Miss"]) if her else "Mr") + " " + rng.choice("Brown Green White Black Hill Wood Baker Taylor Cook Stone Young King Lopez Rossi Novak Khan".split())
    else:
        name = forms[0]
    return Who(name, *forms)


def animal(rng):
    forms = rng.choice([HE, SHE, IT, IT])
    r = rng.random()
    a = rng.choice(PETS if r < 0.85 else WILD)
    if r < 0.25:
        return Who(rng.choice(["my", "our", "her", "his", "the neighbour's", "my sister's"]) + " " + rng.choice(["", "", "old ", "little ", "black ", "white ", "brown ", "big "]) + a, *forms)
    if r < 0.32:
        return Who(rng.choice("Max Bella Rex Luna Snowy Tiger Coco Lucky Spot Daisy Rocky Minka Fluffy Ginger".split()), *rng.choice([HE, SHE]))
    looks = ["", "", "", "little ", "old ", "big ", "young "] + (["grey ", "brown ", "black ", "white "] if a in PETS else [])
    return Who(rng.choice(["the", "the", "the", "a"]) + " " + rng.choice(looks) + a, *forms)


LEXICON = dict(
    food="bread;soup;cheese;rice;pasta;pizza;fish;chicken;salad;cake;fruit;vegetables;pancakes;sandwiches;eggs;noodles;potatoes;beans;porridge;apple pie;ice cream;chocolate;biscuits;toast;meat;sausages;tomatoes;carrots;honey;jam".split(";"),
    item="apples;bananas;oranges;bread;milk;eggs;butter;cheese;rice;tea;coffee;sugar;flour;tomatoes;onions;potatoes;carrots;fish;meat;soap;flowers;candles;paper;pens;batteries;socks;lemons;grapes;honey;salt".split(";"),
    drink="water;milk;tea;coffee;juice;lemonade;hot chocolate;apple juice;orange juice;green tea;cold water;warm milk".split(";"),
    meal="soup;rice;pasta;fish;chicken;vegetables;potatoes;beans;noodles;eggs;porridge;meat;sausages;stew".split(";"),
    dish="a sandwich;an omelette;a bowl of soup;a plate of pasta;a salad;some rice;some toast;a pizza;a cake;a pot of stew;some pancakes;an apple pie;a fried egg".split(";"),
    room="kitchen;bedroom;living room;bathroom;garden;garage;hall;cellar".split(";"),
    furniture="table;chair;bed;sofa;shelf;cupboard;desk;lamp;mirror;carpet;wardrobe;armchair".split(";"),
    place="park;beach;market;library;school;station;village;river;lake;forest;town;museum;cinema;zoo;swimming pool;harbour;church;bridge;hospital;post office;bank;airport;castle;farm;playground;square;mountains;hotel;theatre;bakery".split(";"),
    shop="supermarket;bakery;market;bookshop;butcher;shoe shop;flower shop;toy shop;little shop;grocery;department store;corner shop".split(";"),
    nature="river;lake;forest;sea;mountains;hills;field;beach;stream;valley;woods;island".split(";"),
    water="river;lake;sea;pond;swimming pool".split(";"), wood="forest;woods;park;fields;town;village;streets;market".split(";"),
    city="London;Paris;Rome;Berlin;Madrid;New York;Tokyo;Vienna;Oslo;Dublin;Lisbon;Athens;Cairo;Prague;Boston;Chicago;Moscow;Warsaw;Sydney;Delhi".split(";"),
    country="France;Italy;Spain;Germany;Japan;China;India;Canada;Mexico;Brazil;Norway;Greece;Poland;Egypt;Kenya;Ireland;Turkey;Peru;Sweden;Portugal".split(";"),
    job="teacher;doctor;nurse;farmer;driver;cook;baker;writer;singer;painter;gardener;engineer;carpenter;tailor;pilot;policeman;fireman;shop assistant;waiter;dentist;mechanic;secretary;student;postman;librarian;photographer;builder;fisherman;sailor;scientist".split(";"),
    work="bank;hospital;school;shop;factory;restaurant;hotel;office;library;garage;bakery;post office;museum;bookshop;kitchen;garden centre;police station;big company;small company;supermarket;theatre;flower shop".split(";"),
    hobby="reading;swimming;cooking;painting;dancing;singing;fishing;cycling;running;gardening;playing football;playing chess;playing the piano;playing the guitar;taking photographs;collecting stamps;watching films;walking in the hills;playing tennis;baking;drawing;listening to music;knitting".split(";"),
    sport="football;tennis;basketball;volleyball;hockey;table tennis;golf;baseball;handball".split(";"),
    instrument="piano;guitar;violin;flute;drums;trumpet;cello".split(";"),
    subject="maths;history;English;music;art;science;geography;biology;sport".split(";"),
    clothes="a coat;a hat;a scarf;a jacket;a pair of shoes;a pullover;a dress;a shirt;gloves;boots;a skirt;a blue jacket;a warm coat;new shoes;a raincoat;a red dress".split(";"),
    wear="coat;hat;jacket;shoes;boots;gloves;scarf;raincoat;pullover".split(";"),
    vehicle="bus;train;car;bicycle;taxi;boat;tram;plane;ship".split(";"),
    thing="keys;book;bag;phone;glasses;umbrella;watch;ring;purse;pen;ball;camera;ticket;letter;hat;wallet;passport;notebook".split(";"),
    object="a book;a ring;a key;a letter;an old coin;a small box;a photo;a map;a watch;a shell;a purse;a knife;a picture;a doll;a stone;a bottle;a hat;a newspaper;a bell".split(";"),
    present="a book;a watch;a bicycle;a doll;a camera;a cake;some flowers;a scarf;a puppy;a football;a guitar;a picture;a box of chocolates;a ring;a game;a new bag;a kite".split(";"),
    toy="ball;doll;train;kite;teddy bear;toy car;puzzle;drum;boat".split(";"),
    tree="oak;apple tree;pine;birch;cherry tree;willow;maple;big tree;old tree;lime tree".split(";"),
    flower="roses;tulips;daisies;lilies;sunflowers;violets;poppies".split(";"),
    color="red;blue;green;yellow;white;black;brown;pink;grey;orange;purple;golden;dark blue;light green".split(";"),
    adj="nice;good;beautiful;wonderful;lovely;great;interesting;pretty;pleasant".split(";"),
    size="big;small;little;large;tiny;huge;old;new".split(";"),
    feeling="happy;sad;tired;proud;angry;surprised;excited;nervous;glad;afraid;lonely;bored".split(";"),
    good="happy;glad;proud;excited;cheerful;very pleased;in a good mood;relieved".split(";"),
    trait="kind;friendly;clever;funny;quiet;patient;honest;hard-working;polite;brave;shy;strict;cheerful;generous;helpful;careful;calm;curious;lazy;serious".split(";"),
    hair="long;short;dark;brown;black;blond;red;curly;grey;white;long dark;short brown".split(";"),
    eyes="blue;brown;green;grey;dark;bright".split(";"),
    season="spring;summer;autumn;winter".split(";"),
    month=W.MONTHS, day=W.DAYS,
    time="six;seven;eight;nine;ten;half past six;half past seven;quarter past eight;eleven;five".split(";"),
    evening_time="five;six;seven;eight;nine;ten".split(";"),
    number="two;three;four;five;six;seven;eight;ten;twelve;twenty".split(";"),
    small="two;three;four;five".split(";"),
    duration="an hour;two hours;a long time;half an hour;ten minutes;twenty minutes;a while;some time".split(";"),
    pet="cat;dog;rabbit;parrot;hamster;goldfish;turtle;pony;kitten;puppy".split(";"),
    animal="cow;horse;sheep;hen;duck;goat;pig;bird;fox;rabbit;squirrel;deer;frog;bee;butterfly;mouse;owl;swan".split(";"),
    animals="cows;horses;sheep;hens;ducks;goats;pigs;birds;foxes;rabbits;squirrels;frogs;bees;butterflies;mice;owls;swans;cats;dogs;elephants;lions;bears".split(";"),
    weather="sunny;rainy;windy;cloudy;cold;warm;hot;foggy;beautiful;snowy;grey".split(";"),
    film="film;concert;play;football match;show;circus".split(";"),
    part="leg;arm;foot;knee;hand;finger;head;back".split(";"),
    ill="a cold;a headache;a fever;a sore throat;a cough;a toothache;a stomach ache".split(";"),
    game="cards;chess;hide and seek;football;ball;board games;table tennis;with the ball".split(";"),
    name=W.GIRLS + W.BOYS + MORE_GIRLS + MORE_BOYS, girl=W.GIRLS + MORE_GIRLS, boy=W.BOYS + MORE_BOYS)


class Words(dict):
    """Draws a word for a slot when it is first asked for; slots of one kind (food, food2) get different words."""

    def __init__(self, rng, **fixed):
        super().__init__(fixed)
        self.rng = rng

    def __missing__(self, key):
        kind = key.rstrip("0123456789")
        taken = {v for k, v in self.items() if k.rstrip("0123456789") == kind}
        self[key] = self.rng.choice([w for w in LEXICON[kind] if w not in taken] or LEXICON[kind])
        return self[key]


VERB = re.compile(r"<(?:(f|it|they):)?(\w+)>")
SAID = re.compile(r'" (wanted to know|replied|answered|said|says|say|asked|asks|ask|shouted|shouts|called|calls) (I|he|she|we|they|it)\b')
SUBJECT = re.compile(r"\b([SF])\b")


class Teller:
    """One document: a subject, perhaps a second person, a tense, the words drawn so far."""

    def __init__(self, rng, who=None, tense=None, friend=None):
        self.rng, self.who = rng, who or person(rng)
        self.friend = friend or person_other(rng, self.who)
        self.tense = tense or rng.choice(["past", "past", "past", "present"])
        self.said, self.fsaid = False, False
        self.words = Words(rng)

    def subject(self, m):
        w, f = (self.who, False) if m[1] == "S" else (self.friend, True)
        said = self.fsaid if f else self.said
        same = self.friend.i == self.who.i and not f and self.fsaid
        plain = said and not (f and self.friend.i == self.who.i) and self.rng.random() < (0.4 if same else 0.85)
        if f:
            self.fsaid = True
        else:
            self.said = True
        if plain:
            before, behind = m.string[:m.start()], m.string[m.end():]
            object_ = before and not re.search(r"<(f:)?(say|ask|shout|call|answer|reply)> $", before) and not re.match(r" (?:often |always |never |usually |sometimes )?<|( and [SF] <)", behind)
            return w.me if object_ else w.i
        return re.sub(r"^(a|one) ", "the ", w.name) if said else w.name

    def say(self, text):
        """One template -> text. Choices are made first, so that subjects are counted in the order of the text."""
        from grammar import CHOICE
        n = 1
        while n:
            text, n = CHOICE.subn(lambda m: self.rng.choice(m[1].split("|")), text)
        if self.who.i in ("I", "we"):                                 # several with the speaker among them
            text = re.sub(r"\b([Tt])hey (<they:)", lambda m: ("We " if m[1] == "T" else "we ") + m[2], text)
        text = SUBJECT.sub(self.subject, text)                      # while verbs are still marked: they tell subject from object
        text = VERB.sub(lambda m: verb(m[2], self.tense, {None: self.who.number, "f": self.friend.number, "it": 3, "they": 0}[m[1]]), text)
        w, f = self.who, self.friend
        for k, v in (("{i}", w.i), ("{me}", w.me), ("{my}", w.my), ("{self}", w.self_), ("{fi}", f.i), ("{fme}", f.me), ("{fmy}", f.my)):
            text = text.replace(k, v)
        text = SAID.sub(r'" \2 \1', text)
        return fill(self.rng, text, self.words)

    def lines(self, parts):
        out = []
        for p in parts:
            if p.startswith("?"):
                if self.rng.random() < 0.5:
                    continue
                p = p[1:]
            out.append(self.say(p))
        return out


def person_other(rng, who):
    """A second person, singular, whose pronoun differs from the subject's: then "he" and "she" stay clear."""
    her = who.i == "he" or (who.i != "she" and rng.random() < 0.5)
    forms, r = SHE if her else HE, rng.random()
    if r < 0.5 or who.number == 0 and r < 0.75:
        name = rng.choice((W.GIRLS + MORE_GIRLS) if her else (W.BOYS + MORE_BOYS))
    elif r < 0.8:
        name = who.my + " " + rng.choice(HER_ROLES if her else HIS_ROLES)
    else:
        name = "the " + rng.choice("woman;old woman;girl;nurse;doctor;teacher;shopkeeper;neighbour".split(";") if her else "man;old man;boy;doctor;teacher;policeman;shopkeeper;driver;neighbour;farmer".split(";"))
    return Who(name, *forms)


def cut(rng, sentences):
    """Documents also begin in the middle and stop before the end of the tale."""
    r = rng.random()
    if len(sentences) > 4 and r < 0.22:
        sentences = sentences[rng.randint(1, len(sentences) - 3):]
    return sentences


def layout(rng, sentences):
    if len(sentences) < 7 or rng.random() < 0.6:
        return " ".join(sentences)
    i = rng.randint(3, len(sentences) - 3)
    return " ".join(sentences[:i]) + "\n\n" + " ".join(sentences[i:])
