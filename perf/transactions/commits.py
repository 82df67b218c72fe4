"""Commits a second: kbroker beside Apache Kafka, one producer and a hundred, clients of both kinds.

One producer commits 1, 10 or 100 records of 100 B in one partition; a hundred producers commit one
record in each of ten partitions, which they share. acks=all, one broker. Both brokers live through
the run, all but one held still; blocks by turns. Each is warmed, by cell, until three successive
thousands of commits take the same time within 5 %.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers import Broker
from perf.client import Client
from perf.histogram import Histogram
from perf.judge import Bar, ratio_bar, side, together
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns
from perf.requests import Topic
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.driver import SETTLE_S, Line, commit, connected
from perf.transactions.producer import KINDS, TV1, TV2, Kind, Producer, await_coordinator, values
from perf.transactions.warming import until_flat

RECORD_BYTES: Final = 100
WARM_COMMITS: Final = 1_000
RATE_BAR, ONE_P99_BAR, MANY_CPU_BAR = 1 / 3, 0.4, 0.4
INVERSE: Final = "at least n x the commits a second is held as its inverse: the time of one commit"
MANY_PARTITIONS: Final = 10


@dataclass(frozen=True)
class CommitCell:
    """A fixed piece of work."""

    producers: int
    partitions: int
    records: int  # in each partition
    kind: Kind

    @property
    def key(self) -> str:
        return f"{self.producers}x{self.partitions}-{self.records}-{self.kind.name}"

    @property
    def title(self) -> str:
        each = f"{self.records} record{'s' * (self.records > 1)}"
        if self.producers == 1:
            return f"1 producer, {each}, {self.kind.name.upper()}"
        return f"{self.producers} producers, {self.partitions} partitions, {self.kind.name.upper()}"


@dataclass(frozen=True)
class CommitPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 3.0
    records: tuple[int, ...] = (1, 10, 100)
    producers: int = 100
    warm_commits: int = WARM_COMMITS

    @property
    def cells(self) -> list[CommitCell]:
        kinds = (TV1, TV2)
        few = [CommitCell(1, 1, count, kind) for count in self.records for kind in kinds]
        many = [CommitCell(self.producers, MANY_PARTITIONS, 1, kind) for kind in kinds]
        return [*few, *(many if self.producers else [])]

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Committed:
    """One block."""

    broker: str
    round: int
    cell: str
    commits: int
    wall_s: float
    p50_us: float
    p99_us: float
    cpu_us_each: float
    own_us_each: float
    repeats_each: float
    quiet: bool

    @property
    def commits_per_s(self) -> float:
        return self.commits / self.wall_s

    @property
    def seconds_each(self) -> float:
        return self.wall_s / self.commits

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Work:
    """The producers of one cell on one broker, with a topic of their own. Close it."""

    def __init__(self, broker: Broker, cell: CommitCell) -> None:
        self._broker, self.cell = broker, cell
        self._stack = ExitStack()
        name = f"perf-commits-{cell.key}-{os.getpid()}"
        with broker.client() as client:
            topic = client.create_topic(name, cell.partitions)
            await_coordinator(client, name)
            self.lines = [self._line(client, topic, number) for number in range(cell.producers)]

    def _line(self, client: Client, topic: Topic, number: int) -> Line:
        data = values(self.cell.records, RECORD_BYTES)
        producer = Producer(client, f"{topic.name}-{number}", self.cell.kind, topic, data)
        connection = connected(self._broker.host, self._broker.port)
        return Line(producer, self._stack.enter_context(connection))

    def close(self) -> None:
        self._stack.close()

    def warm(self, count: int, say: Callable[[str], None]) -> None:

        def block() -> float:
            done = commit(self.lines, count=count)
            return done.wall_s / len(done.times_ns)

        warmed = until_flat(block)
        commits = warmed.blocks * count
        say(f"{self._broker.name} warm: {self.cell.title}: {commits:,} commits, {warmed.word}")

    def block(self, seconds: float, number: int) -> Committed:
        pid = self._broker.measured_pid
        watch = Watch([os.getpid(), *self._broker.own_pids])
        repeats = self._repeats()
        before, own = cpu_ns(pid), cpu_ns(os.getpid())
        done = commit(self.lines, seconds=seconds)
        cpu_us, own_us = (cpu_ns(pid) - before) / 1e3, (cpu_ns(os.getpid()) - own) / 1e3
        count, times = len(done.times_ns), Histogram.of(done.times_ns)
        return Committed(
            self._broker.name, number, self.cell.key, count, done.wall_s,
            times.percentile(50) / 1e3, times.percentile(99) / 1e3, cpu_us / count, own_us / count,
            (self._repeats() - repeats) / count, watch.guard().quiet,
        )  # fmt: skip

    def _repeats(self) -> int:
        return sum(line.producer.repeats for line in self.lines)


def measure(plan: CommitPlan, root: Path, say: Callable[[str], None]) -> list[Committed]:
    """A round is one block by each broker, of each cell."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        works: dict[tuple[str, str], Work] = {}
        for kind in plan.brokers:
            broker = brokers[kind] = new_broker(kind, root / kind)
            stack.callback(broker.discard)
            broker.start()
            for cell in plan.cells:
                work = works[kind, cell.key] = Work(broker, cell)
                stack.callback(work.close)
                work.warm(plan.warm_commits, say)
            broker.hold()
        for number in range(plan.rounds):
            for cell in plan.cells:
                for kind in order(plan.brokers, number):
                    brokers[kind].resume()
                    time.sleep(SETTLE_S)
                    found.append(works[kind, cell.key].block(plan.seconds, number))
                    brokers[kind].hold()
                    one = found[-1]
                    say(
                        f"round {number + 1} {kind:8} {cell.title}: {one.commits_per_s:,.0f}"
                        f" commits/s, p99 {one.p99_us:,.0f} us, CPU {one.cpu_us_each:,.0f} us"
                    )
    return found


