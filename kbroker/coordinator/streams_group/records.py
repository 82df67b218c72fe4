"""The records of `__consumer_offsets` that say what a streams group is (KIP-1071).

| key | names | value, version 0 |
|---|---|---|
| 17 | group | the group's epoch, the hash of its topics, the validated topology, its settings |
| 19 | group, member | what the member is, and its process |
| 20 | group | the epoch of the target assignment, and when it was computed |
| 21 | group, member | the target assignment of the member: tasks |
| 22 | group, member | the member's epochs, its state, and what it has or is to give up |
| 23 | group | the topology |

Keys are not flexible, values are (KIP-482); a null value removes what the key names. The bytes are
those of Apache Kafka 4.3, read and written.

The bytes come from a disk and are hostile: what does not fit is a `RecordError`, which costs one
record. Pure functions; any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.consumer_group.images import TargetEpoch
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.group.group_records import RecordError
from kbroker.coordinator.streams_group.images import (
    CopartitionGroup,
    CurrentImage,
    Endpoint,
    GroupImage,
    HeldTasks,
    InternalTopic,
    Kind,
    MemberImage,
    Pairs,
    Subtopology,
    TaskEpochs,
    Tasks,
    TaskSet,
    TopologyImage,
    Value,
    tasks_of,
)
from kbroker.coordinator.streams_group.topology import mistake_of
from kbroker.errors import InvariantError
from kbroker.outside_text import can_be_told
from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
)
from kbroker.protocol.messages.table import struct as struct_of
from kbroker.protocol.wire import ProtocolError

VALUE_VERSION: Final = 0

_VERSION: Final = struct.Struct(">h")
_VALUE_PREFIX: Final = _VERSION.pack(VALUE_VERSION)
_WITH_MEMBER: Final = frozenset({Kind.MEMBER, Kind.TARGET, Kind.CURRENT})
_KINDS: Final = {int(kind): kind for kind in Kind}
# The number of a stable member, from which those of the other states go on.
_FIRST_STATE: Final = 1


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


class KeyValue(Record):
    key: str = string()
    value: str = string()


class GroupValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, null=0, tag=1, default=None)


class StoredEndpoint(Record):
    host: str = string()
    port: int = uint16()


class MemberValue(Message, versions=(0, 0), flexible=0):
    instance_id: str | None = string(null=0)
    rack_id: str | None = string(null=0)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StoredEndpoint | None = struct_of(StoredEndpoint, null=0)
    client_tags: list[KeyValue] = array(KeyValue)


class TargetValue(Message, versions=(0, 0), flexible=0):
    """`assignment_timestamp_ms` 0: not known, as in records of Apache Kafka before 4.3."""

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0, default=0)


class TaskIds(Record):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class TargetOfMemberValue(Message, versions=(0, 0), flexible=0):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class HeldTaskIds(Record):
    """`assignment_epochs`: of each partition, in their order (KIP-1251); of active tasks only."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null=0, tag=0, default=None)


