"""Batches into a table: once, whatever is repeated, and wherever the writer dies."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet

from spark_jobs import sink as sinks
from spark_jobs import tables
from spark_jobs.ledger import LedgerConflict, LedgerError
from spark_jobs.schema import TABLES
from tests.spark.things import NOON, NOW_MS, THINGS, Topic, identities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "things", THINGS)


@pytest.fixture
def topic(spark: SparkSession, tmp_path: Path) -> Topic:
    made = Topic(spark, tmp_path)
    made.begin_at({0: 0, 1: 0})
    return made


def test_rows_and_those_that_are_set_aside(spark: SparkSession, topic: Topic) -> None:
    topic.write(0, "a 1 0", "bad", "a 2 3600")
    topic.write(1, "b 1 -43201")
    ends = topic.plan(0)
    commit = topic.sink().write(topic.batch({}, ends), 0)
    assert commit is not None
    assert [(unit.date, unit.rows) for unit in commit.units] == [
        ("2020-11-21", 1), ("2020-11-22", 2)
    ]  # fmt: skip
    assert commit.ranges == {0: (0, 3), 1: (0, 1)}
    assert commit.max_event_time_ms == int(NOON.timestamp() * 1000) + 3_600_000
    frame = tables.read(spark, topic.root, "things")
    assert tuple(frame.columns) == THINGS.column_names
    assert frame.schema == THINGS.row_type()
    rows = {(row.run_id, row.sequence): row for row in frame.collect()}
    assert set(rows) == {("a", 1), ("a", 2), ("b", 1)}
    row = rows["b", 1]
    assert (row.source_topic, row.source_partition, row.source_offset) == ("things", 1, 0)
    assert (row.event_date, row.late) == (date(2020, 11, 21), False)
    assert row.landed_at.replace(tzinfo=UTC) == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    aside = tables.read(spark, topic.root, "quarantine").collect()
    assert [(row.source_offset, bytes(row.value), row.reason) for row in aside] == [
        (1, b"bad", "bad")
    ]
    assert aside[0].event_date == date(2020, 11, 23), "of the landing"


def test_late_rows_are_kept_and_marked(spark: SparkSession, topic: Topic) -> None:
    """The watermark is the newest event of earlier batches, less ten minutes."""
    sink = topic.sink()
    topic.write(0, "a 1 0", "a 2 7200")
    first = topic.plan(0)
    sink.write(topic.batch({}, first), 0)
    topic.write(0, "a 3 6599", "a 4 6600", "a 5 90000")
    second = sink.write(topic.batch(first, topic.plan(1)), 1)
    assert second is not None
    assert second.late == 1
    found = {row.sequence: row.late for row in tables.read(spark, topic.root, "things").collect()}
    assert found == {1: False, 2: False, 3: True, 4: False, 5: False}
    state = topic.ledger().state()
    assert state.max_event_time_ms == NOW_MS, "no later than the landing, whatever a record says"


def test_a_batch_that_comes_again_is_not_written_again(spark: SparkSession, topic: Topic) -> None:
    topic.write(0, "a 1 0", "bad")
    ends = topic.plan(0)
    assert topic.sink().write(topic.batch({}, ends), 0) is not None
    steps: list[str] = []
    again = topic.sink(step=lambda name, batch_id: steps.append(name))
    assert again.write(topic.batch({}, ends), 0) is None
    assert steps == [sinks.SKIPPED]
    assert identities(tables.read(spark, topic.root, "things")) == [(0, 0)]
    assert tables.quarantine(spark, topic.root).count() == 1


class Died(Exception):
    pass


@pytest.mark.parametrize("at", sinks.STEPS)
def test_dying_at_any_step_leaves_all_or_nothing(
    spark: SparkSession, topic: Topic, at: str
) -> None:
    def die(name: str, batch_id: int) -> None:
        if name == at:
            raise Died

    topic.write(0, "a 1 0", "bad")
    ends = topic.plan(0)
    with pytest.raises(Died):
        topic.sink(step=die).write(topic.batch({}, ends), 0)
    there = at == sinks.COMMITTED
    assert identities(tables.read(spark, topic.root, "things")) == ([(0, 0)] if there else [])
    assert tables.quarantine(spark, topic.root).count() == int(there)
    assert (topic.sink().write(topic.batch({}, ends), 0) is None) is there
    assert identities(tables.read(spark, topic.root, "things")) == [(0, 0)]
    assert tables.quarantine(spark, topic.root).count() == 1


def test_a_new_checkpoint_that_does_not_begin_at_the_end_is_refused(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.write(0, "a 1 0", "a 2 0")
    topic.sink().write(topic.batch({}, topic.plan(0)), 0)
    other = Topic(spark, tmp_path, "q-2")
    other.records = topic.records
    other.begin_at({0: 1, 1: 0})
    other.write(0, "a 3 0")
    ends = other.plan(0)
    with pytest.raises(LedgerConflict, match="ends at offset 2, the batch begins at 1"):
        other.sink().write(other.batch({0: 1}, ends), 0)
    assert len(os.listdir(tmp_path / "things/data")) == 1, "refused before anything is written"
    other.begin_at({0: 2, 1: 0})
    assert other.sink().write(other.batch({0: 2}, ends), 0) is not None
    assert identities(tables.read(spark, topic.root, "things")) == [(0, 0), (0, 1), (0, 2)]


def test_rows_from_elsewhere_are_not_committed(spark: SparkSession, topic: Topic) -> None:
    topic.write(0, "a 1 0")
    planned = topic.plan(0)
    topic.write(0, "a 2 0")
    with pytest.raises(LedgerError, match=r"offsets 0 to 1 in a batch of \[0, 1\)"):
        topic.sink().write(topic.batch({}, planned | {0: 2}), 0)
    assert tables.read(spark, topic.root, "things").count() == 0


def test_a_batch_without_rows_moves_the_end(spark: SparkSession, topic: Topic) -> None:
    """Markers of transactions are offsets without rows."""
    topic.write(0, "marker", "marker")
    ends = topic.plan(0)
    commit = topic.sink().write(topic.batch({0: 2}, ends), 0)
    assert commit is not None
    assert commit.units == ()
    assert topic.ledger().ends() == {"things": ("id-1", {0: 2, 1: 0})}
    assert tables.read(spark, topic.root, "things").count() == 0


def test_no_table_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = tables.read(spark, str(tmp_path), "things")
    assert frame.schema == THINGS.row_type()
    assert frame.count() == 0
    assert tables.quarantine(spark, str(tmp_path)).count() == 0
    assert tables.gaps(spark, str(tmp_path)) == {}
    with pytest.raises(LedgerError, match="no table is called 'nothings'"):
        tables.read(spark, str(tmp_path), "nothings")


# --- a writer's retries -------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [tables.REPEATED_MAX, 1])
def test_a_row_that_a_writer_sent_twice_is_read_once(
    spark: SparkSession, topic: Topic, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(tables, "REPEATED_MAX", bound)
    sink = topic.sink()
    topic.write(0, "a 1 0", "a 2 0", "a 1 0", "- 7 0", "- 7 0")
    topic.write(1, "a 3 0")
    first = topic.plan(0)
    sink.write(topic.batch({}, first), 0)
    topic.write(0, "a 2 0", "a 4 0", "b 1 0")
    sink.write(topic.batch(first, topic.plan(1)), 1)
    once = identities(tables.read(spark, topic.root, "things"))
    assert once == [(0, 0), (0, 1), (0, 3), (0, 4), (0, 6), (0, 7), (1, 0)]
    everything = tables.read(spark, topic.root, "things", repeats=True)
    assert everything.count() == 9
    assert tuple(tables.read(spark, topic.root, "things").columns) == THINGS.column_names


@pytest.mark.parametrize("before", ["with its id", "of before ids were kept"])
def test_the_same_offset_of_a_topic_made_anew_is_another_row(
    spark: SparkSession, topic: Topic, tmp_path: Path, before: str
) -> None:
    """And what a writer sent to both is one record still."""
    topic.write(0, "a 1 0", "a 2 0")
    topic.land(0)
    if before != "with its id":
        (file,) = tmp_path.glob("things/data/*/*/*.parquet")
        parquet.write_table(parquet.read_table(file).drop_columns(["source_topic_id"]), file)
        file.with_name(f".{file.name}.crc").unlink()
    topic.ledger().accept_gap("things", "id-2", {0: (2, 2)}, {0: 0, 1: 0}, "re-created")
    anew = Topic(spark, tmp_path, "q-2", topic_id="id-2")
    anew.begin_at({0: 0, 1: 0})
    anew.write(0, "a 1 0", "b 1 0", "bad")
    anew.land(0)
    rows = tables.read(spark, topic.root, "things").collect()
    old = "id-1" if before == "with its id" else None
    assert sorted((row.run_id, row.sequence, row.source_topic_id) for row in rows) == [
        ("a", 1, old), ("a", 2, old), ("b", 1, "id-2"),
    ]  # fmt: skip
    assert [row.source_topic_id for row in tables.quarantine(spark, topic.root).collect()] == [
        "id-2"
    ]


def test_since_and_until(spark: SparkSession, topic: Topic) -> None:
    topic.write(0, *(f"a {n} {n * 43_200}" for n in range(-2, 3)))  # noon and midnight
    topic.sink().write(topic.batch({}, topic.plan(0)), 0)

    def found(**bounds: datetime | int) -> list[int]:
        frame = tables.read(spark, topic.root, "things", **bounds)
        return sorted(row.sequence for row in frame.collect())

    midnight = NOON + timedelta(hours=12)
    assert found() == [-2, -1, 0, 1, 2]
    assert found(since=NOON) == [0, 1, 2]
    assert found(until=NOON) == [-2, -1]
    assert found(since=int(NOON.timestamp() * 1000), until=midnight) == [0]
    with pytest.raises(LedgerError, match="time zone"):
        found(since=NOON.replace(tzinfo=None))


def test_rows_that_are_read_stay_while_more_are_written(spark: SparkSession, topic: Topic) -> None:
    sink = topic.sink()
    topic.write(0, "a 1 0")
    first = topic.plan(0)
    sink.write(topic.batch({}, first), 0)
    frame = tables.read(spark, topic.root, "things")
    topic.write(0, "a 2 0")
    sink.write(topic.batch(first, topic.plan(1)), 1)
    assert identities(frame) == [(0, 0)]
    assert identities(tables.read(spark, topic.root, "things")) == [(0, 0), (0, 1)]
