"""Closing the logs of a data directory at a clean stop: one or two, or ten thousand.

A log that is closed by itself costs four waits for the device (its file, both indexes, its
directory), some milliseconds together; where there are many to be brought to the disk the whole
volume is synced once instead, and each log is only asked whether a write of it had failed.
Snapshots of producers and leader epochs are written before that, so the same sync covers them.
Should the volume refuse, every log is synced by itself as before. Logs are closed on several
threads: what is left is system calls.

On the main thread, when nothing appends any more. What is not on the disk leaves no clean-shutdown
mark (the manager's business), so the next start reads it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.log.looking._tools import sync_volume
from kbroker.log.opening.data_directory import in_threads

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.types import TopicPartition

logger: Final = logging.getLogger("kbroker.log")

# Below, what others have written to the volume may be more than our own.
SYNC_VOLUME_LOGS_MIN: Final = 32


def close_logs(
    directory: Path,
    logs: Sequence[PartitionLog],
    threads: int,
    *,
    sync: Callable[[str], None] = sync_volume,
) -> bool:
    """Close all; whether every one of them is on the disk."""
    failed = _Failures()
    unsynced = [log for log in logs if log.online and not log.settled]
    if len(unsynced) >= SYNC_VOLUME_LOGS_MIN:
        _sync_together(directory, unsynced, threads, sync, failed)

    def close(log: PartitionLog) -> None:
        try:
            log.close()
        except OSError as error:
            failed.note(log, error)

    in_threads(threads, close, logs)
    return not failed.any


def _sync_together(
    directory: Path,
    logs: Sequence[PartitionLog],
    threads: int,
    sync: Callable[[str], None],
    failed: _Failures,
) -> None:
    """The kernel reports a failed write once, so it counts here; the rest is tried again."""

    def write(log: PartitionLog) -> None:
        try:
            log.end_times()
            log.write_snapshot()
            # Which epochs had batches that a cleaning removed, the file alone tells.
            (log.epochs.settle if log.cleaned_to else log.epochs.write)(log.log_end_offset)
        except OSError as error:
            logger.warning("%s: not all that belongs to it is written yet: %s", log.name, error)

    in_threads(threads, write, logs)
    try:
        sync(str(directory))
    except OSError as error:
        logger.warning("%s cannot be synced as a whole, so log by log: %s", directory, error)
        return
    for log in logs:
        try:
            log.flush(volume_synced=True)
            log.epochs.settled_with_volume()
        except OSError as error:
            failed.note(log, error)


class _Failures:
    """Logs that could not be closed, noted from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.any = False

    def note(self, log: PartitionLog, error: OSError) -> None:
        with self._lock:
            self.any = True
        logger.error("%s was not closed cleanly: %s", log.name, error)


def has_unread(directory: DataDirectory, unread: Set[TopicPartition]) -> bool:
    """Whether a crash left a log here that could not be read since: no mark may cover it."""
    here = unread & directory.logs().keys()
    if here:
        logger.error(
            "%s is left without the mark of a clean stop: what a crash left in %s could not "
            "be read or closed yet", directory.path,
            ", ".join(str(name) for name in sorted(here)[:5]),
        )  # fmt: skip
    return bool(here)
