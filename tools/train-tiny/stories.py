"""Short stories: a cast, a plot of sentence choices, a moral; and questions about what was told."""
import words as W
from grammar import a, fill, lines

OPEN = ["[Once upon a time|One day|Long ago|Once], there was {a_adj} {kind} {called} {name}.",
        "{name} was {a_virtue} {kind} who lived [near|by|close to] the {place}.",
        "In a [house|home|small house] [near|by] the {place} lived {a_virtue} {kind} {called} {name}.",
        "[There once was|There was once] {a_virtue} {kind} {called} {name}."]
FRIEND = ["{His} best friend was {a_fadj} {fkind} {called} {friend}.", "{name} had a [good|dear|close] friend, {a_fadj} {fkind} {called} {friend}.",
          "{name} and {friend} the {fkind} were [good|best|old] friends."]
DAY = ["[One|On a|It was a] {weather} [morning|afternoon|day], {name} [went|walked|ran] to the {place}."]
END = ["From that day on, {name} and {friend} [were the best of friends|did everything together|played together every day].",
       "{name} [went home|walked home] with a [smile|happy heart|song].", "That [night|evening], {name} [slept very well|fell asleep with a smile].",
       "And they all [lived happily|were happy] [ever after|for a long time].", "{name} never forgot that day.",
       "It had been [a good day|the best day of the year|a day to remember]."]

