"""Consumers with group.protocol=consumer on three brokers: their coordinator is killed, one leaves.

All records come once: nothing is redelivered, since each is committed before the next, and no
partition changes its owner when the coordinator does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kbroker.testing import Cluster

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "orders"
PARTITIONS = 4
RECORDS = 20
OFFSETS = "__consumer_offsets"
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
DEADLINE_S = 60.0


def eventually(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in {DEADLINE_S} s: {what}"
        time.sleep(0.05)  # beside threads of clients


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": "1"}
    with Cluster(3, settings, topics={TOPIC: PARTITIONS}) as made:
        yield made


class Member:
    """A consumer on a thread of its own, which commits each record."""

    def __init__(self, bootstrap: str, seen: Counter[bytes]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": "g", "group.protocol": "consumer",
                "auto.offset.reset": "earliest", "enable.auto.commit": False, **QUIET,
            }
        )  # fmt: skip
        self.owned: frozenset[int] = frozenset()
        self._seen = seen
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self._stopped.is_set():
            message = self._consumer.poll(0.1)
            self.owned = frozenset(each.partition for each in self._consumer.assignment())
            if message is None or message.error():
                continue
            self._seen[message.value() or b""] += 1
            while not self._stopped.is_set():
                try:
                    self._consumer.commit(message=message, asynchronous=False)
                    break
                except KafkaException:
                    continue  # its coordinator is another one by now
        self._consumer.close()

    def leave(self) -> None:
        self._stopped.set()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


def test_the_coordinator_is_killed_and_a_member_leaves(cluster: Cluster) -> None:
    seen: Counter[bytes] = Counter()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})

    def all_come(tag: str) -> None:
        names = [f"{tag}-{number}".encode() for number in range(RECORDS)]
        for number, name in enumerate(names):
            producer.produce(TOPIC, name, partition=number % PARTITIONS)
        producer.flush(DEADLINE_S)
        eventually(lambda: seen.keys() >= set(names), f"the records {tag}")

    one = Member(cluster.bootstrap, seen)
    all_come("first")
    two = Member(cluster.bootstrap, seen)
    eventually(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, "both have a half")
    shares = one.owned, two.owned
    all_come("of two")
    cluster.leader(OFFSETS, 0).kill9()
    all_come("of another coordinator")
    assert (one.owned, two.owned) == shares
    two.leave()
    eventually(lambda: len(one.owned) == PARTITIONS, "the other one has all")
    all_come("of one")
    one.leave()
    assert set(seen.values()) == {1}
