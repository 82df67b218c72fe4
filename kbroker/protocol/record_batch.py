"""Record batches of format v2, in plain Python: for our client, the command line and the tests; and
what their header is made of, for the log's Python as well.

The broker's own path validates and patches batches in C and never parses one here.

A batch (big-endian; https://kafka.apache.org/documentation/#recordbatch):

     0 base offset          int64    23 last offset delta   int32
     8 length after this    int32    27 base timestamp      int64
    12 leader epoch         int32    35 max timestamp       int64
    16 magic (2)            int8     43 producer id         int64
    17 crc                  uint32   51 producer epoch      int16
    21 attributes           int16    53 base sequence       int32
                                     57 record count        int32
    61 records

The CRC-32C covers everything from the attributes on. Attributes: bits 0-2 codec, 3 timestamp type
(LogAppendTime), 4 transactional, 5 control, 6 the base timestamp is a delete horizon. A record is a
signed varint of its length, then attributes, timestamp delta, offset delta, key, value and headers;
lengths are zigzag varints and -1 is null.

A fetched piece of log ends anywhere, so `decode_batches` stops silently at a batch that is not all
there; everything else that does not fit is a `ProtocolError`. Pure functions; any thread may call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kbroker.compression import (
    Codec,
    CompressionError,
    Packing,
    compress,
    compress_into,
    decompress,
)
from kbroker.protocol._crc32c import crc32c
from kbroker.protocol.wire import ProtocolError

MAGIC: Final = 2
# tests/unit/protocol/test_record_batch.py holds to C what it has as well.
LOG_OVERHEAD_BYTES: Final = 12
HEADER_BYTES: Final = 61
ATTRIBUTES_BEGIN: Final = 21
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FIELD, _CRC_FIELD, _ATTRIBUTES_FIELD = 1, 4, 5
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_FIRST_OUTPUT_BYTES: Final = 64 * 1024
_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10

NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One message. `offset` is -1 until a broker has given it one."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = NO_TIMESTAMP
    offset: int = -1


class OpenBatch(NamedTuple):
    """A batch that is checked and decompressed, whose records are not made yet: `batch` has none.
    `payload`: they, as bytes."""

    batch: RecordBatch
    record_count: int
    base_timestamp_ms: int
    payload: bytes

    def records(self, headers_max: int | None = None) -> Iterator[Record]:
        """One after the other; ProtocolError at the first one that does not fit, or that has more
        headers."""
        cursor = _Cursor(self.payload, 0, len(self.payload))
        of = self.batch
        append_time_ms = of.max_timestamp_ms if of.log_append_time else None
        for _ in range(self.record_count):
            yield _decode_record(
                cursor, of.base_offset, self.base_timestamp_ms, append_time_ms, headers_max
            )
        if cursor.position != cursor.end:
            raise ProtocolError(f"{cursor.end - cursor.position} bytes after the last record")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """A decoded batch. Control batches carry transaction markers, not messages."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    codec: Codec
    log_append_time: bool
    transactional: bool
    control: bool
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[Record, ...]


def _append_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)  # zigzag
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
        return
    _append_varint(out, len(value))
    out += value


