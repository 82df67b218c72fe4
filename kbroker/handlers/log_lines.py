"""Log lines that a client can provoke: one a second for each cause, and how many were left out.

A hostile client makes thousands of malformed requests a second; a line for each would fill a disk
and cost more than the requests. The first of a cause is written as it is; those within the next
second are counted, and the next line says how many there were.

Bound: `LOG_CAUSES_MAX` causes, the rest share one. Any thread; the lock, a leaf, is held for a
dictionary only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kbroker.limits import LOG_CAUSES_MAX, LOG_LINE_PERIOD_MS

_OTHERS: Final = "others"


class LogLines:
    """One logger's lines, by cause."""

    __slots__ = ("_causes", "_lock", "_logger", "_monotonic_ns")

    def __init__(
        self, logger: logging.Logger, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._logger = logger
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        # cause -> when it may be told again, and how often it came since it was told
        self._causes: dict[str, tuple[int, int]] = {}

    def write(self, level: int, cause: str, message: str, *args: Any, exc_info: Any = None) -> bool:
        """Write the line unless its cause was told within the last second; False if counted."""
        now_ns = self._monotonic_ns()
        with self._lock:
            if cause not in self._causes and len(self._causes) >= LOG_CAUSES_MAX:
                cause = _OTHERS
            due_ns, left_out = self._causes.get(cause, (now_ns, 0))
            if now_ns < due_ns:
                self._causes[cause] = (due_ns, left_out + 1)
                return False
            self._causes[cause] = (now_ns + LOG_LINE_PERIOD_MS * 1_000_000, 0)
        if left_out:
            message += " (and %d like it before)"
            args = (*args, left_out)
        self._logger.log(level, message, *args, exc_info=exc_info)
        return True
