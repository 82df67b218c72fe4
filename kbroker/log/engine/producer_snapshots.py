"""Producer snapshots: the producers of a log, in Kafka's `.snapshot` files.

`<offset, 20 digits>.snapshot` holds the state as of that offset: the last batches of each producer,
at most five, the oldest first. A client sends any of those again that it has in flight: after a
start that knew the last one alone, the others would be out of order. Apache Kafka writes the last
one only, and of several entries of a producer takes the last.
Opening a log takes the newest sound one at or below the log's end and replays the batches after it.
One is written at a clean close and in the background after a roll; older ones go with it, but for
the one before it (a crash may cut the log below the newest).

Layout: int16 version 1, uint32 CRC-32C of everything after it, int32 count, then per producer id
(int64), epoch (int16), last sequence (int32), last offset (int64), offset delta (int32), timestamp
(int64), coordinator epoch (int32), first offset of its open transaction (int64, -1 for none). The
bytes are a disk's and not trusted: a file that is cut off or altered counts as not there.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kbroker.log.engine import file_operations
from kbroker.log.engine._results import ProducerEntry
from kbroker.log.looking._tools import crc32c

VERSION: Final = 1
SUFFIX: Final = ".snapshot"
KEPT_FILES: Final = 2

_HEADER: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_STARTS: Final = 6
_FILE: Final = re.compile(rf"([0-9]{{20}}){re.escape(SUFFIX)}")


class SnapshotError(ValueError):
    """A snapshot file is not one."""


def framed(entries: bytes) -> bytes:
    """The bytes of a snapshot file with these entries (`LocalLog.producer_snapshot`)."""
    counted = struct.pack(">i", len(entries) // _ENTRY.size) + entries
    return struct.pack(">hI", VERSION, crc32c(counted)) + counted


def decode(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file."""
    if len(data) < _HEADER.size:
        raise SnapshotError("shorter than its header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"version {version} is not known here")
    if crc != crc32c(data[_CRC_STARTS:]):
        raise SnapshotError("the CRC is wrong")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise SnapshotError(f"{count} entries do not fit in {len(data)} bytes")
    return [
        ProducerEntry(*_ENTRY.unpack_from(data, _HEADER.size + at * _ENTRY.size))
        for at in range(count)
    ]


def snapshot_files(directory: Path, names: Iterable[str] | None = None) -> list[tuple[int, Path]]:
    """(offset, file) of every snapshot, oldest first. `names`: of the files there are, if they were
    listed already."""
    if names is None:
        names = [entry.name for entry in file_operations.list_directory(directory)]
    return sorted(
        (int(match[1]), directory / name)
        for name in names
        if name.endswith(SUFFIX) and (match := _FILE.fullmatch(name))
    )


def remove_all(directory: Path) -> None:
    """Nothing is known of any producer from here on."""
    for _, path in snapshot_files(directory):
        file_operations.unlink(path)


def write(
    directory: Path,
    offset: int,
    entries: bytes,
    *,
    sync: bool,
    needed_from: Iterable[int] = (),
) -> None:
    """Writes the snapshot as of `offset` and removes those that no start needs any more: one that
    has to look at older batches would begin with the newest at or below one of `needed_from`."""
    file_operations.replace_file(directory / f"{offset:020d}{SUFFIX}", framed(entries), sync=sync)
    older = snapshot_files(directory)[:-KEPT_FILES]
    kept = {max((at for at, _ in older if at <= each), default=-1) for each in needed_from}
    for at, old in older:
        if at not in kept:
            file_operations.unlink(old)


def load_newest(
    directory: Path,
    log_end_offset: int,
    names: Iterable[str] | None = None,
    *,
    at_most: int | None = None,
) -> tuple[int, list[ProducerEntry]]:
    """(offset, entries) of the newest sound snapshot; (-1, []) if there is none. `at_most`: later
    ones are left where they are.

    Those beyond the log's end describe batches that a crash took; they are removed, as are those
    that cannot be read. For good: one that came back would be of another history than the log's.
    """
    found: tuple[int, list[ProducerEntry]] = (-1, [])
    removed = False
    for offset, path in reversed(snapshot_files(directory, names)):
        if at_most is not None and at_most < offset <= log_end_offset:
            continue
        if offset <= log_end_offset:
            try:
                found = offset, decode(file_operations.read_file(path))
                break
            except SnapshotError:
                pass
        file_operations.unlink(path)
        removed = True
    if removed:
        file_operations.sync_directory(directory)
    return found