def _of(found: Sequence[Committed], cell: CommitCell) -> list[Committed]:
    return [one for one in found if one.cell == cell.key]


def bars(found: Sequence[Committed], cells: Sequence[CommitCell]) -> list[Bar]:
    out = []
    for cell in cells:
        some, alone = _of(found, cell), cell.producers == 1
        title = f"time of a commit, {cell.title}"
        out.append(kafka_bar(title, RATE_BAR, some, lambda one: one.seconds_each))
        if alone:
            title = f"p99 of a commit, {cell.title}"
            out.append(kafka_bar(title, ONE_P99_BAR, some, lambda one: one.p99_us))
        else:
            title = f"CPU of a commit, {cell.title}"
            out.append(kafka_bar(title, MANY_CPU_BAR, some, lambda one: one.cpu_us_each))
    by_work = {(cell.producers, cell.records, cell.kind): cell for cell in cells}
    for (producers, records, kind), cell in by_work.items():
        other = by_work.get((producers, records, TV1))
        if kind is not TV2 or other is None or producers > 1:
            continue
        ours = [
            side(
                [one for one in _of(found, each) if one.broker == OURS],
                lambda one: one.seconds_each,
            )
            for each in (cell, other)
        ]
        what = f"time of a commit, TV2 by TV1, {records} record{'s' * (records > 1)}"
        out.append(ratio_bar(what, 1.0, "x TV1", together(*ours)))
    return out


def report(found: Sequence[Committed], plan: Mapping[str, Any]) -> Measurement:
    cells = {one.cell: _cell_of(one.cell) for one in found}
    rows = []
    for kind, key in dict.fromkeys((one.broker, one.cell) for one in found):
        some = [one for one in found if (one.broker, one.cell) == (kind, key)]
        columns = (
            [one.commits_per_s for one in some],
            [one.p50_us for one in some],
            [one.p99_us for one in some],
            [one.cpu_us_each for one in some],
            [one.own_us_each for one in some],
            [one.repeats_each for one in some],
        )
        title = cells[key].title
        rows.append([kind, title, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "work", "commits/s", "p50 us", "p99 us", "CPU us", "own us", "repeats each")
    return Measurement.of(plan, head, rows, bars(found, list(cells.values())), found, lambda one: (
        (f"commits, {cells[one.cell].title}", one.commits_per_s, "1/s"),
        (f"p99 of a commit, {cells[one.cell].title}", one.p99_us, "us"),
        (f"CPU of a commit, {cells[one.cell].title}", one.cpu_us_each, "us"),
    ), [INVERSE])  # fmt: skip


def _cell_of(key: str) -> CommitCell:
    size, records, kind = key.split("-")
    producers, partitions = size.split("x")
    return CommitCell(int(producers), int(partitions), int(records), KINDS[kind])
