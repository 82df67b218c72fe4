"""Log lines that a client can provoke: a few a second for each cause, and how many were left out.

A hostile client makes thousands of malformed requests a second, or forms a generation of a group
with each of them; a line for each would fill a disk and cost more than the requests. The first of a
cause are written as they are; the others within the same second are counted, and the next line says
how many there were. Strings among the arguments are shown as `outside_text` shows them.

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
from kbroker.outside_text import shown

_OTHERS: Final = "others"
_NAMES_MAX: Final = 20


def first_few(names: Sequence[str]) -> str:
    """For one line: the first stand for all."""
    return ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")


class _Told(NamedTuple):
    """A cause: when its next second begins, what is left of this one, how many were left out."""

    due_ns: int
    room: int
    left_out: int = 0


class LogLines:
    """One logger's lines, by cause: `lines_max` of each in a second."""

    __slots__ = ("_causes", "_lines_max", "_lock", "_logger", "_monotonic_ns")

    def __init__(
        self,
        logger: logging.Logger,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        *,
        lines_max: int = 1,
    ) -> None:
        self._logger = logger
        self._monotonic_ns = monotonic_ns
        self._lines_max = lines_max
        self._lock = threading.Lock()
        self._causes: dict[str, _Told] = {}

    def write(self, level: int, cause: str, message: str, *args: Any, exc_info: Any = None) -> bool:
        """Write the line unless its cause has had its lines of this second; False if counted."""
        now_ns = self._monotonic_ns()
        with self._lock:
            if cause not in self._causes and len(self._causes) >= LOG_CAUSES_MAX:
                cause = _OTHERS
            told = self._causes.get(cause)
            left_out = 0
            if told is None or now_ns >= told.due_ns:
                left_out = 0 if told is None else told.left_out
                told = _Told(now_ns + LOG_LINE_PERIOD_MS * 1_000_000, self._lines_max)
            if not told.room:
                self._causes[cause] = told._replace(left_out=told.left_out + 1)
                return False
            self._causes[cause] = told._replace(room=told.room - 1)
        if left_out:
            message += " (and %d like it before)"
            args = (*args, left_out)
        args = tuple(shown(each) if isinstance(each, str) else each for each in args)
        self._logger.log(level, message, *args, exc_info=exc_info)
        return True
