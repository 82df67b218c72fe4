"""ElectLeaders (43): have the preferred replica lead, or any replica that lives (KIP-183, KIP-460).

A partition whose leader is the one that would be elected needs no election, which is an answer of
its own; so it is for every partition of a cluster of one broker. Where nobody can be elected the
answer says which kind of replica is missing. Asked for all partitions (null), those that need none
are left out of the answer, as Apache Kafka does, and their topics are not.

Most answers are in the image: what does not exist, or has the leader that was asked for. Only what
is left, each partition once, is handed to the controller, whose thread answers then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import Reply, answer_in_time, told
from kbroker.metadata.controller.partition_states import ELECTION_NOT_NEEDED
from kbroker.metadata.image import NO_LEADER
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.controller.events import Outcomes
    from kbroker.metadata.image import ClusterImage, PartitionImage

PREFERRED: Final = 0
UNCLEAN: Final = 1
_SINCE_KIND: Final = 1

# (partition, code, message)
Outcome = tuple[int, ErrorCode, str | None]


class Asked(NamedTuple):
    kind: int
    topics: list[tuple[str, list[int]]] | None  # None: every partition
    timeout_ms: int


def decode(request: ColdRequest) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.ELECT_LEADERS, version))
    kind = reader.int8() if version >= _SINCE_KIND else PREFERRED
    count = reader.nullable_array()
    topics: list[tuple[str, list[int]]] | None = None if count is None else []
    for _ in range(count or 0):
        name = reader.string()
        partitions = [reader.int32() for _ in range(reader.array())]
        reader.tags()
        if topics is not None:
            topics.append((name, partitions))
    timeout_ms = reader.int32()
    reader.tags()
    return Asked(kind, topics, timeout_ms)


def handle(services: Services, request: ColdRequest) -> None:
    asked = decode(request)
    if asked.kind not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election of type {asked.kind}")
    if asked.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    image = services.controller.image
    topics = asked.topics
    if topics is None:
        topics = [(name, _to_elect(image, name, asked.kind)) for name in sorted(image.topics)]
    wanted = _wanted(image, topics, asked.kind)
    if not wanted:
        request.respond(_encode(request.api_version, ErrorCode.NONE, _told(image, topics, {})))
        return
    reply = Reply(request, failure)
    with reply:

        def finish(elections: Outcomes) -> bytes:
            outcomes = dict(elections)
            return _encode(request.api_version, ErrorCode.NONE, _told(image, topics, outcomes))

        done = answer_in_time(services, reply, asked.timeout_ms, finish)
        services.controller.elect_leaders(asked.kind == UNCLEAN, wanted, done)


def _to_elect(image: ClusterImage, name: str, kind: int) -> list[int]:
    return [each.index for each in image.topics[name].partitions if not _stands(each, kind)]


def _wanted(
    image: ClusterImage, topics: list[tuple[str, list[int]]], kind: int
) -> list[TopicPartition]:
    """What the controller must decide."""
    wanted: dict[TopicPartition, None] = {}
    for name, indexes in topics:
        for index in indexes:
            partition = image.partition(name, index)
            if partition is not None and not _stands(partition, kind):
                wanted[TopicPartition(name, index)] = None
    return list(wanted)


def _told(
    image: ClusterImage,
    topics: list[tuple[str, list[int]]],
    decided: Mapping[TopicPartition, KafkaError | None],
) -> list[tuple[str, list[Outcome]]]:
    return [
        (name, [_outcome(image, name, index, decided) for index in indexes])
        for name, indexes in topics
    ]


def _outcome(
    image: ClusterImage,
    name: str,
    index: int,
    decided: Mapping[TopicPartition, KafkaError | None],
) -> Outcome:
    if image.partition(name, index) is None:
        what = f"partition {name}-{index}" if name in image.topics else f"topic '{name}'"
        return index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}"
    error = decided.get(TopicPartition(name, index), ELECTION_NOT_NEEDED)
    return (index, ErrorCode.NONE, None) if error is None else (index, error.code, error.message)


def _stands(partition: PartitionImage, kind: int) -> bool:
    """An unclean election is for partitions without a leader only."""
    if kind == PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader != NO_LEADER


def _encode(version: int, code: ErrorCode, results: list[tuple[str, list[Outcome]]]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.ELECT_LEADERS, version))
    out.int32(0)  # throttle time
    if version >= _SINCE_KIND:
        out.int16(code)
    out.array(len(results))
    for name, outcomes in results:
        out.string(name)
        out.array(len(outcomes))
        for index, each, message in outcomes:
            out.int32(index)
            out.int16(each)
            out.string(told(message))
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    """Every partition that was named gets the code, beside the request itself."""
    topics = decode(request).topics or []
    words = message if message and message != code.name else None
    results = [(name, [(index, code, words) for index in indexes]) for name, indexes in topics]
    return _encode(request.api_version, code, results)
