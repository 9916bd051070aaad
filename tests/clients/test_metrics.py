"""/metrics is read by Prometheus' own parser."""

import json
import pathlib
import re

from prometheus_client.parser import text_string_to_metric_families


def test_metrics_parse(server):
    names = {f.name: f for f in text_string_to_metric_families(server.metrics())}
    for name in ("vllm:num_requests_running", "vllm:prompt_tokens", "vllm:time_to_first_token_seconds", "hadal_step_seconds"):
        assert name in names
    for family in names.values():
        assert family.documentation and family.type != "unknown"
        if family.type == "histogram":
            series = {}  # by all labels but the bucket's bound
            for sample in family.samples:
                labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                series.setdefault(labels, {}).setdefault(sample.name.removeprefix(family.name), []).append(sample.value)
            for one in series.values():
                assert one["_bucket"] == sorted(one["_bucket"])
                assert one["_bucket"][-1] == one["_count"][0]


def test_dashboard_asks_for_what_there_is(server):
    dashboard = json.loads((pathlib.Path(__file__).parents[2] / "docs/grafana-dashboard.json").read_text())
    names = {s.name for f in text_string_to_metric_families(server.metrics()) for s in f.samples}
    asked = [name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"(?:vllm:|hadal_|process_)\w+", target["expr"])]
    assert len(asked) > 15
    assert set(asked) <= names
