"""The messages of our client that change partitions: CreatePartitions and DeleteRecords.

As `messages`, whose table of versions covers them: each field is spelled once for all versions, and
the tests hold both directions against the schema library. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.peer.messages import TopicResult, by_topic, error_code
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

# In DeleteRecords: wherever the high watermark is.
TO_HIGH_WATERMARK = -1


class DeleteRecordsResult(NamedTuple):
    """`low_watermark` is the first offset that is left, -1 if nothing was done."""

    error: ErrorCode
    low_watermark: int


def encode_create_partitions(
    version: int, counts: Mapping[str, int], *, timeout_ms: int, validate_only: bool
) -> bytes:
    """How many partitions each topic shall have in all; where they go is the broker's choice."""
    writer = Writer(flexible=is_flexible(ApiKey.CREATE_PARTITIONS, version))
    writer.array(len(counts))
    for name, count in counts.items():
        writer.string(name)
        writer.int32(count)
        writer.array(None)  # assignments
        writer.tags()
    writer.int32(timeout_ms)
    writer.boolean(validate_only)
    writer.tags()
    return writer.getvalue()


def decode_create_partitions(reader: Reader, version: int) -> list[TopicResult]:
    reader.int32()  # throttle time
    results: list[TopicResult] = []
    for _ in range(reader.array()):
        name = reader.string()
        error = error_code(reader.int16())
        results.append(TopicResult(name, error, reader.nullable_string()))
        reader.tags()
    return results


def encode_delete_records(
    version: int, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> bytes:
    """The first offset to be left in each partition, or TO_HIGH_WATERMARK."""
    writer = Writer(flexible=is_flexible(ApiKey.DELETE_RECORDS, version))
    topics = by_topic(offsets)
    writer.array(len(topics))
    for topic, partitions in topics.items():
        writer.string(topic)
        writer.array(len(partitions))
        for partition in partitions:
            writer.int32(partition)
            writer.int64(offsets[TopicPartition(topic, partition)])
            writer.tags()
        writer.tags()
    writer.int32(timeout_ms)
    writer.tags()
    return writer.getvalue()


def decode_delete_records(
    reader: Reader, version: int
) -> dict[TopicPartition, DeleteRecordsResult]:
    reader.int32()  # throttle time
    results: dict[TopicPartition, DeleteRecordsResult] = {}
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            partition = reader.int32()
            low_watermark = reader.int64()
            error = error_code(reader.int16())
            results[TopicPartition(topic, partition)] = DeleteRecordsResult(error, low_watermark)
            reader.tags()
        reader.tags()
    return results
