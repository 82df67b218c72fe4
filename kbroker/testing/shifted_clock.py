"""The machine's clock with hands that a test may move forward.

Both hands, monotonic and wall, are the machine's plus one shift, so time goes on by itself and
`advance` adds to it. Who sleeps until a moment is woken when the hands are moved, looks at the
clock again and sleeps for the rest: an hour's timer fires at once when an hour was added.

Any thread. The lock is a leaf: conditions are notified after it has been let go of.
"""

from __future__ import annotations

import threading
from collections import Counter

from kbroker.clock import NS_PER_MS, SystemClock


class ShiftedClock:
    def __init__(self) -> None:
        self._machine = SystemClock()
        self._shift_ns = 0
        self._lock = threading.Lock()
        self._sleeping: Counter[threading.Condition] = Counter()

    @property
    def shift_ms(self) -> int:
        return self._shift_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._machine.monotonic_ns() + self._shift_ns

    def monotonic_ms(self) -> int:
        return self.monotonic_ns() // NS_PER_MS

    def wall_ms(self) -> int:
        return self._machine.wall_ms() + self.shift_ms

    def wait_until(self, condition: threading.Condition, deadline_ns: int | None) -> None:
        with self._lock:
            self._sleeping[condition] += 1
            shift_ns = self._shift_ns
        try:
            machine_ns = None if deadline_ns is None else deadline_ns - shift_ns
            self._machine.wait_until(condition, machine_ns)
        finally:
            with self._lock:
                self._sleeping[condition] -= 1
                if not self._sleeping[condition]:
                    del self._sleeping[condition]

    def advance(self, ms: float) -> None:
        """Moves both hands forward and wakes every thread that sleeps on this clock."""
        if ms < 0:
            raise ValueError(f"time does not go back: {ms} ms")
        with self._lock:
            self._shift_ns += round(ms * NS_PER_MS)
            sleeping = list(self._sleeping)
        for condition in sleeping:
            with condition:
                condition.notify_all()
