"""What a data directory holds and how much room there is, for DescribeLogDirs and the metrics.

From any thread; a broker of ten thousand partitions gives up the GIL in between.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.log.engine._results import DirectoryUse, FutureLog
from kbroker.log.looking import _describe
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.log.opening.held_log import HeldLog

logger: Final = logging.getLogger("kbroker.log")

LOGS_SIZED_AT_ONCE: Final = 500


def use_of_nothing(path: Path) -> DirectoryUse:
    """A directory that is not there, or cannot be asked."""
    return DirectoryUse(os.path.abspath(path), True, [], -1, -1)


def use_of_all(
    paths: Iterable[Path],
    usable: Sequence[DataDirectory],
    held: Iterable[HeldLog],
    wanted: Set[TopicPartition] | None,
    futures: Sequence[FutureLog] = (),
) -> list[DirectoryUse]:
    """Of `paths` those that are not usable first, of which nothing is known; then the others with
    their logs, all or those wanted."""
    here = {directory.path for directory in usable}
    logs = [it for it in held if wanted is None or it.log.name in wanted]
    coming = [it for it in futures if wanted is None or it.name in wanted]
    uses = [use_of_nothing(path) for path in paths if path not in here] + [
        use_of(directory.path, [it.log for it in logs if it.directory is directory])
        for directory in usable
    ]
    if not coming:
        return uses
    return [use._replace(futures=[it for it in coming if it.path == use.path]) for use in uses]


def use_of(path: Path, logs: list[PartitionLog]) -> DirectoryUse:
    """The logs with their bytes, and the volume that they are on."""
    try:
        volume = os.statvfs(path)
    except OSError as error:
        logger.error("%s cannot be asked for its size: %s", path, error)
        return use_of_nothing(path)
    sized: list[tuple[TopicPartition, int]] = []
    for first in range(0, len(logs), LOGS_SIZED_AT_ONCE):
        some = logs[first : first + LOGS_SIZED_AT_ONCE]
        sized += [
            (log.name, size_bytes)
            for log, size_bytes in zip(some, _describe.sizes(some), strict=True)
        ]
    return DirectoryUse(
        os.path.abspath(path),
        False,
        sized,
        volume.f_blocks * volume.f_frsize,
        volume.f_bavail * volume.f_frsize,
    )
