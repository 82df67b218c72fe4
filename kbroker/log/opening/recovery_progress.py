"""Lines for a person who waits until the logs of a data directory are read. Any thread."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from kbroker.clock import Clock

logger: Final = logging.getLogger("kbroker.log")

REPORT_EVERY_MS: Final = 5_000


class RecoveryProgress:
    """Logs how far a recovery is, every so often, also in the midst of a long log."""

    def __init__(self, path: Path, total: int, clock: Clock) -> None:
        self._path = path
        self._total = total
        self._clock = clock
        self._began_ms = self._reported_ms = clock.monotonic_ms()
        self._lock = threading.Lock()
        self._done = 0
        self._bytes = 0

    def one_more(self, size_bytes: int) -> None:
        """A log has been read, or cannot be."""
        with self._lock:
            self._done += 1
            self._bytes += size_bytes
        self.look()

    def look(self) -> None:
        """Tell, if it is time."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._reported_ms < REPORT_EVERY_MS or self._done == self._total:
                return
            self._reported_ms = now_ms
            done, megabytes = self._done, self._bytes // 1_000_000
        logger.info(
            "recovering %s: %d of %d logs, with %d MB", self._path, done, self._total, megabytes
        )

    def end(self) -> None:
        """All have been looked at."""
        if self._total:
            took_ms = self._clock.monotonic_ms() - self._began_ms
            logger.info(
                "recovered %d logs with %d MB in %s in %d ms", self._done,
                self._bytes // 1_000_000, self._path, took_ms,
            )  # fmt: skip