PLOTS = {
 "a lost {thing}": ("lost", "[Friends help each other|It is good to have a friend|Never give up too soon].", [
    "{name} had {a_tadj} {thing} that {he} [loved very much|liked more than anything|took everywhere].",
    "One {weather} [morning|day], the {thing} was gone.", "{name} looked [under the bed|behind the door|in every box] and [in the garden|on the shelf|under the table], but {he} could not find it.",
    "?{He} felt [very sad|sad and worried].", "\"[Have you seen my {thing}|Do you know where my {thing} is]?\" asked {name}.",
    "\"No,\" said {friend}, \"but I [will|can] help you [look for it|find it].\"", "[Together they|The two friends] [searched|looked] [everywhere|all over the {place}|for a long time].",
    "?They asked {a_animal}, but it had not seen anything.", "At last, {friend} [found|saw] the {thing} [under a tree|behind a stone|in the tall grass|near the {place}].",
    "\"[Here it is|I found it|Look]!\" {friend} [shouted|called|cried].", "{name} [hugged|thanked] {friend} [and smiled|and laughed|with all {his} heart]."]),
 "learning to {skill}": ("skill", "[Practice makes perfect|If you keep trying, you get better|Everyone learns step by step].", [
    "{name} wanted to learn to {skill}.", "{He} tried [once|one time], but it [was too hard|did not work|went wrong].", "?{name} was [sad|upset] and [almost gave up|sat down on a stone].",
    "\"I [can't|will never] do it,\" {he} said." , "\"[Nobody can do it at first|It takes time|Keep trying],\" said {friend}. \"[I will show you|Let us try together|Watch me].\"",
    "{friend} [showed|taught] {name} [slowly|step by step|how to begin].", "[Every day|Every morning|After school], they practised [for an hour|a little|by the {place}].",
    "?Sometimes {name} [made a mistake|fell down], but {he} always [tried again|started again].", "After [one week|two weeks|three weeks|many days], {name} could {skill}.",
    "\"[You did it|Well done|I knew you could do it]!\" {friend} [cheered|said|shouted].", "{name} felt very proud."]),
 "sharing {a_food}": ("food", "[Sharing makes everyone happy|Food tastes better with a friend|It is good to share].", [
    "{name} had {a_food}.", "It [looked|smelled] [very good|wonderful|delicious].", "{name} sat down [under a tree|on a bench|by the {place}] to eat.",
    "Then {friend} came [along|by]. {friend} looked [hungry|sad and hungry|tired and hungry].", "\"[I have not eaten all day|I have nothing to eat|I am so hungry],\" said {friend}.",
    "{name} thought [for a moment|about it].", "?{He} was hungry too.", "Then {he} [cut|broke] the {food} in two and gave {friend} [half of it|the bigger part].",
    "\"Thank you,\" said {friend}. \"You are [very kind|a true friend].\"", "They ate together and [talked|laughed|told stories] until [the sun went down|it was evening].",
    "The next day, {friend} brought {a_food2} and shared it with {name}."]),
 "{a_animal} who needed help": ("animal", "[Kindness comes back to you|Even small help can be big|Be kind to every animal].", [
    "{name} was walking [near|by|along] the {place} when {he} heard a [small|soft|sad] sound.", "It was {a_animal}. It was [stuck in a net|caught in a bush|hurt and could not walk|in a deep hole].",
    "\"[Please help me|Help|Do not be afraid]!\" [cried the {animal}|called the {animal}|said {name}].", "{name} was [a little scared|careful], but {he} [went closer|did not run away].",
    "{friend} brought [a rope|some water|a blanket|a long stick].", "Together they [pulled|worked|helped] [slowly and carefully|with all their strength|until the {animal} was free].",
    "At last, the {animal} was [safe|free].", "?It looked at {name} with [big|bright|thankful] eyes.", "A few days later, {name} [lost the way|fell into the water|was in trouble] at the {place}.",
    "[Suddenly|Then], the {animal} came and [showed the way home|pulled {him} out|brought help].", "\"You helped me, so I help you,\" it said."]),
 "a {weather} day": ("weather", "[You can have fun in any weather|A bad day can become a good day].", [
    "It was a {weather} day, and {name} could not [play outside|go to the {place}].", "{He} looked out of the window and [sighed|felt bored].", "\"There is nothing to do,\" said {name}.",
    "Then {friend} [knocked at the door|came to visit] with {a_tadj} {thing}.", "\"[Let us play inside|I have an idea],\" said {friend}.",
    "They built [a tent|a castle|a ship] out of [chairs and blankets|boxes|pillows].", "{name} was the [captain|king|queen|pilot], and {friend} was the [cook|guard|sailor|dragon].",
    "?They ate {food} and drank [warm milk|tea|juice].", "They played until [it was dark|dinner time|they were tired].", "When {name} looked out of the window again, the [sun was shining|sky was clear|stars were out].",
    "\"[I did not even notice|What a wonderful day|I forgot the weather]!\" said {name}."]),
 "a present for {friend}": ("present", "[The best presents come from the heart|Thinking of others is a gift].", [
    "It was the birthday of {friend}, and {name} wanted to give {fhim} a present.", "But {name} had no money.", "{He} [thought and thought|thought for a long time].",
    "Then {he} had an idea. {He} took [some paper|some wood|an old {thing}] and [some paint|a little glue|{a_color} ribbon].", "{He} worked [all day|all morning|until late at night].",
    "?{A_animal} came and watched.", "At last, the present was ready: {a_color} {thing2}.", "At the party, {name} was [nervous|worried]. The other presents were [bigger|very big|shiny].",
    "{friend} opened it [slowly|carefully].", "\"[This is the best present of all|It is beautiful|I love it]!\" said {friend}. \"Did you make it yourself?\"", "{name} nodded and smiled."]),
 "a race to the {place}": ("race", "[Slow and steady wins the race|Being kind is better than winning|It is not important to win].", [
    "{name} and {friend} had a race to the {place}.", "\"I am [faster|much faster] than you,\" said {friend}.", "\"We will see,\" said {name}.", "They started [at the old oak|at the bridge|when the bell rang].",
    "{friend} ran [fast|like the wind] and was soon far [ahead|in front].", "?{name} did not stop. Step by step, {he} went on.", "[Halfway there|Then|After a while], {friend} [stopped to eat|lay down to rest|fell over a stone].",
    "{name} [came closer and closer|saw {friend} and stopped].", "\"Are you all right?\" asked {name}.", "\"[My foot hurts|I am tired|Yes, but I am too tired to run],\" said {friend}.",
    "{name} helped {friend} up, and they [reached|walked to] the {place} together.", "Everyone [cheered|clapped] for both of them."]),
 "a small seed": ("seed", "[Good things take time|Be patient|Care makes things grow].", [
    "{name} found a small seed [on the ground|in an old box|near the {place}].", "\"[What is it|What will it become]?\" {he} asked.", "\"Plant it, and you will see,\" said {friend}.",
    "{name} put the seed into [the soil|a pot|the ground] and gave it water.", "[Every day|Each morning], {he} looked, but [nothing happened|there was nothing to see].", "?\"Maybe it is [dead|broken|asleep],\" said {name}. \"Be patient,\" said {friend}.",
    "Then, on a {weather} morning, there was a [tiny|small] green leaf.", "The plant grew [and grew|taller and taller].", "In [summer|June|July|autumn], it had [a big {color} flower|many {color} flowers|sweet {color} berries].",
    "[Bees came to visit it|Birds sang in it|Everyone came to look at it].", "{name} was very proud of the little seed."]),
 "being afraid of the dark": ("dark", "[It is brave to face your fear|Things look different in the light].", [
    "{name} was afraid of the dark.", "Every [night|evening], {he} [hid under the blanket|asked for a light].", "One night, there was a [strange|loud|soft] noise [outside|at the window|under the bed].",
    "{name} [held {his} breath|shook with fear].", "\"Who is there?\" {he} [whispered|asked].", "\"It is only me,\" said {friend}. \"[Come out and look|I want to show you something].\"",
    "{name} took {a_tadj} {thing} in {his} hand and went outside.", "The sky was full of stars. The moon was [big and round|bright|like silver].", "?{A_animal} was singing in the garden.",
    "\"[The dark is beautiful|You can only see the stars when it is dark],\" said {friend}.", "After that night, {name} was not afraid [of the dark|any more]."]),
 "the broken {thing}": ("broken", "[It is best to tell the truth|Honesty is always better than a lie].", [
    "{name} was playing [in the house|in the kitchen|with a ball] when {he} [broke|knocked over] the {color} {thing} of {his} [mother|father|grandmother].",
    "{He} was [scared|worried]. \"[What should I do|What now]?\" {he} thought.", "\"[Hide it|Say that the cat did it|Nobody saw it],\" said {friend}.", "{name} [shook {his} head|thought about it]. \"No, that would be a lie.\"",
    "{He} went to {his} family and said, \"I broke the {thing}. I am [very |so |] sorry.\"", "?It was quiet for a moment.", "\"Thank you for telling [me|us] the truth,\" was the answer. \"[A {thing} can be mended|We can buy a new one].\"",
    "Together they [mended it with glue|put the pieces together].", "{name} felt [much better|light and happy|proud]."]),
 "a picnic at the {place}": ("picnic", "[A little trouble can make a good story|Together everything is more fun].", [
    "{name} and {friend} went to the {place} for a picnic.", "They had {food}, {food2} and [a bottle of juice|some water|cold milk] in a basket.", "They put {a_color} blanket on the grass.",
    "[Suddenly|Just then], [a strong wind came|it began to rain|{a_animal} came out of the bushes].", "\"[Oh no|Quick|Look out]!\" cried {name}.", "They [ran under a tree|held the blanket|picked up the basket].",
    "?But the {food} was gone.", "{name} looked at {friend}, and {friend} looked at {name}. Then they both began to laugh.", "\"We still have the {food2},\" said {friend}.",
    "They ate it [under the tree|together] and [told stories|sang songs|counted clouds]."]),
 "a treasure map": ("treasure", "[Friendship is the real treasure|The way is sometimes better than the goal].", [
    "{name} found an old map [in a book|in a bottle|under the floor].", "It showed the way to [a treasure|a secret place] near the {place}.", "\"Let us [go and look|find it],\" said {friend}.",
    "They walked [over a bridge|through the forest|along the river] and [up a hill|past the old mill|around the lake].", "?{A_animal} showed them the way.", "At the end, there was [a big stone|an old tree|a small cave].",
    "They [dug|looked|searched] and found {a_tadj} box.", "Inside was no gold. There was [a letter|an old picture|{a_tadj} {thing}].", "The letter said: \"[You found it together. That is the treasure|Friends are better than gold].\"",
    "{name} laughed. \"It is true,\" {he} said."]),
 "a kite in the wind": ("kite", "[Together we can do what one cannot|A clever idea is better than strength].", [
    "{name} had {a_color} kite.", "On a windy day, {he} took it to the {place}.", "The kite flew [high|up and up|higher than the trees].", "Then the rope broke, and the kite [landed in a tall tree|was stuck on a roof].",
    "{name} [jumped|tried to climb], but it was too high.", "\"[Do not cry|I can help|Wait],\" said {friend}.", "{friend} [got a ladder|climbed onto the shoulders of {name}|called a bird].", "?It was [not easy|a little dangerous].",
    "[Slowly|Carefully|At last], they [pulled the kite down|got the kite back].", "It had a small hole, but they mended it with [a piece of paper|a leaf|tape].", "Soon the kite was in the sky again."]),
 "the new {fkind} at school": ("school", "[Everyone was new once|A kind word can change a day].", [
    "There was a new {fkind} in the class of {name}. {FHis} name was {friend}.", "{friend} sat alone and did not [speak|say a word].", "?The others [did not talk to {fhim}|played without {fhim}].",
    "At lunch, {name} [went over|sat down next to {fhim}].", "\"[Do you want to play|Would you like some {food}|What is your name]?\" asked {name}.", "{friend} [smiled for the first time|looked up and smiled].",
    "\"Yes, [please|thank you],\" said {friend}.", "They found out that they both liked {color} [cars|birds|flowers|boats] and {food2}.", "Soon {friend} was not alone any more.", "All the others wanted to play with them too."]),
 "a snowy night": ("snow", "[A warm home is for sharing|Helping others warms the heart].", [
    "It was a cold [winter night|night in December|night in January], and snow was falling.", "{name} was [sitting by the fire|drinking tea|reading a book] when {he} heard a knock at the door.", "Outside stood {friend}, [cold and wet|covered with snow].",
    "\"[I have lost my way|My house is full of snow|It is so cold],\" said {friend}. \"May I come in?\"", "\"Of course,\" said {name}.", "{He} gave {friend} [hot soup|warm milk|a cup of tea] and {a_color} blanket.",
    "?Then {a_animal} knocked, and {name} let it in too.", "Soon the little house was full, but [everyone was warm|nobody was cold].", "They [sang|told stories|laughed] all night.", "In the morning, the sun was shining on the snow, and they made a big [snowman|path through the snow]."]),
 "a quarrel about {a_thing}": ("quarrel", "[A friend is worth more than a thing|It is good to say sorry|Sharing ends every quarrel].", [
    "One {weather} [day|morning], {name} and {friend} found {a_tadj} {thing} [near|by] the {place}.", "\"[It is mine|I saw it first|I want it]!\" [cried|said|shouted] {name}.", "\"No, it is mine!\" [cried|said|shouted] {friend}.",
    "They [pulled and pulled|both pulled at the {thing}] until it [fell into the mud|almost broke].", "?{friend} went home [alone|without a word], and {name} [stayed alone|was angry].", "{name} had the {thing}, but {he} was not happy. [It was no fun alone|Nobody was there to play with].",
    "?{A_animal} asked, \"[Why are you so sad|What is the matter]?\"", "{name} [ran|went|walked] to the house of {friend} and [knocked|rang the bell].", "\"I am sorry,\" said {name}. \"[Let us share it|You can have it today, and I will have it tomorrow|Please come and play with me].\"",
    "\"I am sorry too,\" said {friend}.", "[Soon they were laughing again|They shook hands and laughed|They played with the {thing} until evening]."]),
 "a cake for {friend}": ("cake", "[Mistakes can turn out well|It is the thought that counts].", [
    "{name} wanted to bake a cake for {friend}.", "{He} took [flour, eggs and sugar|eggs, milk and flour|butter, flour and honey] and mixed them in a big bowl.", "But {he} [forgot the sugar|took salt instead of sugar|left the cake in the oven too long].",
    "The cake was [hard as a stone|black|very strange].", "\"[Oh dear|Oh no|What a mess]!\" said {name}.", "?{He} almost cried.", "Then {friend} came in. \"[Something smells funny|What are you doing]?\" {fhe} asked.", "{name} told {fhim} everything.",
    "{friend} laughed. \"[Let us bake another one together|We can try again],\" {fhe} said.", "This time they put {food} into it, and the cake was [soft and sweet|delicious|the best cake of all].", "?They gave a piece to {a_animal} that was waiting at the window."]),
 "a trip in a boat": ("boat", "[Stay calm, and you will find a way|Two heads are better than one].", [
    "{name} and {friend} built a small boat from [wood|old boxes|a big box].", "They painted it {color} and put it on the [river|lake|water].", "At first, the water was [quiet|calm], and they [sang|waved to everybody|looked at the fish].",
    "Then the wind [became strong|grew stronger], and the boat [went round and round|began to rock].", "\"I am [scared|afraid]!\" said {friend}.", "\"[Hold on|Stay calm],\" said {name}. \"[We can use the blanket as a sail|I have a rope|We will row together].\"",
    "?A big wave came over the side, and they were wet.", "{name} [threw the rope around a tree|used {a_thing2} as an oar|held the sail with both hands].", "[Slowly|Little by little], the boat came to the [shore|land].", "?{A_animal} was waiting there and [laughed|looked surprised].",
    "\"That was [an adventure|exciting]!\" said {friend}. \"[Tomorrow again|But I am glad to be on land]!\""]),
 "a star that fell down": ("star", "[Everyone wants to be at home|Doing good makes you shine].", [
    "One night, {name} saw a [little|tiny|small] star fall from the sky.", "It landed [near|behind|in] the {place}.", "{name} [ran|went] there and found it [in the grass|under a tree|on a stone].", "\"I want to go home,\" said the star [sadly|and cried a little].",
    "\"I will help you,\" said {name}. But how? The sky was so high.", "{name} asked {friend}.", "\"We need [a ladder|a kite|a very tall tree],\" said {friend}.", "They [tried it with a ladder, but it was too short|climbed the highest tree, but it was not high enough].",
    "?The star became [darker and darker|weaker].", "Then [an owl|a crow|the wind] came. \"[I can fly higher than anyone|I will carry it],\" it said.", "[Up and up|Higher and higher] it went, until the star was in its place again.", "Since that night, one star shines [brighter than the others|a little brighter] over the house of {name}."]),
 "a day at the market": ("market", "[Being honest is worth more than money|A good deed is never lost].", [
    "{name} went to the market to buy {food} and {food2}.", "On the way, {he} [found|saw] a purse [on the ground|under a bench|near the {place}]. It was full of coins.", "\"[I could buy {a_thing} with that|Now I am rich],\" {he} thought.",
    "But then {he} saw {friend}, who was looking [everywhere|under every table] and was very [worried|sad].", "\"[Did you lose something|What are you looking for]?\" asked {name}.", "\"Yes, my purse,\" said {friend}. \"[All my money is in it|I need it to buy food].\"",
    "{name} [gave it back|held it out] [at once|with a smile].", "\"[Thank you so much|How can I thank you]?\" said {friend}.", "?Then {friend} [counted the coins|opened the purse], and nothing was missing.", "{friend} bought {a_thing} and gave it to {name} as a present."]),
 "the wish": ("wish", "[Be careful what you wish for|The best wish is for someone else].", [
    "{name} found {a_tadj} {thing} at the {place}.", "When {he} touched it, a [small|soft|deep] voice said, \"You have one wish.\"", "{name} thought of [gold|a big house|a mountain of {food}].",
    "?\"I could be [rich|famous|the strongest {kind} of all],\" {he} thought.", "Then {he} saw {friend}, who was [ill|sad|alone].", "\"I wish that {friend} [is well again|is happy again|is never alone],\" said {name}.",
    "The {thing} [shone brightly|became warm] and then it was still.", "{friend} [jumped up|began to laugh|stood up and danced].", "\"[What happened|How did you do that]?\" asked {friend}.", "{name} only smiled and [put the {thing} away|kept the secret]."]),
}


