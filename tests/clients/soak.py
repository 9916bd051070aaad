#!/usr/bin/env python3
"""A server under mixed load for a long time: streams, tools, schemas, several samples, wrong requests, clients that go, keys and quotas,
with pools so small that prefixes are evicted and requests preempted. Meant for the builds with sanitizers. Needs only Python.

    soak.py --hadal build/asan/hadal --minutes 60 [--seed 1] [--clients 4] [--json FILE]

Every answer must have a status that its request may get, and be JSON or server-sent events of JSON. Requests with a seed come again and
again: their answers must not change. At the end nothing runs, the cache is free, the server ends by itself with status 0, and a
sanitizer has said nothing.
"""

import argparse
import collections
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

KEYS = "alice\nbob\ncarol requests=2\ndave requests=0 tokens=60\n"  # so little that it runs out on a slow machine too
# The flags make everything small: 6 at once, steps of 64 tokens, a cache for about four long prompts.
FLAGS = ["--threads", "1", "--max-num-seqs", "6", "--max-waiting", "10", "--max-num-batched-tokens", "64", "--cache-tokens", "3000",
         "--prefix-cache-mib", "6", "--prefix-cache-disk-size", "4M", "--speculate", "2", "--max-body-mb", "1", "--http-threads", "2",
         "--max-model-len", "1500", "--default-max-tokens", "12", "--served-model-name", "tiny", "--shutdown-seconds", "60"]

TOPICS = ["a fox", "the sea", "two friends", "a long winter"]
LONG = [f"Once upon a time there was a story about {TOPICS[i % 4]}. " + "It went on and on, and nobody knew why. " * (14 + 3 * i) for i in range(16)]
WEATHER = {"name": "get_weather", "description": "The weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city"], "additionalProperties": False}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
                                           "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
          "required": ["a", "n"], "additionalProperties": False}


class Wrong(Exception):
    pass


class Gone(Exception):
    """This client left on purpose."""


class Client:
    """One connection at a time, by hand, so that it can leave anywhere."""

    def __init__(self, port, seed, report):
        self.port, self.random, self.report, self.connection = port, random.Random(seed), report, None

    def connect(self):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            self.connection.connect()
        return self.connection

    def drop(self):
        if self.connection is not None:
            if self.connection.sock is not None and self.random.random() < 0.5:  # a reset instead of an end
                self.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            self.connection = None

    def ask(self, path, body=None, key="alice", method="POST", leave=None, headers=None):
        """Status and JSON, text, or the list of a stream's events. `leave`: goes after so many events, or (0) without waiting."""
        connection = self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {**({"Authorization": "Bearer " + key} if key else {}), **(headers or {})})
        if leave == 0:
            time.sleep(self.random.uniform(0, 0.2))
            self.drop()
            raise Gone
        answer = connection.getresponse()
        kind = answer.getheader("Content-Type", "")
        if answer.status in (401, 404, 405, 429) and path.startswith("/v1/") and "X-Request-Id" not in answer.headers:
            raise Wrong(f"{answer.status} without a request's id")
        if answer.status == 429 and not answer.getheader("Retry-After"):
            raise Wrong("429 without Retry-After")
        if kind.startswith("text/event-stream"):
            events = []
            for line in answer:
                line = line.decode().rstrip("\r\n")
                if line.startswith("data: "):
                    events.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
                    if leave is not None and len(events) >= leave:
                        self.drop()
                        raise Gone
                elif line and not line.startswith(("event: ", ":")):
                    raise Wrong("no line of an event: " + line)
            self.finish(answer)
            return answer.status, events
        text = answer.read()
        self.finish(answer)
        if answer.status >= 400 and not path.startswith("/health"):
            error = json.loads(text)["error"]
            if not error["message"]:
                raise Wrong("an error without a message")
        return answer.status, json.loads(text) if kind.startswith("application/json") and text else text.decode()

    def finish(self, answer):
        if answer.will_close or self.random.random() < 0.1:
            self.connection.close()
            self.connection = None


# ---- what is asked: each returns (name of the outcome, what must come again for the same request) ---------------------------------------

def expect(condition, *what):
    if not condition:
        raise Wrong(" ".join(str(w) for w in what))


