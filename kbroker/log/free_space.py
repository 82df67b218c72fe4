"""Data directories whose volume is nearly full: what is written there, and what goes.

Every second each volume is asked. With less than `log.dir.min.free.bytes` on it the logs there
refuse what producers send, as a log does whose write has failed (KAFKA_STORAGE_ERROR, which they
try again), so that what the broker itself has to write still finds room: commits, groups,
checkpoints, copies of what others lead. Reads go on; with room enough again, so do producers.

Before that, and where the setting is not set, records that are kept no longer go at once, and so do
files that wait for `file.delete.delay.ms`.

On the scheduler's thread. No lock of its own.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kbroker.clock import Clock
from kbroker.log.partition_log import PartitionLog

logger: Final = logging.getLogger("kbroker.log")

# Whatever the setting, with less than that room is made.
FULL_BYTES: Final = 64 << 20
MAKE_ROOM_PERIOD_MS: Final = 10_000


def free_bytes_of(directory: Path) -> int:
    """What a process without privileges may still write there; OSError."""
    volume = os.statvfs(directory)
    return volume.f_bavail * volume.f_frsize


class FreeSpace:
    """See the head of this file."""

    def __init__(
        self,
        logs: Callable[[], list[PartitionLog]],
        is_own: Callable[[str], bool],
        free_bytes_min: Callable[[], int],
        make_room: Callable[[], Iterator[None]],
        clock: Clock,
        free_bytes: Callable[[Path], int] = free_bytes_of,
    ) -> None:
        """`is_own`: of a topic that the broker itself writes."""
        self._logs: Final = logs
        self._is_own: Final = is_own
        self._free_bytes_min: Final = free_bytes_min
        self._make_room: Final = make_room
        self._clock: Final = clock
        self._free_bytes: Final = free_bytes
        self._refusing: set[Path] = set()
        self._room_made_ms: int | None = None

    def look(self) -> Iterator[None]:
        """Once at every directory that has logs."""
        by_directory: defaultdict[Path, list[PartitionLog]] = defaultdict(list)
        for log in self._logs():
            by_directory[log.path.parent].append(log)
        least = self._free_bytes_min()
        full = False
        for directory, logs in by_directory.items():
            try:
                free = self._free_bytes(directory)
            except OSError as error:
                logger.error("%s cannot be asked for its size: %s", directory, error)
                continue
            self._refuse(directory, logs, free, least)
            full |= free < max(least, FULL_BYTES)
            yield
        if full and self._is_time():
            yield from self._make_room()

    def _refuse(self, directory: Path, logs: list[PartitionLog], free: int, least: int) -> None:
        refuses = free < least
        if not refuses and directory not in self._refusing:
            return
        for log in logs:
            log.refuse_producers(refuses and not self._is_own(log.name.topic))
        if refuses == (directory in self._refusing):
            return
        if refuses:
            self._refusing.add(directory)
            logger.error(
                "%s has %d MB free, and log.dir.min.free.bytes is %d MB: producers are refused "
                "until there is room", directory, free >> 20, least >> 20,
            )  # fmt: skip
        else:
            self._refusing.discard(directory)
            logger.info("%s has %d MB free: producers may write again", directory, free >> 20)

    def _is_time(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._room_made_ms is not None and now_ms - self._room_made_ms < MAKE_ROOM_PERIOD_MS:
            return False
        self._room_made_ms = now_ms
        return True
