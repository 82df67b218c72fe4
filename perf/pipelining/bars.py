"""What the experiment must show, each with its interval: ratios inside rounds (perf.judge).

A bar "at least" is held as its inverse, so that every bar is a most. The follower that is killed is
a proof and no figure: its runs are counted, and the bar is that none of them failed. Pure functions
of an Outcome, which may come from a file: numbers that no machine has are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from perf.judge import Bar, Together, Verdict, judge, ratio_bar
from perf.pipelining.plan import (
    ALL,
    ALONE,
    KAFKA,
    LEADER,
    LONG_US,
    MIDDLE_US,
    P99_REQUESTS_MIN,
    PACED_IN_FLIGHT,
    PIPELINED,
    SHORT_US,
    STOCK,
    Condition,
)
from perf.stats import Estimate
from perf.studies.measured import REQUEST, Measured, Metric
from perf.studies.study import Outcome
from perf.studies.verdict import of_null, of_rounds

NOT_SLOWER: Final = 0.97  # what "not slower" bears of a machine's noise
FIGURE_MIN, FIGURE_MAX = 1e-9, 1e15  # of anything that a block may say
COUNTED: Final = 1.0  # the confidence of a count, which is no sample


def _megabytes(found: Measured) -> float:
    return found.megabytes_per_s


def _p99(found: Measured) -> float:
    return found.percentile_us(REQUEST, 99)


def _cpu(found: Measured) -> float:
    """Of leader and follower for each record, which all have one size."""
    return found.figures.get("brokers_cpu_us", math.nan)


def _java_p99(found: Measured) -> float:
    """As the Java producer says it, in its own queue too."""
    return found.figures.get("p99_us", math.nan)


def throughput(one: Condition, other: Condition, outcome: Outcome) -> Verdict:
    """Megabytes a second of one by those of the other."""
    found, null = _beside(one, other, outcome, _megabytes)
    return judge(found, [null])


def java_p99(one: Condition, other: Condition, outcome: Outcome) -> Verdict:
    found, null = _beside(one, other, outcome, _java_p99)
    return judge(found, [null])


def _possible(metric: Metric, found: Measured) -> float:
    value = metric(found)
    return value if FIGURE_MIN <= value <= FIGURE_MAX else math.nan


def _beside(
    one: Condition, other: Condition, outcome: Outcome, metric: Metric
) -> tuple[Together, Together]:
    """The rounds that both have, and the null test."""
    null = outcome.null_pairs(
        Condition("matrix", PIPELINED, MIDDLE_US, ALL, in_flight).key for in_flight in (5, 200)
    )
    possible = partial(_possible, metric)
    found = of_rounds(outcome.of(one.key), outcome.of(other.key), possible)
    return found, of_null(null, possible)


class Judged(NamedTuple):
    """A bar, and the cell of the pipelined channel that it is about."""

    about: Condition
    bar: Bar


def matrix(system: str, round_trip_us: int, mode: str, in_flight: int) -> Condition:
    return Condition("matrix", system, round_trip_us, mode, in_flight)


def paced(system: str, round_trip_us: int = MIDDLE_US) -> Condition:
    return Condition("paced", system, round_trip_us, ALL, PACED_IN_FLIGHT)


def java(system: str) -> Condition:
    return Condition("java", system, MIDDLE_US, ALL)


def killed(system: str, in_flight: int) -> Condition:
    return Condition("killed", system, MIDDLE_US, ALL, in_flight)


def void_runs(outcome: Outcome, one: Condition) -> list[str]:
    """What the faults say of a cell's blocks."""
    begins = f"{one.key}, round "
    return [fault for fault in outcome.faults if fault.startswith(begins)]


def requests_timed(outcome: Outcome, *cells: Condition) -> int:
    """How many values a percentile of one block of these cells has: the fewest; 0 without any."""
    blocks = [one.histograms for cell in cells for one in outcome.of(cell.key).values()]
    return min((one[REQUEST].total for one in blocks if REQUEST in one), default=0)


def bars(outcome: Outcome) -> list[Bar]:
    """Every bar of the experiment; one whose blocks were not asked for is "not measured"."""
    return [found.bar for found in judged(outcome)]


