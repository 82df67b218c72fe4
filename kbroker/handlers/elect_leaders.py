"""ElectLeaders (43): have the preferred replica lead, or any replica that lives (KIP-183, KIP-460).

A partition whose leader is the one that would be elected needs no election, which is an answer of
its own; so it is for every partition of a cluster of one broker. Where nobody can be elected the
answer says which kind of replica is missing. Asked for all partitions (null), those that need none
are left out of the answer, as Apache Kafka does, and their topics are not.

Any handler thread; reads the image only. Does not import the schema library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.reply import told
from kbroker.metadata.image import NO_LEADER
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import ClusterImage, PartitionImage

PREFERRED: Final = 0
UNCLEAN: Final = 1
_SINCE_KIND: Final = 1
_NOT_NEEDED: Final = "the replica that would be elected leads already"

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
    if asked.topics is None:
        results = [
            (name, [each for each in _of_topic(image, name, asked.kind) if _failed(each)])
            for name in sorted(image.topics)
        ]
    else:
        results = [
            (name, [_elect(image, name, index, asked.kind) for index in partitions])
            for name, partitions in asked.topics
        ]
    request.respond(_encode(request.api_version, ErrorCode.NONE, results))


def _of_topic(image: ClusterImage, name: str, kind: int) -> list[Outcome]:
    count = len(image.topics[name].partitions)
    return [_elect(image, name, index, kind) for index in range(count)]


def _failed(outcome: Outcome) -> bool:
    return outcome[1] is not ErrorCode.ELECTION_NOT_NEEDED


def _elect(image: ClusterImage, name: str, index: int, kind: int) -> Outcome:
    partition = image.partition(name, index)
    if partition is None:
        what = f"partition {name}-{index}" if name in image.topics else f"topic '{name}'"
        return index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {what}"
    if _stands(partition, kind):
        return index, ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
    if kind == PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return index, code, f"replica {partition.replicas[0]}, which is preferred, cannot lead"
    return index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica that lives has the log open"


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
