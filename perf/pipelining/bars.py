"""What the experiment must show, each with its interval: ratios inside rounds (studies/verdict.py).

A bar "at least" is held as its inverse, so that every bar is a most. Pure functions of an Outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from perf.bars import Bar
from perf.pipelining.plan import (
    ALL,
    ALONE,
    KAFKA,
    LEADER,
    MIDDLE_US,
    PACED_IN_FLIGHT,
    PIPELINED,
    STOCK,
    Condition,
)
from perf.studies.measured import REQUEST, Metric
from perf.studies.study import Outcome
from perf.studies.verdict import compare
from perf.verdict import Verdict

SHORT_US, LONG_US = 100, 5000
NOT_SLOWER: Final = 0.97  # what "not slower" bears of a machine's noise


def throughput(one: Condition, other: Condition, outcome: Outcome) -> Verdict:
    """Megabytes a second of one by those of the other."""
    return _compared(one, other, outcome, lambda found: found.megabytes_per_s)


def p99(one: Condition, other: Condition, outcome: Outcome) -> Verdict:
    return _compared(one, other, outcome, lambda found: found.percentile_us(REQUEST, 99))


def cpu(one: Condition, other: Condition, outcome: Outcome) -> Verdict:
    """Of leader and follower for each record, which all have one size."""
    return _compared(
        one, other, outcome, lambda found: found.figures.get("brokers_cpu_us", math.nan)
    )


def _compared(one: Condition, other: Condition, outcome: Outcome, metric: Metric) -> Verdict:
    null = outcome.null_pairs(
        Condition("matrix", PIPELINED, MIDDLE_US, ALL, in_flight).key for in_flight in (5, 200)
    )
    return compare(outcome.of(one.key), outcome.of(other.key), metric, null=null)


class Row(NamedTuple):
    """A line of the table of bars."""

    what: str
    found: Verdict  # already the inverse where the bar is a least
    bar: float
    unit: str


def matrix(system: str, round_trip_us: int, mode: str, in_flight: int) -> Condition:
    return Condition("matrix", system, round_trip_us, mode, in_flight)


def paced(system: str, round_trip_us: int = MIDDLE_US) -> Condition:
    return Condition("paced", system, round_trip_us, ALL, PACED_IN_FLIGHT)


def java(system: str) -> Condition:
    return Condition("java", system, MIDDLE_US, ALL)


def bars(outcome: Outcome) -> list[Bar]:
    """Every bar of the experiment; one whose blocks were not asked for is "not measured"."""
    return [_bar(row) for row in _rows(outcome)]


def _bar(row: Row) -> Bar:
    ratio = row.found.ratio
    if not ratio.values:
        return Bar(row.what, row.bar, None, row.unit)
    doubt = "" if ratio.decides else row.found.reason
    return Bar(row.what, row.bar, ratio, row.unit, row.found.band, doubt)


def _rows(outcome: Outcome) -> Iterator[Row]:
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
    late = p99(paced(PIPELINED), paced(KAFKA), outcome)
    yield Row("p99 of acks=-1 at half of what Kafka does", late, 0.6, "x Kafka")
    for what, ours, theirs in (
        ("5 in flight", *(matrix(one, MIDDLE_US, ALL, 5) for one in (PIPELINED, KAFKA))),
        ("200 in flight", *(matrix(one, MIDDLE_US, ALL, 200) for one in (PIPELINED, KAFKA))),
        ("an equal rate", *(paced(one) for one in (PIPELINED, KAFKA))),
    ):
        name = f"CPU of leader and follower per MB, acks=-1, {what}"
        yield Row(name, cpu(ours, theirs, outcome), 0.5, "x Kafka")
    for mode in (LEADER, ALONE):
        for in_flight in (5, 200):
            ours, theirs = (matrix(one, MIDDLE_US, mode, in_flight) for one in (PIPELINED, STOCK))
            yield _least(outcome, ours, theirs, NOT_SLOWER)


def _least(outcome: Outcome, ours: Condition, theirs: Condition, least: float) -> Row:
    """That ours moves at least so many times what theirs does, as theirs over ours at most."""
    same = theirs.system == ours.system
    beside = f"its own {theirs.mode}" if same else {KAFKA: "Kafka", STOCK: "stock"}[theirs.system]
    work = "Java's defaults" if ours.section == "java" else f"{ours.in_flight} in flight"
    what = f"{beside} / pipelined, MB/s: {ours.round_trip_us} us, {ours.mode}, {work}"
    return Row(what, throughput(theirs, ours, outcome), 1 / least, f"(at least {least:g} times)")
