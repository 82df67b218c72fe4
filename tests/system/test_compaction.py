"""Compaction on a real broker: of each key the last record stays, across restarts and kills."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.log.looking.verify import verify
from kbroker.testing import Broker as Inspected
from kbroker.testing.plain import PlainBroker as Broker
from tests.support.log_files import bytes_of
from tests.support.read_topic import EOF_AT_ONCE
from tests.system.conftest import MakeBroker
from tests.system.test_kafka_reads_our_files import dump
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.timeout(180)

MEGABYTE = 1 << 20
WAIT_S = 60.0
KEYS = 200
AT_ONCE = {
    "log.initial.task.delay.ms": 0,
    "log.cleaner.backoff.ms": 20,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.segment.delete.delay.ms": 0,
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(MEGABYTE),
    "file.delete.delay.ms": "0",
}


def create(broker: Broker | Inspected, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={**COMPACTED, **configs})])
    made[topic].result(WAIT_S)


class Writer:
    """Writes random keys, and knows of each what was acknowledged last and what may have been."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.acknowledged: dict[bytes, int] = {}
        self.sent: dict[bytes, int] = {}

    def write(self, broker: Broker, topic: str, count: int, codec: str = "none") -> None:
        producer = confluent_kafka.Producer({
            "bootstrap.servers": broker.bootstrap, "compression.type": codec,
            "enable.idempotence": True, "message.timeout.ms": 60_000, "linger.ms": 1,
        })  # fmt: skip
        for _ in range(count):
            self.number += 1
            key = b"key %d" % self.random.randrange(KEYS)
            value = b"%d " % self.number + self.random.randbytes(400).hex().encode()
            self.sent[key] = self.number
            producer.produce(topic, value, key, partition=0, on_delivery=self._note)
            producer.poll(0)
        producer.flush(WAIT_S)

    def _note(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            number = int(value.split()[0])
            self.acknowledged[key] = max(number, self.acknowledged.get(key, 0))


def read(broker: Broker | Inspected, topic: str) -> list[tuple[int, bytes, int]]:
    """(offset, key, number) of every record."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "no-group", "enable.auto.commit": False,
        **EOF_AT_ONCE, "auto.offset.reset": "earliest",
    })  # fmt: skip
    found: list[tuple[int, bytes, int]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return found
            key, value, offset = message.key(), message.value(), message.offset()
            assert key is not None and value is not None and offset is not None
            found.append((offset, key, int(value.split()[0])))
    finally:
        consumer.close()


def check(records: list[tuple[int, bytes, int]], writer: Writer) -> None:
    offsets = [offset for offset, _, _ in records]
    assert offsets == sorted(set(offsets))
    last = {key: number for _, key, number in records}
    for key, number in writer.acknowledged.items():
        assert number <= last[key] <= writer.sent[key]


def test_it_stays_small_and_every_key_is_there(make_broker: MakeBroker) -> None:
    broker = make_broker(AT_ONCE).start()
    create(broker, "users")
    writer, log = Writer(1), broker.data_dir / "users-0"
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        writer.write(broker, "users", 3_000, codec)
    eventually(lambda: bytes_of(log) < 4 * MEGABYTE, "it is cleaned")
    records = read(broker, "users")
    assert len(records) < 8_000
    check(records, writer)
    broker.stop()
    assert not verify(log).damage
    broker.start()
    check(read(broker, "users"), writer)


@pytest.mark.java
def test_apache_kafkas_tool_reads_cleaned_logs(make_broker: MakeBroker) -> None:
    broker = make_broker(AT_ONCE).start()
    create(broker, "users")
    writer, log = Writer(2), broker.data_dir / "users-0"
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        writer.write(broker, "users", 3_000, codec)
    eventually(lambda: bytes_of(log) < 4 * MEGABYTE, "it is cleaned")
    broker.stop()
    kinds = ("log", "index", "timeindex", "snapshot")
    names = [str(path) for kind in kinds for path in sorted(log.glob(f"*.{kind}"))]
    dumped = dump("--deep-iteration", "--files", ",".join(names))
    assert "isvalid: false" not in dumped
    for word in ("mismatch", "corrupt", "not found", "out of order", "exception"):
        assert word not in dumped.lower()


def test_kills_while_it_cleans(make_broker: MakeBroker) -> None:
    chance = random.Random(3)
    broker = make_broker(AT_ONCE).start()
    create(broker, "users")
    writer, log = Writer(4), broker.data_dir / "users-0"
    for _ in range(5):
        thread = threading.Thread(target=writer.write, args=(broker, "users", 4_000))
        thread.start()
        thread.join(chance.uniform(0.1, 1.0))
        broker.kill9()
        broker.start()
        thread.join()
        check(read(broker, "users"), writer)
    broker.stop()
    assert not verify(log).damage


@pytest.fixture
def inspected() -> Iterator[Inspected]:
    with Inspected() as broker:
        yield broker


def test_commits_of_a_group_do_not_add_up(inspected: Inspected) -> None:
    topic = inspected.create_topic()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": inspected.bootstrap, "group.id": "shop"}
    )
    for offset in range(1, 301):
        place = confluent_kafka.TopicPartition(topic, 0, offset)
        consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    log = inspected.data_dir / "__consumer_offsets-0"
    before = bytes_of(log)
    inspected.compact()
    eventually(lambda: bytes_of(log) < before / 10, "old commits are gone")
    inspected.restart()
    assert inspected.committed("shop") == {(topic, 0): 300}
