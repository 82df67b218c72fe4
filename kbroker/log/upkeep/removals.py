"""Files that are renamed already and are removed later, so that their readers can finish.

Deleted logs and segments are scheduled under a name that is never opened; the scheduler removes
them after `file.delete.delay.ms`, file by file, since one may free gigabytes. Files that cannot be
removed are tried again, after pauses that double. Files that a crash leaves of them are found by
their names at the next start. `schedule` from any thread; one lock, a leaf.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.limits import REMOVAL_RETRY_MS, REMOVAL_RETRY_MS_MAX
from kbroker.log.engine import file_operations
from kbroker.log.engine.partition_log import deleted_path

logger: Final = logging.getLogger("kbroker.log")


class _Deletion(NamedTuple):
    path: Path
    since_ms: int
    delay_ms: int | None  # None: the broker's, as it is when it is asked
    failures: int = 0


class Removals:
    """The files and directories that wait for their end."""

    def __init__(self, clock: Clock, delay_ms: int) -> None:
        # Of directories; of a segment it is the topic's. May change at any time.
        self.delay_ms = delay_ms
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._scheduled: list[_Deletion] = []

    def schedule(self, path: Path, delay_ms: int | None = None) -> None:
        """Goes after `delay_ms`, or after the broker's delay."""
        with self._lock:
            self._scheduled.append(_Deletion(path, self._clock.monotonic_ms(), delay_ms))

    def delete_now(self, path: Path) -> None:
        """It has no readers: it is from before this start."""
        self.schedule(path, 0)

    def unmake(self, path: Path) -> None:
        """A log that could not be begun: its files have no records."""
        try:
            if path.exists():
                target = deleted_path(path)
                file_operations.rename(path, target)
                self.schedule(target)
        except OSError as error:
            logger.warning("%s is left over, without records: %s", path, error)

    def __len__(self) -> int:
        with self._lock:
            return len(self._scheduled)

    def remove_due(self, *, at_once: bool = False) -> Iterator[None]:
        """Removes what has waited long enough, or all, in steps."""
        now_ms = self._clock.monotonic_ms()
        due: list[_Deletion] = []
        stay: list[_Deletion] = []
        with self._lock:
            for it in self._scheduled:
                delay_ms = self.delay_ms if it.delay_ms is None else it.delay_ms
                is_due = at_once or it.since_ms + delay_ms <= now_ms
                (due if is_due else stay).append(it)
            self._scheduled = stay
        for it in due:
            try:
                yield from _remove_steps(it.path)
            except OSError as error:
                self._try_again(it, error)

    def _try_again(self, failed: _Deletion, error: OSError) -> None:
        pause_ms = min(REMOVAL_RETRY_MS << min(failed.failures, 16), REMOVAL_RETRY_MS_MAX)
        logger.warning(
            "cannot remove %s: %s; it is tried again in %d s", failed.path, error, pause_ms // 1000
        )
        now_ms = self._clock.monotonic_ms()
        again = _Deletion(failed.path, now_ms, pause_ms, failed.failures + 1)
        with self._lock:
            self._scheduled.append(again)


def _remove_steps(path: Path) -> Iterator[None]:
    """A file, or a directory file by file; OSError: something of it stays."""
    if not path.is_dir():
        _unlink(path)
        yield
        return
    with suppress(FileNotFoundError):  # another program has removed the directory
        for entry in file_operations.list_directory(path):
            if entry.is_dir(follow_symlinks=False):
                yield from _remove_steps(Path(entry.path))
            else:
                _unlink(Path(entry.path))
                yield
        os.rmdir(path)


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        file_operations.unlink(path)
