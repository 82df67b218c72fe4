"""An old build beside a new one, on stages that are made up: rounds, lines, and when it ends."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Self

import pytest
from click.testing import CliRunner

from perf.before_after.cells import CELLS, chosen
from perf.before_after.driver import NEW, OLD, Driver, Outcome, Plan, report
from perf.before_after.lines import Line, Taken, of_requests, of_value
from perf.before_after.verbs import before_after
from perf.cells import CellError
from perf.measurement import Measurement
from tests.unit.perf.test_report import MACHINE

CELL = "p-1k-4x5"
Asked = tuple[str, str, int]


class FakeStage:
    """Both builds cost 10 us a request, give or take `jitter`; the new one `slower_by` more."""

    def __init__(
        self,
        slower_by: float = 0.0,
        jitter: float = 0.01,
        *,
        lines: Sequence[Line] = (of_requests("produce", CELL),),
        void: Sequence[Asked] = (),
    ) -> None:
        self.lines = lines
        self.asked: list[Asked] = []
        self._slower_by, self._jitter, self._void = slower_by, jitter, void
        self._source = random.Random(3)

    def measure(self, cell: str, build: str, number: int) -> Taken:
        self.asked.append((cell, build, number))
        if self.asked[-1] in self._void:
            raise CellError("a wrong offset")
        factor = self._source.uniform(1 - self._jitter, 1 + self._jitter)
        cost = 10 * factor * (1 + self._slower_by * (build == NEW))
        return Taken(number, True, {"cpu_us": cost, "requests_per_s": 1e6 / cost, "p99_us": cost})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


def ran(stage: FakeStage, **plan: Any) -> Outcome:
    return Driver(Plan(**plan), lambda _text: None).run([stage])


def measured(outcome: Outcome) -> Measurement:
    """What can be printed and kept."""
    found = report(outcome, baseline="old")
    assert found.text(MACHINE, 1.0)
    json.dumps(found.to_json(MACHINE, 1.0), allow_nan=False)
    return found


def rows(outcome: Outcome) -> list[list[str]]:
    """Of the table."""
    return [list(row) for row in measured(outcome).rows]


def test_builds_take_turns_and_each_block_is_measured_twice() -> None:
    stage = FakeStage()
    ran(stage, rounds=2, rounds_max=2)
    assert stage.asked == [
        (CELL, build, number)
        for number, order in enumerate([(NEW, OLD), (OLD, NEW)])
        for build in order
        for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("slower_by", "verdict"), [(0.0, "not slower"), (0.05, "slower (CPU, p99)"), (0.2, "slower")]
)
def test_a_slower_build_is_found(slower_by: float, verdict: str) -> None:
    outcome = ran(FakeStage(slower_by))
    ((name, cpu, requests, p99, other, bands, rounds, said),) = rows(outcome)
    assert said.startswith(verdict) and (name, other, rounds) == ("produce", "", "15")
    assert float(cpu) == pytest.approx(1 + slower_by, abs=0.02)
    assert float(cpu) == pytest.approx(1 / float(requests), abs=0.01) and cpu == p99
    assert [float(band.rstrip("%")) < 3 for band in bands.split(", ")] == [True, True]
    assert measured(outcome).passes is (verdict == "not slower")


def test_a_wide_cell_gets_more_rounds_until_it_is_narrow() -> None:
    outcome = ran(FakeStage(jitter=0.06), rounds_max=300)
    (row,) = rows(outcome)
    assert row[-1] == "not slower" and 15 < int(row[-2]) < 300


def test_a_cell_that_stays_wide_is_not_proved() -> None:
    outcome = ran(FakeStage(jitter=0.4), rounds_max=20)
    (row,) = rows(outcome)
    assert row[-1].startswith("undecided (CPU: the half-band of ") and row[-2] == "20"
    assert not measured(outcome).passes


def test_a_narrow_cell_does_not_wait_for_a_wide_one() -> None:
    class Both(FakeStage):
        def measure(self, cell: str, build: str, number: int) -> Taken:
            self._jitter = 0.4 if cell == "wide" else 0.0
            return super().measure(cell, build, number)

    stage = Both(lines=[of_requests("wide", "wide"), of_requests("narrow", "narrow")])
    ran(stage, rounds_max=18)
    assert max(number for cell, _, number in stage.asked if cell == "narrow") == 14
    assert max(number for cell, _, number in stage.asked if cell == "wide") == 17


def test_a_void_block_leaves_a_hole_and_is_reported() -> None:
    outcome = ran(FakeStage(void=[(CELL, OLD, 4)]), rounds_max=16)
    (row,) = rows(outcome)
    assert row[-2:] == ["15", "not slower"], "the sixteenth round took its place"
    assert measured(outcome).remarks == [
        "the old build: old",
        f"{CELL}, baseline, round 5: a wrong offset",
    ]


def test_a_cell_without_time_is_not_proved() -> None:
    clock = iter(range(0, 10_000, 10))
    driver = Driver(Plan(minutes=1), lambda _text: None, now_s=lambda: next(clock))
    outcome = driver.run([FakeStage(), FakeStage(lines=[of_value("start", "start", "s", 0.1)])])
    assert [row[-1] for row in rows(outcome)] == [
        "undecided (CPU, p99: 4 of 15 rounds needed)",
        "undecided (other: 0 of 15 rounds needed)",
    ]


def test_a_figure_without_a_bound_is_only_reported() -> None:
    line = of_value("modules", CELL, "cpu_us", None)
    outcome = ran(FakeStage(0.5, lines=[line]))
    (row,) = rows(outcome)
    assert row[-1] == "reported" and float(row[4]) == pytest.approx(1.5, abs=0.03)
    assert measured(outcome).passes


def test_cells_are_chosen_by_key_and_by_group() -> None:
    assert chosen(None) == CELLS
    assert chosen("start,handlers")[:2] == ("join-group", "offset-fetch")
    assert chosen("start,handlers")[-1] == "start"
    with pytest.raises(ValueError, match="q: not a cell; there are requests, handlers, several"):
        chosen("p-1k-4x5,q")


def test_a_baseline_has_to_be_built(tmp_path: Any) -> None:
    found = CliRunner().invoke(before_after, ["--baseline", str(tmp_path)])
    assert found.exit_code == 1 and "make build" in str(found.exception)
