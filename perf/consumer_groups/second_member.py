"""From the join of a group's second member until its first record, librdkafka's consumers.

A producer writes to every partition all the time. The first member joins a new group and reads; a
moment after its first record, and no later than JOINS_WITHIN_S after its join, a second one joins.
The second one is timed: from its subscription, when it is connected already, until `poll` gives it
a record. Both leave; the next round has another group. Apache Kafka computes an assignment once a
second and gives members an interval of five; a member that joins between waits for both.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers import Broker
from perf.cells import CellError
from perf.judge import Bar, value_bar
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, THEIRS, Measurement
from perf.process import Watch
from perf.stats import estimate
from perf.studies.latency import need_client
from perf.tables import interval
from perf.transactions.driver import SETTLE_S

FIRST_RECORD_BAR_MS: Final = 300.0
JOINS_WITHIN_S: Final = 2.0
AFTER_FIRST_S: Final = 0.2
RECORD_WAIT_S: Final = 30.0
POLL_S: Final = 0.01
PAUSE_S: Final = 0.005  # between two records of a partition
PARTITIONS: Final = 4


@dataclass(frozen=True)
class SecondPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (THEIRS, OURS)
    rounds: int = 11

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Joined:
    """One round of one broker."""

    broker: str
    round: int
    first_ms: float  # of the first member, alone in its group
    after_ms: float  # the second joined so long after the first
    second_ms: float
    quiet: bool

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Records:
    """A producer that writes to each partition again and again, on a thread of its own."""

    def __init__(self, address: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="records", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE_S):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x" * 100, partition=partition)
            self._producer.poll(0)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(RECORD_WAIT_S)


class Member:
    """A consumer whose polls are made by hand. Close it."""

    def __init__(self, address: str, group: str) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": address, "group.id": group, "group.protocol": "consumer",
                "auto.offset.reset": "latest", "enable.auto.commit": False, "log_level": 0,
            }
        )  # fmt: skip
        self.joined_s = 0.0
        self.record_s = 0.0
        # So that no connection and no metadata is waited for in what is timed.
        self._consumer.list_topics(timeout=RECORD_WAIT_S)

    def join(self, topic: str) -> None:
        self.joined_s = time.perf_counter()
        self._consumer.subscribe([topic])

    def poll(self) -> bool:
        """Whether it has had a record."""
        message = self._consumer.poll(POLL_S)
        if message is not None and not message.error() and not self.record_s:
            self.record_s = time.perf_counter()
        return bool(self.record_s)

    @property
    def took_ms(self) -> float:
        return (self.record_s - self.joined_s) * 1e3

    def close(self) -> None:
        self._consumer.close()


def _round(broker: Broker, topic: str, number: int) -> Joined:
    watch = Watch([os.getpid(), *broker.own_pids])
    with ExitStack() as stack:
        records = Records(broker.address, topic)
        stack.callback(records.close)
        group = f"perf-second-{os.getpid()}-{number}"
        one, two = (Member(broker.address, group) for _ in range(2))
        for member in (one, two):
            stack.callback(member.close)
        one.join(topic)
        _until([one], lambda: one.poll(), "the first member")
        until_s = time.perf_counter() + AFTER_FIRST_S
        while time.perf_counter() < until_s:
            one.poll()
        two.join(topic)
        after_ms = (two.joined_s - one.joined_s) * 1e3
        _until([one, two], lambda: two.poll(), "the second member")
        if after_ms > JOINS_WITHIN_S * 1e3:
            raise CellError(f"the second member joined {after_ms:,.0f} ms after the first")
        return Joined(broker.name, number, one.took_ms, after_ms, two.took_ms, watch.guard().quiet)


def _until(members: Sequence[Member], done: Callable[[], bool], who: str) -> None:
    give_up = time.perf_counter() + RECORD_WAIT_S
    while not done():
        for member in members:
            member.poll()
        if time.perf_counter() > give_up:
            raise CellError(f"{who} has no record after {RECORD_WAIT_S:.0f} s")


def measure(plan: SecondPlan, root: Path, say: Callable[[str], None]) -> list[Joined]:
    """A round is a new group with two members, by each broker; a first one warms."""
    need_client()
    found = []
    with ExitStack() as stack:
        brokers: dict[str, Broker] = {}
        topic = f"perf-second-{os.getpid()}"
        for kind in plan.brokers:
            broker = brokers[kind] = new_broker(kind, root / kind)
            stack.callback(broker.discard)
            broker.start()
            with broker.client() as client:
                client.create_topic(topic, PARTITIONS)
            warm = _round(broker, topic, -1)
            say(f"{kind} warm: {warm.first_ms:,.0f} and {warm.second_ms:,.0f} ms")
            broker.hold()
        for number in range(plan.rounds):
            for kind in order(plan.brokers, number):
                brokers[kind].resume()
                time.sleep(SETTLE_S)
                found.append(_round(brokers[kind], topic, number))
                brokers[kind].hold()
                one = found[-1]
                say(
                    f"round {number + 1} {kind:8} first member {one.first_ms:,.0f} ms, second one"
                    f" {one.second_ms:,.0f} ms"
                )
    return found


def bars(found: Sequence[Joined]) -> list[Bar]:
    ours = [(one.second_ms, one.quiet) for one in found if one.broker == OURS]
    return [value_bar("a second member's first record", FIRST_RECORD_BAR_MS, "ms", ours)]


def report(found: Sequence[Joined], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == kind]
        columns = (
            [one.first_ms for one in some],
            [one.after_ms for one in some],
            [one.second_ms for one in some],
        )
        rows.append([kind, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "first ms", "joins after ms", "second ms")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        ("first record of a group's first member", one.first_ms, "ms"),
        ("first record of its second member", one.second_ms, "ms"),
    ))  # fmt: skip
