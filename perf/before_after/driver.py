"""The rounds: both builds by turns, each block twice in a row, more rounds for a cell that is wide.

A `Stage` is a set of cells that share running brokers of both builds; it knows how one block of
one cell is measured on one build. The driver takes the stages one after the other. In a round every
cell has two blocks of each build; the order of the builds reverses from round to round. After
`plan.rounds` rounds a cell goes on only if one of its lines shows nothing yet, until it does, or
has had `plan.rounds_max`, or the time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from perf._load import LoadError
from perf.before_after.lines import HEAD, Blocks, Judged, Line, Taken, judged
from perf.brokers import BASELINE, BrokerError
from perf.cells import CellError
from perf.client import ClientError
from perf.judge import ROUNDS_MIN, SLOWER, UNDECIDED
from perf.measurement import Figure, Measurement, noisy
from perf.wire import WireError

NEW, OLD = "kbroker", BASELINE
BUILDS = (NEW, OLD)
ROUNDS_MAX = 3 * ROUNDS_MIN
FAILURES = (LoadError, BrokerError, CellError, ClientError, WireError, OSError)

Say = Callable[[str], None]


class Stage(AbstractContextManager["Stage"], Protocol):
    """Cells that share running brokers; they run while it is entered."""

    @property
    def lines(self) -> Sequence[Line]: ...

    def measure(self, cell: str, build: str, number: int) -> Taken:
        """One block. One of FAILURES where it is void."""


@dataclass(frozen=True)
class Plan:
    """How much is run. `minutes` 0: as long as it takes."""

    rounds: int = ROUNDS_MIN
    rounds_max: int = ROUNDS_MAX
    minutes: float = 0.0


@dataclass
class Outcome:
    """Blocks by cell, and the lines in the order of the table."""

    plan: Plan
    lines: list[Line] = field(default_factory=list)
    blocks: dict[str, Blocks] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def judged(self, line: Line) -> Judged:
        return judged(line, self.blocks.get(line.cell, Blocks()), NEW, OLD)


class Driver:
    """Runs stages. Use once."""

    def __init__(self, plan: Plan, say: Say, now_s: Callable[[], float] = time.monotonic) -> None:
        self.outcome = Outcome(plan)
        self._plan, self._say, self._now_s = plan, say, now_s
        self._end_s = now_s() + plan.minutes * 60 if plan.minutes else float("inf")

    def run(self, stages: Iterable[Stage]) -> Outcome:
        for stage in stages:
            self.outcome.lines += stage.lines
            if not self._in_time():
                continue
            try:
                with stage:
                    self._rounds(stage)
            except FAILURES as error:
                self._fault(f"{stage.lines[0].cell}: {error}")
        return self.outcome

    def _in_time(self) -> bool:
        return self._now_s() < self._end_s

    def _rounds(self, stage: Stage) -> None:
        cells = list(dict.fromkeys(line.cell for line in stage.lines))
        for number in range(self._plan.rounds_max):
            if number >= self._plan.rounds:
                cells = [cell for cell in cells if self._is_wide(stage, cell)]
            for cell in cells:
                if self._in_time():
                    self._round(stage, cell, number)

    def _is_wide(self, stage: Stage, cell: str) -> bool:
        lines = [line for line in stage.lines if line.cell == cell]
        return any(self.outcome.judged(line).wide for line in lines)

    def _round(self, stage: Stage, cell: str, number: int) -> None:
        blocks = self.outcome.blocks.setdefault(cell, Blocks())
        for build in BUILDS[:: -1 if number % 2 else 1]:
            for source in (blocks.first, blocks.again):
                try:
                    taken = stage.measure(cell, build, number)
                except FAILURES as error:
                    self._fault(f"{cell}, {build}, round {number + 1}: {error}")
                    break  # its null test would pair with nothing
                source.setdefault(build, []).append(taken)
                self._say(f"round {number + 1} {cell:14} {build:8} {_in_words(taken)}")

    def _fault(self, text: str) -> None:
        self.outcome.faults.append(text)
        self._say(f"VOID {text}")


def _in_words(taken: Taken) -> str:
    values = ", ".join(f"{name} {value:,.4g}" for name, value in taken.values.items())
    return values if taken.quiet else f"{values}  (something else ran)"


def report(outcome: Outcome, *, baseline: str, **about: Any) -> Measurement:
    """The table, with a line for each line of a cell."""
    lines = [outcome.judged(line) for line in outcome.lines]
    every = [
        (cell, build, one)
        for cell, blocks in outcome.blocks.items()
        for source in (blocks.first, blocks.again)
        for build, taken in source.items()
        for one in taken
    ]
    values = [
        *(one.to_json() for one in lines),
        *({"cell": cell, **blocks.to_json()} for cell, blocks in outcome.blocks.items()),
    ]
    figures = [
        Figure(f"before and after, {cell}: {name}", value, "",
               {"broker": build, "round": one.round, "quiet": one.quiet})
        for cell, build, one in every
        for name, value in one.values.items()
    ]  # fmt: skip
    return Measurement(
        {**outcome.plan.__dict__, "baseline": baseline, **about},
        HEAD,
        [one.row() for one in lines],
        (),
        values,
        figures,
        remarks=[
            f"the old build: {baseline}",
            *outcome.faults,
            *noisy([one.quiet for _cell, _build, one in every]),
        ],
        fine=not any(one.verdict in (SLOWER, UNDECIDED) for one in lines),
    )
