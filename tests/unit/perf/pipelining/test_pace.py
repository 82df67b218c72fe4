"""The rate of the paced section: whose half it is, and that it stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from perf.cells import CellError
from perf.pipelining.pace import Pace
from perf.pipelining.plan import ALL, KAFKA, PIPELINED, STOCK, Condition, Plan
from perf.studies.journal import JournalError
from perf.studies.measured import Measured
from tests.unit.perf.pipelining.fake import block

PLAN = Plan(sections=("paced",), systems=(STOCK, KAFKA, PIPELINED))


class Blocks:
    """Blocks with so many requests a second, one after the other."""

    def __init__(self, *rates: int) -> None:
        self._rates: Iterator[int] = iter(rates)
        self.asked: list[Condition] = []

    def __call__(self, condition: Condition) -> Measured:
        self.asked.append(condition)
        return replace(block(), requests=next(self._rates), wall_s=1.0)


def test_it_is_half_of_the_median_of_apache_kafka(tmp_path: Path) -> None:
    said: list[str] = []
    blocks = Blocks(600, 10, 700)
    with Pace(PLAN, tmp_path, blocks, said.append) as pace:
        assert pace.rate(500) == pace.rate(500) == 300.0
    assert blocks.asked == [Condition("matrix", KAFKA, 500, ALL, 200)] * 3
    assert said == ["paced at 300/s, 50% of the most of Apache Kafka at 500 us"]


def test_without_apache_kafka_it_is_the_first_system_s(tmp_path: Path) -> None:
    blocks = Blocks(100, 100, 100)
    with Pace(replace(PLAN, systems=(STOCK, PIPELINED)), tmp_path, blocks, print) as pace:
        assert pace.rate(500) == 50.0
    assert {one.system for one in blocks.asked} == {STOCK}


def test_a_run_that_goes_on_has_the_pace_of_the_one_that_was_cut(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Pace(PLAN, tmp_path, Blocks(600, 600, 600), print) as first,
    ):
        assert first.rate(500) == 300.0
        raise KeyboardInterrupt
    again = Blocks(80, 80, 80)
    with Pace(PLAN, tmp_path, again, print) as second:
        assert second.rate(500) == 300.0 and not again.asked
        assert second.rate(100) == 40.0
    with Pace(PLAN, tmp_path, Blocks(1000, 1000, 1000), print) as another:  # that one ended well
        assert another.rate(500) == 500.0


def test_fresh_forgets_it(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Pace(PLAN, tmp_path, Blocks(600, 600, 600), print) as first,
    ):
        first.rate(500)
        raise KeyboardInterrupt
    with Pace(PLAN, tmp_path, Blocks(80, 80, 80), print, fresh=True) as second:
        assert second.rate(500) == 40.0


def test_of_nothing_there_is_no_half(tmp_path: Path) -> None:
    """The block that asked is void; the next one asks anew."""
    with Pace(PLAN, tmp_path, Blocks(0, 0, 9, 60, 60, 60), print) as pace:
        with pytest.raises(CellError, match=r"Apache Kafka does 0.0/s at 500 us: no pace"):
            pace.rate(500)
        assert pace.rate(500) == 30.0


@pytest.mark.parametrize("rate", ["0", "-1", "null", "true", '"9"', "1e999"])
def test_a_kept_rate_that_is_none_is_said(tmp_path: Path, rate: str) -> None:
    with pytest.raises(KeyboardInterrupt), Pace(PLAN, tmp_path, Blocks(), print):
        raise KeyboardInterrupt
    (path,) = tmp_path.glob("pipelining-pace-*.jsonl")
    with path.open("a") as file:
        file.write(f'{{"round_trip_us": 500, "rate": {rate}}}\n')
    with pytest.raises(JournalError, match="remove it to begin anew"):
        Pace(PLAN, tmp_path, Blocks(), print)
