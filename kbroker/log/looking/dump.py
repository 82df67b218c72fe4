"""What the files of a log say, for `kbroker dump-log`: read as they lie there, without a broker.

Nothing is written and nothing locked. Beside a broker that writes them the last batch may be half
there; files are read, not mapped, since one that is cut meanwhile would end the process.

`SegmentFile.batches` stops with `DamagedLog` at the first batch that is not sound: of another
format, cut off, out of order, with another CRC, or with records that are not well formed. Indexes
are held against the batches that they point at, as far as those are sound. Formats are Apache
Kafka's: https://kafka.apache.org/documentation/#recordbatch, `_index.pyx`, `checkpoints.py`,
`producer_snapshots.py`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from kbroker.compression import Codec, CompressionError
from kbroker.errors import ErrorCode
from kbroker.log.engine.segment_files import segment_name
from kbroker.log.engine.validator import unpack_and_walk
from kbroker.log.looking._tools import RecordsWalk, crc32c, walk_records
from kbroker.protocol._unpacking import CodecMissing
from kbroker.protocol.record_batch import (
    ATTRIBUTES_BEGIN,
    BATCH_HEADER,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
)

PIECE_BYTES: Final = 1 << 20
OF_THE_WHOLE_FILE: Final = -1  # in the place of an offset

Entry = TypeVar("Entry")

_AT_LENGTH: Final = struct.Struct(">qi4xb")  # base offset, length, format
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
_ZEROS: Final = bytes(64 << 10)


class DamagedLog(ValueError):
    """A file is not what it should be: which, where, and how."""

    def __init__(self, path: Path, offset: int, position: int, what: str) -> None:
        """`offset`: the first that cannot be had, or an entry's; `position` in bytes."""
        where = f"offset {offset}, byte {position}: " if offset != OF_THE_WHOLE_FILE else ""
        super().__init__(f"{path}: {where}{what}")
        self.path = path
        self.offset = offset
        self.position = position
        self.what = what


class StoredBatch(NamedTuple):
    """The header of a batch, and where it lies."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)


class OffsetEntry(NamedTuple):
    """Of a `.index`: the last offset of a batch, and where that begins."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """Of a `.timeindex`: the largest timestamp so far, and an offset of its batch."""

    timestamp_ms: int
    offset: int


class AbortedTransaction(NamedTuple):
    """Of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def base_offset_of(path: Path) -> int:
    """By the file's name; ValueError if that is none of a segment's."""
    name = path.name.partition(".")[0]
    if segment_name(f"{name}.log") is None:
        raise ValueError(
            f"{path}: no segment has such a name; one is 20 digits, below 2^63, and a suffix"
        )
    return int(name)


def format_of(path: Path) -> int | None:
    """Of the first batch in a `.log`; None: there is none."""
    with path.open("rb") as file:
        head = file.read(_AT_LENGTH.size)
    if len(head) < _AT_LENGTH.size or not any(head):
        return None
    found: int = _AT_LENGTH.unpack(head)[2]
    return found


