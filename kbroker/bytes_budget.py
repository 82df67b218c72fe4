"""A budget of memory that several threads share: a thread that wants more than is left waits.

First come, first served, so that a large wish is not passed over for ever by small ones. A thread
that holds a part of the budget must not wait for another part of it. Any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class BytesBudget:
    """`total_bytes` in all; one lock, under which nothing is done but counting."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._changed:
            return len(self._queue)

    @contextmanager
    def held(self, wanted_bytes: int) -> Iterator[int]:
        """So many bytes, at most the whole budget, while the block runs: says how many."""
        held_bytes = min(wanted_bytes, self._total_bytes)
        turn = object()
        with self._changed:
            self._queue.append(turn)
            try:
                self._changed.wait_for(
                    lambda: self._queue[0] is turn and self._free_bytes >= held_bytes
                )
                self._free_bytes -= held_bytes
            finally:
                self._queue.remove(turn)
                self._changed.notify_all()
        try:
            yield held_bytes
        finally:
            with self._changed:
                self._free_bytes += held_bytes
                self._changed.notify_all()
