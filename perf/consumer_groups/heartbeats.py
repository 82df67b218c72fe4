"""CPU of a heartbeat that says nothing new, of 10,000 members in 100 groups.

Each group has as many members as its topic has partitions, so each member has one. The members keep
to the protocol until nothing changes; then their heartbeats are sent in turn over a few
connections, each with one in flight, and every answer is compared with that of the member's last
one. Their sessions outlast the run. Both brokers live through it, all but one held still; blocks by
turns.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from perf.brokers import Broker
from perf.cells import CellError
from perf.client import ClientError
from perf.consumer_groups.members import Member, await_coordinator, settle
from perf.histogram import Histogram
from perf.judge import Bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement, kafka_bar
from perf.process import Watch, cpu_ns, memory
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.driver import SETTLE_S, connected, in_turn
from perf.transactions.warming import until_flat

CPU_BAR: Final = 0.3
SESSION_MS: Final = 3_600_000
SETTLE_WAIT_S: Final = 120.0
SIZE_BYTES: Final = 4
# Longer than a group is said to change after its last change.
AFTER_CHANGES_S: Final = 3.5
SETTINGS: Final = (
    f"group.consumer.max.session.timeout.ms={SESSION_MS}",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
    "group.consumer.assignment.interval.ms=0",  # it costs the set-up a second for each epoch
)


@dataclass(frozen=True)
class HeartbeatPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 7
    seconds: float = 3.0
    groups: int = 100
    members: int = 100  # of each group
    connections: int = 64

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Beaten:
    """One block."""

    broker: str
    round: int
    members: int
    heartbeats: int
    wall_s: float
    p50_us: float
    p99_us: float
    cpu_us_each: float
    own_us_each: float
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Expected(NamedTuple):
    """A heartbeat, and what its answer must be."""

    member: Member
    frame: bytes
    answer: bytes


class Line:
    """A connection, with the heartbeats that it sends one after the other."""

    def __init__(self, connection: socket.socket, work: Sequence[Expected]) -> None:
        self.connection, self._work = connection, work
        self._next = 0
        self._began_ns = 0
        self._received = b""

    def begin(self) -> None:
        self._began_ns = time.perf_counter_ns()
        self.connection.sendall(self._work[self._next].frame)

    def on_bytes(self) -> int:
        """How long the heartbeat took that is answered now; 0 where none is."""
        more = self.connection.recv(1 << 16)
        if not more:
            raise CellError("the broker closed a member's connection")
        self._received += more
        expected = self._work[self._next].answer
        if len(self._received) < len(expected):
            if len(self._received) >= SIZE_BYTES and self._received[:4] != expected[:4]:
                raise CellError(f"a heartbeat is answered otherwise: {self._received!r}")
            return 0
        if self._received != expected:
            raise CellError(f"a heartbeat is answered otherwise: {self._received!r}")
        self._received = b""
        self._next = (self._next + 1) % len(self._work)
        return time.perf_counter_ns() - self._began_ns


class Work:
    """The members of one broker, with their connections. Close it."""

    def __init__(self, broker: Broker, plan: HeartbeatPlan, say: Callable[[str], None]) -> None:
        self._broker, self._members = broker, plan.groups * plan.members
        self._stack = ExitStack()
        stem = f"perf-beats-{os.getpid()}"
        groups = [f"{stem}-{number}" for number in range(plan.groups)]
        before, began_s = memory(broker.pid).resident, time.monotonic()
        expected = []
        with broker.client() as client:
            client.create_topic(stem, plan.members)
            await_coordinator(client, groups)
            for group in groups:
                members = [Member(group, f"{group}-{n:06}", stem) for n in range(plan.members)]
                settle(client, members, SETTLE_WAIT_S)
                expected += members
        grown = memory(broker.pid).resident - before
        took_s = time.monotonic() - began_s
        say(
            f"{broker.name}: {self._members:,} members in {took_s:.1f} s,"
            f" {grown / self._members:,.0f} B each"
        )
        time.sleep(AFTER_CHANGES_S)
        lines = min(plan.connections, self._members)
        self._lines = [self._line(expected[number::lines]) for number in range(lines)]

    def _line(self, members: Sequence[Member]) -> Line:
        connection = connected(self._broker.host, self._broker.port)
        self._stack.enter_context(connection)
        work = []
        for member in members:
            frame = member.heartbeat()
            connection.sendall(frame)
            answer = _answer(connection)
            member.check(answer[SIZE_BYTES:])
            work.append(Expected(member, frame, answer))
        return Line(connection, work)

    def close(self) -> None:
        self._stack.close()

    def warm(self) -> str:
        def block() -> float:
            began = time.perf_counter()
            times = in_turn(self._lines, count=self._members)
            return (time.perf_counter() - began) / len(times)

        warmed = until_flat(block)
        return f"{warmed.blocks * self._members:,} heartbeats, {warmed.word}"

    def block(self, number: int, seconds: float) -> Beaten:
        pid = self._broker.measured_pid
        watch = Watch([os.getpid(), *self._broker.own_pids])
        before, own = cpu_ns(pid), cpu_ns(os.getpid())
        began = time.perf_counter()
        times_ns = in_turn(self._lines, seconds=seconds)
        wall_s = time.perf_counter() - began
        cpu_us, own_us = (cpu_ns(pid) - before) / 1e3, (cpu_ns(os.getpid()) - own) / 1e3
        count, times = len(times_ns), Histogram.of(times_ns)
        return Beaten(
            self._broker.name, number, self._members, count, wall_s, times.percentile(50) / 1e3,
            times.percentile(99) / 1e3, cpu_us / count, own_us / count, watch.guard().quiet,
        )  # fmt: skip


def _answer(connection: socket.socket) -> bytes:
    """With its size."""
    received = b""
    while len(received) < SIZE_BYTES or len(received) < SIZE_BYTES + _size(received):
        more = connection.recv(1 << 16)
        if not more:
            raise ClientError("a heartbeat: the connection is closed", -1)
        received += more
    return received


def _size(received: bytes) -> int:
    size: int = struct.unpack_from(">i", received)[0]
    return size


def measure(plan: HeartbeatPlan, root: Path, say: Callable[[str], None]) -> list[Beaten]:
    """A round is one block by each broker."""
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        works: dict[str, Work] = {}
        for kind in plan.brokers:
            broker = brokers[kind] = new_broker(kind, root / kind, SETTINGS)
            stack.callback(broker.discard)
            broker.start()
            work = works[kind] = Work(broker, plan, say)
            stack.callback(work.close)
            say(f"{kind} warm: {work.warm()}")
            broker.hold()
        for number in range(plan.rounds):
            for kind in order(plan.brokers, number):
                brokers[kind].resume()
                time.sleep(SETTLE_S)
                found.append(works[kind].block(number, plan.seconds))
                brokers[kind].hold()
                one = found[-1]
                say(
                    f"round {number + 1} {kind:8} {one.heartbeats / one.wall_s:,.0f} heartbeats/s,"
                    f" p99 {one.p99_us:,.0f} us, CPU {one.cpu_us_each:,.2f} us"
                )
    return found


def bars(found: Sequence[Beaten], members: int) -> list[Bar]:
    title = f"CPU of a heartbeat, {members:,} members"
    return [kafka_bar(title, CPU_BAR, found, lambda one: one.cpu_us_each)]


def report(found: Sequence[Beaten], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == kind]
        columns = (
            [one.heartbeats / one.wall_s for one in some],
            [one.p50_us for one in some],
            [one.p99_us for one in some],
            [one.cpu_us_each for one in some],
            [one.own_us_each for one in some],
        )
        rows.append([kind, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "heartbeats/s", "p50 us", "p99 us", "CPU us", "own us")
    members = plan["groups"] * plan["members"]
    return Measurement.of(plan, head, rows, bars(found, members), found, lambda one: (
        (f"CPU of a heartbeat, {one.members} members", one.cpu_us_each, "us"),
        (f"p99 of a heartbeat, {one.members} members", one.p99_us, "us"),
    ))  # fmt: skip