class CurrentOfMemberValue(Message, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[HeldTaskIds] = array(HeldTaskIds)
    standby_tasks: list[HeldTaskIds] = array(HeldTaskIds)
    warmup_tasks: list[HeldTaskIds] = array(HeldTaskIds)
    active_tasks_pending_revocation: list[HeldTaskIds] = array(HeldTaskIds)
    standby_tasks_pending_revocation: list[HeldTaskIds] = array(HeldTaskIds)
    warmup_tasks_pending_revocation: list[HeldTaskIds] = array(HeldTaskIds)


class TopicInfo(Record):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class StoredCopartitionGroup(Record):
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class StoredSubtopology(Record):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[StoredCopartitionGroup] = array(StoredCopartitionGroup)


class TopologyValue(Message, versions=(0, 0), flexible=0):
    epoch: int = int32()
    subtopologies: list[StoredSubtopology] = array(StoredSubtopology)


_VALUES: Final[dict[Kind, type[Message]]] = {
    Kind.GROUP: GroupValue,
    Kind.MEMBER: MemberValue,
    Kind.TARGET_EPOCH: TargetValue,
    Kind.TARGET: TargetOfMemberValue,
    Kind.CURRENT: CurrentOfMemberValue,
    Kind.TOPOLOGY: TopologyValue,
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


def decode_key(key: bytes) -> RecordKey | None:
    """None: it is of another kind of group. RecordError: it cannot be read."""
    kind = _KINDS.get(_VERSION.unpack_from(key)[0]) if len(key) >= _VERSION.size else None
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
        raise RecordError(f"the key of a streams group: {error}") from error
    if not can_be_told(group_id) or not can_be_told(member_id):
        raise RecordError("the key of a streams group: a text that is none of the protocol")
    return RecordKey(kind, group_id, member_id)


def change_of(key: RecordKey, value: bytes | None) -> AnyChange:
    """What a record says. RecordError: it cannot be read."""
    if value is None:
        return AnyChange(key.kind, key.member_id, None)
    if len(value) < _VERSION.size or _VERSION.unpack_from(value)[0] != VALUE_VERSION:
        raise RecordError("the value of a streams group: of a version that is not known")
    try:
        stored = _VALUES[key.kind].decode(value[_VERSION.size :], VALUE_VERSION)
    except ProtocolError as error:
        raise RecordError(f"the value of a streams group: {error}") from error
    return AnyChange(key.kind, key.member_id, _value(stored))


# --- values to bytes ------------------------------------------------------------------------------


def _stored(value: Value) -> Message:
    match value:
        case GroupImage():
            configs = None if value.configs is None else _key_values(value.configs)
            return GroupValue(
                epoch=value.epoch,
                metadata_hash=value.metadata_hash,
                validated_topology_epoch=value.validated_epoch,
                last_assignment_configs=configs,
            )
        case MemberImage():
            return _stored_member(value)
        case TargetEpoch():
            return TargetValue(
                assignment_epoch=value.epoch, assignment_timestamp_ms=value.timestamp_ms
            )
        case CurrentImage():
            return CurrentOfMemberValue(
                member_epoch=value.epoch,
                previous_member_epoch=value.previous_epoch,
                state=int(value.state) + _FIRST_STATE,
                active_tasks=_held(value.assigned.active),
                standby_tasks=_kept(value.assigned.standby),
                warmup_tasks=_kept(value.assigned.warmup),
                active_tasks_pending_revocation=_held(value.revoking.active),
                standby_tasks_pending_revocation=_kept(value.revoking.standby),
                warmup_tasks_pending_revocation=_kept(value.revoking.warmup),
            )
        case TopologyImage():
            return TopologyValue(
                epoch=value.epoch,
                subtopologies=[_stored_part(each) for each in value.subtopologies],
            )
    return TargetOfMemberValue(
        active_tasks=_ids(value.active),
        standby_tasks=_ids(value.standby),
        warmup_tasks=_ids(value.warmup),
    )


def _key_values(pairs: Pairs) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in pairs]


def _stored_member(member: MemberImage) -> MemberValue:
    endpoint = member.endpoint
    return MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=(
            None if endpoint is None else StoredEndpoint(host=endpoint.host, port=endpoint.port)
        ),
        client_tags=_key_values(member.tags),
    )


def _ids(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=sorted(some))
        for subtopology_id, some in sorted(tasks.items())
    ]


def _kept(tasks: Tasks) -> list[HeldTaskIds]:
    return [
        HeldTaskIds(subtopology_id=subtopology_id, partitions=sorted(some))
        for subtopology_id, some in sorted(tasks.items())
    ]


def _held(tasks: TaskEpochs) -> list[HeldTaskIds]:
    return [
        HeldTaskIds(
            subtopology_id=subtopology_id,
            partitions=sorted(some),
            assignment_epochs=[some[index] for index in sorted(some)],
        )
        for subtopology_id, some in sorted(tasks.items())
    ]


def _stored_part(part: Subtopology) -> StoredSubtopology:
    return StoredSubtopology(
        subtopology_id=part.subtopology_id,
        source_topics=list(part.sources),
        source_topic_regex=list(part.patterns),
        state_changelog_topics=[_info(each) for each in part.changelogs],
        repartition_sink_topics=list(part.repartition_sinks),
        repartition_source_topics=[_info(each) for each in part.repartition_sources],
        copartition_groups=[
            StoredCopartitionGroup(
                source_topics=list(each.sources),
                source_topic_regex=list(each.patterns),
                repartition_source_topics=list(each.repartition_sources),
            )
            for each in part.copartition_groups
        ],
    )