def _encode_records(records: Sequence[Record], base_timestamp_ms: int) -> bytes:
    out = bytearray()
    body = bytearray()
    for offset_delta, record in enumerate(records):
        body.clear()
        body.append(0)  # attributes
        _append_varint(body, record.timestamp_ms - base_timestamp_ms)
        _append_varint(body, offset_delta)
        _append_bytes(body, record.key)
        _append_bytes(body, record.value)
        _append_varint(body, len(record.headers))
        for name, value in record.headers:
            _append_bytes(body, name.encode())
            _append_bytes(body, value)
        _append_varint(out, len(body))
        out += body
    return bytes(out)


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """The bytes of one batch; records without a timestamp want one from the caller first."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp_ms = records[0].timestamp_ms
    attributes = int(codec) | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    payload = compress(codec, _encode_records(records, base_timestamp_ms))
    covered = (
        _AFTER_CRC.pack(
            attributes,
            len(records) - 1,
            base_timestamp_ms,
            max(record.timestamp_ms for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        + payload
    )
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES - _AFTER_CRC.size + len(covered)
    head = struct.pack(">qiibI", base_offset, length, leader_epoch, MAGIC, crc32c(covered))
    return head + covered


class _Cursor:
    """Varints and byte strings of records, each compared with the bytes left."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def _unsigned(self, bytes_max: int) -> int:
        value = shift = 0
        for position in range(self.position, min(self.end, self.position + bytes_max)):
            byte = self.data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position + 1
                return value
            shift += 7
        raise ProtocolError("a varint runs out of its record")

    def varint(self) -> int:
        """Of 32 bits: of a fifth byte only the low ones count, as in Apache Kafka."""
        value = self._unsigned(_VARINT_BYTES_MAX) & 0xFFFF_FFFF
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Of 64 bits."""
        value = self._unsigned(_VARLONG_BYTES_MAX) & 0xFFFF_FFFF_FFFF_FFFF
        return (value >> 1) ^ -(value & 1)

    def nullable(self) -> bytes | None:
        size = self.varint()
        if size == -1:
            return None
        if size < -1:
            raise ProtocolError(f"a field of {size} bytes")
        begin = self.position
        if size > self.end - begin:
            raise ProtocolError(f"{size} bytes wanted, {self.end - begin} left in the record")
        self.position = begin + size
        return self.data[begin : begin + size]


def _decode_record(
    outer: _Cursor,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    headers_max: int | None,
) -> Record:
    size = outer.varint()
    if size < 1 or size > outer.end - outer.position:
        raise ProtocolError(f"a record of {size} bytes, {outer.end - outer.position} left")
    cursor = _Cursor(outer.data, outer.position + 1, outer.position + size)  # steps over attributes
    outer.position += size
    timestamp_ms = _wrapped(base_timestamp_ms + cursor.varlong())
    offset = base_offset + cursor.varint()
    key = cursor.nullable()
    value = cursor.nullable()
    count = cursor.varint()
    if count < 0 or count > cursor.end - cursor.position:
        raise ProtocolError(f"{count} headers, {cursor.end - cursor.position} bytes left")
    if headers_max is not None and count > headers_max:
        raise ProtocolError(f"{count} headers, and {headers_max} are read at most")
    headers: Headers = ()
    if count:
        headers = tuple(_decode_header(cursor) for _ in range(count))
    if cursor.position != cursor.end:
        raise ProtocolError("a record longer than its fields")
    if append_time_ms is not None:
        timestamp_ms = append_time_ms
    return Record(key, value, headers, timestamp_ms, offset)


def _wrapped(number: int) -> int:
    """As int64 arithmetic has it."""
    return (number + 2**63) % 2**64 - 2**63


def _decode_header(cursor: _Cursor) -> tuple[str, bytes | None]:
    name = cursor.nullable()
    if name is None:
        raise ProtocolError("a header without a name")
    return name.decode(errors="replace"), cursor.nullable()


def decode_batches(data: bytes, limit_bytes: int | None = None) -> Iterator[RecordBatch]:
    """The whole batches at the start of `data`, each checked and decompressed."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise ProtocolError(f"a batch of {length} bytes is shorter than its header")
        if length > len(data) - position - LOG_OVERHEAD_BYTES:
            return
        end = position + LOG_OVERHEAD_BYTES + length
        yield _decode_batch(data[position:end], limit_bytes)
        position = end


