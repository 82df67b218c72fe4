"""The judge over made-up blocks: what is paired, what meets a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perf.judge import (
    Block,
    judge,
    ratio_bar,
    together,
    value_bar,
    widest,
)


def blocks(values: Sequence[float], *, noisy: Sequence[int] = ()) -> list[Block]:
    return [Block(number, number not in noisy, value) for number, value in enumerate(values)]


# -- rounds


def test_blocks_are_paired_by_round_and_never_by_place() -> None:
    theirs = blocks([1, 2, 3, 4])
    del theirs[0]  # void
    assert together(blocks([10, 20, 30, 40]), theirs).quiet == {1: (20, 2), 2: (30, 3), 3: (40, 4)}


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


def test_what_was_not_measured_is_in_no_round_and_what_has_no_ratio_is_counted() -> None:
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
