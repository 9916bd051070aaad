"""What people and animals do in a given state, and why: the causes and effects of everyday.py. Verb phrases start with the base form."""

PEOPLE = {  # state after "be": things done because of it; "//" separates what follows
 "hungry": ["make {dish} // It <it:taste> very good.", "go to the kitchen and <look> for something to eat // There <it:be> some {food} on the table.", "eat a big plate of {food} // After that {i} <feel> much better.", "buy {dish} at the {shop} // {i} <eat> it on the way home.",
            "look into the fridge // There <it:be> only some {food} and a bottle of milk.", "ask {my} mother for some {food} // She <it:give> {me} a big piece.", "go to a small restaurant and <order> {dish} // The waiter <it:bring> it quickly.", "cook some {meal} and <eat> it all", "take {dish} from {my} bag and <begin> to eat"],
 "thirsty": ["drink a glass of {drink} // It <it:be> cold and fresh.", "go to the kitchen and <fill> a glass with water", "buy a bottle of {drink} // {i} <drink> it in one minute.", "ask for a glass of {drink} // The woman <it:give> it to {me} with a smile.", "drink from the little stream // The water <it:be> clear and cold."],
 "tired": ["go to bed early // {i} <sleep> until {time} in the morning.", "sit down on the sofa and <close> {my} eyes // Soon {i} <be> asleep.", "lie down for {duration} // After that {i} <feel> better.", "fall asleep in the armchair", "drink a cup of coffee // It <it:help> a little.", "stay at home and <read> a book", "walk home slowly and <go> to bed", "not want to go out", "sleep for {duration} // When {i} <wake> up, {i} <feel> fresh again."],
 "cold": ["put on {clothes} // Soon {i} <be> warm again.", "close the window and <make> a cup of tea", "sit down by the fire // The fire <it:be> warm and bright.", "drink a cup of hot chocolate // It <it:warm> {my} hands.", "put on {my} {wear} and {my} gloves", "take a blanket and <put> it around {my} shoulders", "run a little to get warm"],
 "hot": ["open the window // A cool wind <it:come> in.", "take off {my} jacket", "drink a glass of cold water", "go for a swim in the {water} // The water <it:be> cool and clear.", "sit down in the shade of a {tree}", "eat an ice cream"],
 "sad": ["begin to cry // {my} friend <it:take> {my} hand and <it:say>, \"Do not worry. [It will be all right|Everything will be fine|I am here].\"", "call {my} best friend // They <they:talk> for {duration}.", "go to {my} room and <close> the door", "not want to talk to anybody", "sit at the window and <look> at the rain", "go for a long walk by the {nature} // After that {i} <feel> a little better.", "listen to some music // It <it:make> {me} smile again.", "write a letter to {my} friend"],
 "happy": ["smile and <begin> to sing", "dance through the {room}", "call {my} mother and <tell> her the good news // She <it:be> very happy too.", "laugh and <clap> {my} hands", "invite all {my} friends to a party // Everybody <it:come> on {day}.", "jump up and <laugh>", "give {my} friend a big hug", "buy {present} for {my} sister", "sing all the way home"],
 "angry": ["shut the door and <go> to {my} room", "not say a word", "shout at {my} brother // Later {i} <be> sorry about it.", "leave the room without a word", "throw the letter into the fire", "count to ten and <take> a deep breath // Then {i} <be> calm again.", "walk away", "tell them what {i} <think>"],
 "afraid": ["hide under the blanket", "call for help // {my} father <it:come> at once.", "turn on the light // There <it:be> nobody in the room.", "hold {my} mother's hand", "run home as fast as {i} <can>", "not dare to move", "close {my} eyes and <count> to ten // When {i} <open> them again, everything <it:be> quiet.", "whistle a song"],
 "bored": ["turn on the radio // There <it:be> a song that {i} <like>.", "read an old book // It <it:be> better than {i} <expect>.", "call a friend and <go> to the {place}", "look out of the window // A {color} car <it:stop> in front of the house.", "draw a picture of a {animal}", "play {game} with {my} brother", "clean the whole {room}", "begin to learn the {instrument}"],
 "ill": ["stay in bed all day // {my} mother <it:bring> {me} some soup.", "go to the doctor // The doctor <it:give> {me} some medicine and <it:say>, \"Stay in bed for {small} days.\"", "not go to [work|school]", "drink a lot of tea and <sleep>", "call the doctor", "have to stay in hospital for {small} days // {my} friends <they:visit> {me} every day."],
 "late": ["run to the {vehicle} // {i} <reach> it at the last moment.", "take a taxi // It <it:be> expensive, but it <it:be> fast.", "not have time for breakfast", "say sorry to everybody // Nobody <it:be> angry.", "hurry down the street", "miss the beginning of the {film}", "have to wait outside", "forget {my} {thing} at home"],
 "excited": ["not sleep all night", "get up very early", "talk about it all day", "run from room to room", "pack {my} bag {small} days before the trip", "tell all {my} friends about it", "cannot sit still"],
 "nervous": ["drink a glass of water and <take> a deep breath", "read the question {small} times // Then {i} <write> down the answer.", "walk up and down in the {room}", "not eat anything that morning", "look at {my} watch every minute", "call {my} sister // She <it:say>, \"You can do it.\"", "forget what {i} <want> to say"],
 "lonely": ["get a {pet} // Now {i} <have> a friend.", "write a letter to {my} old friend", "go to the café on the corner and <talk> to the people there", "call {my} family every evening", "visit {my} neighbour // They <they:drink> tea and <they:talk> about old times.", "join a club for {hobby}"],
 "proud": ["show the picture to everyone", "put the prize on the shelf in the {room}", "tell {my} parents about it // Everybody <it:be> proud.", "smile all day", "write about it to {my} grandmother"],
 "busy": ["not have time for lunch", "work until {evening_time} in the evening", "forget to call {my} mother", "say that {i} <can> not come", "write everything on a list // There <they:be> {number} things on it.", "come home very late"],
 "curious": ["open the box // There <it:be> {object} in it.", "look through the keyhole", "ask many questions", "open the door a little // Behind it <it:be> a small room with a {furniture}.", "go closer // It <it:be> only a {animal}.", "read the letter {small} times"],
 "wet": ["take off {my} {wear} and <put> on dry clothes", "take a hot bath", "run into the house", "stand by the fire until {my} clothes <they:be> dry", "catch a cold"],
 "lost": ["ask an old man for the way // He <it:point> to the left and <it:say>, \"Go straight on to the {place}.\"", "look at the map // It <it:be> very old.", "walk back to the {place}", "stop at a corner and <look> around", "call a friend // He <it:come> and <it:find> {me} near the {place}."],
 "rich": ["buy a big house by the {nature}", "travel to {country} every year", "give a lot of money to the poor", "not have to work any more", "own {small} cars and a boat"],
 "poor": ["live in a small room under the roof", "not have money for new clothes", "work hard every day", "eat only {food} and bread", "sell {my} old watch", "share everything with {my} family"],
}
ANIMALS = {
 "hungry": ["go to {my} bowl // It <it:be> empty.", "look for something to eat in the garden", "eat everything in the bowl", "steal a piece of {food} from the table", "wait at the kitchen door // At last somebody <it:bring> some {food}.", "sit in front of the fridge", "run to the kitchen", "catch a mouse", "find some {food} under the table and <eat> it", "drink some milk and <fall> asleep", "follow the woman into the kitchen // She <it:give> {me} some fish."],
 "tired": ["sleep in the sun", "lie down under the {tree}", "fall asleep on the sofa", "curl up in {my} basket and <sleep>", "not move for {duration}", "lie by the fire and <close> {my} eyes"],
 "afraid": ["hide under the bed", "run away", "climb up a {tree}", "run behind the house", "not come out for {duration}", "jump onto the wall", "shake and <look> at the door"],
 "happy": ["jump up and down", "run around in the garden", "play with a {toy}", "lick the hand of the boy", "sit on the wall in the sun", "wag {my} tail" , "roll in the grass"],
 "thirsty": ["drink from the bowl", "go to the stream and <drink>", "drink some milk", "find some water in a bucket and <drink> it all"],
 "cold": ["lie down by the fire", "come into the house", "creep under the blanket", "sit near the warm stove"],
 "curious": ["look into the bag", "walk into the {room}", "jump onto the table", "follow the children to the {place}", "smell the flowers", "look out of the window all morning"],
 "angry": ["show {my} teeth", "run at the other animal", "make a loud noise", "not let anybody come near"],
 "bored": ["play with an old {toy}", "look out of the window", "go for a walk on the roof", "run after a leaf", "pull all the socks out of the cupboard"],
 "ill": ["not eat for {small} days", "lie in {my} basket all day", "have to go to the animal doctor // The doctor <it:give> {me} some medicine."],
}