def check_stream(events, *ends):
    expect(events, "an empty stream")
    for event in events:
        expect(not (isinstance(event, dict) and (event.get("error") or event.get("type") == "error")), "an error in a stream", event)
    last = events[-1] if events[-1] == "[DONE]" else events[-1].get("type")
    expect(last in ends, "a stream that ends with", events[-1])


def text_of(events):
    texts = collections.defaultdict(str)
    for event in events:
        if isinstance(event, dict):
            for choice in event.get("choices", []):
                delta = choice.get("delta", choice)
                texts[choice["index"]] += (delta.get("content") or delta.get("text") or "") + (delta.get("reasoning_content") or "")
    return [texts[i] for i in sorted(texts)]


def known(c):
    """A completion with a seed: the same text, streamed or not, whatever the caches hold and whoever runs beside it."""
    r = random.Random(number := c.random.randrange(48))
    body = {"prompt": LONG[number % 16][:r.randrange(1, 3000)], "max_tokens": r.randrange(1, 20), "seed": number, "n": r.choice([1, 1, 3]),
            "temperature": r.choice([0, 0.7, 1.2]), "ignore_eos": r.random() < 0.5}
    extra = {"priority": c.random.randrange(-2, 3), "stream": c.random.random() < 0.5}
    status, answer = c.ask("/v1/completions", {**body, **extra}, key=c.random.choice(["alice", "bob"]))
    if status != 200:
        return status, None
    if extra["stream"]:
        check_stream(answer, "[DONE]")
        texts = text_of(answer)
    else:
        texts = [choice["text"] for choice in answer["choices"]]
    expect(len(texts) <= body["n"], "more choices than asked for")
    return 200, (f"known {number}", [t for t in texts if t])


def chat_body(c):
    r = c.random
    body = {"messages": [{"role": "user", "content": r.choice(["hi", "Tell me a story.", "日本語 😀", r.choice(LONG)[:r.randrange(1, 2000)]])}],
            "max_tokens": r.randrange(1, 24), "temperature": r.choice([0, 1])}
    if r.random() < 0.3:
        body["messages"].insert(0, {"role": "system", "content": "Be brief."})
    if r.random() < 0.2:
        body["messages"] += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
    for name, values in (("n", [2, 3]), ("stop", ["a", ["the", "\n"]]), ("reasoning_effort", ["high", "low", "none"]), ("priority", [-1, 3]),
                         ("logit_bias", [{"5": 10}]), ("repetition_penalty", [1.3]), ("top_k", [1, 20]), ("top_p", [0.5])):
        if r.random() < 0.15:
            body[name] = r.choice(values)
    if r.random() < 0.15:
        body |= {"logprobs": True, "top_logprobs": r.randrange(0, 6)}
    return body


def chat(c):
    status, answer = c.ask("/v1/chat/completions", chat_body(c), key=c.random.choice(["alice", "bob", "carol", "dave"]))
    if status == 200:
        expect(answer["usage"]["completion_tokens"] >= 0 and answer["choices"], answer)
    return status, None


def chat_stream(c):
    body = {**chat_body(c), "stream": True, "stream_options": {"include_usage": True}}
    status, events = c.ask("/v1/chat/completions", body, key=c.random.choice(["alice", "bob", "carol"]))
    if status == 200:
        check_stream(events, "[DONE]")
    return status, None


def leaves(c):
    """In the middle of a stream, or before anything came."""
    body = {**chat_body(c), "stream": True, "max_tokens": 200, "ignore_eos": True, "n": c.random.choice([1, 2])}
    path = c.random.choice(["/v1/chat/completions", "/v1/messages", "/v1/responses"])
    if path == "/v1/messages":
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "stream": True, "ignore_eos": True}
    if path == "/v1/responses":
        body = {"input": "hi", "max_output_tokens": 200, "stream": True, "ignore_eos": True}
    status, _ = c.ask(path, body, leave=c.random.choice([0, 0, 1, 3, 10]))
    return status, None


