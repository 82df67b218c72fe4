"""The diagnosis told: document 000's figures 4 to 8 as numbers, in tables, words and records.

Pure functions of an Outcome. What the producer sees is of the measured load; what the broker says
of itself is of that one and of the one before, which warmed it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from kbroker._state import State
from perf.brokers.own_figures import LEGS
from perf.cells import MEGABYTE
from perf.pipelining.bars import matrix
from perf.pipelining.diagnosis import BROKER, LEG, STATE
from perf.pipelining.plan import (
    ALL,
    DIAGNOSED,
    LEADER,
    MIDDLE_US,
    Condition,
    Plan,
    conditions,
    title_of,
)
from perf.pipelining.shown import (
    LATE_HEAD,
    NOTHING,
    Table,
    cell,
    figure,
    late,
    median,
    megabytes,
    percentile,
    rare,
)
from perf.studies.conclusion import Conclusion, Figure
from perf.studies.measured import REQUEST, Measured
from perf.studies.study import Outcome

DIAGNOSIS: Final = "diagnosis"
SHARE_MIN: Final = 0.0005  # of a state that is shown
KEEPS_UP_MIN: Final = 0.98  # of what is produced
# Of a block's figures: the name and the unit of the record that says it.
RECORDS: Final = {
    "in_flight": ("requests in flight, reached", "requests"),
    "zero_windows": ("zero windows", "times"),
    "fetches_per_s": ("fetches of the follower", "1/s"),
    "fetch_bytes": ("a fetch of the follower", "B"),
    "fetched_mb_per_s": ("fetched by the follower", "MB/s"),
    **{
        f"{BROKER}{name}_us": (f"produce {name} by the broker's clock", "us")
        for name in ("p50", "p99", "p99.9")
    },
    **{f"{LEG}{leg}_us": (f"produce p50, {leg}, by the broker's clock", "us") for leg in LEGS},
    **{f"{STATE}{state.name}": (f"time in {state.name}", "of its time") for state in State},
}


def what_waits(outcome: Outcome, plan: Plan) -> Table:
    """What a producer feels of acks=-1, and what it costs."""
    at_us = MIDDLE_US if MIDDLE_US in plan.round_trips_us else plan.round_trips_us[0]
    rows = []
    for system in plan.systems:
        for in_flight in plan.in_flight:
            one = matrix(system, at_us, ALL, in_flight)
            rows.append(
                [
                    title_of(system),
                    f"{in_flight:,}",
                    cell(outcome, one, figure("in_flight"), 1),
                    *late(outcome, one),
                    cell(outcome, one, figure("zero_windows")),
                    cell(outcome, one, figure("leader_cpu_us"), 1),
                    cell(outcome, one, figure("follower_cpu_us"), 1),
                    cell(outcome, one, figure("behind_s"), 3),
                ]
            )
    head = [
        "", "in flight", "reached", *LATE_HEAD, "zero windows",
        "leader CPU us", "follower CPU us", "behind s",
    ]  # fmt: skip
    return f"What waits, acks=-1 at {at_us / 1000:g} ms, as the producer sees it", head, rows


def diagnosed(outcome: Outcome, plan: Plan) -> list[Table]:
    return [
        _clocks(outcome, plan),
        _legs(outcome, plan),
        _follower(outcome, plan),
        *_states(outcome, plan),
    ]


def diagnosis(system: str, mode: str, in_flight: int) -> Condition:
    return Condition(DIAGNOSIS, system, MIDDLE_US, mode, in_flight)


def _of(plan: Plan) -> Iterator[Condition]:
    return (one for one in conditions(plan) if one.section == DIAGNOSIS)


def _name(one: Condition) -> list[str]:
    return [title_of(one.system), one.mode, f"{one.in_flight:,}"]


def _clocks(outcome: Outcome, plan: Plan) -> Table:
    """The document's figures 4, 5, 7 and 8."""
    rows = []
    for one in _of(plan):
        by_broker = (
            cell(outcome, one, figure(f"{BROKER}{name}_us")) for name in ("p50", "p99", "p99.9")
        )
        by_client = (cell(outcome, one, percentile(percent)) for percent in (50, 99))
        clocks = zip(by_broker, (*by_client, rare(outcome, one, 99.9)), strict=True)
        rows.append(
            [
                *_name(one),
                *(f"{broker} / {client}" for broker, client in clocks),
                cell(outcome, one, figure("in_flight"), 1),
                cell(outcome, one, figure("zero_windows")),
            ]
        )
    head = ["", "", "in flight", "p50 us", "p99 us", "p99.9 us", "reached", "zero windows"]
    return f"By the broker's clock / by the producer's, {MIDDLE_US / 1000:g} ms", head, rows


def _legs(outcome: Outcome, plan: Plan) -> Table:
    """Where the time of one acknowledged produce goes: before the leader has read it, and in it."""
    rows = []
    for one in _of(plan):
        rows.append(
            [
                *_name(one),
                cell(outcome, one, _before_it_is_read),
                *(cell(outcome, one, figure(f"{LEG}{leg}_us")) for leg in LEGS),
            ]
        )
    head = ["", "", "in flight", "before it is read", *LEGS]
    return f"One produce, leg by leg: medians in us, {MIDDLE_US / 1000:g} ms", head, rows


