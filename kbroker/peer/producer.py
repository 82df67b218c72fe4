"""Records to one topic through a blocking `Client`: partitioned, batched, written exactly once.

`send` returns when every record is acknowledged as `acks` asks, or raises the first error. Records
of one partition keep their order: at most one batch per partition is on its way. With acks=-1 the
batches carry a producer id and sequence numbers, so that one sent again after a lost connection is
not stored twice; a broker without InitProducerId gets plain batches.

Bounds: a batch closes before `batch_bytes_max`, well below the broker's default message.max.bytes,
unless a single record is larger: then the broker decides.

Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.clock import Clock, SystemClock
from kbroker.compression import Codec
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SEQUENCE_MAX
from kbroker.peer.client import Client
from kbroker.peer.messages import ProducerId
from kbroker.peer.partitioner import StickyPartitioner
from kbroker.protocol.record_batch import NO_PRODUCER_ID, NO_TIMESTAMP, Record, encode_batch
from kbroker.types import TopicPartition

BATCH_BYTES_MAX: Final = 512 * 1024
# Lengths, deltas and attributes of one record: generous, since it only closes a batch earlier.
_RECORD_OVERHEAD_BYTES: Final = 24
_PLAIN: Final = ProducerId(NO_PRODUCER_ID, -1)


class Producer:
    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        acks: int = -1,
        codec: Codec = Codec.NONE,
        partition: int | None = None,
        clock: Clock | None = None,
        partitioner: StickyPartitioner | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self._clock = clock if clock is not None else SystemClock()
        self._partitioner = partitioner if partitioner is not None else StickyPartitioner()
        self._batch_bytes_max = batch_bytes_max
        self._partition = partition
        self._partitions = client.partitions(topic, auto_create=True)
        if partition is not None and partition not in self._partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has partitions 0-{self._partitions[-1]}, not {partition}",
            )
        self._producer_id = self._init_producer_id() if acks == -1 else _PLAIN
        self._sequences: dict[int, int] = {}

    def _init_producer_id(self) -> ProducerId:
        try:
            return self._client.init_producer_id()
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return _PLAIN
            raise

    def send(self, records: Iterable[Record]) -> int:
        """How many were written."""
        now_ms = self._clock.wall_ms()
        waiting: dict[int, list[Record]] = {}
        sizes: dict[int, int] = {}
        sent = 0
        for record in records:
            if record.timestamp_ms == NO_TIMESTAMP:
                record = record._replace(timestamp_ms=now_ms)
            partition = self._choose(record)
            size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
            size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
            if partition in waiting and sizes[partition] + size > self._batch_bytes_max:
                self._send_batches(waiting)
                waiting.clear()
                sizes.clear()
            waiting.setdefault(partition, []).append(record)
            sizes[partition] = sizes.get(partition, 0) + size
            sent += 1
        self._send_batches(waiting)
        return sent

    def _choose(self, record: Record) -> int:
        if self._partition is not None:
            return self._partition
        return self._partitioner.partition(record.key, len(self._partitions))

    def _send_batches(self, waiting: dict[int, list[Record]]) -> None:
        if not waiting:
            return
        batches = {
            TopicPartition(self._topic, partition): self._encode(partition, records)
            for partition, records in waiting.items()
        }
        for where, result in self._client.produce(batches, acks=self._acks).items():
            # A duplicate is what a repeated send is answered with when the first one had arrived.
            if result.error not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                raise KafkaError(result.error, f"{where}: {result.message or 'not written'}")
        for partition, records in waiting.items():
            after = self._sequences.get(partition, 0) + len(records)
            self._sequences[partition] = after & SEQUENCE_MAX
        self._partitioner.next_batch(len(self._partitions))

    def _encode(self, partition: int, records: list[Record]) -> bytes:
        idempotent = self._producer_id.producer_id != NO_PRODUCER_ID
        return encode_batch(
            records,
            codec=self._codec,
            producer_id=self._producer_id.producer_id,
            producer_epoch=self._producer_id.epoch,
            base_sequence=self._sequences.get(partition, 0) if idempotent else -1,
        )
