"""Medians, paired ratios and their bootstrap intervals."""

from __future__ import annotations

import random

import pytest

from perf.stats import estimate, null_test, ratio


def test_interval_holds_the_median_and_lies_inside_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    found = estimate(values)
    assert found.median == 3.0
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert estimate(values) == found, "the same blocks give the same interval"


def test_interval_covers_the_true_median() -> None:
    source = random.Random(11)
    hits = 0
    for _ in range(200):
        found = estimate([source.gauss(10, 2) for _ in range(15)])
        hits += found.low <= 10 <= found.high
    assert hits >= 180  # 95 % wanted; with 15 values the percentile method comes near


def test_ratios_are_taken_pair_by_pair() -> None:
    # The machine slows down threefold in the second round: both see it, the ratio does not.
    assert ratio([10, 30, 11], [20, 60, 22]).values == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="cannot be paired"):
        ratio([1.0], [1.0, 2.0])


def test_nothing_measured() -> None:
    assert estimate([]).values == ()
    assert estimate([]).median != estimate([]).median


def test_null_test() -> None:
    assert null_test([100, 101, 99], [100, 100, 100], 0.05)
    assert not null_test([110, 112, 111], [100, 100, 100], 0.05), "1.0 is outside"
    assert not null_test([80, 100, 125], [100, 100, 100], 0.05), "too wide to tell"
