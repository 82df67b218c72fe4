"""The codecs against others' codecs, with hypothesis choosing the values.

- every served request, schema-driven: kio writes, `schemas` reads; whatever bytes `schemas` takes,
  kio reads the same, and what it refuses is no message;
- every served response: `schemas` writes and reads back what kio reads;
- record batches: kafka-python and aiokafka read ours, and we read theirs;
- the compiled record walk: its verdict is that of a plain reader here, for records of any bytes.
"""

from __future__ import annotations

import random
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_records
from kio.serial import entity_reader
from kio.serial.errors import InvalidUnicode, NegativeByteLength

from kbroker.compression import Codec
from kbroker.log._tools import walk_records
from kbroker.protocol.record_batch import Record, decode_batches, encode_batch
from kbroker.protocol.versions import SERVED
from kbroker.protocol.wire import ProtocolError
from kbroker.testing import schemas
from kbroker.types import ApiKey
from tests.fuzz.batches import blind
from tests.support.record_batches import varint
from tests.unit.testing.test_schemas import make, request_class, written

VERSIONS = [
    (key, version) for key, r in sorted(SERVED.items()) for version in range(r.min, r.max + 1)
]
FEW = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)
MANY = settings(max_examples=400, deadline=None)
# What Apache Kafka reads and kio does not: text that is no UTF-8 (replaced), other booleans than 0
# and 1, other negative lengths than -1, tagged fields that nobody knows.
KIO_IS_STRICTER = (InvalidUnicode, NegativeByteLength, ValueError, KeyError)
LENIENT = ("InvalidUnicode", "NegativeByteLength", "negative array", "boolean", "Unknown tag")
# Damaged, these two may be read in more than one way: a known tagged field of another size than its
# own, and a structure that may be null by any negative byte (ours, as Apache Kafka) or by -1 (kio).
READ_BY_NEED = (ApiKey.FETCH, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
LIBRARIES = [kafka_records, aiokafka_records]


def as_request(key: int, version: int, body: bytes) -> Any:
    return SimpleNamespace(api_key=key, api_version=version, body=body)


def by_kio(read: Any, damaged: bytes, taken: bytes) -> Any:
    """The damaged bytes as kio reads them, or, where it is stricter, what we took of them.

    None where a duration is longer than kio counts.
    """
    try:
        try:
            return read(damaged, 0)[0]
        except KIO_IS_STRICTER as error:
            if "timedelta" in repr(error):
                return None
            assert any(words in repr(error) for words in LENIENT), repr(error)
            return read(taken, 0)[0]
    except ValueError as error:
        if "timedelta" in repr(error):
            return None
        raise


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@FEW
@given(seed=st.integers(0, 2**32))
def test_what_is_taken_is_what_kio_reads(key: ApiKey, version: int, seed: int) -> None:
    rng = random.Random(seed)
    entity_class = request_class(key, version)
    body = written(make(entity_class, rng))
    read = entity_reader(entity_class)
    assert schemas.decode(as_request(key, version, body)) == read(body, 0)[0]
    if key in READ_BY_NEED:
        return
    for _ in range(20):
        damaged = blind(body, lambda: rng.getrandbits(32))
        try:
            taken = schemas.decode(as_request(key, version, damaged))
        except ProtocolError:
            continue
        # Its counts are no more than its bytes, so kio may be given it.
        theirs = by_kio(read, damaged, written(taken))
        assert theirs is None or written(taken) == written(theirs)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@FEW
@given(seed=st.integers(0, 2**32))
def test_answers_in_both_directions(key: ApiKey, version: int, seed: int) -> None:
    module = schemas.response_module(key, version)
    entity_class = getattr(module, f"{key.label}Response")
    entity = make(entity_class, random.Random(seed))
    body = schemas.encode(entity)
    assert entity_reader(entity_class)(body, 0) == (entity, len(body))
    assert schemas.decode_as(entity_class, body) == entity


# --- record batches ------------------------------------------------------------------------------

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
