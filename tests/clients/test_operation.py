"""What the person who runs the server sets: keys and quotas, traces, and options that are wrong."""

import json
import os
import subprocess
import time

import anthropic
import openai
import pytest

from conftest import Server

ASK = dict(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=3)


def test_keys_and_quotas(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# comment\n\nalice requests=2\nbob requests=0 tokens=40\ncarol requests=0\n")
    server = Server("--served-model-name", "tiny", "--api-key-file", str(keys), "--api-key", "dave", "--requests-per-minute", "1")
    try:
        def chat(key):
            client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
            return client.chat.completions.create(**ASK)

        def message(key):
            return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0).messages.create(**ASK)

        with pytest.raises(openai.AuthenticationError):
            chat("eve")
        begin = time.monotonic()
        chat("alice")
        message("alice")
        with pytest.raises(openai.RateLimitError) as e:
            chat("alice")
        # The first comes back 30 s after it was used.
        assert e.value.code == "rate_limit_exceeded" and begin + 30 <= time.monotonic() + int(e.value.response.headers["retry-after"])
        assert int(e.value.response.headers["retry-after"]) <= 30
        with pytest.raises(anthropic.RateLimitError) as e:
            message("alice")
        assert "2 requests a minute" in str(e.value) and e.value.request_id
        chat("dave")
        with pytest.raises(openai.RateLimitError):
            chat("dave")
        chat("bob")  # its prompt, and three tokens
        with pytest.raises(openai.RateLimitError) as e:
            openai.OpenAI(base_url=server.url + "/v1", api_key="bob", max_retries=0).chat.completions.create(**{**ASK, "max_tokens": 39})
        assert "40 tokens a minute" in str(e.value)
        for _ in range(5):
            chat("carol")
    finally:
        server.stop()


def test_trace(tmp_path):
    trace = tmp_path / "trace.json"
    server = Server("--served-model-name", "tiny", "--trace", str(trace))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    for i in range(3):
        client.chat.completions.create(**ASK, n=2, extra_headers={"X-Request-Id": f"request-{i}"})
    server.stop()
    events = json.loads(trace.read_text())
    for i in range(3):
        mine = {e["name"]: e for e in events if e["ph"] == "X" and e["args"]["request"] == f"request-{i}"}
        assert {"request", "queue", "prefill", "decode"} <= set(mine)
        assert mine["request"]["args"]["outcome"] in ("stop", "length")
        assert mine["queue"]["ts"] <= mine["prefill"]["ts"] <= mine["decode"]["ts"]
    # Nothing overlaps on a row of the picture but what is inside.
    for row in {e["tid"] for e in events if e["ph"] == "X"}:
        requests = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == row and e["name"] == "request")
        assert all(a[1] <= b[0] + 1 for a, b in zip(requests, requests[1:]))


@pytest.mark.parametrize("options, message", [
    (["--prefill", "nonsense"], "unknown prefill mode 'nonsense'"),
    (["--speculate", "99"], "--speculate is 99, the model drafts 5 tokens a step"),
    (["--speculate", "fast"], "--speculate is 'fast'"),
    (["--requests-per-minute", "5"], "give --api-key or --api-key-file"),
    (["--api-key-file", "/nonexistent"], "cannot open /nonexistent"),
    (["--trace", "/nonexistent/trace"], "cannot write the trace to /nonexistent/trace"),
    (["--host", "nowhere.example"], "is no numeric address"),
    (["--ssl-certfile", "/nonexistent", "--ssl-keyfile", "/nonexistent"], "cannot use the certificate"),
])
def test_wrong_options_are_refused_before_it_listens(options, message):
    result = subprocess.run([os.environ["HADAL"], "serve", "--port", "0", *options], capture_output=True, text=True, timeout=120)
    assert result.returncode in (2, 3, 4), result
    assert message in result.stderr and "listening" not in result.stderr, result.stderr


def test_wrong_lines_of_a_key_file(tmp_path):
    keys = tmp_path / "keys"
    for line in ["k requests", "k requests=x", "k speed=5", "k tokens=-1", "k tokens="]:
        keys.write_text("first\n" + line + "\n")
        result = subprocess.run([os.environ["HADAL"], "serve", "--port", "0", "--api-key-file", str(keys)], capture_output=True, text=True, timeout=120)
        assert result.returncode == 2 and ", line 2: '" in result.stderr, (line, result.stderr)
