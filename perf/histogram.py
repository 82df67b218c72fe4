"""Histograms that merge: numpy's half of perf/native/perf_histogram.h.

A value below 128 has a bucket of its own; above, each power of two is cut into 128 buckets, so a
percentile is known to 0.8 %. Blocks of one cell are merged by adding counts, and a percentile is
taken of the sum: percentiles of blocks are never averaged. Values are nanoseconds throughout perf/,
but nothing here depends on it. Instances are immutable; nothing here is called by the broker, which
never imports numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SUB_BITS = 7
SUB = 1 << SUB_BITS
BUCKETS = (64 - SUB_BITS + 1) * SUB

Counts = npt.NDArray[np.uint64]


def bucket_of(value: int) -> int:
    """The bucket of a value: the same rule as ph_bucket() in C."""
    if value < SUB:
        return value
    shift = value.bit_length() - 1 - SUB_BITS
    return (shift << SUB_BITS) + (value >> shift)


def bucket_low(bucket: int) -> int:
    """The smallest value of a bucket."""
    if bucket < SUB:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return (SUB + (bucket & (SUB - 1))) << shift


def bucket_middle(bucket: int) -> float:
    """The value that is used for every value of a bucket."""
    low = bucket_low(bucket)
    width = 1 if bucket < 2 * SUB else 1 << ((bucket >> SUB_BITS) - 1)
    return low + (width - 1) / 2


def bucket_high(bucket: int) -> int:
    """The largest value of a bucket."""
    return bucket_low(bucket + 1) - 1


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts by bucket, with the exact number, sum, smallest and largest value."""

    counts: Counts
    total: int
    sum: int
    min: int
    max: int

    @classmethod
    def empty(cls) -> Histogram:
        return cls(np.zeros(BUCKETS, dtype=np.uint64), 0, 0, 0, 0)

    @classmethod
    def of(cls, values: Iterable[int]) -> Histogram:
        """From single values: for tests and for clients that report one by one."""
        taken = [int(value) for value in values]
        if not taken:
            return cls.empty()
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        np.add.at(counts, [bucket_of(value) for value in taken], np.uint64(1))
        return cls(counts, len(taken), sum(taken), min(taken), max(taken))

    @classmethod
    def from_native(cls, native: dict[str, Any]) -> Histogram:
        """From the result of perf._load."""
        counts = np.frombuffer(native["counts"], dtype=np.uint64)
        return cls(counts, native["total"], native["sum"], native["min"], native["max"])

    @classmethod
    def merge(cls, parts: Iterable[Histogram]) -> Histogram:
        """One histogram of all values of the parts."""
        filled = [part for part in parts if part.total]
        if not filled:
            return cls.empty()
        return cls(
            np.sum([part.counts for part in filled], axis=0, dtype=np.uint64),
            sum(part.total for part in filled),
            sum(part.sum for part in filled),
            min(part.min for part in filled),
            max(part.max for part in filled),
        )

    def percentile(self, percent: float) -> float:
        """The value that `percent` of all values do not exceed (numpy's "inverted_cdf")."""
        if not self.total:
            return float("nan")
        rank = max(1, int(np.ceil(percent / 100 * self.total)))
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank))
        return float(min(max(bucket_middle(bucket), self.min), self.max))

    @property
    def mean(self) -> float:
        return self.sum / self.total if self.total else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Sparse: pairs of bucket and count."""
        used = np.flatnonzero(self.counts)
        return {
            "sub_bits": SUB_BITS,
            "total": self.total,
            "sum": self.sum,
            "min": self.min,
            "max": self.max,
            "buckets": [[int(bucket), int(self.counts[bucket])] for bucket in used],
        }

    def to_buckets(self) -> list[dict[str, float]]:
        """As records of results have it: `count` values up to `le`, not cumulative, bounds growing.

        Bounds are the largest values of the buckets, so `bucket_of(le)` is the bucket again (below
        2^53, which is 104 days in ns), and buckets of two histograms add up by their bounds.
        """
        used = np.flatnonzero(self.counts)
        return [
            {"le": float(bucket_high(int(bucket))), "count": int(self.counts[bucket])}
            for bucket in used
        ]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Histogram:
        if data["sub_bits"] != SUB_BITS:
            raise ValueError(f"a histogram of {data['sub_bits']} sub-bits, not {SUB_BITS}")
        counts = np.zeros(BUCKETS, dtype=np.uint64)
        for bucket, count in data["buckets"]:
            counts[bucket] = count
        return cls(counts, data["total"], data["sum"], data["min"], data["max"])
