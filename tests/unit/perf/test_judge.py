"""The judge over made-up blocks: what is paired, what meets a bar, which build is not slower."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

import pytest

from perf.judge import (
    ROUNDS_MIN,
    Block,
    Together,
    judge,
    not_slower,
    ratio_bar,
    together,
    value_bar,
    widest,
)

CPU_HALF_BAND_MAX, P99_HALF_BAND_MAX = 0.03, 0.10


def blocks(values: Sequence[float], *, noisy: Sequence[int] = ()) -> list[Block]:
    return [Block(number, number not in noisy, value) for number, value in enumerate(values)]


class Builds:
    """Two builds on a machine whose speed drifts by a half, and jitters by `jitter`."""

    def __init__(self, slower_by: float, jitter: float, rounds: int = ROUNDS_MIN) -> None:
        source = random.Random(7)

        def measured(cost_us: float, number: int) -> float:
            drift = 1 + 0.5 * math.sin(number)
            return cost_us * drift * source.uniform(1 - jitter, 1 + jitter)

        self.new, self.old, self.again = (
            blocks([measured(cost_us, number) for number in range(rounds)])
            for cost_us in (10 * (1 + slower_by), 10, 10)
        )

    @property
    def found(self) -> Together:
        return together(self.new, self.old)

    @property
    def null(self) -> Together:
        return together(self.old, self.again)


# -- rounds


def test_blocks_are_paired_by_round_and_never_by_place() -> None:
    theirs = blocks([1, 2, 3, 4])
    del theirs[0]  # void
    assert together(blocks([10, 20, 30, 40]), theirs).quiet == {1: (20, 2), 2: (30, 3), 3: (40, 4)}


def test_a_ratio_is_taken_within_a_round() -> None:
    # The machine is three times as slow in the second round: both sides see it, the ratio does not.
    assert together(blocks([10, 30, 11]), blocks([20, 60, 22])).ratio.values == (0.5, 0.5, 0.5)


def test_only_rounds_known_to_be_quiet_on_all_sides_count() -> None:
    ours = blocks([1, 1, 1, 1, 1, 1], noisy=[0])
    theirs = [*blocks([2] * 5, noisy=[1]), Block(5, None, 2)]
    found = together(ours, theirs)
    assert list(found.quiet) == [2, 3, 4] and (found.noisy, found.unknown) == (2, 1)
    assert found.rounds == 6
    assert found.lacking() == (
        "3 of 6 rounds needed (2 noisy left out: something else ran;"
        " 1 left out: not known to be quiet)"
    )


def test_of_several_blocks_of_a_round_none_is_taken() -> None:
    assert together([*blocks([1, 1]), Block(1, True, 5)], blocks([2, 2])).quiet == {0: (1, 2)}


def test_a_figure_that_was_not_measured_is_in_no_round_and_one_without_a_ratio_is_counted() -> None:
    found = together(blocks([math.nan, -1, 2]), blocks([1, 1, 1]))
    assert found.quiet == {2: (2, 1)} and found.empty == 1 and found.rounds == 2


# -- bars


def test_a_bar_is_met_by_the_whole_interval() -> None:
    met, missed = blocks([0.3] * 7), blocks([0.5] * 7)
    unit = blocks([1.0] * 7)
    assert ratio_bar("CPU", 0.4, "x", together(met, unit)).verdict == "pass, surely"
    assert ratio_bar("CPU", 0.4, "x", together(missed, unit)).verdict == "FAIL"
    null = together(blocks([1, 1.5, 1, 1, 1, 1, 1]), unit)
    wide = ratio_bar("CPU", 0.4, "x", together(met, unit), [null])
    assert wide.verdict == "no result: the bar lies within the interval and the null test's 1.50"
    assert ratio_bar("CPU", 0.4, "x", together([], unit)).verdict == "not measured"
    assert value_bar("start", 0.3, "s", [(0.1, True)] * 6).verdict == "pass, surely"
    assert value_bar("start", 0.3, "s", [(0.1, True), (0.1, False)]).verdict == (
        "no result: 1 of 6 values needed (1 noisy left out: something else ran)"
    )


def test_the_widest_null_test_is_the_band() -> None:
    unit = blocks([1.0] * 7)
    assert widest([together(blocks([1.1] * 7), unit), together(blocks([0.8] * 7), unit)]) == 1.25
    assert widest([]) == 1
    assert judge(together(blocks([1.2] * 7), unit), [together(blocks([0.8] * 7), unit)]).reason == (
        "within the null test's 1.25"
    )


# -- not slower


def test_equal_builds_are_not_slower() -> None:
    builds = Builds(slower_by=0.0, jitter=0.01)
    found = not_slower(builds.found, [builds.null], half_band_max=CPU_HALF_BAND_MAX)
    assert found.verdict == "not slower"
    assert 0 < found.half_band <= CPU_HALF_BAND_MAX


def test_a_build_that_is_slower_by_five_percent_is_found() -> None:
    builds = Builds(slower_by=0.05, jitter=0.01)
    found = not_slower(builds.found, [builds.null], half_band_max=CPU_HALF_BAND_MAX)
    assert found.verdict == "slower" and found.ratio.median == pytest.approx(1.05, abs=0.02)


def test_a_faster_build_is_not_slower() -> None:
    builds = Builds(slower_by=-0.2, jitter=0.01)
    found = not_slower(builds.found, [builds.null], half_band_max=CPU_HALF_BAND_MAX)
    assert found.verdict == "not slower"


@pytest.mark.parametrize("slower_by", [0.0, 0.05, 0.5])
def test_a_cell_that_is_too_wide_shows_nothing(slower_by: float) -> None:
    builds = Builds(slower_by, jitter=0.2)
    found = not_slower(builds.found, [builds.null], half_band_max=CPU_HALF_BAND_MAX)
    assert found.verdict == "undecided"
    assert found.doubt == f"the half-band of {found.half_band:.1%} is above 3%"


def test_more_rounds_make_a_cell_narrower() -> None:
    few, many = (Builds(0.0, jitter=0.08, rounds=rounds) for rounds in (ROUNDS_MIN, 120))
    verdicts = [
        not_slower(one.found, [one.null], half_band_max=CPU_HALF_BAND_MAX).verdict
        for one in (few, many)
    ]
    assert verdicts == ["undecided", "not slower"]


def test_a_p99_may_be_wider() -> None:
    builds = Builds(slower_by=0.0, jitter=0.08)
    assert not_slower(builds.found, [builds.null], half_band_max=0.03).verdict == "undecided"
    found = not_slower(builds.found, [builds.null], half_band_max=P99_HALF_BAND_MAX)
    assert found.verdict == "not slower"


def test_too_few_rounds_and_no_null_test_show_nothing() -> None:
    builds = Builds(0.0, jitter=0.01)
    noisy = together(blocks([1.0] * 15, noisy=[3]), builds.old)
    few = not_slower(noisy, [builds.null], half_band_max=0.03)
    assert few.verdict == "undecided"
    assert few.doubt == "14 of 15 rounds needed (1 noisy left out: something else ran)"
    assert not_slower(builds.found, [], half_band_max=0.03).doubt == "no null test"
    short = together(builds.old[:5], builds.again[:5])
    assert not_slower(builds.found, [builds.null, short], half_band_max=0.03).doubt == (
        "null test: 5 of 6 rounds needed"
    )
    nothing = not_slower(Together(), [Together()], half_band_max=0.03)
    assert nothing.verdict == "undecided"
    assert json.loads(json.dumps(nothing.to_json(), allow_nan=False))["verdict"] == "undecided"


def test_a_bound_of_its_own() -> None:
    builds = Builds(slower_by=0.08, jitter=0.01)
    assert not_slower(builds.found, [builds.null], half_band_max=0.03).verdict == "slower"
    found = not_slower(builds.found, [builds.null], half_band_max=0.03, most=1.1)
    assert found.verdict == "not slower"
