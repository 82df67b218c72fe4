"""The recoveries of a broker after crashes: one for each data directory.

A caller that asks for a log need not know where it is. A name may be in several directories, under
different topics' ids: `Recovery.claim` checks the id. Threads: as of those; the map is made by the
start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from kbroker.clock import NS_PER_MS, Clock
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.log.opening.held_log import HeldLog
from kbroker.log.opening.recovery import Found, OpenAt, Recovery
from kbroker.own_thread import OwnThread
from kbroker.types import TopicPartition

# Has one read, by so many threads: now, or beside what is served.
Recover = Callable[[Recovery, int], None]
NOTHING: Final = Found({}, frozenset())


class Recoveries:
    """See the head of this file."""

    def __init__(self, open_at: OpenAt, clock: Clock) -> None:
        self._open_at: Final = open_at
        self._clock: Final = clock
        self._of: dict[DataDirectory, Recovery] = {}

    def of(self, directory: DataDirectory) -> Recovery:
        """A new one, of which nothing is read yet."""
        recovery = self._of[directory] = Recovery(directory, self._open_at, self._clock)
        return recovery

    def wait(self, timeout_ms: int) -> bool:
        """Until all is read; False if that takes longer."""
        deadline_ns = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        return all([each.wait(deadline_ns) for each in self._of.values()])

    def claim(self, name: TopicPartition, topic_id: UUID, *, new: bool) -> HeldLog | None:
        """As of a recovery; a log of that topic which is there, or None."""
        for directory, recovery in self._of.items():
            log = recovery.claim(name, topic_id, new=new)
            if log is not None:
                return HeldLog(log, directory)
        return None

    def free(self, directory: DataDirectory, name: TopicPartition) -> bool:
        """As of the recovery there."""
        recovery = self._of.get(directory)
        return recovery is None or recovery.free(name)

    def abandon(self, directory: DataDirectory) -> Found:
        """As of the recovery there."""
        recovery = self._of.get(directory)
        return NOTHING if recovery is None else recovery.abandon()

    def stop(self, directory: DataDirectory) -> tuple[Found, bool]:
        """As of the recovery there."""
        recovery = self._of.get(directory)
        return (NOTHING, True) if recovery is None else recovery.stop()

    def take_ready(self) -> list[TopicPartition]:
        """Logs that were refused and are worth another try."""
        return [name for each in self._of.values() for name in each.take_ready()]

    def left_in(self, path: Path) -> int:
        """How many logs are still to be read in that directory."""
        return sum(each.left for it, each in self._of.items() if it.path == path)

    def unclaimed(self) -> dict[DataDirectory, int]:
        """How many logs of each directory are not claimed yet, read or not."""
        return {directory: each.unclaimed for directory, each in self._of.items()}

    @property
    def are_over(self) -> bool:
        """Nothing is left to be read, nor to be named."""
        return all(each.is_over for each in self._of.values())

    @property
    def threads(self) -> Iterator[OwnThread]:
        """Those that read beside what is served."""
        for each in self._of.values():
            yield from each.threads
