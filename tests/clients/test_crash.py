"""kill -9 under load with the prefix cache on disk: the next start is clean, what is damaged is skipped, and answers are those of a cold run."""

import http.client
import json
import os
import random
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import Server

HELP = subprocess.run([os.environ["HADAL"], "serve", "--help"], capture_output=True, text=True).stdout
pytestmark = pytest.mark.skipif("--prefix-cache-dir" not in HELP, reason="this build has no prefix cache on disk")

TOPICS = ["a fox", "the sea", "two friends", "a long winter"]
# Several pages of 128 tokens each, with common beginnings.
PROMPTS = [f"Once upon a time there was a story about {TOPICS[i % 4]}. " + "It went on and on, and nobody knew why. " * (20 + i) for i in range(12)]


def ask(server, prompt):
    body = {"prompt": prompt, "max_tokens": 12, "seed": 5, "ignore_eos": True}
    answer = urllib.request.urlopen(urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode()), timeout=120)
    return json.loads(answer.read())["choices"][0]["text"]


def test_killed_under_load(tmp_path):
    cold = Server("--no-prefix-cache")
    expected = {p: ask(cold, p) for p in PROMPTS}
    cold.stop()

    cache, rng, wrong = tmp_path / "cache", random.Random(1), []
    for round in range(4):
        server = Server("--prefix-cache-dir", str(cache))
        stop = threading.Event()

        def load(seed):
            mine = random.Random(seed)
            while not stop.is_set():
                prompt = mine.choice(PROMPTS)
                try:
                    if (text := ask(server, prompt)) != expected[prompt]:
                        wrong.append((prompt, text))
                except (OSError, ValueError, http.client.HTTPException):  # it was killed in between
                    return

        threads = [threading.Thread(target=load, args=(10 * round + i,)) for i in range(4)]
        for t in threads:
            t.start()
        end = time.time() + 120
        while len(list(cache.rglob("*.state"))) < 8 and time.time() < end:  # something to lose, and to keep
            time.sleep(0.1)
        stop.wait(rng.uniform(0.5, 3))
        server.kill()
        stop.set()
        for t in threads:
            t.join()
        assert wrong == []
        # What a failing disk may leave behind.
        files = sorted(f for f in cache.rglob("*") if f.is_file() and f.stat().st_size > 64 and f.name != "about.txt")
        assert files
        for number, f in enumerate(rng.sample(files, min(4, len(files)))):
            data = bytearray(f.read_bytes())
            if number % 3 == 0:
                data = data[:rng.randrange(len(data))]
            elif number % 3 == 1:
                data[rng.randrange(len(data))] ^= 0x10
            else:
                data = bytearray()
            f.write_bytes(data)

    server = Server("--prefix-cache-dir", str(cache))
    try:
        assert [p for p in PROMPTS if ask(server, p) != expected[p]] == []
        assert server.metric("hadal_prefix_cache_disk_found_total") > 0
        print(f"damaged entries found by the last server: {server.metric('hadal_prefix_cache_disk_damaged_total'):.0f}")
    finally:
        server.stop()
