"""Records a second that members of a share group get and acknowledge, and a single acknowledgement.

One partition, and 1, 10 or 100 members with a connection each. Before a block the records are
written; then each member fetches, acknowledges with its next fetch, and its last records by
ShareAcknowledge: a block ends when all are delivered and no ShareAcknowledge is under way. Other
members' fetches are then waiting at the broker for records that do not come, FETCH_WAIT_MS at most,
with the acknowledgements that they brought: those waits are over before the next block, and in no
figure. With one member some more records follow, each acknowledged by a request of its own, which
is timed. Both brokers live through it, all but one held still; blocks by turns.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.batch import of_records
from perf.brokers import Broker
from perf.cells import CellError
from perf.client import Client, ClientError
from perf.consumer_groups.members import await_coordinator
from perf.histogram import Histogram
from perf.judge import Bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns
from perf.requests import PRODUCE, Topic
from perf.share_groups.members import Member, Span, join
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.driver import SETTLE_S, STALL_S, connected
from perf.wire import Writer, read_exactly

# Records a second, at least so many times Apache Kafka's.
SPEED_BARS: Final = {1: 1.5, 10: 2.0, 100: 2.0}
ACKNOWLEDGE_BAR: Final = 0.5
SETTINGS: Final = (
    "group.share.delivery.count.limit=10",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
)
RECORD_BYTES: Final = 100
BATCH_RECORDS: Final = 100
FETCH_RECORDS: Final = 500
FETCH_WAIT_MS: Final = 500
SINGLE: Final = 500  # acknowledgements of one record each
PRODUCE_VERSION: Final = 9


@dataclass(frozen=True)
class DeliveryPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    records: int = 50_000
    members: tuple[int, ...] = (1, 10, 100)

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Delivered:
    """One block."""

    broker: str
    round: int
    members: int
    records: int
    wall_s: float
    cpu_us_each: float
    p50_us: float  # of single acknowledgements; 0: none were made
    p99_us: float
    quiet: bool

    @property
    def us_each(self) -> float:
        return self.wall_s * 1e6 / self.records

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Line:
    """A member and its connection, with one request in flight."""

    def __init__(self, member: Member, connection: socket.socket) -> None:
        self.member, self.connection = member, connection
        self.spans: list[Span] = []
        self.is_last = False

    def fetch(self) -> None:
        self.connection.sendall(self.member.fetch(self.spans, FETCH_WAIT_MS, FETCH_RECORDS))

    def end(self) -> bool:
        """Acknowledge what is left; whether something is."""
        self.is_last = bool(self.spans)
        if self.is_last:
            self.connection.sendall(self.member.acknowledge(self.spans))
        return self.is_last

    def received(self) -> int:
        """How many records the member has now."""
        if self.is_last:
            self.member.acknowledged(self.answer())
            self.spans, self.is_last = [], False
            return 0
        taken = self.member.fetched(self.answer())
        self.spans = taken.spans
        return taken.records

    def answer(self) -> bytes:
        return read_exactly(
            self.connection, int.from_bytes(read_exactly(self.connection, 4), "big")
        )


class Work:
    """A topic with its group of one broker. Close it."""

    def __init__(self, broker: Broker, count: int) -> None:
        self._broker, self._count = broker, count
        self._stack = ExitStack()
        self._batch = of_records(RECORD_BYTES, BATCH_RECORDS * (RECORD_BYTES + 8))
        name = f"perf-share-{os.getpid()}-{count}"
        self._client = self._stack.enter_context(broker.client())
        self._topic = self._client.create_topic(name, 1)
        await_coordinator(self._client, [name])
        join(self._client, name, "joins", self._topic)
        self._lines = [self._line(name, number) for number in range(count)]
        self._begin()

    def _line(self, group: str, number: int) -> Line:
        connection = connected(self._broker.host, self._broker.port)
        self._stack.enter_context(connection)
        return Line(Member(group, f"m{number:06}", self._topic), connection)

    def _begin(self) -> None:
        """Until the end of the log is known as the start: a record is delivered."""
        for line in self._lines[1:]:
            line.connection.sendall(line.member.fetch([], 0, FETCH_RECORDS))
            line.received()
        give_up, had = time.monotonic() + STALL_S, 0
        while not had:
            _write(self._client, self._topic, self._batch.data, self._batch.records)
            self._lines[0].fetch()
            had = self._lines[0].received()
            if time.monotonic() > give_up:
                raise CellError("no record is delivered")
        while had:
            self._lines[0].fetch()
            had = self._lines[0].received()

    def close(self) -> None:
        self._stack.close()

    def block(self, number: int, records: int) -> Delivered:
        written = self._write(records)
        watch = Watch([os.getpid(), *self._broker.own_pids])
        before, began = cpu_ns(self._broker.measured_pid), time.perf_counter()
        waiting = drain(self._lines, written)
        wall_s = time.perf_counter() - began
        cpu_us = (cpu_ns(self._broker.measured_pid) - before) / 1e3
        quiet = watch.guard().quiet
        end_waits(waiting)
        times = Histogram.of(self._single()) if self._count == 1 else None
        return Delivered(
            self._broker.name, number, self._count, written, wall_s, cpu_us / written,
            times.percentile(50) / 1e3 if times else 0.0,
            times.percentile(99) / 1e3 if times else 0.0, quiet,
        )  # fmt: skip

    def _write(self, records: int) -> int:
        batches = -(-records // self._batch.records)
        for _ in range(batches):
            _write(self._client, self._topic, self._batch.data, self._batch.records)
        return batches * self._batch.records

    def _single(self) -> list[int]:
        self._write(SINGLE)
        (line,) = self._lines
        line.fetch()
        line.received()
        offsets = [at for first, last in line.spans for at in range(first, last + 1)]
        line.spans, times_ns = [], list[int]()
        for offset in offsets:
            began_ns = time.perf_counter_ns()
            line.connection.sendall(line.member.acknowledge([(offset, offset)]))
            line.member.acknowledged(line.answer())
            times_ns.append(time.perf_counter_ns() - began_ns)
        return times_ns


def drain(lines: Sequence[Line], records: int) -> list[Line]:
    """Until so many records are delivered and no acknowledgement of its own is under way.

    The lines whose fetch still waits at the broker. CellError: no response in STALL_S, or more
    records than were written.
    """
    poller, left, ending = select.epoll(), records, 0
    by_fd = {line.connection.fileno(): line for line in lines}
    try:
        for fd, line in by_fd.items():
            poller.register(fd, select.EPOLLIN)
            line.fetch()
        waiting = dict(by_fd)
        while left > 0 or ending:
            ready = poller.poll(STALL_S)
            if not ready:
                raise CellError(f"no response in {STALL_S:.0f} s")
            for fd, _ in ready:
                line = by_fd[fd]
                ending -= line.is_last
                left -= line.received()
                if left > 0:
                    line.fetch()
                elif waiting.pop(fd, None) is not None:
                    ending += line.end()
    finally:
        poller.close()
    if left:
        raise CellError(f"{-left} records were delivered twice")
    return list(waiting.values())


def end_waits(lines: Iterable[Line]) -> None:
    """Until their fetches are answered. CellError: with records."""
    for line in lines:
        if more := line.received():
            raise CellError(f"{more} records were delivered twice")


def _write(client: Client, topic: Topic, data: bytes, records: int) -> None:
    w = Writer(flexible=True).string(None).put("hi", -1, 30_000).count(1).string(topic.name)
    w.count(1).put("i", 0).bytes(data).tags().tags().tags()
    r = client.ask(PRODUCE, PRODUCE_VERSION, bytes(w.data))
    r.count()
    r.string()
    r.count()
    r.get("i")
    if code := r.get("h"):
        raise ClientError("writing records", code)


def measure(plan: DeliveryPlan, root: Path, say: Callable[[str], None]) -> list[Delivered]:
    """A round is one block by each broker with each number of members; a first one warms."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        works: dict[tuple[str, int], Work] = {}
        for kind in plan.brokers:
            broker = brokers[kind] = new_broker(kind, root / kind, SETTINGS)
            stack.callback(broker.discard)
            broker.start()
            for count in plan.members:
                work = works[kind, count] = Work(broker, count)
                stack.callback(work.close)
                warm = work.block(-1, plan.records)
                say(f"{kind} warm, {count} members: {warm.records / warm.wall_s:,.0f} records/s")
            broker.hold()
        for number in range(plan.rounds):
            for kind in order(plan.brokers, number):
                brokers[kind].resume()
                time.sleep(SETTLE_S)
                for count in plan.members:
                    found.append(works[kind, count].block(number, plan.records))
                    one = found[-1]
                    say(
                        f"round {number + 1} {kind:8} {count:3} members"
                        f" {one.records / one.wall_s:,.0f} records/s"
                    )
                brokers[kind].hold()
    return found


