"""The few statistics that a comparison rests on: medians and their exact intervals.

The interval of a median lies between two of the values themselves, the k-th from below and the
k-th from above. The true median is outside of it only if fewer than k of n values fell on one side
of it, which is tossing n coins (the sign test), whatever the values' distribution. k is the largest
with a confidence of CONFIDENCE_MIN: 1 up to eight values, so the ends are the lowest and the
highest. Five values do not reach it (93.75 %), so fewer than PAIRS_MIN decide nothing: their ends
are what was seen, and no interval.

Pure functions; the jobs for Spark use them, too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

CONFIDENCE_MIN: Final = 0.95
PAIRS_MIN: Final = 6  # the fewest values whose lowest and highest have that confidence
_REMEMBERED: Final = 4_096  # a study asks for the same one in its table, its answers and its JSON


@dataclass(frozen=True)
class Estimate:
    """A median, the ends around it, and how surely the true median lies between them."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]
    confidence: float

    @property
    def decides(self) -> bool:
        """Whether the ends are an interval that something may be concluded from."""
        return self.confidence >= CONFIDENCE_MIN

    def text(self, number: Callable[[float], str]) -> str:
        """0.62 [0.58, 0.66] for an interval; 0.62 (0.58 to 0.66) for the lowest and the highest."""
        if not self.values:
            return "-"
        middle, low, high = map(number, (self.median, self.low, self.high))
        if self.decides:
            return f"{middle} [{low}, {high}]"
        return middle if len(self.values) == 1 else f"{middle} ({low} to {high})"

    def to_json(self) -> dict[str, object]:
        """Without NaN, which JSON does not know."""
        there = bool(self.values)
        return {
            "median": self.median if there else None,
            "low": self.low if there else None,
            "high": self.high if there else None,
            "confidence": self.confidence,
            "values": list(self.values),
        }


def estimate(values: Sequence[float]) -> Estimate:
    """Median of the values with its exact interval; of too few, with the lowest and highest."""
    if not values:
        nan = math.nan
        return Estimate(nan, nan, nan, (), 0.0)
    return _estimate(tuple(map(float, values)))


@lru_cache(_REMEMBERED)
def _estimate(values: tuple[float, ...]) -> Estimate:
    ordered = sorted(values)
    at, confidence = _place(len(ordered))
    return Estimate(statistics.median(ordered), ordered[at], ordered[-1 - at], values, confidence)


@lru_cache(_REMEMBERED)
def _place(count: int) -> tuple[int, float]:
    """Which value from either end the interval ends at, from 0, and its confidence."""
    place, outside = 0, 0.5**count  # all values on one side of the true median
    ways = 1
    while place + 1 < count // 2:
        ways = ways * (count - place) // (place + 1)
        further = outside + ways * 0.5**count
        if 1 - 2 * further < CONFIDENCE_MIN:
            break
        place, outside = place + 1, further
    return place, 1 - 2 * outside
