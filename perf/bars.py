"""The bars: what a comparison must show, each with a verdict or with the reason why it has none.

"pass, surely": the whole interval, widened by the null test's band, meets the bar. "FAIL": the
whole of it does not. Everything else that was measured is "no result": too few values, noisy ones
left out, a bar within the interval, a null test that failed beside it. What was not measured is
"not measured", never passed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perf.cells import BY_KEY, GROUP_CELLS
from perf.compare import Outcome
from perf.paired import above_limit, beside, paired
from perf.stats import Estimate, estimate
from perf.verdict import NO_RESULT, lacking, times

PRODUCE_BAR_CELLS: Final = (
    "p-100-1x5",
    "p-100-4x5",
    "p-100-16x5",
    "p-1k-1x5",
    "p-1k-4x5",
    "p-1k-16x5",
    "j-100-1x5",
    "j-1k-4x5",
    "j-100-16x5",
)
ACTIVE_P99_GROWTH_MAX: Final = 1.5  # "unaffected", with the noise that a p99 has
MIB: Final = 1 << 20
NOT_MEASURED, PASSED, FAILED = "not measured", "pass, surely", "FAIL"


@dataclass(frozen=True)
class Bar:
    """One line of what must be shown."""

    what: str
    bar: float
    value: Estimate | None  # None: not measured
    unit: str
    band: float = 1.0
    doubt: str = ""  # why these values have no result, whatever they are

    @property
    def verdict(self) -> str:
        value = self.value
        if value is None:
            return NOT_MEASURED
        if self.doubt or not value.decides:
            return f"{NO_RESULT}: {self.doubt or lacking(len(value.values), 'values')}"
        if value.high * self.band <= self.bar:
            return PASSED
        if value.low / self.band > self.bar:
            return FAILED
        band = f" and the null test's {times(self.band)}" if self.band > 1 else ""
        return f"{NO_RESULT}: the bar lies within the interval{band}"

    @property
    def fine(self) -> bool:
        """Passed, or never asked for."""
        return self.verdict in (PASSED, NOT_MEASURED)


def bars(outcome: Outcome) -> list[Bar]:
    """The measurable rows of the project's table of bars."""
    return [
        *_start_bars(outcome),
        *_memory_bars(outcome),
        *_cell_bars(outcome),
        *_company_bars(outcome),
    ]


def of_values(what: str, bar: float, unit: str, found: Iterable[tuple[float, bool]]) -> Bar:
    """From values, each with whether it was quiet."""
    every = list(found)
    if not every:
        return Bar(what, bar, None, unit)
    value = estimate([one for one, quiet in every if quiet])
    noisy = len(every) - len(value.values)
    doubt = "" if value.decides else lacking(len(value.values), "values", noisy=noisy)
    return Bar(what, bar, value, unit, doubt=doubt)


def _start_bars(outcome: Outcome) -> list[Bar]:
    starts = outcome.starts.get("kbroker", [])
    return [
        of_values(what, bar, "s", [(getattr(one, key), one.quiet) for one in starts])
        for what, bar, key in (
            ("exec to first acknowledged produce, empty directory", 0.3, "empty_s"),
            ("the same after a clean stop", 0.3, "again_s"),
            ("first answer after kill -9", 1.0, "killed_s"),
        )
    ]


def _memory_bars(outcome: Outcome) -> list[Bar]:
    """What else runs does not change memory: every value counts."""
    starts = outcome.starts.get("kbroker", [])
    idle = [one.resident_bytes for one in starts if one.resident_bytes]
    idle = idle or [one for name, one in outcome.memory_idle.items() if name == "kbroker"]
    return [
        of_values(what, bar, "MB", [(one / MIB, True) for one in found])
        for what, bar, found in (
            ("resident memory, idle", 60.0, idle),
            ("resident memory, after each round", 120.0, outcome.memory_after.get("kbroker", [])),
        )
    ]


def _cell_bars(outcome: Outcome) -> list[Bar]:
    wanted = [
        *((cell, 0.4) for cell in PRODUCE_BAR_CELLS),
        ("f-16k", 0.45),
        *((cell, 0.8) for cell in GROUP_CELLS),
    ]
    found = []
    for cell, bar in wanted:
        what, metric = f"CPU per request, {BY_KEY[cell].title}", "cpu_us_per_request"
        one = paired(outcome, cell, metric, "kbroker", "kafka")
        if one is None:
            found.append(Bar(what, bar, None, "x Kafka"))
            continue
        doubt = _doubt(outcome, cell, metric) if one.ratio.decides else one.reason
        found.append(Bar(what, bar, one.ratio, "x Kafka", one.band, doubt))
    return [*found, *(_above_bar(outcome, cell) for cell in ("p-100-1x1", "p-100-1x1-pin"))]


def _above_bar(outcome: Outcome, cell: str) -> Bar:
    what, metric = f"(p50 - limit) / (Kafka - limit), {BY_KEY[cell].title}", "p50_us"
    found = above_limit(outcome, cell, metric)
    if found is None:
        return Bar(what, 0.7, None, "x Kafka")
    value, noisy = found
    few = "" if value.decides else lacking(len(value.values), noisy=noisy)
    tests = beside(outcome, cell, metric, ("kbroker", "kafka"))
    band = max((test.band for test in tests), default=1.0)
    return Bar(what, 0.7, value, "x Kafka", band, few or _doubt(outcome, cell, metric))


def _doubt(outcome: Outcome, cell: str, metric: str) -> str:
    """A null test that failed beside it, in words; "" where none has."""
    tests = beside(outcome, cell, metric, ("kbroker", "kafka"))
    return next((f"the null test failed: {test.failed}" for test in tests if test.failed), "")


def _company_bars(outcome: Outcome) -> list[Bar]:
    neighbours = outcome.neighbour.get("kbroker", [])
    idles = outcome.idle.get("kbroker", [])
    count = f" of {idles[0].connections:,}" if idles else ""
    held = [(one.bytes_each, True) for one in idles if one.bytes_each is not None]
    grown = [(one.p99_beside_us / one.p99_before_us, one.quiet) for one in idles]
    return [
        of_values("p99 of produce beside a Metadata loop", 2.0, "x alone",
            [(one.p99_ratio, one.quiet) for one in neighbours]),
        of_values(f"user space of an idle connection{count}", 1024.0, "B", held),
        of_values("p99 of an active client beside them", ACTIVE_P99_GROWTH_MAX, "x before", grown),
    ]  # fmt: skip
