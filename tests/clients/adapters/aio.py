"""aiokafka: asyncio. Its event loop runs only inside calls, so sends happen at the next flush."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import aiokafka.errors

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


class _AioKafkaProducer(Producer):
    # Sends that run before the loop gets time to deliver; bounds what a huge test keeps pending.
    PENDING_MAX = 20_000

    def __init__(self, settings: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._pending: list[tuple[str, Record, int | None]] = []
        self._deliveries: list[Delivery] = []
        self._producer = self._loop.run_until_complete(self._start(settings))

    @staticmethod
    async def _start(settings: dict[str, Any]) -> Any:
        producer = aiokafka.AIOKafkaProducer(**settings)
        await producer.start()
        return producer

    def send(self, topic: str, record: Record, partition: int | None = 0) -> None:
        self._pending.append((topic, record, partition))
        if len(self._pending) >= self.PENDING_MAX:
            self._loop.run_until_complete(self._send_pending())

    async def _send_pending(self) -> None:
        pending, self._pending = self._pending, []
        futures = [
            await self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for topic, record, partition in pending
        ]
        for future in futures:
            try:
                metadata = await asyncio.wait_for(future, TIMEOUT_S)
            except aiokafka.errors.BrokerResponseError as error:
                self._deliveries.append(Delivery(-1, -1, error.errno))
            else:
                offset = -1 if metadata is None else metadata.offset
                partition = -1 if metadata is None else metadata.partition
                self._deliveries.append(Delivery(partition, offset, 0))

    def flush(self) -> list[Delivery]:
        self._loop.run_until_complete(self._send_pending())
        done, self._deliveries = self._deliveries, []
        return done

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


class _AioKafkaConsumer(Consumer):
    def __init__(
        self, settings: dict[str, Any], topic: str | None, partition: int, offset: int
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._consumer = self._loop.run_until_complete(self._start(settings))
        if topic is not None:
            self._loop.run_until_complete(self._assign(topic, partition, offset))

    @staticmethod
    async def _start(settings: dict[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        return consumer

    async def _assign(self, topic: str, partition: int, offset: int) -> None:
        at = aiokafka.TopicPartition(topic, partition)
        self._consumer.assign([at])
        if offset == BEGINNING:
            await self._consumer.seek_to_beginning(at)
        elif offset == END:
            await self._consumer.seek_to_end(at)
        else:
            self._consumer.seek(at, offset)

    def poll(self, timeout_s: float) -> list[Received]:
        polled = self._loop.run_until_complete(
            self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=10_000)
        )
        return [
            Received(
                record.offset, record.timestamp, record.value, record.key, tuple(record.headers)
            )
            for records in polled.values()
            for record in records
        ]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        at = aiokafka.TopicPartition(topic, partition)
        answers = self._loop.run_until_complete(
            self._consumer.offsets_for_times({at: timestamp_ms})
        )
        return None if answers[at] is None else answers[at].offset

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        at = aiokafka.TopicPartition(topic, partition)
        first = self._loop.run_until_complete(self._consumer.beginning_offsets([at]))[at]
        end = self._loop.run_until_complete(self._consumer.end_offsets([at]))[at]
        return first, end

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class AioKafka(Client):
    name = "aiokafka"

    def producer(
        self,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        message_bytes_max: int = 1_000_000,
        batch_bytes: int = 16_384,
        linger_ms: int = 50,
    ) -> Producer:
        return _AioKafkaProducer(
            {
                "bootstrap_servers": self.bootstrap,
                "compression_type": None if codec == "none" else codec,
                "acks": "all" if acks == "all" else int(acks),
                "enable_idempotence": idempotent,
                "max_request_size": message_bytes_max,
                "max_batch_size": batch_bytes,
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
        return _AioKafkaConsumer(
            {
                "bootstrap_servers": self.bootstrap,
                "auto_offset_reset": "none",
                "check_crcs": True,
                "isolation_level": "read_committed" if committed else "read_uncommitted",
                "fetch_max_wait_ms": wait_ms_max,
                "request_timeout_ms": max(40_000, 2 * wait_ms_max),
                "fetch_max_bytes": fetch_bytes_max,
                "max_partition_fetch_bytes": min(fetch_bytes_max, 1 << 20),
            },
            topic,
            partition,
            offset,
        )
