"""The files in a log's directory: the segments, and the remains of a change that a crash ended.

Names are Apache Kafka's: `<base offset>.log` with its `.index` and `.timeindex`, and with a suffix
`.deleted` for a file that is about to be removed, `.cleaned` for one that a compaction or a split
was still writing, `.swap` for one that was whole and had begun to take the place of others. A swap
holds the only copy of its records once the files that it replaces are gone, so it is completed as
in Kafka, which may have written the directory. A file with another name is someone else's, and has
no effect. A swap whose headers contradict each other, or the files that it would replace, is for an
operator to look at: nothing is changed then.

Runs on the thread that opens the log, before any other has it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.config.key import INT_MAX, LONG_MAX
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine import file_operations
from kbroker.protocol.record_batch import BATCH_HEADER, LOG_OVERHEAD_BYTES

logger: Final = logging.getLogger("kbroker.log")

DELETED_FILE_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
_OF_CHANGES: Final = (DELETED_FILE_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
_HAS_CHANGES: Final = re.compile(f"(?:{'|'.join(map(re.escape, _OF_CHANGES))})/")
INDEX_SUFFIXES: Final = ("index", "timeindex", "txnindex")

_SEGMENT_NAME: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex)")
# Apache Kafka removes snapshots of producers by way of that name, too.
_OF_A_CHANGE: Final = re.compile(
    r"([0-9]{20})\.(?:log|index|timeindex|txnindex|snapshot)\.(?:deleted|cleaned|swap)"
)


class SegmentName(NamedTuple):
    """What the name of a segment's file says."""

    base_offset: int
    kind: str


def segment_name(name: str) -> SegmentName | None:
    """None: no segment's file is called so. Its offset has 20 digits and 63 bits."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) > LONG_MAX:
        return None
    return SegmentName(int(match[1]), match[2])


def is_swap(name: str) -> bool:
    """Whether it is of a file that has begun to take the place of others."""
    return name.endswith(SWAP_SUFFIX) and segment_name(name.removesuffix(SWAP_SUFFIX)) is not None


class SegmentFile(NamedTuple):
    """A segment by its .log."""

    base_offset: int
    size_bytes: int


def find_segments(directory: Path, sizes: Mapping[str, int] | None = None) -> list[SegmentFile]:
    """The segments in order of their offsets, after finishing a change that a crash interrupted.
    `sizes`: of the files there are, if they were listed already (`LogFiles`)."""
    names = _finish_what_was_begun(directory, _names(directory) if sizes is None else _of(sizes))
    found: list[SegmentFile] = []
    for name, size_bytes in names.items():
        segment = segment_name(name)
        if segment is None:
            continue
        if segment.kind == "log":
            found.append(SegmentFile(segment.base_offset, size_bytes))
        elif f"{segment.base_offset:020d}.log" not in names:
            file_operations.unlink(directory / name)
    return sorted(found)


def remove_segment(directory: Path, base_offset: int) -> None:
    """The .log last: until then the next start sees that there is something to remove."""
    for suffix in (*INDEX_SUFFIXES, "log"):
        file_operations.unlink(directory / f"{base_offset:020d}.{suffix}")


def _finish_what_was_begun(directory: Path, names: dict[str, int]) -> dict[str, int]:
    """Removes useless files and completes swaps; names and sizes of the files there are then."""
    if not _HAS_CHANGES.search("/".join((*names, ""))):  # one search: a start asks each log
        return names
    changes = [
        name for name in names
        if (match := _OF_A_CHANGE.fullmatch(name)) and int(match[1]) <= LONG_MAX
    ]  # fmt: skip
    cleaned = [name for name in changes if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in changes if is_swap(name)]
    # A split that was still being written: its finished parts are not whole without the others.
    whole_below = min(map(_offset_of, cleaned), default=LONG_MAX + 1)
    begun = [name for name in swaps if _offset_of(name) >= whole_below]
    swaps = [name for name in swaps if _offset_of(name) < whole_below]
    replaced = _replaced_by(directory, names, swaps)  # before anything is changed
    useless = [name for name in changes if name.endswith(DELETED_FILE_SUFFIX)]
    useless += [name for name in names if name.endswith(TEMPORARY_SUFFIX)]
    for name in [*begun, *cleaned]:
        file_operations.unlink(directory / name)
        del names[name]
    for name in replaced:
        logger.info("%s was replaced by a swap; removed", directory / name)
        file_operations.unlink(directory / name)
    for name in swaps:
        logger.info("%s: completed, as it was whole", directory / name)
        file_operations.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    if swaps:
        file_operations.sync_directory(directory)
    # Last: until a swap is complete, they are asked whether it may take their place.
    for name in useless:
        file_operations.unlink(directory / name)
        del names[name]
    return _names(directory) if swaps else names


# --- Swaps ----------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """What a cleaning leaves as it is of a batch, and what it only makes less."""

    position: int
    same: tuple[int, ...]
    base_offset: int
    next_offset: int
    records: int
    max_timestamp_ms: int
    attributes: int
    crc: int

    def may_be_left_of(self, original: _Batch) -> bool:
        if self.same != original.same or self.records > original.records:
            return False
        if self.records == original.records > 0:  # a cleaning may only have given it a horizon
            if self.attributes == original.attributes:
                return self.crc == original.crc
            return self.max_timestamp_ms == original.max_timestamp_ms
        return True


def _replaced_by(directory: Path, names: Mapping[str, int], swaps: Iterable[str]) -> list[str]:
    """The files of the segments that begin within one of the swaps, in the order of offsets: where
    a crash ends their removal, the last ones are left, which the next start may have to ask."""
    there = sorted((segment.base_offset, name) for name in names if (segment := segment_name(name)))
    bases = [base for base, name in there if name.endswith(".log")]
    replaced: set[int] = set()
    for name in swaps:
        if name.endswith(f".log{SWAP_SUFFIX}"):
            replaced.update(_replaced_by_one(directory, name, names, bases))
    return [name for base, name in there if base in replaced]


def _replaced_by_one(
    directory: Path, name: str, names: Mapping[str, int], bases: list[int]
) -> list[int]:
    """No CRC covers a batch's base offset: other batches are asked whether it may be so."""
    path, first = directory / name, _offset_of(name)
    end, before, last = first, first, None
    for last in _batches(path, names[name]):
        if last.base_offset < end or last.next_offset - 1 - first > INT_MAX:
            raise _refused(path, f"a batch at {last.position} has offset {last.base_offset}")
        before, end = end, last.next_offset
    replaced = [base for base in bases if first <= base < end]
    if last is not None and replaced and replaced[-1] >= max(before, first + 1):
        # Only the last batch says so.
        originals = _originals_of(names, last.base_offset)
        found = (each for one in originals for each in _batches(directory / one, names[one]))
        if replaced[-1] > last.base_offset or not any(map(last.may_be_left_of, found)):
            had = " and ".join(originals) or "no segment"
            raise _refused(path, f"{had} has no batch like its last one, at {last.position}")
    return replaced