def leaves_in_request(c):
    data = json.dumps({"prompt": "x" * 500}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nContent-Length: %d\r\n\r\n" % len(data)
    with socket.create_connection(("127.0.0.1", c.port), 60) as s:
        s.sendall((head + data)[:c.random.randrange(1, len(head) + len(data))])
        time.sleep(c.random.uniform(0, 0.1))
    raise Gone


def tools(c):
    choice = c.random.choice(["auto", "required", "none", {"type": "function", "function": {"name": "get_weather"}}])
    stream = c.random.random() < 0.5
    body = {"messages": [{"role": "user", "content": "The weather in Rome?"}], "tools": [{"type": "function", "function": WEATHER}],
            "tool_choice": choice, "max_tokens": 60, "stream": stream, "parallel_tool_calls": c.random.random() < 0.5}
    status, answer = c.ask("/v1/chat/completions", body)
    if status != 200:
        return status, None
    if stream:
        check_stream(answer, "[DONE]")
    elif answer["choices"][0]["finish_reason"] == "tool_calls":
        for call in answer["choices"][0]["message"]["tool_calls"]:
            if choice not in ("auto", "none"):
                expect(isinstance(json.loads(call["function"]["arguments"])["city"], str), call)
    return status, None


def schema(c):
    kind = c.random.choice([{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}])
    body = {"messages": [{"role": "user", "content": "JSON, please."}], "response_format": kind, "max_tokens": 80}
    status, answer = c.ask("/v1/chat/completions", body, key="bob")
    if status == 200 and answer["choices"][0]["finish_reason"] == "stop":
        value = json.loads(answer["choices"][0]["message"]["content"])
        if kind["type"] == "json_schema":
            expect(value["a"] in ("x", "y") and 0 <= value["n"] <= 99 and set(value) <= {"a", "n", "b"}, value)
        else:
            expect(isinstance(value, dict), value)
    return status, None


def messages(c):
    stream = c.random.random() < 0.5
    body = {"messages": [{"role": "user", "content": "Hello there."}], "max_tokens": 12, "stream": stream}
    if c.random.random() < 0.3:
        body["tools"] = [{"name": WEATHER["name"], "input_schema": WEATHER["parameters"]}]
        body["tool_choice"] = {"type": c.random.choice(["auto", "any"])}
        body["max_tokens"] = 60
    if c.random.random() < 0.2:
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        body["max_tokens"] = 1100 if c.random.random() < 0.1 else 1025
        body["stop_sequences"] = ["e"]
    status, answer = c.ask("/v1/messages", body, key=None, headers={"x-api-key": "bob"})
    if status == 200:
        check_stream(answer, "message_stop") if stream else expect(answer["type"] == "message", answer)
    return status, None


def responses(c):
    stream = c.random.random() < 0.3
    status, answer = c.ask("/v1/responses", {"input": "Say a word.", "max_output_tokens": 8, "stream": stream})
    if status != 200:
        return status, None
    if stream:
        check_stream(answer, "response.completed", "response.incomplete", "[DONE]")
        return status, None
    status, next_answer = c.ask("/v1/responses", {"input": "And?", "max_output_tokens": 4, "previous_response_id": answer["id"]})
    if c.random.random() < 0.5:
        expect(c.ask("/v1/responses/" + answer["id"], method="GET")[0] == 200, "a stored response is gone")
        expect(c.ask("/v1/responses/" + answer["id"], method="DELETE")[0] == 200, "it cannot be deleted")
        expect(c.ask("/v1/responses/" + answer["id"], method="GET")[0] == 404, "it is still there")
    return status, None


def several_prompts(c):
    body = {"prompt": [c.random.choice(LONG)[:300] for _ in range(c.random.randrange(1, 5))], "max_tokens": 4, "echo": c.random.random() < 0.5}
    status, answer = c.ask("/v1/completions", body)
    if status == 200:
        expect(len(answer["choices"]) == len(body["prompt"]), answer)
    return status, None


def wrong(c):
    """What must be refused, and how."""
    ok = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    path, body, key, method, status = c.random.choice([
        ("/v1/chat/completions", b"{", "alice", "POST", 400),
        ("/v1/chat/completions", b"[" * 900, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "temperature": -1}, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "max_tokens": 10**6}, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "n": 0}, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "functions": [{}]}, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "model": "other"}, "alice", "POST", 404),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG[15] * 3}]}, "alice", "POST", 400),
        ("/v1/chat/completions", {**ok, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "x"}}}}, "bob", "POST", 400),
        ("/v1/chat/completions", ok, "eve", "POST", 401),
        ("/v1/chat/completions", ok, None, "POST", 401),
        ("/v1/messages", {"max_tokens": 2}, "alice", "POST", 400),
        ("/v1/completions", {"prompt": [[-1, 10**9]]}, "alice", "POST", 400),
        ("/v1/completions", b"x" * (1 << 20) + b"y", "alice", "POST", 413),
        ("/v1/nothing", ok, "alice", "POST", 404),
        ("/v1/chat/completions", None, "alice", "PUT", 405),
        ("/v1/responses/nothing", None, "alice", "GET", 404),
    ])
    try:
        got, answer = c.ask(path, body, key, method)
    except (BrokenPipeError, ConnectionResetError):
        expect(status == 413, "the connection broke")  # the refusal came before the body was sent
        c.drop()
        raise Gone
    expect(got == status, f"status {got} instead of {status}:", path, str(body)[:200], str(answer)[:200])
    return f"{got} as expected", None


