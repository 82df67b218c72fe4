"""What one block of a study found, as figures and histograms, JSON both ways.

A block is a second or so of one piece of work on one broker. `histograms` are by their kind of time
("request", "end-to-end", whatever the study says), in nanoseconds; `figures` are single numbers
that only that study knows. JSON is read back from a journal on disk, which may hold anything:
`Measured.from_json` checks every number and raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perf.cells import MEGABYTE, Block
from perf.histogram import BUCKETS, Histogram
from perf.process import Guard

REQUEST, END_TO_END = "request", "end-to-end"
COUNT_MAX = 1 << 62
HISTOGRAMS_MAX, FIGURES_MAX = 8, 64

Metric = Callable[["Measured"], float]


@dataclass(frozen=True)
class Measured:
    """One block: counts, seconds of wall and CPU time, what ran beside it, and how long it took."""

    requests: int
    records: int
    bytes: int
    wall_s: float
    broker_cpu_s: float
    own_cpu_s: float
    guard: Guard
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    ended_at_ms: int = 0  # since 1970 UTC

    @property
    def quiet(self) -> bool:
        return self.guard.quiet

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.wall_s

    @property
    def records_per_s(self) -> float:
        return self.records / self.wall_s

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes / self.wall_s / MEGABYTE

    @property
    def cpu_us_per_record(self) -> float:
        return self.broker_cpu_s * 1e6 / max(1, self.records)

    def percentile_us(self, measure: str, percent: float) -> float:
        """A percentile in microseconds; NaN where nothing was timed."""
        found = self.histograms.get(measure)
        return found.percentile(percent) / 1e3 if found is not None else math.nan

    @classmethod
    def of(cls, block: Block, *, ended_at_ms: int, **figures: float) -> Measured:
        """From a block of perf.cells."""
        taken = {REQUEST: block.latency, END_TO_END: block.end_to_end}
        return cls(
            block.requests,
            block.records,
            block.bytes,
            block.wall_s,
            block.broker_cpu_s,
            block.own_cpu_s,
            block.guard,
            {name: histogram for name, histogram in taken.items() if histogram.total},
            figures,
            ended_at_ms,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "records": self.records,
            "bytes": self.bytes,
            "wall_s": self.wall_s,
            "broker_cpu_s": self.broker_cpu_s,
            "own_cpu_s": self.own_cpu_s,
            "others_cpu": self.guard.others,
            "steal": self.guard.steal,
            "histograms": {name: one.to_json() for name, one in self.histograms.items()},
            "figures": dict(self.figures),
            "ended_at_ms": self.ended_at_ms,
        }

    @classmethod
    def from_json(cls, data: object) -> Measured:
        """ValueError if anything in it is not what to_json writes."""
        if not isinstance(data, dict):
            raise ValueError("a block that is not an object")
        histograms, figures = data.get("histograms"), data.get("figures")
        if not isinstance(histograms, dict) or len(histograms) > HISTOGRAMS_MAX:
            raise ValueError("histograms that are not a small object")
        if not isinstance(figures, dict) or len(figures) > FIGURES_MAX:
            raise ValueError("figures that are not a small object")
        wall_s = _number(data, "wall_s")
        if wall_s <= 0:
            raise ValueError("wall_s is not positive")
        return cls(
            _count(data, "requests"),
            _count(data, "records"),
            _count(data, "bytes"),
            wall_s,
            _number(data, "broker_cpu_s"),
            _number(data, "own_cpu_s"),
            Guard(_number(data, "others_cpu"), _number(data, "steal")),
            {str(name): _histogram(one) for name, one in histograms.items()},
            {str(name): _number(figures, name) for name in figures},
            _count(data, "ended_at_ms"),
        )


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{name} is not a count")
    return value


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is not a number")
    return float(value)


def _histogram(data: object) -> Histogram:
    if not isinstance(data, dict) or not isinstance(data.get("buckets"), list):
        raise ValueError("a histogram without buckets")
    total = 0
    for pair in data["buckets"]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("a bucket that is not a pair")
        bucket, count = pair
        if type(bucket) is not int or not 0 <= bucket < BUCKETS:
            raise ValueError("a bucket that there is not")
        if type(count) is not int or not 0 < count <= COUNT_MAX:
            raise ValueError("a bucket without a count")
        total += count
    if total != _count(data, "total"):
        raise ValueError("buckets that do not add up")
    for name in ("sum", "min", "max", "sub_bits"):
        _count(data, name)
    return Histogram.from_json(data)
