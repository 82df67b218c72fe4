"""From a commit until its record can be read: three brokers, kbroker's beside Apache Kafka's.

A producer commits one record of 100 B, a consumer of committed records waits for it with a long
poll. The first broker leads the partition, another one coordinates the id, and both topics have
three replicas. The time is that from EndTxn, when it is sent, to the response to the fetch: the
outcome and the marker are written and replicated meanwhile.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.cells import CellError
from perf.cluster.brokers import Cluster
from perf.cluster.rotation import Rotation
from perf.histogram import Histogram
from perf.judge import Bar
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.committed_reader import CommittedReader
from perf.transactions.driver import STALL_S, answered, ask, connected
from perf.transactions.ids import REPLICATED, STATE_TOPIC, partition_of
from perf.transactions.producer import KINDS, TV1, TV2, Kind, Producer, await_coordinator, values
from perf.transactions.warming import until_flat

NODES: Final = (1, 2, 3)
LEADER: Final = 1
RECORD_BYTES: Final = 100
VISIBLE_BAR: Final = 0.5


@dataclass(frozen=True)
class VisiblePlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 2.0
    kinds: tuple[str, ...] = (TV1.name, TV2.name)
    warm_commits: int = 1_000

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Seen:
    """One block."""

    broker: str
    round: int
    kind: str
    commits: int
    visible_p50_us: float
    visible_p99_us: float
    answered_p50_us: float  # the response to EndTxn
    cpu_us_each: float  # of the three brokers
    quiet: bool

    @property
    def title(self) -> str:
        return self.kind.upper()

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Times:
    """Of commits, in nanoseconds."""

    def __init__(self) -> None:
        self.visible: list[int] = []
        self.answered: list[int] = []


class Work:
    """A producer and a consumer on one cluster. Close it."""

    def __init__(self, cluster: Cluster, kind: Kind) -> None:
        self._cluster = cluster
        self._stack = ExitStack()
        stem = f"perf-visible-{kind.name}-{os.getpid()}"
        with cluster.client(LEADER) as client:
            topic = client.create_topic(stem, 1, replicas=NODES)
            await_coordinator(client, stem)
            for each in (topic.name, STATE_TOPIC):
                cluster.wait_in_sync(LEADER, each)
            name, coordinator = _coordinated_elsewhere(cluster, stem)
            (end,) = client.offsets(topic)
        with cluster.client(coordinator) as client:
            data = values(1, RECORD_BYTES)
            self._producer = Producer(client, name, kind, topic, data)
        self._to_leader, self._to_coordinator = map(self._connected, (LEADER, coordinator))
        self._reader = CommittedReader(self._connected(LEADER), topic, end)

    def _connected(self, node: int) -> Any:
        broker = self._cluster.nodes[node]
        return self._stack.enter_context(connected(broker.host, broker.port))

    def close(self) -> None:
        self._stack.close()

    def commit(self, times: Times) -> None:
        """One record, from its transaction's beginning until it has been read."""
        self._reader.ask()
        ask(self._to_coordinator, self._producer.begun())
        ask(self._to_leader, self._producer.written())
        steps = self._producer.ended()
        frame = next(steps)
        began_ns = time.perf_counter_ns()
        self._to_coordinator.sendall(frame)
        waits = {self._to_coordinator, self._reader.connection}
        while waits:
            ready, _, _ = select.select(waits, (), (), STALL_S)
            if not ready:
                raise CellError(f"a commit was not to be read within {STALL_S:.0f} s")
            took_ns = time.perf_counter_ns() - began_ns
            if self._reader.connection in ready:
                if self._reader.answer():
                    times.visible.append(took_ns)
                    waits.discard(self._reader.connection)
                else:
                    self._reader.ask()
            if self._to_coordinator in ready:
                try:
                    frame = steps.send(answered(self._to_coordinator, frame))
                    self._to_coordinator.sendall(frame)
                except StopIteration:
                    times.answered.append(took_ns)
                    waits.discard(self._to_coordinator)

    def warm(self, count: int) -> str:
        def block() -> float:
            times = Times()
            for _ in range(count):
                self.commit(times)
            return sum(times.visible) / count

        warmed = until_flat(block)
        return f"{warmed.blocks * count:,} commits, {warmed.word}"

    def block(self, kind: str, number: int, seconds: float) -> Seen:
        watch = Watch([os.getpid(), *self._cluster.pids])
        before_ns = self._cpu_ns()
        times, ends_s = Times(), time.perf_counter() + seconds
        while time.perf_counter() < ends_s:
            self.commit(times)
        cpu_us = (self._cpu_ns() - before_ns) / 1e3
        visible, replied = (Histogram.of(each) for each in (times.visible, times.answered))
        return Seen(
            self._cluster.name, number, kind, len(times.visible), visible.percentile(50) / 1e3,
            visible.percentile(99) / 1e3, replied.percentile(50) / 1e3,
            cpu_us / len(times.visible), watch.guard().quiet,
        )  # fmt: skip

    def _cpu_ns(self) -> int:
        return sum(cpu_ns(node.pid) for node in self._cluster.nodes.values())


