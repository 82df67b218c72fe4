"""The records of `__consumer_offsets` that say what a share group is (KIP-932).

| key | names | value, version 0 |
|---|---|---|
| 10 | group, member | what the member is, and what it subscribes to |
| 11 | group | the group's epoch, and the hash of its topics |
| 12 | group | the epoch of the target assignment, and when it was computed |
| 13 | group, member | the target assignment of the member |
| 14 | group, member | the member's epochs, and what it has |
| 15 | group | the topics whose share-partitions have a state, get one, or are to lose it |

Keys are not flexible, values are (KIP-482); a null value removes what the key names. The bytes are
those of Apache Kafka 4.3, read and written.

The bytes come from a disk and are hostile: what does not fit is a `RecordError`, which costs one
record. Pure functions; any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.consumer_group.images import GroupImage, Partitions, TargetEpoch
from kbroker.coordinator.group.group_records import RecordError
from kbroker.coordinator.share_group.images import (
    STABLE,
    ByTopic,
    CurrentImage,
    Kind,
    MemberImage,
    StateTopics,
    TopicPartitions,
    Value,
)
from kbroker.errors import InvariantError
from kbroker.outside_text import can_be_told
from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
    int32,
    int64,
    string,
    uuid,
)
from kbroker.protocol.wire import ProtocolError

VALUE_VERSION: Final = 0

_VERSION: Final = struct.Struct(">h")
_BESIDE_BYTES: Final = 20  # of a record, around its key and value
_VALUE_PREFIX: Final = _VERSION.pack(VALUE_VERSION)
_WITH_MEMBER: Final = frozenset({Kind.MEMBER, Kind.TARGET, Kind.CURRENT})


class RecordKey(NamedTuple):
    """`member_id` is "" where the kind has none."""

    kind: Kind
    group_id: str
    member_id: str = ""


class _GroupKey(Message, versions=(0, 0)):
    group_id: str = string()


class _MemberKey(Message, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class MemberValue(Message, versions=(0, 0), flexible=0):
    rack_id: str | None = string(null=0, default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class GroupValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()


class TargetValue(Message, versions=(0, 0), flexible=0):
    """`assignment_timestamp_ms` 0: not known, as in records of Apache Kafka before 4.3."""

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0, default=0)


class IdPartitions(Record):
    topic_id: UUID | None = uuid()
    partitions: list[int] = array(int32)


class TargetOfMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[IdPartitions] = array(IdPartitions)


class CurrentOfMemberValue(Message, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[IdPartitions] = array(IdPartitions)


class TopicPartitionsInfo(Record):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)


class TopicInfo(Record):
    topic_id: UUID | None = uuid()
    topic_name: str = string()


class StateTopicsValue(Message, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


_VALUES: Final[dict[Kind, type[Message]]] = {
    Kind.MEMBER: MemberValue,
    Kind.GROUP: GroupValue,
    Kind.TARGET_EPOCH: TargetValue,
    Kind.TARGET: TargetOfMemberValue,
    Kind.CURRENT: CurrentOfMemberValue,
    Kind.STATE_TOPICS: StateTopicsValue,
}


def record_of(group_id: str, change: AnyChange) -> tuple[bytes, bytes | None]:
    """The key and value that say this change."""
    kind = Kind(change.kind)
    body: Message = _GroupKey(group_id=group_id)
    if kind in _WITH_MEMBER:
        body = _MemberKey(group_id=group_id, member_id=change.key)
    key = _VERSION.pack(kind) + body.encode(0)
    if change.value is None:
        return key, None
    return key, _VALUE_PREFIX + _stored(change.value).encode(VALUE_VERSION)


def records_of(group_id: str, changes: Iterable[AnyChange]) -> list[tuple[bytes, bytes | None]]:
    return [record_of(group_id, change) for change in changes]


def record_bytes(change: AnyChange) -> int:
    """How long its record is, but for the group's id."""
    key, value = record_of("", change)
    return len(key) + len(value or b"") + _BESIDE_BYTES


def _kind_of(key: bytes) -> Kind | None:
    (version,) = _VERSION.unpack_from(key)
    return Kind(version) if Kind.MEMBER <= version <= Kind.STATE_TOPICS else None