def small(c):
    path = c.random.choice(["/health", "/metrics", "/load", "/version", "/v1/models", "/", "/v1/models/tiny"])
    if c.random.random() < 0.3:
        status, answer = c.ask("/tokenize", {"prompt": c.random.choice(LONG)[:200]})
        expect(status == 200 and c.ask("/detokenize", {"tokens": answer["tokens"]})[0] == 200, answer)
        return c.ask("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "hi"}]})[0], None
    return c.ask(path, method="GET")[0], None


def slow_reader(c):
    with socket.create_connection(("127.0.0.1", c.port), 600) as s:
        body = json.dumps({"prompt": "go", "max_tokens": 60, "stream": True, "ignore_eos": True}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bob\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        text = b""
        while piece := s.recv(200):
            text += piece
            time.sleep(0.005)
    expect(text.startswith(b"HTTP/1.1 429") or b"data: [DONE]" in text, text[-300:])
    return int(text[9:12]), None


MIX = [(known, 30), (chat, 12), (chat_stream, 12), (leaves, 14), (leaves_in_request, 3), (tools, 7), (schema, 7), (messages, 6), (responses, 5),
       (several_prompts, 4), (wrong, 10), (small, 6), (slow_reader, 1)]


class Report:
    def __init__(self):
        self.lock, self.counts, self.answers, self.failures, self.repeats = threading.Lock(), collections.Counter(), {}, [], 0

    def add(self, name, outcome, answer):
        with self.lock:
            self.counts[f"{name}: {outcome}"] += 1
            if answer is not None:
                self.repeats += answer[0] in self.answers
                if self.answers.setdefault(*answer) != answer[1]:
                    self.failures.append(f"{answer[0]}: {answer[1]!r} instead of {self.answers[answer[0]]!r}")

    def fail(self, name, error):
        with self.lock:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")
            print("FAILED", self.failures[-1][:1000], flush=True)


def client_loop(port, seed, report, end):
    c = Client(port, seed, report)
    kinds, weights = zip(*MIX)
    while time.time() < end and len(report.failures) < 20:
        kind = c.random.choices(kinds, weights)[0]
        try:
            status, answer = kind(c)
            if isinstance(status, int):
                expect(status in (200, 429), "status", status)
            report.add(kind.__name__, status, answer)
        except Gone:
            report.add(kind.__name__, "left", None)
        except Exception as error:  # every one is a finding
            report.fail(kind.__name__, error)
            c.drop()
    c.drop()


def metrics(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("GET", "/metrics", headers={"Authorization": "Bearer alice"})
    text = c.getresponse().read().decode()
    c.close()
    values = collections.Counter()
    for name, value in re.findall(r"^([a-z_:]+)(?:\{[^}]*\})? (\S+)$", text, re.M):
        values[name] += float(value)
    return values


def memory_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hadal", required=True, help="the program")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--json", help="file for the counts")
    o = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/keys", "w") as keys:
            keys.write(KEYS)
        log = open(f"{folder}/log", "w+")
        server = subprocess.Popen([o.hadal, "serve", "--port", "0", *FLAGS, "--prefix-cache-dir", f"{folder}/cache", "--api-key-file",
                                   f"{folder}/keys", "--trace", f"{folder}/trace"], stderr=log)

        def said():
            with open(f"{folder}/log") as text:
                return text.read()

        while not (found := re.search(r"listening on http://127.0.0.1:(\d+)", said())):
            if server.poll() is not None:
                sys.exit("the server does not start: " + said())
            time.sleep(0.1)
        port = int(found.group(1))
        while True:
            try:
                if Client(port, 0, None).ask("/health", method="GET")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.2)

        report, start = Report(), time.time()
        end = start + o.minutes * 60
        threads = [threading.Thread(target=client_loop, args=(port, o.seed * 1000 + i, report, end), daemon=True) for i in range(o.clients)]
        for t in threads:
            t.start()
        memory, told = [], 0
        while any(t.is_alive() for t in threads) and time.time() < end + 600:
            time.sleep(1)
            if server.poll() is not None:
                report.fail("server", Wrong(f"it ended with status {server.returncode}"))
                break
            if time.time() - told > 300:
                told = time.time()
                memory.append(memory_mib(server.pid))
                print(f"{told - start:6.0f} s: {sum(report.counts.values())} requests, {report.repeats} repeated, "
                      f"{len(report.failures)} failures, {memory[-1]} MiB", flush=True)
        if any(t.is_alive() for t in threads) and server.poll() is None:
            report.fail("clients", Wrong("a request hangs"))

        m = collections.Counter()
        if server.poll() is None:
            until = time.time() + 120
            while time.time() < until:
                m = metrics(port)
                if m["vllm:num_requests_running"] == m["vllm:num_requests_waiting"] == 0 and m["hadal_http_requests_in_flight"] <= 1:
                    break
                time.sleep(0.5)
            else:
                report.fail("idle", Wrong("something still runs"))
            if m["hadal_cache_free_tokens"] != m["hadal_cache_tokens"]:
                report.fail("idle", Wrong(f"{m['hadal_cache_free_tokens']} of {m['hadal_cache_tokens']} tokens of the cache are free"))
            for name in ("hadal_prefix_cache_disk_damaged_total", "hadal_prefix_cache_disk_failed_total"):
                if m[name]:
                    report.fail("disk", Wrong(f"{name} is {m[name]}"))
            server.send_signal(signal.SIGTERM)
            try:
                if server.wait(300) != 0:
                    report.fail("end", Wrong(f"status {server.returncode}"))
            except subprocess.TimeoutExpired:
                server.kill()
                report.fail("end", Wrong("the server does not end"))
        text = said()
        for line in text.splitlines():
            if re.search(r"Sanitizer|runtime error:|\[error\]|\[critical\]", line):
                report.fail("log", Wrong(line))
        if report.failures:
            print(text[-20000:] if len(text) > 20000 else text)
        with open(f"{folder}/trace") as trace:
            json.load(trace)

    events = ("vllm:num_preemptions_total", "hadal_prefix_cache_found_total", "hadal_prefix_cache_evictions_total",
              "hadal_prefix_cache_disk_found_total", "hadal_prefix_cache_disk_written_total", "hadal_prefix_cache_disk_evictions_total",
              "vllm:generation_tokens_total", "vllm:spec_decode_num_accepted_tokens_total", "hadal_http_aborted_requests_total",
              "hadal_http_refused_requests_total", "hadal_http_over_quota_requests_total")
    result = {"minutes": round((time.time() - start) / 60, 1), "seed": o.seed, "clients": o.clients, "requests": sum(report.counts.values()),
              "repeated_with_the_same_answer": report.repeats, "failures": len(report.failures), "memory_mib": memory,
              "server": {name: int(m[name]) for name in events}, "requests_by_kind": dict(sorted(report.counts.items()))}
    print(json.dumps(result, indent=1))
    if o.json:
        with open(o.json, "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    # Nothing that was to happen may be missing: else the pools were too large, or the time too short.
    missing = [name for name in events if m[name] == 0]
    if missing:
        print("never happened:", ", ".join(missing))
    return 1 if report.failures or (missing and o.minutes >= 10) else 0


if __name__ == "__main__":
    sys.exit(main())
