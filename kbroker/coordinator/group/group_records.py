"""The records of `__consumer_offsets` that say what a group is, in Apache Kafka's format.

| record | key | value |
|---|---|---|
| committed offset | int16 0 or 1; group, topic: string; partition: int32 | the C table's business |
| group (classic) | int16 2; group: string | `encode_group`; null: the group is gone |

Strings are int16-counted UTF-8, byte fields int32-counted, arrays int32-counted; a group's value is
version 3, as Apache Kafka 4.3 writes it (KIP-345), and versions 0 to 2 are read, too. Keys of other
kinds (consumer groups of KIP-848, share and streams groups) are ignored by a load.

The bytes come from a disk and are hostile: lengths are compared with the remaining bytes before
they are used, and a value that does not fit is a `RecordError`, which costs one group, not the
partition. Pure functions; any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from kbroker.coordinator.group.images import GroupImage, MemberImage
from kbroker.outside_text import can_be_told, printable
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.protocol.wire import ProtocolError, Reader, Writer

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3

_INT16: Final = struct.Struct(">h")
# The versions of keys of a group of the consumer protocol (`consumer_records.Kind`), of a share
# group (`share_group/images.Kind`), and of a streams group (`streams_group/images.Kind`).
_CONSUMER_KEYS: Final = frozenset({3, 4, 5, 6, 7, 8, 16})
_SHARE_KEYS: Final = frozenset(range(10, 16))
_STREAMS_KEYS: Final = frozenset({17, 19, 20, 21, 22, 23})
_SINCE_REBALANCE_TIMEOUT: Final = 1
_SINCE_STATE_TIMESTAMP: Final = 2
_SINCE_INSTANCE_ID: Final = 3
_NO_TIMESTAMP: Final = -1


class RecordError(ValueError):
    """A record of the offsets topic is not what its key or version says."""


def group_key(group_id: str) -> bytes:
    out = Writer(flexible=False)
    out.int16(GROUP_KEY_VERSION)
    out.string(group_id)
    return out.getvalue()


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    out = Writer(flexible=False)
    out.int16(OFFSET_KEY_VERSION)
    out.string(group_id)
    out.string(topic)
    out.int32(partition)
    return out.getvalue()


def group_of_key(key: bytes) -> str | None:
    """The id of the group that a key of a group's record names; None for a key of another kind."""
    if len(key) < _INT16.size or _INT16.unpack_from(key)[0] != GROUP_KEY_VERSION:
        return None
    try:
        group_id = Reader(key[_INT16.size :], flexible=False).string()
    except ProtocolError as error:
        raise RecordError(f"the key of a group's record: {error}") from error
    if not can_be_told(group_id):
        raise RecordError(f"the id of group {printable(group_id)} cannot be sent in an answer")
    return group_id


def is_of_a_consumer_group(key: bytes) -> bool:
    return len(key) >= _INT16.size and _INT16.unpack_from(key)[0] in _CONSUMER_KEYS


def is_of_a_share_group(key: bytes) -> bool:
    return len(key) >= _INT16.size and _INT16.unpack_from(key)[0] in _SHARE_KEYS


def is_of_a_streams_group(key: bytes) -> bool:
    return len(key) >= _INT16.size and _INT16.unpack_from(key)[0] in _STREAMS_KEYS


def encode_group(image: GroupImage) -> bytes:
    """The value of a group's record."""
    out = Writer(flexible=False)
    out.int16(GROUP_VALUE_VERSION)
    out.string(image.protocol_type)
    out.int32(image.generation)
    out.string(image.protocol)
    out.string(image.leader)
    out.int64(image.state_timestamp_ms)
    out.array(len(image.members))
    for member in image.members:
        out.string(member.member_id)
        out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        _put_bytes(out, member.subscription)
        _put_bytes(out, member.assignment)
    return out.getvalue()


def decode_group(group_id: str, value: bytes) -> GroupImage:
    """The group that a record's value describes; RecordError if it is none."""
    reader = Reader(value, flexible=False)
    try:
        version = reader.int16()
        if not 0 <= version <= GROUP_VALUE_VERSION:
            raise RecordError(f"group {printable(group_id)} is stored in version {version}")
        return GroupImage(
            group_id,
            protocol_type=reader.string(),
            generation=reader.int32(),
            protocol=reader.nullable_string(),
            leader=reader.nullable_string(),
            state_timestamp_ms=(
                reader.int64() if version >= _SINCE_STATE_TIMESTAMP else _NO_TIMESTAMP
            ),
            members=tuple(_member(reader, version) for _ in range(reader.array())),
        )
    except ProtocolError as error:
        raise RecordError(f"group {printable(group_id)}: {error}") from error


def _member(reader: Reader, version: int) -> MemberImage:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= _SINCE_INSTANCE_ID else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= _SINCE_REBALANCE_TIMEOUT else -1
    session_timeout_ms = reader.int32()
    if rebalance_timeout_ms < 0:
        # Before version 1 one timeout served both purposes.
        rebalance_timeout_ms = session_timeout_ms
    return MemberImage(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription=reader.nullable_bytes() or b"",
        assignment=reader.nullable_bytes() or b"",
    )


def _put_bytes(out: Writer, value: bytes) -> None:
    out.int32(len(value))
    out.raw(value)


def batch_of(records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> bytes:
    """One batch with these (key, value) pairs, in their order, all stamped `now_ms`.

    As Apache Kafka's coordinator writes them: no producer, first sequence 0.
    """
    return encode_batch(
        [Record(key, value, timestamp_ms=now_ms) for key, value in records], base_sequence=0
    )
