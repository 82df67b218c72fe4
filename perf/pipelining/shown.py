"""How a cell of the experiment's tables is shown: medians over the rounds, and what is no number.

A percentile that few requests of one block lie above is of all rounds together, or is not said.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from perf.histogram import Histogram
from perf.pipelining.bars import FIGURE_MAX, requests_timed
from perf.pipelining.plan import ABOVE_MIN, Condition
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, head, rows
Show = Callable[[Measured], float]
NOTHING: Final = "-"
WORDS_CHARS_MAX: Final = 100  # of what a file says of its machine
LATE_HEAD: Final = ("p50 us", "p99 us", "n of a block", "p99.9 us")


def median(outcome: Outcome, condition: Condition, show: Show) -> float | None:
    """Of a cell's blocks; None where none has a number that a machine can have."""
    found = [one for one in outcome.values(condition.key, show) if abs(one) <= FIGURE_MAX]
    return statistics.median(found) if found else None


def cell(outcome: Outcome, condition: Condition, show: Show, digits: int = 0) -> str:
    found = median(outcome, condition, show)
    return NOTHING if found is None else f"{found:,.{digits}f}"


def megabytes(outcome: Outcome, condition: Condition) -> str:
    found = median(outcome, condition, lambda one: one.megabytes_per_s)
    return NOTHING if found is None else f"{found:,.{0 if found >= 100 else 1}f}"


def one_line(words: object, chars_max: int = WORDS_CHARS_MAX) -> str:
    """What a file says, as a few words that a page, a picture and a terminal can show."""
    shown = "".join(one if one.isprintable() else " " for one in str(words))
    return " ".join(shown.split())[:chars_max]


def rare(outcome: Outcome, condition: Condition, percent: float) -> str:
    """A percentile of all rounds together, where enough requests lie above it."""
    blocks = outcome.of(condition.key).values()
    every = Histogram.merge(one.histograms[REQUEST] for one in blocks if REQUEST in one.histograms)
    if every.total * (100 - percent) < 100 * ABOVE_MIN:
        return NOTHING
    return f"{every.percentile(percent) / 1e3:,.0f}"


def late(outcome: Outcome, condition: Condition) -> list[str]:
    """p50 and p99, of how many requests in the smallest block, and p99.9."""
    timed = requests_timed(outcome, condition)
    return [
        *(cell(outcome, condition, percentile(percent)) for percent in (50, 99)),
        f"{timed:,}" if timed else NOTHING,
        rare(outcome, condition, 99.9),
    ]


def percentile(percent: float) -> Show:
    return lambda one: one.percentile_us(REQUEST, percent)


def figure(name: str) -> Show:
    return lambda one: one.figures.get(name, float("nan"))