ACTS = {  # done: reasons
 "climb the {tree}": ["{i} <want> to see the {nature}", "there <they:be> sweet fruits at the top", "the {toy} <it:hang> in the branches", "a dog <it:run> after {me}", "{i} <look> for a bird's nest"],
 "wake up late": ["the alarm clock <it:do> not ring", "{i} <go> to bed after midnight", "{my} clock <it:be> broken", "{i} <be> very tired", "it <it:be> {day} and there <it:be> no school"],
 "go to the {place}": ["{i} <want> to meet a friend", "the weather <it:be> {adj}", "{i} <have> nothing else to do", "there <it:be> a {film} in the evening", "{i} <need> some {item}", "{i} <like> it there"],
 "buy {clothes}": ["the winter <it:be> coming", "{my} old one <it:be> too small", "it <it:be> very cheap", "{i} <like> the colour", "there <it:be> a party on {day}"],
 "laugh": ["the story <it:be> very funny", "{my} brother <it:make> a funny face", "the {animal} <it:be> in the kitchen", "everybody else <it:laugh> too"],
 "cry": ["{i} <can> not find {my} {thing}", "{my} {pet} <it:be> ill", "the film <it:be> so sad", "{i} <fall> off the bicycle", "nobody <it:want> to play with {me}", "{my} best friend <it:move> to {city}"],
 "stay at home": ["it <it:be> raining", "{i} <have> {ill}", "{i} <have> a lot of work", "the {vehicle} <it:do> not come", "there <it:be> too much snow on the road", "{i} <want> to see a film on television"],
 "run to the {place}": ["{i} <be> late", "{i} <hear> a loud noise", "{i} <want> to be the first", "it <it:begin> to rain", "{my} friends <they:wait> there"],
 "open the window": ["it <it:be> very hot in the room", "there <it:be> smoke in the {room}", "{i} <want> to hear the birds", "somebody <it:call> {my} name"],
 "like the {place}": ["it <it:be> so quiet there", "there <they:be> always many people", "the people there <they:be> friendly", "{i} <can> meet {my} friends there", "there <they:be> so many {flower}"],
 "take an umbrella": ["the sky <it:be> full of dark clouds", "it <it:be> raining", "{my} mother <it:tell> {me} to", "the man on the radio <it:say> that it would rain"],
 "call the police": ["somebody <it:break> the window", "{my} {thing} <it:be> gone", "there <it:be> a strange man in the garden", "the shop door <it:be> open in the middle of the night"],
 "learn English": ["{i} <want> to work in {city}", "{my} aunt <it:live> in {city}", "{i} <like> English songs", "{i} <need> it for {my} job"],
 "walk home": ["the last bus <it:be> gone", "{i} <have> no money for the bus", "it <it:be> a warm evening", "{my} bicycle <it:be> broken"],
 "get up early": ["the cows <they:have> to be milked", "{i} <want> to see the sunrise", "{my} train <it:leave> at {time}", "there <it:be> a lot of work to do", "{i} <want> to go fishing"],
 "be happy": ["it <it:be> {my} birthday", "{i} <win> the {sport} game", "{my} friend <it:come> to visit", "the holidays <they:begin>", "the teacher <it:like> {my} story", "the sun <it:be> shining"],
 "be sad": ["{my} {pet} <it:be> ill", "{i} <lose> {my} {thing}", "{my} best friend <it:move> to another town", "it <it:rain> on {my} birthday", "nobody <it:remember> {my} birthday", "the holidays <they:be> over"],
 "be angry": ["somebody <it:take> {my} {thing}", "the {vehicle} <it:be> late again", "{my} brother <it:eat> all the {food}", "nobody <it:listen> to {me}", "the neighbours <they:be> so loud"],
 "be tired": ["{i} <work> all day", "{i} <sleep> badly", "it <it:be> late", "the way <it:be> long", "the baby <it:cry> all night"],
 "work hard": ["{i} <want> to buy a house", "{i} <need> the money", "{i} <like> {my} job", "there <it:be> a test on {day}"],
}
ANIMAL_ACTS = {
 "bark": ["there <it:be> somebody at the door", "{i} <see> a cat on the wall", "{i} <be> hungry", "{i} <hear> a noise in the garden", "the postman <it:come>", "{i} <want> to go out"],
 "run away": ["there <it:be> a loud noise", "the gate <it:be> open", "{i} <be> afraid of the big dog", "the children <they:be> too loud", "somebody <it:drop> a plate"],
 "hide under the {furniture}": ["there <it:be> a storm", "{i} <be> afraid", "somebody <it:come> in", "{i} <want> to sleep", "the children <they:want> to catch {me}"],
 "jump onto the {furniture}": ["{i} <smell> the fish", "the sun <it:be> shining there", "there <it:be> a mouse on the floor", "{i} <want> to look out of the window"],
 "sleep all day": ["{i} <be> old", "it <it:be> so hot", "{i} <be> awake all night", "it <it:rain>"],
 "wait at the door": ["{i} <be> hungry", "it <it:be> cold outside", "{i} <want> to come in", "the girl <it:be> not at home"],
}

