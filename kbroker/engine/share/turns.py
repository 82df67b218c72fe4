"""So many things at once, and the others in their order: who has a turn gives it back.

A turn begins on a handler's thread. One that cannot begin is over, and its owner gets the error.
Any thread; the lock is a leaf.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple


class _Turn(NamedTuple):
    begin: Callable[[], object]
    failed: Callable[[Exception], object]


class Turns:
    """See the module. `call_soon` has a call done by a handler."""

    def __init__(self, turns_max: int, call_soon: Callable[[Callable[[], object]], None]) -> None:
        self._lock = threading.Lock()
        self._call_soon: Final = call_soon
        self._left = turns_max
        self._waiting: deque[_Turn] = deque()

    def take(self, begin: Callable[[], object], failed: Callable[[Exception], object]) -> None:
        """`begin` is called, now or later. `failed`: it will not be called. Neither raises."""
        turn = _Turn(begin, failed)
        with self._lock:
            if not self._left:
                self._waiting.append(turn)
                return
            self._left -= 1
        self._begin(turn)

    def give_back(self) -> None:
        """A turn is over."""
        self._begin(self._next())

    def _next(self) -> _Turn | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._left += 1
            return None

    def _begin(self, turn: _Turn | None) -> None:
        while turn is not None:
            try:
                self._call_soon(turn.begin)
            except Exception as error:
                turn.failed(error)
                turn = self._next()
            else:
                return