def _info(topic: InternalTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=_key_values(topic.configs),
    )


# --- bytes to values ------------------------------------------------------------------------------


def _value(stored: Message) -> Value:
    match stored:
        case GroupValue():
            if stored.epoch < 0:
                raise RecordError("a streams group in an epoch below 0")
            configs = stored.last_assignment_configs
            return GroupImage(
                stored.epoch,
                stored.metadata_hash,
                stored.validated_topology_epoch,
                None if configs is None else _pairs(configs),
            )
        case MemberValue():
            return _member(stored)
        case TargetValue():
            return TargetEpoch(stored.assignment_epoch, stored.assignment_timestamp_ms)
        case TargetOfMemberValue():
            return TaskSet(
                _tasks(stored.active_tasks),
                _tasks(stored.standby_tasks),
                _tasks(stored.warmup_tasks),
            )
        case CurrentOfMemberValue():
            return _current(stored)
        case TopologyValue():
            topology = TopologyImage(stored.epoch, tuple(map(_part, stored.subtopologies)))
            wrong = mistake_of(topology)
            if wrong is not None:
                raise RecordError(f"the topology of a streams group: {wrong}")
            return topology
    raise InvariantError(f"a value of {type(stored).__name__}")


def _pairs(stored: list[KeyValue]) -> Pairs:
    return tuple(sorted({each.key: each.value for each in stored}.items()))


def _member(stored: MemberValue) -> MemberImage:
    endpoint = stored.user_endpoint
    return MemberImage(
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout_ms,
        stored.topology_epoch,
        stored.process_id,
        None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        _pairs(stored.client_tags),
    )


def _checked(partitions: list[int]) -> list[int]:
    if any(index < 0 for index in partitions):
        raise RecordError("a task of a partition below 0")
    return partitions


def _tasks(stored: list[TaskIds] | list[HeldTaskIds]) -> Tasks:
    return tasks_of((each.subtopology_id, _checked(each.partitions)) for each in stored)


def _current(stored: CurrentOfMemberValue) -> CurrentImage:
    try:
        state = MemberState(stored.state - _FIRST_STATE)
    except ValueError as error:
        raise RecordError(f"a member of a streams group in state {stored.state}") from error
    epoch = stored.member_epoch
    return CurrentImage(
        epoch,
        stored.previous_member_epoch,
        state,
        HeldTasks(
            _epochs(stored.active_tasks, epoch),
            _tasks(stored.standby_tasks),
            _tasks(stored.warmup_tasks),
        ),
        HeldTasks(
            _epochs(stored.active_tasks_pending_revocation, epoch),
            _tasks(stored.standby_tasks_pending_revocation),
            _tasks(stored.warmup_tasks_pending_revocation),
        ),
    )


def _epochs(stored: list[HeldTaskIds], member_epoch: int) -> TaskEpochs:
    """A task without an epoch of its own, as Apache Kafka before 4.3 wrote it, has the member's."""
    found: dict[str, dict[int, int]] = {}
    for each in stored:
        partitions = _checked(each.partitions)
        epochs = each.assignment_epochs
        if epochs is None:
            epochs = [max(member_epoch, 0)] * len(partitions)
        if len(epochs) != len(partitions):
            raise RecordError("tasks with another number of epochs")
        if partitions:
            found.setdefault(each.subtopology_id, {}).update(zip(partitions, epochs, strict=True))
    return found


def _part(stored: StoredSubtopology) -> Subtopology:
    return Subtopology(
        stored.subtopology_id,
        tuple(stored.source_topics),
        tuple(stored.source_topic_regex),
        tuple(map(_topic, stored.state_changelog_topics)),
        tuple(stored.repartition_sink_topics),
        tuple(map(_topic, stored.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(each.source_topics),
                tuple(each.source_topic_regex),
                tuple(each.repartition_source_topics),
            )
            for each in stored.copartition_groups
        ),
    )


def _topic(stored: TopicInfo) -> InternalTopic:
    pairs = tuple((each.key, each.value) for each in stored.topic_configs)
    return InternalTopic(stored.name, stored.partitions, stored.replication_factor, pairs)
