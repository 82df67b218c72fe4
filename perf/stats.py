"""The few statistics that a comparison rests on: medians, ratios, bootstrap intervals.

A ratio is taken block by block, between two brokers measured one after the other, and then the
median of the ratios: what both saw of the machine falls out. The interval says how far that median
could have come out otherwise had other blocks been drawn. The random numbers are seeded, so the
same blocks give the same interval. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

BOOTSTRAP_DRAWS = 4_000
SEED = 20_260_101
REMEMBERED = 4_096  # a study asks for the same one in its table, its answers and its JSON


@dataclass(frozen=True)
class Estimate:
    """A median with its 95 % interval and the values behind it."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]

    @property
    def relative_width(self) -> float:
        """Width of the interval against the median."""
        return (self.high - self.low) / self.median if self.median else float("inf")

    def to_json(self) -> dict[str, object]:
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "values": list(self.values),
        }


def estimate(values: Sequence[float]) -> Estimate:
    """Median of the values with a bootstrap 95 % interval (percentile method)."""
    if not values:
        nan = float("nan")
        return Estimate(nan, nan, nan, ())
    return _estimate(tuple(map(float, values)))


@lru_cache(REMEMBERED)
def _estimate(values: tuple[float, ...]) -> Estimate:
    data = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(SEED).integers(0, len(data), size=(BOOTSTRAP_DRAWS, len(data)))
    medians = np.median(data[draws], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Estimate(float(np.median(data)), float(low), float(high), values)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """ours / theirs, pair by pair."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} values cannot be paired with {len(theirs)}")
    return estimate([a / b for a, b in zip(ours, theirs, strict=True) if b])


def null_test(first: Sequence[float], second: Sequence[float], width_max: float) -> bool:
    """A broker against itself: the interval must hold 1.0 and be narrower than `width_max`."""
    result = ratio(first, second)
    return result.low <= 1.0 <= result.high and result.relative_width <= width_max
