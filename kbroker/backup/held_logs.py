"""The files of a log that a broker writes meanwhile, held open so that none of them goes away.

`hold` opens every segment of a log before the ends of all logs are asked for. What retention
removes or compaction replaces afterwards stays readable, so the copy has the records as they were
when the ends were asked for: a compaction that came in between could have dropped a record below
the end in favour of one above it. Segments that were rolled since are opened by `look_again`, which
refuses those that a compaction may have had by then.

The directory may change while it is listed. A compaction that is giving files their names leaves a
`.swap` for that time; then, and when a file is not the one that was listed, all is opened again.

Only headers of batches are read here, and none is trusted: a length that cannot be is a ValueError.
Descriptors belong to the log until `close`. One thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from kbroker.backup.files import read_bounded
from kbroker.backup.manifest import SMALL_FILE_BYTES_MAX, Outcome, is_segment
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    leader_epochs_in,
    topic_id_in,
)
from kbroker.log.engine.producer_snapshots import snapshot_files
from kbroker.log.engine.segment_files import is_swap
from kbroker.log.looking.dump import base_offset_of, offset_entries
from kbroker.protocol.record_batch import (
    BATCH_HEADER,
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    decode_batches,
)
from kbroker.types import TopicPartition

SNAPSHOTS_MAX: Final = 2
_ATTEMPTS: Final = 200
_CONTROL_BATCH_BYTES_MAX: Final = 4096
_INDEXED_BYTES_MIN: Final = 1 << 20  # a segment with fewer is read from its beginning
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_ABORT, _COMMIT = b"\0\0", b"\0\1"  # the types of markers, in their keys


class Piece(NamedTuple):
    """The part of a segment that is saved. `closed`: all of it, and nothing is added any more."""

    name: str
    descriptor: int
    size_bytes: int
    closed: bool

    @property
    def source(self) -> tuple[int, ...] | None:
        """By which the file is known again."""
        if not self.closed:
            return None
        found = os.fstat(self.descriptor)
        return (
            found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        )  # fmt: skip


class _Header(NamedTuple):
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    producer_epoch: int


class HeldLog:
    """See the head of this file; `hold` makes one."""

    def __init__(self, name: TopicPartition, path: Path, *, is_compacted: bool) -> None:
        self.name: Final = name
        self.path: Final = path
        self._is_compacted: Final = is_compacted
        self.topic_id: UUID | None = None
        self.epochs: tuple[tuple[int, int], ...] = ()
        self._segments: dict[int, int] = {}  # descriptors, by base offset

    def close(self) -> None:
        while self._segments:
            os.close(self._segments.popitem()[1])

    def look_again(self) -> None:
        """Opens the segments that were rolled since. ValueError where the log is another one now,
        or a compaction may have had the records of new segments before they were opened: it takes
        all but the newest one."""
        newest = max(self._segments)
        for base_offset in _bases(os.listdir(self.path)):
            if base_offset > newest:
                self._open(base_offset)
        if max(self._segments) > newest and not self._is_as_rolled(newest):
            raise ValueError(f"{self.name} was compacted meanwhile")
        if self._topic_id_there() != self.topic_id:
            raise ValueError(f"the topic of {self.name} was deleted and created again meanwhile")

    def _is_as_rolled(self, newest: int) -> bool:
        if not self._is_the_same(newest):
            return False
        there = _listed(self.path)
        few = there is not None and sum(each > newest for each in there) <= 1
        return few or not self._is_compacted

    def open_all(self) -> bool:
        """False: the directory has changed meanwhile, so this is to be done again."""
        bases = _listed(self.path)
        if not bases:
            return False
        for base_offset in bases:
            self._open(base_offset)
        again = _listed(self.path)
        if again is None or again[: len(bases)] != bases:
            return False
        if any(not self._is_the_same(base_offset) for base_offset in bases):
            return False
        self._read_small()
        return True

    def _open(self, base_offset: int) -> None:
        path = self.path / _file_name(base_offset)
        self._segments[base_offset] = os.open(path, _OPEN)

    def _is_the_same(self, base_offset: int) -> bool:
        held = os.fstat(self._segments[base_offset])
        try:
            there = (self.path / _file_name(base_offset)).lstat()
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    def _topic_id_there(self) -> UUID | None:
        path = self.path / PARTITION_METADATA_FILE
        return topic_id_in(read_bounded(path, SMALL_FILE_BYTES_MAX), path)

    def _read_small(self) -> None:
        self.topic_id = self._topic_id_there()
        epochs = self.path / LEADER_EPOCH_FILE
        if epochs.exists() and (data := read_bounded(epochs, SMALL_FILE_BYTES_MAX)):
            self.epochs = tuple(leader_epochs_in(data))

    def snapshots(self, end_offset: int) -> dict[str, bytes]:
        """Names and contents of the newest ones at or below an offset. They are found by their
        names, so one that was removed is left out, and all where the topic has been deleted, or
        deleted and created again: the records say the same, more slowly."""
        found: dict[str, bytes] = {}
        with suppress(FileNotFoundError):
            there = [each for each in snapshot_files(self.path) if each[0] <= end_offset]
            for _, path in there[-SNAPSHOTS_MAX:]:
                with suppress(ValueError):
                    found[path.name] = read_bounded(path, SMALL_FILE_BYTES_MAX)
        return found if self._is_of_its_topic() else {}

    def _is_of_its_topic(self) -> bool:
        try:
            return self._topic_id_there() == self.topic_id
        except ValueError:
            return False

    # --- Up to where ------------------------------------------------------------------------------

    def pieces(self, start_offset: int, end_offset: int) -> list[Piece]:
        """What holds the records from one offset to before another; ValueError where it is not all
        there, which is so where this broker does not lead the partition any more."""
        bases = [each for each in sorted(self._segments) if each <= end_offset]
        if not bases:
            raise ValueError(f"{self.name} begins after offset {end_offset}")
        if bases[0] > start_offset:
            raise ValueError(f"{self.name} begins at offset {bases[0]}, not {start_offset}")
        found: list[Piece] = []
        for base_offset, following in pairwise(bases):
            if following <= start_offset:
                continue
            handle = self._segments[base_offset]
            name = _file_name(base_offset)
            found.append(Piece(name, handle, os.fstat(handle).st_size, closed=True))
        last = bases[-1]
        position = self._end_position(last, end_offset)
        found.append(Piece(_file_name(last), self._segments[last], position, closed=False))
        return found

    def _end_position(self, base_offset: int, end_offset: int) -> int:
        """Where the batches below an offset end in the segment that has the last of them."""
        begin, next_offset = self._indexed(base_offset, end_offset), base_offset
        position = begin
        for header in _headers(self._segments[base_offset], begin):
            if header.base_offset >= end_offset:
                break
            position, next_offset = header.position + header.size_bytes, header.last_offset + 1
        if next_offset != end_offset:
            raise ValueError(f"{self.name} is there up to offset {next_offset}, not {end_offset}")
        return position

    def _indexed(self, base_offset: int, end_offset: int) -> int:
        """A position from which few batches are left, by the index; 0 where that is of no use."""
        if os.fstat(self._segments[base_offset]).st_size < _INDEXED_BYTES_MIN:
            return 0
        path = (self.path / _file_name(base_offset)).with_suffix(".index")
        found = 0
        try:
            for entry in offset_entries(path):
                if entry.offset >= end_offset:
                    break
                found = entry.position
        except (OSError, ValueError):
            return 0
        first = next(_headers(self._segments[base_offset], found), None)
        is_there = first is not None and base_offset <= first.base_offset < end_offset
        return found if is_there else 0

    def outcomes(self, from_offset: int, to_offset: int) -> Iterator[Outcome]:
        """Markers of transactions between two offsets, the first of each producer."""
        seen: set[int] = set()
        bases = sorted(self._segments)
        for at, base_offset in enumerate(bases):
            if at + 1 < len(bases) and bases[at + 1] <= from_offset:
                continue
            handle = self._segments[base_offset]
            for header in _headers(handle, self._indexed(base_offset, from_offset)):
                if header.base_offset >= to_offset:
                    return
                is_marker = header.attributes & CONTROL and header.base_offset >= from_offset
                if is_marker and header.producer_id not in seen:
                    committed = _outcome(handle, header)
                    if committed is not None:
                        seen.add(header.producer_id)
                        yield Outcome(header.producer_id, header.producer_epoch, committed)


def hold(
    name: TopicPartition, path: Path, pause: Callable[[], None], *, is_compacted: bool
) -> HeldLog:
    """A log with all of its segments open; ValueError where it cannot be had. `pause` waits for a
    moment in which the broker does more."""
    why = "it changes all the time"
    for _ in range(_ATTEMPTS):
        held = HeldLog(name, path, is_compacted=is_compacted)
        try:
            if held.open_all():
                return held
        except FileNotFoundError as error:
            why = f"{error.filename} is not there"
        except BaseException:
            held.close()
            raise
        held.close()
        pause()
    raise ValueError(f"the log of {name} cannot be read: {why}")


def _listed(path: Path) -> list[int] | None:
    """The base offsets of the segments; None while a compaction gives files their names."""
    names = os.listdir(path)
    if any(map(is_swap, names)):
        return None
    return _bases(names)


def _bases(names: Iterable[str]) -> list[int]:
    return sorted(base_offset_of(Path(name)) for name in names if is_segment(name))


def _file_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def _headers(handle: int, position: int) -> Iterator[_Header]:
    """Batches by their headers, up to the first that is none or is not all there."""
    size_bytes = os.fstat(handle).st_size
    while position + HEADER_BYTES <= size_bytes:
        head = os.pread(handle, HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return
        base, length, _, magic, _, attributes, delta, _, _, producer, epoch, _, _ = (
            BATCH_HEADER.unpack(head)
        )
        end = position + LOG_OVERHEAD_BYTES + length
        if magic != MAGIC or length < HEADER_BYTES - LOG_OVERHEAD_BYTES or end > size_bytes:
            return
        batch_bytes = LOG_OVERHEAD_BYTES + length
        yield _Header(position, batch_bytes, base, base + delta, attributes, producer, epoch)
        position = end


def _outcome(handle: int, header: _Header) -> bool | None:
    """Whether a marker commits; None: it is of another kind."""
    data = os.pread(handle, min(header.size_bytes, _CONTROL_BATCH_BYTES_MAX), header.position)
    for batch in decode_batches(data):
        for record in batch.records:
            kind = (record.key or b"")[2:4]
            if kind in (_ABORT, _COMMIT):
                return kind == _COMMIT
    return None
