"""The messages of our client about topics in pages, as DescribeTopicPartitions (KIP-966).

As `messages`; `versions` has the versions. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.errors import ErrorCode
from kbroker.peer.messages import error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader

PARTITIONS_OF_A_PAGE: Final = 2000


class DescribedPartition(NamedTuple):
    """`eligible`, `last_known`: leaders that may be elected besides the replicas in sync; None: the
    broker does not say."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...] | None = None
    last_known: tuple[int, ...] | None = None


class DescribedTopic(NamedTuple):
    name: str
    error: ErrorCode
    topic_id: UUID | None
    partitions: tuple[DescribedPartition, ...]


class Cursor(NamedTuple):
    """Where the next page begins."""

    topic: str
    partition: int


class Page(NamedTuple):
    topics: list[DescribedTopic]
    cursor: Cursor | None


def encode_describe_topics(
    version: int, names: Sequence[str], cursor: Cursor | None, partitions_max: int
) -> bytes:
    table = tables.describe_topic_partitions
    request = table.Request(
        topics=[table.TopicRequest(name=name) for name in sorted(names)],
        response_partition_limit=partitions_max,
        cursor=None
        if cursor is None
        else table.RequestCursor(topic_name=cursor.topic, partition_index=cursor.partition),
    )
    return request.encode(version)


def decode_describe_topics(reader: Reader, version: int) -> Page:
    response = tables.describe_topic_partitions.Response.read(reader, version)
    after = response.next_cursor
    return Page(
        [
            DescribedTopic(
                topic.name or "",
                error_code(topic.error_code),
                topic.topic_id,
                tuple(
                    DescribedPartition(
                        each.partition_index,
                        each.leader_id,
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                        _ids(each.eligible_leader_replicas),
                        _ids(each.last_known_elr),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in response.topics
        ],
        None if after is None else Cursor(after.topic_name, after.partition_index),
    )


def _ids(nodes: list[int] | None) -> tuple[int, ...] | None:
    return None if nodes is None else tuple(nodes)