def _coordinated_elsewhere(cluster: Cluster, stem: str) -> tuple[str, int]:
    """An id whose coordinator does not lead the partition, and its coordinator."""
    leaders = {each.number: each.leader for each in cluster.state(LEADER, STATE_TOPIC).partitions}
    for number in range(10 * len(leaders)):
        name = f"{stem}-{number}"
        coordinator = leaders[partition_of(name, len(leaders))]
        if coordinator != LEADER:
            return name, coordinator
    raise CellError("one broker coordinates everything")


def measure(plan: VisiblePlan, root: Path, say: Callable[[str], None]) -> list[Seen]:
    """A round is one block at each cluster, of each kind of client."""
    found = []
    with ExitStack() as stack:
        settings = dict.fromkeys(plan.brokers, REPLICATED)
        turns = stack.enter_context(
            Rotation(plan.brokers, root, len(NODES), say, settings=settings)
        )
        works: dict[tuple[str, str], Work] = {}
        for name in plan.brokers:
            with turns.alone(name) as cluster:
                for kind in plan.kinds:
                    work = works[name, kind] = Work(cluster, KINDS[kind])
                    stack.callback(work.close)
                    say(f"{name} warm: {kind}: {work.warm(plan.warm_commits)}")
        for number in range(plan.rounds):
            for kind in plan.kinds:
                for name in turns.order(number):
                    with turns.alone(name):
                        one = works[name, kind].block(kind, number, plan.seconds)
                    found.append(one)
                    say(
                        f"round {number + 1} {name:8} {one.title}: visible after"
                        f" {one.visible_p50_us:,.0f} us, p99 {one.visible_p99_us:,.0f} us"
                    )
    return found


def bars(found: Sequence[Seen]) -> list[Bar]:
    return [
        kafka_bar(
            f"commit to visible, {title}", VISIBLE_BAR,
            [one for one in found if one.title == title], lambda one: one.visible_p50_us,
        )
        for title in dict.fromkeys(one.title for one in found)
    ]  # fmt: skip


def report(found: Sequence[Seen], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name, title in dict.fromkeys((one.broker, one.title) for one in found):
        some = [one for one in found if (one.broker, one.title) == (name, title)]
        columns = (
            [one.visible_p50_us for one in some],
            [one.visible_p99_us for one in some],
            [one.answered_p50_us for one in some],
            [one.cpu_us_each for one in some],
        )
        rows.append([name, title, *(interval(estimate(each)) for each in columns)])
    head = ("brokers", "client", "visible p50 us", "p99 us", "EndTxn p50 us", "CPU us of all")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"commit to visible, {one.title}", one.visible_p50_us, "us"),
        (f"p99 of commit to visible, {one.title}", one.visible_p99_us, "us"),
    ))  # fmt: skip
