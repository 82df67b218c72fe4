"""What a log really holds: its files, read as far as they are new.

A batch is one record here, whose value says who sent it. What was cut off the log is forgotten, and
what stands in its place is read again, so a look at a log after every step costs what is new.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from tests.support.record_batches import build_batch

_HEAD = struct.Struct(">qii")
_LENGTH_AT = 61 + 5  # of the value, in a record without a key: one byte, twice the length
_FILE_BYTES_MAX = 1 << 20
_OVERHEAD = _LENGTH_AT + 2  # of a batch, beside the value: its head, and no headers behind


class Record(NamedTuple):
    epoch: int
    value: bytes


def batch_of(value: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """As a producer sends it: one record, which `Contents` reads again."""
    return build_batch(
        [value], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def records_in(data: bytes) -> list[tuple[int, Record]]:
    """Of whole batches and perhaps a part of one, by offset."""
    found = []
    at = 0
    while at + _HEAD.size <= len(data):
        offset, size, epoch = _HEAD.unpack_from(data, at)
        if at + 12 + size > len(data):
            break
        start = at + _LENGTH_AT + 1
        found.append((offset, Record(epoch, data[start : start + (data[start - 1] >> 1)])))
        at += 12 + size
    return found


class Contents:
    """The records of one log by offset; they begin at 0, since nobody deletes any."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
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
        for offset, record in records_in(data):
            if len(self.records) == end_offset:
                break
            if offset != len(self.records):
                raise AssertionError(
                    f"{self.directory}: offset {offset} where {len(self.records)} should be"
                )
            position += _OVERHEAD + len(record.value)
            self.records.append(record)
            self._ends.append((base, position))
