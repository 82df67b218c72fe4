"""Brokers with samples, of rows as they landed: each kind of silence is an alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_jobs.rollup import HOURLY
from spark_jobs.schema import METRICS
from spark_jobs.sections import alerts, silence
from spark_jobs.sections.silence import Sampled
from tests.spark import landed
from tests.spark.landed import HOUR_MS, NOON_MS, RUN, Row, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

MINUTE_MS = 60_000
SINCE_MS = NOON_MS - 2 * HOUR_MS


def threads(broker: int, until_ms: int) -> list[Row]:
    return [sample("Threads", at, broker, handler_idle=0.9, network_idle=0.9)
            for at in range(SINCE_MS, until_ms, 30_000)]  # fmt: skip


def batches(until_ms: int, **last: Any) -> list[Row]:
    """The job's own records, once a minute."""
    rows = [
        {"kind": "batch", "run_id": RUN, "sequence": n, "query": "metrics-v1",
         "topic": METRICS.topic, "event_time_ms": at, "lag_records": 0}
        for n, at in enumerate(range(SINCE_MS, until_ms, MINUTE_MS))
    ]  # fmt: skip
    rows[-1] |= last
    return rows


def listened(number: int, query: str, topic: str, at: int, kind: str = "batch", **more: Any) -> Row:
    return {"kind": kind, "run_id": RUN, "sequence": number, "query": query, "topic": topic,
            "event_time_ms": at, **more}  # fmt: skip


