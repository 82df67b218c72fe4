"""The records of share state: what is written is read, and bytes that are none are refused."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.share.images import NO_COUNT, NO_START, SharePartition, StateBatch
from kbroker.coordinator.share.records import (
    SNAPSHOT,
    UPDATE,
    RecordError,
    RecordKey,
    Snapshot,
    UnknownVersionError,
    Update,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_of,
    tombstone_of,
)

KEY = SharePartition("work", uuid.UUID(int=0x1122), 3)
int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
batches = st.lists(
    st.builds(
        lambda first, more, state, count: StateBatch(first, first + more, state, count),
        st.integers(0, 2**62),
        st.integers(0, 2**20),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 2**15 - 1),
    ),
    max_size=5,
).map(tuple)
snapshots = st.builds(Snapshot, int32, int32, int32, int64, int32, int64, int64, batches)
updates = st.builds(Update, int32, int32, int64, int32, batches)


@given(snapshots | updates)
def test_a_value_is_read_as_it_was_written(value: Snapshot | Update) -> None:
    kind = SNAPSHOT if isinstance(value, Snapshot) else UPDATE
    key, data = record_of(KEY, value)
    assert decode_key(key) == RecordKey(kind, KEY)
    assert decode_value(kind, data) == value


def test_the_bytes_of_a_snapshot() -> None:
    """By hand, from the fields of KIP-932 and KIP-1226."""
    value = Snapshot(1, 2, 3, 4, NO_COUNT, 5, 6, (StateBatch(7, 8, 2, 9),))
    fields = [(1, 4), (2, 4), (3, 4), (4, 8), (5, 8), (6, 8)]
    expected = b"\0\0" + b"".join(number.to_bytes(size, "big") for number, size in fields)
    expected += b"\2" + b"".join(n.to_bytes(s, "big") for n, s in [(7, 8), (8, 8), (2, 1), (9, 2)])
    assert encode_value(value) == expected + b"\0" + b"\0"
    with_count = encode_value(value._replace(delivery_complete_count=10))
    assert with_count == expected + b"\0" + b"\1\0\4\0\0\0\x0a"


def test_the_bytes_of_an_update_and_of_keys() -> None:
    value = Update(1, 3, NO_START, NO_COUNT, ())
    expected = b"\0\0" + b"\0\0\0\1" + b"\0\0\0\3" + b"\xff" * 8 + b"\1" + b"\0"
    assert encode_value(value) == expected
    key = b"\0\4work" + KEY.topic_id.bytes + b"\0\0\0\3"
    assert encode_key(SNAPSHOT, KEY) == b"\0\0" + key
    assert encode_key(UPDATE, KEY) == b"\0\1" + key
    assert tombstone_of(KEY) == (b"\0\0" + key, None)


def test_another_version_is_skipped() -> None:
    with pytest.raises(UnknownVersionError):
        decode_key(b"\0\2" + encode_key(SNAPSHOT, KEY)[2:])
    value = encode_value(Update(0, 0, 0, 0, ()))
    with pytest.raises(UnknownVersionError):
        decode_value(UPDATE, b"\0\1" + value[2:])


@given(st.binary(max_size=60))
def test_bytes_from_a_disk_raise_nothing_else(data: bytes) -> None:
    for read in (
        lambda: decode_key(data),
        lambda: decode_value(SNAPSHOT, data),
        lambda: decode_value(UPDATE, b"\0\0" + data),
    ):
        try:
            read()
        except RecordError:
            pass


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, 0, 1),
        StateBatch(-1, 4, 0, 1),
        StateBatch(0, 4, 1, 1),
        StateBatch(0, 4, 5, 1),
        StateBatch(0, 4, 0, -1),
    ],
)
def test_a_batch_that_is_none_is_refused(batch: StateBatch) -> None:
    with pytest.raises(RecordError, match="none"):
        decode_value(UPDATE, encode_value(Update(0, 0, 0, 0, (batch,))))


def test_a_key_without_a_topic_is_refused() -> None:
    nowhere = SharePartition("work", uuid.UUID(int=0), 3)
    with pytest.raises(RecordError, match="no share-partition"):
        decode_key(encode_key(SNAPSHOT, nowhere))
    with pytest.raises(RecordError, match="no share-partition"):
        decode_key(encode_key(SNAPSHOT, KEY._replace(partition=-1)))
