"""Reassignments of partitions to other brokers: asked for (45), and those under way (46).

AlterPartitionReassignments: in a cluster of one broker every partition has its one replica there,
and there is nowhere else to go. So whoever asks for that place gets what it has, which is done at
once and no change, as by Apache Kafka; any other place is refused for naming a broker that is not
there.
Nothing is ever under way: a cancellation (null replicas) finds none, and ListPartitionReassignments
lists none. That one does not look at names: what does not move is left out, whether it is there or
not.

Any handler thread; reads the image only, holds no lock; does not import the schema library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import told
from kbroker.protocol.wire import Reader, Writer

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage

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
    image = services.controller.image
    results = [
        (name, [_alter(image, name, index, replicas) for index, replicas in wanted])
        for name, wanted in asked.topics
    ]
    message = None if results else ""  # as Apache Kafka has it
    request.respond(_encode_alter(request.api_version, asked, ErrorCode.NONE, message, results))


def _alter(image: ClusterImage, name: str, index: int, replicas: list[int] | None) -> Outcome:
    partition = image.partition(name, index)
    if partition is None:
        what = f"partition {name}-{index}" if name in image.topics else f"topic '{name}'"
        return index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}"
    if replicas is None:
        return index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if problem := _problem(image, replicas):
        return index, ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
    if tuple(replicas) != partition.replicas:
        problem = "this broker moves no partition between brokers yet"
        return index, ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem
    return index, ErrorCode.NONE, None


def _problem(image: ClusterImage, replicas: list[int]) -> str | None:
    if not replicas:
        return "the list of replicas is empty: name at least one broker"
    if len(set(replicas)) != len(replicas):
        return "a broker is named more than once"
    for node_id in replicas:
        if node_id not in image.brokers:
            return f"there is no broker {node_id}"
    return None


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
    decode_list(request)
    request.respond(_encode_list(ErrorCode.NONE, None))


def _encode_list(code: ErrorCode, message: str | None) -> bytes:
    out = Writer(flexible=True)
    out.int32(0)  # throttle time
    out.int16(code)
    out.string(told(message))
    out.array(0)
    out.tags()
    return out.getvalue()


def list_failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return _encode_list(code, message or None)
