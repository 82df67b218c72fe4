"""A compacted topic whose old segments are all superseded, read from its first offset.

librdkafka takes an answer without a record for a sign that its fetch size is too small: it doubles
it, and after some ten such answers in a row it tells its application MSG_SIZE_TOO_LARGE.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import confluent_kafka
import pytest

from kbroker.errors import ErrorCode
from kbroker.peer.client import Client
from kbroker.peer.messages import ProducerId
from kbroker.testing import Broker
from kbroker.types import TopicPartition
from tests.clients.agents import programs
from tests.clients.agents.driver import Agent
from tests.support.read_topic import EOF_AT_ONCE
from tests.support.record_batches import Record, build_batch

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

SEGMENTS = 40
APART_MS = 10_000
ROUNDS = 10
WAIT_S = 30.0
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": 1000,
    "segment_index_bytes": 16,  # two segments with records do not become one
    "retention_ms": -1,
    "delete_retention_ms": 0,
}
LIBRARIES = [
    library
    for library in programs.LIBRARIES
    if library.name in ("confluent-kafka", "kafka-python", "java", "franz-go")
]


Start = Callable[[programs.Library], Agent]


class Topic(NamedTuple):
    name: str
    values: list[bytes]  # that have to be read


class Writer:
    """One record a segment, by its timestamp."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._now_ms = int(time.time() * 1000) - 1000 * APART_MS

    def write(self, topic: str, value: bytes | None, *, idempotent: bool) -> None:
        producer = self._client.init_producer_id() if idempotent else ProducerId(-1, -1)
        self._now_ms += APART_MS
        where = TopicPartition(topic, 0)
        batch = build_batch(
            [Record(value, b"key", self._now_ms)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0 if idempotent else -1,
        )
        assert self._client.produce({where: batch})[where].error is ErrorCode.NONE

    def fill(self, topic: str) -> None:
        """Every second segment is by an idempotent producer, whose last sequence is in it."""
        for number in range(SEGMENTS):
            self.write(topic, b"old", idempotent=number % 2 == 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture(scope="module")
def topics(broker: Broker) -> dict[str, Topic]:
    """By how often they were cleaned."""
    with Client(broker.bootstrap) as client:
        return written(Writer(client), broker)


def written(writer: Writer, broker: Broker) -> dict[str, Topic]:
    for name in ("often", "gone"):
        broker.create_topic(name, **COMPACTED)
        writer.fill(name)
    writer.write("gone", None, idempotent=True)
    for number in range(ROUNDS):
        writer.write("often", b"newer %d" % number, idempotent=number % 2 == 0)
        broker.compact()
    broker.create_topic("once", **COMPACTED)
    writer.fill("once")
    writer.write("once", b"new", idempotent=False)
    broker.compact()
    return {
        "once": Topic("once", [b"new"]),
        "often": Topic("often", [b"newer %d" % (ROUNDS - 1)]),
        "gone": Topic("gone", []),
    }


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.mark.parametrize("cleaned", ["once", "often"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_it_is_read_from_the_first_offset(
    library: programs.Library, cleaned: str, topics: dict[str, Topic], start: Start
) -> None:
    topic = topics[cleaned]
    found = start(library).read(topic.name, 0, 0, len(topic.values))
    assert [each.value for each in found] == topic.values


@pytest.mark.parametrize("cleaned", ["once", "often", "gone"])
def test_librdkafka_comes_to_the_end_without_an_error(
    cleaned: str, broker: Broker, topics: dict[str, Topic]
) -> None:
    topic = topics[cleaned]
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "no-group", "enable.auto.commit": False,
        **EOF_AT_ONCE,
    })  # fmt: skip
    place = confluent_kafka.TopicPartition(topic.name, 0, 0)
    try:
        consumer.assign([place])
        found = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                break
            found.append(message.value())
        _low, high = consumer.get_watermark_offsets(place, WAIT_S)
        assert (found, message.offset()) == (topic.values, high)
    finally:
        consumer.close()
