"""DescribeTopicPartitions (75): topics in the order of their names, so many partitions at a time.

A request names topics, or none for all, and how many partitions it wants to see at most, which
`max.request.partition.size.limit` bounds. What did not fit is asked for next with the cursor of the
answer: the topic to go on with and its first partition. The cursor's topic must be among those
named; without names the topics from its name on are told, so one that was deleted meanwhile is no
error. What is not there (3) or cannot be (17) takes an entry and no partition from the limit.

Trouble with the request as a whole is told for each topic it names; there is no other place for it.
An empty name makes all of it UNKNOWN_SERVER_ERROR, as Apache Kafka has it.

Everything is read from one image. Any handler thread, no lock. An answer's cost is bounded by the
limit; names, of which there may be any number, are sorted in small portions, so that no step holds
the GIL for long.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.metadata_cache import (
    NO_NODE,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    brokers_on,
)
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol.wire import Reader, Writer, encode_array_length

if TYPE_CHECKING:
    from uuid import UUID

    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage

SORTED_AT_ONCE: Final = 500
_PARTITION_HEAD: Final = struct.Struct(">hiii")
# Eligible leader replicas, now and last known: none, and not unknown, in a cluster without them.
_NO_ELIGIBLE_REPLICAS: Final = b"\x01\x01"
_NO_TAGS: Final = b"\x00"

Cursor = tuple[str, int]


class _Asked(NamedTuple):
    names: list[str]
    limit: int
    cursor: Cursor | None


def _decode(request: ColdRequest) -> _Asked:
    reader = Reader(request.body, flexible=True)
    names = []
    for _ in range(reader.array()):
        names.append(reader.string())
        reader.tags()
    limit = reader.int32()
    cursor: Cursor | None = None
    if reader.int8() >= 0:  # else there is none
        cursor = (reader.string(), reader.int32())
        reader.tags()
    reader.tags()
    return _Asked(names, limit, cursor)


def handle(services: Services, request: ColdRequest) -> None:
    asked = _decode(request)
    limit = min(asked.limit, services.config["max.request.partition.size.limit"])
    image = services.controller.image
    named = dict.fromkeys(asked.names)
    if "" in named:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    first: Cursor = ("", 0)
    if asked.cursor is not None:
        first = asked.cursor
        if first[1] < 0 or (named and first[0] not in named):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    names = _in_order(name for name in named or image.topics if name >= first[0])
    seen = brokers_on(image, request.listener, services.node_id)
    topics, following = _describe(image, seen.reached, names, first, max(1, limit))
    request.respond(_encode(topics, following))


def _in_order(names: Iterable[str]) -> Iterator[str]:
    """Sorted, as far as anybody asks, in portions that are sorted in one go."""
    left = iter(names)
    portions: list[list[str]] = []
    while portion := list(islice(left, SORTED_AT_ONCE)):
        portion.sort()
        portions.append(portion)
    return heapq.merge(*portions)


def _describe(
    image: ClusterImage, reached: frozenset[int], names: Iterator[str], first: Cursor, limit: int
) -> tuple[list[bytes], Cursor | None]:
    """Each topic's bytes, and where to go on if not all of it fits."""
    partitions = _Partitions(reached)
    topics: list[bytes] = []
    for name in names:
        if limit == 0:
            return topics, (name, 0)
        topic = image.topic(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        begin = first[1] if name == first[0] else 0
        shown = topic.partitions[begin : begin + limit]
        topics.append(_found(topic, [partitions.encode(each) for each in shown]))
        limit -= len(shown)
        if begin + len(shown) < len(topic.partitions):
            return topics, (name, begin + len(shown))
    return topics, None


def _found(topic: TopicImage, partitions: list[bytes]) -> bytes:
    return _topic(ErrorCode.NONE, topic.name, topic.topic_id, partitions, internal=topic.internal)


def _missing(name: str) -> bytes:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if invalid_topic_name(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _topic(code, name, None, [], internal=name in INTERNAL_TOPICS)


def _topic(
    code: ErrorCode,
    name: str,
    topic_id: UUID | None,
    partitions: list[bytes],
    *,
    internal: bool,
    operations: int = TOPIC_OPERATIONS,
) -> bytes:
    out = Writer(flexible=True)
    out.int16(code)
    out.string(name)
    out.uuid(topic_id)
    out.boolean(internal)
    out.array(len(partitions))
    out.raw(b"".join(partitions))
    out.int32(operations)
    out.tags()
    return out.getvalue()


class _Partitions:
    """Encodes partitions; lists of nodes are few and encoded once."""

    def __init__(self, reached: frozenset[int]) -> None:
        self._reached = reached
        self._nodes: dict[tuple[int, ...], bytes] = {}

    def encode(self, partition: PartitionImage) -> bytes:
        # That there is no leader is all that is said of it; Apache Kafka tells no error either.
        leader = partition.leader if partition.leader in self._reached else NO_NODE
        offline = tuple(node for node in partition.replicas if node not in self._reached)
        return (
            _PARTITION_HEAD.pack(ErrorCode.NONE, partition.index, leader, partition.leader_epoch)
            + self._list(partition.replicas)
            + self._list(partition.isr)
            + _NO_ELIGIBLE_REPLICAS
            + self._list(offline)
            + _NO_TAGS
        )

    def _list(self, nodes: tuple[int, ...]) -> bytes:
        encoded = self._nodes.get(nodes)
        if encoded is None:
            encoded = encode_array_length(len(nodes), flexible=True)
            encoded += struct.pack(f">{len(nodes)}i", *nodes)
            self._nodes[nodes] = encoded
        return encoded


def _encode(topics: list[bytes], following: Cursor | None) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)
    out.array(len(topics))
    out.raw(b"".join(topics))
    if following is None:
        out.int8(-1)
    else:
        out.int8(1)
        out.string(following[0])
        out.int32(following[1])
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    topics = [
        _topic(code, name, None, [], internal=False, operations=OPERATIONS_NOT_ASKED)
        for name in _decode(request).names
    ]
    return _encode(topics, None)
