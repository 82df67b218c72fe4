"""The experiment's tables, for a terminal and for docs/pipelining.md. Pure functions of an Outcome.

A table is a list of conditions and a list of columns; a cell is the median over the rounds. A
percentile that few requests of one block lie above is of all rounds together, or is not given. Of
the diagnosis (document 000's figures 4 to 8) what the producer sees is of the measured load; what
the broker says of itself is of that one and of the one before, which warmed it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kbroker._state import State
from perf.brokers.own_figures import LEGS
from perf.histogram import Histogram
from perf.pipelining.bars import FIGURE_MAX, matrix, requests_timed
from perf.pipelining.diagnosis import BROKER, LEG, STATE
from perf.pipelining.plan import (
    ABOVE_MIN,
    ALL,
    BATCH_RECORDS,
    LEADER,
    MIDDLE_US,
    MODES,
    PRODUCERS,
    RECORD_BYTES,
    Condition,
    Plan,
    Section,
    conditions,
    title_of,
    with_slots,
)
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome
from perf.tables import NOTHING, Table

SHARE_MIN: Final = 0.0005  # of a state that is in the table
MIDDLE: Final = f"{MIDDLE_US / 1000:g} ms"

Show = Callable[[Measured], float]
Column = tuple[str, Callable[[Outcome, Condition], str]]


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


def percentile(percent: float) -> Show:
    return lambda one: one.percentile_us(REQUEST, percent)


def figure(name: str) -> Show:
    return lambda one: one.figures.get(name, math.nan)


# Columns.


def _number(head: str, show: Show, digits: int = 0) -> Column:
    return head, lambda outcome, one: cell(outcome, one, show, digits)


def _figure(head: str, name: str, digits: int = 0) -> Column:
    return _number(head, figure(name), digits)


def _rare(percent: float, outcome: Outcome, condition: Condition) -> str:
    """A percentile of all rounds together, where enough requests lie above it."""
    blocks = outcome.of(condition.key).values()
    every = Histogram.merge(one.histograms[REQUEST] for one in blocks if REQUEST in one.histograms)
    if every.total * (100 - percent) < 100 * ABOVE_MIN:
        return NOTHING
    return f"{every.percentile(percent) / 1e3:,.0f}"


def _timed(outcome: Outcome, condition: Condition) -> str:
    timed = requests_timed(outcome, condition)
    return f"{timed:,}" if timed else NOTHING


def _two_clocks(name: str, percent: float) -> Column:
    """A percentile by the broker's clock and by the producer's."""

    def both(outcome: Outcome, one: Condition) -> str:
        client = (
            _rare(percent, outcome, one)
            if percent > 99
            else cell(outcome, one, percentile(percent))
        )
        return f"{cell(outcome, one, figure(f'{BROKER}{name}_us'))} / {client}"

    return f"{name} us", both


def _before_it_is_read(block: Measured) -> float:
    """What the broker's clock does not see: the socket, and the client's own work."""
    by_broker = block.figures.get(f"{BROKER}p50_us")
    return math.nan if by_broker is None else max(0.0, block.percentile_us(REQUEST, 50) - by_broker)


SYSTEM: Final[Column] = ("", lambda _outcome, one: title_of(one.system))
MODE: Final[Column] = ("", lambda _outcome, one: one.mode)
IN_FLIGHT: Final[Column] = ("in flight", lambda _outcome, one: f"{one.in_flight:,}")
REACHED: Final = _figure("reached", "in_flight", 1)
ZERO_WINDOWS: Final = _figure("zero windows", "zero_windows")
LATE: Final[tuple[Column, ...]] = (
    _number("p50 us", percentile(50)),
    _number("p99 us", percentile(99)),
    ("n of a block", _timed),
    ("p99.9 us", partial(_rare, 99.9)),
)
CPU: Final = (
    _figure("leader CPU us", "leader_cpu_us", 1), _figure("follower CPU us", "follower_cpu_us", 1),
)  # fmt: skip


def _table(
    title: str, outcome: Outcome, every: Iterable[Condition], columns: Sequence[Column]
) -> Table:
    rows = [[show(outcome, one) for _, show in columns] for one in every]
    return Table(title, [head for head, _ in columns], rows)


def _of(plan: Plan, section: Section) -> Iterator[Condition]:
    return (one for one in conditions(plan) if one.section == section)


# Tables.


def tables(outcome: Outcome, plan: Plan) -> list[Table]:
    """Those of each section that was measured."""
    made: dict[str, Callable[[Outcome, Plan], Iterable[Table]]] = {
        "matrix": _matrix,
        "diagnosis": _diagnosis,
        "batches": _batches,
        "producers": _producers,
        "paced": _paced,
        "java": _java,
        "slots": _slots,
        "killed": _killed,
    }
    # Of the matrix the bars need single cells; a table of them would be full of holes.
    sections = [one for one in plan.sections if one != "matrix" or not plan.bars_alone]
    return [table for section in sections for table in made[section](outcome, plan)]


def _matrix(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    """The document's table, one for each round trip; then what a producer feels of acks=-1."""
    for round_trip_us in plan.round_trips_us:
        rows = [
            [
                title_of(system),
                mode,
                *(
                    megabytes(outcome, matrix(system, round_trip_us, mode, in_flight))
                    for in_flight in plan.in_flight
                ),
            ]
            for system in plan.systems
            for mode in MODES
        ]
        head = ["MB/s", "", *(f"{number:,} in flight" for number in plan.in_flight)]
        yield Table(f"{round_trip_us / 1000:g} ms between leader and follower", head, rows)
    at_us = MIDDLE_US if MIDDLE_US in plan.round_trips_us else plan.round_trips_us[0]
    yield _table(
        f"What waits, acks=-1 at {at_us / 1000:g} ms, as the producer sees it",
        outcome,
        [
            matrix(system, at_us, ALL, number)
            for system in plan.systems
            for number in plan.in_flight
        ],
        (SYSTEM, IN_FLIGHT, REACHED, *LATE, ZERO_WINDOWS, *CPU, _figure("lag s", "behind_s", 3)),
    )


