"""What a recovery cuts off a log, kept beside it under another name.

After a crash a log ends at its first bad batch. What stands behind may be a write that never
finished, or records that were acknowledged and that a person may want to look at: so nothing of it
is removed, but given a name that nobody opens, and a line in the broker's log says where it is.

    00000000000000000020.log.1234.cut     what stood in that segment from byte 1234 on
    00000000000000000040.log.cut          a whole segment behind it

A second one of the same name gets `.2.cut`, and so on. They go with the topic, or when a person
removes them. Zeros, which is what a power cut leaves of a file that had grown, are not kept.
"""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final

from kbroker.log import file_operations
from kbroker.log.segment_files import INDEX_SUFFIXES, TEMPORARY_SUFFIX

logger: Final = logging.getLogger("kbroker.log")

CUT_SUFFIX: Final = ".cut"
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_CHUNK_BYTES: Final = 1 << 20


def keep_tail(path: Path, position: int, end: int, *, torn: bool) -> None:
    """Copies what stands from `position` on. OSError: it cannot be kept, so it must not be cut.

    Only a piece of a batch, whose write did not finish (`torn`), is given up where no space is.
    """
    if _only_zeros(path, position, end):
        return
    target = _free_name(path.with_name(f"{path.name}.{position}"))
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    try:
        file_operations.copy_part(path, position, end, temporary)
    except OSError as error:
        file_operations.unlink(temporary)
        if not torn or error.errno not in _NO_SPACE:
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
    """Renames whole segments, the newest first: what is left is a log at every moment."""
    for base_offset in reversed(base_offsets):
        path = directory / f"{base_offset:020d}.log"
        target = _free_name(path)
        file_operations.rename(path, target)
        logger.warning("%s stands behind the cut and is kept as %s", path, target)
        for suffix in INDEX_SUFFIXES:
            file_operations.unlink(path.with_suffix(f".{suffix}"))
    if base_offsets:
        file_operations.sync_directory(directory)


def _free_name(path: Path) -> Path:
    target = path.with_name(path.name + CUT_SUFFIX)
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.{number}{CUT_SUFFIX}")
    return target


def _only_zeros(path: Path, position: int, end: int) -> bool:
    while position < end:
        part = file_operations.read_part(path, position, min(_CHUNK_BYTES, end - position))
        if part.strip(b"\0"):
            return False
        position += len(part)
    return True
