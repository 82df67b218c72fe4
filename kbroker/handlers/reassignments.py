"""Reassignments of partitions to other brokers (KIP-455): asked for (45), and those under way (46).

AlterPartitionReassignments has the controller decide (`metadata/controller/reassignment.py`), for
each partition by itself; a cancellation is a list that is null. Its answer says that a partition is
on its way, not that it has come there: ListPartitionReassignments, of which no name is looked at,
says which have not. What is there already is no change and no error, as by Apache Kafka.

Both are the controller's to answer. Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, answer_in_time, told
from kbroker.metadata.controller.events import Reassignment
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller.events import Outcomes
    from kbroker.metadata.image import ClusterImage, PartitionImage

_SINCE_REPLICATION_FACTOR: Final = 1  # may a partition get more or fewer replicas?

# (partition, wanted replicas; None: cancel)
Wanted = tuple[int, list[int] | None]
# (partition, code, message)
Outcome = tuple[int, ErrorCode, str | None]


class Asked(NamedTuple):
    timeout_ms: int
    replication_factor_may_change: bool
    topics: list[tuple[str, list[Wanted]]]


def decode_alter(request: ColdRequest) -> Asked:
    reader = Reader(request.body, flexible=True)
    timeout_ms = reader.int32()  # how long the controller may take
    may_change = reader.boolean() if request.api_version >= _SINCE_REPLICATION_FACTOR else True
    topics = []
    for _ in range(reader.array()):
        name = reader.string()
        wanted: list[Wanted] = []
        for _ in range(reader.array()):
            index = reader.int32()
            count = reader.nullable_array()
            replicas = None if count is None else [reader.int32() for _ in range(count)]
            wanted.append((index, replicas))
            reader.tags()
        topics.append((name, wanted))
        reader.tags()
    reader.tags()
    return Asked(timeout_ms, may_change, topics)


def handle_alter(services: Services, request: ColdRequest) -> None:
    asked = decode_alter(request)
    if asked.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    wanted = [
        Reassignment(TopicPartition(name, index), None if replicas is None else tuple(replicas))
        for name, each in asked.topics
        for index, replicas in each
    ]
    reply = Reply(request, alter_failure)
    with reply:

        def finish(outcomes: Outcomes) -> bytes:
            results = _by_topic(asked, outcomes)
            message = None if results else ""  # as Apache Kafka has it
            return _encode_alter(request.api_version, asked, ErrorCode.NONE, message, results)

        done = answer_in_time(services, reply, asked.timeout_ms, finish)
        services.controller.reassign(wanted, asked.replication_factor_may_change, done)


def _by_topic(asked: Asked, outcomes: Outcomes) -> list[tuple[str, list[Outcome]]]:
    left = iter(outcomes)
    return [
        (name, [_outcome(index, next(left)[1]) for index, _ in wanted])
        for name, wanted in asked.topics
    ]


def _outcome(index: int, error: KafkaError | None) -> Outcome:
    if error is None:
        return index, ErrorCode.NONE, None
    return index, error.code, None if error.message == error.code.name else error.message


def _encode_alter(
    version: int,
    asked: Asked,
    code: ErrorCode,
    message: str | None,
    results: list[tuple[str, list[Outcome]]],
) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    if version >= _SINCE_REPLICATION_FACTOR:
        out.boolean(asked.replication_factor_may_change)
    out.int16(code)
    out.string(told(message))
    out.array(len(results))
    for name, outcomes in results:
        out.string(name)
        out.array(len(outcomes))
        for index, each, words in outcomes:
            out.int32(index)
            out.int16(each)
            out.string(told(words))
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def alter_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """Every partition that was named gets the code, beside the request itself."""
    asked = decode_alter(request)
    words = message if message and message != code.name else None
    results = [
        (name, [(index, code, words) for index, _ in wanted]) for name, wanted in asked.topics
    ]
    return _encode_alter(request.api_version, asked, code, words, results)


def decode_list(request: ColdRequest) -> list[tuple[str, list[int]]] | None:
    """The partitions that are asked for; None: all."""
    reader = Reader(request.body, flexible=True)
    reader.int32()  # how long the controller may take
    count = reader.nullable_array()
    asked = []
    for _ in range(count or 0):
        name = reader.string()
        asked.append((name, [reader.int32() for _ in range(reader.array())]))
        reader.tags()
    reader.tags()
    return None if count is None else asked


def handle_list(services: Services, request: ColdRequest) -> None:
    asked = decode_list(request)
    image = services.controller.image
    request.respond(_encode_list(ErrorCode.NONE, None, _under_way(image, asked)))


def _under_way(
    image: ClusterImage, asked: list[tuple[str, list[int]]] | None
) -> list[tuple[str, list[PartitionImage]]]:
    """Of the partitions that are asked for, or of all, those that are reassigned."""
    found = []
    for name, indexes in [(name, None) for name in image.topics] if asked is None else asked:
        topic = image.topic(name)
        if topic is None:
            continue
        if indexes is None:
            partitions = topic.partitions
        else:
            known = (image.partition(name, index) for index in indexes)
            partitions = tuple(each for each in known if each is not None)
        if moving := [each for each in partitions if each.is_reassigned]:
            found.append((name, moving))
    return found


def _encode_list(
    code: ErrorCode,
    message: str | None,
    topics: Sequence[tuple[str, Sequence[PartitionImage]]] = (),
) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    out.array(len(topics))
    for name, partitions in topics:
        out.string(name)
        out.array(len(partitions))
        for each in partitions:
            out.int32(each.index)
            for nodes in (each.replicas, each.adding, each.removing):
                out.array(len(nodes))
                for node in nodes:
                    out.int32(node)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def list_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode_list(code, message or None)
