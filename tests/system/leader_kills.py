"""Three brokers under load, killed -9 by turns: what acks=all acknowledged is there once, in order.

    python -m tests.system.leader_kills --kills 60 --all-at-once 5 --seed 1

An idempotent producer (librdkafka, acks=all, its defaults else) writes numbers to three partitions
of three replicas, two of which must be in sync, all the time. A turn kills the leader of a drawn
partition at a drawn moment, waits until others lead and something is acknowledged, starts it again
and waits until all are in sync; some turns kill all three at once. Then everything is read:
each acknowledged number once, each partition's in their order, and nothing that was never sent.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.plain import PlainBroker
from lab.ports import free_port
from tests.support.read_topic import EOF_AT_ONCE
from tests.support.zookeeper import ZooKeeper

NODES: Final = (1, 2, 3)
TOPIC: Final = "numbers"
PARTITIONS: Final = 3
SESSION_TIMEOUT_MS: Final = 3_000
RATE: Final = 1_000  # records a second
TIMEOUT_S: Final = 90.0
METADATA_TIMEOUT_S: Final = 2.0
POLL_S: Final = 0.02
UNDER_LOAD_S: Final = (0.1, 1.5)


class Writer:
    """Numbers to a partition each, from one thread; `acknowledged` by partition."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "delivery.timeout.ms": 600_000,
                "linger.ms": 5,
            }
        )
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self.sent = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def _run(self) -> None:
        while not self._ends.is_set():
            for _ in range(RATE // 50):
                self._write(self.sent)
                self.sent += 1
            self._producer.poll(1 / 50)

    def _write(self, number: int) -> None:
        def delivered(error: object, _: object) -> None:
            if error is None:
                self.acknowledged[number % PARTITIONS].append(number)
            else:
                self.failed.append(f"{number}: {error}")

        while True:
            try:
                self._producer.produce(
                    TOPIC, str(number), partition=number % PARTITIONS, on_delivery=delivered
                )
                return
            except BufferError:  # a leader is away; what is there goes first
                self._producer.poll(0.1)

    def finish(self) -> int:
        """What was never answered."""
        self._ends.set()
        self._thread.join()
        return int(self._producer.flush(TIMEOUT_S))


class Cluster:
    def __init__(self, connect: str) -> None:
        self.brokers = {
            node: PlainBroker(
                {
                    "zookeeper.connect": connect,
                    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                    "node.id": str(node),
                    "min.insync.replicas": "2",
                },
                port=free_port(),
            )
            for node in NODES
        }
        for broker in self.brokers.values():
            broker.start()
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self) -> None:
        self.wait("they know each other", lambda: len(self._metadata().brokers) == len(NODES))
        replicas = [[*NODES[at:], *NODES[:at]] for at in range(PARTITIONS)]
        topic = NewTopic(TOPIC, PARTITIONS, replica_assignment=replicas)
        self._admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        self.wait("all are in sync", self.in_sync)

    def _metadata(self) -> confluent_kafka.admin.ClusterMetadata:
        # librdkafka asks a broker that was just killed again and again: another one then.
        return self._admin.list_topics(timeout=METADATA_TIMEOUT_S)

    def partitions(self) -> dict[int, tuple[int, set[int]]]:
        """Leaders and who is in sync, as some broker tells it; one may have just begun."""
        try:
            topic = self._metadata().topics.get(TOPIC)
        except confluent_kafka.KafkaException:  # the broker that was asked was killed
            return {}
        found = topic.partitions if topic is not None else {}
        return {index: (each.leader, set(each.isrs)) for index, each in found.items()}

    def in_sync(self) -> bool:
        found = self.partitions()
        return len(found) == PARTITIONS and all(isr == {*NODES} for _, isr in found.values())

    def are_led_without(self, node: int) -> bool:
        found = self.partitions()
        return len(found) == PARTITIONS and all(
            leader not in (-1, node) for leader, _ in found.values()
        )

    def wait(self, what: str, holds: Callable[[], bool]) -> float:
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > TIMEOUT_S:
                raise TimeoutError(f"not in {TIMEOUT_S:.0f} s: {what}; {self.partitions()}")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def read(self) -> list[list[int]]:
        """All that there is of each partition."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": "reader",
                "enable.auto.commit": False, **EOF_AT_ONCE,
            }
        )  # fmt: skip
        found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        ends: set[int] = set()
        consumer.assign(
            [confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
        )
        try:
            while len(ends) < PARTITIONS:
                message = consumer.poll(TIMEOUT_S)
                if message is None:
                    raise TimeoutError(f"nothing to read in {TIMEOUT_S:.0f} s")
                error = message.error()
                if error is None:
                    found[message.partition() or 0].append(int(message.value() or b"-1"))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends.add(message.partition() or 0)
        finally:
            consumer.close()
        return found

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()


class Found(NamedTuple):
    kills: int
    acknowledged: int
    failed: int
    faults: list[str]
    until_acknowledged_s: list[float]  # from the kill of a leader to the next of its partition


def differences(sent: int, acknowledged: list[list[int]], read: list[list[int]]) -> list[str]:
    faults = []
    for index, (offsets, there) in enumerate(zip(acknowledged, read, strict=True)):
        lost = {*offsets} - {*there}
        if lost:
            faults.append(f"partition {index}: lost {len(lost)}, the first {min(lost)}")
        if len({*there}) != len(there):
            faults.append(f"partition {index}: {len(there) - len({*there})} are there twice")
        if there != sorted(there):
            faults.append(f"partition {index}: not in order")
        if any(number % PARTITIONS != index or not 0 <= number < sent for number in there):
            faults.append(f"partition {index}: something that was never sent")
    return faults


def kill_by_turns(cluster: Cluster, kills: int, all_at_once: int, seed: int) -> Found:
    dice = random.Random(seed)
    turns = [*(["one"] * kills), *(["all"] * all_at_once)]
    dice.shuffle(turns)
    writer = Writer(cluster.bootstrap)
    waits: list[float] = []
    try:
        cluster.wait("something is acknowledged", lambda: writer.count > 0)
        for number, turn in enumerate(turns, 1):
            time.sleep(dice.uniform(*UNDER_LOAD_S))
            index = dice.randrange(PARTITIONS)
            cluster.wait("there is a leader", lambda: index in cluster.partitions())  # noqa: B023
            leader = cluster.partitions().get(index, (1, set()))[0]
            killed = NODES if turn == "all" else (leader,)
            before = [len(each) for each in writer.acknowledged]
            for node in killed:
                cluster.brokers[node].kill9()
            began = time.monotonic()
            if turn == "one":
                cluster.wait("others lead", lambda: cluster.are_led_without(leader))  # noqa: B023
            for node in killed if turn == "all" else ():
                cluster.brokers[node].start()
            cluster.wait(
                "it goes on",
                lambda: len(writer.acknowledged[index]) > before[index],  # noqa: B023
            )
            waits.append(time.monotonic() - began)
            for node in killed if turn == "one" else ():
                cluster.brokers[node].start()
            cluster.wait("all are in sync", cluster.in_sync)
            print(
                f"{number:>4} killed {turn:<4} leader {leader} of {index}  acknowledged "
                f"{writer.count:,}  went on after {waits[-1]:.2f} s",
                flush=True,
            )
    finally:
        unanswered = writer.finish()
    faults = differences(writer.sent, writer.acknowledged, cluster.read())
    if unanswered:
        faults.append(f"{unanswered} records have no answer")
    return Found(len(turns), writer.count, len(writer.failed), faults, waits)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--all-at-once", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ZooKeeper() as zookeeper:
        cluster = Cluster(zookeeper.connect + zookeeper.chroot())
        try:
            cluster.create()
            found = kill_by_turns(cluster, options.kills, options.all_at_once, options.seed)
        finally:
            cluster.close()
    print(
        f"{found.kills} kills, {found.acknowledged:,} acknowledged, {found.failed} refused; "
        f"went on after {statistics.median(found.until_acknowledged_s):.2f} s in the middle, "
        f"{max(found.until_acknowledged_s):.2f} s at most"
    )
    for fault in found.faults:
        print(fault)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
