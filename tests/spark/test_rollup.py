"""Hourly roll-ups equal sums in plain Python; which dates are made anew, what is kept."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbroker.metrics import samples
from spark_jobs import report, rollup, tables
from spark_jobs.decode import decoder
from spark_jobs.files import LocalFiles
from spark_jobs.maintain import DAY_MS, Plan, maintain
from spark_jobs.rollup import BUCKETS, GAUGES, GROWTH, HOURLY, LABELS, Freshness
from spark_jobs.schema import METRICS
from spark_jobs.sections import history
from tests.spark.things import NOON, NOW_MS, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

NOON_MS = int(NOON.timestamp() * 1000)
HOUR_MS = 3_600_000
Record = dict[str, Any]


@pytest.fixture
def topic(spark: SparkSession, tmp_path: Path) -> Topic:
    made = Topic(spark, tmp_path, schema=METRICS, decode=decoder("metrics", lambda: NOW_MS))
    made.begin_at({0: 0, 1: 0})
    return made


def write(topic: Topic, records: Iterable[Record]) -> None:
    for record in records:
        topic.write(record["sequence"] % 2, METRICS.encode(record).decode())


def sample(sequence: int, at_ms: int, name: str, **fields: Any) -> Record:
    return {
        "schema_version": METRICS.version, "broker_id": 1, "run_ms": 7, "sequence": sequence,
        "event_time_ms": at_ms, "interval_ms": 15_000, "metric_name": name, **fields,
    }  # fmt: skip


def some(seed: int, count: int = 300) -> list[Record]:
    """Samples of five kinds over four hours, of two dates; some were sent twice."""
    draw = random.Random(seed)
    found: list[Record] = []

    def buckets() -> list[dict[str, float]]:
        bounds = sorted(draw.sample([0.5, 1.0, 2.0, 4.0, 8.0], draw.randrange(1, 4)))
        return [{"le": bound, "count": draw.randrange(1, 9)} for bound in bounds]

    kinds = (
        lambda: ("PartitionMessages", {"topic": draw.choice("ab"), "partition": draw.randrange(2),
                                       "message_count": draw.randrange(9), "bytes_in": 100}),
        lambda: ("PartitionLog", {"topic": "a", "partition": 0, "directory": "/d",
                                  "size_bytes": draw.randrange(9999)}),
        lambda: ("RequestTime", {"request": draw.choice(["Produce", "Fetch"]), "count": 3,
                                 "part": "TotalTimeMs", "buckets": buckets()}),
        lambda: ("Threads", {"network_idle": draw.random(), "connections": draw.randrange(5)}),
        lambda: ("GarbageCollection", {"generation": "0", "collections": 1, "pauses_s": buckets()}),
    )  # fmt: skip
    for sequence in range(count):
        name, fields = draw.choice(kinds)()
        at_ms = NOON_MS + 10 * HOUR_MS + draw.randrange(4 * HOUR_MS)
        found.append(sample(sequence, at_ms, name, **fields))
        if draw.random() < 0.1:
            found.append(found[-1])
    return found


def by_hand(records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    once = {(r["broker_id"], r["run_ms"], r["sequence"]): r for r in records}
    found: dict[tuple[Any, ...], Record] = {}
    for r in sorted(once.values(), key=lambda r: r["event_time_ms"]):
        key = (r["event_time_ms"] // HOUR_MS, *(r.get(label) for label in LABELS))
        row = found.setdefault(key, {"samples": 0, "covered_ms": 0})
        row["samples"] += 1
        row["covered_ms"] += r["interval_ms"]
        for name in GROWTH:
            if name in r:
                row[name] = row.get(name, 0) + r[name]
        for name in BUCKETS:
            for bucket in r.get(name, ()):
                sums = row.setdefault(name, {})
                sums[bucket["le"]] = sums.get(bucket["le"], 0) + bucket["count"]
        for name in GAUGES:
            if name in r:
                row[f"{name}_min"] = min(r[name], row.get(f"{name}_min", r[name]))
                row[f"{name}_max"] = max(r[name], row.get(f"{name}_max", r[name]))
                row[f"{name}_last"] = r[name]
                row[f"{name}_sum"] = row.get(f"{name}_sum", 0.0) + r[name]
    return found


def as_read(spark: SparkSession, root: str) -> dict[tuple[Any, ...], Record]:
    found = {}
    frame = tables.read(spark, root, "hourly")
    assert frame.schema == HOURLY.row_type()
    for row in frame.collect():
        fields = row.asDict(recursive=True)
        hour = fields.pop("hour").replace(tzinfo=UTC)
        assert fields.pop("event_date") == hour.date()
        assert 0 <= fields.pop("late_samples") <= fields["samples"]
        key = (int(hour.timestamp() * 1000) // HOUR_MS, *(fields.pop(label) for label in LABELS))
        for name in BUCKETS:
            if fields[name] is not None:
                bounds = [bucket["le"] for bucket in fields[name]]
                assert bounds == sorted(bounds)
                fields[name] = {bucket["le"]: bucket["count"] for bucket in fields[name]}
        assert key not in found
        found[key] = {name: value for name, value in fields.items() if value is not None}
    return found


def same(found: dict[tuple[Any, ...], Record], wanted: dict[tuple[Any, ...], Record]) -> bool:
    """Sums of doubles depend on their order."""
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            assert found[key][name] == (pytest.approx(value) if name[-4:] == "_sum" else value)
    return True


def test_sums_equal_those_by_hand(spark: SparkSession, topic: Topic) -> None:
    records = some(1)
    write(topic, records[:200])
    topic.land(0)
    write(topic, records[200:])
    topic.land(1)
    assert rollup.update(spark, topic.root) == ["2020-11-22", "2020-11-23"]
    assert same(as_read(spark, topic.root), by_hand(records))
    assert rollup.update(spark, topic.root) == []


def test_a_report_brings_touched_days_up_to_date(spark: SparkSession, topic: Topic) -> None:
    """A late sample of an earlier day is in the next report; no other day is made again."""
    hourly = tables.ledger(spark, topic.root, "hourly")

    def land(batch: int, at_ms: int, messages: int) -> None:
        write(topic, [sample(batch, at_ms, "BrokerTraffic", messages_in=messages)])
        topic.land(batch)

    def units() -> dict[str, str]:
        return {unit.date: unit.unit for unit in hourly.state().units}

    def section(*options: str) -> tuple[list[list[str]], tuple[str, ...]]:
        given = report.arguments(["--tables", topic.root, *options])
        fresh = report.freshened(spark, topic.root, NOW_MS + DAY_MS, given.rollup_rows, said.append)
        until = NOW_MS + DAY_MS
        made = history.section(report.inputs_of(spark, topic.root, NOON_MS, until, NOON_MS, fresh))
        texts = [[row[n].text for n in (0, 3, 8)] for one in made.tables for row in one.rows]
        return texts, made.words[2:]

    said: list[str] = []
    land(0, NOON_MS, 300)
    land(1, NOON_MS + DAY_MS, 1_000)
    assert section("--no-rollup") == ([], ())
    lagging = "roll-ups of 2 days, 2020-11-22 to 2020-11-23 lag: --no-rollup was given"
    assert said == [lagging] and not hourly.state().units
    assert section() == ([["2020-11-23", "1,000", "0"], ["2020-11-22", "300", "0"]], ())
    assert said[1:] == ["roll-ups of 2 days, 2020-11-22 to 2020-11-23 made anew"]
    before = units()
    land(2, NOON_MS + HOUR_MS, 7)  # late: a day before the newest
    texts, (line,) = section("--rollup-rows", "1")
    assert texts == [["2020-11-23", "1,000", "0"], ["2020-11-22", "300", "0"]]
    assert line.startswith("Late: the roll-ups of 1 day, 2020-11-22 have 1 of the 2 samples")
    assert "more than the 1 samples that a report may roll up" in line
    assert section() == ([["2020-11-23", "1,000", "0"], ["2020-11-22", "307", "1"]], ())
    assert units()["2020-11-23"] == before["2020-11-23"]
    assert units()["2020-11-22"] != before["2020-11-22"]


def test_a_report_of_tables_that_cannot_be_written(
    spark: SparkSession, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that another job is at: it says so and goes on."""
    write(topic, [sample(0, NOON_MS, "Threads", connections=1)])
    topic.land(0)

    def read_only(self: LocalFiles, uri: str, data: bytes) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", uri)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "create", read_only)
        fresh = rollup.freshen(spark, topic.root, "2020-11-22", "2020-11-23")
    assert (fresh.made, fresh.lagging) == ((), {"2020-11-22": 1})
    assert fresh.why == "the tables cannot be written (Permission denied)"
    assert rollup.freshen(spark, topic.root, "2020-11-23", "2020-11-30") == Freshness()
    blocked = Path(topic.root, "hourly", "data")
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("no directory")  # found by Spark only when it writes
    fresh = rollup.freshen(spark, topic.root, "2020-11-22", "2020-11-22")
    assert fresh.lagging and fresh.why and "\n" not in fresh.why
    blocked.unlink()
    make = rollup._make

    def another_is_first(*given: Any) -> None:
        make(*given)
        make(*given)

    monkeypatch.setattr(rollup, "_make", another_is_first)
    fresh = rollup.freshen(spark, topic.root, "2020-11-22", "2020-11-22")
    assert fresh == Freshness(("2020-11-22",)), "what the other made is up to date"


