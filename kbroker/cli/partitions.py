"""What commands about partitions share: naming them, asking where logs begin and end, and saying
what became of them.

`-t TOPIC` is a whole topic, `-t TOPIC:0,2` some partitions of it, as in Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cli.connect import refuse
from kbroker.cli.output import say, write_json
from kbroker.errors import ErrorCode, UsageError

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.placement_messages import PartitionResult
    from kbroker.types import TopicPartition


class Chosen(NamedTuple):
    """A topic, and the partitions of it that were named; none named are all."""

    topic: str
    partitions: tuple[int, ...]


def parse_chosen(text: str) -> Chosen:
    topic, colon, rest = text.partition(":")
    numbers = rest.split(",") if colon else []
    if not topic or not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in numbers):
        raise UsageError(f"'{text}' names no partitions", "write TOPIC or TOPIC:0,1,2")
    return Chosen(topic, tuple(int(number) for number in numbers))


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
            raise refuse(error, f"topic '{topic}'", None)
        present = sorted(partition.index for partition in here.partitions)
        unknown = sorted(set(numbers).difference(present))
        if unknown:
            raise refuse(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{topic}' has partitions 0-{present[-1]}, not {unknown[0]}",
                None,
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
            raise refuse(result.error, str(where), None)
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


def report(results: Sequence[PartitionResult], done: str, output: str) -> int:
    """What became of each; the status of the command."""
    failed = [each for each in results if each.error is not ErrorCode.NONE]
    if output == "json":
        write_json(
            [
                {"topic": each.partition.topic, "partition": each.partition.partition,
                 "error": each.error.name, "message": each.message}
                for each in results
            ]
        )  # fmt: skip
    else:
        for each in results:
            if each.error is ErrorCode.NONE:
                say(f"{each.partition}: {done}")
    for each in failed:
        say(f"error: {refuse(each.error, str(each.partition), each.message)}", err=True)
    return 1 if failed else 0
