"""Record batches: the layout byte by byte, round trips, kio as the oracle, and hostile bytes."""

from __future__ import annotations

import struct
from typing import Any

import fastcrc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.compression import PACKINGS, Codec, TooLongError
from kbroker.protocol import record_batch
from kbroker.protocol._crc32c import crc32c
from kbroker.protocol.record_batch import (
    BATCH_HEADER,
    HEADER_BYTES,
    Record,
    RecordBatch,
    decode_batches,
    encode_batch,
    packed_records,
    repacked,
)
from kbroker.protocol.wire import ProtocolError
from tests.support.source_tree import ROOT, enum_members

OF_C = dict(enum_members(ROOT / "kbroker" / "log" / "engine" / "_records.pxd"))
nullable = st.none() | st.binary(max_size=50)
records = st.lists(
    st.builds(
        Record,
        key=nullable,
        value=nullable,
        headers=st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2**47),
        offset=st.just(-1),
    ),
    min_size=1,
    max_size=20,
)


def decode_one(data: bytes) -> RecordBatch:
    (batch,) = decode_batches(data)
    return batch


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 1000, 10_000, 131_072, 300_000])
def test_crc32c(size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    assert crc32c(data) == fastcrc.crc32.iscsi(data)
    middle = size // 3
    assert crc32c(memoryview(data)[middle:], crc32c(data[:middle])) == crc32c(data)


def test_the_known_value_of_the_checksum() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    with pytest.raises(TypeError):
        crc32c(None)  # type: ignore[arg-type]


def test_the_layout() -> None:
    data = encode_batch(
        [Record(b"k", b"vv", (("h", None),), 1000), Record(None, None, (), 990)],
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        base_offset=42,
    )
    head = struct.unpack(">qiibIhiqqqhii", data[:HEADER_BYTES])
    assert head[0:4] == (42, len(data) - 12, -1, 2)
    assert head[4] == crc32c(data[21:])
    assert head[5:] == (0, 1, 1000, 1000, 5, 6, 7, 2)
    # length 10, attributes, deltas 0 and 0, key, value, one header with a null value
    assert data[61:] == bytes(
        [10 * 2, 0, 0, 0, 2, ord("k"), 4, ord("v"), ord("v"), 2, 2, ord("h"), 1]
    ).replace(bytes([10 * 2]), bytes([12 * 2]), 1) + bytes([6 * 2, 0, 19, 2, 1, 1, 0])


@pytest.mark.parametrize("codec", list(Codec))
@settings(deadline=None)  # the first example imports a library
@given(written=records)
def test_round_trip(codec: Codec, written: list[Record]) -> None:
    batch = decode_one(encode_batch(written, codec=codec, base_offset=10))
    assert batch.codec is codec
    assert [record._replace(offset=-1) for record in batch.records] == written
    assert [record.offset for record in batch.records] == list(range(10, 10 + len(written)))
    assert (batch.base_offset, batch.last_offset) == (10, 9 + len(written))
    assert batch.max_timestamp_ms == max(record.timestamp_ms for record in written)


@settings(deadline=None)  # the first example imports a library
@given(written=records)
def test_kio_reads_the_same(written: list[Record]) -> None:
    from kio.records.readers import read_batch

    data = encode_batch(written, producer_id=9, producer_epoch=1, base_sequence=3)
    kio: Any = read_batch(data, 0)[0]
    assert (kio.producer_id, kio.producer_epoch, kio.base_sequence) == (9, 1, 3)
    assert [(r.key, r.value) for r in kio.records] == [(r.key, r.value) for r in written]


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_batch_unpacks_to_its_limit_and_not_beyond(codec: Codec) -> None:
    data = encode_batch([Record(None, bytes(1_000_000), timestamp_ms=1)], codec=codec)
    assert len(decode_one(data).records[0].value or b"") == 1_000_000
    with pytest.raises(ProtocolError, match="offset 0"):
        list(decode_batches(data, limit_bytes=900_000))


def test_no_record_is_no_batch() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def test_a_cut_tail_is_left_out() -> None:
    one = encode_batch([Record(b"k", b"v", timestamp_ms=1)])
    two = encode_batch([Record(b"k", b"w", timestamp_ms=1)], base_offset=1)
    for cut in range(len(two)):
        assert len(list(decode_batches(one + two[:cut]))) == 1
    assert [batch.base_offset for batch in decode_batches(one + two)] == [0, 1]
    assert list(decode_batches(b"")) == []


def test_attributes() -> None:
    plain = encode_batch([Record(b"k", b"v", timestamp_ms=1)], transactional=True)
    batch = decode_one(plain)
    assert batch.transactional and not batch.control and not batch.log_append_time
    stamped = bytearray(plain)
    stamped[22] |= 0x28  # LogAppendTime, control
    stamped[35:43] = struct.pack(">q", 777)
    batch = decode_one(with_crc(bytes(stamped)))
    assert batch.control and batch.log_append_time
    assert batch.records[0].timestamp_ms == 777, "the batch's time, not the record's"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (16, b"\x01", "format 1"),
        (30, b"\x77", "CRC"),
        (8, struct.pack(">i", 10), "shorter than its header"),
        (8, struct.pack(">i", -1), "shorter than its header"),
    ],
)
def test_a_broken_header(at: int, value: bytes, message: str) -> None:
    data = bytearray(encode_batch([Record(b"k", b"v", timestamp_ms=1)]))
    data[at : at + len(value)] = value
    with pytest.raises(ProtocolError, match=message):
        list(decode_batches(bytes(data)))


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (22, b"\x05", "unknown codec 5"),
        (57, struct.pack(">i", 2**31 - 1), "records in"),
        (57, struct.pack(">i", -1), "records in"),
        (57, struct.pack(">i", 0), "after the last record"),
        (57, struct.pack(">i", 2), "runs out"),
        (61, b"\x00", "a record of 0 bytes"),
        (61, b"\x01", "a record of -1 bytes"),
        (61, b"\x7e", "a record of 63 bytes"),
        (65, b"\x7e", "63 bytes wanted"),
        (69, b"\x7e", "63 headers"),
        (69, b"\x02", "1 headers, 0 bytes left"),
    ],
)
def test_broken_records_with_a_right_checksum(at: int, value: bytes, message: str) -> None:
    data = bytearray(encode_batch([Record(b"k", b"v", timestamp_ms=1)]))
    assert len(data) == 70
    data[at : at + len(value)] = value
    with pytest.raises(ProtocolError, match=message):
        list(decode_batches(with_crc(bytes(data))))


