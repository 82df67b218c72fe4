"""Retention on a real broker: what is too much and too old goes, and readers go on."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kbroker.testing.plain import PlainBroker as Broker
from tests.support.log_files import bytes_of
from tests.system.conftest import MakeBroker
from tests.unit.net.harness import eventually

pytestmark = pytest.mark.timeout(120)

MEGABYTE = 1 << 20
SIZE, COUNT = 10_000, 600  # six segments
WAIT_S = 60.0
OFTEN = {
    "log.retention.check.interval.ms": 100,
    "log.initial.task.delay.ms": 0,
    "log.segment.delete.delay.ms": 0,
}


def value(number: int) -> bytes:
    return b"%d " % number + b"." * SIZE


def create(broker: Broker, topic: str, **configs: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 1, 1, config=configs)]).values()
    made.result(WAIT_S)
    return admin


def produce(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, value(number), partition=0)
    assert producer.flush(WAIT_S) == 0


def no_more_has_to_go(log: Path) -> bool:
    """Without its first segment it would be less than the kept bytes."""
    try:
        first, *others = (each.stat().st_size for each in sorted(log.glob("*.log")))
    except FileNotFoundError:  # one that goes now
        return False
    return sum(others) < MEGABYTE <= first + sum(others)


def bounds(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "no-group"}
    )
    try:
        place = confluent_kafka.TopicPartition(topic, 0)
        low, high = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        return low, high
    finally:
        consumer.close()


def read(broker: Broker, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "no-group",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        # Offset 0 is out of range: the client asks where the log begins, and begins there.
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[confluent_kafka.Message] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), timeout=WAIT_S)
        return found
    finally:
        consumer.close()


def test_segments_beyond_the_size_and_the_time_go(make_broker: MakeBroker) -> None:
    broker = make_broker(OFTEN).start()
    topic = "sized"
    segments = {"segment.bytes": str(MEGABYTE), "retention.bytes": str(MEGABYTE)}
    admin = create(broker, topic, **segments)
    produce(broker, topic, 0, COUNT)
    log = broker.data_dir / f"{topic}-0"
    eventually(lambda: no_more_has_to_go(log), "segments have gone")
    assert MEGABYTE <= bytes_of(log) < 2 * MEGABYTE + SIZE
    eventually(lambda: not list(log.glob("*.deleted")), "and off the disk")
    low, high = bounds(broker, topic)
    assert 0 < low < high == COUNT
    found = read(broker, topic, high - low)
    assert [message.offset() for message in found] == list(range(low, high))
    assert [message.value() for message in found] == [value(n) for n in range(low, high)]

    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    )
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(WAIT_S)
    eventually(lambda: bounds(broker, topic) == (COUNT, COUNT), "all of it is too old")
    eventually(lambda: bytes_of(log) == 0, "and off the disk")

    broker.stop()
    broker.start()
    assert bounds(broker, topic) == (COUNT, COUNT)


def test_a_compacted_topic_keeps_old_records(make_broker: MakeBroker) -> None:
    broker = make_broker(OFTEN).start()
    create(broker, "compacted", **{"cleanup.policy": "compact", "retention.ms": "1"})
    create(broker, "both", **{"cleanup.policy": "compact,delete", "retention.ms": "1"})
    for topic in ("compacted", "both"):
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"v", b"k", partition=0)
        assert producer.flush(WAIT_S) == 0
    eventually(lambda: bounds(broker, "both") == (1, 1), "it is too old")
    assert bounds(broker, "compacted") == (0, 1)
