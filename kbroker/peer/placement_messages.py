"""The messages of our client about where partitions are: reassignments and elections.

As `messages`: records of the tables to values and back. Pure functions, any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import by_topic, error_code
from kbroker.protocol import messages as tables
from kbroker.protocol.wire import Reader
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.messages.alter_partition_reassignments import ReassignablePartition

PREFERRED_ELECTION: Final = 0
UNCLEAN_ELECTION: Final = 1


class PartitionResult(NamedTuple):
    partition: TopicPartition
    error: ErrorCode
    message: str | None


class ReassignedPartition(NamedTuple):
    """What is under way: `replicas` are all there are for the time being."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def encode_reassign(
    version: int, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int
) -> bytes:
    """The brokers where each partition is to be, the preferred leader first; None: where it was."""
    table = tables.alter_partition_reassignments

    def partition(where: TopicPartition) -> ReassignablePartition:
        nodes = targets[where]
        replicas = None if nodes is None else list(nodes)
        return table.ReassignablePartition(partition_index=where.partition, replicas=replicas)

    topics = [
        table.ReassignableTopic(name=name, partitions=[partition(where) for where in some])
        for name, some in by_topic(targets)
    ]
    return table.Request(timeout_ms=timeout_ms, topics=topics).encode(version)


def decode_reassign(reader: Reader, version: int) -> list[PartitionResult]:
    """KafkaError for a request that was refused as a whole."""
    response = tables.alter_partition_reassignments.Response.read(reader, version)
    _check(response.error_code, response.error_message)
    return [
        PartitionResult(
            TopicPartition(topic.name, each.partition_index),
            error_code(each.error_code),
            each.error_message,
        )
        for topic in response.responses
        for each in topic.partitions
    ]


def encode_list_reassignments(version: int, *, timeout_ms: int) -> bytes:
    """Of all topics."""
    return tables.list_partition_reassignments.Request(timeout_ms=timeout_ms).encode(version)


def decode_list_reassignments(
    reader: Reader, version: int
) -> dict[TopicPartition, ReassignedPartition]:
    """KafkaError as `decode_reassign`."""
    response = tables.list_partition_reassignments.Response.read(reader, version)
    _check(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): ReassignedPartition(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in response.topics
        for each in topic.partitions
    }


def encode_elect_leaders(
    version: int, kind: int, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> bytes:
    """PREFERRED_ELECTION or UNCLEAN_ELECTION; None: of every partition that needs one."""
    table = tables.elect_leaders
    topics = None
    if partitions is not None:
        topics = [
            table.TopicPartitions(topic=name, partitions=[where.partition for where in some])
            for name, some in by_topic(partitions)
        ]
    request = table.Request(election_type=kind, topic_partitions=topics, timeout_ms=timeout_ms)
    return request.encode(version)


def decode_elect_leaders(reader: Reader, version: int) -> list[PartitionResult]:
    """KafkaError as `decode_reassign`."""
    response = tables.elect_leaders.Response.read(reader, version)
    _check(response.error_code, None)
    return [
        PartitionResult(
            TopicPartition(topic.topic, each.partition_id),
            error_code(each.error_code),
            each.error_message,
        )
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


def _check(code: int, message: str | None) -> None:
    error = error_code(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")
