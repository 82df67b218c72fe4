"""The records of `__consumer_offsets` that say what a group of the consumer protocol is (KIP-848).

| key | names | value, version 0 |
|---|---|---|
| 3 | group | the group's epoch, and the hash of its topics (`metadata_hash.py`) |
| 4 | group | its topics, of Apache Kafka before 4.1; read, and never written but as null |
| 5 | group, member | what the member is, and what it subscribes to |
| 6 | group | the epoch of the target assignment, and when it was computed |
| 7 | group, member | the target assignment of the member |
| 8 | group, member | the member's epochs and state, what it owns and what it has to give up |
| 16 | group, expression | the topics that a regular expression matches |

Keys are not flexible, values are (KIP-482); a null value removes what the key names. The bytes are
those of Apache Kafka 4.3, read and written; tagged fields and versions that we do not know are
skipped and read as the one that we know, as Apache Kafka does.

The bytes come from a disk and are hostile: a length is compared with the bytes that are left before
it is used, texts are those of the protocol, and numbers have the signs that they can have. What
does not fit is a `RecordError`, which costs one group, not the partition. Pure functions; any
thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.group.group_records import RecordError
from kbroker.outside_text import can_be_told, printable
from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    bytes_,
    int8,
    int32,
    int64,
    string,
    uuid,
)
from kbroker.protocol.messages.table import struct as struct_
from kbroker.protocol.wire import ProtocolError

VALUE_VERSION: Final = 0
# Of a member that is to come back under its instance id.
AWAY_EPOCH: Final = -2

_VERSION: Final = struct.Struct(">h")
_NO_TAGS: Final = b"\0"
# One tagged field, 0, of one byte: null. Apache Kafka writes it for members of the protocol.
_NO_CLASSIC_METADATA: Final = b"\1\0\1\0"


class Kind(IntEnum):
    """The version of a key: what its record says."""

    GROUP = 3
    TOPICS_BEFORE_4_1 = 4
    MEMBER = 5
    TARGET = 6
    TARGET_OF_MEMBER = 7
    CURRENT_OF_MEMBER = 8
    EXPRESSION = 16


class MemberState(IntEnum):
    """What a member waits for."""

    STABLE = 0
    UNREVOKED = 1  # it still owns partitions that it has to give up
    UNRELEASED = 2  # another member still owns partitions that it is to have


class RecordKey(NamedTuple):
    """`item` is the id of a member, or the expression; "" where the kind has none."""

    kind: Kind
    group_id: str
    item: str = ""


class GroupValue(Message, versions=(0, 0), flexible=0):
    """`metadata_hash` 0: not known, as in records of Apache Kafka before 4.1, or no topics."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0, default=0)


class RacksOfPartition(Record):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicBefore41(Record):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[RacksOfPartition] = array(RacksOfPartition)


class TopicsBefore41Value(Message, versions=(0, 0), flexible=0):
    topics: list[TopicBefore41] = array(TopicBefore41)


class ClassicProtocol(Record):
    name: str = string()
    metadata: bytes = bytes_()


class ClassicMember(Record):
    """What a member of the classic protocol has besides."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class MemberValue(Message, versions=(0, 0), flexible=0):
    """Names of topics are sorted. Apache Kafka writes "" where there is no expression."""

    instance_id: str | None = string(null=0, default=None)
    rack_id: str | None = string(null=0, default=None)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(null=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(null=0, default=None)
    classic_member_metadata: ClassicMember | None = struct_(
        ClassicMember, null=0, tag=0, default=None
    )


class TargetValue(Message, versions=(0, 0), flexible=0):
    """`assignment_timestamp_ms` 0: not known, as in records of Apache Kafka before 4.3."""

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0, default=0)


class TargetPartitions(Record):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class TargetOfMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[TargetPartitions] = array(TargetPartitions)


class OwnedPartitions(Record):
    """`assignment_epochs`: of each partition the member's epoch when it was handed over, in the
    order of `partitions`; none in records of Apache Kafka before 4.3 (KIP-1251)."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null=0, tag=0)


class CurrentOfMemberValue(Message, versions=(0, 0), flexible=0):
    """`state` is a `MemberState`."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[OwnedPartitions] = array(OwnedPartitions)
    partitions_pending_revocation: list[OwnedPartitions] = array(OwnedPartitions)


class ExpressionValue(Message, versions=(0, 0), flexible=0):
    """`version` is that of the metadata that the topics were found in."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp_ms: int = int64()


Value = (
    GroupValue
    | TopicsBefore41Value
    | MemberValue
    | TargetValue
    | TargetOfMemberValue
    | CurrentOfMemberValue
    | ExpressionValue
)


class _GroupKey(Message, versions=(0, 0)):
    group_id: str = string()


class _ItemKey(Message, versions=(0, 0)):
    group_id: str = string()
    item: str = string()


