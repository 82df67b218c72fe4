"""Rates of groups from earlier visits: when there are some, and what is kept."""

from __future__ import annotations

import pytest

from kbroker.console.group_samples import (
    AGE_MS_MAX,
    GROUPS_MAX,
    PARTITIONS_MAX,
    SAMPLES_MAX,
    GroupSamples,
    Place,
    ms_to_catch_up,
)
from kbroker.types import TopicPartition

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def test_the_first_visit_has_no_rates() -> None:
    samples = GroupSamples()
    assert samples.add("g", {AT: Place(10, 20)}, 0) == {}
    assert samples.add("g", {AT: Place(10, 20)}, 500) == {}
    rates = samples.add("g", {AT: Place(30, 25), OTHER: Place(1, 1)}, 10_000)
    assert rates == {AT: (2.0, 0.5, 10_000)}


def test_a_group_that_was_reset_reads_nothing() -> None:
    samples = GroupSamples()
    samples.add("g", {AT: Place(10, 20)}, 0)
    assert samples.add("g", {AT: Place(0, 30)}, 10_000)[AT].read_per_s == 0.0


def test_an_old_sample_is_not_compared_with() -> None:
    samples = GroupSamples()
    samples.add("g", {AT: Place(10, 20)}, 0)
    assert samples.add("g", {AT: Place(50, 60)}, AGE_MS_MAX + 1) == {}


def test_memory_is_bounded() -> None:
    samples = GroupSamples()
    many = {TopicPartition("t", n): Place(0, 0) for n in range(PARTITIONS_MAX + 1)}
    assert samples.add("large", many, 0) == {}
    assert samples.add("large", many, 60_000) == {}
    for n in range(3 * SAMPLES_MAX):
        for group in range(2 * GROUPS_MAX):
            samples.add(str(group), {AT: Place(n, n)}, 6_000 * n)
    kept = samples._groups
    assert len(kept) == GROUPS_MAX
    assert {len(each) for each in kept.values()} <= set(range(SAMPLES_MAX + 1))
    assert samples.add("0", {AT: Place(9, 9)}, 220_000) == {}  # dropped for others


@pytest.mark.parametrize(
    ("lag", "read", "written", "expected"),
    [(0, 0.0, 9.0, 0), (100, 20.0, 10.0, 10_000), (100, 10.0, 10.0, None), (1, 0.0, 0.0, None)],
)
def test_when_a_group_has_caught_up(
    lag: int, read: float, written: float, expected: int | None
) -> None:
    assert ms_to_catch_up(lag, read, written) == expected