def _before_it_is_read(block: Measured) -> float:
    """What the broker's clock does not see: the socket, and the client's own work."""
    by_broker = block.figures.get(f"{BROKER}p50_us")
    return math.nan if by_broker is None else max(0.0, block.percentile_us(REQUEST, 50) - by_broker)


def _follower(outcome: Outcome, plan: Plan) -> Table:
    """The document's figure 6: whether the follower keeps up, and by how large fetches."""
    rows = []
    for one in _of(plan):
        fetch_kb = median(outcome, one, lambda block: block.figures.get("fetch_bytes", math.nan))
        rows.append(
            [
                *_name(one),
                megabytes(outcome, one),
                cell(outcome, one, figure("fetched_mb_per_s"), 1),
                cell(outcome, one, lambda block: block.requests_per_s),
                cell(outcome, one, figure("fetches_per_s")),
                NOTHING if fetch_kb is None else f"{fetch_kb / 1e3:,.0f}",
            ]
        )
    head = [
        "", "", "in flight", "produced MB/s", "fetched MB/s", "produces/s", "fetches/s",
        "KB of a fetch",
    ]  # fmt: skip
    return "What the follower fetches beside it", head, rows


def _states(outcome: Outcome, plan: Plan) -> Iterator[Table]:
    """Where the producers' channels are, of those that say so."""
    rows = []
    for one in _of(plan):
        shares = (
            (median(outcome, one, figure(f"{STATE}{state.name}")) or 0.0, state.name)
            for state in State
        )
        said = [f"{name} {share:.1%}" for share, name in sorted(shares)[::-1] if share >= SHARE_MIN]
        if said:
            rows.append([*_name(one), "; ".join(said)])
    if rows:
        yield "Where the time of the producer's channel goes", ["", "", "in flight", "states"], rows


def in_words(outcome: Outcome, plan: Plan) -> Iterator[Conclusion]:
    """Who waits for whom, of each system that was looked at."""
    if DIAGNOSIS not in plan.sections:
        return
    for system in plan.systems:
        for mode, in_flight in DIAGNOSED:
            one = diagnosis(system, mode, in_flight)
            said = _of_follower(outcome, one) if mode == LEADER else _of_clocks(outcome, one)
            if said is not None:
                yield said


def _quiet(outcome: Outcome, one: Condition) -> bool:
    """Whether nothing ran beside any of its blocks."""
    return all(block.quiet for block in outcome.of(one.key).values())


def _of_clocks(outcome: Outcome, one: Condition) -> Conclusion | None:
    broker_us = median(outcome, one, figure(f"{BROKER}p50_us"))
    client_us = median(outcome, one, percentile(50))
    zero_windows = median(outcome, one, figure("zero_windows"))
    if broker_us is None or not client_us or zero_windows is None:
        return None
    inside = min(broker_us / client_us, 1.0)
    return Conclusion(
        f"acks=-1, {one.in_flight} in flight, {title_of(one.system)}: where does a produce wait?",
        f"by the broker's clock it takes {broker_us:,.0f} us, by the producer's {client_us:,.0f}"
        f" at the median: {inside:.0%} of it in the broker, the rest before the broker reads it;"
        f" {zero_windows:,.0f} zero windows",
        _quiet(outcome, one),
        {"broker_p50_us": broker_us, "client_p50_us": client_us, "zero_windows": zero_windows},
        one.dims,
    )


def _of_follower(outcome: Outcome, one: Condition) -> Conclusion | None:
    produced = median(outcome, one, lambda block: block.megabytes_per_s)
    fetched = median(outcome, one, figure("fetched_mb_per_s"))
    size = median(outcome, one, figure("fetch_bytes"))
    if produced is None or fetched is None or size is None:
        return None
    said = "yes" if fetched >= KEEPS_UP_MIN * produced else "no"
    return Conclusion(
        f"{one.mode}, {one.in_flight} in flight, {title_of(one.system)}: the follower keeps up?",
        f"{said}: {produced:,.1f} MB/s are produced and {fetched:,.1f} fetched,"
        f" {size / MEGABYTE:,.2f} MB at a time",
        _quiet(outcome, one),
        {"produced_mb_per_s": produced, "fetched_mb_per_s": fetched, "fetch_bytes": size},
        one.dims,
    )


def records(outcome: Outcome) -> Iterable[Figure]:
    """What blocks say beside their counts and times, where replicas are waited for or diagnosed."""
    drawn = [one for one in outcome.points if one.dims["acks"] == -1 or DIAGNOSIS in one.key]
    for point in drawn:
        for number, block in sorted(outcome.of(point.key).items()):
            for name, (said, unit) in RECORDS.items():
                if name in block.figures:
                    about = {**point.dims, "round": number}
                    yield Figure(said, block.figures[name], unit, about)