def decode_key(key: bytes) -> RecordKey | None:
    """None: it is of another kind of group. RecordError: it cannot be read."""
    kind = _kind_of(key) if len(key) >= _VERSION.size else None
    if kind is None:
        return None
    body, member_id = key[_VERSION.size :], ""
    try:
        if kind in _WITH_MEMBER:
            of_member = _MemberKey.decode(body, 0)
            group_id, member_id = of_member.group_id, of_member.member_id
        else:
            group_id = _GroupKey.decode(body, 0).group_id
    except ProtocolError as error:
        raise RecordError(f"the key of a share group: {error}") from error
    if not can_be_told(group_id) or not can_be_told(member_id):
        raise RecordError("the key of a share group: a text that is none of the protocol")
    return RecordKey(kind, group_id, member_id)


def change_of(key: RecordKey, value: bytes | None) -> AnyChange:
    """What a record says. RecordError: it cannot be read."""
    if value is None:
        return AnyChange(key.kind, key.member_id, None)
    if len(value) < _VERSION.size or _VERSION.unpack_from(value)[0] < VALUE_VERSION:
        raise RecordError("the value of a share group: of a version below 0")
    try:
        stored = _VALUES[key.kind].decode(value[_VERSION.size :], VALUE_VERSION)
    except ProtocolError as error:
        raise RecordError(f"the value of a share group: {error}") from error
    return AnyChange(key.kind, key.member_id, _value(stored))


# --- values ---------------------------------------------------------------------------------------


def _stored(value: Value) -> Message:
    if isinstance(value, GroupImage):
        return GroupValue(epoch=value.epoch, metadata_hash=value.metadata_hash)
    if isinstance(value, MemberImage):
        return MemberValue(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=list(value.topics),
        )
    if isinstance(value, TargetEpoch):
        return TargetValue(assignment_epoch=value.epoch, assignment_timestamp_ms=value.timestamp_ms)
    if isinstance(value, CurrentImage):
        return CurrentOfMemberValue(
            member_epoch=value.epoch,
            previous_member_epoch=value.previous_epoch,
            state=STABLE,
            assigned_partitions=_by_id(value.assigned),
        )
    if isinstance(value, StateTopics):
        return StateTopicsValue(
            initializing_topics=_infos(value.initializing),
            initialized_topics=_infos(value.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in sorted(value.deleting.items(), key=lambda each: each[1])
            ],
        )
    return TargetOfMemberValue(topic_partitions=_by_id(value))


def _by_id(partitions: Partitions) -> list[IdPartitions]:
    return [
        IdPartitions(topic_id=topic_id, partitions=sorted(some))
        for topic_id, some in sorted(partitions.items(), key=lambda each: each[0].bytes)
    ]


def _infos(topics: ByTopic) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id, topic_name=some.name, partitions=sorted(some.partitions)
        )
        for topic_id, some in sorted(topics.items(), key=lambda each: each[1].name)
    ]


def _value(stored: Message) -> Value:
    match stored:
        case GroupValue():
            if stored.epoch < 0:
                raise RecordError("a share group in an epoch below 0")
            return GroupImage(stored.epoch, stored.metadata_hash)
        case MemberValue():
            names = tuple(sorted(set(stored.subscribed_topic_names)))
            return MemberImage(stored.rack_id, stored.client_id, stored.client_host, names)
        case TargetValue():
            return TargetEpoch(stored.assignment_epoch, stored.assignment_timestamp_ms)
        case TargetOfMemberValue():
            return _partitions(stored.topic_partitions)
        case CurrentOfMemberValue():
            assigned = _partitions(stored.assigned_partitions)
            return CurrentImage(stored.member_epoch, stored.previous_member_epoch, assigned)
        case StateTopicsValue():
            return StateTopics(
                _topics(stored.initializing_topics),
                _topics(stored.initialized_topics),
                {
                    each.topic_id: each.topic_name
                    for each in stored.deleting_topics
                    if each.topic_id is not None
                },
            )
    raise InvariantError(f"a value of {type(stored).__name__}")


def _checked(partitions: list[int]) -> frozenset[int]:
    if any(index < 0 for index in partitions):
        raise RecordError("a partition below 0")
    return frozenset(partitions)


def _partitions(stored: list[IdPartitions]) -> Partitions:
    return {
        each.topic_id: _checked(each.partitions)
        for each in stored
        if each.partitions and each.topic_id is not None
    }


def _topics(stored: list[TopicPartitionsInfo]) -> ByTopic:
    return {
        each.topic_id: TopicPartitions(each.topic_name, _checked(each.partitions))
        for each in stored
        if each.partitions and each.topic_id is not None
    }
