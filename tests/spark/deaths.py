"""Two tables that maintenance has everything to do with, and an end of it at each of its steps.

A process that is ended leaves the files that are on the disk at that moment. All that
maintenance does to a disk, but for Spark's writing into a unit that no commit names yet, goes
through three methods of LocalFiles. So `World.maintain(at)` tells `at` each step by name, and a
Death that it raises, which no `except Exception` sees, leaves what kill -9 leaves: a commit's
hidden file, a directory that is half removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyarrow import parquet

from spark_jobs import tables
from spark_jobs.decode import decoder
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger, State, now_ms, unit_directory
from spark_jobs.maintain import DAY_MS, Plan, maintain
from spark_jobs.rollup import HOURLY, stale
from spark_jobs.schema import METRICS
from tests.spark.things import NOON, NOW_MS, THINGS, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND = "2020-11-22", "2020-11-23"  # the one expires, the other stays
COMMITS: Final = ("roll-up", "merge", "expire", "fold", "garbage")
STEPS: Final = frozenset({
    "roll-up written", "merge written", *(f"{name} begun" for name in COMMITS),
    *(f"{name} committed" for name in COMMITS), "unit removal begun", "unit half removed",
    "unit removed", "commit removal begun", "commit removed",
})  # fmt: skip
At = Callable[[str], None]
_CREATE, _DELETE, _SYNC = LocalFiles.create, LocalFiles.delete, LocalFiles.sync


class Death(BaseException):
    """As kill -9, but for the process."""


@contextmanager
def stepping(at: At) -> Iterator[None]:
    """`at` gets each of STEPS, of all LocalFiles."""

    def create(files: LocalFiles, uri: str, data: bytes) -> bool:
        what = "fold" if uri.endswith(".fold.json") else str(json.loads(data)["kind"])
        what = "roll-up" if what == "merge" and f"/{HOURLY.name}/" in uri else what
        hidden = files._path(uri)
        hidden = hidden.with_name(f".{hidden.name}.dead.tmp")
        hidden.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_bytes(data[: len(data) // 2])
        at(f"{what} begun")
        hidden.unlink(missing_ok=True)  # the other one of two may have been here
        made = _CREATE(files, uri, data)
        at(f"{what} committed")
        return made

    def delete(files: LocalFiles, uri: str) -> None:
        path = files._path(uri)
        what = "unit" if path.is_dir() else "commit" if "/_ledger/" in uri else "file"
        at(f"{what} removal begun")
        if path.is_dir():
            below = sorted(one for one in path.rglob("*") if one.is_file())
            for one in below[: (len(below) + 1) // 2]:
                one.unlink()
            at("unit half removed")
        _DELETE(files, uri)
        at(f"{what} removed")

    def sync(files: LocalFiles, uri: str) -> None:
        at("roll-up written" if "ledger_unit=hours-" in uri else "merge written")
        _SYNC(files, uri)

    with pytest.MonkeyPatch.context() as patched:
        for name, step in {"create": create, "delete": delete, "sync": sync}.items():
            patched.setattr(LocalFiles, name, step)
        yield


class World:
    """Tables `things` and `metrics`, what has been landed, and a clock of the test's own."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.root = str(place)
        self.began_ms = now_ms()
        self.days = 0.0
        self.said: list[str] = []
        self.things = Topic(spark, place, "q-1")
        self.metrics = Topic(
            spark, place, "q-2", schema=METRICS,
            decode=decoder("metrics", lambda: NOW_MS + 6 * DAY_MS),
        )  # fmt: skip
        for topic in (self.things, self.metrics):
            topic.begin_at({0: 0, 1: 0})
        self._landed: dict[str, list[tuple[str, str]]] = {}
        self._hours: dict[str, list[tuple[int, int]]] = {}  # samples and their sum, batch by batch
        self._batches = [0, 0]

    @property
    def clock_ms(self) -> int:
        return self.began_ms + round(self.days * DAY_MS)

    def land_things(self, *days: int, unreadable: int = 0) -> None:
        """A row of each of these days after FIRST, and what cannot be read, by SECOND's clock."""
        n, self._batches[0] = self._batches[0], self._batches[0] + 1
        self.things.write(0, *(f"a {n}{day} {day * 86_400}" for day in days), *["bad"] * unreadable)
        self.things.land(n)
        self._note(THINGS.name)

    def land_samples(self, *days: int) -> None:
        n, self._batches[1] = self._batches[1], self._batches[1] + 1
        for day in days:
            at_ms = int(NOON.timestamp() * 1000) + day * DAY_MS
            known = self._hours.setdefault(tables.date_of(at_ms), [(0, 0)])
            known.append((known[-1][0] + 1, known[-1][1] + 7 + day))
            self.metrics.write(0, METRICS.encode({
                "schema_version": METRICS.version, "broker_id": 1, "run_ms": 7,
                "sequence": 1000 * n + day, "event_time_ms": at_ms, "interval_ms": 15_000,
                "metric_name": "BrokerTraffic", "messages_in": 7 + day,
            }).decode())  # fmt: skip
        self.metrics.land(n)
        self._note(METRICS.name)

    def _note(self, name: str) -> None:
        """What came to the table just now."""
        for kind in (tables.DATA, tables.SET_ASIDE):
            known = self._landed.setdefault(f"{name}/{kind}", [])
            known += [row for row in self.rows(name, kind) if row not in known]

    def maintain(self, at: At | None = None, *, raw_days: int | None = None) -> bool:
        """False if it died; dates before SECOND expire unless `raw_days` says otherwise."""
        plan = Plan(self.raw_days if raw_days is None else raw_days)
        with stepping(at or (lambda step: None)):
            try:
                maintain(self.spark, self.root, plan, say=self.said.append,
                         clock_ms=lambda: self.clock_ms)  # fmt: skip
            except Death:
                return False
        return True

    @property
    def raw_days(self) -> int:
        """By which dates before SECOND expire."""
        return (date.fromisoformat(tables.date_of(self.clock_ms)) - date.fromisoformat(SECOND)).days

    def state(self, name: str) -> State:
        return Ledger(LocalFiles(), f"{self.root}/{name}").state()

    def rows(self, name: str, kind: str = tables.DATA) -> list[tuple[str, str]]:
        """Date and content of each row, in order."""
        return sorted((day, repr(row)) for day, row in self._read(name, kind))

    def _read(self, name: str, kind: str = tables.DATA) -> list[tuple[str, dict[str, Any]]]:
        """As a reader without Spark finds them."""
        state = self.state(name)
        found = []
        for unit in state.quarantine if kind == tables.SET_ASIDE else state.units:
            place = Path(
                self.root, name, kind, unit_directory(unit.unit), f"event_date={unit.date}"
            )
            rows = [row for file in place.glob("*.parquet")
                    for row in parquet.ParquetFile(file).read().to_pylist()]  # fmt: skip
            assert len(rows) == unit.rows, place
            found += [(unit.date, row) for row in rows]
        return found

    def check(self, *expired: str) -> None:
        """Every row that landed is there once, or none of its date, which is in `expired`; hours
        are of whole batches, and there for each date of samples that expired."""
        for key, landed in self._landed.items():
            name, kind = key.split("/")
            found = self.rows(name, kind)
            gone = {day for day, _ in landed} - {day for day, _ in found}
            assert gone <= set(expired)
            assert found == sorted(row for row in landed if row[0] not in gone), key
            assert kind == tables.SET_ASIDE or gone <= self.state(name).expired <= set(expired)
        hours = self._found_hours()
        assert all(hours[day] in self._hours[day] for day in hours)
        assert hours.keys() >= self.state(METRICS.name).expired

    def _found_hours(self) -> dict[str, tuple[int, int]]:
        rows = self._read(HOURLY.name)
        found = {day: (row["samples"], row["messages_in"]) for day, row in rows}
        assert len(found) == len(rows)
        return found

    def check_done(self) -> None:
        """Nothing is left to be done, and on the disk is what the tables name and no more."""
        assert stale(self.spark, self.root) == {}
        assert self._found_hours() == {day: known[-1] for day, known in self._hours.items()}
        for name in (THINGS.name, METRICS.name, HOURLY.name):
            state, place = self.state(name), Path(self.root, name)
            named = {f"{kind}/{unit_directory(unit.unit)}/event_date={unit.date}"
                     for kind, units in ((tables.DATA, state.units),
                                         (tables.SET_ASIDE, state.quarantine))
                     for unit in units}  # fmt: skip
            there = {str(Path(file).parent.relative_to(place)) for file in place.rglob("part-*")
                     if file.name.endswith(".parquet")}  # fmt: skip
            assert there == named
            units = {where.rsplit("/", 1)[0] for where in named}
            assert {str(one.relative_to(place)) for one in place.glob("*/ledger_unit=*")} == units
            assert not list(place.rglob("*.tmp"))

    def finish(self) -> None:
        """A maintenance a day, until there is nothing to do: soon."""
        for _ in range(4):
            self.days += 1.1
            self.said.clear()
            assert self.maintain()
            if not self.said:
                return
        raise AssertionError(f"it does not come to an end: {self.said}")

    def age(self, days: int) -> None:
        """All files were last written so long ago."""
        at_s = self.began_ms / 1000 - days * 86_400
        for where, folders, names in os.walk(self.root):
            for name in (*folders, *names):
                os.utime(os.path.join(where, name), (at_s, at_s))
