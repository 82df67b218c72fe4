"""OffsetCommit (8): how far a group has read.

What the compiled path cannot decide comes here, whole; this file is the authority, and what C
answers are its bytes. Who may commit is asked of the group, and checked again under the lock under
which the offsets are written, as C does: between the two the member may have been fenced, or the
group deleted. An offset is in the log before it is answered, and its followers have it, as
acks=-1 asks.

A partition that is not there is refused alone (3, by id 100), and so is a text longer than
`offset.metadata.max.bytes` (12). What the group itself refuses is refused for all the others. In
the answer the partitions that are not there come first, as Apache Kafka puts them, then what the
coordinator has said, a topic's both kinds in one entry.

Versions 2 to 10: a retention of its own from 2 to 4, leader epochs from 6, group instance ids from
7, topic ids for names in 10. Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._groups import CommittedOffset, Written
from kbroker.coordinator.group.seams import Committer
from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services
    from kbroker.metadata.image import TopicImage

_RETENTION: Final = range(2, 5)
_SINCE_THROTTLE: Final = 3
_SINCE_LEADER_EPOCH: Final = 6
_SINCE_INSTANCE: Final = 7
_SINCE_TOPIC_ID: Final = 10
_NO_RETENTION: Final = -1
_NO_END_MS: Final = 2**63 - 1  # a retention may be as long as a number can say
_NO_LEADER_EPOCH: Final = -1
# A group may change between the check and the write, and is then asked again.
_CHECKS_MAX: Final = 3

# A topic as a request names it: a name, or from version 10 on its id.
TopicKey = str | UUID | None


class AskedPartition(NamedTuple):
    number: int
    offset: int
    leader_epoch: int
    metadata: str


class AskedTopic(NamedTuple):
    key: TopicKey
    partitions: list[AskedPartition]


class Asked(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[AskedTopic]


class Told(NamedTuple):
    """A topic of the answer: (partition, error) in order."""

    key: TopicKey
    partitions: list[tuple[int, ErrorCode]]


def decode(request: ColdRequest) -> Asked:
    version = request.api_version
    reader = Reader(request.body, flexible=is_flexible(ApiKey.OFFSET_COMMIT, version))
    group_id = reader.string()
    generation = reader.int32()
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _SINCE_INSTANCE else None
    retention_ms = reader.int64() if version in _RETENTION else _NO_RETENTION
    topics = [_decode_topic(reader, version) for _ in range(reader.array())]
    reader.tags()
    return Asked(group_id, generation, member_id, instance_id, retention_ms, topics)


def _decode_topic(reader: Reader, version: int) -> AskedTopic:
    key: TopicKey = reader.uuid() if version >= _SINCE_TOPIC_ID else reader.string()
    partitions = []
    for _ in range(reader.array()):
        index, offset = reader.int32(), reader.int64()
        epoch = reader.int32() if version >= _SINCE_LEADER_EPOCH else _NO_LEADER_EPOCH
        partitions.append(AskedPartition(index, offset, epoch, reader.nullable_string() or ""))
        reader.tags()
    reader.tags()
    return AskedTopic(key, partitions)


def handle(services: Services, request: ColdRequest) -> None:
    version = request.api_version
    asked = decode(request)
    missing, there = _sorted_out(services, version, asked.topics)
    with Reply(request, failure) as reply:

        def answer(told: list[Told]) -> None:
            reply.send(lambda: encode(version, _merged(missing, told)))

        if there:
            _commit(services, version, asked, there, answer)
        else:
            answer([])


def _sorted_out(
    services: Services, version: int, topics: list[AskedTopic]
) -> tuple[list[Told], list[tuple[TopicImage, AskedTopic]]]:
    """What is not there, with its error, a topic once; and what is, as it was asked."""
    image = services.controller.image
    by_id = version >= _SINCE_TOPIC_ID
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing: dict[TopicKey, Told] = {}
    there = []
    for key, partitions in topics:
        if isinstance(key, str):
            topic = image.topic(key)
        else:
            topic = None if key is None else image.topic_by_id(key)
        if topic is None:
            told = missing.setdefault(key, Told(key, []))
            told.partitions.extend((partition.number, unknown) for partition in partitions)
            continue
        count = len(topic.partitions)
        for partition in partitions:
            if not 0 <= partition.number < count:
                told = missing.setdefault(key, Told(key, []))
                told.partitions.append((partition.number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        found = [partition for partition in partitions if 0 <= partition.number < count]
        if found:
            there.append((topic, AskedTopic(key, found)))
    return list(missing.values()), there


def _commit(
    services: Services,
    version: int,
    asked: Asked,
    topics: list[tuple[TopicImage, AskedTopic]],
    answer: Callable[[list[Told]], None],
) -> None:
    for times in range(_CHECKS_MAX):
        committer = Committer(
            asked.member_id, asked.instance_id, asked.generation, checked_twice=times > 0
        )
        told, offsets = _checked(services, version, asked, topics)
        written = Written()
        refused = 0
        if offsets:
            refused = services.offsets.commit(asked.group_id, offsets, written, committer)
        if refused != ErrorCode.ILLEGAL_GENERATION:
            break
    else:
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the group changes faster than we look
    if not offsets:
        answer(told)
        return
    services.offsets.when_replicated(
        written, refused, lambda code: answer(_with_error(told, code) if code else told)
    )


def _checked(
    services: Services, version: int, asked: Asked, topics: list[tuple[TopicImage, AskedTopic]]
) -> tuple[list[Told], list[CommittedOffset]]:
    """What the group says now: the answer, and what is to be written for it."""
    longest = services.config["offset.metadata.max.bytes"]
    code = services.groups.check_commit(
        asked.group_id,
        asked.member_id,
        asked.instance_id,
        asked.generation,
        version,
        make=any(_chars(p.metadata) <= longest for _, (_, parts) in topics for p in parts),
    )
    now_ms = services.clock.wall_ms()
    expire_ms = -1
    if asked.retention_ms != _NO_RETENTION:
        expire_ms = min(now_ms + asked.retention_ms, _NO_END_MS)
    told: list[Told] = []
    offsets: list[CommittedOffset] = []
    for topic, (key, partitions) in topics:
        errors: list[tuple[int, ErrorCode]] = []
        for partition in partitions:
            error = code
            if not code and _chars(partition.metadata) > longest:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            errors.append((partition.number, error))
            if not error:
                offsets.append(_committed(topic, partition, now_ms, expire_ms))
        told.append(Told(key, errors))
    return told, offsets


def _with_error(told: list[Told], code: ErrorCode) -> list[Told]:
    """What has no error of its own has this one."""
    return [Told(key, [(index, error or code) for index, error in errors]) for key, errors in told]


def _committed(
    topic: TopicImage, partition: AskedPartition, now_ms: int, expire_ms: int
) -> CommittedOffset:
    # The record of an offset with a time of its own has no room for the leader epoch.
    lasting = expire_ms == -1
    return CommittedOffset(
        topic=topic.name,
        partition=partition.number,
        offset=partition.offset,
        leader_epoch=partition.leader_epoch if lasting else _NO_LEADER_EPOCH,
        metadata=partition.metadata,
        commit_ms=now_ms,
        expire_ms=expire_ms,
        topic_id=topic.topic_id.bytes,
    )


def _chars(text: str) -> int:
    """Its length as Java counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def _merged(missing: list[Told], told: list[Told]) -> list[Told]:
    if not missing:
        return told
    by_key = {topic.key: topic for topic in missing}
    for topic in told:
        known = by_key.setdefault(topic.key, topic)
        if known is not topic:
            known.partitions.extend(topic.partitions)
    return list(by_key.values())


def encode(version: int, topics: list[Told]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.OFFSET_COMMIT, version))
    if version >= _SINCE_THROTTLE:
        out.int32(0)
    out.array(len(topics))
    for key, partitions in topics:
        if isinstance(key, str):
            out.string(key)
        else:
            out.uuid(key)
        out.array(len(partitions))
        for index, error in partitions:
            out.int32(index)
            out.int16(error)
            out.tags()
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    return encode(
        request.api_version,
        [
            Told(topic.key, [(partition.number, code) for partition in topic.partitions])
            for topic in decode(request).topics
        ],
    )
