"""What is renamed already and is removed later, so that whoever reads it can finish.

Deleted logs and segments are doomed under a name that nobody opens; the scheduler takes them away
after `file.delete.delay.ms`, file by file, since one may free gigabytes. What a crash leaves of
them is found by its name at the next start. `doom` from any thread; one lock, a leaf.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.log.engine import file_operations
from kbroker.log.engine.partition_log import deleted_path

logger: Final = logging.getLogger("kbroker.log")


class _Doomed(NamedTuple):
    path: Path
    since_ms: int
    delay_ms: int | None  # None: the broker's, as it is when it is asked


class Removals:
    """The files and directories that wait for their end."""

    def __init__(self, clock: Clock, delay_ms: int) -> None:
        # Of directories; of a segment it is the topic's. May change at any time.
        self.delay_ms = delay_ms
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._doomed: list[_Doomed] = []

    def doom(self, path: Path, delay_ms: int | None = None) -> None:
        """Goes after `delay_ms`, or after the broker's delay."""
        with self._lock:
            self._doomed.append(_Doomed(path, self._clock.monotonic_ms(), delay_ms))

    def doom_at_once(self, path: Path) -> None:
        """Nobody can be reading it any more: it is from before this start."""
        self.doom(path, 0)

    def unmake(self, path: Path) -> None:
        """A log that could not be begun: what there is of it has no records."""
        try:
            if path.exists():
                target = deleted_path(path)
                file_operations.rename(path, target)
                self.doom(target)
        except OSError as error:
            logger.warning("%s is left over, without records: %s", path, error)

    def __len__(self) -> int:
        with self._lock:
            return len(self._doomed)

    def remove_due(self, *, at_once: bool = False) -> Iterator[None]:
        """Removes what has waited long enough, or all, in steps."""
        now_ms = self._clock.monotonic_ms()
        due: list[_Doomed] = []
        stay: list[_Doomed] = []
        with self._lock:
            for it in self._doomed:
                delay_ms = self.delay_ms if it.delay_ms is None else it.delay_ms
                is_due = at_once or it.since_ms + delay_ms <= now_ms
                (due if is_due else stay).append(it)
            self._doomed = stay
        for it in due:
            yield from _remove_steps(it.path)


def _remove_steps(path: Path) -> Iterator[None]:
    """A file, or a directory file by file."""
    try:
        if not path.is_dir():
            file_operations.unlink(path)
            yield
            return
        for entry in file_operations.list_directory(path):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                file_operations.unlink(Path(entry.path))
            yield
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("cannot remove %s: %s", path, error)
