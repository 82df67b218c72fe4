"""What leader epochs are for, on real brokers: two histories that end badly without them.

KIP-101's two stories and the case between them, with the rule and, to see that each story is one
that needs it, with a follower that does without (tests/support/without_leader_epochs.py). Broker 1
is the controller and has no replica; A and B have one each. And the walk of log end and high
watermark over two fetches, with the test in the follower's place.
"""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from kbroker.errors import ErrorCode
from kbroker.peer._replica_fetch import decode_fetch, encode_fetch
from kbroker.peer.replica_fetch import FETCH_VERSION, Asked, Fetched, FetchLimits
from kbroker.protocol.wire import Reader
from kbroker.testing.plain import PlainBroker
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.clients.agents.driver import eventually as until
from tests.support.read_topic import EOF_AT_ONCE
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.client, pytest.mark.java, pytest.mark.timeout(300)]

TIMEOUT_S: Final = 30
TOPIC: Final = "kept"
A: Final = 2
B: Final = 3


class WithoutEpochs(PlainBroker):
    def program(self) -> list[str]:
        return ["-m", "tests.support.without_leader_epochs"]


class Cluster:
    """Brokers by their ids; each keeps its port and its data over its lives."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.brokers: dict[int, PlainBroker] = {}
        self._retired: list[PlainBroker] = []

    def add(self, node_id: int, session_timeout_ms: int) -> PlainBroker:
        settings = {
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "node.id": str(node_id),
            # What a broker that is killed knew of the high watermark is what it had at its start.
            "replica.high.watermark.checkpoint.interval.ms": "86400000",
        }
        broker = self.brokers[node_id] = PlainBroker(settings, port=free_port()).start()
        client = AdminClient({"bootstrap.servers": self.brokers[1].bootstrap})
        until(lambda: node_id in client.list_topics(timeout=TIMEOUT_S).brokers, "it is known")
        return broker

    def start_without(self, node_id: int, without: str) -> None:
        """This broker lives on, and follows without what leader epochs are for."""
        last = self.brokers[node_id]
        repository = Path(__file__).parents[2]
        self.brokers[node_id] = WithoutEpochs(
            last.overrides, last.data_dir, last.port,
            env={"WITHOUT": without, "PYTHONPATH": str(repository)},
        )  # fmt: skip
        self.brokers[node_id].start()
        self._retired.append(last)

    def create(self, *replicas: int, min_in_sync: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers[1].bootstrap})
        topic = NewTopic(
            TOPIC,
            1,
            replica_assignment=[list(replicas)],
            config={"min.insync.replicas": str(min_in_sync)},
        )
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)

    def partition(self) -> tuple[int, list[int]]:
        """The leader and who is in sync, as some broker tells it; one may have just begun."""
        client = AdminClient({"bootstrap.servers": self.brokers[1].bootstrap})
        found = client.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions.get(0)
        return (found.leader, sorted(found.isrs)) if found is not None else (-1, [])

    def write(self, *values: str) -> None:
        """One batch each; acknowledged by all who are in sync."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.brokers[1].bootstrap, "acks": "all"}
        )
        for value in values:
            failed: list[object] = []
            producer.produce(TOPIC, value, on_delivery=lambda e, _, f=failed: e and f.append(e))
            assert producer.flush(TIMEOUT_S) == 0
            assert not failed

    def segment(self, node_id: int) -> Path:
        return self.brokers[node_id].data_dir / f"{TOPIC}-0" / f"{0:020}.log"

    def values(self) -> list[str | None]:
        """All records, as a consumer gets them."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.brokers[1].bootstrap, "group.id": "reader",
                "enable.auto.commit": False, **EOF_AT_ONCE,
            }
        )  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found: list[str | None] = []
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, found
                error = message.error()
                if error is None:
                    value = message.value()
                    found.append(value.decode() if value is not None else None)
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
        finally:
            consumer.close()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill9()  # some are paused
            broker.close()
        for broker in self._retired:
            broker.close()
        self._retired.clear()


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> Iterator[Cluster]:
    made = Cluster(zookeeper.connect + zookeeper.chroot())
    try:
        yield made
    finally:
        made.close()


def batches(segment: Path) -> list[int]:
    """Where each begins: a batch's length follows its offset, and counts the bytes after it."""
    data, at, found = segment.read_bytes(), 0, []
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def topic_id(broker: PlainBroker) -> UUID:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(TIMEOUT_S).topic_id
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    return UUID(bytes=struct.pack(">qq", high, low))


def high_watermark(leader: PlainBroker) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": leader.bootstrap, "group.id": "reader"}
    )
    try:
        where = confluent_kafka.TopicPartition(TOPIC, 0)
        return int(consumer.get_watermark_offsets(where, TIMEOUT_S)[1])
    finally:
        consumer.close()


