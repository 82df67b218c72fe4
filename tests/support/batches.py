"""The record batches of a partition as its log files hold them, read by nothing of kbroker's.

An oracle for the client tests: plain struct and an independent CRC-32C, so that "the codec bits on
disk" and "idempotent batches carry a producer id" are facts about the files and not about what the
broker says of them. Reads whole batches of format 2 only; the files must not be written to
meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fastcrc

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # by the number in a batch's attributes

# base offset, length, leader epoch, magic, crc | attributes, last offset delta, first and largest
# timestamp, producer id and epoch, first sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_COVERS_FROM = 21
_LENGTH_COVERS_FROM = 12
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08


class Batch(NamedTuple):
    base_offset: int
    attributes: int
    last_offset_delta: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    record_count: int
    size_bytes: int

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & _CODEC_MASK]

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)


def segment_files(data_dir: Path, topic: str, partition: int = 0) -> list[Path]:
    """The partition's segments in offset order; the broker names them by their first offset.

    Looked for by name: a walk of the data directory meets logs that are just being removed.
    """
    name = f"{topic}-{partition}"
    return sorted((data_dir / name).glob("*.log")) or sorted(data_dir.glob(f"*/{name}/*.log"))


def read_batches(data_dir: Path, topic: str, partition: int = 0) -> list[Batch]:
    """Every batch of a partition, each with its CRC checked."""
    files = segment_files(data_dir, topic, partition)
    if not files:
        raise FileNotFoundError(f"no segment of {topic}-{partition} below {data_dir}")
    return [batch for file in files for batch in parse(file.read_bytes())]


def parse(data: bytes) -> Iterator[Batch]:
    position = 0
    while position < len(data):
        if len(data) - position < _HEADER.size:
            raise ValueError(f"{len(data) - position} bytes after the last batch at {position}")
        (
            base_offset, length, _leader_epoch, magic, crc, attributes, last_offset_delta,
            first_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, first_sequence,
            record_count,
        ) = _HEADER.unpack_from(data, position)  # fmt: skip
        end = position + _LENGTH_COVERS_FROM + length
        if magic != 2 or length < _HEADER.size - _LENGTH_COVERS_FROM or end > len(data):
            raise ValueError(f"no whole batch of format 2 at {position}: {magic=} {length=}")
        if fastcrc.crc32.iscsi(data[position + _CRC_COVERS_FROM : end]) != crc:
            raise ValueError(f"the batch at {position} does not match its CRC-32C")
        yield Batch(
            base_offset, attributes, last_offset_delta, first_timestamp_ms, max_timestamp_ms,
            producer_id, producer_epoch, first_sequence, record_count, end - position,
        )  # fmt: skip
        position = end
