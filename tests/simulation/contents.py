"""What a log really holds: its files, read as far as they are new.

A batch is one record here, whose value says who sent it; in `__consumer_offsets` it is the group
and the offset. What was cut off the log is forgotten, and what stands in its place is read again,
so a look at a log after every step costs what is new.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.record_batches import build_batch

_HEAD = struct.Struct(">qii")
_HEAD_BYTES = 61  # of a batch, before its records
_LENGTH_AT = 5  # of the value, in a record without a key: one byte, twice the length
_FILE_BYTES_MAX = 1 << 20
# What a group is, with its members: nobody has sent it as it stands there.
GROUP_STATE = b"group of "
_OFFSET_KEY = 1
_SHORT, _LONG = struct.Struct(">h"), struct.Struct(">q")


class Record(NamedTuple):
    epoch: int
    value: bytes


def batch_of(value: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """As a producer sends it: one record, which `Contents` reads again."""
    return build_batch(
        [value], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def value_in(record: bytes) -> bytes:
    """Of a producer's record."""
    start = _LENGTH_AT + 1
    return record[start : start + (record[_LENGTH_AT] >> 1)]


def commit_in(record: bytes) -> bytes:
    """Of a record in `__consumer_offsets`: "group/offset", or what the group is."""
    at = 3 if record[0] & 0x80 else 2  # its length, attributes
    at += 2  # times and offsets are those of the batch
    key, at = _sized(record, at)
    (version,) = _SHORT.unpack_from(key)
    group = key[4 : 4 + _SHORT.unpack_from(key, 2)[0]]
    if version != _OFFSET_KEY:
        return GROUP_STATE + group + record
    value, _ = _sized(record, at)
    return b"%s/%d" % (group, _LONG.unpack_from(value, 2)[0])


def _sized(record: bytes, at: int) -> tuple[bytes, int]:
    """Bytes behind their length, which is a number of one byte or two; and where they end."""
    length = record[at] & 0x7F
    if record[at] & 0x80:
        at += 1
        length |= record[at] << 7
    start, end = at + 1, at + 1 + (length >> 1)
    return record[start:end], end


def records_in(data: bytes) -> list[tuple[int, Record]]:
    """A producer's, of whole batches and perhaps a part of one, by offset."""
    return [
        (offset, Record(epoch, value_in(data[start:end])))
        for offset, epoch, start, end in _batches(data)
    ]


def _batches(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Offset, epoch, where its record begins and ends."""
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, epoch = _HEAD.unpack_from(data, at)
        end = at + 12 + size
        if end > len(data):
            break
        yield offset, epoch, at + _HEAD_BYTES, end
        at = end


class Contents:
    """The records of one log by offset; they begin at 0, since nobody deletes any."""

    def __init__(self, directory: Path, value_of: Callable[[bytes], bytes] = value_in) -> None:
        self.directory = directory
        self.value_of = value_of
        self.records: list[Record] = []
        # Where each ends: its segment's base offset and a position in that file.
        self._ends: list[tuple[int, int]] = []

    def follow(self, end_offset: int) -> list[Record]:
        """The log ends there now; what is new."""
        del self.records[end_offset:], self._ends[end_offset:]
        known = len(self.records)
        base, position = self._ends[-1] if self._ends else (0, 0)
        while len(self.records) < end_offset:
            before = len(self.records)
            self._read(base, position, end_offset)
            if len(self.records) == before:
                if base == before:
                    raise AssertionError(f"{self.directory}: no batch at offset {before}")
                base, position = before, 0
            else:
                base, position = self._ends[-1]
        return self.records[known:]

    def place_of(self, offset: int) -> tuple[int, int]:
        """The base offset of the segment in which it begins or the log ends, and the position."""
        return self._ends[offset - 1] if offset else (0, 0)

    def _read(self, base: int, position: int, end_offset: int) -> None:
        file = os.open(self.directory / f"{base:020d}.log", os.O_RDONLY)
        try:
            data = os.pread(file, _FILE_BYTES_MAX, position)
        finally:
            os.close(file)
        for offset, epoch, start, end in _batches(data):
            if len(self.records) == end_offset:
                break
            if offset != len(self.records):
                raise AssertionError(
                    f"{self.directory}: offset {offset} where {len(self.records)} should be"
                )
            self.records.append(Record(epoch, self.value_of(data[start:end])))
            self._ends.append((base, position + end))