def judged(outcome: Outcome) -> Iterator[Judged]:
    """The same, each with its condition."""
    for in_flight, of_kafka, of_stock in ((5, 3.5, 2.5), (200, 7.0, 5.0)):
        ours = matrix(PIPELINED, MIDDLE_US, ALL, in_flight)
        for system, least in ((KAFKA, of_kafka), (STOCK, of_stock)):
            yield _least(outcome, ours, matrix(system, MIDDLE_US, ALL, in_flight), least)
    for round_trip_us, least in ((MIDDLE_US, 0.95), (LONG_US, 0.9)):
        ours = matrix(PIPELINED, round_trip_us, ALL, 200)
        yield _least(outcome, ours, matrix(PIPELINED, round_trip_us, LEADER, 200), least)
    for in_flight in (5, 200):
        ours = matrix(PIPELINED, SHORT_US, ALL, in_flight)
        yield _least(outcome, ours, matrix(KAFKA, SHORT_US, ALL, in_flight), 2.0)
    yield _least(outcome, java(PIPELINED), java(KAFKA), 2.0)
    yield _late(outcome)
    for load, (ours, theirs) in (
        ("5 in flight", [matrix(one, MIDDLE_US, ALL, 5) for one in (PIPELINED, KAFKA)]),
        ("200 in flight", [matrix(one, MIDDLE_US, ALL, 200) for one in (PIPELINED, KAFKA)]),
        ("an equal rate", [paced(one) for one in (PIPELINED, KAFKA)]),
    ):
        name = f"CPU of leader and follower per MB, acks=-1, {load}"
        yield Judged(ours, _bar(outcome, name, 0.5, "x Kafka", _cpu, ours, theirs))
    for mode in (LEADER, ALONE):
        for in_flight in (5, 200):
            ours, theirs = (matrix(one, MIDDLE_US, mode, in_flight) for one in (PIPELINED, STOCK))
            yield _least(outcome, ours, theirs, NOT_SLOWER)
    for in_flight in (5, 200):
        yield _proved(outcome, killed(PIPELINED, in_flight))


def _least(outcome: Outcome, ours: Condition, theirs: Condition, least: float) -> Judged:
    """That ours moves at least so many times what theirs does, as theirs over ours at most."""
    same = theirs.system == ours.system
    beside = f"its own {theirs.mode}" if same else {KAFKA: "Kafka", STOCK: "stock"}[theirs.system]
    work = "Java's defaults" if ours.section == "java" else f"{ours.in_flight} in flight"
    what = f"{beside} / pipelined, MB/s: {ours.round_trip_us} us, {ours.mode}, {work}"
    unit = f"(at least {least:g} times)"
    return Judged(ours, _bar(outcome, what, 1 / least, unit, _megabytes, theirs, ours))


def _late(outcome: Outcome) -> Judged:
    """p99 at an equal rate, and of how many requests the smallest block had it."""
    ours, theirs = paced(PIPELINED), paced(KAFKA)
    timed = requests_timed(outcome, ours, theirs)
    few = f"p99 of {timed:,} requests, {P99_REQUESTS_MIN:,} needed"
    unit = f"x Kafka, n={timed:,}" if timed else "x Kafka"
    what = "p99 of acks=-1 at half of Kafka's rate"
    found = _bar(outcome, what, 0.6, unit, _p99, ours, theirs)
    if found.value is not None and not found.doubt and timed < P99_REQUESTS_MIN:
        found = replace(found, doubt=few)
    return Judged(ours, found)


def _bar(
    outcome: Outcome,
    what: str,
    bar: float,
    unit: str,
    metric: Metric,
    over: Condition,
    under: Condition,
) -> Bar:
    """The bar that `over` has at most so many times the figure of `under`."""
    found, null = _beside(over, under, outcome, metric)
    return ratio_bar(what, bar, unit, found, [null])


def _proved(outcome: Outcome, one: Condition) -> Judged:
    """That no run with a killed follower is void: the checks of a run are its whole result."""
    what = f"runs with a killed follower, {one.in_flight} in flight: lost, doubled, reordered, cut"
    whole, void = len(outcome.of(one.key)), len(void_runs(outcome, one))
    runs, failed = whole + void, float(void)
    values = (0.0,) * whole + (1.0,) * void
    value = Estimate(failed, failed, failed, values, COUNTED) if runs else None
    return Judged(one, Bar(what, 0.0, value, f"of {runs}" if runs else "runs"))
