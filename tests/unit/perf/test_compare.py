"""The rounds of a comparison, on brokers that are made up."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perf import compare, network
from perf.brokers import KINDS, BrokerError
from perf.cells import Block, Cell, CellError
from perf.compare import Comparison, Plan
from perf.paired import paired
from perf.process import Guard
from perf.stats import PAIRS_MIN
from tests.unit.perf.test_report import block

CELL = "p-1k-4x5"


class _Bench:
    """Costs 10 us times the number of the block; those of `void` are void."""

    def __init__(self, name: str, *, void: frozenset[int] = frozenset()) -> None:
        self.broker = SimpleNamespace(
            name=name, pid=os.getpid(), resume=int, hold=int, check_alive=int
        )
        self._void = void
        self.count = 0

    def run(self, cell: Cell) -> Block:
        self.count += 1
        if self.count in self._void:
            raise CellError("a wrong offset")
        return block(cell.key, self.broker.name, 10.0 * self.count)


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **benches: Any) -> Comparison:
    monkeypatch.setattr(compare, "SETTLE_AFTER_HOLD_S", 0)
    plan = Plan(brokers=tuple(benches), cells=(CELL,), null_cells=(), rounds=7, directory=tmp_path)
    made = Comparison(plan, lambda _text: None)
    made._benches = benches
    made._rounds()
    return made


def test_a_void_block_leaves_its_round_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kbroker, kafka = _Bench("kbroker"), _Bench("kafka", void=frozenset({2}))
    outcome = ran(tmp_path, monkeypatch, kbroker=kbroker, kafka=kafka).outcome
    assert [one.round for one in outcome.blocks[CELL]["kafka"]] == [0, 2, 3, 4, 5, 6]
    found = paired(outcome, CELL, "cpu_us_per_request", "kbroker", "kafka")
    assert found is not None and found.ratio.values == pytest.approx((1.0,) * 6)
    assert len(outcome.faults) == 1 and len(outcome.memory_after["kbroker"]) == 7


def test_the_null_test_is_the_second_block_of_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "SETTLE_AFTER_HOLD_S", 0)
    plan = Plan(
        brokers=("kbroker",), cells=(CELL,), null_cells=(CELL,), rounds=3, directory=tmp_path
    )
    made = Comparison(plan, lambda _text: None)
    # The second block of the second round is void.
    made._benches = {"kbroker": _Bench("kbroker", void=frozenset({4}))}  # type: ignore[dict-item]
    made._rounds()
    firsts = [one.cpu_us_per_request for one in made.outcome.blocks[CELL]["kbroker"]]
    assert firsts == pytest.approx([10, 30, 50])
    pairs = made.outcome.null[CELL]["kbroker"]
    assert [(a.round, b.round) for a, b in pairs] == [(0, 0), (2, 2)]
    assert [b.cpu_us_per_request for _, b in pairs] == pytest.approx([20, 60])
    assert made._done == made._blocks_in_all == 6


def test_a_repetition_keeps_its_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loud(_Bench):
        def run(self, cell: Cell) -> Block:
            one = super().run(cell)
            return replace(one, guard=Guard(0.5, 0.0)) if self.count == 3 else one

    outcome = ran(tmp_path, monkeypatch, kbroker=Loud("kbroker")).outcome
    assert [one.round for one in outcome.blocks[CELL]["kbroker"]] == list(range(7))
    assert (outcome.repeated_blocks, outcome.noisy_blocks) == (1, 0)


def test_by_default_there_are_rounds_enough_and_a_quick_look_has_none() -> None:
    assert Plan().rounds > PAIRS_MIN, "one may be noisy or void"
    assert min(Plan().start_repeats, Plan().idle_repeats) > PAIRS_MIN
    assert Plan.quick().rounds < PAIRS_MIN


def test_a_comparison_that_fails_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_directory: Path) -> Any:
        raise BrokerError("it does not start")

    monkeypatch.setitem(KINDS, "kbroker", broken)
    monkeypatch.setattr(network, "enter", lambda: "")
    with pytest.raises(BrokerError):
        Comparison(Plan(brokers=("kbroker",), directory=tmp_path), lambda _text: None).run()
    assert list(tmp_path.iterdir()) == []