def _batches(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    head = [f"{n * RECORD_BYTES >> 10:,} KB" for n in BATCH_RECORDS]
    title = f"Larger batches, 5 in flight, {MIDDLE}"
    yield Table(title, ["MB/s", "", *head], _by_system(outcome, plan, "batches"))


def _producers(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    title = f"More producers, each 5 in flight, {MIDDLE}"
    head = ["MB/s", "", *map(str, PRODUCERS)]
    yield Table(title, head, _by_system(outcome, plan, "producers"))


def _by_system(outcome: Outcome, plan: Plan, section: Section) -> list[Sequence[str]]:
    """A row for each system and mode, its cells in the plan's order."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in _of(plan, section):
        rows.setdefault((one.system, one.mode), []).append(megabytes(outcome, one))
    return [
        [title_of(system), mode, *cells]
        for (system, mode), cells in sorted(
            rows.items(), key=lambda row: (plan.systems.index(row[0][0]), row[0][1])
        )
    ]


def _paced(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    beside = "" if plan.with_kafka else ", since Apache Kafka is not in this study"
    title = f"acks=-1 at half of the most that {title_of(plan.paced_by)} does{beside}"
    apart: Column = ("apart", lambda _outcome, one: f"{one.round_trip_us / 1000:g} ms")
    columns = (apart, SYSTEM, _figure("requests/s", "rate"), *LATE, *CPU)
    yield _table(title, outcome, _of(plan, "paced"), columns)


def _java(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    def p99_ms(block: Measured) -> float:
        return block.figures.get("p99_us", math.nan) / 1e3

    columns = (SYSTEM, ("MB/s", megabytes), _number("p99 ms, in its own queue too", p99_ms))
    title = f"The Java producer with its defaults, {MIDDLE}"
    yield _table(title, outcome, _of(plan, "java"), columns)


def _slots(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    every = {(one.mode, one.system): one for one in _of(plan, "slots")}
    rows = [
        [mode, *(megabytes(outcome, every[mode, with_slots(number)]) for number in plan.slots)]
        for mode in (ALL, LEADER)
    ]
    at_ms = max(plan.round_trips_us) / 1000
    title = f"channel.pipelining.max.requests, 2,000 in flight, {at_ms:g} ms"
    yield Table(title, ["MB/s", *(f"{number:,}" for number in plan.slots)], rows)


def _killed(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    """In each block that counts both replicas have every acknowledged record once, in order."""

    def work(_outcome: Outcome, one: Condition) -> str:
        return f"{one.in_flight} in flight" + (", idempotent" if one.in_flight <= 5 else "")

    columns = (
        SYSTEM, ("", work), _number("records acknowledged", lambda block: float(block.records)),
        _figure("pause s", "stood_still_s", 1),
    )  # fmt: skip
    title = "The follower killed in the middle: every record there once, in order, on both"
    yield _table(title, outcome, _of(plan, "killed"), columns)


def _diagnosis(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    """The document's figures 4, 5, 7 and 8; where the time of a produce goes; figure 6, whether
    the follower keeps up and by how large fetches; and where the producers' channels are."""
    every = list(_of(plan, "diagnosis"))
    name = (SYSTEM, MODE, IN_FLIGHT)
    clocks = (_two_clocks("p50", 50), _two_clocks("p99", 99), _two_clocks("p99.9", 99.9))
    yield _table(
        f"By the broker's clock / by the producer's, {MIDDLE}",
        outcome, every, (*name, *clocks, REACHED, ZERO_WINDOWS),
    )  # fmt: skip
    legs = (_figure(leg, f"{LEG}{leg}_us") for leg in LEGS)
    yield _table(
        f"One produce, leg by leg: medians in us, {MIDDLE}",
        outcome, every, (*name, _number("before it is read", _before_it_is_read), *legs),
    )  # fmt: skip
    fetched = (
        ("produced MB/s", megabytes),
        _figure("fetched MB/s", "fetched_mb_per_s", 1),
        _number("produces/s", lambda block: block.requests_per_s),
        _figure("fetches/s", "fetches_per_s"),
        _number("KB of a fetch", lambda block: block.figures.get("fetch_bytes", math.nan) / 1e3),
    )
    yield _table("What the follower fetches beside it", outcome, every, (*name, *fetched))
    in_states = [one for one in every if _states(outcome, one)]
    if in_states:
        title = "Where the time of the producer's channel goes"
        yield _table(title, outcome, in_states, (*name, ("states", _states)))


def _states(outcome: Outcome, one: Condition) -> str:
    """Of those that say so, the largest share first."""
    shares = (
        (median(outcome, one, figure(f"{STATE}{state.name}")) or 0.0, state.name) for state in State
    )
    return "; ".join(
        f"{name} {share:.1%}" for share, name in sorted(shares)[::-1] if share >= SHARE_MIN
    )
