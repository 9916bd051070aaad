"""A server that gives the page to a browser and answers its requests from a script: what the real model would say is not certain enough
to test how it is shown."""

import itertools
import json
import pathlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src/serve/page"


def page():
    """As cmake/HadalPage.cmake puts it together."""
    text = (SOURCE / "index.html").read_text()
    return text.replace("/*STYLE*/", (SOURCE / "style.css").read_text()).replace("/*SCRIPT*/", (SOURCE / "app.js").read_text())


ANSWER = """Here is a program:

```python
def add(a, b):
    return a + b  # <b>not bold</b>
```

It adds with `a + b`, nothing more. <img src=x onerror="document.title='broken'"> 中文 😀"""


LISTS = """## Plan
1. **First** this
2. then `that`
   with more of it

- a
- b * c
and text, **not** bold: ** 5 **"""


class Mock(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.dropped, self.key, self.answers = [], 0, None, 0
        self.go_on = threading.Event()  # cleared by a test: the answer waits in its middle
        self.go_on.set()
        self.drop = threading.Event()  # a client went away in the middle of an answer
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message):
        self.reply(status, "application/json", json.dumps({"error": {"message": message, "type": "invalid_request_error"}}))

    def allowed(self):
        return self.server.key is None or self.headers.get("Authorization") == f"Bearer {self.server.key}"

    def do_GET(self):
        if self.path == "/":
            return self.reply(200, "text/html; charset=utf-8", page())
        if self.path != "/v1/models":
            return self.refuse(404, "not here")
        if not self.allowed():
            return self.refuse(401, "wrong key")
        self.reply(200, "application/json", json.dumps({"data": [{"id": "hadal-tiny"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return self.refuse(401, "wrong key")
        self.server.requests.append(body)
        self.server.answers += 1
        last = body["messages"][-1]
        text = last["content"]
        if "fail" in text:
            return self.refuse(400, "messages: this <b>cannot</b> be")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.tokens = 0
        try:
            self.answer(body, last, text)
        except (BrokenPipeError, ConnectionResetError):
            self.server.dropped += 1
            self.server.drop.set()

    def send(self, raw):
        self.wfile.write(raw.encode())
        self.wfile.flush()

    def usage(self):
        return {"prompt_tokens": 1234, "completion_tokens": self.tokens, "total_tokens": 1234 + self.tokens,
                "prompt_tokens_details": {"cached_tokens": 1024}, "completion_tokens_details": {"reasoning_tokens": 3}}

    def delta(self, delta, finish=None):
        self.tokens += 1
        event = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": self.usage()}
        raw = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        cut = len(raw) // 2  # events arrive in pieces, cut inside characters too
        self.wfile.write(raw[:cut])
        self.wfile.flush()
        time.sleep(0.006)
        self.wfile.write(raw[cut:])
        self.wfile.flush()

    def answer(self, body, last, text):
        self.delta({"role": "assistant", "content": ""})
        if "slow" in text:
            for i in itertools.count():  # until the client is gone
                self.delta({"content": f"word {i} "})
                time.sleep(0.01)
        if body["thinking"]["type"] == "enabled":
            for piece in ["First I ", "consider ", "<i>everything</i>.\n"]:
                self.delta({"reasoning_content": piece, "reasoning": piece})
                time.sleep(0.05)
        if "broken" in text:
            self.delta({"content": "half an ans"})
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if body.get("tools") and last["role"] == "user":
            for city in ["Rome", "Oslo"]:
                index = 0 if city == "Rome" else 1
                self.delta({"tool_calls": [{"index": index, "id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]})
                for piece in ['{"ci', 'ty": "', city, '"}']:
                    self.delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            self.delta({}, "tool_calls")
        elif last["role"] == "tool":
            self.delta({"content": "It is " + " and ".join(m["content"] for m in body["messages"] if m["role"] == "tool") + "."})
            self.delta({}, "stop")
        elif "lists" in text:
            for i in range(0, len(LISTS), 3):
                self.delta({"content": LISTS[i:i + 3]})
            self.delta({}, "stop")
        elif "long" in text:
            self.delta({"content": "\n\n".join(f"Paragraph {i}. " + "words " * 40 for i in range(40))})
            self.delta({}, "length")
        else:
            content = f"{ANSWER} ({self.server.answers})"
            for i in range(0, len(content), 7):
                if i == 70:
                    self.server.go_on.wait(30)
                self.delta({"content": content[i:i + 7]})
            self.delta({}, "stop")
        self.send(": a comment\n\n")
        self.send(f"data: {json.dumps({'choices': [], 'usage': self.usage()})}\n\n")
        self.send("data: [DONE]\n\n")


if __name__ == "__main__":
    print(Mock().url, flush=True)
    threading.Event().wait()