WEATHER = {  # what the weather is like: what one does
 "it rained [all day|the whole day|all morning|for hours]|it was raining|it rained very hard|the rain did not stop": ["stay at home and <play> {game}", "not go out", "read books all day", "take an umbrella", "stay inside and <bake> a cake", "watch a film at home", "wait under a {tree} until it was over", "sit at the window and <look> at the rain", "go to the museum and not to the park", "play in the {room}", "drink tea and <tell> stories", "have to cancel the picnic", "wear {my} raincoat"],
 "the sun was shining|it was a sunny day|it was warm and sunny|the weather was [fine|good|wonderful]|the sky was blue": ["go to the {nature}", "have a picnic by the {nature}", "go for a walk in the park", "sit in the garden and <drink> {drink}", "swim in the {water}", "ride {my} bicycle to the {place}", "play {sport} outside", "eat breakfast in the garden", "work in the garden all day", "take the children to the {place}", "hang the washing in the garden"],
 "it was [very |so |]cold|it was freezing|a cold wind was blowing|the ground was frozen": ["put on {my} warm {wear}", "make a fire", "stay by the stove all evening", "drink hot tea", "wear two pairs of socks", "skate on the frozen lake", "walk fast to keep warm", "go home early", "buy {clothes}"],
 "it was [very |so |too |]hot|the sun was burning|it was the hottest day of the year": ["go swimming in the {water}", "eat ice cream", "stay in the shade", "drink a lot of water", "sleep with the window open", "sit under a {tree}", "close the curtains", "not want to work"],
 "it was snowing|there was snow everywhere|everything was white|it snowed all night": ["build a snowman in the garden", "throw snowballs", "clean the path in front of the house", "stay in the warm house", "go skiing in the mountains", "give some seeds to the birds", "take the sledge to the hill", "walk to school through the deep snow"],
 "it was windy|a strong wind was blowing|there was a storm": ["fly a kite", "hold {my} hat", "close all the windows", "stay inside", "not go out in the boat", "listen to the wind", "light a candle", "lose {my} hat on the bridge"],
 "it was [foggy|dark]|it was getting dark|the night was dark|there was no light": ["turn on the lamp", "walk home quickly", "hold hands", "not see the road", "go slowly", "light a candle", "lose the way", "wait for the morning", "hear strange noises"],
}

