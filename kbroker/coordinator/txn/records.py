"""The records of `__transaction_state` in Apache Kafka's format: a key and a value for each id.

| record | bytes |
|---|---|
| key | int16 0; the id: string |
| value | int16 0 or 1; the fields below; null: the id was forgotten |

Version 1 is flexible, and is written from level 1 of transaction.version on. Partitions are null
in Empty only. Keys and values of other versions are of brokers to come and are skipped (KIP-915).

C writes the values (`_records.pyx`), its own and those of Python's writes (`_images.pyx`).

The bytes come from a disk and are hostile: what does not fit is a `RecordError`, which costs one
id, not the partition. Pure functions; any thread.
"""

from __future__ import annotations

import struct
from typing import Final

from kbroker.coordinator.txn.image import NO_PARTITIONS, Partitions, TransactionImage
from kbroker.coordinator.txn.states import State
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
)
from kbroker.protocol.wire import ProtocolError
from kbroker.types import TopicPartition

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
VALUE_VERSION_BEFORE_FEATURES: Final = 0

_VERSION: Final = struct.Struct(">h")
_STATES: Final = {state.value: state for state in State if state >= 0}


class RecordError(ValueError):
    """A record of the state topic is not what its version says."""


class UnknownVersionError(RecordError):
    """It is of a version that this broker does not know."""


class Key(Message, versions=(0, 0)):
    transactional_id: str = string()


class PartitionsSchema(Record):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class Value(Message, versions=(0, 1), flexible=1):
    producer_id: int = int64()
    previous_producer_id: int = int64(since=1, tag=0, default=-1)
    next_producer_id: int = int64(since=1, tag=1, default=-1)
    producer_epoch: int = int16(default=0)
    client_transaction_version: int = int16(since=1, tag=2, default=0)
    next_producer_epoch: int = int16(since=1, tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, null=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()


def encode_key(transactional_id: str) -> bytes:
    key = Key(transactional_id=transactional_id)
    return _VERSION.pack(KEY_VERSION) + key.encode(KEY_VERSION)


def decode_key(data: bytes) -> str:
    """The transactional id that the key names."""
    body = _body(data, (KEY_VERSION,))
    try:
        transactional_id = Key.decode(body, KEY_VERSION).transactional_id
    except ProtocolError as error:
        raise RecordError(f"the key of a transaction: {error}") from error
    if not can_be_told(transactional_id):
        raise RecordError("a transactional id that is no text of the protocol")
    return transactional_id


def value_version(feature_level: int) -> int:
    """Of the records at this level of transaction.version."""
    return VALUE_VERSION if feature_level >= VALUE_VERSION else VALUE_VERSION_BEFORE_FEATURES


def version_of(value: bytes) -> int:
    """Of a value that can be read."""
    return int(_VERSION.unpack_from(value)[0])


def decode_value(data: bytes) -> TransactionImage:
    body = _body(data, (VALUE_VERSION_BEFORE_FEATURES, VALUE_VERSION))
    try:
        value = Value.decode(body, version_of(data))
    except ProtocolError as error:
        raise RecordError(f"a transaction: {error}") from error
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise RecordError(f"a transaction in state {value.transaction_status}")
    if value.producer_id < 0 or value.producer_epoch < 0 or value.transaction_timeout_ms < 0:
        raise RecordError("a transaction without producer id, epoch or timeout")
    return TransactionImage(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        _partitions(value.transaction_partitions),
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _partitions(topics: list[PartitionsSchema] | None) -> Partitions:
    if not topics:
        return NO_PARTITIONS
    return frozenset(
        TopicPartition(each.topic, index) for each in topics for index in each.partition_ids
    )


def _body(data: bytes, versions: tuple[int, ...]) -> bytes:
    if len(data) < _VERSION.size:
        raise RecordError(f"a record of {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version not in versions:
        raise UnknownVersionError(f"version {version}")
    return data[_VERSION.size :]
