"""Maintenance: fewer files, the same rows; what is old goes, its roll-ups stay."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import maintain as job
from spark_jobs import tables
from spark_jobs.ledger import LedgerError, now_ms
from spark_jobs.maintain import DAY_MS, Plan, maintain
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


def rows(topic: Topic, spark: SparkSession) -> list[Any]:
    order = ("source_partition", "source_offset")
    return tables.read(spark, topic.root, "things").orderBy(*order).collect()


def files_below(place: str) -> int:
    return sum(name.endswith(".parquet") for _, _, names in os.walk(place) for name in names)


class Keeper:
    """Maintenance of the topic's tables at a time of the test's choosing."""

    def __init__(self, spark: SparkSession, topic: Topic) -> None:
        self._spark, self._topic = spark, topic
        self.said: list[str] = []

    def run(self, *, days: float = 0.0, **plan: Any) -> list[str]:
        self.said = []
        maintain(self._spark, self._topic.root, Plan(**plan), say=self.said.append,
                 clock_ms=lambda: NOW_MS + round(days * DAY_MS))  # fmt: skip
        return self.said


@pytest.fixture
def keeper(spark: SparkSession, topic: Topic) -> Keeper:
    return Keeper(spark, topic)


def test_small_parts_become_one(spark: SparkSession, topic: Topic, keeper: Keeper) -> None:
    for n in range(4):
        topic.write(0, f"a {n} 0", f"b {n} 43200", "bad")
        topic.land(n)
    before = rows(topic, spark)
    set_aside = identities(tables.quarantine(spark, topic.root))
    assert keeper.run(dry_run=True) == ["things: 4 small parts would be merged"]
    assert len(topic.ledger().state().units) == 8
    # The newest date is today's; it is merged when it has many parts.
    assert keeper.run() == ["things: 4 small parts merged"]
    assert rows(topic, spark) == before
    assert len(topic.ledger().state().units) == 5
    assert keeper.run(days=1) == ["things: 8 small parts merged"]
    state = topic.ledger().state()
    assert [(unit.date, unit.rows, unit.batches) for unit in state.units] == [
        ("2020-11-22", 4, 4), ("2020-11-23", 4, 4)
    ]  # fmt: skip
    assert len(state.quarantine) == 1
    assert rows(topic, spark) == before
    assert identities(tables.quarantine(spark, topic.root)) == set_aside
    assert keeper.run(days=1) == []
    topic.write(0, "late 1 0")
    topic.land(4)
    assert keeper.run(days=1) == ["things: 2 small parts merged"]
    assert len(rows(topic, spark)) == 9


def test_a_merge_that_lost_a_row_is_not_committed(
    topic: Topic, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        topic.write(0, f"a {n} 0")
        topic.land(n)
    numbers = iter(range(9))
    monkeypatch.setattr(job, "fingerprint", lambda frame: (next(numbers), 0, 0))
    with pytest.raises(LedgerError, match="not those they were made of"):
        keeper.run()
    assert len(topic.ledger().state().units) == 2
    with pytest.raises(LedgerError, match="not those they were made of"):
        keeper.run(days=90)
    failed, *others = keeper.said
    assert failed.startswith("things: not maintained: ")
    assert others == [
        "things: 2 rows of before 2020-11-23 expired",
        "things: 1 files and directories removed",  # what the first try had written
    ], "the other steps were done"


def test_a_damaged_table_does_not_stop_the_others(
    spark: SparkSession, topic: Topic, keeper: Keeper, tmp_path: Path
) -> None:
    for n in range(2):
        topic.write(0, f"a {n} 0")
        topic.land(n)
    ledger = tmp_path / "plain" / "_ledger"
    ledger.mkdir(parents=True)
    (ledger / f"{1:020d}.json").write_text("{")
    with pytest.raises(LedgerError):
        keeper.run(days=1)
    assert keeper.said[0].startswith("plain: not maintained: ")
    assert "things: 2 small parts merged" in keeper.said


def test_old_files_expire(spark: SparkSession, topic: Topic, keeper: Keeper) -> None:
    topic.write(0, "a 0 0", "a 1 86400", "bad")
    topic.land(0)
    assert keeper.run(days=89) == []
    assert keeper.run(days=90, dry_run=True) == [
        "things: 1 rows of before 2020-11-23 would expire"
    ]  # fmt: skip
    assert keeper.run(days=90)[0] == "things: 1 rows of before 2020-11-23 expired"
    assert [row.sequence for row in rows(topic, spark)] == [1]
    assert tables.quarantine(spark, topic.root).count() == 1
    assert keeper.run(days=10, raw_days=5)[0] == "things: 2 rows of before 2020-11-28 expired"
    assert rows(topic, spark) == []
    assert tables.quarantine(spark, topic.root).count() == 0
    assert topic.ledger().ends() == {"things": ("id-1", {0: 3, 1: 0})}


def test_files_go_a_day_after_they_were_last_of_use(
    spark: SparkSession, topic: Topic, keeper: Keeper
) -> None:
    for n in range(3):
        topic.write(0, f"a {n} 0")
        topic.land(n)
    data = f"{topic.root}/things/data"
    reader = tables.read(spark, topic.root, "things")
    keeper.run()
    assert files_below(data) == 4
    assert reader.count() == 3, "what was found before may still be read"
    assert keeper.run(days=0.9) == []
    # Files are as old as the machine's clock says, drops as the ledger's.
    away = aged(data, days=3)
    assert keeper.run(days=1.1, dry_run=True) == [
        "things: 3 files and directories would be removed"
    ]
    assert files_below(data) == 4
    assert keeper.run(days=1.1) == ["things: 3 files and directories removed"]
    assert away > 0
    assert files_below(data) == 1
    assert len(rows(topic, spark)) == 3


def aged(place: str, days: float) -> int:
    """All below was last written so long before NOW_MS; how many there are."""
    seconds = NOW_MS / 1000 - timedelta(days=days).total_seconds()
    found = [os.path.join(where, name) for where, folders, names in os.walk(place)
             for name in (*folders, *names)]  # fmt: skip
    for path in found:
        os.utime(path, (seconds, seconds))
    return len(found)


def test_units_of_writers_that_died_are_garbage_after_a_day(
    spark: SparkSession, topic: Topic, keeper: Keeper
) -> None:
    class Died(Exception):
        pass

    def die(name: str, batch_id: int) -> None:
        if name == "read back":
            raise Died

    topic.write(0, "a 0 0", "bad")
    ends = topic.plan(0)
    with pytest.raises(Died):
        topic.sink(step=die).write(topic.batch({}, ends), 0)
    topic.sink().write(topic.batch({}, ends), 0)
    place = f"{topic.root}/things"
    (Path(place) / "_ledger/.x.json.00.tmp").touch()
    for days in (0.5, 3.0):
        aged(place, days)
        said = keeper.run()
    assert said == ["things: 3 files and directories removed"]
    assert len(rows(topic, spark)) == 1
    assert tables.quarantine(spark, topic.root).count() == 1
    assert len(os.listdir(f"{place}/data")) == len(os.listdir(f"{place}/quarantine")) == 1


def test_the_ledger_is_folded_and_its_files_go(
    spark: SparkSession, topic: Topic, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "FOLD_AFTER", 3)
    slept = topic.ledger()
    assert slept.state().number == 0
    for n in range(3):
        topic.write(0, f"a {n} 90000")
        topic.land(n)
    keeper.run()
    ledger = topic.ledger()
    assert ledger.numbers() == ([1, 2, 3], [3])
    for n in range(3, 7):
        topic.write(0, f"a {n} 0")
        topic.land(n)
    keeper.run()
    assert ledger.numbers() == ([3, 4, 5, 6, 7, 8], [3, 8])  # the last one is a merge
    assert slept.state() == topic.ledger().state()
    assert len(rows(topic, spark)) == 7


def test_beside_a_stream_and_a_reader(spark: SparkSession, topic: Topic, keeper: Keeper) -> None:
    """Every read is the offsets from 0 to some end, once each, and ends never go back."""
    batches, failed = 6, []

    def stream() -> None:
        try:
            for n in range(batches):
                topic.write(0, f"a {n} 0", f"b {n} -90000", "bad")
                topic.land(n)
        except Exception as error:
            failed.append(error)

    def keep() -> None:
        # Files that are being written are no older than the clock says, as those of a stream are.
        try:
            while writer.is_alive():
                keeper.run(days=(now_ms() - NOW_MS) / DAY_MS, raw_days=36_500)
        except Exception as error:
            failed.append(error)

    writer, cleaner = threading.Thread(target=stream), threading.Thread(target=keep)
    writer.start()
    cleaner.start()
    ends = []
    while writer.is_alive():
        found = identities(tables.read(spark, topic.root, "things", repeats=True))
        offsets = [offset for _, offset in found]
        assert offsets == [n for n in range(len(offsets) // 2 * 3) if n % 3 != 2]
        ends.append(len(offsets))
    writer.join()
    cleaner.join()
    assert failed == []
    assert ends == sorted(ends)
    assert len(rows(topic, spark)) == 2 * batches
    assert tables.quarantine(spark, topic.root).count() == batches
    state = topic.ledger().state()
    assert any(unit.batches > 1 for unit in state.units), "nothing was merged meanwhile"


@pytest.mark.parametrize("options", [[], ["--tables", "x", "--raw-days", "0"], ["--nothing"]])
def test_usage(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(options) == 2
    assert "usage" in capsys.readouterr().err


def test_no_tables_nothing_to_do(topic: Topic, keeper: Keeper) -> None:
    assert keeper.run() == []
    assert tables.date_of(NOW_MS) == (NOON + timedelta(days=1)).date().isoformat()