def cast(rng):
    person = rng.random() < 0.45
    girl = rng.random() < 0.5
    name = rng.choice(W.GIRLS if girl else W.BOYS)
    fgirl = rng.random() < 0.5
    friend = rng.choice([n for n in (W.GIRLS if fgirl else W.BOYS) if n != name])
    kind = ("girl" if girl else "boy") if person else rng.choice(W.ANIMALS)
    fkind = ("girl" if fgirl else "boy") if rng.random() < 0.45 else rng.choice([x for x in W.ANIMALS if x != kind])
    t, t2 = rng.sample(W.THINGS, 2)
    f, f2 = rng.sample(W.FOODS, 2)
    adj, fadj, tadj = rng.choice(["little", "small", "big", "young"] + W.VIRTUES), rng.choice(["little", "small", "big", "young"] + W.VIRTUES), rng.choice(W.ADJ + W.COLORS)
    skill, animal, color = rng.choice(W.SKILLS), rng.choice(W.ANIMALS), rng.choice(W.COLORS)
    virtue = rng.choice(W.VIRTUES)
    p = ("she", "her", "her") if girl else ("he", "his", "him")
    q = ("she", "her", "her") if fgirl else ("he", "his", "him")
    return dict(name=name, friend=friend, kind=kind, fkind=fkind, thing=t, thing2=t2, food=f, food2=f2, adj=adj, fadj=fadj,
                tadj=tadj, skill=skill[0], skilling=skill[1], animal=animal, color=color, virtue=virtue, place=rng.choice(W.PLACES),
                weather=rng.choice(W.WEATHER), called=rng.choice(["named", "called"]), he=p[0], his=p[1], him=p[2], He=p[0].title(),
                His=p[1].title(), fhe=q[0], fhis=q[1], fhim=q[2], FHis=q[1].title(), a_adj=a(adj), a_fadj=a(fadj), a_virtue=a(virtue),
                a_tadj=a(tadj), a_food=a(f) if f not in ("bread", "soup", "cheese", "honey") else "some " + f,
                a_food2=a(f2) if f2 not in ("bread", "soup", "cheese", "honey") else "some " + f2, a_animal=a(animal),
                A_animal=a(animal).capitalize(), a_thing=a(t), a_thing2=a(t2), a_color=a(color))


