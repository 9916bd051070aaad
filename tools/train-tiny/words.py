"""Word lists and small facts of the generated corpus. Written for it; common knowledge only."""

GIRLS = """Anna Mia Lily Emma Sofia Zoe Clara Nora Ella Ruby Alice Maya Rosa Ivy Lucy Hana Leila Nina Eva Olga Tara Jane Sara
Amy Kate Wanda Freya Priya Yuki Fatima""".split()
BOYS = """Tom Ben Max Leo Sam Jack Finn Noah Oscar Hugo Adam Luca Omar Peter Paul Ravi Kenji Ali Ivan Eric Dan Will Theo Milo
Henry Jonas Carlos Diego Felix Karl""".split()
ANIMALS = """fox rabbit bear mouse cat dog frog duck owl squirrel hedgehog turtle horse goat sheep pig cow hen crow robin deer
badger beaver otter mole wolf lion elephant monkey penguin donkey bee ant spider snail""".split()
PLACES = """park forest garden beach market school library farm village lake river hill meadow mountain castle kitchen
playground harbour mill barn bridge cave field island train station museum zoo""".replace("train station", "train-station").split()
PLACES = [p.replace("-", " ") for p in PLACES]
THINGS = """ball kite book hat key coin lamp bell boat box basket blanket doll drum flute map mirror ring scarf shell spoon
stone toy umbrella watch whistle bottle button candle cup feather ribbon rope puzzle pencil bicycle guitar clock bag
ladder bucket crown""".split()
COLORS = "red blue green yellow orange purple pink brown black white grey golden silver".split()
FOODS = """apple cake bread soup cookie pear carrot cheese honey sandwich pie banana strawberry pancake pizza nut plum
muffin orange cherry tomato potato egg""".split()
ADJ = "little small big old new shiny soft bright tiny round pretty strange heavy light wooden lovely".split()
FEEL = "happy sad proud tired excited scared worried angry surprised curious lonely calm".split()
VIRTUES = "kind brave clever gentle friendly funny curious quiet cheerful patient honest careful".split()
TREES = "oak apple pine birch willow maple cherry".split()
SKILLS = [("swim", "swimming"), ("ride a bicycle", "riding a bicycle"), ("whistle", "whistling"), ("dance", "dancing"),
          ("read", "reading"), ("paint", "painting"), ("sing", "singing"), ("play the flute", "playing the flute"),
          ("climb a rope", "climbing a rope"), ("skate", "skating"), ("draw a horse", "drawing a horse"),
          ("tie a knot", "tying a knot"), ("bake bread", "baking bread"), ("juggle", "juggling"), ("count to one hundred",
          "counting to one hundred"), ("write a letter", "writing a letter"), ("play chess", "playing chess")]
WEATHER = "sunny rainy windy snowy cloudy foggy stormy warm cold".split()

CAPITALS = dict(France="Paris", Germany="Berlin", Italy="Rome", Spain="Madrid", Portugal="Lisbon", England="London",
    Ireland="Dublin", Norway="Oslo", Sweden="Stockholm", Finland="Helsinki", Denmark="Copenhagen", Poland="Warsaw",
    Austria="Vienna", Hungary="Budapest", Greece="Athens", Russia="Moscow", Ukraine="Kyiv", Turkey="Ankara", Egypt="Cairo",
    Kenya="Nairobi", Morocco="Rabat", India="New Delhi", China="Beijing", Japan="Tokyo", Thailand="Bangkok",
    Vietnam="Hanoi", Indonesia="Jakarta", Australia="Canberra", Canada="Ottawa", Mexico="Mexico City", Cuba="Havana",
    Brazil="Brasilia", Argentina="Buenos Aires", Chile="Santiago", Peru="Lima", Colombia="Bogota", Belgium="Brussels",
    Iceland="Reykjavik", Iran="Tehran", Iraq="Baghdad", Nepal="Kathmandu", Romania="Bucharest", Bulgaria="Sofia",
    Croatia="Zagreb", Serbia="Belgrade", Switzerland="Bern", Netherlands="Amsterdam", Ghana="Accra", Nigeria="Abuja",
    Ethiopia="Addis Ababa", Senegal="Dakar", Jordan="Amman", Mongolia="Ulaanbaatar", Uruguay="Montevideo")
