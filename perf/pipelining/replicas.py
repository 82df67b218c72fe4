"""What both replicas of a partition have on the disk, batch by batch.

The load writes into a batch's first record when it was sent, and after that each producer has
bytes of its own. So the log itself says whether each record is there once, and each producer's in
the order in which it sent them, on the leader and on the follower; and by its CRC, which is
reckoned anew, whether its bytes are those that were sent, the same on both.
Layout of a batch: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf._load import crc32c
from perf.batch import HEADER_BYTES
from perf.cells import CellError
from perf.wire import WireError

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")  # base offset to record count
_STAMP: Final = struct.Struct(">qq")  # the send time, and what tells its producer from others
_SUMMED_FROM: Final = 21  # a batch's CRC is of the rest from here
_LENGTH_FROM: Final = 12  # a batch's length counts from here
BATCH_BYTES_MAX: Final = 2 << 20


class Written(NamedTuple):
    """One batch of a log."""

    base_offset: int
    records: int
    crc: int
    stamp_ns: int  # what lies where the load writes the send time
    producer: int  # the bytes after it


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
                if crc32c(data[at + _SUMMED_FROM : end]) != crc:
                    raise WireError(f"{path}: the CRC of the batch at {at} is not of its bytes")
                there = at + stamp_at + _STAMP.size <= end
                stamp_ns, producer = _STAMP.unpack_from(data, at + stamp_at) if there else (0, 0)
                yield Written(base_offset, records, crc, stamp_ns, producer)
                at = end
            if any(data[at:]):
                raise WireError(f"{path}: {size - at} bytes at {at} that are no batch")


def check(directories: Sequence[Path], topic: str, records: int, stamp_at: int) -> None:
    """CellError unless every replica has exactly these records, each producer's in the order of
    their sending.

    `directories`: of the brokers. `stamp_at`: of the load's batches, the first one is not its; -1:
    not stamped. No producer sends twice in one nanosecond, so equal times are one record twice.
    """
    first: list[int] = []
    for number, directory in enumerate(directories):
        offset, crcs = 0, []
        sent_ns: dict[int, int] = {}  # by producer, its last
        for path in sorted((directory / "data" / f"{topic}-0").glob("*.log")):
            for one in batches(path, stamp_at if stamp_at >= 0 else HEADER_BYTES):
                if one.base_offset != offset:
                    raise CellError(f"{path}: offset {one.base_offset} where {offset} had to be")
                if stamp_at >= 0 and offset:
                    if one.stamp_ns <= sent_ns.get(one.producer, 0):
                        raise CellError(
                            f"{path}: the record at {offset} was not sent after its producer's last"
                        )
                    sent_ns[one.producer] = one.stamp_ns
                offset += one.records
                crcs.append(one.crc)
        if offset != records:
            raise CellError(f"{directory.name}: {offset} records of {topic}, not {records}")
        if number and crcs != first:
            raise CellError(f"{directory.name}: other records of {topic} than on its leader")
        if not number:
            first = crcs
