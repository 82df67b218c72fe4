"""Steps of ours that raised: each is logged with its cause, counted, and in the metrics.

A step is what a thread of ours does at once: a background task's turn, an event of the controller,
a change of a group. What it raises must not end the thread, nor be swallowed: `note` writes a line
with the traceback, once a second for each cause, and counts. The counts are
`kbroker_step_failures_total` by part, on which an alert rule of ours fires
(`observe/health.py`, `metrics/alerts.py`).

Level 0; any thread; one leaf lock around a number.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from kbroker.log_lines import LogLines


class Failures:
    """Those of one part of the broker: a thread's name, mostly."""

    __slots__ = ("_count", "_lines", "_lock", "part")

    def __init__(self, part: str, logger: logging.Logger | None = None) -> None:
        self.part: Final = part
        self._lines: Final = LogLines(logger or logging.getLogger("kbroker.failures"))
        self._lock = threading.Lock()
        self._count = 0

    def note(self, what: str, error: BaseException) -> None:
        """`what` failed: in words, without text from a client. Raises nothing: where there is no
        memory for a line, what is to go on after the failure goes on without one."""
        try:
            self.counted()
            kind = type(error).__name__
            self._lines.write(
                logging.ERROR, f"{what} {kind}", "%s: %s failed: %s: %s",
                self.part, what, kind, str(error), exc_info=error,
            )  # fmt: skip
        except Exception:
            return

    def counted(self) -> None:
        """One more, which the caller has logged."""
        with self._lock:
            self._count += 1

    @property
    def count(self) -> int:
        return self._count
