"""Histograms: the bucket rule on both sides, percentiles against numpy, merging, JSON."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf import _load
from perf.histogram import BUCKETS, SUB_BITS, Histogram, bucket_low, bucket_of

RELATIVE_ERROR = 1 / 128


def _values(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [int(source.lognormvariate(12, 2)) for _ in range(count)]


def test_c_and_python_agree_on_buckets() -> None:
    assert (_load.HISTOGRAM_SUB_BITS, _load.HISTOGRAM_BUCKETS) == (SUB_BITS, BUCKETS)
    edges = [0, 1, 127, 128, 129, 255, 256, 257]
    edges += [(1 << shift) + step for shift in range(8, 63) for step in (-1, 0, 1)]
    for value in [*edges, *_values(2_000, 1), (1 << 64) - 1]:
        assert _load.bucket_of(value) == bucket_of(value), value
        assert 0 <= bucket_of(value) < BUCKETS


def test_bucket_low_is_the_smallest_of_its_bucket() -> None:
    for bucket in range(0, BUCKETS, 37):
        low = bucket_low(bucket)
        assert bucket_of(low) == bucket
        assert low == 0 or bucket_of(low - 1) == bucket - 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("percent", [0.1, 1, 25, 50, 90, 99, 99.9, 100])
def test_percentiles_match_numpy(seed: int, percent: float) -> None:
    values = _values(5_000, seed)
    exact = float(np.percentile(values, percent, method="inverted_cdf"))
    assert Histogram.of(values).percentile(percent) == pytest.approx(exact, rel=RELATIVE_ERROR)


def test_small_values_are_exact() -> None:
    histogram = Histogram.of([3, 5, 5, 7, 100])
    assert histogram.percentile(50) == 5
    assert (histogram.min, histogram.max, histogram.mean) == (3, 100, 24)


def test_merging_is_the_histogram_of_all_values() -> None:
    first, second = _values(3_000, 5), _values(200, 6)
    merged = Histogram.merge([Histogram.of(first), Histogram.of(second), Histogram.empty()])
    together = Histogram.of(first + second)
    assert np.array_equal(merged.counts, together.counts)
    assert (merged.total, merged.sum, merged.min, merged.max) == (
        together.total,
        together.sum,
        together.min,
        together.max,
    )
    # The mean of two p99s is not the p99 of both: the reason why counts are kept at all.
    mean = (Histogram.of(first).percentile(99) + Histogram.of(second).percentile(99)) / 2
    assert merged.percentile(99) == together.percentile(99) != mean


def test_json_brings_everything_back() -> None:
    histogram = Histogram.of(_values(500, 7))
    again = Histogram.from_json(histogram.to_json())
    assert np.array_equal(again.counts, histogram.counts)
    assert again.percentile(99.9) == histogram.percentile(99.9)
    with pytest.raises(ValueError, match="sub-bits"):
        Histogram.from_json({**histogram.to_json(), "sub_bits": 5})


def test_empty() -> None:
    assert np.isnan(Histogram.empty().percentile(50))
    assert Histogram.merge([]).total == 0


@given(st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=50))
def test_buckets_of_records_bound_their_values(values: list[int]) -> None:
    """Each value is at or below its bucket's bound, and the bound leads back to the bucket."""
    buckets = Histogram.of(values).to_buckets()
    bounds = [int(one["le"]) for one in buckets]
    assert bounds == sorted(set(bounds))
    counted = Counter(
        {bucket_of(bound): one["count"] for bound, one in zip(bounds, buckets, strict=True)}
    )
    assert counted == Counter(bucket_of(value) for value in values)
    for value in values:
        assert value <= min(bound for bound in bounds if bucket_of(bound) == bucket_of(value))
