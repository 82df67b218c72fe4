"""`kbroker perf ladder`: document 004's designs on the same work, beside kbroker and the limit.

Three pieces of work: quick requests; requests that are slow because each waits for the disk; quick
requests beside one client on a bad line. On each, every rung of the ladder is held against the rung
below it, in alternating blocks, and the answers follow from those ratios (perf.judge). kbroker, and
Apache Kafka if it was asked for, do the slow work on a topic with flush.messages=1: as on the
rungs, one sync of the partition's file before each answer. The limit server forces nothing to the
disk and has no part in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from perf.brokers import Broker, KafkaBroker, KbrokerBroker, LimitBroker
from perf.brokers.ladder import LadderBroker
from perf.cells import Bench, Cell, CellError
from perf.ladder import TITLES
from perf.results import of_cell
from perf.studies import study
from perf.studies.measured import REQUEST, Measured
from perf.studies.servers import Servers
from perf.studies.slow_client import slow_client
from perf.studies.study import Outcome, Point, Say

STUDY: Final = "ladder"
KAFKA_WARM_BLOCKS, KAFKA_WARM_S = 4, 3.0
BESIDE: Final = ("limit", "kbroker", "kafka")
FLUSHED: Final = (("flush.messages", "1"),)

QUICK, SLOW, BAD_LINE = "quick work", "slow work", "a slow client"
CELLS: Final = {
    QUICK: Cell("ladder-quick", "1 KB, 16 connections x 5, page cache", "produce", 1000, 16, 5),
    SLOW: Cell("ladder-slow", "1 KB, 16 x 1, each on the disk first", "produce", 1000, 16, 1),
    BAD_LINE: Cell("ladder-bad-line", "quick work beside a slow client", "produce", 1000, 16, 5),
}


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    designs: tuple[str, ...] = tuple(TITLES)
    rounds: int = 7
    seconds: float = 1.0
    warm_s: float = 0.2
    kafka: bool = False
    directory: Path | None = None  # for data; the system's temporary one by default

    @property
    def with_kafka(self) -> bool:
        return self.kafka

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """About a minute instead of five: a look, for three rounds decide nothing."""
        return replace(cls(rounds=3, seconds=0.4, warm_s=0.1), **changes)

    def brokers(self, work: str) -> tuple[str, ...]:
        """Who does a piece of work, from the lowest rung up."""
        limit, kafka = ("limit",) * (work != SLOW), ("kafka",) * self.kafka
        return (*self.designs, "kbroker", *limit, *kafka)


def points(plan: Plan) -> list[Point]:
    """A group for each piece of work; the lowest and the highest rung take the null test."""
    found = []
    for work, cell in CELLS.items():
        for name in plan.brokers(work):
            dims = {
                **of_cell(cell),
                "cell": work,
                "broker": name,
                "baseline": name == plan.designs[0],
            }
            null = name in (plan.designs[0], plan.designs[-1])
            found.append(Point(key_of(work, name), work, dims, null=null))
    return found


def key_of(work: str, broker: str) -> str:
    return f"{work}: {broker}"


def start(plan: Plan, servers: Servers, root: Path, say: Say) -> None:
    """Every server of the plan, warm and held still."""
    for work in CELLS:
        for name in plan.brokers(work):
            server = server_of(work, name)
            if server in servers:
                continue
            where = root / f"{name}{'-fsync' if server[1] else ''}"
            made: Broker
            if name == "kafka":
                made = KafkaBroker(where)
            elif name == "kbroker":
                made = KbrokerBroker(where)
            elif name == "limit":
                made = LimitBroker(where)
            else:
                made = LadderBroker(where, design=name, fsync=server[1])
            servers.add(server, made)
            if name == "kafka":
                _warm(servers, server, say)


def server_of(work: str, name: str) -> tuple[str, bool]:
    """Which server does a piece of work: its name, and whether it was started to wait for the disk.
    One of each that is beside: there it is the topic that says so."""
    return name, work == SLOW and name not in BESIDE


def _warm(servers: Servers, server: tuple[str, bool], say: Say) -> None:
    """A JVM's compiler needs many requests of every kind."""
    say("Apache Kafka started; warming")
    with servers.turn(server) as bench:
        warm = Bench(bench.broker, seconds=KAFKA_WARM_S, warm_s=0)
        for work in list(CELLS) * KAFKA_WARM_BLOCKS:
            warm.run(cell_of(work, "kafka"))


def measure(servers: Servers, point: Point) -> Measured:
    """One block of a point, its server running alone. CellError if it is void."""
    work, name = str(point.dims["cell"]), str(point.dims["broker"])
    cell = cell_of(work, name)
    with servers.turn(server_of(work, name)) as bench:
        if work != BAD_LINE:
            return Measured.of(bench.run(cell), ended_at_ms=now_ms())
        with slow_client(bench.broker.host, bench.broker.port) as client:
            block = bench.run(cell)
        if client.failure:
            raise CellError(f"{point.key}: {client.failure}")
        return Measured.of(block, ended_at_ms=now_ms(), slow_answers=client.answers)


def cell_of(work: str, name: str) -> Cell:
    """A piece of work as a server is asked for it."""
    flushed = work == SLOW and name in BESIDE
    return replace(CELLS[work], configs=FLUSHED) if flushed else CELLS[work]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """The whole study. What was started is ended and removed, whatever happens."""
    with (
        TemporaryDirectory(prefix="kbroker-ladder-", dir=plan.directory) as root,
        Servers(seconds=plan.seconds, warm_s=plan.warm_s) as servers,
    ):
        start(plan, servers, Path(root), say)
        return study.run(
            STUDY,
            points(plan),
            partial(measure, servers),
            rounds=plan.rounds,
            directory=journal,
            say=say,
            settings={"seconds": plan.seconds, "warm_s": plan.warm_s},
            describe=lambda one: (
                f"{one.requests_per_s:>9,.0f}/s  p99 {one.percentile_us(REQUEST, 99):>9,.0f} us"
            ),
            fresh=fresh,
        )
