"""kafka-python: pure Python, a sender thread of its own."""

from __future__ import annotations

import warnings
from typing import Any

from tests.clients.adapters.base import (
    BEGINNING,
    END,
    TIMEOUT_S,
    Client,
    Consumer,
    Delivery,
    Producer,
    Received,
    Record,
)

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 advises against
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.errors


class _KafkaPythonProducer(Producer):
    # The library itself has no bound on records that wait to be sent.
    PENDING_MAX = 20_000

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = kafka.KafkaProducer(**settings)
        self._futures: list[Any] = []

    def send(self, topic: str, record: Record, partition: int | None = 0) -> None:
        self._futures.append(
            self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
        )

        if len(self._futures) >= self.PENDING_MAX:
            self._delivery(self._futures[-self.PENDING_MAX])

    def flush(self) -> list[Delivery]:
        self._producer.flush(TIMEOUT_S)
        futures, self._futures = self._futures, []
        return [self._delivery(future) for future in futures]

    @staticmethod
    def _delivery(future: Any) -> Delivery:
        try:
            metadata = future.get(TIMEOUT_S)
        except kafka.errors.BrokerResponseError as error:
            return Delivery(-1, -1, error.errno)
        return Delivery(metadata.partition, metadata.offset, 0)

    def close(self) -> None:
        self._producer.close(TIMEOUT_S)


class _KafkaPythonConsumer(Consumer):
    def __init__(
        self, settings: dict[str, Any], topic: str | None, partition: int, offset: int
    ) -> None:
        self._consumer = kafka.KafkaConsumer(**settings)
        if topic is not None:
            at = kafka.TopicPartition(topic, partition)
            self._consumer.assign([at])
            if offset == BEGINNING:
                self._consumer.seek_to_beginning(at)
            elif offset == END:
                self._consumer.seek_to_end(at)
            else:
                self._consumer.seek(at, offset)

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [
            Received(
                record.offset, record.timestamp, record.value, record.key, tuple(record.headers)
            )
            for records in polled.values()
            for record in records
        ]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        at = kafka.TopicPartition(topic, partition)
        answer = self._consumer.offsets_for_times({at: timestamp_ms})[at]
        return None if answer is None else answer.offset

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        at = kafka.TopicPartition(topic, partition)
        return self._consumer.beginning_offsets([at])[at], self._consumer.end_offsets([at])[at]

    def close(self) -> None:
        self._consumer.close()


class KafkaPython(Client):
    name = "kafka-python"

    def producer(
        self,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        message_bytes_max: int = 1_000_000,
        batch_bytes: int = 16_384,
        linger_ms: int = 50,
    ) -> Producer:
        return _KafkaPythonProducer(
            {
                "bootstrap_servers": self.bootstrap,
                "compression_type": None if codec == "none" else codec,
                "acks": "all" if acks == "all" else int(acks),
                "enable_idempotence": idempotent,
                "max_request_size": message_bytes_max,
                "batch_size": batch_bytes,
                "linger_ms": linger_ms,
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
        return _KafkaPythonConsumer(
            {
                "bootstrap_servers": self.bootstrap,
                "auto_offset_reset": "none",
                "check_crcs": True,
                "isolation_level": "read_committed" if committed else "read_uncommitted",
                "fetch_max_wait_ms": wait_ms_max,
                "request_timeout_ms": max(30_000, 2 * wait_ms_max),
                "fetch_max_bytes": fetch_bytes_max,
                "max_partition_fetch_bytes": min(fetch_bytes_max, 1 << 20),
                "max_poll_records": 10_000,
            },
            topic,
            partition,
            offset,
        )
