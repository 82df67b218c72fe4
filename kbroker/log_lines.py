"""Log lines that a client can provoke: a few a second for each cause, and how many were left out.

A hostile client makes thousands of malformed requests a second, or forms a generation of a group
with each of them; a line for each would fill a disk and cost more than the requests. The first of a
cause are written as they are; the others within the same second are counted, and the next line says
how many there were. Strings among the arguments are written by `outside_text.printable`.

A cause may be a client, and the period longer. Then many come and go: where there is no room, the
causes whose period is over make some.

Level 0. Bound: `LOG_CAUSES_MAX` causes, the rest share one. Any thread; the lock, a leaf, is held
for a dictionary only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kbroker.limits import LOG_CAUSES_MAX, LOG_LINE_PERIOD_MS
from kbroker.outside_text import printable

_OTHERS: Final = "others"
_NAMES_MAX: Final = 20


def first_few(names: Sequence[str]) -> str:
    """For one line: the first stand for all."""
    return ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")


class _Told(NamedTuple):
    """A cause: when its next period begins, what is left of this one, how many were left out."""

    due_ns: int
    room: int
    left_out: int = 0


class LogLines:
    """One logger's lines, by cause: `lines_max` of each in a period."""

    __slots__ = ("_causes", "_lines_max", "_lock", "_logger", "_monotonic_ns", "_period_ns")

    def __init__(
        self,
        logger: logging.Logger,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        *,
        lines_max: int = 1,
        period_ms: int = LOG_LINE_PERIOD_MS,
    ) -> None:
        self._logger = logger
        self._monotonic_ns = monotonic_ns
        self._lines_max = lines_max
        self._period_ns = period_ms * 1_000_000
        self._lock = threading.Lock()
        self._causes: dict[str, _Told] = {}

    def write(self, level: int, cause: str, message: str, *args: Any, exc_info: Any = None) -> bool:
        """Write the line unless its cause has had its lines of this period; False if counted."""
        now_ns = self._monotonic_ns()
        with self._lock:
            if cause not in self._causes and not self._has_room_locked(now_ns):
                cause = _OTHERS
            known = self._causes.get(cause)
            left_out = 0
            if known is None or now_ns >= known.due_ns:
                left_out = 0 if known is None else known.left_out
                known = _Told(now_ns + self._period_ns, self._lines_max)
                self._causes.pop(cause, None)  # so that the first are those that are due first
            if not known.room:
                self._causes[cause] = known._replace(left_out=known.left_out + 1)
                return False
            self._causes[cause] = known._replace(room=known.room - 1)
        if left_out:
            message += " (and %d like it before)"
            args = (*args, left_out)
        args = tuple(printable(each) if isinstance(each, str) else each for each in args)
        self._logger.log(level, message, *args, exc_info=exc_info)
        return True

    def _has_room_locked(self, now_ns: int) -> bool:
        """Whether one more cause fits; the one that was due first may go for it."""
        if len(self._causes) < LOG_CAUSES_MAX:
            return True
        first = next(iter(self._causes))
        if now_ns < self._causes[first].due_ns:
            return False
        del self._causes[first]
        return True
