"""How long something takes that happens some times a second, for the catalogue's summaries.

Quantiles are those of the last RECENT durations, count and sum of all. One thread notes, any thread
reads: a list of the recent ones is made while no other Python runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from kbroker.metrics.model import Summary

NS_PER_MS: Final = 1_000_000
RECENT: Final = 1_024


class Durations:
    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._total = 0
        self._sum_ns = 0

    def note(self, duration_ns: int) -> None:
        duration_ns = max(0, duration_ns)
        self._total += 1
        self._sum_ns += duration_ns
        self._recent.append(duration_ns)

    def summary(self, quantiles: Iterable[float]) -> Summary:
        """In milliseconds; 0 while there is none."""
        ordered = sorted(list(self._recent)) or [0]  # sorted(deque) lets others run
        last = len(ordered) - 1
        found = tuple((each, ordered[round(each * last)] / NS_PER_MS) for each in quantiles)
        return Summary(found, self._total, self._sum_ns / NS_PER_MS)