@pytest.mark.parametrize("without", [None, "cut"])
def test_a_leader_that_dies_while_it_is_asked(cluster: Cluster, without: str | None) -> None:
    """A has m2 and does not know yet that it is committed. It starts again; B, its leader, dies
    before it answers anything; A leads. Who cuts at the high watermark first has lost m2, and B,
    when it is back, cuts it off as well."""
    for node_id, session_timeout_ms in ((1, 5_000), (A, 30_000), (B, 10_000)):
        cluster.add(node_id, session_timeout_ms)  # A's outlives its next start
    cluster.create(B, A, min_in_sync=2)
    until(lambda: cluster.partition() == (B, [A, B]), "both are in sync")
    cluster.write("m1", "m2")
    cluster.brokers[A].kill9()
    cluster.brokers[B].signal(signal.SIGSTOP)
    if without is None:
        cluster.brokers[A].start()
    else:
        cluster.start_without(A, without)
    cluster.brokers[B].kill9()
    until(lambda: cluster.partition()[0] == A, "A leads")
    cluster.brokers[B].start()
    until(lambda: cluster.partition() == (A, [A, B]), "both are in sync again")
    found = cluster.values()
    assert found == ["m1", "m2"] if without is None else "m2" not in found


@pytest.mark.parametrize("without", [None, "question"])
def test_a_replica_that_comes_back_with_another_history(
    cluster: Cluster, without: str | None
) -> None:
    """Both have m2, both die, and B has not had it on its disk. B leads and writes m3 where m2
    was. A comes back: its log ends where B's does, and is another one."""
    for node_id in (1, A, B):
        cluster.add(node_id, session_timeout_ms=6_000)  # of a busy machine
    cluster.create(A, B)
    until(lambda: cluster.partition() == (A, [A, B]), "both are in sync")
    cluster.write("m1", "m2")
    cluster.brokers[A].kill9()
    until(lambda: cluster.partition()[0] == B, "B leads")
    cluster.brokers[B].kill9()
    segment = cluster.segment(B)
    with segment.open("r+b") as file:
        file.truncate(batches(segment)[1])
    cluster.brokers[B].start()
    until(lambda: cluster.partition()[0] == B, "B leads again")
    cluster.write("m3")
    assert cluster.values() == ["m1", "m3"]
    if without is None:
        cluster.brokers[A].start()
    else:
        cluster.start_without(A, without)
    until(lambda: cluster.partition()[1] == [A, B], "A is in sync, or believed to be")
    the_same = cluster.segment(A).read_bytes() == segment.read_bytes()
    assert the_same == (without is None)


# --- two fetches ----------------------------------------------------------------------------------

LIMITS: Final = FetchLimits(
    max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, partition_max_bytes=1 << 20
)


class Follower:
    """A's place, taken by the test: what it asks from counts as what A has."""

    def __init__(self, leader: PlainBroker, topic_id: UUID, broker_epoch: int) -> None:
        host, _, port = leader.bootstrap.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._stream = self._connection.makefile("rb")
        self._topic_id = topic_id
        self._broker_epoch = broker_epoch
        self.log_end = 0
        self.high_watermark = 0

    def fetch(self) -> Fetched:
        asked = Asked(self._topic_id, 0, -1, self.log_end, -1, 0)
        header = struct.pack(">hhihb", ApiKey.FETCH, FETCH_VERSION, 0, -1, 0)
        body = encode_fetch(A, self._broker_epoch, [asked], LIMITS)
        self._connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", self._stream.read(4))
        (found,) = decode_fetch(Reader(self._stream.read(size)[5:], flexible=True)).partitions
        assert found.error is ErrorCode.NONE
        self.log_end += bool(found.records)
        self.high_watermark = min(self.log_end, found.high_watermark)
        return found

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def test_two_fetches_move_the_high_watermark(
    cluster: Cluster, zookeeper: ZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first brings the record, the second acknowledges it and gets the high watermark."""
    leader = cluster.add(1, session_timeout_ms=30_000)
    cluster.add(A, session_timeout_ms=30_000)
    cluster.create(1, A)
    until(lambda: cluster.partition() == (1, [1, A]), "both are in sync")
    cluster.brokers[A].kill9()  # until its session ends no broker knows, and the test is A
    store = KazooClient(cluster.connect)
    store.start(TIMEOUT_S)
    broker_epoch = store.get(f"/brokers/ids/{A}")[1].czxid
    store.stop()
    store.close()
    follower = Follower(leader, topic_id(leader), broker_epoch)
    rows: list[tuple[str, int, int, int, int]] = []

    def note(step: str) -> None:
        own = len(batches(cluster.segment(1))), high_watermark(leader)
        rows.append((step, *own, follower.log_end, follower.high_watermark))

    note("nothing yet")
    producer = confluent_kafka.Producer({"bootstrap.servers": leader.bootstrap, "acks": 1})
    producer.produce(TOPIC, "m1")
    assert producer.flush(TIMEOUT_S) == 0
    note("m1 is appended")
    follower.fetch()
    note("first fetch")
    follower.fetch()
    note("second fetch")
    follower.close()
    with capsys.disabled():
        print("\n\nlog end (LEO) and high watermark (HW) of leader and follower over two fetches")
        for row in (("", "leader LEO", "HW", "follower LEO", "HW"), *rows):
            print("{:<16}{:>12}{:>6}{:>15}{:>6}".format(*row))
    assert [row[1:] for row in rows] == [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1)]
