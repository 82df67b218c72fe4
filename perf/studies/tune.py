"""`kbroker perf tune`: what each setting that the documents name changes here, value by value.

A value of a broker's setting has a broker of its own, a topic's or a producer's has topics of its
own on the broker with the defaults. On each piece of work all values of a knob run one right after
the other, the default among them, and every value is held against the default of its round. The
null test is a *twin*: a second broker with the defaults, so that what two equal processes differ by
(memory, ports, placement) is not taken for an effect.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from perf.brokers import Broker, KafkaBroker, KbrokerBroker
from perf.cells import Bench, Cell
from perf.cluster.as_one_broker import ClusterAsBroker
from perf.cluster.brokers import KbrokerCluster
from perf.results import of_cell
from perf.studies import study
from perf.studies.knobs import FLUSHED, Knob, knobs
from perf.studies.measured import REQUEST, Measured
from perf.studies.servers import Servers
from perf.studies.study import Outcome, Point, Say

STUDY: Final = "tune"
DEFAULTS: Final = "defaults"
TWIN: Final = "the default again"
KAFKA: Final = "Apache Kafka"
KAFKA_WARM_BLOCKS, KAFKA_WARM_S = 3, 3.0  # its compiler needs many requests


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    names: tuple[str, ...] = ()  # of knobs; none: all
    rounds: int = 7  # one more than decide anything: a block may be noisy
    seconds: float = 0.5
    warm_s: float = 0.2
    kafka: bool = False  # and what only Apache Kafka can show
    directory: Path | None = None  # for data; the system's temporary one by default

    @property
    def with_kafka(self) -> bool:
        return self.kafka

    @classmethod
    def quick(cls, **changes: Any) -> Plan:
        """About four minutes instead of thirteen: a look, for three rounds decide nothing."""
        return replace(cls(rounds=3, seconds=0.3, warm_s=0.1), **changes)

    def knobs(self) -> tuple[Knob, ...]:
        every = knobs(kafka=self.kafka)
        return tuple(knob for knob in every if not self.names or knob.name in self.names)


def key_of(knob: Knob, value: str, cell: Cell) -> str:
    return f"{knob.name}={value} on {cell.key}"


def points(plan: Plan) -> list[Point]:
    """A group for each knob on each of its cells: the default, its twin, the other values."""
    found = []
    for knob in plan.knobs():
        for cell in knob.cells:
            for value in (knob.default, TWIN, *knob.tried()):
                dims = {
                    **of_cell(configured(cell, knob, value)),
                    "broker": knob.broker,
                    "knob": knob.name,
                    "knob_value": value,
                    "baseline": value == knob.default,
                }
                if value == TWIN:
                    dims["again"] = True
                group = f"{knob.name} on {cell.key}"
                found.append(Point(key_of(knob, value, cell), group, dims))
    return found


def configured(cell: Cell, knob: Knob, value: str) -> Cell:
    """The cell with a value that is not the broker's affair."""
    if value in (knob.default, TWIN) or knob.how == "broker":
        return cell
    if knob.how == "codec":
        return replace(cell, codec=value)
    return replace(cell, configs=((knob.topic_key or knob.key, value),))


def server_of(knob: Knob, value: str) -> Hashable:
    """Which server a value is tried on. Apache Kafka has no twin, being large; itself will do."""
    if knob.broker == "kafka":
        return KAFKA
    if _has_own(knob, value):
        return (knob.key, value)
    name = TWIN if value == TWIN else DEFAULTS
    return name if knob.brokers == 1 else (name, knob.brokers)


def _has_own(knob: Knob, value: str) -> bool:
    return knob.how == "broker" and value in knob.tried()


def start(plan: Plan, servers: Servers, root: Path, say: Say) -> None:
    """A server with the defaults, its twin, and one for each value of a broker's setting."""
    if plan.kafka:
        _start_kafka(servers, root, say)
    for knob in plan.knobs():
        for value in (knob.default, TWIN, *knob.tried()):
            server = server_of(knob, value)
            if server not in servers:
                own = (f"{knob.key}={value}", *knob.also) if _has_own(knob, value) else ()
                servers.add(server, _server(knob.brokers, root / f"server-{len(servers)}", own))


def _server(brokers: int, where: Path, settings: tuple[str, ...]) -> Broker:
    """A broker, or a cluster that looks like one; not started."""
    if brokers == 1:
        return KbrokerBroker(where, overrides=settings)
    given = dict(one.split("=", 1) for one in settings)
    return ClusterAsBroker(KbrokerCluster(where, brokers, holdable=True, settings=given))


def _start_kafka(servers: Servers, root: Path, say: Say) -> None:
    say("starting and warming Apache Kafka")
    servers.add(KAFKA, KafkaBroker(root / "kafka"))
    with servers.turn(KAFKA) as bench:
        warm = Bench(bench.broker, seconds=KAFKA_WARM_S, warm_s=0)
        for _ in range(KAFKA_WARM_BLOCKS):
            warm.run(FLUSHED.cells[0])


def measure(servers: Servers, work: dict[str, tuple[Hashable, Cell]], point: Point) -> Measured:
    """One block of a point, its broker running alone. CellError if it is void."""
    server, cell = work[point.key]
    with servers.turn(server) as bench:
        return Measured.of(bench.run(cell), ended_at_ms=time.time_ns() // 1_000_000)


def run(plan: Plan, say: Say, journal: Path, *, fresh: bool = False) -> Outcome:
    """The whole study. Every process is ended and removed, whatever happens."""
    work = {
        key_of(knob, value, cell): (server_of(knob, value), configured(cell, knob, value))
        for knob in plan.knobs()
        for cell in knob.cells
        for value in (knob.default, TWIN, *knob.tried())
    }
    with (
        TemporaryDirectory(prefix="kbroker-tune-", dir=plan.directory) as root,
        Servers(seconds=plan.seconds, warm_s=plan.warm_s) as servers,
    ):
        start(plan, servers, Path(root), say)
        say(f"{len(servers)} brokers started, {len(work)} points in {plan.rounds} rounds")
        return study.run(
            STUDY,
            points(plan),
            partial(measure, servers, work),
            rounds=plan.rounds,
            directory=journal,
            say=say,
            settings={"seconds": plan.seconds, "warm_s": plan.warm_s},
            describe=lambda one: (
                f"{one.records_per_s:>9,.0f} records/s {one.cpu_us_per_record:>7.2f} us CPU  "
                f"p99 {one.percentile_us(REQUEST, 99):>8,.0f} us"
            ),
            fresh=fresh,
        )
