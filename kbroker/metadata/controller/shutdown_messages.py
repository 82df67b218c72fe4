"""ControlledShutdown (7) between brokers: who is about to stop asks that others lead.

Version 3 of Apache Kafka's request. The answer has the partitions that the broker leads still,
though others have replicas that may come to lead. Bytes from a peer are not trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import TopicPartition


class ShutdownAsked(NamedTuple):
    node_id: int
    broker_epoch: int


def encode_shutdown(asked: ShutdownAsked) -> bytes:
    writer = Writer(flexible=True)
    writer.int32(asked.node_id)
    writer.int64(asked.broker_epoch)
    writer.tags()
    return writer.getvalue()


def decode_shutdown(body: bytes) -> ShutdownAsked:
    """Raises ProtocolError."""
    reader = Reader(body, flexible=True)
    asked = ShutdownAsked(reader.int32(), reader.int64())
    reader.tags()
    return asked


def encode_remaining(error: ErrorCode, remaining: Sequence[TopicPartition]) -> bytes:
    writer = Writer(flexible=True)
    writer.int16(error)
    writer.array(len(remaining))
    for topic, partition in remaining:
        writer.string(topic)
        writer.int32(partition)
        writer.tags()
    writer.tags()
    return writer.getvalue()


def decode_remaining(body: bytes) -> tuple[ErrorCode, list[TopicPartition]]:
    """Raises ProtocolError."""
    reader = Reader(body, flexible=True)
    error = ErrorCode.for_code(reader.int16())
    remaining: list[TopicPartition] = []
    for _ in range(reader.array()):
        remaining.append(TopicPartition(reader.string(), reader.int32()))
        reader.tags()
    reader.tags()
    return error, remaining
