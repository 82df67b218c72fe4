"""Verdicts over made-up blocks: what is decided, and every reason for "no result"."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

from perf.judge import widest
from perf.studies.measured import Measured
from perf.studies.verdict import Rounds, compare, of_null, pool
from tests.unit.perf.studies.fake import measured, p50_us


def rounds(*values: float, noisy: Sequence[int] = ()) -> Rounds:
    return {
        number: measured(us, others=0.5 if number in noisy else 0.0)
        for number, us in enumerate(values)
    }


def twice(*values: float) -> Rounds:
    """Three values, each of two rounds: as few rounds as decide anything."""
    return rounds(*values, *values)


def pairs(*ratios: float) -> list[tuple[Measured, Measured]]:
    return [(measured(1000 * ratio), measured(1000)) for ratio in ratios]


def null_band(found: Sequence[tuple[Measured, Measured]]) -> float:
    return widest([of_null(found, p50_us)])


def test_a_clear_difference_is_decided() -> None:
    found = compare(twice(200, 210, 190), twice(100, 100, 100), p50_us, null=pairs(1, 1.05, 0.97))
    assert found.decided and found.direction == "more"
    assert found.ratio.median == pytest.approx(2, rel=0.02)
    assert found.words().startswith("2.0") and "n=6" in found.words()
    less = compare(twice(100, 100, 100), twice(200, 210, 190), p50_us)
    assert less.direction == "less"


@pytest.mark.parametrize("count", range(1, 6))
def test_so_few_rounds_decide_nothing_however_far_apart(count: int) -> None:
    found = compare(rounds(*[2000] * count), rounds(*[100] * count), p50_us)
    assert not found.decided and found.direction == ""
    assert found.words().startswith("no result: 20 times")
    assert found.words().endswith(f", {count} of 6 rounds needed")


def test_rounds_are_paired_by_number() -> None:
    ours = {n: measured(100 * 2**n) for n in range(1, 7)} | {9: measured(1)}
    theirs = {n: measured(50 * 2**n) for n in range(1, 7)} | {0: measured(1)}
    found = compare(ours, theirs, p50_us)
    assert found.rounds == 6 and found.decided
    assert found.ratio.high == pytest.approx(2, rel=0.02)


def test_noisy_blocks_do_not_count() -> None:
    found = compare(rounds(200, 200, 200, noisy=[1]), rounds(100, 100, 100, noisy=[2]), p50_us)
    assert not found.decided
    assert "1 of 6 rounds needed (2 noisy left out: something else ran)" in found.words()


def test_an_interval_around_one_is_no_result() -> None:
    found = compare(twice(90, 100, 110), twice(100, 100, 100), p50_us)
    assert not found.decided
    assert found.words() == "no result: 1.00 times (0.90 to 1.10, n=6), no difference found"


@pytest.mark.parametrize(("null", "decided"), [((0.98, 1.0, 1.02), True), ((0.8, 1.0, 1.1), False)])
def test_the_null_test_sets_the_bound_of_small_effects(
    null: tuple[float, ...], decided: bool
) -> None:
    found = compare(twice(110, 111, 112), twice(100, 100, 100), p50_us, null=pairs(*null))
    assert found.decided is decided
    if not decided:
        assert found.words().endswith(", within the null test's 1.25")


def test_a_large_effect_holds_beside_a_wide_null_test() -> None:
    found = compare(twice(900, 1000, 1100), twice(100, 100, 100), p50_us, null=pairs(0.7, 1, 1.2))
    assert found.decided and found.band == pytest.approx(1 / 0.7, rel=0.02)


def test_the_band_goes_both_ways_and_ignores_noise() -> None:
    assert null_band(pairs(0.5, 0.5, 0.5)) == pytest.approx(2, rel=0.02)
    assert null_band(pairs(2, 2, 2)) == pytest.approx(2, rel=0.02)
    assert null_band([]) == 1
    loud = [(measured(500, others=0.5), measured(100))] * 3
    assert null_band(loud) == 1


def test_pooled_ratios_weigh_cells_alike() -> None:
    slow = rounds(2000, 2000, 2000), rounds(1000, 1000, 1000)
    fast = rounds(1, 1, 1), rounds(8, 8, 8)
    found = pool([slow, fast], p50_us)
    assert found.ratio.median == pytest.approx(0.5, rel=0.02)  # sqrt(2 * 1/8)


def test_a_pooled_round_needs_half_of_its_cells() -> None:
    cells = [(rounds(2, 2, 2), rounds(1, 1, 1))] * 2
    few = [(rounds(2, 2, 2, noisy=[2]), rounds(1, 1, 1))] * 3
    assert pool([*cells, *few[:2]], p50_us).rounds == 3
    assert pool([*cells, *few], p50_us).rounds == 2


def test_a_cell_that_was_not_timed_is_left_out() -> None:
    found = compare(rounds(1, 2, 3), rounds(1, 2, 3), lambda one: math.nan)
    assert found.rounds == 0 and not found.decided
    assert found.numbers() == "nothing to compare"
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["ratio"] is None


def test_json() -> None:
    data = compare(twice(200, 200, 200), twice(100, 100, 100), p50_us).to_json()
    assert data["decided"] is True and data["direction"] == "more" and data["reason"] == ""
    json.dumps(data, allow_nan=False)