def story(rng):
    """(title topic, sentences, slots, plot id, moral)"""
    s = cast(rng)
    topic = rng.choice(list(PLOTS))
    plot, moral, body = PLOTS[topic]
    parts = [rng.choice(OPEN)]
    if plot != "school":
        parts.append(rng.choice(FRIEND))
    if rng.random() < 0.25:
        parts.append("?" + rng.choice(["Every day, {name} [played|walked] [near|by] the {place}.", "{name} liked {skilling} and {food2}.",
                                       "Everybody liked {name}, because {he} was so {virtue}."]))
    parts += body
    tail = [rng.choice(END)]
    if rng.random() < 0.4:
        tail.append(fill(rng, "[And so {name} learned: |The moral of the story: |They all agreed: ]" + moral, s))
    return fill(rng, topic, s), lines(rng, parts, s) + lines(rng, tail[:1], s) + tail[1:], s, plot, fill(rng, moral, s)


def paragraphs(rng, sentences):
    if len(sentences) < 6 or rng.random() < 0.5:
        return " ".join(sentences)
    i = rng.randint(2, 4)
    j = rng.randint(i + 2, len(sentences) - 1)
    return "\n\n".join(" ".join(p) for p in (sentences[:i], sentences[i:j], sentences[j:]) if p)