class SegmentFile:
    """A `.log`, from its beginning on; a context manager that closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base_offset = base_offset_of(path)
        self._file: BufferedReader = path.open("rb")
        self.size_bytes = os.fstat(self._file.fileno()).st_size
        self.next_offset = self.base_offset  # after the last batch that was read
        self.zeros_at: int | None = None  # where the batches ended, if only zeros follow

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def batches(self) -> Iterator[StoredBatch]:
        """Every batch, checked with all of its records."""
        position = 0
        while (found := self._next(position)) is not None:
            yield found
            position += found.size_bytes
            self.next_offset = found.last_offset + 1

    def headers(self) -> Iterator[StoredBatch]:
        """Every batch by its header alone: up to the first that is none."""
        position = 0
        while position + HEADER_BYTES <= self.size_bytes:
            self._file.seek(position)
            head = self._file.read(HEADER_BYTES)
            if len(head) < HEADER_BYTES:  # it was cut meanwhile
                return
            _, length, magic = _AT_LENGTH.unpack_from(head)
            if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                return
            yield _stored(position, head)
            position += LOG_OVERHEAD_BYTES + length

    def position_of(self, offset: int) -> int | None:
        """Where the batch begins that holds an offset, by headers alone; None: none does."""
        for batch in self.headers():
            if batch.last_offset >= offset:
                return batch.position if batch.base_offset <= offset else None
        return None

    def bytes_of(self, batch: StoredBatch) -> bytes:
        """All of a batch that `batches` gave last, or before."""
        back = self._file.tell()
        try:
            self._file.seek(batch.position)
            return self._file.read(batch.size_bytes)
        finally:
            self._file.seek(back)

    def _next(self, position: int) -> StoredBatch | None:
        head = self._file.read(HEADER_BYTES)
        if not any(head):
            self._check_only_zeros(position)
            self.zeros_at = position if head else None
            return None
        if len(head) < HEADER_BYTES:
            raise self._damaged(position, f"{len(head)} bytes that are no batch at the end")
        base_offset, length, magic = _AT_LENGTH.unpack_from(head)
        if magic != MAGIC:
            raise self._damaged(position, f"a batch of format {magic}; only format {MAGIC} is read")
        size_bytes = LOG_OVERHEAD_BYTES + length
        left = self.size_bytes - position
        if not HEADER_BYTES <= size_bytes <= left:
            raise self._damaged(position, f"a batch of {size_bytes} bytes where {left} are left")
        batch = _stored(position, head)
        count, last_offset = batch.record_count, batch.last_offset
        if base_offset < self.next_offset or last_offset < base_offset or count < 0:
            raise self._damaged(
                position, f"a batch of {count} records from offset {base_offset} to {last_offset}"
            )
        records = self._file.read(size_bytes - HEADER_BYTES)
        if len(records) < size_bytes - HEADER_BYTES:
            raise self._damaged(position, "the file was cut meanwhile")
        actual = crc32c(records, crc32c(head[ATTRIBUTES_BEGIN:]))
        if actual != batch.crc:
            raise self._damaged(position, f"the CRC is {actual:#010x}, not {batch.crc:#010x}")
        self._check_records(batch, head, records)
        return batch

    def _check_only_zeros(self, position: int) -> None:
        """A file that was made longer beforehand ends so."""
        while piece := self._file.read(PIECE_BYTES):
            if any(piece):
                raise self._damaged(position, "zeros, and then something else")

    def _check_records(self, batch: StoredBatch, head: bytes, records: bytes) -> None:
        number = batch.attributes & CODEC_MASK
        if number > max(Codec):
            raise self._damaged(batch.position, f"there is no codec {number}")
        try:
            walk = _walk(batch, number, head + records)
        except CompressionError as error:
            raise self._damaged(batch.position, f"its records: {error}") from error
        if walk.error:
            said = walk.message or ErrorCode(walk.error).name
            raise self._damaged(batch.position, f"its records: {said}")
        given = max(batch.max_timestamp_ms, NO_TIMESTAMP)
        append_time = batch.attributes & LOG_APPEND_TIME
        if batch.record_count and not append_time and walk.max_timestamp_ms != given:
            found = walk.max_timestamp_ms
            raise self._damaged(batch.position, f"its largest timestamp is {found}, not {given}")

    def _damaged(self, position: int, what: str) -> DamagedLog:
        return DamagedLog(self.path, self.next_offset, position, what)


def _stored(position: int, head: bytes) -> StoredBatch:
    (
        base_offset, length, leader_epoch, _, crc, attributes, last_delta, base_timestamp_ms,
        max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    ) = BATCH_HEADER.unpack_from(head)  # fmt: skip
    return StoredBatch(
        position, LOG_OVERHEAD_BYTES + length, base_offset, base_offset + last_delta, leader_epoch,
        crc, attributes, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch,
        base_sequence, count,
    )  # fmt: skip


def _walk(batch: StoredBatch, codec: int, data: bytes) -> RecordsWalk:
    """CompressionError where the compiled codecs are not there, and Python's cannot either."""
    base_ms = batch.base_timestamp_ms
    try:
        packed = memoryview(data)[HEADER_BYTES:]
        return walk_records(packed, codec, batch.record_count, base_ms, gaps=True)
    except CodecMissing:
        return unpack_and_walk(data)


# --- Indexes --------------------------------------------------------------------------------------


