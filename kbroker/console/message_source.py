"""From a message query to readers of its partitions, and from the records found to rows.

Place in the flow: the page, the live tail and the download all read by this. The visitor's client
asks, so a topic that the visitor may not read is refused by its broker. Owner: the console's
thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.console.asked import Refused
from kbroker.console.drawing import Form, draw, draw_headers
from kbroker.console.message_query import (
    PARTITIONS_MAX,
    Isolation,
    MessageQuery,
    Order,
    Partitions,
)
from kbroker.console.page import Cell, Column, Tone, Unit
from kbroker.console.records import NewestFirst, OldestFirst
from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.asked import Asked
    from kbroker.console.records import Found, PartitionReader, Reading
    from kbroker.peer.messages import TopicMetadata

_NO_SUCH_TOPIC: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
_NOT_ALLOWED: Final = 403
_NOT_FOUND: Final = 404


class Chosen(NamedTuple):
    """`following`: the partitions of the next page, None after the last ones."""

    partitions: Sequence[TopicPartition]
    leaderless: Sequence[int]
    following: Partitions | None


class Bounds(NamedTuple):
    """Of a partition's log: from `start` on and below `end`."""

    start: int
    end: int


def topic_of(asked: Asked, name: str) -> TopicMetadata:
    """Refused: there is no such topic, or the visitor may not know."""
    topic = asked.client.metadata([name]).topics.get(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if error in _NO_SUCH_TOPIC:
        raise Refused("there is no such topic", "see the list of topics", status=_NOT_FOUND)
    if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise Refused(
            "this user may not describe the topic",
            "an ACL that allows Describe, or Read, on it is needed",
            status=_NOT_ALLOWED,
        )
    if topic is None or (error is not ErrorCode.NONE and not topic.partitions):
        raise KafkaError(error, f"topic '{name}'")
    return topic


def choose(topic: TopicMetadata, wanted: Partitions) -> Chosen:
    """PARTITIONS_MAX of those that are wanted and have a leader."""
    named = sorted(
        [each for each in topic.partitions if wanted.first <= each.index <= wanted.last],
        key=lambda each: each.index,
    )
    if not named:
        raise Refused(
            "the topic has no such partition", f"it has {len(topic.partitions)}", status=_NOT_FOUND
        )
    some, rest = named[:PARTITIONS_MAX], named[PARTITIONS_MAX:]
    following = None
    if rest:
        following = Partitions(rest[0].index, rest[:PARTITIONS_MAX][-1].index)
    return Chosen(
        [TopicPartition(topic.name, each.index) for each in some if each.leader >= 0],
        [each.index for each in some if each.leader < 0],
        following,
    )


def log_bounds(
    asked: Asked, partitions: Sequence[TopicPartition], isolation: int
) -> dict[TopicPartition, Bounds]:
    starts = _offsets(asked, partitions, EARLIEST_TIMESTAMP, isolation)
    ends = _offsets(asked, partitions, LATEST_TIMESTAMP, isolation)
    return {where: Bounds(starts[where], ends[where]) for where in partitions}


def _offsets(
    asked: Asked, partitions: Sequence[TopicPartition], timestamp_ms: int, isolation: int
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    answer = asked.client.list_offsets(dict.fromkeys(partitions, timestamp_ms), isolation=isolation)
    for where, result in answer.items():
        if result.error is not ErrorCode.NONE:
            raise KafkaError(result.error, str(where))
    return {where: result.offset for where, result in answer.items()}


def readers_of(
    asked: Asked,
    query: MessageQuery,
    logs: Mapping[TopicPartition, Bounds],
    reading: Reading,
) -> list[PartitionReader]:
    """One for each partition, of the offsets that the query is about."""
    partitions = list(logs)
    wanted, isolation = query.wanted, query.isolation.number
    since = until = None
    if wanted.since_ms is not None:
        since = _offsets(asked, partitions, max(wanted.since_ms, 0), isolation)
    if wanted.until_ms is not None:
        until = _offsets(asked, partitions, max(wanted.until_ms, 0), isolation)
    readers: list[PartitionReader] = []
    for where, log in logs.items():
        low, high = log
        # -1: no record is that young.
        if since is not None:
            low = max(low, since[where]) if since[where] >= 0 else high
        if until is not None and until[where] >= 0:
            high = min(high, until[where])
        if query.newest:
            if query.offset is not None:
                high = min(high, query.offset + 1)
            high = min(high, query.positions.get(where.partition, high))
            readers.append(NewestFirst(reading, where, low, high))
        else:
            low = max(low, query.offset or 0, query.positions.get(where.partition, 0))
            readers.append(OldestFirst(reading, where, low, high))
    return readers


def going_on(readers: Sequence[PartitionReader]) -> dict[int, int]:
    """Where each partition's next page begins."""
    return {reader.where.partition: reader.position for reader in readers}


# --- rows -----------------------------------------------------------------------------------------

_PLACE: Final = (
    Column("partition", "Partition"),
    Column("offset", "Offset"),
    Column("timestamp_ms", "Time", Unit.MOMENT_MS),
    Column("key", "Key", Unit.PAYLOAD),
)
_CONTENT: Final = (
    Column("value", "Value", Unit.PAYLOAD),
    Column("headers", "Headers", Unit.PAYLOAD),
)
_SIZES: Final = (
    Column("key_bytes", "Key bytes", Unit.BYTES),
    Column("value_bytes", "Value bytes", Unit.BYTES),
    Column("drawn_as", "Drawn as"),
)


def columns_of(asked: Asked) -> tuple[Column, ...]:
    """Of the rows of the page, and of the tail."""
    with_values = asked.messages == "on"
    return _PLACE + _CONTENT + _SIZES if with_values else (*_PLACE, _SIZES[0], _SIZES[2])


def row_of(
    found: Found, topic: str, form: Form, chars_max: int, *, with_values: bool
) -> list[Cell]:
    """Of `columns`."""
    place = [
        Cell(found.partition),
        Cell(found.offset, _alone(topic, found)),
        Cell(found.timestamp_ms if found.timestamp_ms >= 0 else None),
    ]
    record = found.record
    if record is None:  # a marker, or a batch that cannot be read: the text is ours
        text = Cell(found.text, tone=Tone.WARN)
        if with_values:
            return [*place, Cell(None), text, *[Cell(None)] * 3, Cell("note", tone=Tone.QUIET)]
        return [*place, text, Cell(None), Cell("note", tone=Tone.QUIET)]
    key = draw(record.key, form, chars_max)
    key_size = Cell(found.key_bytes if found.key_bytes >= 0 else None)
    if not with_values:
        return [*place, Cell(key.text), key_size, Cell(key.form, tone=Tone.QUIET)]
    value = draw(record.value, form, chars_max)
    return [
        *place,
        Cell(key.text),
        Cell(value.text),
        Cell(draw_headers(record.headers, form, chars_max) if record.headers else None),
        key_size,
        Cell(found.value_bytes if found.value_bytes >= 0 else None),
        Cell(f"{key.form}, {value.form}", tone=Tone.QUIET),
    ]


def _alone(topic: str, found: Found) -> str:
    """The page of this record alone, with all of it."""
    query = MessageQuery(
        topic,
        Partitions(found.partition, found.partition),
        Order.OLDEST,
        found.offset,
        isolation=Isolation.ALL,
        form=Form.JSON,
        rows=1,
    )
    return query.path()