def bars(found: Sequence[Delivered]) -> list[Bar]:
    made = []
    for count in dict.fromkeys(one.members for one in found):
        some = [one for one in found if one.members == count]
        bar = 1 / SPEED_BARS.get(count, 1.0)
        made.append(
            kafka_bar(f"time of a record, {count} members", bar, some, lambda one: one.us_each)
        )
        if any(one.p50_us for one in some):
            for name, figure in (("p50", lambda one: one.p50_us), ("p99", lambda one: one.p99_us)):
                made.append(
                    kafka_bar(f"{name} of an acknowledgement", ACKNOWLEDGE_BAR, some, figure)
                )
    return made


def report(found: Sequence[Delivered], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind, count in dict.fromkeys((one.broker, one.members) for one in found):
        some = [one for one in found if (one.broker, one.members) == (kind, count)]
        columns = (
            [one.records / one.wall_s for one in some],
            [one.cpu_us_each for one in some],
            [one.p50_us for one in some],
            [one.p99_us for one in some],
        )
        rows.append([kind, str(count), *(interval(estimate(each)) for each in columns)])
    head = ("broker", "members", "records/s", "CPU us", "acknowledge p50 us", "p99 us")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"time of a record, {one.members} members of a share group", one.us_each, "us"),
        (f"CPU of a record, {one.members} members of a share group", one.cpu_us_each, "us"),
    ))  # fmt: skip