def _used_bytes(data: bytes) -> int:
    """Without the zeros at its end, of which an index that is appended to has ten megabytes: whole
    blocks are compared, where rstrip looks at each byte."""
    end = len(data)
    while end >= len(_ZEROS) and data.endswith(_ZEROS, end - len(_ZEROS), end):
        end -= len(_ZEROS)
    begin = max(0, end - len(_ZEROS))
    return begin + len(data[begin:end].rstrip(b"\0"))


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, fields) of each; zeros after the first are a file made longer beforehand."""
    data = path.read_bytes()
    used = _used_bytes(data)
    whole = len(data) - len(data) % layout.size
    for position in range(0, whole, layout.size):
        fields = layout.unpack_from(data, position)
        if position >= used and not any(fields):
            return
        yield position, fields
    if used > whole:
        raise DamagedLog(
            path, base_offset_of(path), whole, f"an entry has {layout.size} bytes; these are fewer"
        )


def offset_entries(path: Path) -> Iterator[OffsetEntry]:
    """Of a `.index`, which must rise; DamagedLog."""
    base_offset, last = base_offset_of(path), OffsetEntry(-1, -1)
    for at, (relative, position) in _entries(path, _OFFSET_ENTRY):
        entry = OffsetEntry(base_offset + relative, position)
        if relative < 0 or position < 0 or entry.offset <= last.offset or position <= last.position:
            raise DamagedLog(path, entry.offset, at, f"position {position} after {last}")
        yield entry
        last = entry


def time_entries(path: Path) -> Iterator[TimeEntry]:
    """Of a `.timeindex`, which must rise; DamagedLog."""
    base_offset, last = base_offset_of(path), TimeEntry(-2, -1)
    for at, (timestamp_ms, relative) in _entries(path, _TIME_ENTRY):
        entry = TimeEntry(timestamp_ms, base_offset + relative)
        if relative < 0 or timestamp_ms <= last.timestamp_ms or entry.offset <= last.offset:
            raise DamagedLog(path, entry.offset, at, f"timestamp {timestamp_ms} after {last}")
        yield entry
        last = entry


def aborted_transactions(path: Path) -> Iterator[AbortedTransaction]:
    """Of a `.txnindex`; DamagedLog."""
    for at, (version, *fields) in _entries(path, _ABORTED_ENTRY):
        if version != 0:
            raise DamagedLog(path, base_offset_of(path), at, f"an entry of version {version}")
        yield AbortedTransaction(*fields)


class IndexCheck:
    """Checks the indexes of a segment against its batches, which it is given in their order.

    An entry's position is where a batch begins, and its offset the last of that batch, or, as older
    brokers wrote several at once, of one after it. `damage` has at most one of each index.
    """

    def __init__(self, log: Path) -> None:
        """Reads the indexes first, so that a writer meanwhile is further on in the log."""
        self.damage: list[DamagedLog] = []
        self._offsets_path = log.with_suffix(".index")
        self._times_path = log.with_suffix(".timeindex")
        self._offsets = self._read(offset_entries, self._offsets_path)
        self._times = self._read(time_entries, self._times_path)
        self._awaited = -1  # the last offset of an entry that one of the next batches has to have

    def _read(self, read: Callable[[Path], Iterator[Entry]], path: Path) -> list[Entry]:
        """The next entry is the last."""
        try:
            return list(read(path))[::-1]
        except FileNotFoundError:
            return []
        except DamagedLog as damage:
            self.damage.append(damage)
            return []

    def see(self, batch: StoredBatch) -> None:
        self._see_offsets(batch)
        self._see_times(batch)

    def _see_offsets(self, batch: StoredBatch) -> None:
        if batch.last_offset > self._awaited >= 0:
            self._damaged_offsets(self._awaited, "no batch ends with that offset")
            return
        if batch.last_offset == self._awaited:
            self._awaited = -1
        while self._offsets and self._offsets[-1].position <= batch.position:
            entry = self._offsets.pop()
            if entry.position != batch.position or entry.offset < batch.last_offset:
                self._damaged_offsets(
                    entry.offset,
                    f"position {entry.position} is said to hold it; the batch at"
                    f" {batch.position} ends with {batch.last_offset}",
                )
            elif entry.offset > batch.last_offset:
                self._awaited = entry.offset

    def _damaged_offsets(self, offset: int, what: str) -> None:
        self.damage.append(DamagedLog(self._offsets_path, offset, 0, what))
        self._offsets, self._awaited = [], -1

    def _see_times(self, batch: StoredBatch) -> None:
        while self._times and self._times[-1].offset <= batch.last_offset:
            entry = self._times.pop()
            if entry.offset < batch.base_offset or entry.timestamp_ms != batch.max_timestamp_ms:
                what = (
                    f"timestamp {entry.timestamp_ms} is said to be its; the batch from"
                    f" {batch.base_offset} has {batch.max_timestamp_ms}"
                )
                self.damage.append(DamagedLog(self._times_path, entry.offset, 0, what))
                self._times = []

    def end(self) -> None:
        """All batches have been seen: what an entry says of others is damage."""
        if self._awaited >= 0:
            self._damaged_offsets(self._awaited, "no batch ends with that offset")
        if self._offsets:
            entry = self._offsets[-1]
            self._damaged_offsets(entry.offset, f"no batch is at position {entry.position}")
        if self._times:
            late = self._times[-1]
            what = "no batch holds that offset"
            self.damage.append(DamagedLog(self._times_path, late.offset, 0, what))
