"""Record batches (magic 2), written down once and sent many times.

The value of each record is pseudo-random from a fixed seed, or words where a codec is to have
something to find, so that every run of every broker gets the same bytes. The first 8 bytes of the
first value can be left zero for the send time that the end-to-end cell writes there; `stamp_at`
says where they are. Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from perf._load import crc32c

HEADER_BYTES = 61
LENGTH_AT, CRC_AT, ATTRIBUTES_AT, SEQUENCE_AT = 8, 17, 21, 53
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
STAMP_BYTES = 8
LZ4_BLOCK_BYTES = 64 << 10
# Frame descriptor: version 1, independent blocks, 64 KB blocks; the last byte is its checksum.
LZ4_FRAME_HEAD = bytes.fromhex("04224d18604082")

_WORDS = (
    b"offset segment leader follower epoch request answer batch record topic partition index",
    b"consumer producer session broker cluster replica header payload the of and to in a is",
)
_VOCABULARY = b" ".join(_WORDS).split(b" ")


@dataclass(frozen=True)
class RecordBatch:
    """An encoded batch with base offset 0 and, where idempotent, base sequence 0."""

    data: bytes
    records: int
    value_bytes: int  # of all records together
    crc: int
    stamp_at: int  # -1: no place for a stamp


def varint(value: int) -> bytes:
    """A signed number, zigzag, least significant group first."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def payload(size: int, *, words: bool = False, seed: int = 7) -> bytes:
    """`size` bytes: noise that no codec can shorten, or words that every codec can."""
    source = random.Random(seed)
    if not words:
        return source.randbytes(size)
    out = bytearray()
    while len(out) < size:
        out += source.choice(_VOCABULARY) + b" "
    return bytes(out[:size])


def record(offset_delta: int, value: bytes, timestamp_delta: int = 0) -> bytes:
    """One record without key and headers."""
    body = b"".join(
        (
            b"\0",  # attributes
            varint(timestamp_delta),
            varint(offset_delta),
            varint(-1),  # no key
            varint(len(value)),
            value,
            varint(0),  # no headers
        )
    )
    return varint(len(body)) + body


def compress(codec: str, data: bytes) -> bytes:
    """`data` as the record section of a batch with this codec."""
    if codec == "none":
        return data
    import cramjam

    if codec == "gzip":
        return bytes(cramjam.gzip.compress(data))
    if codec == "zstd":
        return bytes(cramjam.zstd.compress(data, 3))
    if codec == "snappy":
        return bytes(cramjam.snappy.compress_raw(data))
    if codec != "lz4":
        raise ValueError(f"codec {codec!r}: one of {', '.join(CODECS)}")
    out = bytearray(LZ4_FRAME_HEAD)
    for at in range(0, len(data), LZ4_BLOCK_BYTES):
        block = data[at : at + LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) >= len(block):  # the top bit says that a block is stored as it is
            out += struct.pack("<I", len(block) | 1 << 31) + block
        else:
            out += struct.pack("<I", len(packed)) + packed
    return bytes(out + b"\0\0\0\0")


def encode(
    values: list[bytes],
    *,
    codec: str = "none",
    timestamp_ms: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    stamped: bool = False,
) -> RecordBatch:
    """One batch of these values. An idempotent producer's batch has base sequence 0."""
    if stamped:
        if codec != "none" or len(values[0]) < STAMP_BYTES:
            raise ValueError("a stamp needs 8 bytes in an uncompressed first value")
        values = [bytes(STAMP_BYTES) + values[0][STAMP_BYTES:], *values[1:]]
    records = [record(i, value) for i, value in enumerate(values)]
    # A record's value is followed by its header count alone, one byte.
    stamp_at = HEADER_BYTES + len(records[0]) - 1 - len(values[0]) if stamped else -1
    section = compress(codec, b"".join(records))
    summed = (
        struct.pack(
            ">hiqqqhii",
            CODECS[codec],
            len(values) - 1,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            producer_epoch,
            0 if producer_id >= 0 else -1,
            len(values),
        )
        + section
    )
    crc = crc32c(summed)
    head = struct.pack(">qiibI", 0, len(summed) + 9, -1, 2, crc)
    return RecordBatch(head + summed, len(values), sum(map(len, values)), crc, stamp_at)


def of_size(batch_bytes: int, **options: object) -> RecordBatch:
    """A batch of exactly this size with one record: what a fetch cell's log is made of."""
    size = batch_bytes - HEADER_BYTES - 16
    for _ in range(4):  # the length fields' own length settles at once
        batch = encode([payload(size)], **options)  # type: ignore[arg-type]
        if len(batch.data) == batch_bytes:
            return batch
        size += batch_bytes - len(batch.data)
    raise ValueError(f"no batch of one record has {batch_bytes} bytes")


def of_records(
    record_bytes: int,
    batch_bytes: int = 0,
    *,
    words: bool = False,
    seed: int = 7,
    **options: object,
) -> RecordBatch:
    """As many records of this size as a producer with `batch.size` would put into one batch."""
    count = max(1, batch_bytes // (record_bytes + 8))
    data = payload(record_bytes * count, words=words, seed=seed)
    values = [data[i * record_bytes : (i + 1) * record_bytes] for i in range(count)]
    return encode(values, **options)  # type: ignore[arg-type]
