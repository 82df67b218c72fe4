"""Rates over one and 15 minutes, by a clock that the test turns."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from kbroker.metrics.rates import NS_PER_S, Rates, keep_over


class Turning:
    """Rates that are ticked every 5 s."""

    def __init__(self) -> None:
        self.rates = Rates()
        self.now_ns = 0

    def tick(self, counts: Mapping[str, float]) -> None:
        for _ in self.rates.tick(self.now_ns, list(counts.items())):
            pass
        self.now_ns += 5 * NS_PER_S


def test_nothing_is_known_before_the_second_tick() -> None:
    turning = Turning()
    assert turning.rates.meter("a", 7) == (7, 0.0, 0.0)
    assert turning.rates.rate("a") is None
    turning.tick({"a": 1_000_000})
    assert turning.rates.meter("a", 1_000_000) == (1_000_000, 0.0, 0.0)
    turning.tick({"a": 1_000_050})
    assert turning.rates.meter("a", 1_000_050) == (1_000_050, 10.0, 10.0)


def test_a_steady_count_has_its_rate() -> None:
    turning = Turning()
    for tick in range(30):
        turning.tick({"a": tick * 500})
    assert turning.rates.rate("a") == pytest.approx(100.0)


def test_a_rate_fades_with_the_minute() -> None:
    turning = Turning()
    turning.tick({"a": 0})
    turning.tick({"a": 600})
    for _ in range(12):
        turning.tick({"a": 600})
    one, fifteen = turning.rates.meter("a", 600)[1:]
    assert one == pytest.approx(120 * math.exp(-1))
    assert fifteen == pytest.approx(120 * math.exp(-1 / 15))


def test_a_count_that_appears_began_at_zero() -> None:
    turning = Turning()
    turning.tick({})
    turning.tick({})
    turning.tick({"a": 50})
    assert turning.rates.rate("a") == 10.0


def test_a_count_that_fell_began_anew() -> None:
    turning = Turning()
    turning.tick({"a": 1_000})
    turning.tick({"a": 1_000})
    turning.tick({"a": 100})
    assert turning.rates.rate("a") == pytest.approx(20.0 * (1 - keep_over(5.0)))


def test_a_name_that_is_gone_is_forgotten() -> None:
    turning = Turning()
    for total in (0, 50, 100):
        turning.tick({"a": total})
    turning.tick({})
    assert turning.rates.rate("a") is None


def test_many_counts_go_in_steps() -> None:
    rates = Rates()
    counts = [(str(number), 1.0) for number in range(1_200)]
    assert list(rates.tick(0, counts)) == []
    assert len(list(rates.tick(NS_PER_S, counts))) == 2
    assert rates.rate("1199") == 0.0
    assert list(rates.tick(NS_PER_S, counts)) == []
