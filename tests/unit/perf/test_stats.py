"""Medians, paired ratios and their exact intervals: how often noise alone is taken for a result."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import pytest

from perf.stats import CONFIDENCE_MIN, PAIRS_MIN, Estimate, estimate

TRIALS = 2_000
Draw = Callable[[random.Random], float]
# Ratios of two equal brokers as they come: (a draw, its true median). Times have long tails, a
# scheduler's choice has two humps, a clock's ticks make values equal.
NOISE: dict[str, tuple[Draw, float]] = {
    "normal": (lambda r: r.gauss(1, 0.1), 1.0),
    "long tail": (lambda r: math.exp(r.gauss(0, 0.8)), 1.0),
    "skewed": (lambda r: r.expovariate(1), math.log(2)),
    "no mean": (lambda r: 1 + math.tan(math.pi * (r.random() - 0.5)), 1.0),
    "two humps": (lambda r: r.choice((r.gauss(0.5, 0.02), r.gauss(2, 0.02))), 1.0),
    "ticks": (lambda r: round(r.gauss(1, 0.2), 1), 1.0),
}


def decides_otherwise(found: Estimate, truth: float) -> bool:
    """A difference is claimed that is not there."""
    return found.decides and not found.low <= truth <= found.high


@pytest.mark.parametrize("n", range(3, 21))
@pytest.mark.parametrize("kind", NOISE)
def test_noise_alone_decides_in_one_case_of_twenty_at_most(kind: str, n: int) -> None:
    draw, truth = NOISE[kind]
    source = random.Random(f"{kind} {n}")
    wrong = sum(
        decides_otherwise(estimate([draw(source) for _ in range(n)]), truth) for _ in range(TRIALS)
    )
    if n < PAIRS_MIN:
        assert wrong == 0, "so few decide nothing"
        return
    confidence = estimate(list(map(float, range(n)))).confidence
    assert confidence >= CONFIDENCE_MIN
    # Give or take what so many trials leave to chance.
    spread = math.sqrt(confidence * (1 - confidence) / TRIALS)
    assert wrong / TRIALS <= 1 - confidence + 4 * spread


def test_the_confidence_is_that_of_the_sign_test() -> None:
    of = {n: round(estimate(list(map(float, range(n)))).confidence, 4) for n in range(1, 13)}
    assert of == {1: 0, 2: 0.5, 3: 0.75, 4: 0.875, 5: 0.9375, 6: 0.9688, 7: 0.9844, 8: 0.9922,
                  9: 0.9609, 10: 0.9785, 11: 0.9883, 12: 0.9614}  # fmt: skip
    assert min(n for n, confidence in of.items() if confidence >= CONFIDENCE_MIN) == PAIRS_MIN


@pytest.mark.parametrize(
    ("count", "ends"),
    [(1, (0, 0)), (3, (0, 2)), (5, (0, 4)), (7, (0, 6)), (8, (0, 7)), (9, (1, 7)), (12, (2, 9)),
     (20, (5, 14))],
)  # fmt: skip
def test_ends_are_values_that_were_measured(count: int, ends: tuple[int, int]) -> None:
    values = list(map(float, range(count)))
    random.Random(count).shuffle(values)
    found = estimate(values)
    assert (found.low, found.high) == ends
    assert found.median == (count - 1) / 2
    assert found.decides is (count >= 6)
    assert found.values == tuple(values), "in their order"


def test_an_interval_is_drawn_differently_from_a_mere_range() -> None:
    assert estimate([1.0, 2.0, 3.0]).text("{:.1f}".format) == "2.0 (1.0 to 3.0)"
    assert estimate([1.0, 2.0, 3.0] * 2).text("{:.1f}".format) == "2.0 [1.0, 3.0]"
    assert estimate([2.0]).text("{:.1f}".format) == "2.0"
    assert estimate([]).text("{:.1f}".format) == "-"


def test_nothing_measured() -> None:
    found = estimate([])
    assert found.values == () and not found.decides and found.confidence == 0
    assert found.median != found.median
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["median"] is None
