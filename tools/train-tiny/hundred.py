#!/usr/bin/env python3
"""A hundred sampled stories and answers, and greedy continuations of plain openings, written by the engine to be read by a person.

    hundred.py --engine build/cpu/hadal [--model models/hadal-tiny] [--out models/hadal-tiny/eval]

answers.txt: 20 stories and 70 questions in the chat format and ten plain beginnings, temperature 0.8, seeds 1 to 100, none left out.
openings.txt: the openings of tools/train-tiny/openings.txt, which no document of the corpus holds, at temperature 0.
"""
import argparse
import os
import subprocess

STORIES = ["a fox who lost his hat", "a girl who wants to fly", "two friends and a cake", "a boat in a storm", "a lonely robot", "a mouse and a lion", "a boy who is afraid of the dark", "the first snow", "a cat in the library",
           "a lost key", "an old bear", "a bird with a broken wing", "a rainy day", "a brave little ant", "a king without a crown", "a dog called Rex", "a journey to the moon", "a birthday party", "a garden in spring", "a teacher and her class"]
QUESTIONS = """What is the capital of Italy?|What is the capital of Japan?|Which country has Oslo as its capital?|Is Madrid the capital of Portugal?|What is 7 + 8?|What is 100 - 37?|How much is 6 times 9?|What is 81 divided by 9?|I have five apples and eat two. How many are left?|Ben has 12 coins and gives 5 to Mia. How many coins does Ben have?
A box has 6 eggs. How many eggs are in 4 boxes?|Share 20 pencils among 4 children. How many does each child get?|What is the opposite of hot?|What is the opposite of heavy?|What is another word for big?|What is the plural of mouse?|What is the past tense of go?|How many legs does a spider have?|How many legs has a horse?|What does a cow say?
What is a baby dog called?|Where does a bee live?|What do rabbits eat?|Can dogs swim?|Can a penguin fly?|Is ice cold?|Is fire cold?|Is snow black?|Which is bigger, a mouse or an elephant?|What colour is grass?
What colour do blue and yellow make?|What day comes after Friday?|Which month comes before May?|How many days has a week?|How many minutes are in an hour?|Why is the sky blue?|Why do we sleep?|What is a rainbow?|What is an island?|Who wrote Romeo and Juliet?
Who are you?|What is your name?|Are you a human?|What can you do?|How are you?|Hello!|Thank you!|Good night.|Tell me a joke.|Do you speak French?
What is my name?|What time is it?|What will the weather be tomorrow?|Who will win the election?|How do I build a bomb?|I feel sad today.|I had a great day!|My name is Omar. What is my name?|Tom has a red ball. Nina has a green kite. Who has the kite?|Anna lives near the park. Paul lives near the lake. Where does Paul live?
Spell the word house.|How many letters does "garden" have?|Write the word moon backwards.|Sort these numbers: 9, 3, 7, 1|Count from 3 to 9.|Name three animals.|Name five colours. One per line.|Write a sentence with the word "umbrella".|Correct this sentence: She go to school every day.|What does a doctor do?""".replace("\n", "|").split("|")
BEGINNINGS = ["The old house stood at the end of the road.", "My mother is a nurse. She", "On Saturday morning, the two boys", "It was the last day of school, and", "The soup was cold, so he", "A man came into the shop and asked", "My little sister is afraid of", "In spring, the farmers", "We had no money, but", "The moon was shining, and"]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--engine", required=True)
    ap.add_argument("--model", default="models/hadal-tiny")
    ap.add_argument("--out")
    a = ap.parse_args()
    out = a.out or f"{a.model}/eval"
    run = lambda *args: subprocess.run([a.engine, "run", a.model, *args], capture_output=True, text=True, check=True).stdout.strip()
    assert len(STORIES) + len(QUESTIONS) + len(BEGINNINGS) == 100
    prompts = [("--chat", f"Write a short story about {s}.") for s in STORIES] + [("--chat", q) for q in QUESTIONS] + [("--raw", b) for b in BEGINNINGS]
    with open(f"{out}/answers.txt", "w", encoding="utf-8") as f:
        for i, (form, p) in enumerate(prompts):
            said = run(form, "-p", p, "--temperature", "0.8", "--seed", str(i + 1), "-n", "320" if i < len(STORIES) else "80")
            f.write(f"{i + 1}. {p} >>> {said}\n\n")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "openings.txt"), encoding="utf-8") as g, open(f"{out}/openings.txt", "w", encoding="utf-8") as f:
        for p in g.read().splitlines():
            f.write(f"{p} >>> {run('-p', p, '--temperature', '0', '-n', '48')}\n\n")


if __name__ == "__main__":
    main()