CONTINENT = {"Europe": """France Germany Italy Spain Portugal England Ireland Norway Sweden Finland Denmark Poland Austria
    Hungary Greece Ukraine Belgium Iceland Romania Bulgaria Croatia Serbia Switzerland Netherlands""".split(),
    "Africa": "Egypt Kenya Morocco Ghana Nigeria Ethiopia Senegal".split(),
    "Asia": "India China Japan Thailand Vietnam Indonesia Iran Iraq Nepal Jordan Mongolia".split(),
    "South America": "Brazil Argentina Chile Peru Colombia Uruguay".split(), "North America": "Canada Mexico Cuba".split()}
BABIES = dict(cat="kitten", dog="puppy", cow="calf", sheep="lamb", horse="foal", hen="chick", duck="duckling", pig="piglet",
    goat="kid", bear="cub", lion="cub", frog="tadpole", deer="fawn", swan="cygnet", kangaroo="joey", goose="gosling")
SOUNDS = dict(cat="meow", dog="woof", cow="moo", sheep="baa", horse="neigh", duck="quack", pig="oink", lion="roar",
    owl="hoot", frog="croak", bee="buzz", mouse="squeak", hen="cluck", wolf="howl", snake="hiss", crow="caw")
LEGS = dict(cat=4, dog=4, cow=4, hen=2, duck=2, spider=8, ant=6, bee=6, horse=4, owl=2, fly=6, snake=0, fish=0, snail=0,
    frog=4, elephant=4, penguin=2, butterfly=6, mouse=4, worm=0, crab=10)
HOMES = dict(bird="nest", bee="hive", fox="den", rabbit="burrow", horse="stable", dog="kennel", spider="web", cow="barn",
    bear="cave", beaver="lodge", pig="sty", ant="anthill")
EATS = dict(rabbit="carrots and grass", cow="grass", cat="fish and mice", owl="mice", squirrel="nuts", bear="honey, fish and berries",
    monkey="fruit", panda="bamboo", horse="grass and hay", bee="nectar", frog="insects", lion="meat", penguin="fish",
    sheep="grass", mouse="seeds and cheese", elephant="leaves and grass", spider="insects")
OPPOSITES = dict(hot="cold", big="small", tall="short", fast="slow", happy="sad", day="night", up="down", left="right",
    open="closed", full="empty", hard="soft", light="dark", new="old", early="late", wet="dry", loud="quiet", rich="poor",
    strong="weak", thick="thin", heavy="light", clean="dirty", high="low", long="short", near="far", first="last",
    easy="difficult", good="bad", sweet="sour", inside="outside", true="false", always="never", begin="end", win="lose",
    buy="sell", push="pull", love="hate", laugh="cry", young="old", wide="narrow", deep="shallow", brave="fearful")
SYNONYMS = dict(big="large", small="little", happy="glad", fast="quick", start="begin", end="finish", smart="clever",
    angry="cross", tired="sleepy", quiet="silent", pretty="beautiful", scared="afraid", shut="close", help="aid",
    rich="wealthy", strange="odd", gift="present", stone="rock", road="street", jump="leap", look="watch", talk="speak")
PLURALS = dict(child="children", mouse="mice", foot="feet", tooth="teeth", man="men", woman="women", goose="geese",
    sheep="sheep", fish="fish", leaf="leaves", knife="knives", wolf="wolves", city="cities", baby="babies", berry="berries",
    box="boxes", bus="buses", dish="dishes", fox="foxes", potato="potatoes", tomato="tomatoes", cat="cats", book="books",
    tree="trees", house="houses", apple="apples", key="keys", boy="boys", day="days", shelf="shelves", person="people")
PAST = dict(go="went", see="saw", eat="ate", run="ran", swim="swam", take="took", give="gave", come="came", make="made",
    find="found", buy="bought", bring="brought", think="thought", write="wrote", read="read", sing="sang", drink="drank",
    fly="flew", sleep="slept", know="knew", grow="grew", speak="spoke", fall="fell", walk="walked", play="played",
    jump="jumped", help="helped", carry="carried", stop="stopped", try_="tried", build="built", catch="caught", draw="drew")
