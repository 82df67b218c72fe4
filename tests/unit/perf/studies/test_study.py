"""The loop of a study on a fake measurement: order, resumption, noise, void blocks, time left."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perf.cells import CellError
from perf.studies.journal import JournalError
from perf.studies.measured import Measured
from perf.studies.study import Outcome, Point, StudyError, finish, run, slots
from tests.unit.perf.studies.fake import measured, p50_us

POINTS = (
    Point("a/kbroker", "a", {"broker": "kbroker"}, null=True),
    Point("a/kafka", "a", {"broker": "kafka"}),
    Point("b/kbroker", "b", {"broker": "kbroker"}),
    Point("b/kafka", "b", {"broker": "kafka"}),
)


class Cut(BaseException):
    """The process is interrupted."""


class Bench:
    """Measures given blocks; counts, and can be cut after some blocks."""

    def __init__(self, *, cut_after: int = -1) -> None:
        self.measured: list[str] = []
        self.said: list[str] = []
        self.cut_after = cut_after

    def measure(self, point: Point) -> Measured:
        if len(self.measured) == self.cut_after:
            raise Cut
        self.measured.append(point.key)
        return measured(100 + len(self.measured))

    def run(self, directory: Path, points: tuple[Point, ...] = POINTS, **more: Any) -> Outcome:
        options = {"rounds": 2, "say": self.said.append, **more}
        return run("s", points, self.measure, directory=directory, **options)


def test_order_reverses_within_a_group() -> None:
    names = [(slot.point.key, slot.round, slot.again) for slot in slots(POINTS, 2)]
    assert names == [
        ("a/kbroker", 0, False),
        ("a/kbroker", 0, True),
        ("a/kafka", 0, False),
        ("b/kbroker", 0, False),
        ("b/kafka", 0, False),
        ("a/kafka", 1, False),
        ("a/kbroker", 1, False),
        ("a/kbroker", 1, True),
        ("b/kafka", 1, False),
        ("b/kbroker", 1, False),
    ]


def test_a_whole_study(tmp_path: Path) -> None:
    bench = Bench()
    outcome = bench.run(tmp_path)
    assert {key: sorted(rounds) for key, rounds in outcome.blocks.items()} == {
        point.key: [0, 1] for point in POINTS
    }
    assert sorted(outcome.null) == ["a/kbroker"]
    (first, second), _ = outcome.null_pairs(["a/kbroker"])
    assert first is outcome.of("a/kbroker")[0] and p50_us(second) > p50_us(first)
    assert len(outcome.values("a/kafka", p50_us)) == 2
    assert not outcome.faults and outcome.resumed == 0 and outcome.noisy == 0
    assert len(bench.said) == 10
    assert bench.said[0].startswith("[1/10] a/kbroker ") and bench.said[0].endswith(" left")
    assert bench.said[-1].endswith("  0 s left")
    json.dumps(outcome.to_json(), allow_nan=False)


@pytest.mark.parametrize("blocks", range(10))
def test_a_cut_run_goes_on(tmp_path: Path, blocks: int) -> None:
    """Wherever it is cut: whole groups are kept, part of a group is measured again."""
    cut = Bench(cut_after=blocks)
    with pytest.raises(Cut):
        cut.run(tmp_path)
    rest = Bench()
    outcome = rest.run(tmp_path)
    kept = {0: 0, 1: 0, 2: 0, 3: 3, 4: 3, 5: 5, 6: 5, 7: 5, 8: 8, 9: 8}[blocks]
    assert outcome.resumed == kept
    assert len(rest.measured) == 10 - kept
    assert Counter(cut.measured[:kept] + rest.measured) == Counter(
        slot.point.key for slot in slots(POINTS, 2)
    )
    assert all(sorted(rounds) == [0, 1] for rounds in outcome.blocks.values())
    assert any("going on with" in line for line in rest.said) is (kept > 0)


def test_the_remaining_and_the_used_time_count_the_run_that_was_cut(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        Bench(cut_after=8).run(tmp_path)
    (journal,) = tmp_path.iterdir()
    head, *entries = map(json.loads, journal.read_text().splitlines())
    slow = [{**entry, "seconds": 10.0} for entry in entries]
    journal.write_text("".join(json.dumps(line) + "\n" for line in (head, *slow)))
    rest = Bench()
    outcome = rest.run(tmp_path)
    assert rest.said[1].startswith("[9/10] b/kafka ") and rest.said[1].endswith("  10 s left")
    assert 80 <= outcome.took_s < 90


def test_the_result_stays_until_it_is_written(tmp_path: Path) -> None:
    first = Bench().run(tmp_path)
    again = Bench()
    second = again.run(tmp_path)
    assert not again.measured and second.resumed == 10
    assert second.to_json()["blocks"] == first.to_json()["blocks"]
    finish(second)
    third = Bench()
    third.run(tmp_path)
    assert len(third.measured) == 10


def test_another_plan_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        Bench(cut_after=6).run(tmp_path)
    changes: tuple[dict[str, Any], ...] = (
        {"rounds": 3},
        {"settings": {"seconds": 2}},
        {"points": POINTS[:2]},
    )
    for change in changes:
        assert Bench().run(tmp_path, **change).resumed == 0
    assert Bench().run(tmp_path).resumed == 5


def test_fresh_forgets(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        Bench(cut_after=6).run(tmp_path)
    assert Bench().run(tmp_path, fresh=True).resumed == 0


def test_a_noisy_block_is_repeated_once(tmp_path: Path) -> None:
    class Noisy(Bench):
        def measure(self, point: Point) -> Measured:
            super().measure(point)
            loud = point.key == "a/kafka" or self.measured.count(point.key) == 1
            return measured(others=0.3 if loud else 0.0)

    bench = Noisy()
    outcome = bench.run(tmp_path, rounds=1)
    assert Counter(bench.measured) == {
        "a/kbroker": 3,  # its second block is the null test's
        "a/kafka": 2,
        "b/kbroker": 2,
        "b/kafka": 2,
    }
    assert outcome.repeated == 4 and outcome.noisy == 1
    assert not outcome.of("a/kafka")[0].quiet
    assert sum("NOISY: others 30%" in line for line in bench.said) == 1


def test_a_busy_machine_does_not_double_a_study(tmp_path: Path) -> None:
    class Busy(Bench):
        def measure(self, point: Point) -> Measured:
            super().measure(point)
            return measured(others=0.3)

    bench = Busy()
    outcome = bench.run(tmp_path, rounds=40)
    assert outcome.noisy == 160 and outcome.repeated == 20  # of 200 blocks, 40 a null test's
    assert len(bench.measured) == 220


def test_a_void_block_is_a_fault_and_stays_one(tmp_path: Path) -> None:
    class Loses(Bench):
        def measure(self, point: Point) -> Measured:
            super().measure(point)
            if point.key == "a/kafka":
                raise CellError("1,000 records sent,\n999 came")
            return measured()

    with pytest.raises(Cut):
        Loses(cut_after=9).run(tmp_path)
    bench = Bench()  # which would measure it
    outcome = bench.run(tmp_path)
    assert outcome.faults == [
        "a/kafka, round 1: 1,000 records sent, 999 came",
        "a/kafka, round 2: 1,000 records sent, 999 came",
    ]
    assert "a/kafka" not in outcome.blocks and outcome.of("a/kafka") == {}


def test_a_void_half_of_a_null_test(tmp_path: Path) -> None:
    class FirstIsVoid(Bench):
        def measure(self, point: Point) -> Measured:
            found = super().measure(point)
            if len(self.measured) == 1:
                raise OSError("reset")
            return found

    outcome = FirstIsVoid().run(tmp_path)
    assert sorted(outcome.null["a/kbroker"]) == [1]
    assert len(outcome.faults) == 1


def test_many_void_blocks_end_it(tmp_path: Path) -> None:
    class Gone(Bench):
        def measure(self, point: Point) -> Measured:
            super().measure(point)
            raise ConnectionRefusedError

    bench = Gone()
    with pytest.raises(StudyError, match=r"5 void blocks in a row.*ConnectionRefusedError"):
        bench.run(tmp_path)
    assert len(bench.measured) == 5


def test_keys_must_differ(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="keys must differ"):
        Bench().run(tmp_path, (POINTS[0], POINTS[0]))


@pytest.mark.parametrize(
    "line",
    [
        '{"key": "a/kbroker", "round": 0, "again": false}',
        '{"key": "a/kbroker", "round": 0, "again": false, "block": {"records": -1}}',
        '{"key": ["a"], "round": 0, "again": false, "void": "x"}',
        '{"key": "a/kbroker", "round": 0, "again": false, "void": "x"}',
        '{"key": "a/kbroker", "round": 0, "again": false, "void": "x", "seconds": -1}',
    ],
)
def test_a_damaged_entry_is_said_in_one_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(Cut):
        Bench(cut_after=2).run(tmp_path)
    (journal,) = tmp_path.iterdir()
    with journal.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(JournalError, match=re.escape(f"{journal} is damaged in line 4")):
        Bench().run(tmp_path)
