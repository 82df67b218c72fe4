"""Partitions as commands and pages name them, and where their logs begin and end.

A topic may be named as a whole, or some partitions of it. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition


class Chosen(NamedTuple):
    """A topic, and the partitions of it that were named; none named are all."""

    topic: str
    partitions: tuple[int, ...]


def existing(client: Client, chosen: Iterable[Chosen]) -> list[TopicPartition]:
    """Every partition that is meant, in order; one that is not there is refused."""
    from kbroker.types import TopicPartition

    wanted = list(chosen)
    found = client.metadata([each.topic for each in wanted]).topics
    partitions: list[TopicPartition] = []
    for topic, numbers in wanted:
        here = found.get(topic)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if here is None else here.error
        if here is None or error is not ErrorCode.NONE:
            raise KafkaError(error, f"topic '{topic}'")
        present = sorted(partition.index for partition in here.partitions)
        unknown = sorted(set(numbers).difference(present))
        if unknown:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has partitions 0-{present[-1]}, not {unknown[0]}",
            )
        partitions += [TopicPartition(topic, number) for number in (numbers or present)]
    return list(dict.fromkeys(partitions))


def still_there(client: Client, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those that have a leader: a group's offsets may outlive a topic for a moment."""
    wanted = list(partitions)
    if not wanted:
        return []
    topics = client.metadata(sorted({where.topic for where in wanted})).topics
    led = {
        (topic.name, partition.index)
        for topic in topics.values()
        for partition in topic.partitions
        if partition.leader >= 0
    }
    return [where for where in wanted if tuple(where) in led]


def log_offsets(
    client: Client, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """By timestamp or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP; -1 where no record is that young."""
    answer = client.list_offsets({where: timestamp_ms for where in partitions})
    for where, result in answer.items():
        if result.error is not ErrorCode.NONE:
            raise KafkaError(result.error, str(where))
    return {where: result.offset for where, result in answer.items()}


def log_ends(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    from kbroker.peer.messages import LATEST_TIMESTAMP

    return log_offsets(client, partitions, LATEST_TIMESTAMP)


def lag(committed: int | None, end: int | None) -> int | None:
    """Records that are yet to be read; unknown without a commit or without a log."""
    return None if committed is None or end is None else max(0, end - committed)


def total(lags: Iterable[int | None]) -> int:
    return sum(each for each in lags if each is not None)


def by_partition(offsets: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return sorted(offsets, key=lambda where: (where.topic, where.partition))
