"""Data directories whose volume is nearly full: producers are refused, and old records go.

Every second each volume is asked. With less than `log.dir.min.free.bytes` on it the logs there
refuse producers, as a log does whose write has failed (KAFKA_STORAGE_ERROR, which they try again),
so that the broker's own writes still find room: commits, groups, checkpoints, copies of partitions
that others lead. Reads go on; with room enough again, so do producers.

Partitions of such a broker get a leader that is in sync and has room (`replica/failing_logs.py`,
`metadata/controller/refusing_logs.py`). Before that, and where the setting is not set, records that
are kept no longer go at once, and so do files that wait for `file.delete.delay.ms`.

On the scheduler's thread. No lock of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kbroker.clock import Clock
from kbroker.log.engine.partition_log import PartitionLog

logger: Final = logging.getLogger("kbroker.log")

# Whatever the setting, with less than that room is made.
FULL_BYTES: Final = 64 << 20
MAKE_ROOM_PERIOD_MS: Final = 10_000
LOGS_SET_AT_ONCE: Final = 100


def free_bytes_of(directory: Path) -> int:
    """What a process without privileges may still write there; OSError."""
    volume = os.statvfs(directory)
    return volume.f_bavail * volume.f_frsize


class FreeSpace:
    """See the head of this file."""

    def __init__(
        self,
        directories: Callable[[], Sequence[Path]],
        logs: Callable[[], list[PartitionLog]],
        is_own: Callable[[str], bool],
        free_bytes_min: Callable[[], int],
        make_room: Callable[[], object],
        clock: Clock,
        free_bytes: Callable[[Path], int] = free_bytes_of,
    ) -> None:
        """`directories`: those that serve. `is_own`: of a topic that the broker itself writes.
        `make_room` returns at once."""
        self._directories: Final = directories
        self._logs: Final = logs
        self._is_own: Final = is_own
        self._free_bytes_min: Final = free_bytes_min
        self._make_room: Final = make_room
        self._clock: Final = clock
        self._free_bytes: Final = free_bytes
        self._refusing: set[Path] = set()
        self._room_made_ms: int | None = None

    def look(self) -> Iterator[None]:
        """Once at every directory; at its logs, in steps, where something is to be said to them."""
        least = self._free_bytes_min()
        full = False
        refused_before = bool(self._refusing)
        directories = self._directories()
        self._refusing &= {*directories}  # of one that has failed all logs are offline
        for directory in directories:
            try:
                free = self._free_bytes(directory)
            except FileNotFoundError:
                continue  # it is not mounted, and has no logs here
            except OSError as error:
                logger.error("%s cannot be asked for its size: %s", directory, error)
                continue
            full |= free < max(least, FULL_BYTES)
            self._say(directory, free < least, free, least)
        if refused_before or self._refusing:
            yield from self._set_logs()
        if full and self._is_time():
            self._make_room()

    def _set_logs(self) -> Iterator[None]:
        """All of them: one may have been moved from a directory that refuses to one that does
        not."""
        for looked_at, log in enumerate(self._logs(), start=1):
            refuses = log.path.parent in self._refusing
            log.refuse_producers(refuses and not self._is_own(log.name.topic))
            if looked_at % LOGS_SET_AT_ONCE == 0:
                yield

    def _say(self, directory: Path, refuses: bool, free: int, least: int) -> None:
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
