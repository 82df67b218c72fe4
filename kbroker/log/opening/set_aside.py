"""Bytes that a recovery cuts off a log, kept beside it under another name.

After a crash a log ends at its first bad batch. The bytes after it may be a write that never
finished, or acknowledged records that an operator may want to look at: so none of them is removed,
but they get a name that is never opened, and a line in the broker's log says where they are.

    00000000000000000020.log.1234.cut     the bytes of that segment from byte 1234 on
    00000000000000000040.log.cut          a whole segment after it

Other bytes at the same place get `.2.cut`, and so on; bytes that were kept by an earlier start that
failed after it are not kept again. They go with the topic, or when an operator removes them. Zeros,
which a power cut leaves of a file that had grown, are not kept, nor is a piece of a batch where
crashes have left `TORN_KEPT_MAX` files before.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.log.engine import file_operations
from kbroker.log.engine.segment_files import INDEX_SUFFIXES, TEMPORARY_SUFFIX

logger: Final = logging.getLogger("kbroker.log")

CUT_SUFFIX: Final = ".cut"
TORN_KEPT_MAX: Final = 8
_CHUNK_BYTES: Final = 1 << 20


def keep_tail(path: Path, position: int, end: int, *, torn: bool) -> None:
    """Copies the bytes from `position` on. OSError: they cannot be kept, so they must not be cut.

    Only a piece of a batch, whose write did not finish (`torn`), is given up where no space is, or
    where there are enough of them.
    """
    if _only_zeros(path, position, end):
        return
    name = path.with_name(f"{path.name}.{position}")
    target = _free_name(name)
    if any(_holds(kept, path, position, end) for kept in _names_before(name, target)):
        return
    if torn and len(list(path.parent.glob(f"*.log.*{CUT_SUFFIX}"))) >= TORN_KEPT_MAX:
        logger.warning(
            "%s: %d bytes of a batch that is cut off are dropped, since %d files with such are kept"
            " beside it: look at them and remove them", path, end - position, TORN_KEPT_MAX,
        )  # fmt: skip
        return
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        file_operations.copy_part(path, position, end, temporary)
    except OSError as error:
        file_operations.unlink(temporary)
        if not torn or error.errno not in file_operations.NO_SPACE:
            raise
        logger.warning(
            "%s: %d bytes of a batch that is cut off are dropped, since there is no space to keep"
            " them", path, end - position,
        )  # fmt: skip
        return
    file_operations.rename(temporary, target)
    file_operations.sync_directory(path.parent)
    logger.warning("%s: the %d bytes that are cut off are kept as %s", path, end - position, target)


def keep_segments(directory: Path, base_offsets: list[int]) -> None:
    """Renames whole segments, the newest first: the rest is a log at every moment."""
    for base_offset in reversed(base_offsets):
        path = directory / f"{base_offset:020d}.log"
        target = _free_name(path)
        file_operations.rename(path, target)
        logger.warning("%s is after the cut and is kept as %s", path, target)
        for suffix in INDEX_SUFFIXES:
            file_operations.unlink(path.with_suffix(f".{suffix}"))
    if base_offsets:
        file_operations.sync_directory(directory)


def _names(path: Path) -> Iterator[Path]:
    yield path.with_name(path.name + CUT_SUFFIX)
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}.{number}{CUT_SUFFIX}")


def _free_name(path: Path) -> Path:
    """OSError: it is not known which one is, and bytes that are kept must not be replaced."""
    return next(name for name in _names(path) if not file_operations.is_there(name))


def _names_before(path: Path, free: Path) -> Iterator[Path]:
    return itertools.takewhile(lambda name: name != free, _names(path))


def _holds(kept: Path, path: Path, position: int, end: int) -> bool:
    """Whether it is the copy of these bytes."""
    try:
        if kept.stat().st_size != end - position:
            return False
    except FileNotFoundError:  # a link to where it was moved, which is away now
        return False
    for at in range(position, end, _CHUNK_BYTES):
        length = min(_CHUNK_BYTES, end - at)
        part = file_operations.read_part(path, at, length)
        if part != file_operations.read_part(kept, at - position, length):
            return False
    return True


def _only_zeros(path: Path, position: int, end: int) -> bool:
    while position < end:
        part = file_operations.read_part(path, position, min(_CHUNK_BYTES, end - position))
        if part.strip(b"\0"):
            return False
        position += len(part)
    return True
