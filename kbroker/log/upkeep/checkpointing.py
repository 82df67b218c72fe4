"""The checkpoints of the data directories, written from the logs' points.

A file is written of every log in its directory: the present values of those that are open, the kept
ones of the others. Its lock (`DataDirectory.checkpoint_locks`) is held from the reading of the
offsets to the end of the writing, so that the newest are written last. Any thread.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.log.engine.checkpoints import CLEANER_FILE, LOG_START_FILE, RECOVERY_POINT_FILE

if TYPE_CHECKING:
    from kbroker.log.engine.partition_log import PartitionLog
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.log.opening.held_log import HeldLog
    from kbroker.types import TopicPartition


class Checkpointing:
    """See the head of this file. OSError where a file cannot be written."""

    def __init__(
        self,
        lines: Callable[[str, DataDirectory], Mapping[TopicPartition, int]],
        held: Callable[[Iterable[TopicPartition]], list[HeldLog]],
    ) -> None:
        """`lines`: what a file of a directory says now; `held`: of these logs those that are
        open."""
        self._lines: Final = lines
        self._held: Final = held

    def write(self, file: str, directory: DataDirectory) -> None:
        with directory.checkpoint_locks[file]:
            if directory.failed:
                raise OSError(errno.EIO, "it has failed", str(directory.path))
            self.write_locked(file, directory)

    def write_locked(self, file: str, directory: DataDirectory) -> None:
        """For a caller that holds the file's lock."""
        directory.write_checkpoint(file, self._lines(file, directory))

    def points_fell(self, log: PartitionLog) -> None:
        """The files say it from which a later start trusts what it does not read. Nothing is
        written for a log that is not open yet."""
        for it in self._held([log.name]):
            if it.log is log:
                for file in (RECOVERY_POINT_FILE, CLEANER_FILE):
                    self.write(file, it.directory)

    def write_of(self, file: str, log: PartitionLog) -> None:
        """What `file` says of a log is what holds now, for a later start to find."""
        for it in self._held([log.name]):
            self.write(file, it.directory)

    def write_log_starts(self, logs: Iterable[PartitionLog]) -> dict[TopicPartition, OSError]:
        """Puts the starts of these logs where a later start of the broker finds them.

        On return they survive a kill and a power cut, but for the logs that are answered, with the
        reason. Looks at no other log: a client asks for one as often as it likes.
        """
        left = {log.name for log in logs}
        failed: dict[TopicPartition, OSError] = {}
        while held := self._held(left):
            directory = held[0].directory
            with directory.checkpoint_locks[LOG_START_FILE]:
                # One that is in another by now has its turn there.
                here = [it.log for it in self._held(left) if it.directory is directory]
                starts = {log.name: start for log in here if (start := log.log_start_offset) > 0}
                try:
                    if directory.failed:
                        raise OSError(errno.EIO, "it has failed", str(directory.path))
                    directory.update_checkpoint(LOG_START_FILE, starts)
                except OSError as error:
                    failed.update(dict.fromkeys((log.name for log in here), error))
                else:
                    for log in here:
                        log.start_on_file = starts.get(log.name, 0)
            left -= {log.name for log in here}
        closed = {name: OSError(errno.EBADF, "its log is closed", str(name)) for name in left}
        return {**failed, **closed}
