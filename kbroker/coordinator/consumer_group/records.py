"""A group's changes as records of `__consumer_offsets`, and back.

The formats are those of `group/consumer_records.py`; this file only joins them to the values of
`images.py`. A partition without an assignment epoch, as Apache Kafka before 4.3 wrote it, has the
member's epoch. Pure functions; any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.coordinator.consumer_group.images import (
    Change,
    ClassicMember,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    PartitionEpochs,
    Partitions,
    PatternImage,
    TargetEpoch,
    Value,
)
from kbroker.coordinator.consumer_group.states import MemberState
from kbroker.coordinator.group import consumer_records as stored
from kbroker.errors import InvariantError

if TYPE_CHECKING:
    from uuid import UUID


def record_of(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """The key and value that say this change."""
    key = stored.encode_key(stored.RecordKey(stored.Kind(change.kind), group_id, change.key))
    if change.value is None:
        return key, None
    return key, stored.encode_value(_stored(change.value))


def records_of(group_id: str, changes: Iterable[Change]) -> list[tuple[bytes, bytes | None]]:
    return [record_of(group_id, change) for change in changes]


def change_of(key: stored.RecordKey, value: bytes | None) -> Change:
    """What a record says. RecordError: it cannot be read."""
    kind = Kind(key.kind)
    if value is None:
        return Change(kind, key.item, None)
    return Change(kind, key.item, _value(stored.decode_value(key, value)))


def _stored(value: Value) -> stored.Value:
    if isinstance(value, GroupImage):
        return stored.GroupValue(epoch=value.epoch, metadata_hash=value.metadata_hash)
    if isinstance(value, MemberImage):
        return _stored_member(value)
    if isinstance(value, TargetEpoch):
        return stored.TargetValue(
            assignment_epoch=value.epoch, assignment_timestamp_ms=value.timestamp_ms
        )
    if isinstance(value, CurrentImage):
        return stored.CurrentOfMemberValue(
            member_epoch=value.epoch,
            previous_member_epoch=value.previous_epoch,
            state=int(value.state),
            assigned_partitions=_owned(value.assigned),
            partitions_pending_revocation=_owned(value.revoking),
        )
    if isinstance(value, PatternImage):
        return stored.ExpressionValue(
            topics=list(value.topics), version=value.version, timestamp_ms=value.timestamp_ms
        )
    return stored.TargetOfMemberValue(
        topic_partitions=[
            stored.TargetPartitions(topic_id=topic_id, partitions=sorted(some))
            for topic_id, some in _by_id(value)
        ]
    )


def _stored_member(member: MemberImage) -> stored.MemberValue:
    classic = None
    if member.classic is not None:
        classic = stored.ClassicMember(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                stored.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    return stored.MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def _by_id(partitions: Partitions) -> list[tuple[UUID, frozenset[int]]]:
    return sorted(partitions.items(), key=lambda item: item[0].bytes)


def _owned(epochs: PartitionEpochs) -> list[stored.OwnedPartitions]:
    found = []
    for topic_id, some in sorted(epochs.items(), key=lambda item: item[0].bytes):
        indexes = sorted(some)
        found.append(
            stored.OwnedPartitions(
                topic_id=topic_id,
                partitions=indexes,
                assignment_epochs=[some[index] for index in indexes],
            )
        )
    return found


def _value(value: stored.Value) -> Value:
    match value:
        case stored.GroupValue():
            return GroupImage(value.epoch, value.metadata_hash)
        case stored.TopicsBefore41Value():
            return GroupImage(0, 0)  # that there is one is all that counts
        case stored.MemberValue():
            return _member(value)
        case stored.TargetValue():
            return TargetEpoch(value.assignment_epoch, value.assignment_timestamp_ms)
        case stored.TargetOfMemberValue():
            return {
                each.topic_id: frozenset(each.partitions)
                for each in value.topic_partitions
                if each.partitions
            }
        case stored.CurrentOfMemberValue():
            return CurrentImage(
                value.member_epoch,
                value.previous_member_epoch,
                MemberState(value.state),
                _epochs(value.assigned_partitions, value.member_epoch),
                _epochs(value.partitions_pending_revocation, value.member_epoch),
            )
        case stored.ExpressionValue():
            return PatternImage(tuple(sorted(value.topics)), value.version, value.timestamp_ms)
    raise InvariantError(f"a value of {type(value).__name__}")


def _member(value: stored.MemberValue) -> MemberImage:
    classic = None
    if (known := value.classic_member_metadata) is not None:
        protocols = tuple((each.name, each.metadata) for each in known.supported_protocols)
        classic = ClassicMember(known.session_timeout_ms, protocols)
    return MemberImage(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(sorted(set(value.subscribed_topic_names))),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        classic,
    )


def _epochs(
    owned: Iterable[stored.OwnedPartitions], member_epoch: int
) -> dict[UUID, dict[int, int]]:
    found: dict[UUID, dict[int, int]] = {}
    for each in owned:
        epochs = each.assignment_epochs or [max(member_epoch, 0)] * len(each.partitions)
        if each.partitions:
            found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