FREE = """go to the {place};visit {my} grandmother;read a book about {animals};watch a film;play {game};play {sport} with some friends;listen to music;cook {meal} for everybody;work in the garden;clean the {room};
write a letter to {name};call {name};go shopping at the {shop};buy some {item} and some {item2};meet {name} at the {place};go for a walk;take the {vehicle} to {city};drink {drink} in a café;feed the {animals};paint the {furniture} {color};
repair the {furniture};do the washing;wash the dishes;wash the car;water the plants;bake a cake;learn new words;do {my} homework;tell stories;sing songs;take photographs of the {nature};go fishing at the {water};ride {my} bicycle to the {place};
swim in the {water};look at the stars;look for mushrooms in the woods;pick apples;pick some {flower};play the {instrument};practise the {instrument};sit on a bench and <watch> the people;have breakfast in the garden;
have dinner with {name};make {dish};eat {food} with {food2};draw a picture of a {animal};plan the next holiday;talk about {hobby};help {name} with the {subject} homework;go to the {film};take the dog for a walk;brush the cat;
build a house of wood for the birds;look through old photographs;write in {my} diary;visit a friend in {city};climb a hill;run around the lake;read the newspaper;drink a cup of tea;go home""".replace("\n", "").split(";")

TIMES = """in the morning;in the afternoon;in the evening;at night;on {day};on {day} morning;on {day} evening;last {day};last week;last month;last {season};yesterday;yesterday evening;this morning;one day;one morning;one evening;two days ago;a week ago;
after lunch;after dinner;after breakfast;after school;after work;before breakfast;at {time};at the weekend;in {month};in {season};at first;then;later;soon;at last;in the end;after {duration};that evening;that afternoon;the next day;the next morning;after that""".replace("\n", "").split(";")
HABIT_TIMES = """every day;every morning;every evening;every {day};on {day}s;in {season};at the weekend;in the evening;after work;after dinner;after school;in the morning;before breakfast;often;sometimes;usually;always;once a week;twice a week;from time to time;every year;every summer;late at night""".replace("\n", "").split(";")
