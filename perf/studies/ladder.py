"""`kbroker perf ladder`: document 004's designs on the same work, beside kbroker and the limit.

Three pieces of work: quick requests; requests that are slow because each waits for the disk; quick
requests beside one client on a bad line. On each, every rung of the ladder is held against the rung
below it, in alternating blocks, and the answers follow from those ratios (verdict.py). kbroker and
the limit server run where they do the same work: neither forces records to the disk, so the slow
work has Apache Kafka beside instead, if it was asked for.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from perf.brokers import Broker, KafkaBroker, KbrokerBroker, LimitBroker
from perf.brokers.ladder import LadderBroker
from perf.cells import Bench, Cell, CellError
from perf.ladder import BY_NAME
from perf.ladder.slow_client import SlowClient
from perf.studies import study
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome, Point, Say

STUDY: Final = "ladder"
SETTLE_AFTER_HOLD_S = 0.05
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

    designs: tuple[str, ...] = tuple(BY_NAME)
    rounds: int = 5
    seconds: float = 1.0
    warm_s: float = 0.2
    kafka: bool = False
    directory: Path | None = None  # for data; the system's temporary one by default

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """About a minute instead of three."""
        return replace(cls(rounds=3, seconds=0.4, warm_s=0.1), **changes)

    def brokers(self, work: str) -> tuple[str, ...]:
        """Who does a piece of work, from the lowest rung up."""
        kafka = ("kafka",) * self.kafka
        return (*self.designs, *(() if work == SLOW else ("kbroker", "limit")), *kafka)


def points(plan: Plan) -> list[Point]:
    """A group for each piece of work; the lowest and the highest rung take the null test."""
    found = []
    for work, cell in CELLS.items():
        for name in plan.brokers(work):
            dims = {
                "cell": work,
                "broker": name,
                "acks": cell.acks,
                "size_bytes": cell.size,
                "in_flight": cell.in_flight,
                "connections": cell.connections,
                "partitions": cell.connections,
                "path": cell.path,
                "codec": cell.codec,
                "baseline": name == plan.designs[0],
            }
            null = name in (plan.designs[0], plan.designs[-1])
            found.append(Point(key_of(work, name), work, dims, null=null))
    return found


def key_of(work: str, broker: str) -> str:
    return f"{work}: {broker}"


class Servers:
    """Every server of the study, warm and held still but for the one whose turn it is."""

    def __init__(self, plan: Plan, root: Path, say: Say) -> None:
        self._plan = plan
        self._benches: dict[tuple[str, bool], Bench] = {}
        self._brokers = ExitStack()
        try:
            for work in CELLS:
                for name in plan.brokers(work):
                    self._start(name, work == SLOW, root, say)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, flushed: bool, root: Path, say: Say) -> None:
        if name in BESIDE:
            flushed = False  # one of each: a topic of Kafka's says itself that it is flushed
        if (name, flushed) in self._benches:
            return
        where = root / f"{name}{'-fsync' if flushed else ''}"
        made: Broker
        if name == "kafka":
            made = KafkaBroker(where)
        elif name == "kbroker":
            made = KbrokerBroker(where)
        elif name == "limit":
            made = LimitBroker(where)
        else:
            made = LadderBroker(where, design=name, fsync=flushed)
        self._brokers.callback(made.discard)
        made.start()
        bench = Bench(made, seconds=self._plan.seconds, warm_s=self._plan.warm_s)
        self._benches[name, flushed] = bench
        if name == "kafka":
            say("Apache Kafka started; warming")
            for _ in range(KAFKA_WARM_BLOCKS):  # its compiler needs many requests of every kind
                for cell in CELLS.values():
                    Bench(made, seconds=KAFKA_WARM_S, warm_s=0).run(_cell(cell, name))
        made.hold()

    def measure(self, point: Point) -> Measured:
        """One block of a point, its server running alone. CellError if it is void."""
        work, name = str(point.dims["cell"]), str(point.dims["broker"])
        bench = self._benches[name, work == SLOW and name not in BESIDE]
        bench.broker.resume()
        try:
            time.sleep(SETTLE_AFTER_HOLD_S)
            cell = _cell(CELLS[work], name)
            if work != BAD_LINE:
                return Measured.of(bench.run(cell), ended_at_ms=_now_ms())
            with SlowClient(bench.broker.host, bench.broker.port) as client:
                block = bench.run(cell)
            if client.failure:
                raise CellError(f"{point.key}: {client.failure}")
            return Measured.of(block, ended_at_ms=_now_ms(), slow_answers=client.answers)
        except (CellError, OSError):
            bench.broker.check_alive()
            raise
        finally:
            bench.broker.hold()

    def close(self) -> None:
        self._brokers.close()


def _cell(cell: Cell, broker: str) -> Cell:
    return replace(cell, configs=FLUSHED) if cell is CELLS[SLOW] and broker == "kafka" else cell


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """The whole study. What was started is ended and removed, whatever happens."""
    with TemporaryDirectory(prefix="kbroker-ladder-", dir=plan.directory) as root:
        servers = Servers(plan, Path(root), say)
        try:
            return study.run(
                STUDY,
                points(plan),
                servers.measure,
                rounds=plan.rounds,
                directory=journal,
                say=say,
                settings={"seconds": plan.seconds, "warm_s": plan.warm_s},
                describe=lambda one: (
                    f"{one.requests_per_s:>9,.0f}/s  p99 {one.percentile_us(REQUEST, 99):>9,.0f} us"
                ),
                fresh=fresh,
            )
        finally:
            servers.close()