_VALUES: Final[dict[Kind, type[Value]]] = {
    Kind.GROUP: GroupValue,
    Kind.TOPICS_BEFORE_4_1: TopicsBefore41Value,
    Kind.MEMBER: MemberValue,
    Kind.TARGET: TargetValue,
    Kind.TARGET_OF_MEMBER: TargetOfMemberValue,
    Kind.CURRENT_OF_MEMBER: CurrentOfMemberValue,
    Kind.EXPRESSION: ExpressionValue,
}
_KINDS: Final = {int(kind): kind for kind in Kind}
_OF_ITEMS: Final = frozenset(
    {Kind.MEMBER, Kind.TARGET_OF_MEMBER, Kind.CURRENT_OF_MEMBER, Kind.EXPRESSION}
)
_STATES: Final = frozenset(int(state) for state in MemberState)


def encode_key(key: RecordKey) -> bytes:
    if key.kind in _OF_ITEMS:
        body = _ItemKey(group_id=key.group_id, item=key.item).encode(0)
    else:
        body = _GroupKey(group_id=key.group_id).encode(0)
    return _VERSION.pack(key.kind) + body


def decode_key(data: bytes) -> RecordKey | None:
    """What the key names; None for a key of another kind, which a load skips."""
    kind = _KINDS.get(_version(data))
    if kind is None:
        return None
    body = data[_VERSION.size :]
    try:
        if kind in _OF_ITEMS:
            named = _ItemKey.decode(body, 0)
            key = RecordKey(kind, named.group_id, named.item)
        else:
            key = RecordKey(kind, _GroupKey.decode(body, 0).group_id)
    except ProtocolError as error:
        raise RecordError(f"the key of a consumer group's record: {error}") from error
    if not (can_be_told(key.group_id) and can_be_told(key.item)):
        raise RecordError(f"a key of group {printable(key.group_id)} cannot be sent in an answer")
    return key


def encode_value(value: Value) -> bytes:
    body = value.encode(VALUE_VERSION)
    if isinstance(value, MemberValue) and value.classic_member_metadata is None:
        body = body[: -len(_NO_TAGS)] + _NO_CLASSIC_METADATA
    return _VERSION.pack(VALUE_VERSION) + body


def decode_value(key: RecordKey, data: bytes) -> Value:
    """The value of a record with that key, of the class that belongs to its kind."""
    if _version(data) < VALUE_VERSION:
        raise RecordError(f"{_name(key)} is stored in version {_version(data)}")
    try:
        value = _VALUES[key.kind].decode(data[_VERSION.size :], VALUE_VERSION)
    except ProtocolError as error:
        raise RecordError(f"{_name(key)}: {error}") from error
    fault = _fault(value)
    if fault is not None:
        raise RecordError(f"{_name(key)}: {fault}")
    return value


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise RecordError(f"a key or value of {len(data)} bytes")
    return int(_VERSION.unpack_from(data)[0])


def _name(key: RecordKey) -> str:
    item = f" {printable(key.item)}" if key.item else ""
    return f"{key.kind.name.lower()}{item} of group {printable(key.group_id)}"


def _fault(value: Value) -> str | None:
    """Why it cannot be what a coordinator wrote."""
    match value:
        case GroupValue(epoch=epoch) if epoch < 0:
            return f"epoch {epoch}"
        case TargetValue(assignment_epoch=epoch) if epoch < 0:
            return f"epoch {epoch}"
        case TargetOfMemberValue(topic_partitions=topics):
            return _fault_of_partitions(topics)
        case CurrentOfMemberValue():
            if value.member_epoch < AWAY_EPOCH or value.previous_member_epoch < AWAY_EPOCH:
                return f"epochs {value.member_epoch} and {value.previous_member_epoch}"
            if value.state not in _STATES:
                return f"state {value.state}"
            both = (value.assigned_partitions, value.partitions_pending_revocation)
            return next(filter(None, map(_fault_of_partitions, both)), None)
        case MemberValue():
            texts = (
                value.instance_id, value.rack_id, value.client_id, value.client_host,
                value.subscribed_topic_regex, value.server_assignor, *value.subscribed_topic_names,
            )  # fmt: skip
            return _fault_of_texts(texts)
        case ExpressionValue():
            return _fault_of_texts(value.topics)
    return None


def _fault_of_texts(texts: Iterable[str | None]) -> str | None:
    return None if all(map(can_be_told, texts)) else "a text that cannot be sent in an answer"


def _fault_of_partitions(topics: Sequence[TargetPartitions | OwnedPartitions]) -> str | None:
    for each in topics:
        if each.topic_id is None:
            return "partitions of a topic without an id"
        if each.partitions and min(each.partitions) < 0:
            return f"partition {min(each.partitions)}"
        epochs = each.assignment_epochs if isinstance(each, OwnedPartitions) else None
        if epochs and len(epochs) != len(each.partitions):
            return f"{len(epochs)} epochs of {len(each.partitions)} partitions"
    return None
