"""`hadal bench serve` against a real server, and against none."""

import json
import os
import subprocess
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def bench(url, *options):
    return subprocess.run([os.environ["HADAL"], "bench", "serve", url, "--max-tokens", "4", "--prompt-words", "6", "--warm-up", "1", *options],
                          capture_output=True, text=True, timeout=300)


def test_sweep_and_heat_map(server, tmp_path):
    picture = tmp_path / "heat.svg"
    for option, points in [("--sweep-concurrency", [1, 2, 4]), ("--sweep-rate", [20, 40])]:
        result = bench(server.url, "--requests", "12", option, ",".join(map(str, points)), "--json", "--heat-map", str(picture))
        assert result.returncode == 0, result.stderr
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["rate" if "rate" in option else "concurrency"] for line in lines] == points
        for line in lines:
            assert line["requests"] == 12 and line["failed"] == 0 and line["tokens"] == 48
            assert line["first_token_ms"]["p50"] <= line["first_token_ms"]["p99.9"] <= line["first_token_ms"]["max"]
            assert line["client_cpu_seconds"] > 0
        svg = xml.etree.ElementTree.parse(picture).getroot()
        assert len(svg.findall(f"{SVG}rect")) == 1 + 2 * 24 * len(points)
        assert len(svg.findall(f"{SVG}polyline")) == 4


def test_arrivals(server, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 100 * i, "input_length": 600, "output_length": 2 + i, "hash_ids": [7, i]}) + "\n" for i in range(5)))
    result = bench(server.url, "--arrivals", str(trace), "--speedup", "2", "--json")
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["requests"] == 5 and line["tokens"] == 2 + 3 + 4 + 5 + 6
    assert line["prompt_tokens"] == 5 * 600
    assert line["seconds"] > 0.2  # the last one came at 400 / 2 ms
    trace.write_text('{"timestamp": 1}\n{"timestamp": "x"}\n')
    result = bench(server.url, "--arrivals", str(trace))
    assert result.returncode == 3 and "line 2: no \"timestamp\"" in result.stderr, result.stderr


def test_a_full_client_is_part_of_the_latency(server):
    """With one thread at a rate beyond its reach requests are sent late, and the time from when they were due counts."""
    result = bench(server.url, "--requests", "100", "--rate", "1000", "--concurrency", "1", "--json")
    assert result.returncode == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["sent_late_ms"]["max"] > 0.5 * line["seconds"] * 1000
    assert line["request_ms"]["max"] > line["sent_late_ms"]["max"]


def test_failures_are_said():
    result = bench("http://127.0.0.1:9", "--requests", "3")
    assert result.returncode == 4, result
    assert result.stdout == "" and "all 3 requests failed, the first with: " in result.stderr


def test_refused_requests_are_said(server):
    result = bench(server.url, "--requests", "3", "--model", "gpt-9")
    assert result.returncode != 0 and result.stdout == ""
    assert "all 3 requests failed, the first with: status 404" in result.stderr
