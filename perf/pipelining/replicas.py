"""What both replicas of a partition have on the disk, batch by batch.

The load writes into every first record when it was sent, so the log itself says whether each record
is there once and in the order in which its producer sent it, on the leader and on the follower.
Layout of a batch: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf.batch import HEADER_BYTES
from perf.cells import CellError
from perf.wire import WireError

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")  # base offset to record count
_STAMP: Final = struct.Struct(">q")
_LENGTH_FROM: Final = 12  # a batch's length counts from here
BATCH_BYTES_MAX: Final = 2 << 20


class Written(NamedTuple):
    """One batch of a log."""

    base_offset: int
    records: int
    crc: int
    stamp_ns: int  # what lies where the load writes the send time


def batches(path: Path, stamp_at: int) -> Iterator[Written]:
    """Every batch of a segment file, `stamp_at` bytes from its start the send time. WireError where
    it is no log."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if not size:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            at = 0
            while at + HEADER_BYTES <= size:
                head = _HEAD.unpack_from(data, at)
                base_offset, length, crc, records = head[0], head[1], head[4], head[12]
                end = at + _LENGTH_FROM + length
                if not HEADER_BYTES <= length + _LENGTH_FROM <= BATCH_BYTES_MAX or end > size:
                    if not base_offset and not length:
                        return  # the rest of a file that was made longer beforehand
                    raise WireError(f"{path}: a batch of {length} bytes at {at}")
                stamp = _STAMP.unpack_from(data, at + stamp_at)[0] if at + stamp_at < end - 8 else 0
                yield Written(base_offset, records, crc, stamp)
                at = end


def check(directories: Sequence[Path], topic: str, records: int, stamp_at: int) -> None:
    """CellError unless every replica has exactly these records in the order of their sending.

    `directories`: of the brokers. `stamp_at`: of the load's batches, the first one is not its; -1:
    not stamped, or by several producers, whose records lie among each other.
    """
    first: list[int] = []
    for number, directory in enumerate(directories):
        offset, sent_ns, crcs = 0, 0, []
        for path in sorted((directory / "data" / f"{topic}-0").glob("*.log")):
            for one in batches(path, stamp_at if stamp_at >= 0 else HEADER_BYTES):
                if one.base_offset != offset:
                    raise CellError(f"{path}: offset {one.base_offset} where {offset} had to be")
                if stamp_at >= 0 and offset:
                    if one.stamp_ns < sent_ns:
                        raise CellError(f"{path}: the record at {offset} was sent before its last")
                    sent_ns = one.stamp_ns
                offset += one.records
                crcs.append(one.crc)
        if offset != records:
            raise CellError(f"{directory.name}: {offset} records of {topic}, not {records}")
        if number and crcs != first:
            raise CellError(f"{directory.name}: other records of {topic} than on its leader")
        first = first or crcs