PAST["try"] = PAST.pop("try_")
JOBS = {"baker": "bakes bread", "teacher": "teaches children", "doctor": "helps sick people", "farmer": "grows food",
    "pilot": "flies planes", "sailor": "sails ships", "firefighter": "puts out fires", "tailor": "makes clothes",
    "carpenter": "makes things from wood", "painter": "paints pictures", "librarian": "takes care of books",
    "gardener": "takes care of plants", "cook": "prepares meals", "mechanic": "repairs cars", "dentist": "takes care of teeth",
    "postman": "brings letters", "fisherman": "catches fish", "plumber": "repairs water pipes", "judge": "decides in court",
    "astronaut": "travels into space", "musician": "plays music", "author": "writes books", "nurse": "cares for patients"}
USES = {"umbrella": "stay dry in the rain", "knife": "cut things", "spoon": "eat soup", "lamp": "make light", "key": "open a lock",
    "clock": "tell the time", "pencil": "write and draw", "bed": "sleep", "ladder": "climb up high", "hammer": "hit nails",
    "map": "find the way", "oven": "bake bread and cakes", "boat": "travel on water", "needle": "sew clothes",
    "broom": "sweep the floor", "thermometer": "measure how warm it is", "fridge": "keep food cold", "scissors": "cut paper",
    "telescope": "look at the stars", "soap": "wash your hands", "bicycle": "ride from place to place", "towel": "dry yourself",
    "camera": "take pictures", "compass": "find north", "scale": "measure weight", "candle": "make light", "bucket": "carry water"}
MADE = {"bread": "flour, water and yeast", "butter": "cream", "cheese": "milk", "glass": "sand", "paper": "wood", "wool": "the hair of sheep",
    "chocolate": "cocoa beans", "honey": "nectar", "ice": "frozen water", "omelette": "eggs", "juice": "fruit", "wine": "grapes",
    "brick": "clay", "raisin": "dried grapes", "steel": "iron and carbon", "snow": "ice crystals", "jam": "fruit and sugar"}
COLOR_OF = dict(grass="green", snow="white", coal="black", blood="red", banana="yellow", sky="blue", carrot="orange",
    milk="white", tomato="red", chocolate="brown", sun="yellow", leaf="green", elephant="grey", lemon="yellow", strawberry="red",
    flamingo="pink", crow="black", cucumber="green", salt="white", night="black")
