"""The codecs of records against others', with hypothesis choosing the values.

- batches: kafka-python and aiokafka read ours, and we read theirs;
- the compiled record walk: its verdict is that of a plain reader here, for records of any bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_records

from kbroker.compression import Codec
from kbroker.log.looking._tools import walk_records
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from tests.support.record_batches import varint

MANY = settings(max_examples=400, deadline=None)
LIBRARIES = [kafka_records, aiokafka_records]

nullable = st.none() | st.binary(max_size=40)
records = st.lists(
    st.builds(
        Record,
        key=nullable,
        value=nullable,
        headers=st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2**46),
        offset=st.just(-1),
    ),
    min_size=1,
    max_size=12,
)
producers = st.sampled_from([(-1, -1, -1), (0, 0, 0), (2**62, 2**15 - 1, 2**31 - 1)])


@pytest.mark.parametrize("library", LIBRARIES, ids=["kafka-python", "aiokafka"])
@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=40, deadline=None)
@given(given_records=records, producer=producers)
def test_others_read_our_batches(
    library: Any, codec: Codec, given_records: list[Record], producer: tuple[int, int, int]
) -> None:
    data = encode_batch(
        given_records, codec=codec, base_offset=5, producer_id=producer[0],
        producer_epoch=producer[1], base_sequence=producer[2],
    )  # fmt: skip
    batch = library.DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    assert (batch.base_offset, batch.magic, batch.compression_type) == (5, 2, codec)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == [
        (5 + i, r.timestamp_ms, r.key, r.value, r.headers) for i, r in enumerate(given_records)
    ]


@pytest.mark.parametrize("library", LIBRARIES, ids=["kafka-python", "aiokafka"])
@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=40, deadline=None)
@given(given_records=records, producer=producers)
def test_we_read_others_batches(
    library: Any, codec: Codec, given_records: list[Record], producer: tuple[int, int, int]
) -> None:
    builder = library.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=producer[0],
        producer_epoch=producer[1], base_sequence=producer[2], batch_size=1 << 20,
    )  # fmt: skip
    for offset, record in enumerate(given_records):
        assert builder.append(
            offset, record.timestamp_ms, record.key, record.value, list(record.headers)
        )
    data = bytes(builder.build())
    (batch,) = decode_batches(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in batch.records] == [
        (r.timestamp_ms, r.key, r.value, r.headers) for r in given_records
    ]
    attributes = struct.unpack_from(">h", data, 21)[0]
    first_ms = struct.unpack_from(">q", data, 27)[0]
    walk = walk_records(data[61:], attributes & 7, len(given_records), first_ms)
    assert walk.error == 0
    assert walk.max_timestamp_ms == max(r.timestamp_ms for r in given_records)


# --- the record walk -----------------------------------------------------------------------------


class Malformed(Exception):
    pass


class PlainReader:
    """The walk's rules once more, each in the plainest way."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, bits: int) -> int:
        value = 0
        for index in range(5 if bits == 32 else 10):
            if self.at >= len(self.data):
                raise Malformed
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                value &= (1 << bits) - 1
                return (value >> 1) ^ -(value & 1)
        raise Malformed

    def field(self, end: int, *, null: bool = True) -> int:
        length = self.number(32)
        if length < (-1 if null else 0) or length > end - self.at:
            raise Malformed
        self.at += max(length, 0)
        return length

    def record(self, index: int) -> None:
        length = self.number(32)
        end = self.at + length
        if length < 0 or self.at >= len(self.data):
            raise Malformed
        self.at += 1
        self.number(64)
        if self.number(32) != index:
            raise Malformed
        self.field(end)
        self.field(end)
        count = self.number(32)
        if count < 0:
            raise Malformed
        for _ in range(count):
            self.field(end, null=False)
            self.field(end)
        if self.at != end or end > len(self.data):
            raise Malformed


def is_sound(data: bytes, count: int) -> bool:
    reader = PlainReader(data)
    try:
        for index in range(count):
            reader.record(index)
    except Malformed:
        return False
    return reader.at == len(data)


odd_numbers = st.one_of(
    st.integers(-3, 70).map(varint),
    st.integers(-(2**63), 2**63 - 1).map(varint),
    st.sampled_from([b"\x80\x00", b"\x80" * 5, b"\xff" * 4 + b"\x0f", b"\xff" * 10, b""]),
)


@st.composite
def record_bytes(draw: st.DrawFn) -> tuple[bytes, int]:
    """Some records, each field of which may be something else than it should."""
    count = draw(st.integers(1, 4))
    out = b""
    for index in range(count):
        key, value = draw(st.binary(max_size=9)), draw(st.binary(max_size=9))
        pieces = [b"\0", varint(draw(st.integers(-9, 9))), varint(index)]
        pieces += [varint(len(key)), key, varint(len(value)), value]
        headers = draw(st.lists(st.binary(max_size=3), max_size=2))
        pieces.append(varint(len(headers)))
        for name in headers:
            pieces += [varint(len(name)), name, varint(-1)]
        if draw(st.integers(0, 2)) == 0:
            pieces[draw(st.integers(0, len(pieces) - 1))] = draw(odd_numbers)
        body = b"".join(pieces)
        length = varint(len(body))
        out += (draw(odd_numbers) if draw(st.integers(0, 9)) == 0 else length) + body
    if draw(st.integers(0, 4)) == 0:
        out = out[: draw(st.integers(0, len(out)))]
    return out, count


@MANY
@given(given_bytes=record_bytes())
def test_the_walk_is_that_of_a_plain_reader(given_bytes: tuple[bytes, int]) -> None:
    data, count = given_bytes
    assert (walk_records(data, 0, count, 1_000).error == 0) == is_sound(data, count), data.hex()


@MANY
@given(data=st.binary(max_size=60), count=st.integers(1, 4))
def test_the_walk_of_any_bytes(data: bytes, count: int) -> None:
    assert (walk_records(data, 0, count, 0).error == 0) == is_sound(data, count), data.hex()
