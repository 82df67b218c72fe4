"""The writes of one partition, one after the other, for the term in which this broker leads it.

Whatever is kept under a key may be made anew: its partition was lost and came back, or it was
deleted. Each making has a higher incarnation, and what an earlier one still has to write is refused
(NOT_COORDINATOR) instead of written over the later one.

Lock: one, around the look at the last incarnation and the append, so that both are one decision.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbroker.errors import ErrorCode


class PartitionWriter:
    """See the module. Any thread. An append returns an error code."""

    __slots__ = ("_incarnations", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnations: dict[str, int] = {}  # as written last, while this broker leads

    def write(self, key: str, incarnation: int, append: Callable[[], int]) -> ErrorCode:
        with self._lock:
            if incarnation < self._incarnations.get(key, incarnation):
                return ErrorCode.NOT_COORDINATOR  # of this one, which is no more
            code = ErrorCode(append())
            if code is ErrorCode.NONE:
                self._incarnations[key] = incarnation
            return code

    def delete(self, key: str, append: Callable[[], int]) -> ErrorCode:
        with self._lock:
            code = ErrorCode(append())
            if code is ErrorCode.NONE:
                self._incarnations.pop(key, None)
            return code
