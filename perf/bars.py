"""The bars of a comparison: what it must show. perf.judge says which are met."""

from __future__ import annotations

from typing import Final

from perf.cells import BY_KEY, GROUP_CELLS
from perf.compare import Outcome
from perf.judge import Bar, Together, ratio_bar, value_bar
from perf.paired import above_limit, beside, of_brokers

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


def bars(outcome: Outcome) -> list[Bar]:
    """The measurable rows of the project's table of bars."""
    return [
        *_start_bars(outcome),
        *_memory_bars(outcome),
        *_cell_bars(outcome),
        *_company_bars(outcome),
    ]


def _start_bars(outcome: Outcome) -> list[Bar]:
    starts = outcome.starts.get("kbroker", [])
    return [
        value_bar(name, bar, "s", [(getattr(one, key), one.quiet) for one in starts])
        for name, bar, key in (
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
        value_bar(name, bar, "MB", [(one / MIB, True) for one in found])
        for name, bar, found in (
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
    cpu, p50 = "cpu_us_per_request", "p50_us"
    found = [
        _bar(outcome, f"CPU per request, {BY_KEY[cell].title}", bar, cell, cpu,
             of_brokers(outcome, cell, cpu, "kbroker", "kafka"))
        for cell, bar in wanted
    ]  # fmt: skip
    found += [
        _bar(outcome, f"(p50 - limit) / (Kafka - limit), {BY_KEY[cell].title}", 0.7, cell, p50,
             above_limit(outcome, cell, p50))
        for cell in ("p-100-1x1", "p-100-1x1-pin")
    ]  # fmt: skip
    return found


def _bar(outcome: Outcome, what: str, bar: float, cell: str, metric: str, found: Together) -> Bar:
    """A null test that failed beside it takes its result."""
    tests = beside(outcome, cell, metric, ("kbroker", "kafka"))
    failed = next((f"the null test failed: {test.failed}" for test in tests if test.failed), "")
    return ratio_bar(what, bar, "x Kafka", found, [test.found for test in tests], doubt=failed)


def _company_bars(outcome: Outcome) -> list[Bar]:
    neighbours = outcome.neighbour.get("kbroker", [])
    idles = outcome.idle.get("kbroker", [])
    count = f" of {idles[0].connections:,}" if idles else ""
    held = [(one.bytes_each, True) for one in idles if one.bytes_each is not None]
    grown = [(one.p99_beside_us / one.p99_before_us, one.quiet) for one in idles]
    return [
        value_bar("p99 of produce beside a Metadata loop", 2.0, "x alone",
            [(one.p99_ratio, one.quiet) for one in neighbours]),
        value_bar(f"user space of an idle connection{count}", 1024.0, "B", held),
        value_bar("p99 of an active client beside them", ACTIVE_P99_GROWTH_MAX, "x before", grown),
    ]  # fmt: skip