def _unpack(codec: Codec, payload: bytes, base_offset: int, limit_bytes: int | None) -> bytes:
    """A codec's output buffer may be as large as its limit, so the limit grows with the need."""
    if limit_bytes is None:  # what a broker has stored can be read
        try:
            return decompress(codec, payload)
        except CompressionError as error:
            raise ProtocolError(f"batch at offset {base_offset}: {error}") from error
    size = min(limit_bytes, max(_FIRST_OUTPUT_BYTES, 4 * len(payload)))
    while True:
        try:
            return decompress(codec, payload, size)
        except CompressionError as error:
            if size >= limit_bytes:
                raise ProtocolError(f"batch at offset {base_offset}: {error}") from error
        size = min(limit_bytes, 4 * size)


def _decode_batch(data: bytes, limit_bytes: int | None) -> RecordBatch:
    opened = open_batch(data, limit_bytes)
    return replace(opened.batch, records=tuple(opened.records()))


def open_batch(data: bytes, limit_bytes: int | None = None) -> OpenBatch:
    """One whole batch, whose records unpack to `limit_bytes` at most: for readers that want some
    records of many, or not all at once. ProtocolError."""
    (
        base_offset, _, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp_ms,
        max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    ) = BATCH_HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        raise ProtocolError(f"a batch of format {magic}; only format 2 is read")
    actual = crc32c(memoryview(data)[ATTRIBUTES_BEGIN:])
    if actual != crc:
        raise ProtocolError(f"batch at offset {base_offset}: CRC is {actual:#x}, not {crc:#x}")
    codec_id = attributes & CODEC_MASK
    if codec_id > Codec.ZSTD:
        raise ProtocolError(f"unknown codec {codec_id}")
    codec = Codec(codec_id)
    payload = data[HEADER_BYTES:]
    if codec is not Codec.NONE:
        payload = _unpack(codec, payload, base_offset, limit_bytes)
    if count < 0 or count > len(payload):
        raise ProtocolError(f"{count} records in {len(payload)} bytes")
    batch = RecordBatch(
        base_offset=base_offset,
        last_offset=base_offset + last_offset_delta,
        leader_epoch=leader_epoch,
        codec=codec,
        log_append_time=bool(attributes & LOG_APPEND_TIME),
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & CONTROL),
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records=(),
    )
    return OpenBatch(batch, count, base_timestamp_ms, payload)


def packed_records(batch: bytes) -> tuple[Codec, memoryview]:
    """A batch's codec and its records as they stand in it.

    ProtocolError when the batch is cut off, is of an unknown codec, or its CRC is another.
    """
    if len(batch) < HEADER_BYTES:
        raise ProtocolError("a record batch is shorter than its header")
    header = BATCH_HEADER.unpack_from(batch)
    if header[_CRC_FIELD] != crc32c(memoryview(batch)[ATTRIBUTES_BEGIN:]):
        raise ProtocolError("the batch's CRC is not that of its bytes")
    number = header[_ATTRIBUTES_FIELD] & CODEC_MASK
    if number > max(Codec):
        raise ProtocolError(f"unknown codec {number}")
    return Codec(number), memoryview(batch)[HEADER_BYTES:]


def repacked(
    batch: bytes, packing: Packing, pieces: Iterable[bytes | memoryview], bytes_max: int
) -> bytearray:
    """The same batch with its records packed in this way; else only its length and CRC change.

    `pieces` are the records (see `compress_into`); TooLongError if the batch exceeds `bytes_max`.
    """
    out = bytearray(HEADER_BYTES)
    compress_into(out, packing, pieces, bytes_max)
    header = list(BATCH_HEADER.unpack_from(batch))
    header[_LENGTH_FIELD] = len(out) - LOG_OVERHEAD_BYTES
    header[_ATTRIBUTES_FIELD] = header[_ATTRIBUTES_FIELD] & ~CODEC_MASK | packing.codec
    BATCH_HEADER.pack_into(out, 0, *header)
    header[_CRC_FIELD] = crc32c(memoryview(out)[ATTRIBUTES_BEGIN:])
    BATCH_HEADER.pack_into(out, 0, *header)
    return out
