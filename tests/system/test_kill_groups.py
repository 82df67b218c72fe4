"""kill -9 while groups work: no answered commit is lost, members come back by themselves.

The times of the kills are drawn; `KBROKER_SEED=N` draws the same again, the seed is in the name of
a failure. Commits that were answered before the kill are what is asked for after the restart; those
that came later may only be higher. KBROKER_TEST_REFERENCE=kafka runs the same against Apache Kafka.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.process import ServerProcess
from tests.support import servers

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "orders"
PARTITIONS = 3
GROUPS = 6
ROUNDS = 6
GROUP = "members"
DEADLINE_S = 90.0
SEED = int(os.environ.get("KBROKER_SEED", random.randrange(1 << 30)))
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}

T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ExitStack() as stack:
        server = servers.make()
        stack.callback(server.close)
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap, **QUIET})
        for done in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            done.result()
        yield server
        servers.assert_nothing_unexpected(server)


def eventually(condition: Callable[[], T], what: str) -> T:
    """The condition's value once it is true; generous, since a machine may be busy."""
    until = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < until, f"{what}; KBROKER_SEED={SEED}"
        time.sleep(0.005)
    return value


class Committer(threading.Thread):
    """A group without members that commits one offset after the other, by hand."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        super().__init__(name=group_id, daemon=True)
        self.group_id = group_id
        self.answered = -1
        self.asked = -1
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group_id, "enable.auto.commit": False,
             **QUIET}
        )  # fmt: skip

    def run(self) -> None:
        while not self._stopping.is_set():
            self.asked += 1
            offsets = [TopicPartition(TOPIC, p, self.asked) for p in range(PARTITIONS)]
            try:
                results = self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException:
                continue  # unknown what became of it
            if all(each.error is None for each in results or ()):
                self.answered = self.asked

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        self._consumer.close()


def committed(bootstrap: str, group_id: str) -> list[int]:
    """By partition, from a client of its own."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, **QUIET})
    wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]

    def ask() -> list[int] | None:
        with contextlib.suppress(KafkaException):
            return [each.offset for each in consumer.committed(wanted, timeout=10)]
        return None

    try:
        found = eventually(ask, f"the offsets of {group_id}")
        assert found is not None
        return found
    finally:
        consumer.close()


def kill_and_restart(server: ServerProcess) -> None:
    server.kill9()
    server.start()


def test_no_answered_commit_is_lost(server: ServerProcess) -> None:
    draw = random.Random(SEED)
    committers = [Committer(server.bootstrap, f"group-{number}") for number in range(GROUPS)]
    for each in committers:
        each.start()
    try:
        eventually(lambda: all(each.answered >= 0 for each in committers), "first commits")
        for _ in range(ROUNDS):
            before = [each.answered for each in committers]
            moving = committers[draw.randrange(GROUPS)]
            until = moving.answered + draw.randrange(1, 60)
            eventually(lambda m=moving, u=until: m.answered >= u, "commits go on")
            time.sleep(draw.random() * 0.02)  # somewhere inside a commit
            answered = [each.answered for each in committers]
            assert sum(answered) > sum(before)
            kill_and_restart(server)
            for each, least in zip(committers, answered, strict=True):
                found = committed(server.bootstrap, each.group_id)
                assert min(found) >= least, (SEED, each.group_id)
                assert max(found) <= each.asked, (SEED, each.group_id)
    finally:
        for each in committers:
            each.stop()
    for each in committers:
        found = committed(server.bootstrap, each.group_id)
        # A commit whose answer the last kill took may be there.
        assert each.answered <= found[0] <= each.asked, (SEED, each.group_id)
        assert found == found[:1] * PARTITIONS, (SEED, each.group_id)


# Its partitions are another's, or its own again: the member reads on from the last commit.
NOT_ITS_OWN_NOW = (
    KafkaError._ASSIGNMENT_LOST,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
)


class Member(threading.Thread):
    """A consumer of the group: reads, then commits what it has read."""

    def __init__(self, bootstrap: str, seen: set[bytes], lock: threading.Lock) -> None:
        super().__init__(name="member", daemon=True)
        self._seen, self._lock = seen, lock
        self._stopping = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200, **QUIET,
        })  # fmt: skip
        self._consumer.subscribe([TOPIC])

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            value = message.value()
            assert value is not None
            with self._lock:
                self._seen.add(value)
            while not (self._commits(message) or self._stopping.is_set()):
                pass
        self._consumer.close()

    def _commits(self, message: Message) -> bool:
        """Whether it is answered. It may be the last record: it is not committed after this."""
        try:
            self._consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            return error.args[0].code() in NOT_ITS_OWN_NOW
        return True

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


def test_members_come_back_by_themselves(server: ServerProcess) -> None:
    draw = random.Random(SEED)
    seen: set[bytes] = set()
    sent: set[bytes] = set()
    lock = threading.Lock()
    members = [Member(server.bootstrap, seen, lock) for _ in range(2)]
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", **QUIET})

    def produce(count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(sent)
            producer.produce(TOPIC, value, partition=len(sent) % PARTITIONS)
            sent.add(value)
        assert producer.flush(60) == 0

    for member in members:
        member.start()
    try:
        produce(30)
        eventually(lambda: seen >= sent, "everything is read")
        for round_ in range(3):
            produce(draw.randrange(1, 60))
            time.sleep(draw.random() * 0.05)
            kill_and_restart(server)
            produce(9)
            eventually(lambda: seen >= sent, f"round {round_} is read")
        ends = [len([v for v in sent if int(v) % PARTITIONS == p]) for p in range(PARTITIONS)]
        eventually(lambda: committed(server.bootstrap, GROUP) == ends, "all is committed")
    finally:
        for member in members:
            member.stop()
    assert committed(server.bootstrap, GROUP) == ends
