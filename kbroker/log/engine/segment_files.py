"""The files in a log's directory: the segments, and the remains of a change that a crash ended.

Names are Apache Kafka's: `<base offset>.log` with its `.index` and `.timeindex`, and with a suffix
`.deleted` for a file that is about to be removed, `.cleaned` for one that a compaction or a split
was still writing, `.swap` for one that was whole and had begun to take the place of others. A swap
holds the only copy of its records once the files that it replaces are gone, so it is completed as
in Kafka, which may have written the directory.

Runs on the thread that opens the log, before any other has it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.log.engine import file_operations
from kbroker.protocol.record_batch import LOG_OVERHEAD_BYTES

logger: Final = logging.getLogger("kbroker.log")

DELETED_FILE_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
_OF_CHANGES: Final = (DELETED_FILE_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
_HAS_CHANGES: Final = re.compile(f"(?:{'|'.join(map(re.escape, _OF_CHANGES))})/")
INDEX_SUFFIXES: Final = ("index", "timeindex", "txnindex")

_SEGMENT_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
_OF_AN_OFFSET: Final = re.compile(r"(\d{20})\.")

# Base offset, length of the rest, then after epoch, magic, CRC and attributes the last delta.
_BATCH_FRONT: Final = struct.Struct(">qi11xi")


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
        match = _SEGMENT_FILE.fullmatch(name)
        if match is None:
            continue
        if match[2] == "log":
            found.append(SegmentFile(int(match[1]), size_bytes))
        elif f"{match[1]}.log" not in names:
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
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    # A split that was still being written: its finished parts are not whole without the others.
    whole_below = min((_offset_of(name) for name in cleaned), default=None)
    begun = [n for n in swaps if whole_below is not None and _offset_of(n) >= whole_below]
    useless = [n for n in names if n.endswith((DELETED_FILE_SUFFIX, TEMPORARY_SUFFIX))]
    for name in [*useless, *begun, *cleaned]:
        file_operations.unlink(directory / name)
        del names[name]
    swaps = [name for name in swaps if name in names]
    if not swaps:
        return names
    _complete_swaps(directory, names, swaps)
    return _names(directory)


def _complete_swaps(directory: Path, names: dict[str, int], swaps: list[str]) -> None:
    """Files in the range of the swapped ones were replaced by them; then they get their names."""
    logs = [name for name in swaps if name.endswith(f".log{SWAP_SUFFIX}")]
    if logs:
        first = min(_offset_of(name) for name in logs)
        end = max(_next_offset(directory / name, names[name]) for name in logs)
        for name in names:
            if _SEGMENT_FILE.fullmatch(name) and first <= _offset_of(name) < end:
                logger.info("%s was replaced by a swap; removed", directory / name)
                file_operations.unlink(directory / name)
    for name in swaps:
        logger.info("%s: completed, as it was whole", directory / name)
        file_operations.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    file_operations.sync_directory(directory)


def _names(directory: Path) -> dict[str, int]:
    return {
        entry.name: entry.stat(follow_symlinks=False).st_size
        for entry in file_operations.list_directory(directory)
        # A directory with the name of a segment is an error when the log is opened.
        if entry.is_file(follow_symlinks=False) or _SEGMENT_FILE.fullmatch(entry.name)
    }


def _of(sizes: Mapping[str, int]) -> dict[str, int]:
    """The same from the result of `file_operations.look_at_log`."""
    return {n: size for n, size in sizes.items() if size >= 0 or _SEGMENT_FILE.fullmatch(n)}


def _offset_of(name: str) -> int:
    match = _OF_AN_OFFSET.match(name)
    return int(match[1]) if match else -1


def _next_offset(path: Path, size_bytes: int) -> int:
    """The offset after the last batch of a file, by its headers alone."""
    following = _offset_of(path.name)
    position = 0
    while position + _BATCH_FRONT.size <= size_bytes:
        front = file_operations.read_part(path, position, _BATCH_FRONT.size)
        base_offset, length, last_delta = _BATCH_FRONT.unpack(front)
        if length <= 0 or last_delta < 0:
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: no batch at {position}", str(path))
        following = base_offset + last_delta + 1
        position += LOG_OVERHEAD_BYTES + length
    return following
