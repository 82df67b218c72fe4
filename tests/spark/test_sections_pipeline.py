"""What the pipeline says of itself, of traffic, and of nothing at all; literals; the first page."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spark_jobs.report_model import Report
from spark_jobs.schema import METRICS, PROGRESS, RESULTS
from spark_jobs.sections import everything, overview, pipeline, silence, traffic
from spark_jobs.sections.cells import between, literal, same
from spark_jobs.sections.inputs import Gap
from tests.spark import landed
from tests.spark.landed import NOON_MS, RUN, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

HOSTILE = ("", "it's", "back\\slash", "\\'", "${spark.app.name}", "new\nline", "\x00", "ü♥",
           "%_", '"', "`", "\\u0041", "' OR true --")  # fmt: skip


def test_literals_mean_themselves(spark: Any) -> None:
    values = [*HOSTILE, None, True, False, 0, -1, (1 << 63) - 1, -(1 << 63), 0.1, 1e300, -2.5]
    columns = [f"{literal(value)} AS c{number}" for number, value in enumerate(values)]
    row = spark.range(1).selectExpr(*columns).collect()[0]
    assert list(row) == values
    row = spark.range(1).selectExpr(*(f"{literal(x)} AS x" for x in (float("inf"),))).collect()[0]
    assert row[0] == float("inf")


def test_predicates_find_hostile_names_and_nulls(spark: Any) -> None:
    rows = [sample("PartitionMessages", NOON_MS, topic=name) for name in (*HOSTILE, None)]
    frame = landed.frame(spark, METRICS, rows)
    for name in (*HOSTILE, None):
        found = frame.where(same({"topic": name})).collect()
        assert [row.topic for row in found] == [name]


def test_a_span_has_its_begin_and_not_its_end(spark: Any) -> None:
    rows = [sample("Threads", NOON_MS + ms) for ms in (-1, 0, 1, 999, 1000)]
    frame = landed.frame(spark, METRICS, rows)
    found = frame.where(between(NOON_MS, NOON_MS + 1000)).collect()
    assert sorted(row.event_time_ms - NOON_MS for row in found) == [0, 1, 999]


# -- the pipeline


def batch(number: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "batch", "run_id": RUN, "sequence": number, "query": "metrics-v1",
            "topic": METRICS.topic, "event_time_ms": NOON_MS + number * 60_000,
            "batch_id": number, **fields}  # fmt: skip


def test_pipeline(spark: Any) -> None:
    progress = [
        batch(n, input_rows=1000, batch_ms=500 * (n + 1), lag_records=300 - 100 * n,
              quarantined_rows=1, processed_rows_per_s=2000.0)
        for n in range(3)
    ]  # fmt: skip
    progress.append(batch(3, input_rows=0))  # it had nothing to do
    metrics = [sample("Threads", NOON_MS, late=n < 2) for n in range(5)]
    spoiled = [
        {"source_topic": METRICS.topic, "source_offset": n, "reason": reason}
        for n, reason in enumerate(["not JSON"] * 3 + ["unknown schema_version 9"])
    ]
    found = landed.inputs(
        spark, metrics=metrics, progress=progress, quarantine=spoiled,
        gaps=(
            Gap("t", 3, 10, 25, "retention", NOON_MS),
            Gap("u", 0, 1000, 1000, "re-created", NOON_MS),
            Gap("t", 3, 0, 5, "retention", NOON_MS - 9 * 86_400_000),  # reported before
        ),
        landed={"metrics": 7},
    )  # fmt: skip
    section = pipeline.section(found)
    what, queries, reasons, gaps = section.tables
    (samples,) = [row for row in what.rows if row[1].text == "metrics"]
    assert [cell.value for cell in samples[2:5]] == [5, 2, 2]
    (query,) = queries.rows
    named = dict(zip(queries.columns, query, strict=True))
    assert named["rows"].value == 3000
    assert named["rows/s while busy"].value == pytest.approx(1000)
    assert (named["batch, ms, longest"].value, named["lag at the end"].value) == (1500, 100)
    assert (named["lag, most"].value, named["quarantined"].value) == (300, 3)
    assert [(row[1].text, row[2].value) for row in reasons.rows] == [
        ("not JSON", 3), ("unknown schema_version 9", 1),
    ]  # fmt: skip
    assert [row[3].text for row in gaps.rows] == ["15", "not known", "5"]
    known, unknown = (one.what for one in section.findings)
    assert "t-3: records 10 to 24 never landed" in known
    assert "u-0: records from 1,000 on never landed" in unknown
    assert landed.check_rows(found, section) >= 6


def test_traffic(spark: Any) -> None:
    rows = []
    for n in range(8):
        at = NOON_MS + n * 15_000
        rows.append(sample("BrokerTraffic", at, messages_in=150, bytes_in=15_000, bytes_out=30_000))
        rows.append(sample("Threads", at, network_idle=0.9, handler_idle=0.1 if n == 3 else 0.8,
                           request_queue_size=n, connections=5))  # fmt: skip
        rows.append(sample("PartitionMessages", at, topic="t", partition=0, message_count=150,
                           bytes_in=15_000))  # fmt: skip
        buckets = [{"le": 1.0, "count": 9}, {"le": 50.0, "count": 1}]
        rows.append(sample("RequestTime", at, request="Produce", part="TotalTimeMs", count=10,
                           buckets=buckets))  # fmt: skip
    rows.append(sample("Sampling", NOON_MS, dropped=4))
    for at in (NOON_MS, NOON_MS + 30_000):
        rows += [{**sample("Disk", at, device=device, read_bytes=0, written_bytes=gb * 30 * 10**9),
                  "interval_ms": 30_000} for device, gb in (("sda", 3), ("sdb", 1))]  # fmt: skip
    rows.append(sample("BrokerTraffic", NOON_MS, 2, messages_in=15_000, bytes_in=0, bytes_out=0))
    found = landed.inputs(spark, metrics=rows)
    section = traffic.section(found, silence.listen(found))
    brokers, requests = section.tables
    named = dict(zip(brokers.columns, brokers.rows[0], strict=True))
    assert named["messages/s"].value == pytest.approx(10)
    assert named["in"].value == pytest.approx(1000)
    assert (named["handlers idle, least"].value, named["handlers idle, least"].verdict) == (
        0.1, "bad",
    )  # fmt: skip
    assert named["network idle, least"].verdict == ""
    assert named["request queue, most"].value == 7
    produce = dict(zip(requests.columns, requests.rows[0], strict=True))
    assert (produce["requests"].value, produce["p50, ms"].value, produce["p99, ms"].value) == (
        80, 1, 50,
    )  # fmt: skip
    assert "16,200 messages" in section.words[0] and "4 samples were given up" in section.words[1]
    disks = next(plot for plot in section.plots if plot.title == "Disks, each device")
    assert disks.y == "GB/s"
    assert {one.name: max(y for y in one.y if y == y) for one in disks.series} == {
        "broker 1 sda read": 0, "broker 1 sdb read": 0,
        "broker 1 sda written": 3, "broker 1 sdb written": 1,
    }  # fmt: skip
    assert all(math.isnan(one.y[-1]) for plot in section.plots for one in plot.series)
    first_page = overview.section(found, [section])
    figures = {row[0].text: (row[1].value, row[2].text) for row in first_page.tables[0].rows}
    assert figures["messages taken a second, most"] == (pytest.approx(1000), "broker 2")
    assert figures["handlers idle, least"] == (0.1, "broker 1")
    titles = {plot.title for plot in section.plots}
    assert {"Messages", "Bytes", "Idle threads", "Produce requests"} <= titles
    assert "Under-replicated partitions" not in titles  # nothing but zeroes, or no samples
    assert landed.check_rows(found, section) >= 3


# -- all of it


def test_a_report_of_nothing_says_so_everywhere(spark: Any) -> None:
    made = everything(landed.inputs(spark))
    assert made.failed == ()
    report = Report(1, "tables", 0, 2, made.sections)
    assert [line.partition(":")[0] for line in report.alarms] == ["No data"]
    assert all(section.words for section in report.sections)
    assert [section.key for section in report.sections] == [
        "overview", "silence", "brokers", "latency", "studies", "pipelining", "figures",
        "traffic", "replication", "transactions", "share-groups", "stages", "inside", "history",
        "hot", "forecast", "alerts", "pipeline",
    ]  # fmt: skip
    assert Report.from_json(report.to_json()) == report


def test_hostile_records_stop_no_section(spark: Any) -> None:
    """Every column of every kind of record at its ends: nonsense may be printed, nothing fails."""
    largest, smallest = (1 << 63) - 1, -(1 << 63)
    kinds = {name: kind for kind in METRICS.kinds for name in [kind.value]}
    metrics = []
    for name in kinds:
        for n, value in enumerate((largest, largest, smallest, 0, None)):
            row = {"metric_name": name, "event_time_ms": NOON_MS + n}
            for column in METRICS.columns:
                if column.name in row or column.name == "event_time_ms":
                    continue
                row[column.name] = _extreme(column.type, value)
            metrics.append(row)
    results = []
    for kind in ("block", "verdict", "figure"):
        for n, value in enumerate((largest, largest, smallest, 0, None)):
            row = {column.name: _extreme(column.type, value) for column in RESULTS.columns}
            results.append(row | {"kind": kind, "event_time_ms": NOON_MS + n, "run_id": RUN})
    progress = [
        {column.name: _extreme(column.type, value) for column in PROGRESS.columns}
        | {"kind": "batch", "event_time_ms": NOON_MS}
        for value in (largest, largest, smallest, 0, None)
    ]
    made = everything(landed.inputs(spark, metrics=metrics, results=results, progress=progress))
    assert made.failed == (), [s.words for s in made.sections if s.key in made.failed]
    report = Report(1, "tables", 0, 2, made.sections)
    assert Report.from_json(report.to_json()).sections[0].key == overview.KEY


def _extreme(kind: str, value: int | None) -> Any:
    if value is None:
        return None
    if kind == "long":
        return value
    if kind == "double":
        return float("nan") if value == 0 else float(value) * 1e280
    if kind == "boolean":
        return value > 0
    if kind == "buckets":
        return [{"le": float(value) * 1e280, "count": value}, {"le": 1.0, "count": 1}, None]
    return HOSTILE[value % len(HOSTILE)]