@settings(deadline=None)  # the first example imports a library
@given(flips=st.lists(st.tuples(st.integers(21, 200), st.integers(0, 255)), max_size=6))
def test_hostile_bytes_end_in_a_protocol_error(flips: list[tuple[int, int]]) -> None:
    data = bytearray(encode_batch([Record(b"key", b"v" * 40, (("h", b"x"),), 1)] * 3))
    for at, value in flips:
        if at < len(data):
            data[at] = value
    try:
        list(decode_batches(with_crc(bytes(data)), limit_bytes=1 << 20))
    except ProtocolError:
        pass  # the one way to say it


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_records_in_another_form(codec: Codec) -> None:
    plain = encode_batch([Record(b"k", b"v" * 100)], producer_id=7, base_sequence=3)
    packed = encode_batch([Record(b"k", b"v" * 100)], codec=codec, producer_id=7, base_sequence=3)
    found, _ = packed_records(packed)
    assert found is codec
    unpacked = packed_records(plain)[1]
    assert repacked(plain, PACKINGS[codec], [unpacked], len(packed)) == packed
    assert repacked(packed, PACKINGS[Codec.NONE], [unpacked], len(plain)) == plain
    with pytest.raises(TooLongError):
        repacked(plain, PACKINGS[codec], [unpacked], len(packed) - 1)


def test_the_records_of_a_damaged_batch_are_not_given_out() -> None:
    batch = encode_batch([Record(b"k", b"v" * 100)])
    unknown = with_crc(batch[:22] + b"\x05" + batch[23:])
    for damaged, message in ((batch[:60], "header"), (batch[:-1], "CRC"), (unknown, "codec 5")):
        with pytest.raises(ProtocolError, match=message):
            packed_records(damaged)


def test_the_header_is_the_same_in_c() -> None:
    ours = {
        name: getattr(record_batch, name.removesuffix("_BIT"))
        for name in OF_C
        if not name.startswith(("AT_", "OUTLINE_"))
    }
    assert ours == {name: OF_C[name] for name in ours} and len(ours) == 6
    filtered = dict(enum_members(ROOT / "kbroker" / "log" / "upkeep" / "_batch_filter.pxd"))
    assert filtered["DELETE_HORIZON_BIT"] == record_batch.DELETE_HORIZON
    places, at = [], 0
    for field in BATCH_HEADER.format[1:]:
        places.append(at)
        at += struct.calcsize(f">{field}")
    assert places == sorted(place for name, place in OF_C.items() if name.startswith("AT_"))
    assert (at, record_batch.ATTRIBUTES_BEGIN) == (HEADER_BYTES, OF_C["AT_ATTRIBUTES"])
