from __future__ import annotations

from kbroker.metrics.durations import NS_PER_MS, RECENT, Durations
from kbroker.metrics.model import Summary

QUANTILES = (0.5, 0.99)


def test_nothing_has_taken_no_time() -> None:
    assert Durations().summary(QUANTILES) == Summary(((0.5, 0.0), (0.99, 0.0)), 0, 0.0)


def test_quantiles_are_of_the_last_and_sums_of_all() -> None:
    durations = Durations()
    for _ in range(3):
        durations.note(5_000 * NS_PER_MS)
    for number in range(RECENT, 0, -1):
        durations.note(number * NS_PER_MS)
    durations.note(-1)  # a clock that did not move
    found = durations.summary((0, *QUANTILES, 1))
    assert [value for _, value in found.quantiles] == [0, 512, 1013, 1023]
    assert (found.total, found.sum) == (RECENT + 4, 15_000 + RECENT * (RECENT + 1) / 2)
