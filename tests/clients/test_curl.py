"""What docs/serving.md shows with curl."""

import json
import subprocess


def curl(*arguments):
    return subprocess.run(["curl", "-sS", "--max-time", "120", *arguments], check=True, capture_output=True, text=True).stdout


def test_chat(server):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
    answer = json.loads(curl(server.url + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d", json.dumps(body)))
    assert "Paris" in answer["choices"][0]["message"]["content"]
    lines = curl("-N", server.url + "/v1/chat/completions", "-d", json.dumps({**body, "stream": True})).split("\n\n")
    assert lines[-2] == "data: [DONE]"
    text = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content", "") for line in lines[:-2])
    assert text == answer["choices"][0]["message"]["content"]


def test_health_and_upload(server, tmp_path):
    assert curl("-o", "/dev/null", "-w", "%{http_code}", server.url + "/health") == "200"
    # More than a kibibyte: curl asks first (Expect: 100-continue).
    file = tmp_path / "body"
    file.write_text(json.dumps({"prompt": "word " * 200_000}))
    answer = json.loads(curl(server.url + "/tokenize", "-H", "Expect: 100-continue", "--data-binary", f"@{file}"))
    assert answer["count"] > 200_000
