"""The messages of our client that change partitions: CreatePartitions and DeleteRecords.

As `messages`: records of the tables to values and back. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kbroker.errors import ErrorCode
from kbroker.peer.messages import TopicResult, by_topic, error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

# In DeleteRecords: wherever the high watermark is.
TO_HIGH_WATERMARK = -1


class DeleteRecordsResult(NamedTuple):
    """`low_watermark` is the first offset that is left, -1 if nothing was done."""

    error: ErrorCode
    low_watermark: int


def encode_create_partitions(
    version: int,
    counts: Mapping[str, int],
    *,
    timeout_ms: int,
    validate_only: bool,
    assignments: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
) -> bytes:
    """How many partitions each topic shall have in all, and the brokers of the new ones; of a topic
    without those the broker chooses them."""
    table = tables.create_partitions
    topics = [
        table.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[
                table.CreatePartitionsAssignment(broker_ids=list(brokers))
                for brokers in assignments[name]
            ]
            if name in assignments
            else None,
        )
        for name, count in counts.items()
    ]
    request = table.Request(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
    return request.encode(version)


def decode_create_partitions(reader: Reader, version: int) -> list[TopicResult]:
    response = tables.create_partitions.Response.read(reader, version)
    return [
        TopicResult(each.name, error_code(each.error_code), each.error_message)
        for each in response.results
    ]


def encode_delete_records(
    version: int, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> bytes:
    """The first offset to be left in each partition, or TO_HIGH_WATERMARK."""
    table = tables.delete_records
    topics = [
        table.Topic(
            name=name,
            partitions=[
                table.Partition(partition_index=where.partition, offset=offsets[where])
                for where in partitions
            ],
        )
        for name, partitions in by_topic(offsets)
    ]
    return table.Request(topics=topics, timeout_ms=timeout_ms).encode(version)


def decode_delete_records(
    reader: Reader, version: int
) -> dict[TopicPartition, DeleteRecordsResult]:
    return {
        TopicPartition(topic.name, each.partition_index): DeleteRecordsResult(
            error_code(each.error_code), each.low_watermark
        )
        for topic in tables.delete_records.Response.read(reader, version).topics
        for each in topic.partitions
    }
