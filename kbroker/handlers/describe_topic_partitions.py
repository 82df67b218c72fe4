"""DescribeTopicPartitions (75): topics in the order of their names, so many partitions at a time.

A request names topics, or none for all, and the number of partitions that it accepts, which
`max.request.partition.size.limit` bounds. The next request asks for the rest with the cursor of the
answer: the topic to go on with and its first partition. The cursor's topic must be among the topics
named. Without names, the answer has the topics from the cursor's name on, so a topic that was
deleted meanwhile is no error. A topic that does not exist (3) or has an invalid name (17) takes an
entry, and no partition from the limit.

An error of the whole request is answered for each topic that it names; the response has no other
field for it. An empty name makes all of it UNKNOWN_SERVER_ERROR, as in Apache Kafka.

Everything is read from one image. Any handler thread, no lock. An answer's cost is bounded by the
limit; names, of which there may be any number, are sorted in small portions, so that no step holds
the GIL for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.authorization import denied, operations_of
from kbroker.handlers.metadata_topics import NO_NODE, TOPIC_OPERATIONS, brokers_on
from kbroker.metadata.image import INTERNAL_TOPICS
from kbroker.metadata.topic_names import invalid_topic_name
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
    from kbroker.protocol.messages.describe_topic_partitions import (
        PartitionResponse,
        Request,
        Response,
        TopicResponse,
    )

SORTED_AT_ONCE: Final = 500
_ASKED_AT_ONCE: Final = 50

# A topic, and the partition with which to go on.
Place = tuple[str, int]


def handle(services: Services, call: Call[Request]) -> None:
    table = messages.describe_topic_partitions
    request = call.message
    limit = min(
        request.response_partition_limit, services.config["max.request.partition.size.limit"]
    )
    image = services.controller.image
    named = dict.fromkeys(topic.name for topic in request.topics)
    if "" in named:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    first: Place = ("", 0)
    if request.cursor is not None:
        first = request.cursor.topic_name, request.cursor.partition_index
        if first[1] < 0 or (named and first[0] not in named):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
    names = _in_order(name for name in named or image.topics if name >= first[0])
    seen = brokers_on(image, call.request.listener, services.node_id)
    hidden: frozenset[str] = frozenset()
    if named:
        asked = [name for name in named if name >= first[0]]
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, asked)
        names = (name for name in names if name not in hidden)
    elif services.authorizer is not None:
        names = _visible(services, call, names)
    topics, following = _describe(image, seen.reached, names, first, max(1, limit))
    if services.authorizer is not None:
        operations = operations_of(services, call, ResourceType.TOPIC)
        for topic in topics:
            topic.topic_authorized_operations = operations(topic.name or "")
    if named:
        topics += [_denied(name) for name in named if name in hidden]
    cursor = None
    if following is not None:
        cursor = table.Cursor(topic_name=following[0], partition_index=following[1])
    call.answer(table.Response(topics=topics, next_cursor=cursor))


def _visible(services: Services, call: Call[Request], names: Iterator[str]) -> Iterator[str]:
    """Those that the client may describe: a page asks for no more rights than it has topics."""
    while portion := list(islice(names, _ASKED_AT_ONCE)):
        hidden = denied(services, call, Operation.DESCRIBE, ResourceType.TOPIC, portion, quiet=True)
        yield from (name for name in portion if name not in hidden)


def _in_order(names: Iterable[str]) -> Iterator[str]:
    """Sorted lazily: merged from portions that are each sorted at once."""
    left = iter(names)
    portions: list[list[str]] = []
    while portion := list(islice(left, SORTED_AT_ONCE)):
        portion.sort()
        portions.append(portion)
    return heapq.merge(*portions)


def _describe(
    image: ClusterImage, reached: frozenset[int], names: Iterator[str], first: Place, limit: int
) -> tuple[list[TopicResponse], Place | None]:
    """The topics, and where to go on if not all of it fits."""
    topics: list[TopicResponse] = []
    for name in names:
        if limit == 0:
            return topics, (name, 0)
        topic = image.topic(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        begin = first[1] if name == first[0] else 0
        described = topic.partitions[begin : begin + limit]
        topics.append(_found(topic, [_partition(each, reached) for each in described]))
        limit -= len(described)
        if begin + len(described) < len(topic.partitions):
            return topics, (name, begin + len(described))
    return topics, None


def _found(topic: TopicImage, partitions: list[PartitionResponse]) -> TopicResponse:
    return messages.describe_topic_partitions.TopicResponse(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> TopicResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if invalid_topic_name(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return messages.describe_topic_partitions.TopicResponse(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _denied(name: str) -> TopicResponse:
    """Without a word about whether it is there."""
    return messages.describe_topic_partitions.TopicResponse(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _partition(partition: PartitionImage, reached: frozenset[int]) -> PartitionResponse:
    # That there is no leader is all that is said of it; Apache Kafka has no error for it either.
    leader = partition.leader if partition.leader in reached else NO_NODE
    return messages.describe_topic_partitions.PartitionResponse(
        error_code=ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        # None, and not unknown, in a cluster without eligible leader replicas.
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if node not in reached],
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """A topic that is named twice is answered twice."""
    table = messages.describe_topic_partitions
    topics = [table.TopicResponse(error_code=code, name=each.name) for each in call.message.topics]
    return table.Response(topics=topics, next_cursor=None)
