"""Prometheus itself: promtool objects to borrowed names only, and every query of the dashboard gets data from a server that scraped a run."""

import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest

from conftest import Server

TOOLS = pathlib.Path(os.environ.get("PROMETHEUS", ""))
pytestmark = pytest.mark.skipif("PROMETHEUS" not in os.environ, reason="the Debian package prometheus could not be fetched")

# What promtool says about the names that dashboards for vLLM read. Our own names give it no reason.
ALLOWED = [
    r"vllm:\w+ metric names should not contain ':'",
    r'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix',
]


def test_promtool(server):
    urllib.request.urlopen(urllib.request.Request(server.url + "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 3}).encode()), timeout=60).read()
    found = subprocess.run([TOOLS / "promtool", "check", "metrics"], input=server.metrics(), text=True, capture_output=True)
    said = found.stdout.splitlines() + found.stderr.splitlines()
    assert [line for line in said if line.strip() and not any(re.fullmatch(a, line.strip()) for a in ALLOWED)] == []
    assert any("vllm:" in line for line in said)  # it did look


def queries():
    dashboard = json.loads((pathlib.Path(__file__).parents[2] / "docs/grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "10s").replace("$model", "tiny")


def test_every_query_of_the_dashboard_has_data(tmp_path):
    # Drafts are on, and 10% of the clients go: all panels have something to show.
    server = Server("--served-model-name", "tiny", "--speculate", "auto")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: hadal, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n")
    prometheus = subprocess.Popen(
        [TOOLS / "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stop = threading.Event()

    def load(number):
        body = {"prompt": f"Once upon a time, {number}", "max_tokens": 40, "stream": True}
        while not stop.is_set():
            try:
                answer = urllib.request.urlopen(urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode()), timeout=60)
                answer.read(100 if number == 0 else -1)
                answer.close()
                urllib.request.urlopen(urllib.request.Request(server.url + "/v1/completions", b"{}"), timeout=60)
            except urllib.error.HTTPError as e:
                assert e.code == 400

    threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
    try:
        for t in threads:
            t.start()

        def ask(query):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
            return json.loads(urllib.request.urlopen(url, timeout=10).read())["data"]["result"]

        # A rate needs two scrapes in its window, and the window must fill.
        wanted = list(queries())
        assert len(wanted) > 25
        end = time.time() + 300
        missing = wanted
        while missing and time.time() < end:
            time.sleep(2)
            try:
                missing = [(title, q) for title, q in missing if not any(v["value"][1] not in ("NaN", "+Inf") for v in ask(q))]
            except OSError:  # it does not listen yet
                assert prometheus.poll() is None, prometheus.stderr.read().decode()
        assert missing == []
    finally:
        stop.set()
        for t in threads:
            t.join()
        prometheus.terminate()
        prometheus.wait(120)
        server.stop()
