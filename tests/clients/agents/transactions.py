"""Transactional producers of the Python libraries, as an application uses them.

A record that was put is delivered, or known to have failed, when `end` returns: each library
flushes before it commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

TIMEOUT_S = 60.0


class Transactional(Protocol):
    """A producer of any library; an error of the library is raised as it is."""

    def begin(self) -> None: ...
    def put(self, topic: str, partition: int, value: bytes) -> None: ...
    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def end(self, *, commit: bool) -> None: ...
    def close(self) -> None: ...


class ConfluentTransactional:
    def __init__(self, bootstrap: str, id: str, timeout_ms: int) -> None:
        import confluent_kafka

        self._library: Any = confluent_kafka
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def put(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)
        self._producer.flush(TIMEOUT_S)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = self._library.Consumer(
            {"bootstrap.servers": ",".join(["127.0.0.1:1"]), "group.id": group}
        )  # only its group's metadata is needed: it never connects
        try:
            at = self._library.TopicPartition(topic, partition, offset)
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([at], metadata, TIMEOUT_S)
        finally:
            consumer.close()

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(TIMEOUT_S)
        else:
            self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonTransactional:
    def __init__(self, bootstrap: str, id: str, timeout_ms: int) -> None:
        import kafka

        self._library: Any = kafka
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(1_000 * TIMEOUT_S),
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def put(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition).get(TIMEOUT_S)

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        at = self._library.TopicPartition(topic, partition)
        wanted = {at: self._library.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(wanted, group)

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(0)


class AioKafkaTransactional:
    def __init__(self, bootstrap: str, id: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._producer = self._do(self._start(bootstrap, id, timeout_ms))

    def _do(self, awaited: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(awaited, TIMEOUT_S))

    @staticmethod
    async def _start(bootstrap: str, id: str, timeout_ms: int) -> Any:
        import aiokafka

        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def put(self, topic: str, partition: int, value: bytes) -> None:
        self._do(self._producer.send_and_wait(topic, value, partition=partition))

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        from aiokafka.structs import TopicPartition

        wanted = {TopicPartition(topic, partition): offset}
        self._do(self._producer.send_offsets_to_transaction(wanted, group))

    def end(self, *, commit: bool) -> None:
        ended = self._producer.commit_transaction if commit else self._producer.abort_transaction
        self._do(ended())

    def close(self) -> None:
        self._do(self._producer.stop())
        self._loop.close()


TRANSACT: Mapping[str, Callable[..., Transactional]] = {
    "confluent-kafka": ConfluentTransactional,
    "kafka-python": KafkaPythonTransactional,
    "aiokafka": AioKafkaTransactional,
}
