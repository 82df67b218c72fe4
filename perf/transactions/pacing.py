"""Large batches in transactions: throughput of own without them, and Apache Kafka's beside it.

One idempotent producer sends batches of 16 KB to one partition, acks=all, five requests in flight:
without transactions, and with a commit each 100 ms by clients of both kinds. A transaction ends
when its last batch is acknowledged.
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
from perf.judge import Bar, ratio_bar, side, together
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement
from perf.process import Watch, cpu_ns, touch_pages
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.driver import SETTLE_S, connected, pipeline
from perf.transactions.producer import (
    KINDS,
    PLAIN,
    TV1,
    TV2,
    Kind,
    Producer,
    await_coordinator,
    values,
)
from perf.warm import warm

RECORD_BYTES: Final = 16 << 10
COMMIT_EVERY_S: Final = 0.1
TIME_BAR: Final = 1 / 0.95
WARMING: Final = -1
TOUCH_BYTES: Final = 512 << 20
WARM_CELL: Final = "j-100-16x5"
INVERSE: Final = "at least 0.95 x the batches is held as its inverse: the time of one"


@dataclass(frozen=True)
class PacingPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 3.0
    kinds: tuple[str, ...] = (PLAIN.name, TV1.name, TV2.name)
    warm: bool = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Paced:
    """One block."""

    broker: str
    round: int
    kind: str
    batches: int
    commits: int
    wall_s: float
    cpu_us_each: float
    own_us_each: float
    quiet: bool

    @property
    def batches_per_s(self) -> float:
        return self.batches / self.wall_s

    @property
    def seconds_each(self) -> float:
        return self.wall_s / self.batches

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _block(broker: Broker, kind: Kind, number: int, seconds: float) -> Paced:
    """By a new producer, to a topic that is gone afterwards."""
    name = f"perf-paced-{kind.name}-{os.getpid()}-{number}"
    touch_pages(broker.directory, TOUCH_BYTES)
    with broker.client() as client, connected(broker.host, broker.port) as connection:
        topic = client.create_topic(name, 1)
        await_coordinator(client, name)
        producer = Producer(client, name, kind, topic, values(1, RECORD_BYTES))
        pid = broker.measured_pid
        watch = Watch([os.getpid(), *broker.own_pids])
        before, own = cpu_ns(pid), cpu_ns(os.getpid())
        done = pipeline(producer, connection, seconds, None if kind is PLAIN else COMMIT_EVERY_S)
        cpu_us, own_us = (cpu_ns(pid) - before) / 1e3, (cpu_ns(os.getpid()) - own) / 1e3
        guard = watch.guard()
        client.delete_topic(name)
    return Paced(
        broker.name, number, kind.name, done.batches, done.commits, done.wall_s,
        cpu_us / done.batches, own_us / done.batches, guard.quiet,
    )  # fmt: skip


def measure(plan: PacingPlan, root: Path, say: Callable[[str], None]) -> list[Paced]:
    """A round is one block by each broker, of each kind of client."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        for name in plan.brokers:
            broker = brokers[name] = new_broker(name, root / name)
            stack.callback(broker.discard)
            broker.start()
            if plan.warm:
                warm(broker, [WARM_CELL], say)
                for kind in plan.kinds:
                    _block(broker, KINDS[kind], WARMING, plan.seconds)
            broker.hold()
        for number in range(plan.rounds):
            for kind in plan.kinds:
                for name in order(plan.brokers, number):
                    brokers[name].resume()
                    time.sleep(SETTLE_S)
                    found.append(_block(brokers[name], KINDS[kind], number, plan.seconds))
                    brokers[name].hold()
                    one = found[-1]
                    say(
                        f"round {number + 1} {name:8} {kind}: {one.batches_per_s:,.0f} batches/s,"
                        f" {one.commits} commits, CPU {one.cpu_us_each:,.1f} us"
                    )
    return found


def bars(found: Sequence[Paced]) -> list[Bar]:
    """kbroker's, by its own without transactions."""
    ours = [one for one in found if one.broker == OURS]

    def of(kind: str) -> list[Any]:
        return side([one for one in ours if one.kind == kind], lambda one: one.seconds_each)

    return [
        ratio_bar(
            f"time of a batch of 16 KB with a commit each 100 ms, {kind.name.upper()}",
            TIME_BAR, "x without", together(of(kind.name), of(PLAIN.name)),
        )
        for kind in (TV1, TV2)
    ]  # fmt: skip


def report(found: Sequence[Paced], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name, kind in dict.fromkeys((one.broker, one.kind) for one in found):
        some = [one for one in found if (one.broker, one.kind) == (name, kind)]
        columns = (
            [one.batches_per_s for one in some],
            [one.commits / one.wall_s for one in some],
            [one.cpu_us_each for one in some],
            [one.own_us_each for one in some],
        )
        rows.append([name, kind, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "transactions", "batches/s", "commits/s", "CPU us each", "own us each")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"batches of 16 KB, transactions: {one.kind}", one.batches_per_s, "1/s"),
        (f"CPU of a batch of 16 KB, transactions: {one.kind}", one.cpu_us_each, "us"),
    ), [INVERSE])  # fmt: skip
