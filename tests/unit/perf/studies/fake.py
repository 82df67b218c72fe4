"""Blocks that a test makes up."""

from __future__ import annotations

from perf.histogram import Histogram
from perf.process import Guard
from perf.studies.measured import END_TO_END, Measured


def measured(us: float = 100.0, *, others: float = 0.0, records: int = 1000) -> Measured:
    """A block of `records` records that all took `us` microseconds from end to end."""
    return Measured(
        requests=records,
        records=records,
        bytes=records * 1000,
        wall_s=1.0,
        broker_cpu_s=0.01,
        own_cpu_s=0.02,
        guard=Guard(others, 0.0),
        histograms={END_TO_END: Histogram.of([int(us * 1e3)] * 20)},
        figures={"held": 1.0},
        ended_at_ms=1_700_000_000_000,
    )


def p50_us(one: Measured) -> float:
    return one.percentile_us(END_TO_END, 50)
