"""The consequence of an error with a file for its data directory.

An error may be of one file, or of the disk. So after one the directory is looked at: where nothing
can be written to it any more, other than for want of room, it has failed as a whole, and all logs
in it are offline at once, also those that have no writes. Others lead them then, where there are
others (`replica/failing_logs.py`); the other directories serve on.

Any thread that meets trouble; not under the manager's lock, nor a log's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kbroker.clock import Clock
from kbroker.log.engine.listener import LogListener
from kbroker.log.engine.partition_log import PartitionLog
from kbroker.log.opening.data_directory import DataDirectory

LOOK_MS: Final = 1_000  # from one look at a directory to the next


class DirectoryTrouble:
    """See the head of this file."""

    def __init__(
        self,
        clock: Clock,
        fail: Callable[[DataDirectory, OSError], list[PartitionLog]],
        listener: LogListener,
    ) -> None:
        """`fail` marks the directory, and answers the logs that are open in it."""
        self._clock: Final = clock
        self._fail: Final = fail
        self._listener: Final = listener
        self._looked_ms: dict[DataDirectory, int] = {}

    def look_at(self, directory: DataDirectory) -> None:
        now_ms = self._clock.monotonic_ms()
        if directory.failed or now_ms - self._looked_ms.get(directory, -LOOK_MS) < LOOK_MS:
            return
        self._looked_ms[directory] = now_ms
        error = directory.fails()
        if error is None:
            return
        for log in self._fail(directory, error):
            log.go_offline()
            self._listener.went_offline(log)

    def look_at_cause(self, error: Exception, directories: Iterable[DataDirectory]) -> None:
        """At the one that has the file which the error names."""
        if isinstance(error, OSError):
            for directory in directories:
                if str(error.filename).startswith(f"{directory.path}/"):
                    self.look_at(directory)