def test_a_value_that_does_not_fit_is_null_and_stops_nothing(
    spark: SparkSession, topic: Topic
) -> None:
    biggest = 2**63 - 1
    write(topic, [
        sample(n, NOON_MS, "PartitionMessages", topic="a", partition=0, message_count=biggest,
               bytes_in=n) for n in range(2)
    ])  # fmt: skip
    topic.land(0)
    rollup.update(spark, topic.root)
    (row,) = tables.read(spark, topic.root, "hourly").collect()
    assert (row.message_count, row.bytes_in, row.samples) == (None, 1, 2)


def test_roll_ups_stay_when_raw_rows_expire(spark: SparkSession, topic: Topic) -> None:
    records = some(3, 60)
    write(topic, records)
    topic.land(0)
    said: list[str] = []

    def keep(days: int) -> list[str]:
        said.clear()
        maintain(spark, topic.root, Plan(), say=said.append,
                 clock_ms=lambda: NOW_MS + days * DAY_MS)  # fmt: skip
        return said

    assert keep(95)[0] == "hourly: 2 dates rolled up, 2020-11-22 to 2020-11-23"
    assert any("expired" in line for line in said)
    assert tables.read(spark, topic.root, "metrics").count() == 0
    assert same(as_read(spark, topic.root), by_hand(records))
    write(topic, [sample(1000, NOON_MS, "Threads", connections=1)])
    topic.land(1)
    assert rollup.stale(spark, topic.root) == {}, "no date can be made anew of the rest"
    keep(95)
    assert same(as_read(spark, topic.root), by_hand(records))


def test_every_field_of_every_sample_has_its_place() -> None:
    common = {field.name for field in samples.COMMON}
    placed = (*LABELS, *GROWTH, *BUCKETS, *GAUGES)
    assert len(set(placed)) == len(placed)
    assert set(samples.columns()) - set(placed) == common - {"broker_id", "metric_name"}
    growth = {f.name for kind in samples.KINDS for f in kind.fields if f.growth}
    levels = {f.name for kind in samples.KINDS for f in kind.fields if not f.growth}
    assert growth & levels == set(), "a name would be a sum and a level"