def ask_story(rng, topic, s):
    """A request that fits the story."""
    topic = topic[0].lower() + topic[1:]
    return fill(rng, rng.choice([
        "[Write|Tell me|Tell] a [short |little |]story about " + topic + ".",
        "[Please write|Please tell me|Can you write|Could you tell me] a story about {a_kind} [named|called] {name}" + ".",
        "[Write|Tell me|Please tell me|Can you tell me] a [short |]story about {a_kind} and {a_fkind}.",
        "[I would like to hear|I want] a [bedtime |short |]story about {a_kind} and {a_fkind}.",
        "[Write|Make up] a story with the words \"{thing}\", \"{place}\" and \"{kind}\".",
        "Tell me [something nice|a story]. It should be about " + topic + ".",
        "[Write|Tell] a story in which {a_kind} [named|called] {name} meets {a_fkind} [named|called] {friend}."]),
        dict(s, a_kind=a(s["kind"]), a_fkind=a(s["fkind"])))


def questions(rng, plot, s):
    """[(question, answer)] that the cast answers."""
    q = [("[Who is the story about|Who is the main character|What is the name of the {kind}]?", "[The story is about {name}.|{name}.|It is about {name} the {kind}.]"),
         ("What [kind of character|animal or person] is {name}?", "{name} is {a_kind}."),
         ("[What is the name of the friend|Who is the friend of {name}|What was the friend called]?", "[{friend}.|The friend is called {friend}.|It is {friend} the {fkind}.]"),
         ("[What happened at the end|How does the story end]?", "[It ends well.|The story has a happy end.] {name} and {friend} are [happy|good friends].")]
    if plot in ("lost", "wish", "broken", "quarrel"):
        q.append(("[Which thing is important in the story|What is the story about]?", "It is about {a_thing}."))
    if plot == "skill":
        q.append(("What did {name} [learn|want to learn]?", "{name} [learned|wanted to learn] to {skill}."))
    if plot in ("food", "picnic"):
        q.append(("What [food is in the story|did they eat]?", "[There is {food}.|There is {food} in the story.]"))
    if plot == "animal":
        q.append(("Which animal needed help?", "The {animal} needed help."))
    if plot in ("race", "picnic"):
        q.append(("Where did they go?", "They went to the {place}."))
    slots = dict(s, a_kind=a(s["kind"]), a_thing=a(s["thing"]))
    return [(fill(rng, x, slots), fill(rng, y, slots)) for x, y in rng.sample(q, min(len(q), rng.randint(1, 3)))]