MIX = {("red", "yellow"): "orange", ("blue", "yellow"): "green", ("red", "blue"): "purple", ("red", "white"): "pink",
    ("black", "white"): "grey"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()
MONTH_DAYS = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
NUMBERS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty""".split()
SHAPES = dict(triangle=3, square=4, rectangle=4, pentagon=5, hexagon=6, octagon=8)
UNITS = [("minutes", "an hour", 60), ("seconds", "a minute", 60), ("hours", "a day", 24), ("days", "a week", 7),
    ("months", "a year", 12), ("centimetres", "a metre", 100), ("metres", "a kilometre", 1000), ("grams", "a kilogram", 1000),
    ("years", "a century", 100), ("years", "a decade", 10), ("weeks", "a year", 52), ("eggs", "a dozen", 12)]
FACTS = [
    ("Why is the sky blue?", "Sunlight contains all colours. The air scatters blue light more than red light, so the sky looks blue."),
    ("Why do leaves fall in autumn?", "In autumn there is less light, and the tree saves water and food for the winter. It stops feeding its leaves, so they turn brown and fall."),
    ("Why does ice float on water?", "Ice is lighter than water of the same volume. That is why it floats."),
    ("What causes day and night?", "The Earth turns around itself once a day. The side that faces the sun has day, and the other side has night."),
    ("Why do we have seasons?", "The axis of the Earth is tilted. So each half of the Earth gets more sunlight in one part of the year and less in the other."),
    ("How do plants make food?", "Plants use sunlight, water and air to make sugar in their leaves. This is called photosynthesis."),
    ("What is a rainbow?", "A rainbow appears when sunlight shines on drops of rain. The drops split the light into its colours."),
    ("Why do birds fly south in winter?", "In winter it is cold and there is little food. In the south it is warm, and the birds find enough to eat."),
    ("How does a bee make honey?", "A bee collects nectar from flowers. In the hive the nectar is dried until it becomes honey."),
    ("Why do we sleep?", "Sleep gives the body and the brain time to rest and to repair themselves."),
    ("What is a volcano?", "A volcano is a mountain with an opening. Hot melted rock from deep in the Earth comes out of it."),
    ("Why is the sea salty?", "Rivers carry small amounts of salt from rocks into the sea. The water evaporates, but the salt stays."),
    ("How does a boat float?", "A boat pushes water aside. The water pushes back, and this force carries the boat."),
    ("What is gravity?", "Gravity is the force that pulls things towards each other. It makes an apple fall to the ground."),
    ("Why does the moon shine?", "The moon has no light of its own. It reflects the light of the sun."),
    ("What is a desert?", "A desert is a place where it hardly ever rains. Few plants and animals can live there."),
    ("Why do cats purr?", "Cats often purr when they feel safe and content. Sometimes they purr to calm themselves."),
    ("How do fish breathe?", "Fish breathe with gills. The gills take oxygen out of the water."),
    ("What do plants need to grow?", "Plants need light, water, air and some minerals from the soil."),
    ("What is a computer?", "A computer is a machine that stores information and follows instructions, step by step and very fast."),
    ("What is a language model?", "A language model is a program that predicts the next word of a text. By doing this again and again, it can write."),
    ("What is an island?", "An island is a piece of land with water all around it."),
    ("What is the sun?", "The sun is a star. It is a very hot ball of gas that gives us light and warmth."),
    ("How many continents are there?", "There are seven continents: Africa, Antarctica, Asia, Europe, North America, South America and Australia."),
    ("What is the largest ocean?", "The largest ocean is the Pacific Ocean."),
    ("What is the highest mountain?", "The highest mountain above the sea is Mount Everest."),
    ("What is the largest animal?", "The largest animal is the blue whale."),
    ("What is the fastest land animal?", "The fastest land animal is the cheetah."),
    ("What is the largest planet?", "The largest planet in our solar system is Jupiter."),
    ("What is the closest star to the Earth?", "The closest star to the Earth is the sun."),
    ("What is water made of?", "Water is made of hydrogen and oxygen."),
    ("At what temperature does water freeze?", "Water freezes at 0 degrees Celsius."),
    ("At what temperature does water boil?", "Water boils at 100 degrees Celsius at sea level."),
    ("How many colours does a rainbow have?", "People usually name seven colours: red, orange, yellow, green, blue, indigo and violet."),
    ("What do caterpillars turn into?", "Caterpillars turn into butterflies or moths."),
    ("Which bird cannot fly?", "Penguins and ostriches are birds that cannot fly."),
    ("What is the freezing of water called?", "When water freezes, it turns into ice. This is called freezing."),
    ("Who wrote Romeo and Juliet?", "Romeo and Juliet was written by William Shakespeare."),
    ("What is a noun?", "A noun is a word that names a person, a place, a thing or an idea."),
    ("What is a verb?", "A verb is a word that names an action or a state, such as run, eat or be."),
    ("What is an adjective?", "An adjective is a word that describes a noun, such as big, red or kind."),
]

# ------------------------------------------------------------------------------------------------ words made up
ONSETS = "b br c d dr f g gr h j k l m n p qu r s sh st t tr v w z".split()
VOWELS = "a e i o u ai ea oo".split()
CODAS = ["", "", "", "n", "l", "r", "s", "m", "x", "nd", "ck"]


def invent(rng):
    """A word that no list holds: names and words from the context can then only be copied, not recalled."""
    n = rng.choice([1, 2, 2, 2, 3])
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(n)) + rng.choice(CODAS)


def name(rng):
    return rng.choice(GIRLS + BOYS) if rng.random() < 0.6 else invent(rng).title()


def names(rng, n):
    out = []
    while len(out) < n:
        x = name(rng)
        if x not in out:
            out.append(x)
    return out


def city(rng):
    return rng.choice(list(CAPITALS.values())) if rng.random() < 0.7 else invent(rng).title()
