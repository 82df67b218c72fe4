"""Moves between data directories, for a broker that may never see one: what they need is imported
with the first, and a broker of one directory has none to settle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.clock import Clock
    from kbroker.log.engine._results import FutureLog
    from kbroker.log.opening.data_directory import DataDirectory
    from kbroker.log.upkeep.mover import LogMover, Logs
    from kbroker.own_thread import OwnThread
    from kbroker.types import TopicPartition


class Moves:
    """See the head of this file. Any thread."""

    def __init__(
        self,
        logs: Logs,
        paths: Sequence[Path],
        clock: Clock,
        bytes_per_second: Callable[[], float],
    ) -> None:
        """`paths` are those of `log.dirs`."""
        self._bytes_per_second: Final = bytes_per_second
        self._logs: Final = logs
        self._paths: Final = paths
        self._clock: Final = clock
        self._making: Final = threading.Lock()
        self._mover: LogMover | None = None

    @property
    def mover(self) -> LogMover:
        """Made when it is first asked for."""
        with self._making:
            if self._mover is None:
                from kbroker.log.upkeep.mover import LogMover

                self._mover = LogMover(self._logs, self._paths, self._bytes_per_second, self._clock)
            return self._mover

    def settle(self, directories: Sequence[DataDirectory]) -> list[Path]:
        """The remains of moves that a stop or a crash has ended: a log whose copy is whole has
        changed its place, and the others begin again. Returns the paths to be removed; OSError."""
        if len(directories) < 2:
            return []
        from kbroker.log.upkeep.log_move import settle_twice, unfinished

        settle_twice(directories)
        found = unfinished(directories)
        if found:
            self.mover.unfinished = found
        return [it.path for it in found]

    def preferred(self, name: TopicPartition) -> DataDirectory | None:
        """Where a log that begins now is to be, if that was asked for; once."""
        return None if self._mover is None else self._mover.preferred(name)

    def futures(self) -> list[FutureLog]:
        """Logs on their way."""
        return [] if self._mover is None else self._mover.futures()

    def begin_again(self) -> bool:
        """What the last stop or crash has ended, of those logs that are open by now; whether that
        is all."""
        if self._mover is None:
            return True
        self._mover.begin_again()
        return not self._mover.unfinished

    def stop(self) -> None:
        """Ends the thread, if there is one."""
        if self._mover is not None:
            self._mover.stop()

    @property
    def thread(self) -> OwnThread | None:
        return None if self._mover is None else self._mover.thread
