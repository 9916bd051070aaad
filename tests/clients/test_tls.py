"""TLS with a certificate made for the test."""

import json
import ssl
import subprocess
import urllib.request

from conftest import Server


def test_tls(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    trusted = ssl.create_default_context(cafile=str(certificate))
    server = Server("--ssl-certfile", str(certificate), "--ssl-keyfile", str(key), tls=trusted)
    try:
        body = {"prompt": "Once upon a time", "max_tokens": 40, "seed": 1}

        def ask(more):
            request = urllib.request.Request(server.url + "/v1/completions", json.dumps({**body, **more}).encode())
            return urllib.request.urlopen(request, context=trusted, timeout=120).read().decode()

        whole = json.loads(ask({}))["choices"][0]["text"]
        chunks = [line[6:] for line in ask({"stream": True}).split("\n\n") if line]
        assert chunks[-1] == "[DONE]"
        assert "".join(json.loads(c)["choices"][0]["text"] for c in chunks[:-1]) == whole
        # A large body needs many TLS records.
        large = json.dumps({"prompt": "word " * 100_000}).encode()
        answer = urllib.request.urlopen(urllib.request.Request(server.url + "/tokenize", large), context=trusted, timeout=120).read()
        assert json.loads(answer)["count"] > 100_000
        # Plain HTTP on that port gets no answer, and does no harm.
        assert subprocess.run(["curl", "-sS", "--max-time", "5", f"http://127.0.0.1:{server.port}/health"], capture_output=True).returncode != 0
        assert json.loads(ask({}))["choices"][0]["text"] == whole
    finally:
        server.stop()
