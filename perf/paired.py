"""Two brokers of a comparison held against each other: by round, from quiet blocks, with a verdict.

A block carries its round, and a void one leaves a hole: blocks are paired by their round, never by
their place in a list. What a broker differs from itself by (the null test) is the band around 1 in
which a ratio says nothing. A cell without a null test has that of its kind of work, or of any.

Pure functions over perf.compare.Outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from perf.cells import BY_KEY, Block
from perf.compare import Outcome
from perf.stats import Estimate, estimate, ratio
from perf.verdict import Verdict, band_of, judge, lacking, times

METRICS: Final[dict[str, Callable[[Block], float]]] = {
    "requests_per_s": lambda block: block.requests_per_s,
    "megabytes_per_s": lambda block: block.megabytes_per_s,
    "cpu_us_per_request": lambda block: block.cpu_us_per_request,
    "cpu_us_without_runtime": lambda block: block.cpu_us_without_runtime,
    "cpu_s_per_gigabyte": lambda block: block.cpu_s_per_gigabyte,
    "own_us_per_request": lambda block: block.own_us_per_request,
    "p50_us": lambda block: block.percentile_us(50),
    "p99_us": lambda block: block.percentile_us(99),
}
# A broker that differs from itself by more is not measured at all here; less widens what counts.
NULL_BAND_MAX: Final = {
    "cpu_us_per_request": 1.2,
    "cpu_us_without_runtime": 1.2,
    "requests_per_s": 1.2,
    "p50_us": 1.5,
    "p99_us": 1.5,
}


def by_round(outcome: Outcome, cell: str, broker: str) -> dict[int, Block]:
    return {block.round: block for block in outcome.blocks.get(cell, {}).get(broker, [])}


def values(outcome: Outcome, cell: str, broker: str, metric: str) -> list[float]:
    return [METRICS[metric](block) for block in outcome.blocks.get(cell, {}).get(broker, [])]


@dataclass(frozen=True)
class Together:
    """The rounds that all of some brokers have: quiet blocks by round, and how many were noisy."""

    quiet: tuple[tuple[Block, ...], ...]
    noisy: int

    @property
    def rounds(self) -> int:
        return len(self.quiet) + self.noisy


def together(outcome: Outcome, cell: str, brokers: Iterable[str]) -> Together:
    each = [by_round(outcome, cell, broker) for broker in brokers]
    shared = sorted(set.intersection(*map(set, each)))
    sides = [tuple(rounds[number] for rounds in each) for number in shared]
    quiet = tuple(side for side in sides if all(block.guard.quiet for block in side))
    return Together(quiet, len(sides) - len(quiet))


def paired(outcome: Outcome, cell: str, metric: str, ours: str, theirs: str) -> Verdict | None:
    """Ratio of two brokers in one cell; None where no round has both."""
    found = together(outcome, cell, (ours, theirs))
    if not found.rounds:
        return None
    take = METRICS[metric]
    both = ratio([take(a) for a, _ in found.quiet], [take(b) for _, b in found.quiet])
    return judge(both, band=band(outcome, cell, metric, (ours, theirs)), noisy=found.noisy)


def above_limit(outcome: Outcome, cell: str, metric: str) -> tuple[Estimate, int] | None:
    """(kbroker - limit) / (Kafka - limit), round by round; and how many rounds were noisy."""
    found = together(outcome, cell, ("kbroker", "kafka", "limit"))
    if not found.rounds:
        return None
    take = METRICS[metric]
    taken = [(take(a), take(b), take(c)) for a, b, c in found.quiet]
    return estimate([(a - c) / (b - c) for a, b, c in taken if b > c]), found.noisy


# Null tests.


@dataclass(frozen=True)
class NullTest:
    """A broker against itself, two blocks in a row; by one metric."""

    cell: str
    broker: str
    metric: str
    ratio: Estimate
    noisy: int

    @property
    def band(self) -> float:
        return band_of(self.ratio)

    @property
    def failed(self) -> str:
        """Why nothing beside it has a result; "" where it has not failed."""
        one, most = self.ratio, NULL_BAND_MAX.get(self.metric, 1.5)
        if one.decides and not one.low <= 1 <= one.high:
            return f"{self._name} differs from itself, {one.text(times)}"
        if self.band > most:
            return f"{self._name} differs from itself by up to {times(self.band)}"
        return ""

    @property
    def passed(self) -> bool:
        return self.ratio.decides and not self.failed

    @property
    def words(self) -> str:
        """ "" where it is passed."""
        if self.passed:
            return ""
        few = lacking(len(self.ratio.values), noisy=self.noisy)
        return self.failed or f"{self.broker} in {self.cell}: {few}"

    @property
    def _name(self) -> str:
        return f"{self.broker}'s {self.metric} in {self.cell}"

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "broker": self.broker,
            "metric": self.metric,
            "ratio": self.ratio.to_json(),
            "band": self.band,
            "passed": self.passed,
            "reason": self.words,
        }


def null_test(outcome: Outcome, cell: str, broker: str, metric: str) -> NullTest:
    pairs = outcome.null.get(cell, {}).get(broker, [])
    quiet = [(a, b) for a, b in pairs if a.guard.quiet and b.guard.quiet]
    take = METRICS[metric]
    found = ratio([take(a) for a, _ in quiet], [take(b) for _, b in quiet])
    return NullTest(cell, broker, metric, found, len(pairs) - len(quiet))


def beside(outcome: Outcome, cell: str, metric: str, brokers: Iterable[str]) -> list[NullTest]:
    """The null tests of these brokers that say something of a cell."""
    kind = BY_KEY[cell].kind
    alike = [key for key in outcome.null if BY_KEY[key].kind == kind]
    keys = [cell] if cell in outcome.null else alike or list(outcome.null)
    return [
        null_test(outcome, key, broker, metric)
        for key in keys
        for broker in brokers
        if broker in outcome.null[key]
    ]


def band(outcome: Outcome, cell: str, metric: str, brokers: Iterable[str]) -> float:
    return max((test.band for test in beside(outcome, cell, metric, brokers)), default=1.0)


def null_tests(outcome: Outcome) -> list[NullTest]:
    """Each broker against itself, by each metric that has a bound."""
    return [
        null_test(outcome, cell, broker, metric)
        for cell, brokers in outcome.null.items()
        for broker in brokers
        for metric in NULL_BAND_MAX
    ]
