"""Bars and tables over made-up blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf import report
from perf.brokers import BaselineBroker, BrokerError
from perf.cells import Block
from perf.compare import Outcome, Plan
from perf.histogram import Histogram
from perf.process import Guard

MACHINE = {"model": "test", "cpus": 2, "kernel": "0", "commit": "0", "when": "now", "network": "x"}


def block(cell: str, broker: str, cpu_us: float, p50_us: float = 100, rate: float = 1000) -> Block:
    count = int(rate)
    return Block(
        cell=cell,
        broker=broker,
        requests=count,
        records=count,
        bytes=count * 200,
        wall_s=1.0,
        broker_cpu_s=cpu_us * count / 1e6,
        own_cpu_s=1e-6 * count,
        latency=Histogram.of([int(p50_us * 1e3)] * count),
        end_to_end=Histogram.empty(),
        verified_batches=0,
        guard=Guard(0.0, 0.0),
    )


def outcome_of(cells: dict[str, dict[str, list[Block]]]) -> Outcome:
    return Outcome(Plan(), dict(MACHINE), blocks=cells)


def verdict_of(outcome: Outcome, what: str) -> str:
    (found,) = [bar for bar in report.bars(outcome) if what in bar.what]
    return found.verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((10, 10, 10), "pass, surely"), ((10, 12, 60), "pass"), ((50, 50, 50), "FAIL")],
)
def test_cpu_bar(ours: tuple[float, ...], verdict: str) -> None:
    cell = "p-100-1x5"
    outcome = outcome_of(
        {
            cell: {
                "kafka": [block(cell, "kafka", 100) for _ in ours],
                "kbroker": [block(cell, "kbroker", cpu) for cpu in ours],
            }
        }
    )
    assert verdict_of(outcome, "100 B, 1 conn, 5 in flight") == verdict


def test_what_was_not_measured_does_not_pass() -> None:
    assert {bar.verdict for bar in report.bars(outcome_of({}))} == {"not measured"}


def test_latency_bar_is_taken_above_the_limit() -> None:
    cell = "p-100-1x1"
    outcome = outcome_of(
        {
            cell: {
                "limit": [block(cell, "limit", 1, p50_us=50)],
                "kafka": [block(cell, "kafka", 1, p50_us=90)],
                "kbroker": [block(cell, "kbroker", 1, p50_us=60)],
            }
        }
    )
    (bar,) = [b for b in report.bars(outcome) if "1 conn, 1 in flight" in b.what]
    assert bar.value is not None
    assert bar.value.median == pytest.approx(0.25, abs=0.03)  # (60 - 50) / (90 - 50)


def test_remarks_name_what_spoils_a_figure() -> None:
    cell = "f-1m"
    limits = [block(cell, "limit", 1, rate=rate) for rate in (1000, 1500)]
    dear = block(cell, "kbroker", 1.5)
    outcome = outcome_of({cell: {"limit": limits, "kbroker": [dear]}})
    outcome.machine["network"] = "shared, bbr"
    said = "\n".join(report.remarks(outcome))
    assert "the limit itself moved (1,000 to 1,500/s)" in said
    assert "the generator costs 0.67 of what kbroker does" in said
    assert "it paces" in said


def test_json_and_text_of_a_whole_outcome() -> None:
    cell = "p-1k-4x5"
    blocks = {
        name: [block(cell, name, cpu) for _ in range(3)]
        for name, cpu in (("limit", 4), ("kafka", 40), ("kbroker", 9))
    }
    outcome = outcome_of({cell: blocks})
    outcome.null = {cell: {"kafka": [(blocks["kafka"][0], blocks["kafka"][1])] * 3}}
    data = json.loads(json.dumps(report.to_json(outcome)))
    found = data["cells"][cell]["ratios"]["kbroker/kafka"]["cpu_us_per_request"]
    assert found["median"] == pytest.approx(9 / 40)
    assert all(test["passed"] for test in data["null_tests"])
    text = report.to_text(outcome)
    assert "0.225 [0.225, 0.225]" in text and "pass, surely" in text


def test_a_baseline_has_a_table_of_its_own() -> None:
    cell = "p-100-1x5"
    blocks = {
        "kbroker": [block(cell, "kbroker", cpu) for cpu in (9, 9, 9)],
        "baseline": [block(cell, "baseline", cpu) for cpu in (10, 10, 10)],
    }
    outcome = outcome_of({cell: blocks})
    assert "kbroker / baseline" in report.to_text(outcome)
    ratios = report.to_json(outcome)["cells"][cell]["ratios"]["kbroker/baseline"]
    assert ratios["cpu_us_per_request"]["median"] == pytest.approx(0.9)
    del blocks["baseline"]
    assert "baseline" not in report.to_text(outcome_of({cell: blocks}))


def test_a_baseline_that_was_not_built_says_so(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="make build"):
        BaselineBroker(tmp_path / "broker", tmp_path)