def _originals_of(names: Mapping[str, int], offset: int) -> list[str]:
    """The files of the last segment that begins at or below an offset. It may have given its name
    up already: the originals of a swap do that one after the other."""
    segments = {
        (segment.base_offset, name)
        for name in names
        if (segment := segment_name(name.removesuffix(DELETED_FILE_SUFFIX)))
        and segment.kind == "log" and segment.base_offset <= offset
    }  # fmt: skip
    newest = max((base for base, _ in segments), default=-1)
    return sorted(name for base, name in segments if base == newest)


def _batches(path: Path, size_bytes: int) -> Iterator[_Batch]:
    """By their headers alone."""
    position = 0
    while position + BATCH_HEADER.size <= size_bytes:
        front = file_operations.read_part(path, position, BATCH_HEADER.size)
        (base_offset, length, leader_epoch, _, crc, attributes, last_delta, _, max_timestamp_ms,
         *producer, records) = BATCH_HEADER.unpack(front)  # fmt: skip
        if length <= 0 or last_delta < 0:
            raise _refused(path, f"no batch at {position}")
        yield _Batch(
            position, (base_offset, leader_epoch, last_delta, *producer),
            base_offset, base_offset + last_delta + 1, records, max_timestamp_ms, attributes, crc,
        )  # fmt: skip
        position += LOG_OVERHEAD_BYTES + length


def _refused(path: Path, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"{path} cannot take the place of other segments: {reason}; nothing was changed; move that"
        " file away",
    )


def _names(directory: Path) -> dict[str, int]:
    return {
        entry.name: entry.stat(follow_symlinks=False).st_size
        for entry in file_operations.list_directory(directory)
        # A directory with the name of a segment is an error when the log is opened.
        if entry.is_file(follow_symlinks=False) or segment_name(entry.name)
    }


def _of(sizes: Mapping[str, int]) -> dict[str, int]:
    """The same from the result of `file_operations.look_at_log`."""
    return {n: size for n, size in sizes.items() if size >= 0 or segment_name(n)}


def _offset_of(name: str) -> int:
    """Of a name that begins with one."""
    return int(name[:20])
