"""Brokers of a comparison, paired by round, and each broker's null test.

Pure functions over perf.compare.Outcome; perf.judge says what may be concluded. A cell without a
null test of its own has that of its kind of work, or of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from perf.cells import BY_KEY, Block
from perf.compare import Outcome
from perf.judge import Together, Verdict, band_of, judge, side, times, together
from perf.stats import Estimate

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


def values(outcome: Outcome, cell: str, broker: str, metric: str) -> list[float]:
    return [METRICS[metric](block) for block in outcome.blocks.get(cell, {}).get(broker, [])]


def of_brokers(outcome: Outcome, cell: str, metric: str, *brokers: str) -> Together:
    found = outcome.blocks.get(cell, {})
    return together(*(side(found.get(broker, []), METRICS[metric]) for broker in brokers))


def paired(outcome: Outcome, cell: str, metric: str, ours: str, theirs: str) -> Verdict | None:
    """Ratio of two brokers in one cell; None where no round has both."""
    found = of_brokers(outcome, cell, metric, ours, theirs)
    tests = beside(outcome, cell, metric, (ours, theirs))
    return judge(found, [test.found for test in tests]) if found.rounds else None


def above_limit(outcome: Outcome, cell: str, metric: str) -> Together:
    """kbroker and Kafka, each less the limit, round by round."""
    found = of_brokers(outcome, cell, metric, "kbroker", "kafka", "limit")
    less = {n: (a - c, b - c) for n, (a, b, c) in found.quiet.items() if b > c}
    return replace(found, quiet=less, empty=found.empty + len(found.quiet) - len(less))


# Null tests.


@dataclass(frozen=True)
class NullTest:
    """A broker against itself, two blocks in a row; by one metric."""

    cell: str
    broker: str
    metric: str
    found: Together

    @property
    def ratio(self) -> Estimate:
        return self.found.ratio

    @property
    def failed(self) -> str:
        """Why nothing beside it has a result; "" where it has not failed."""
        one, band = self.ratio, band_of(self.ratio)
        if one.decides and not one.low <= 1 <= one.high:
            return f"{self._name} differs from itself, {one.text(times)}"
        if band > NULL_BAND_MAX.get(self.metric, 1.5):
            return f"{self._name} differs from itself by up to {times(band)}"
        return ""

    @property
    def words(self) -> str:
        """ "" where it is passed."""
        if self.ratio.decides:
            return self.failed
        return self.failed or f"{self.broker} in {self.cell}: {self.found.lacking()}"

    @property
    def _name(self) -> str:
        return f"{self.broker}'s {self.metric} in {self.cell}"

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "broker": self.broker,
            "metric": self.metric,
            "ratio": self.ratio.to_json(),
            "band": band_of(self.ratio),
            "passed": not self.words,
            "reason": self.words,
        }


def null_test(outcome: Outcome, cell: str, broker: str, metric: str) -> NullTest:
    pairs = outcome.null.get(cell, {}).get(broker, [])
    firsts, seconds = ([pair[at] for pair in pairs] for at in (0, 1))
    take = METRICS[metric]
    return NullTest(cell, broker, metric, together(side(firsts, take), side(seconds, take)))


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


def null_tests(outcome: Outcome) -> list[NullTest]:
    """Each broker against itself, by each metric that has a bound."""
    return [
        null_test(outcome, cell, broker, metric)
        for cell, brokers in outcome.null.items()
        for broker in brokers
        for metric in NULL_BAND_MAX
    ]
