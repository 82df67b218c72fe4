"""OffsetCommit (8): how far a group has read.

What the compiled path cannot decide comes here, whole; this file is the authority, and what C
answers are its bytes. Who may commit is asked of the group, and checked again under the lock under
which the offsets are written, as C does: between the two the member may have been fenced, or the
group deleted. An offset is in the log before it is answered, and its followers have it, as
acks=-1 asks.

A partition that does not exist is refused alone (3, by id 100), and so is a text longer than
`offset.metadata.max.bytes` (12). An error of the group itself is the error of all other partitions.
The answer has the partitions that do not exist first, as in Apache Kafka, then the answers of the
coordinator; a topic with both kinds has one entry.

Versions 2 to 10: a retention of its own from 2 to 4, leader epochs from 6, group instance ids from
7, topic ids for names in 10. Any handler thread; holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group._groups import CommittedOffset
from kbroker.coordinator.group.messages import Admission, CommitAsked
from kbroker.coordinator.group.seams import Committer
from kbroker.coordinator.runtime._shard_table import Written
from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.protocol.messages.offset_commit import (
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        Request,
        Response,
    )

_SINCE_TOPIC_ID: Final = 10
_NO_RETENTION: Final = -1
_NO_END_MS: Final = 2**63 - 1  # a retention may be as long as a number can say
_NO_LEADER_EPOCH: Final = -1
# A group may change between the check and the write, and is then asked again.
_CHECKS_MAX: Final = 3

# A topic as a request names it: a name, or from version 10 on its id.
TopicKey = str | UUID | None


class Answered(NamedTuple):
    """A topic of the answer: (partition, error) in order."""

    key: TopicKey
    partitions: list[tuple[int, ErrorCode]]


class Wanted(NamedTuple):
    """A topic that is there, and its partitions as they were asked."""

    topic: TopicImage
    key: TopicKey
    partitions: list[OffsetCommitRequestPartition]


def _key(version: int, topic: OffsetCommitRequestTopic) -> TopicKey:
    return topic.topic_id if version >= _SINCE_TOPIC_ID else topic.name


def handle(services: Services, call: Call[Request]) -> None:
    missing, there = _sorted_out(services, call)

    def answer(answered: list[Answered]) -> None:
        call.answer(response_of(_merged(missing, answered)))

    if there:
        _commit(services, call, there, answer)
    else:
        answer([])


def _sorted_out(services: Services, call: Call[Request]) -> tuple[list[Answered], list[Wanted]]:
    """What is not there, with its error, a topic once; and what is, as it was asked."""
    image = services.controller.image
    by_id = call.version >= _SINCE_TOPIC_ID
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing: dict[TopicKey, Answered] = {}
    there = []
    keys = [_key(call.version, asked) for asked in call.message.topics]
    hidden = _hidden(services, call, keys)
    for asked, key in zip(call.message.topics, keys, strict=True):
        partitions = asked.partitions
        topic = _topic_of(image, key)
        name = key if isinstance(key, str) else topic and topic.name
        if name in hidden:
            answered = missing.setdefault(key, Answered(key, []))
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answered.partitions.extend((each.partition_index, refused) for each in partitions)
            continue
        if topic is None:
            answered = missing.setdefault(key, Answered(key, []))
            answered.partitions.extend((each.partition_index, unknown) for each in partitions)
            continue
        count = len(topic.partitions)
        found = []
        for partition in partitions:
            if 0 <= partition.partition_index < count:
                found.append(partition)
                continue
            answered = missing.setdefault(key, Answered(key, []))
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered.partitions.append((partition.partition_index, error))
        if found:
            there.append(Wanted(topic, key, found))
    return list(missing.values()), there


def _topic_of(image: ClusterImage, key: TopicKey) -> TopicImage | None:
    if isinstance(key, str):
        return image.topic(key)
    return None if key is None else image.topic_by_id(key)


def _hidden(services: Services, call: Call[Request], keys: Sequence[TopicKey]) -> frozenset[str]:
    """The names of those that the client may not read."""
    if services.authorizer is None:
        return frozenset()
    image = services.controller.image
    names: list[str] = []
    for key in keys:
        topic = _topic_of(image, key)
        if isinstance(key, str):
            names.append(key)
        elif topic is not None:
            names.append(topic.name)
    return denied(services, call, Operation.READ, ResourceType.TOPIC, names)


def _commit(
    services: Services,
    call: Call[Request],
    topics: list[Wanted],
    answer: Callable[[list[Answered]], None],
) -> None:
    asked = call.message
    for times in range(_CHECKS_MAX):
        admission, answered, offsets = _checked(services, call, topics)
        committer = Committer(
            asked.member_id,
            asked.group_instance_id,
            admission.generation,
            checked_twice=times > 0 or admission.is_final,
        )
        written = Written()
        refused = 0
        if offsets:
            refused = services.offsets.commit(asked.group_id, offsets, written, committer)
        if refused != ErrorCode.ILLEGAL_GENERATION:
            break
    else:
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the group changes faster than we look
    if not offsets:
        answer(answered)
        return
    services.offsets.when_replicated(
        written, refused, lambda code: answer(_with_error(answered, code) if code else answered)
    )


def _checked(
    services: Services, call: Call[Request], topics: list[Wanted]
) -> tuple[Admission, list[Answered], list[CommittedOffset]]:
    """What the group says now: the answer, and what is to be written for it."""
    asked = call.message
    longest = services.config["offset.metadata.max.bytes"]
    admission = services.groups.admit_commit(
        CommitAsked(
            asked.group_id,
            asked.member_id,
            asked.group_instance_id,
            asked.generation_id_or_member_epoch,
            partial(_named, topics),
            call.version,
            make=any(_chars(each) <= longest for wanted in topics for each in wanted.partitions),
        )
    )
    code = admission.code
    now_ms = services.clock.wall_ms()
    expire_ms = -1
    if asked.retention_time_ms != _NO_RETENTION:
        expire_ms = min(now_ms + asked.retention_time_ms, _NO_END_MS)
    answered: list[Answered] = []
    offsets: list[CommittedOffset] = []
    for topic, key, partitions in topics:
        errors: list[tuple[int, ErrorCode]] = []
        for partition in partitions:
            error = code
            if not code and _chars(partition) > longest:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            errors.append((partition.partition_index, error))
            if not error:
                offsets.append(_committed(topic, partition, now_ms, expire_ms))
        answered.append(Answered(key, errors))
    return admission, answered, offsets


def _named(topics: list[Wanted]) -> Iterator[tuple[UUID, int]]:
    for wanted in topics:
        for each in wanted.partitions:
            yield wanted.topic.topic_id, each.partition_index


def _with_error(answered: list[Answered], code: ErrorCode) -> list[Answered]:
    """What has no error of its own has this one."""
    return [
        Answered(key, [(index, error or code) for index, error in errors])
        for key, errors in answered
    ]


def _committed(
    topic: TopicImage, partition: OffsetCommitRequestPartition, now_ms: int, expire_ms: int
) -> CommittedOffset:
    # The record of an offset with a time of its own has no room for the leader epoch.
    lasting = expire_ms == -1
    return CommittedOffset(
        topic=topic.name,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch if lasting else _NO_LEADER_EPOCH,
        metadata=partition.committed_metadata or "",
        commit_ms=now_ms,
        expire_ms=expire_ms,
        topic_id=topic.topic_id.bytes,
    )


def _chars(partition: OffsetCommitRequestPartition) -> int:
    """The length of its metadata as Java counts."""
    text = partition.committed_metadata or ""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def _merged(missing: list[Answered], answered: list[Answered]) -> list[Answered]:
    if not missing:
        return answered
    by_key = {topic.key: topic for topic in missing}
    for topic in answered:
        known = by_key.setdefault(topic.key, topic)
        if known is not topic:
            known.partitions.extend(topic.partitions)
    return list(by_key.values())


def response_of(topics: list[Answered]) -> Response:
    table = messages.offset_commit
    return table.Response(
        topics=[
            table.OffsetCommitResponseTopic(
                name=key if isinstance(key, str) else "",
                topic_id=None if isinstance(key, str) else key,
                partitions=[
                    table.OffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index, error in partitions
                ],
            )
            for key, partitions in topics
        ]
    )


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """A partition that is named twice is answered twice."""
    return response_of(
        [
            Answered(
                _key(call.version, topic), [(p.partition_index, code) for p in topic.partitions]
            )
            for topic in call.message.topics
        ]
    )
