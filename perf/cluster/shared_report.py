"""Blocks of perf.cluster.shared_load as a table, bars and JSON. Pure functions of an outcome."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from perf.bars import Bar
from perf.cluster.shared_load import BY_KEY, NULL_CELLS, SharedBlock, SharedOutcome
from perf.cluster.told import Figure, Told, noisy
from perf.report import interval, number
from perf.stats import Estimate, estimate, ratio
from perf.verdict import Verdict, band_of, judge, times

OURS, THEIRS = "kbroker", "kafka"
BARS: Final = {"s-1k-4x5": 0.4, "s-1k-4000": 0.4, "s-10k-4x5": 0.5, "s-10k-2000": 0.5}
NULL_BAND_MAX: Final = 1.2
HEAD: Final = (
    "cell", "broker", "req/s", "p50 us", "p99 us", "leader us", "follower us", "CPU us",
    "meeting us", "behind ms", "CPU x Kafka",
)  # fmt: skip

Blocks = Sequence[SharedBlock]


def cpu_us(one: SharedBlock) -> float:
    return one.block.cpu_us_per_request


def against(outcome: SharedOutcome, cell: str) -> Verdict | None:
    """CPU of ours by that of theirs, by round, from quiet blocks; None where no round has both."""
    found = outcome.blocks.get(cell, {})
    ours, theirs = (_by_round(found.get(name, [])) for name in (OURS, THEIRS))
    shared = sorted(ours.keys() & theirs.keys())
    if not shared:
        return None
    quiet = [n for n in shared if ours[n].block.guard.quiet and theirs[n].block.guard.quiet]
    both = ratio([cpu_us(ours[n]) for n in quiet], [cpu_us(theirs[n]) for n in quiet])
    return judge(both, band=band(outcome, cell), noisy=len(shared) - len(quiet))


def null_test(outcome: SharedOutcome, cell: str, broker: str) -> Estimate:
    """A cluster by itself, two blocks in a row, from quiet ones."""
    first = _by_round(outcome.blocks.get(cell, {}).get(broker, []))
    again = _by_round(outcome.again.get(cell, {}).get(broker, []))
    pairs = [(first[n], again[n]) for n in sorted(first.keys() & again.keys())]
    quiet = [(a, b) for a, b in pairs if a.block.guard.quiet and b.block.guard.quiet]
    return ratio([cpu_us(a) for a, _ in quiet], [cpu_us(b) for _, b in quiet])


def band(outcome: SharedOutcome, cell: str) -> float:
    """Of the cell's null test, or of those that there are: what a ratio must differ from 1 by."""
    return max((band_of(test) for _, test in _null_tests(outcome, cell)), default=1.0)


def _null_tests(outcome: SharedOutcome, cell: str) -> list[tuple[str, Estimate]]:
    """Those that speak for a cell: its own, or of its kind of load, at a fixed rate or not."""
    alike = [key for key in NULL_CELLS if bool(BY_KEY[key].rate) == bool(BY_KEY[cell].rate)]
    keys = [cell] if cell in NULL_CELLS else alike
    return [
        (f"{broker} in {key}", null_test(outcome, key, broker))
        for key in keys
        for broker in outcome.again.get(key, {})
    ]


def _by_round(blocks: Blocks) -> dict[int, SharedBlock]:
    return {one.block.round: one for one in blocks}


def bars(outcome: SharedOutcome) -> list[Bar]:
    found = []
    for cell in outcome.plan.cells:
        what = f"CPU of leader and follower per request, {BY_KEY[cell].title}"
        one = against(outcome, cell)
        if one is None:
            found.append(Bar(what, BARS[cell], None, "x Kafka"))
            continue
        doubt = "" if one.ratio.decides else one.reason
        for name, test in _null_tests(outcome, cell):
            if band_of(test) > NULL_BAND_MAX:
                doubt = doubt or f"{name} differs from itself by up to {times(band_of(test))}"
        found.append(Bar(what, BARS[cell], one.ratio, "x Kafka", one.band, doubt))
    return found


def _rows(outcome: SharedOutcome) -> list[list[str]]:
    rows = []
    for cell, brokers in outcome.blocks.items():
        one = against(outcome, cell)
        for name in outcome.plan.brokers:
            if not (blocks := brokers.get(name, [])):
                continue
            ratio_text = interval(one.ratio) if one and name == OURS else ""
            rows.append([BY_KEY[cell].title, name, *_numbers(blocks), ratio_text])
    return rows


def _numbers(blocks: Blocks) -> list[str]:
    def each_us(used_s: Callable[[SharedBlock], float]) -> list[float]:
        return [used_s(one) * 1e6 / one.block.requests for one in blocks]

    columns: list[list[float]] = [
        [one.block.requests_per_s for one in blocks],
        [one.block.percentile_us(50) for one in blocks],
        [one.block.percentile_us(99) for one in blocks],
        each_us(lambda one: one.leader_cpu_s),
        each_us(lambda one: one.follower_cpu_s),
    ]
    behind = [
        each_us(lambda one: one.meeting_cpu_s),
        [one.behind_s * 1e3 for one in blocks],
    ]
    both = interval(estimate([cpu_us(one) for one in blocks]))
    return [*map(_middle, columns), both, *map(_middle, behind)]


def _middle(values: list[float]) -> str:
    return number(statistics.median(values))


def tell(outcome: SharedOutcome) -> Told:
    every = [
        one
        for source in (outcome.blocks, outcome.again)
        for brokers in source.values()
        for blocks in brokers.values()
        for one in blocks
    ]
    remarks = [*outcome.faults, *noisy([one.block.guard.quiet for one in every])]
    for key in NULL_CELLS:
        for name in outcome.again.get(key, {}):
            test = null_test(outcome, key, name)
            if test.values and test.decides and not test.low <= 1 <= test.high:
                remarks.append(f"null test: {name} in {key} differs from itself, {test.median:.2f}")
    figures = [
        Figure(
            "CPU of leader and follower per request", cpu_us(one), "us",
            {"broker": one.block.broker, "cell": one.block.cell, "round": one.block.round,
             "quiet": one.block.guard.quiet},
        )
        for one in every
    ]  # fmt: skip
    plan = {**outcome.plan.__dict__, "versions": outcome.versions}
    values = [one.to_json() for one in every]
    return Told(plan, HEAD, _rows(outcome), bars(outcome), values, figures, remarks)
