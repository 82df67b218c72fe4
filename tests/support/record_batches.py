"""Record batches (magic 2) in plain Python: the reference that the compiled log is held against.

`build_batch` makes what a producer sends, `parse_batches` reads what a log holds, one field at a
time and without a shortcut. Compression goes through cramjam, the CRC through fastcrc: neither is
the code under test.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import cramjam
from fastcrc import crc32

HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
XERIAL_MAGIC = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True)
class Record:
    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp_ms: int = 1_000
    headers: Sequence[tuple[bytes, bytes | None]] = ()


@dataclass(frozen=True)
class ParsedBatch:
    base_offset: int
    size_bytes: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    records: list[Record] = field(default_factory=list)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def varint(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (value << 1) ^ (value >> 63)
    left &= (1 << 64) - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def build_record(record: Record, index: int, base_timestamp_ms: int) -> bytes:
    body = b"\0" + varint(record.timestamp_ms - base_timestamp_ms) + varint(index)
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += _sized(key) + _sized(value)
    return varint(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    if codec == "gzip":
        return bytes(cramjam.gzip.compress(data))
    if codec == "snappy":
        return xerial(data)
    if codec == "lz4":
        # Kafka's Java clients read independent blocks only.
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(data))
    return data


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """Snappy blocks in the framing of the Java library."""
    out = bytearray(XERIAL_MAGIC)
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def build_batch(
    records: Iterable[Record | bytes] = (b"v",),
    *,
    codec: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    max_timestamp_ms: int | None = None,
    payload: bytes | None = None,
    count: int | None = None,
) -> bytes:
    """A batch as a producer sends it. `payload` and `count` make one that lies."""
    listed = [r if isinstance(r, Record) else Record(value=r) for r in records]
    base_timestamp_ms = listed[0].timestamp_ms if listed else 0
    body = b"".join(build_record(r, i, base_timestamp_ms) for i, r in enumerate(listed))
    if payload is None:
        payload = compress(codec, body)
    if max_timestamp_ms is None:
        max_timestamp_ms = max((r.timestamp_ms for r in listed), default=-1)
    total = len(listed) if count is None else count
    return seal(
        HEADER.pack(
            base_offset, HEADER.size - 12 + len(payload), leader_epoch, 2, 0,
            attributes | CODECS[codec], total - 1, base_timestamp_ms, max_timestamp_ms,
            producer_id, producer_epoch, base_sequence, total,
        )
        + payload
    )  # fmt: skip


def seal(batch: bytes) -> bytes:
    """The batch with the CRC that its bytes have."""
    return batch[:17] + struct.pack(">I", crc32.iscsi(batch[21:])) + batch[21:]


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return bytes(cramjam.gzip.decompress(data))
    if codec == 2:
        if not data.startswith(b"\x82SNAPPY\x00"):
            return bytes(cramjam.snappy.decompress_raw(data))
        out, at = bytearray(), 16
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return bytes(out)
    if codec == 3:
        return bytes(cramjam.lz4.decompress(data))
    if codec == 4:
        return bytes(cramjam.zstd.decompress(data))
    return data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at]


def parse_records(data: bytes, count: int, base_timestamp_ms: int) -> list[Record]:
    reader = _Reader(data)
    out = []
    for index in range(count):
        size = reader.varint()
        end = reader.at + size
        reader.at += 1
        timestamp_ms = base_timestamp_ms + reader.varint()
        assert reader.varint() == index
        key, value = reader.sized(), reader.sized()
        headers = [(reader.sized() or b"", reader.sized()) for _ in range(reader.varint())]
        assert reader.at == end
        out.append(Record(value, key, timestamp_ms, tuple(headers)))
    assert reader.at == len(data)
    return out


def parse_batches(data: bytes, *, records: bool = True) -> list[ParsedBatch]:
    """Every whole batch; one that is cut off at the end is left out, as a consumer does."""
    out, at = [], 0
    while at + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, at)
        size = fields[1] + 12
        if at + size > len(data):
            break
        assert fields[3] == 2
        assert fields[4] == crc32.iscsi(data[at + 21 : at + size])
        body = data[at + HEADER.size : at + size]
        parsed = (
            parse_records(decompress(fields[5] & 7, body), fields[12], fields[7]) if records else []
        )
        out.append(ParsedBatch(*(fields[0], size, fields[2], *fields[4:], parsed)))
        at += size
    return out
