"""confluent-kafka: librdkafka with its own threads and queues, and its admin client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from tests.clients.adapters.base import (
    BEGINNING,
    TIMEOUT_S,
    Client,
    Consumer,
    Delivery,
    Producer,
    Received,
    Record,
)


class _ConfluentProducer(Producer):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(settings)
        self._deliveries: list[Delivery | None] = []

    def send(self, topic: str, record: Record, partition: int | None = 0) -> None:
        index = len(self._deliveries)
        self._deliveries.append(None)
        optional: dict[str, Any] = {}
        if partition is not None:
            optional["partition"] = partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    on_delivery=self._noting(index),
                    **optional,
                )
            except BufferError:  # its queue is full: let it deliver some
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)

    def _noting(self, index: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            offset = message.offset()
            self._deliveries[index] = Delivery(
                message.partition(),
                -1 if offset is None else offset,
                error.code() if error is not None else 0,
            )

        return note

    def flush(self) -> list[Delivery]:
        left = self._producer.flush(TIMEOUT_S)
        if left:
            raise TimeoutError(f"{left} messages were not delivered in {TIMEOUT_S} s")
        done, self._deliveries = self._deliveries, []
        return [delivery for delivery in done if delivery is not None]

    def close(self) -> None:
        self._producer.flush(TIMEOUT_S)


class _ConfluentConsumer(Consumer):
    POLL_RECORDS_MAX = 10_000

    def __init__(
        self, settings: dict[str, Any], topic: str | None, partition: int, offset: int
    ) -> None:
        self._consumer = confluent_kafka.Consumer(settings)
        if topic is not None:
            self._consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])

    def poll(self, timeout_s: float) -> list[Received]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        received = []
        for message in [first, *self._consumer.consume(self.POLL_RECORDS_MAX, 0)]:
            if message.error():
                raise confluent_kafka.KafkaException(message.error())
            received.append(
                Received(
                    message.offset(),
                    message.timestamp()[1],
                    message.value(),
                    message.key(),
                    tuple(message.headers() or ()),
                )
            )
        return received

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        asked = confluent_kafka.TopicPartition(topic, partition, timestamp_ms)
        (answer,) = self._consumer.offsets_for_times([asked], timeout=TIMEOUT_S)
        if answer.error is not None:
            raise confluent_kafka.KafkaException(answer.error)
        offset: int = answer.offset
        return offset if offset >= 0 else None  # OFFSET_END where no record is that late

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        at = confluent_kafka.TopicPartition(topic, partition)
        low, high = self._consumer.get_watermark_offsets(at, timeout=TIMEOUT_S)
        return low, high

    def close(self) -> None:
        self._consumer.close()


class Confluent(Client):
    name = "confluent-kafka"

    def producer(
        self,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        message_bytes_max: int = 1_000_000,
        batch_bytes: int = 16_384,
        linger_ms: int = 50,
    ) -> Producer:
        return _ConfluentProducer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": message_bytes_max,
                "batch.size": batch_bytes,
                "linger.ms": linger_ms,
            }
        )

    def consumer(
        self,
        topic: str | None = None,
        partition: int = 0,
        offset: int = BEGINNING,
        wait_ms_max: int = 500,
        fetch_bytes_max: int = 50 << 20,
        committed: bool = False,
    ) -> Consumer:
        return _ConfluentConsumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",  # it insists on a name; assignment uses no group
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "fetch.wait.max.ms": wait_ms_max,
                "socket.timeout.ms": max(60_000, 2 * wait_ms_max),
                "fetch.max.bytes": fetch_bytes_max,
                "fetch.message.max.bytes": min(fetch_bytes_max, 1 << 20),
                "message.max.bytes": min(fetch_bytes_max, 1_000_000),
            },
            topic,
            partition,
            offset,
        )


class Admin:
    """Topics, through the library's admin client.

    settle: wait until a topic that was made can be used, and one that was deleted is gone. Apache
    Kafka answers before that is so; kbroker answers after.
    """

    def __init__(self, bootstrap: str, settle: bool = False) -> None:
        self._bootstrap = bootstrap
        self.client = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        self._settle = settle

    def create(
        self, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None:
        new = confluent_kafka.admin.NewTopic(topic, partitions, 1, config=configs or {})
        for future in self.client.create_topics([new]).values():
            future.result(TIMEOUT_S)
        if self._settle:
            eventually(lambda: self._usable(topic, partitions))

    def delete(self, *topics: str) -> None:
        for future in self.client.delete_topics(list(topics)).values():
            future.result(TIMEOUT_S)
        if self._settle:
            eventually(lambda: not self.topics().keys() & set(topics))

    def topics(self) -> dict[str, int]:
        """Partition counts by name."""
        listed = self.client.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(metadata.partitions) for name, metadata in listed.items()}

    def cluster(self) -> Any:
        """The cluster's id, its nodes and its controller."""
        return self.client.describe_cluster().result(TIMEOUT_S)

    def _usable(self, topic: str, partitions: int) -> bool:
        latest = confluent_kafka.admin.OffsetSpec.latest()
        asked = {confluent_kafka.TopicPartition(topic, n): latest for n in range(partitions)}
        try:
            fresh = confluent_kafka.admin.AdminClient({"bootstrap.servers": self._bootstrap})
            for future in fresh.list_offsets(asked).values():
                future.result(TIMEOUT_S)
        except confluent_kafka.KafkaException:
            return False
        return True


def eventually(holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait until it holds; for changes that only another process can make."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not come to hold in {timeout_s} s")
        time.sleep(0.02)
