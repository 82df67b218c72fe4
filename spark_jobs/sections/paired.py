"""Blocks of two sides beside each other: by run and round, from quiet blocks, with a verdict.

The machine's effect on both cancels out in the ratio of two blocks of one round. Blocks of
different runs, or without a round, have nothing in common and are not paired, and neither is a
round of which a side has several: which belongs to which is not known. A block counts if it is
known to be quiet. The null test (blocks marked `again`, after those that they repeat) is the band
around 1 in which a ratio says nothing; work without one of its own has that of its kind in the same
runs' study.

Rounds, interval, band, verdict and the words for "no result" are those of perf itself (perf.judge).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perf import judge
from perf.stats import CONFIDENCE_MIN, PAIRS_MIN, Estimate
from spark_jobs.report_model import Cell, Rows, Verdict
from spark_jobs.sections.blocks import IDENTITY, Block, Measure, grouped
from spark_jobs.sections.cells import figure, literal, number, words

Pair = tuple[Block, Block]

NOTE: Final = (
    f"Median ratio over the quiet rounds; [a, b] is its exact interval, {CONFIDENCE_MIN:.0%} or"
    f" more, (a to b) what was merely seen, of fewer than {PAIRS_MIN}. No result: such few rounds,"
    " an interval with 1 in it, or one that reaches what a broker differs from itself by."
)
_LIKE: Final = ("study", "machine", "work", "measure")


@dataclass(frozen=True)
class Beside:
    """Two sides of one piece of work: all pairs, and of each null test its pairs."""

    every: tuple[Pair, ...]
    null: tuple[tuple[Pair, ...], ...] = ()

    @property
    def first(self) -> Block:
        return self.every[0][0]

    @property
    def quiet(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.every if all(block.quiet for block in pair))


def pairs(ours: Iterable[Block], theirs: Iterable[Block]) -> tuple[Pair, ...]:
    """Blocks of one run and round, where each side has one."""
    one, other = _single(ours), _single(theirs)
    return tuple((one[place], other[place]) for place in one if place in other)


def _single(found: Iterable[Block]) -> dict[tuple[Any, ...], Block]:
    groups = grouped(found, ("run_id", "round"))
    return {
        place: many[0]
        for place, many in groups.items()
        if len(many) == 1 and place[0] is not None and place[1] is not None
    }


class NullTests:
    """The null tests among some blocks."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        every = list(blocks)
        names = (*IDENTITY, "acks", "broker")
        firsts = grouped((one for one in every if not one.again), names)
        self._found: list[tuple[Block, tuple[Pair, ...]]] = []
        for place, seconds in grouped((one for one in every if one.again), names).items():
            if found := pairs(firsts.get(place, ()), seconds):
                self._found.append((seconds[0], found))

    def of(
        self, like: Block, brokers: Collection[str], *, apart: Collection[str] = ()
    ) -> tuple[tuple[Pair, ...], ...]:
        """Of work that is the same but for broker and `apart`; else of its kind."""
        same = [name for name in (*IDENTITY, "acks") if name not in apart]
        for names in (same, _LIKE):
            found = tuple(
                null for one, null in self._found
                if one["broker"] in brokers and one.key(names) == like.key(names)
            )  # fmt: skip
            if found:
                return found
        return ()


@dataclass(frozen=True)
class Versus:
    """A ratio of two sides and whether it is decided; `better` says which way is."""

    judged: judge.Verdict
    better: str

    @property
    def estimate(self) -> Estimate:
        return self.judged.ratio

    @property
    def pairs(self) -> int:
        return self.judged.rounds

    @property
    def decided(self) -> bool:
        return self.judged.decided

    @property
    def verdict(self) -> Verdict:
        if not self.decided:
            return "open"
        return "good" if (self.judged.direction == "less") == (self.better == "low") else "bad"

    @property
    def why_open(self) -> str:
        """Why there is no result; "" if there is one."""
        return self.judged.reason

    @property
    def text(self) -> str:
        """0.62 [0.58, 0.66]"""
        return self.estimate.text(number)


def versus(found: Beside, measure: Measure) -> Versus | None:
    """First over second, pair by pair; None where no pair has the figure.

    What a rate was set for has no throughput to compare: it is the rate's.
    """
    if measure.better == "high" and any(block["rate"] for pair in found.every for block in pair):
        return None
    both = _together(found.every, measure)
    if not both.rounds:
        return None
    nulls = [_together(null, measure) for null in found.null]
    return Versus(judge.judge(both, nulls), measure.better)


def _together(found: Iterable[Pair], measure: Measure) -> judge.Together:
    every = list(found)
    return judge.together(
        *([_block(number, pair[at], measure) for number, pair in enumerate(every)] for at in (0, 1))
    )


def _block(number: int, block: Block, measure: Measure) -> judge.Block:
    value = measure.of(block)
    return judge.Block(number, block["quiet"], math.nan if value is None or value <= 0 else value)


# -- as cells


def cell(one: Versus | None, source: Rows) -> Cell:
    """A ratio with its ends; what was not measured, or has no quiet pair, is a dash."""
    if one is None:
        return words("-")
    if not one.pairs:
        return words("-", "open")
    return figure(one.estimate.median, source, one.text, one.verdict)


def reasons(found: Sequence[Versus | None], names: Sequence[str]) -> str:
    """Why there is no result, said once for all that it holds for: "p50, p99: ..."."""
    open_: dict[str, list[str]] = defaultdict(list)
    for one, name in zip(found, names, strict=True):
        if one is not None and one.why_open:
            open_[one.why_open].append(name)
    measured = sum(one is not None for one in found)
    return "; ".join(
        why if len(those) == measured else f"{', '.join(those)}: {why}"
        for why, those in open_.items()
    )


# -- their rows


def count_of(found: Iterable[Pair]) -> int:
    """Blocks in these pairs."""
    return len({(block["run_id"], block["sequence"]) for pair in found for block in pair})


def which(found: Iterable[Pair]) -> str:
    """A predicate for the pairs' own blocks, by the numbers that a record has once."""
    by_run: dict[str, set[int]] = defaultdict(set)
    for pair in found:
        for block in pair:
            by_run[block["run_id"]].add(block["sequence"])
    # Runs of one command have the same numbers, and a year of them is one line still.
    by_numbers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for run, numbers in sorted(by_run.items()):
        by_numbers[tuple(sorted(numbers))].append(run)
    parts = [
        f"(run_id IN ({', '.join(map(literal, runs))})"
        f" AND sequence IN ({', '.join(map(str, numbers))}))"
        for numbers, runs in by_numbers.items()
    ]
    return f"({' OR '.join(parts)})"