AN_HOUR_AGO = NOON_MS - HOUR_MS
SITUATIONS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "the only broker died": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO), "progress": batches(NOON_MS)},
        "No samples of broker 1 for 1 h",
    ),
    "one of two died": (
        lambda: {"metrics": threads(1, NOON_MS) + threads(2, AN_HOUR_AGO)},
        "No samples of broker 2 for 1 h",
    ),
    "the landing job died": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO), "progress": batches(AN_HOUR_AGO)},
        "Nothing has landed for 1 h",
    ),
    "sampling was stopped": (
        lambda: {"metrics": threads(1, AN_HOUR_AGO) + threads(2, AN_HOUR_AGO),
                 "progress": batches(NOON_MS)},
        "No samples of any of 2 brokers (1, 2) for 1 h",
    ),
    "the landing of one topic failed, which ended the job": (
        lambda: {"metrics": threads(1, NOON_MS),
                 "progress": [*batches(NOON_MS, kind="end", error="no space"),
                              listened(999, "live-v1", METRICS.topic, NOON_MS - 1, "end")]},
        "Landing of metrics-v1 ended: no space",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_silence_is_an_alarm(spark: Any, name: str) -> None:
    rows, what = SITUATIONS[name]
    found = landed.inputs(spark, since_ms=SINCE_MS, until_ms=NOON_MS, **rows())
    section = silence.section(found, silence.listen(found))
    (finding,) = section.findings
    assert finding.what.startswith(what) and finding.severity == "alarm"
    landed.check_rows(found, section)


def every(ms: int, run_ms: int, since_ms: int, broker: int = 1) -> list[Row]:
    """Samples of a run of a broker until noon."""
    return [{**sample("Threads", at, broker), "interval_ms": ms, "run_ms": run_ms}
            for at in range(since_ms, NOON_MS, ms)]  # fmt: skip


TEN_AGO = NOON_MS - 10 * MINUTE_MS
HEALTHY: dict[str, Callable[[], dict[str, Any]]] = {
    # It reads what was there when it began; that other topics are read meanwhile says nothing.
    "a batch of eleven minutes": lambda: {
        "metrics": threads(1, TEN_AGO),
        "progress": [
            listened(0, "metrics-v1", METRICS.topic, NOON_MS, batch_ms=11 * MINUTE_MS),
            listened(1, "metrics-v1", METRICS.topic, NOON_MS, "start"),
            listened(2, "results-v1", "kbroker.perf.results", NOON_MS),
        ],
    },
    "sampled every half hour since it was started again": lambda: {
        "metrics": every(15_000, 1, SINCE_MS, 2)[:200]
        + every(1_800_000, 2, SINCE_MS + HOUR_MS, 2),
        "progress": batches(NOON_MS),
    },
    "live windows that are not wanted any more": lambda: {
        "metrics": threads(1, NOON_MS),
        "progress": [listened(0, "live-v1", METRICS.topic, TEN_AGO, "end", error="no space"),
                     listened(1, "metrics-v1", METRICS.topic, NOON_MS)],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_cluster_raises_no_alarm(spark: Any, name: str) -> None:
    found = landed.inputs(spark, since_ms=SINCE_MS, until_ms=NOON_MS, **HEALTHY[name]())
    assert silence.findings(silence.listen(found)) == []


def test_runs_of_one_broker_that_lie_side_by_side(spark: Any) -> None:
    rows = every(15_000, 1, TEN_AGO) + every(15_000, 2, TEN_AGO + 5_000)
    rows += every(60_000, 1, SINCE_MS, 2)[:60] + every(60_000, 2, AN_HOUR_AGO, 2)
    found = landed.inputs(spark, metrics=rows, since_ms=SINCE_MS, until_ms=NOON_MS)
    section = silence.section(found, silence.listen(found))
    assert [one.what[:36] for one in section.findings] == ["Samples of two runs of broker id 1 l"]
    assert "Started again in the span: broker 2 once." in section.words[-1]


def rolled_up(spark: Any, broker: int, at_ms: int, **fields: Any) -> Any:
    """An hour of a broker that the roll-ups have."""
    hour = landed.utc(at_ms)
    row = {"hour": hour, "event_date": hour.date(), "broker_id": broker, **fields}
    return spark.createDataFrame(
        [tuple(row.get(name) for name in HOURLY.column_names)], HOURLY.row_type()
    )


def test_nothing_was_read_in_the_whole_span(spark: Any) -> None:
    """Not since 1970; and of a broker that was not sampled it is not known whether it was down."""
    hourly = rolled_up(spark, 7, NOON_MS - 30 * HOUR_MS)
    found = landed.inputs(spark, since_ms=SINCE_MS, until_ms=NOON_MS, hourly=hourly)
    listened = silence.listen(found)
    (finding,) = silence.findings(listened)
    assert finding.what == "Nothing has landed for 1 d 5 h: what happened since is not known"
    section = alerts.section(found, listened)
    rules = {line[0].text: line[3].text for line in section.tables[1].rows}
    assert rules["KbrokerDown"] == "no data"


def test_a_broker_of_every_hour_in_a_report_of_less(spark: Any) -> None:
    hourly = rolled_up(spark, 7, NOON_MS - HOUR_MS, metric_name="Threads", samples=1,
                       covered_ms=HOUR_MS)  # fmt: skip
    found = landed.inputs(spark, since_ms=NOON_MS - HOUR_MS // 4, until_ms=NOON_MS,
                          hourly=hourly, read_ms=NOON_MS)  # fmt: skip
    assert silence.findings(silence.listen(found)) == []


def test_a_broker_of_the_days_before_is_missed(spark: Any) -> None:
    hourly = rolled_up(spark, 7, NOON_MS - 30 * HOUR_MS)
    found = landed.inputs(spark, metrics=threads(1, NOON_MS), since_ms=SINCE_MS, until_ms=NOON_MS,
                          hourly=hourly)  # fmt: skip
    sampled = silence.listen(found)
    assert [one.broker_id for one in sampled.brokers] == [1, 7]
    assert sampled.silent == (Sampled(7, None, NOON_MS - 29 * HOUR_MS),)  # no sample since then
    section = alerts.section(found, sampled)
    (row_,) = section.tables[0].rows
    assert [cell.text for cell in row_[:3]] == ["KbrokerDown", "critical", "7"]
    rules = {line[0].text: line[3].text for line in section.tables[1].rows}
    assert rules["KbrokerDown"] == "1 x"
    assert rules["LowRequestHandlerIdle"] == "never"
    assert rules["HighMemoryUsage"] == "no data"  # not "never, good": it was not measured
