"""The messages of our client that change partitions: CreatePartitions and DeleteRecords.

As `messages`, whose table of versions covers them: each field is spelled once for all versions, and
the tests hold both directions against the schema library. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.peer.messages import (
    TopicResult,
    error_code,
    read_by_topic,
    request_writer,
    write_by_topic,
)
from kbroker.protocol.wire import Reader
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
    writer = request_writer(ApiKey.CREATE_PARTITIONS, version)
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
    writer = request_writer(ApiKey.DELETE_RECORDS, version)
    write_by_topic(writer, offsets, lambda where: writer.int64(offsets[where]))
    writer.int32(timeout_ms)
    writer.tags()
    return writer.getvalue()


def decode_delete_records(
    reader: Reader, version: int
) -> dict[TopicPartition, DeleteRecordsResult]:
    reader.int32()  # throttle time

    def result() -> DeleteRecordsResult:
        low_watermark = reader.int64()
        return DeleteRecordsResult(error_code(reader.int16()), low_watermark)

    return read_by_topic(reader, result)
