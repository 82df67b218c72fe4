"""Consumers read from the replica of their rack (KIP-392), and from the leader when that has gone.

Which broker gave the bytes is what the brokers count; where the client believes to read is in its
own statistics.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from kbroker.config.keys_replication import RACK_AWARE_SELECTOR
from kbroker.testing import Cluster, ClusterBroker
from kbroker.testing.inspection import wait_until
from tests.clients.agents.tools import TIMEOUT_S as TOOL_S
from tests.clients.agents.tools import Tools

pytestmark = [pytest.mark.client, pytest.mark.timeout(240)]

RACKS: Final = {1: "a", 2: "b", 3: "c"}
TOPIC: Final = "orders"
TIMEOUT_S: Final = 30
RECORD_BYTES: Final = 100
_BYTES_OUT: Final = re.compile(
    rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{TOPIC}"}} (\S+)$', re.MULTILINE
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "min.insync.replicas": 1,
        # As in test_reassignment.py.
        "zookeeper.session.timeout.ms": 6_000,
        "replica.lag.time.max.ms": 10_000,
    }
    with Cluster(3, settings, topics={TOPIC: 1}, racks=list(RACKS.values())) as made:
        write(made, 100)
        yield made


@pytest.fixture
def whole(cluster: Cluster) -> Cluster:
    """Led by the first broker, so that the second and the third follow."""
    cluster.heal()
    cluster.move_leader(TOPIC, 0, cluster.brokers[1])
    cluster.wait_in_sync(TOPIC)
    return cluster


def write(cluster: Cluster, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failed: list[object] = []
    for _ in range(count):
        producer.produce(
            TOPIC,
            b"x" * RECORD_BYTES,
            partition=0,
            on_delivery=lambda e, _: e and failed.append(e),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def bytes_out(broker: ClusterBroker) -> int:
    """The bytes that this broker has given to consumers and, where it leads, to followers."""
    with urllib.request.urlopen(broker.admin + "/metrics?name=BytesOutPerSec", timeout=30) as found:
        text = found.read().decode()
    return sum(int(float(value)) for value in _BYTES_OUT.findall(text))


def written_bytes(cluster: Cluster) -> int:
    return sum(len(each.value or b"") for each in cluster.records(TOPIC))


class Reader:
    """A confluent-kafka consumer in a rack, from the beginning of the topic."""

    def __init__(self, cluster: Cluster, rack: str) -> None:
        self.read = 0
        self.reads_from = self.leader = -1  # as its client believes
        self.consumer = confluent_kafka.Consumer({
            "bootstrap.servers": cluster.bootstrap,
            "client.rack": rack,
            "group.id": f"readers in {rack}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "stats_cb": self._note,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 2_000,
        })  # fmt: skip
        self.consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])

    def _note(self, text: str) -> None:
        topics: dict[str, Any] = json.loads(text)["topics"]
        if TOPIC in topics:
            partition = topics[TOPIC]["partitions"].get("0", {})
            self.reads_from = partition.get("broker", -1)
            self.leader = partition.get("leader", -1)

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is not None and message.error() is None:
            assert message.offset() == self.read
            self.read += 1

    def read_to(self, count: int) -> None:
        def done() -> bool:
            self.poll()
            return self.read >= count

        wait_until(done, f"{count} records are read", TIMEOUT_S)

    def reads_at(self, broker: ClusterBroker) -> bool:
        self.poll()
        return self.reads_from == broker.broker_id


@contextmanager
def reading(cluster: Cluster, rack: str) -> Iterator[Reader]:
    reader = Reader(cluster, rack)
    try:
        yield reader
    finally:
        reader.consumer.close()


def test_the_bytes_come_from_the_replica_of_the_rack(whole: Cluster) -> None:
    _, near, other = whole.brokers.values()
    before, beside = bytes_out(near), bytes_out(other)
    with reading(whole, RACKS[near.broker_id]) as reader:
        written = len(whole.records(TOPIC))
        reader.read_to(written)
        wait_until(lambda: reader.reads_at(near), "the client reads there")
        assert reader.leader == 1
        given = bytes_out(near) - before
        assert given >= written_bytes(whole), "the leader gave some of it"
        for more in range(1, 21):  # at the end of the log: each is waited for there
            write(whole, 1)
            reader.read_to(written + more)
        assert bytes_out(near) - before >= given + 20 * RECORD_BYTES
    assert bytes_out(other) == beside, "no consumer of that rack reads there"


def test_a_rack_of_the_leader_alone_and_an_empty_one(whole: Cluster) -> None:
    _, one, two = whole.brokers.values()
    before = bytes_out(one), bytes_out(two)
    for rack in (RACKS[1], "elsewhere", ""):
        with reading(whole, rack) as reader:
            reader.read_to(len(whole.records(TOPIC)))
            wait_until(lambda reader=reader: reader.reads_at(whole.brokers[1]), "the leader")
    assert (bytes_out(one), bytes_out(two)) == before


def test_a_reader_goes_on_at_the_leader_when_its_replica_is_killed(whole: Cluster) -> None:
    leader, near, _ = whole.brokers.values()
    with reading(whole, RACKS[near.broker_id]) as reader:
        reader.read_to(len(whole.records(TOPIC)))
        wait_until(lambda: reader.reads_at(near), "the client reads at the follower")
        near.kill9()
        for _ in range(5):
            write(whole, 10)
            reader.read_to(reader.read + 10)
        wait_until(lambda: reader.reads_at(leader), "the client reads at the leader")
        near.start()
        whole.wait_in_sync(TOPIC)
        before = bytes_out(near)
        write(whole, 10)
        reader.read_to(reader.read + 10)
        wait_until(lambda: reader.reads_at(near), "it goes back", TIMEOUT_S)
        write(whole, 10)
        reader.read_to(reader.read + 10)
        assert bytes_out(near) - before >= 10 * RECORD_BYTES


def test_a_reader_bears_that_its_replica_begins_to_lead(whole: Cluster) -> None:
    leader, near, _ = whole.brokers.values()
    with reading(whole, RACKS[near.broker_id]) as reader:
        reader.read_to(len(whole.records(TOPIC)))
        wait_until(lambda: reader.reads_at(near), "the client reads at the follower")
        for to in (near, leader):
            whole.move_leader(TOPIC, 0, to)
            write(whole, 10)
            reader.read_to(reader.read + 10)
        leader.kill9()
        write(whole, 10)
        reader.read_to(reader.read + 10)


@pytest.mark.java
@pytest.mark.slow
def test_the_java_consumer(whole: Cluster, tmp_path: Path) -> None:
    """It reads there, and goes on at the leader when that broker is killed."""
    near = whole.brokers[3]
    before = bytes_out(near)
    written, wanted = len(whole.records(TOPIC)), written_bytes(whole)
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"client.rack={RACKS[near.broker_id]}\n")
    tools = Tools()
    try:
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(
                tools.attempt, "consumer.ConsoleConsumer", "--bootstrap-server", whole.bootstrap,
                "--topic", TOPIC, "--partition", "0", "--offset", "earliest",
                "--max-messages", str(written + 20), "--command-config", str(settings),
            )  # fmt: skip
            wait_until(lambda: bytes_out(near) - before >= wanted, "it reads there", TOOL_S)
            near.kill9()
            write(whole, 20)
            ran = run.result()
    finally:
        tools.close()
    assert ran.returncode == 0, ran.stderr.decode() + ran.stdout.decode()
    assert len(ran.stdout.split()) == written + 20
