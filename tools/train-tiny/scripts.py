"""Everyday events as sequences of sentences (notation: everyday.py). One line a sentence; "?" lines stay half of the time."""

EVENTS = [s.strip().split("\n") for s in """
[On {day}|One morning|That day|Last {day}], S <wake> up [late|very late|too late].
[The alarm clock <it:do> not ring|{i} <look> at the clock. It <it:be> already {time}|The sun <it:be> high in the sky].
{i} <jump> out of bed and <put> on {my} clothes.
?There <it:be> no time for breakfast.
S <take> {my} bag and <run> to the bus stop.
But the bus [<it:be> gone|<it:do> not wait|<it:drive> away].
[So|Then] S <have> to [walk|take a taxi|run all the way|go by bicycle].
When {i} <come> to [work|school|the office], [everybody <it:look> at {me}|nobody <it:be> there|the door <it:be> closed].
[Then {i} <remember>: it <it:be> Sunday|It <it:be> a holiday, and S <go> back to bed|"You are late," <it:say> the [boss|teacher]. "I am sorry," S <say>].

S <lose> {my} {thing}[ in the {place}| on the way home||].
{i} <look> [everywhere|in every room|in {my} bag, on the table and under the bed], but {i} <can> not find it.
?{i} <be> very sad about it.
S <ask> F, "Have you seen my {thing}?"
"No," <f:say> F. "But [I will help you to look for it|maybe it is in the {room}|ask {name}]."
[They <they:look> together for {duration}|They <they:go> back to the {place} and <they:look> on the ground].
[At last|In the end], F <f:find> the {thing} [under a chair|behind the {furniture}|in the pocket of an old coat|in the grass|on the kitchen table].
S <be> [very happy|so glad|very pleased] and <say>, "[Thank you so much|Thank you|You are a real friend]!"

S <go> to the {shop}[ on {day}| in the morning| after work||].
{i} <want> to buy some {item}, some {item2} and some {item3}.
?There <they:be> many people in the shop.
S <take> a basket and <walk> [around|from shelf to shelf].
The {item} <they:be> [very cheap|too expensive|fresh|on the top shelf].
S <ask> the [man|woman|girl], "How much [is it|are they|does it cost]?"
"[Two euros|Three dollars|Five pounds|One dollar]," <it:be> the answer.
S <pay> and <put> everything into {my} bag.
[On the way home|At home], {i} <see> that {i} <forget> the {item2}.
[So S <have> to go back|{i} <laugh> and <go> back to the shop|"Never mind," {i} <think>].

S <want> to [bake a cake|make pancakes|cook a big dinner|make a birthday cake] for F.
{i} <take> some flour, some eggs, some milk and some sugar.
S <mix> everything in a [big|blue|large] bowl.
?The kitchen <it:be> full of flour.
Then {i} <put> it into the [oven|pan] and <wait> for {duration}.
Soon the whole house <it:smell> [good|of cake|wonderful].
[But S <forget> the time, and the bottom <it:become> black|When it <it:be> ready, S <put> it on the table|{i} <put> some {food} on top].
F <f:come> [home|in] and <f:ask>, "[What is that smell|Is that for me|What are you doing]?"
They <they:sit> down and <they:eat> it together.
"[This is delicious|It is the best I have ever eaten|Very good]," <f:say> F.

Last {season}, S <travel> to {country} [with {my} family|with a friend|alone|by train].
{i} <stay> in a [small|nice|cheap|big] hotel near the {nature}.
The weather <it:be> {weather}, but that <it:do> not matter.
Every day, {i} <go> to the [beach|{place}|old town] and <eat> {food} in a little restaurant.
?The people there <they:be> very friendly.
?S <buy> {object} for {my} [mother|sister|friend].
On the last evening, {i} <sit> by the [sea|river|lake] and <look> at the [sunset|stars|boats].
S <take> many photographs.
[It <it:be> a wonderful trip|{i} <want> to go there again next year|After two weeks, {i} <fly> home, tired but happy].

S <be> [ill|not well]. {i} <have> {ill}.
{i} <stay> in bed and <drink> hot tea with honey.
F <f:come> to see {me} and <f:bring> some [soup|fruit|flowers|books].
"How do you feel?" <f:ask> F.
"[Not very well|A little better|My head hurts|Terrible]," S <say>.
?The doctor <it:come> in the afternoon and <it:look> into {my} mouth.
"You [must|should] stay in bed for {small} days," <it:say> the doctor, "and take this medicine."
After {small} days, S <feel> much better.
[Soon {i} <can> go to school again|{i} <get> up and <eat> a big breakfast|{i} <thank> F for the help].

It <it:be> {my} birthday[. {i} <be> {number} years old|, but nobody <it:say> anything| on {day}].
S <wake> up early and <run> to the {room}.
[On the table <it:be> a cake with candles|There <they:be> {color} balloons everywhere|But there <it:be> nobody].
F <f:give> {me} {present}.
"[Happy birthday|This is for you|Open it]!" <f:say> F.
?In the afternoon, {my} friends <they:come> and they all <they:play> {game}.
They <they:eat> cake and <they:drink> {drink}.
?One friend <it:play> the {instrument}, and everybody <it:sing>.
In the evening, S <be> tired but [very happy|happy].
[It <it:be> the best birthday of all|{i} <say> thank you to everybody|"What a beautiful day," {i} <think>].

S <have> a {pet}. [Its name <it:be> Coco|It <it:be> {color} and white|It <it:be> still very young|It <it:be> called Lucky].
Every morning, S <give> it some food and fresh water.
It <it:like> to [sleep in the sun|play with a ball|sit on {my} shoulder|hide under the {furniture}].
One day, the {pet} <it:be> gone.
S <look> in the garden, in the street and behind the house.
{i} <ask> all the neighbours, but nobody <it:know> where it <it:be>.
?{i} <can> not sleep that night.
The next morning, [F <f:call>|there <it:be> a knock at the door|S <hear> a small noise].
["Is this your {pet}?" <f:ask> F|The {pet} <it:be> in the {furniture} and <it:look> at {me}|The {pet} <it:sit> in front of the door].
S <take> it in {my} arms and <be> [so happy|very glad].

S <work> [in a|at a|for a] {work}.
{i} <get> up at {time} [every day|every morning] and <have> {drink} and some {food} for breakfast.
Then {i} <take> the {vehicle} to [work|town].
?The work <it:be> [hard|not easy|sometimes boring], but {i} <like> it.
At noon, {i} <eat> lunch with [F|the other workers|a friend].
In the afternoon, there <it:be> [a lot to do|not much to do|always a cup of coffee].
At {evening_time}, {i} <go> home.
?In the evening, {i} <like> [reading|to watch television|to go for a walk|{hobby}].
S <go> to bed early, because {i} <have> to get up early.

[One day|One {weather} day|On {day}], S and F <they:go> to the {nature}.
They <they:take> a basket with {food}, {food2} and a bottle of {drink}.
?The way <it:be> long, and the sun <it:be> hot.
Under a [big|tall|green] tree, they <they:sit> down and <they:eat>.
Suddenly, [it <it:begin> to rain|a {animal} <it:come> out of the grass|dark clouds <they:come>|a big dog <it:run> up to them].
[They <they:run> to an old hut|S <throw> a piece of {food} to it|They <they:hold> a blanket over their heads].
?"[What now|Look|Do not be afraid]," <f:say> F.
They <they:wait> for {duration}.
[Then the sun <it:come> out again|Then it <it:be> over|At last, they <they:can> go on].
They <they:walk> home [slowly|singing|with wet feet|hand in hand].

S <hear> a [strange|loud|soft] noise [in the night|in the {room}|at the window|outside].
{i} <sit> up in bed and <listen>.
There it <it:be> again!
"Who is there?" S <ask>, but nobody <it:answer>.
{i} <take> [a lamp|a candle|a stick] and <go> to the {room}.
?{my} heart <it:beat> fast.
{i} <open> the door [slowly|very slowly|carefully].
There, [on the table|in the corner|on the floor|behind the {furniture}], <it:sit> a [{animal}|{pet}|small {animal}].
S <begin> to laugh. "[It is only you|You gave me a fright|So it was you]!"
Then {i} <go> back to bed and <sleep> until the morning.

S <wait> at the [station|bus stop|airport|harbour] for F.
[It <it:be> cold|It <it:be> late|There <they:be> many people]. 
The {vehicle} <it:be> [late|not there yet].
{i} <buy> a [newspaper|cup of coffee|sandwich] and <sit> down on a bench.
?An old [man|woman] <it:sit> down beside {me} and <it:tell> {me} about [the old days|the war|a trip to {country}].
At last, the {vehicle} <it:come>. The doors <they:open>, and the people <they:get> out.
S <look> at every face.
Then {i} <see> F with a [big|heavy|{color}] bag.
"[Here I am|It is so good to see you|How was the journey]!" 
They <they:go> home together and <they:talk> [all evening|until midnight].

S <want> to learn [to swim|to drive|to dance|to ski|to play the {instrument}|to ride a horse].
F <f:say>, "[I can teach you|It is not difficult|Come with me on {day}]."
At first, it <it:be> [very hard|difficult|not easy].
S <fall> [down|over] many times, but {i} <do> not give up.
?"[Try again|Slowly|Look straight ahead]!" <f:say> F.
{i} <practise> every [day|evening|{day}] for {small} [weeks|months].
Then, one {weather} day, {i} <can> do it.
S <be> [so proud|very happy].
"[I knew it|Well done|You see]," <f:say> F.

S <live> in a [small|big|old|white] house [near|by] the {nature}.
The house <it:have> {small} rooms and a [red|grey|green] roof.
In front of it <it:be> a garden with {flower} and {flower2}.
Behind it <it:stand> an old {tree}.
From the window, {i} <can> see the [{nature}|church|hills|road].
?In {season}, many birds <they:sing> there.
?Next door <it:live> F, who <it:be> very [kind|friendly|quiet|old].
S <like> the house, because it <it:be> [quiet|warm|bright|full of light].
[{i} <do> not want to live anywhere else|But in winter it <it:be> cold|{my} friends often <they:come> to visit].

S <find> {object} [in the street|on the beach|in the grass|under the {furniture}|in an old {furniture}|in the {room}].
"[What is this|Whose is it|How strange]?" {i} <think>.
{i} <pick> it up and <look> at it carefully.
?It <it:be> very old and [dirty|heavy|beautiful].
S <show> it to F.
"[That is mine|I know this|I lost it long ago|It belongs to {name}]," <f:say> F.
[S <give> it back|They <they:take> it to the police|S <put> it on a shelf in the {room}].
[F <f:be> so happy that {fi} <f:give> {me} {dish}|Since that day, they <they:be> friends|{i} still <have> it today].

There <it:be> a test in {subject} on {day}.
S <be> [nervous|not worried|a little afraid].
{i} <learn> [all evening|for {duration}|with F].
?F <f:ask> {me} many questions.
In the morning, {i} <eat> a good breakfast and <go> to school.
The teacher <it:give> everybody a sheet of paper.
The first question <it:be> [easy|hard|very long].
S <think> for a long time and then <write> [the answer|something down|{small} pages].
[A week later|The next day|On {day2}], the teacher <it:say>, "[Very good|Well done|You can do better]!"
[{i} <run> home to tell {my} mother|S <be> very proud|Next time {i} <want> to learn more].

S <plant> [some seeds|a small tree|some {flower}|potatoes and beans] in the garden.
Every day, {i} <water> [them|the plants] and <wait>.
For [two|three] weeks, nothing <it:happen>.
?"[Be patient|Give it time]," <f:say> F.
Then, on a {weather} morning, S <see> something green.
The plants <they:grow> [bigger and bigger|very fast|every day].
In {season}, there <they:be> [many flowers|sweet fruits|so many {item} that {i} <give> some to F].
[S <be> proud of {my} garden|Everybody <it:stop> to look at it|{i} <cook> a soup for the whole family].

S <write> a letter to F. 
"Dear {name}," {i} <write>, "how are you? I am [fine|well]. [The weather is {weather}|We have a new {pet}|I miss you]."
Then {i} <put> the letter into an envelope and <take> it to the post office.
[Many days <they:pass>|S <wait> for {small} weeks|Every morning, {i} <look> into the letter box].
At last, the postman <it:bring> an answer.
{i} <open> it [at once|with shaking hands|in the kitchen] and <read> it {small} times.
F <f:want> to come for a visit in {month}.
S <be> so happy that {i} <begin> to [dance|sing].

[One day|On {day}|In {month}], {my} [car|bicycle] <it:break> down [on the way to {city}|in the middle of the road|near the {place}], and S <have> to stop.
It <it:be> [dark|raining|very hot], and there <it:be> no house near.
{i} <try> to repair it, but {i} <do> not know how.
?After {duration}, another car <it:stop>.
F <f:get> out and <f:ask>, "[Can I help you|What is wrong|Do you need help]?"
[F <f:look> at it and <f:find> the problem at once|They <they:push> it to the next village|F <f:have> the right tool].
"[You are so kind|How can I thank you|Thank you very much]," S <say>.
"[It was nothing|You are welcome|Have a safe journey]," <f:say> F with a smile.
S <get> home [late|at midnight|in time for dinner].

S <meet> F at the {place}.
They <they:have> not seen each other for [many years|a long time|{number} years].
"[Is it really you|How are you|You have not changed]!" <f:say> F.
They <they:go> to a café and <they:order> {drink} and cake.
F <f:tell> {me} about {fmy} work in {city} and about {fmy} children.
S <talk> about {my} [family|house|job|garden].
?They <they:laugh> about the old days at school.
When they <they:say> goodbye, it <it:be> already dark.
"[Let us meet again soon|See you next week|Write to me]," S <say>.

S <have> a [dream|strange dream|beautiful dream].
In the dream, {i} <can> fly like a bird.
{i} <fly> over the [houses|{nature}|town] and <see> the people far below.
Everybody <it:be> as small as an ant.
Then {i} <meet> a [white|big|{color}] bird that <it:can> speak.
"[Follow me|Where are you going|Be careful]," <it:say> the bird.
They <they:fly> to a [cloud|mountain|castle in the sky].
Suddenly, S <begin> to fall.
Then {i} <wake> up. [{i} <lie> on the floor beside the bed|It <it:be> morning, and the sun <it:be> shining|It <it:be> only a dream].

There <it:be> a fire in [the old house|a house in our street|the {shop}|the kitchen].
S <see> the smoke first.
{i} <run> out and <call>, "[Fire|Help|Come quickly]!"
The neighbours <they:come> with buckets of water.
?F <f:be> still in the house.
S <run> in and <bring> {fme} out.
Then the firemen <they:come> with their big red car.
After {duration}, the fire <it:be> out.
Everybody <it:thank> {me}. "[You are very brave|You saved my life|That was dangerous]," <f:say> F.

S <play> {sport} [every {day}|for the school team|in a club|with some friends].
On {day}, there <it:be> an important game.
Many people <they:come> to watch.
At first, the other team <it:be> better.
?It <it:begin> to rain, and the grass <it:be> wet.
In the last minute, S <get> the ball and <run>.
[{i} <shoot>, and it <it:be> in|{i} <fall>, but the ball <it:roll> on|{i} <pass> it to F].
"[Goal|We have won|Yes]!" <it:shout> everybody.
[They <they:win> by {small} to one|They <they:lose>, but it <it:be> a good game|F <f:shake> {my} hand].

S <sit> [in the garden|by the window|on a bench in the park|in a café] and <read> [a book|the newspaper|a letter].
The [sun <it:be> shining|birds <they:be> singing|street <it:be> quiet].
[Suddenly|After a while|Then], F <f:come> and <f:sit> down beside {me}.
"What are you reading?" <f:ask> F.
"[It is a story about a {animal}|A book about {country}|Nothing special|A letter from my sister]," S <say>.
?"[Is it good|May I read it too|Tell me about it]?"
They <they:talk> for {duration}.
Then it <it:get> cold, and they <they:go> [home|inside].

S <move> to {city} [in {month}|last year|because of a new job].
At first, {i} <do> not know anybody there.
The flat <it:be> [small|on the fourth floor|empty], and the street <it:be> [loud|noisy|very long].
?S often <think> of {my} old home by the {nature}.
One evening, there <it:be> a knock at the door.
It <it:be> F from next door with {dish}.
"[Welcome|I am your neighbour|You are new here, are you not]?" <f:say> F.
S <ask> {fme} in, and they <they:drink> {drink} together.
Since then, {i} <like> the city [more and more|very much|a little better].

S <go> to the [doctor|dentist], because {my} [{part}|tooth|ear] <it:hurt>.
The waiting room <it:be> full.
{i} <sit> down and <look> at an old newspaper.
?A small boy <it:cry>, and his mother <it:tell> him a story.
After {duration}, it <it:be> {my} turn.
"[Where does it hurt|What can I do for you|Please sit down]?" <it:ask> the doctor.
S <show> {me} the place.
"[It is nothing serious|You must rest for a week|I will give you something against the pain]," <it:say> the doctor.
[{i} <be> glad and <go> home|It <it:do> not hurt any more|S <thank> the doctor].

Every {day}, S <visit> {my} [grandmother|old aunt].
[She|The old woman] <it:live> in a small house near the {place}.
{i} always <bring> [some flowers|a cake|a basket of {item}|the newspaper].
They <they:sit> in the kitchen and <they:drink> {drink}.
?Sometimes they <they:look> at old photographs.
"When I was young," <it:be> how every story <it:begin>.
S <like> these stories, [even the ones that {i} <know>|because they <they:be> so funny|and {i} <listen> for hours].
[At {evening_time}, S <go> home|When it <it:get> dark, {i} <say> goodbye|"Come again soon," <it:be> what {i} <hear> at the door].

S <have> a [shop|small shop|little bakery|café] in {city}.
{i} <sell> {item}, {item2} and {item3}.
Every morning at {time}, {i} <open> the door and <clean> the windows.
The first [customer|guest] <it:be> always F.
"[The same as always|Good morning|What is new today]?" <f:ask> F.
?F <f:buy> [a loaf of bread|some {item}|a cup of coffee] and <f:stay> for a talk.
In the afternoon, the children <they:come> after school and <they:buy> sweets.
[Business <it:be> good|S <do> not earn much, but {i} <be> happy|In {season}, there <they:be> not many people].
In the evening, S <count> the money and <close> the door.

S <take> the train to {city}.
The train <it:be> [full|almost empty|late], and {i} <find> a seat [by the window|next to F].
Outside, [fields and villages <they:go> by|it <it:be> raining|the sun <it:go> down].
?{i} <read> a book and <eat> an apple.
F <f:sit> opposite and <f:ask>, "[Are you going far|Is this seat free|Do you live in {city}]?"
"[Yes, to {city}|Only two more stops|I am visiting a friend]," S <say>.
They <they:talk> about [the weather|{country}|their families|good books].
[Suddenly, the train <it:stop> in the middle of a field|The time <it:go> by quickly].
When {i} <get> off, F <f:wave> [from the window|and smiles|goodbye].

S <go> to bed, but {i} <can> not sleep.
{i} <turn> from side to side and <look> at the [clock|ceiling|moon].
?The [dog next door|wind|rain] <it:be> so loud.
{i} <think> about [the next day|the test|F|the long journey].
At midnight, {i} <get> up and <drink> [a glass of milk|some water|a cup of tea].
{i} <count> sheep. One, two, three, four...
[At last, S <fall> asleep|In the morning, {i} <be> very tired|When the sun <it:rise>, S <be> still awake].

The [little |]{animal} <it:be> alone in the forest.
It <it:be> [hungry|cold|afraid], and it <it:do> not know the way home.
S <find> it [under a tree|near the river|on the road] and <take> it home in a basket.
{i} <give> it some [milk|water|bread] and <make> a bed of [straw|old clothes|leaves].
?For three days, it <it:do> not eat anything.
F <f:say>, "[It will be well again|Wild animals must be free|Give it time]."
Slowly, it <it:become> stronger.
After {small} weeks, S <carry> it back to the forest and <open> the basket.
It <it:look> back once, and then it <it:be> gone.

S and F <they:have> a quarrel about [money|a game|the {thing}|a silly joke].
"[I never want to see you again|You are wrong|That is not true]!" S <say>.
F <f:go> away without a word.
For {small} days, they <they:do> not speak to each other.
?S <feel> bad about it.
Then {i} <take> a piece of paper and <write>, "I am sorry."
[The next morning|On {day}|In the evening], F <f:stand> at the door with [flowers|a cake|two tickets for the {film}].
"[Let us forget it|I am sorry too|It was my mistake]," <f:say> F.
Since then, they <they:be> better friends than before.

S <be> at the {place} with {my} children.
They <they:want> to see [the {animals}|everything|the big clock].
Suddenly, the smallest <it:be> gone.
S <call> {my} name and <run> from one corner to the next.
A [man|woman] in a {color} coat <it:say>, "[I saw a child near the door|Over there, by the water|Ask the policeman]."
At last, {i} <find> the little one in front of [a cage|a shop window|an ice cream stand].
"[I was not lost|Where have you been|I only wanted to look]!" <it:say> the child.
S <hold> the small hand very tight all the way home.
""".replace("{my} name and <run>", "loudly and <run>").replace("and smiles|", "").replace("S <show> {me} the place.\n", "S <show> where it <it:hurt>.\n").strip().split("\n\n")]

