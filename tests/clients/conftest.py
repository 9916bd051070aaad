"""A real server for the tests: the binary in $HADAL with the embedded model, on a free port of 127.0.0.1."""

import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pytest


class Server:
    def __init__(self, *flags, tls=None):
        self.tls = tls
        binary = os.environ["HADAL"]
        self.process = subprocess.Popen(
            [binary, "serve", "--port", "0", "--threads", "1", "--disable-log-requests", *flags],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        port = threading.Event()

        def read():
            for line in self.process.stderr:
                self.log.append(line)
                if found := re.search(r"listening on (https?)://127.0.0.1:(\d+)", line):
                    self.scheme, self.port = found.group(1), int(found.group(2))
                    port.set()

        threading.Thread(target=read, daemon=True).start()
        assert port.wait(60), "".join(self.log)
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5, context=self.tls)
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server does not become ready: " + "".join(self.log))

    def metrics(self):
        return urllib.request.urlopen(self.url + "/metrics", timeout=30).read().decode()

    def metric(self, name):
        """The sum over all labels."""
        values = re.findall(r"^" + re.escape(name) + r"\{[^}]*\} (\S+)$", self.metrics(), re.M)
        assert values, name
        return sum(map(float, values))

    def memory_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))

    def becomes_idle(self, seconds=60):
        end = time.time() + seconds
        while time.time() < end:
            if (self.metric("vllm:num_requests_running") == 0 and self.metric("vllm:num_requests_waiting") == 0
                    and self.metric("hadal_http_requests_in_flight") <= 1):  # the question itself
                return True
            time.sleep(0.1)
        return False

    def kill(self):
        self.process.kill()
        self.process.wait(60)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "".join(self.log)


@pytest.fixture(scope="session")
def server():
    s = Server("--served-model-name", "tiny")
    yield s
    s.stop()


WEATHER = {
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
