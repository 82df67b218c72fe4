"""`kbroker generate`: Prometheus' own tool accepts the files, and rules fire when they are to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kbroker.cli.main import main
from kbroker.metrics.dashboard import ROWS
from tests.support import promtool

# A directory that gains 1 GB an hour and has 90 GB left at the start; two figures that turn bad
# after 16 h 40 min.
SERIES = """
rule_files: [rules.yml]
evaluation_interval: 10m
tests:
  - interval: 10m
    input_series:
      - series: 'kbroker_log_dir_log_bytes{directory="/d"}'
        values: '0+166666667x180'
      - series: 'kbroker_log_dir_free_bytes{directory="/d"}'
        values: '90000000000-166666667x180'
      - series: 'kafka_server_ReplicaManager_UnderReplicatedPartitions{instance="a"}'
        values: '0x100 1x80'
      - series: 'kafka_server_KafkaRequestHandlerPool_RequestHandlerAvgIdlePercent{instance="a"}'
        values: '0.9x100 0.19x80'
"""


def generated(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["generate", *words]) == 0
    return capsys.readouterr().out


def check(what: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [promtool.path(), *what.split(), str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("disk", ["ssd", "hdd"])
def test_the_rules_are_accepted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, disk: str
) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(generated(capsys, "alert-rules", "--disk", disk))
    checked = check("check rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "31 rules found" in checked.stdout


@pytest.mark.parametrize("words", [[], ["--plain"], ["--target", "a:1", "--target", "b:2"]])
def test_the_scrape_file_is_accepted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    rules, config = tmp_path / "rules.yml", tmp_path / "prometheus.yml"
    rules.write_text(generated(capsys, "alert-rules"))
    config.write_text(generated(capsys, "prometheus-config", *words, "--rules", str(rules)))
    checked = check("check config", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS: 31 rules found" in checked.stdout


def test_the_form_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    lines = generated(capsys, "prometheus-config", "--target", "broker1:9644").splitlines()
    text = "\n".join(line.strip() for line in lines)
    assert 'job_name: "kafka_broker"\nscrape_interval: 15s\nmetrics_path: /metrics' in text
    assert 'job_name: "kafka_jvm"\nscrape_interval: 30s' in text
    assert 'name:\n- "BytesInPerSec"\n- "BytesOutPerSec"\n- "UnderReplicatedPartitions"' in text
    assert 'targets: ["broker1:9644"]' in text


def test_every_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    """As recording rules, since promtool knows no dashboards."""
    lines = ["groups:", "  - name: panels", "    rules:"]
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                expr = query.expr.replace("$__rate_interval", "5m").replace("$instance", ".*")
                lines += [f"      - record: r{len(lines)}", f"        expr: {json.dumps(expr)}"]
    rules = tmp_path / "panels.yml"
    rules.write_text("\n".join(lines))
    checked = check("check rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    board = json.loads(generated(capsys, "grafana-dashboard"))
    assert board["schemaVersion"] >= 30
    assert {panel["type"] for panel in board["panels"]} == {"row", "timeseries"}


@pytest.mark.parametrize(
    ("alert", "at", "fires"),
    [
        ("HighUnderReplicatedPartitions", "16h", False),
        ("HighUnderReplicatedPartitions", "17h", True),
        ("LowRequestHandlerIdle", "16h", False),
        ("LowRequestHandlerIdle", "17h10m", True),
        # 63 GB left and 1 GB an hour: 63 x 0.8 = 50 hours.
        ("LogDirectoryFullSoon", "27h", True),
        # An hour of samples does not make a day's growth.
        ("LogDirectoryFullSoon", "1h", False),
    ],
)
def test_the_rules_fire_when_they_are_to(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, alert: str, at: str, fires: bool
) -> None:
    (tmp_path / "rules.yml").write_text(generated(capsys, "alert-rules"))
    test = (
        f"{SERIES}    alert_rule_test: [{{eval_time: {at}, alertname: {alert}, exp_alerts: []}}]\n"
    )
    (tmp_path / "test.yml").write_text(test)
    checked = check("test rules", tmp_path / "test.yml")
    said = checked.stdout + checked.stderr
    assert (checked.returncode != 0) is fires, said
    if fires:
        assert f'alertname="{alert}"' in said.partition("got:")[2]
