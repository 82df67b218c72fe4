"""Blocks of perf.cluster.shared_load as a table, bars and JSON. Pure functions of an outcome."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from perf.cluster.shared_load import BY_KEY, NULL_CELLS, SharedBlock, SharedOutcome
from perf.judge import Bar, Together, band_of, ratio_bar, side, times, together
from perf.measurement import OURS, Figure, Measurement, beside_kafka, noisy
from perf.stats import estimate
from perf.tables import interval, number

BARS: Final = {"s-1k-4x5": 0.4, "s-1k-4000": 0.4, "s-10k-4x5": 0.5, "s-10k-2000": 0.5}
NULL_BAND_MAX: Final = 1.2
HEAD: Final = (
    "cell", "broker", "req/s", "p50 us", "p99 us", "leader us", "follower us", "CPU us",
    "meeting us", "lag ms", "CPU x Kafka",
)  # fmt: skip

Blocks = Sequence[SharedBlock]


def cpu_us(one: SharedBlock) -> float:
    return one.block.cpu_us_per_request


def against(outcome: SharedOutcome, cell: str) -> Together:
    """CPU of both brokers of a cluster, kbroker's and Apache Kafka's."""
    every = [one for blocks in outcome.blocks.get(cell, {}).values() for one in blocks]
    return beside_kafka(every, cpu_us)


def null_test(outcome: SharedOutcome, cell: str, broker: str) -> Together:
    """A cluster by itself, two blocks in a row."""
    runs = (outcome.blocks, outcome.again)
    return together(*(side(each.get(cell, {}).get(broker, []), cpu_us) for each in runs))


def _null_tests(outcome: SharedOutcome, cell: str) -> dict[str, Together]:
    """Those of a cell: its own, or of its kind of load, at a fixed rate or not."""
    alike = [key for key in NULL_CELLS if bool(BY_KEY[key].rate) == bool(BY_KEY[cell].rate)]
    keys = [cell] if cell in NULL_CELLS else alike
    return {
        f"{broker} in {key}": null_test(outcome, key, broker)
        for key in keys
        for broker in outcome.again.get(key, {})
    }


def bars(outcome: SharedOutcome) -> list[Bar]:
    return [_bar(outcome, cell) for cell in outcome.plan.cells]


def _bar(outcome: SharedOutcome, cell: str) -> Bar:
    tests = _null_tests(outcome, cell)
    bands = {name: band_of(test.ratio) for name, test in tests.items()}
    wide = [name for name, band in bands.items() if band > NULL_BAND_MAX]
    doubt = f"{wide[0]} differs from itself by up to {times(bands[wide[0]])}" if wide else ""
    what = f"CPU of leader and follower per request, {BY_KEY[cell].title}"
    found = against(outcome, cell)
    return ratio_bar(what, BARS[cell], "x Kafka", found, tests.values(), doubt=doubt)


def _rows(outcome: SharedOutcome) -> list[list[str]]:
    rows = []
    for cell, brokers in outcome.blocks.items():
        one = against(outcome, cell).ratio
        for name in outcome.plan.brokers:
            if not (blocks := brokers.get(name, [])):
                continue
            ratio_text = interval(one) if one.values and name == OURS else ""
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
    rest = [
        each_us(lambda one: one.meeting_cpu_s),
        [one.behind_s * 1e3 for one in blocks],
    ]
    both = interval(estimate([cpu_us(one) for one in blocks]))
    return [*map(_middle, columns), both, *map(_middle, rest)]


def _middle(values: list[float]) -> str:
    return number(statistics.median(values))


def report(outcome: SharedOutcome) -> Measurement:
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
            test = null_test(outcome, key, name).ratio
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
    return Measurement(plan, HEAD, _rows(outcome), bars(outcome), values, figures, remarks)