TALES = [s.strip().split("\n") for s in """
[Once upon a time|Long ago|Many years ago], there was [a king|a rich king|an old king|a queen] who had three [daughters|sons].
The oldest was [proud|strong|beautiful], the second was [clever|lazy|rich], and the youngest was [kind|small and quiet|good to everyone].
One day, the [king|ruler] fell ill, and no doctor could help.
"[Only the water of life can help|Bring me the golden apple|Who finds the white bird will rule after me]," [he said|said the old ruler].
The oldest went first. On the way, [an old man|an old woman|a small grey man] asked for bread.
"I have none for you," said the oldest and rode on. Soon the way was lost in the forest.
?The second did the same and did not come back either.
Then the youngest set out. "[Take half of my bread|Sit down and eat with me]," said the youngest to the old one.
"Because you are kind, I will show you the way," was the answer.
[Behind seven hills|In a dark castle|At the end of the world], the youngest found what was needed.
The king became well again, and there was a great feast.
And the youngest ruled the land [wisely|well and for a long time|until a great age].

[Once upon a time|Once|Long ago], there lived a poor [fisherman|woodcutter|tailor|shepherd] [near|by] the {nature}.
He had a wife and {small} children, and often there was nothing to eat.
One day, he [caught a golden fish|found a small bottle|saw a white {animal} in a trap].
"[Let me go|Set me free|Help me], and I will give you three wishes," it said.
The man [was surprised|could not believe it|laughed] and let it go.
At home, he told his wife everything.
"[I wish we had bread|I wish for a pot of soup]," said the wife, and there it was on the table.
"[What a silly wish|You could have asked for gold]!" said the man. "I wish it would hang from your nose!"
And so it happened. The wife cried and cried.
"I wish that everything was as before," said the man, and the three wishes were gone.
But they [laughed about it|had learned something|still had their bread], and they were happy.

[Once|Long ago|In a faraway land], there was a [princess|young prince|little queen] who could not [laugh|sleep|sing].
The king asked all the wise men, but nobody knew what to do.
"Whoever makes my child laugh or sleep again shall have [half of my kingdom|a bag of gold|a castle]," said the king.
Many people came. Some told jokes, some danced, and some played the {instrument}.
Nothing helped.
One day, a poor [boy|girl|shepherd] came with a small [{animal}|grey donkey|white goose].
The animal [jumped onto the table|stole the hat of the king|fell into the soup].
Everybody was quiet. Then there was a small laugh, and it became louder and louder.
The whole castle laughed, and even the cook came out of the kitchen.
The king kept his word, and they all lived happily ever after.

In a dark forest, there lived an old [witch|giant|dragon|wolf].
Everybody in the village was afraid of it, and nobody dared to go into the forest.
One day, a child called {name} lost the way.
It was getting dark, and {name} saw a light between the trees.
{name} knocked at the door. "[Please help me|I am lost|Please let me come in]," said the child.
A deep voice said, "[Are you not afraid of me|Who are you|What do you want]?"
"[You look sad|You have a nice fire|I think you are only lonely]," said {name}.
[They ate soup together|They drank tea and told stories|{name} sang a song].
In the morning, the old creature showed {name} the way home.
From that day on, [{name} came every {day}|nobody in the village was afraid any more|they were friends].

A [fox|wolf|lion|crow] and a [mouse|hen|goat|turtle] met at the {nature}.
"[I am going to eat you|I am the cleverest animal of all|You are so small]," said the first.
"[Wait|Please wait|That is true]," said the other. "[First let me sing a song|There is a bigger one behind you|Can you drink all this water]?"
The first animal [turned around|thought about it|opened its mouth].
At that moment, the little one [ran into a hole|jumped into the river|climbed up a tree].
"[You are strong, but not clever|Next time think first|Goodbye]!" it called.
The big animal went home [hungry|angry|without a word].

Two [frogs|mice|brothers|neighbours] lived on both sides of a [river|road|hill].
Each of them thought that the other side was better.
"There the [grass is greener|sun is warmer|apples are sweeter]," they said.
So one day, they decided to change places.
They met in the middle and said hello.
After a week, both were unhappy. "[It is just the same here|At home I knew every stone|I miss my old bed]," said one.
They met in the middle again and laughed.
"[Home is best|The grass always looks greener on the other side]," they said and went home.
""".strip().split("\n\n")]
