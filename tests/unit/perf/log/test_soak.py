"""A soak, made up: which minutes are held against which, and what a lost or old value is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perf.log.keyed_traffic import differing
from perf.log.soak import Minute, SoakPlan, Taken, bars, disk_bytes, mean, report
from tests.unit.perf.test_report import MACHINE

TAKEN = Taken(1e9, 5e7, 300, 2_000, 20)
HELD = ("disk", "memory", "descriptors", "maps")


def minutes(change: Callable[[Minute], Minute] = lambda one: one, count: int = 60) -> list[Minute]:
    made = (
        Minute("kbroker", number + 1, 50_000, 30, 100, 1_000, 5_000, TAKEN, True)
        for number in range(count)
    )
    return [change(one) for one in made]


def verdicts(found: list[Minute], count: int = 60) -> list[str]:
    plan = SoakPlan(minutes=count)
    lines = report(found, plan)
    assert lines.text(MACHINE, 1.0)
    json.dumps(lines.to_json(MACHINE, 1.0), allow_nan=False)
    assert [row[:2] for row in lines.rows] == [["kbroker", str(sixth + 1)] for sixth in range(6)]
    return [bar.verdict for bar in lines.bars]


def test_a_figure_that_stays_as_it_is_passes() -> None:
    assert verdicts(minutes()) == ["pass, surely"] * 5


def test_the_first_sixth_counts_for_nothing() -> None:
    def settling(one: Minute) -> Minute:
        return one if one.number > 10 else replace(one, p99_us=9e9, taken=Taken(1, 1, 1, 1, 1))

    assert verdicts(minutes(settling)) == ["pass, surely"] * 5


@pytest.mark.parametrize("at", range(4))
def test_a_figure_that_grows_fails_alone(at: int) -> None:
    def growing(one: Minute) -> Minute:
        figures = list(TAKEN.__dict__.values())
        figures[at] *= 1 + one.number / 100
        return replace(one, taken=Taken(*figures))

    expected = ["pass, surely"] * 5
    expected[1 + at] = "FAIL"
    assert verdicts(minutes(growing)) == expected


def test_a_broker_that_becomes_slower_fails_unless_something_else_ran() -> None:
    slower = minutes(lambda one: replace(one, p99_us=1_000.0 + 20 * one.number))
    assert verdicts(slower)[0] == "FAIL"
    beside = [replace(one, quiet=one.number < 52) for one in slower]
    assert verdicts(beside)[0].startswith("no result: 1 of 6 values needed (9 noisy")


def test_a_soak_of_some_minutes_decides_nothing() -> None:
    few = verdicts(minutes(count=6), 6)
    assert all(one.startswith("no result: 1 of 6 values") for one in few)


def test_without_kbroker_there_is_no_bar() -> None:
    theirs = minutes(lambda one: replace(one, broker="kafka"))
    assert [bar.verdict for bar in bars(theirs, SoakPlan())] == ["not measured"] * 5


def test_a_value_that_is_lost_old_or_back_again_differs() -> None:
    key, other = ("t", b"a"), ("t", b"b")
    assert differing({key: b"2"}, {key: b"2"}) == 0
    assert differing({key: b"2"}, {key: b"1"}) == 1  # an old value
    assert differing({key: b"2", other: b"1"}, {key: b"2"}) == 1  # lost
    assert differing({key: None}, {key: b"1"}) == 1  # a tombstone that was cleaned too early
    assert differing({key: None}, {}) == 0  # its tombstone is gone as well, in time
    assert differing({}, {key: b"1"}) == 1  # no answer said that it is there


def test_blocks_of_the_disk_are_counted_not_lengths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "written").write_bytes(bytes(100_000))
    assert 100_000 <= disk_bytes(tmp_path) < 300_000


def test_a_mean_is_of_each_figure() -> None:
    assert mean([Taken(1, 2, 3, 4, 5), Taken(3, 4, 5, 6, 7)]) == Taken(2, 3, 4, 5, 6)


def test_a_saw_is_no_growth_however_its_teeth_meet() -> None:
    def sawing(one: Minute) -> Minute:
        up = one.number % 3 / 20 if one.number <= 30 else (one.number + 1) % 3 / 20
        return replace(one, taken=replace(TAKEN, disk_bytes=1e9 * (0.97 + up / 2)))

    assert verdicts(minutes(sawing)) == ["pass, surely"] * 5
