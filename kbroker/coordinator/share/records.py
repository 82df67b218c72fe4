"""The records of `__share_group_state` in Apache Kafka's format.

| record | key | value |
|---|---|---|
| snapshot | int16 0; group, topic id, partition | int16 0; all of the state; null: it was deleted |
| update | int16 1; the same | int16 0; what a write has changed since the snapshot |

A snapshot begins another snapshot epoch; an update belongs to that of the last one. Values are
flexible, keys are not. Keys and values of other versions are of brokers to come and are skipped
(KIP-915).

The bytes come from a disk and are hostile: what does not fit is a `RecordError`, which costs one
record, not the partition. Pure functions; any thread.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.coordinator.share.images import NO_COUNT, DeliveryState, SharePartition, StateBatch
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
    uuid,
)
from kbroker.protocol.wire import ProtocolError

SNAPSHOT: Final = 0
UPDATE: Final = 1
VALUE_VERSION: Final = 0

_VERSION: Final = struct.Struct(">h")
_VALUE_PREFIX: Final = _VERSION.pack(VALUE_VERSION)
_STATES: Final = frozenset(DeliveryState)


class RecordError(ValueError):
    """A record of the state topic is not what its version says."""


class UnknownVersionError(RecordError):
    """It is of a version that this broker does not know."""


class Key(Message, versions=(0, 1)):
    group_id: str = string()
    topic_id: UUID | None = uuid()
    partition: int = int32()


class BatchSchema(Record):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class SnapshotSchema(Message, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=NO_COUNT)
    create_timestamp_ms: int = int64()
    write_timestamp_ms: int = int64()
    state_batches: list[BatchSchema] = array(BatchSchema)


class UpdateSchema(Message, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(tag=0, default=NO_COUNT)
    state_batches: list[BatchSchema] = array(BatchSchema)


class RecordKey(NamedTuple):
    kind: int  # SNAPSHOT or UPDATE
    share_partition: SharePartition


class Snapshot(NamedTuple):
    """All of a state."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    created_ms: int  # wall clock
    written_ms: int
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    """What a write changes. NO_START and NO_EPOCH: it stays as it is."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


Value = Snapshot | Update


def encode_key(kind: int, key: SharePartition) -> bytes:
    body = Key(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(kind) + body.encode(kind)


def encode_value(value: Value) -> bytes:
    body: SnapshotSchema | UpdateSchema
    if isinstance(value, Snapshot):
        body = SnapshotSchema(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            create_timestamp_ms=value.created_ms,
            write_timestamp_ms=value.written_ms,
            state_batches=_stored(value.batches),
        )
    else:
        body = UpdateSchema(
            snapshot_epoch=value.snapshot_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=_stored(value.batches),
        )
    return _VALUE_PREFIX + body.encode(VALUE_VERSION)


def record_of(key: SharePartition, value: Value) -> tuple[bytes, bytes]:
    kind = SNAPSHOT if isinstance(value, Snapshot) else UPDATE
    return encode_key(kind, key), encode_value(value)


def tombstone_of(key: SharePartition) -> tuple[bytes, None]:
    return encode_key(SNAPSHOT, key), None


def _stored(batches: tuple[StateBatch, ...]) -> list[BatchSchema]:
    return [
        BatchSchema(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def decode_key(data: bytes) -> RecordKey:
    """UnknownVersionError: a key of another kind."""
    kind, body = _body(data, (SNAPSHOT, UPDATE))
    try:
        key = Key.decode(body, kind)
    except ProtocolError as error:
        raise RecordError(f"the key of a share-partition: {error}") from error
    if key.topic_id is None or key.partition < 0 or not can_be_told(key.group_id):
        raise RecordError("a key that names no share-partition")
    return RecordKey(kind, SharePartition(key.group_id, key.topic_id, key.partition))


def decode_value(kind: int, data: bytes) -> Value:
    _, body = _body(data, (VALUE_VERSION,))
    try:
        if kind == SNAPSHOT:
            return _snapshot(SnapshotSchema.decode(body, VALUE_VERSION))
        return _update(UpdateSchema.decode(body, VALUE_VERSION))
    except ProtocolError as error:
        raise RecordError(f"the state of a share-partition: {error}") from error


def _snapshot(value: SnapshotSchema) -> Snapshot:
    return Snapshot(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp_ms,
        value.write_timestamp_ms,
        _batches(value.state_batches),
    )


def _update(value: UpdateSchema) -> Update:
    return Update(
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _batches(stored: list[BatchSchema]) -> tuple[StateBatch, ...]:
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in stored
    )
    if not all(map(is_sound, batches)):
        raise RecordError("a batch of offsets that is none")
    return batches


def is_sound(batch: StateBatch) -> bool:
    """Whether it may be kept."""
    return (
        0 <= batch.first_offset <= batch.last_offset
        and batch.state in _STATES
        and batch.delivery_count >= 0
    )


def _body(data: bytes, versions: tuple[int, ...]) -> tuple[int, bytes]:
    if len(data) < _VERSION.size:
        raise RecordError(f"a record of {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version not in versions:
        raise UnknownVersionError(f"version {version}")
    return version, data[_VERSION.size :]
