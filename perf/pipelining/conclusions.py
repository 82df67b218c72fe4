"""The experiment in words: conclusions, every bar that was measured, and figures as records.

Pure functions of an Outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kbroker._state import State
from perf.brokers.own_figures import LEGS
from perf.cells import MEGABYTE
from perf.judge import FAILED, NOT_MEASURED, PASSED, times
from perf.measurement import Figure
from perf.pipelining.bars import java, java_p99, judged, killed, matrix, throughput, void_runs
from perf.pipelining.diagnosis import BROKER, LEG, STATE
from perf.pipelining.plan import (
    ALL,
    DIAGNOSED,
    KAFKA,
    KILLED_IN_FLIGHT,
    LEADER,
    MIDDLE_US,
    PIPELINED,
    STOCK,
    Condition,
    Plan,
    conditions,
    title_of,
)
from perf.pipelining.tables import figure, median, percentile
from perf.studies.conclusion import Conclusion, from_verdicts
from perf.studies.study import Outcome
from perf.tables import bar_json, one_line

DIAGNOSIS: Final = "diagnosis"
FAULT_CHARS_MAX: Final = 1000  # of a fault that a file says
KEEPS_UP_MIN: Final = 0.98  # of the records produced
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


def conclusions(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """What is said in words, and every bar that was measured: the verdict rows of the results."""
    return [*in_words(outcome, plan), *_of_bars(outcome)]


def in_words(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """Those that are printed; the bars have a table."""
    return [
        *_of_matrix(outcome, plan),
        *_of_diagnosis(outcome, plan),
        *_of_java(outcome, plan),
        *_of_killed(outcome, plan),
    ]


def _of_bars(outcome: Outcome) -> Iterable[Conclusion]:
    """Met, missed or undecided; nothing for a bar that was not asked for."""
    for about, bar in judged(outcome):
        verdict = {PASSED: "met", FAILED: "missed"}.get(bar.verdict, "undecided")
        if bar.value is None or bar.verdict == NOT_MEASURED:
            continue
        why = f": {bar.verdict}" if verdict == "undecided" else ""
        yield Conclusion(
            f"{bar.what}: at most {times(bar.bar)}?",
            f"{verdict}, {bar.value.text(times)}{why}",
            verdict != "undecided",
            {**bar_json(bar), "outcome": verdict},
            about.dims,
        )


def _of_java(outcome: Outcome, plan: Plan) -> Iterable[Conclusion]:
    if "java" not in plan.sections or PIPELINED not in plan.systems:
        return
    ours = java(PIPELINED)
    verdicts = {}
    asked_for = conditions(plan)
    for system, name in ((KAFKA, "Apache Kafka's"), (STOCK, "stock's")):
        if java(system) in asked_for:
            verdicts[f"MB/s by {name}"] = throughput(ours, java(system), outcome)
            verdicts[f"p99 by {name}"] = java_p99(ours, java(system), outcome)
    if verdicts:
        question = (
            f"Java's producer with its defaults at {MIDDLE_US / 1000:g} ms: what does the pipelined"
            " channel change?"
        )
        yield from_verdicts(question, verdicts, ours.dims)


def _of_killed(outcome: Outcome, plan: Plan) -> Iterable[Conclusion]:
    if "killed" not in plan.sections:
        return
    for system in plan.systems:
        for in_flight in KILLED_IN_FLIGHT:
            one = killed(system, in_flight)
            whole, void = len(outcome.of(one.key)), void_runs(outcome, one)
            if not whole and not void:
                continue
            acknowledged = sum(block.records for block in outcome.of(one.key).values())
            stood_s = median(outcome, one, figure("stood_still_s"))
            answer = (
                f"not proved: {len(void)} of {whole + len(void)} runs void"
                if void
                else f"no: each of {acknowledged:,} records once, in order, on both replicas"
            )
            yield Conclusion(
                f"The follower killed, {title_of(system)}, {in_flight} in flight: is anything lost,"
                " doubled or out of order?",
                answer,
                not void,
                {
                    "runs": whole + len(void),
                    "void": [one_line(fault, FAULT_CHARS_MAX) for fault in void],
                    "records": acknowledged,
                    "stood_still_s": stood_s,
                },
                one.dims,
            )


def _of_matrix(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """Pipelining against each other system, for each round trip and number in flight."""
    if "matrix" not in plan.sections or PIPELINED not in plan.systems or plan.bars_alone:
        return []
    found = []
    for round_trip_us in plan.round_trips_us:
        for in_flight in plan.in_flight:
            ours = matrix(PIPELINED, round_trip_us, ALL, in_flight)
            others = {
                name: theirs
                for name, theirs in (
                    ("Apache Kafka's", matrix(KAFKA, round_trip_us, ALL, in_flight)),
                    ("stock's", matrix(STOCK, round_trip_us, ALL, in_flight)),
                    ("its own with acks=1", matrix(PIPELINED, round_trip_us, LEADER, in_flight)),
                )
                if theirs.system in plan.systems
            }
            found.append(
                from_verdicts(
                    f"acks=-1 at {round_trip_us / 1000:g} ms, {in_flight:,} in flight: what does"
                    " the pipelined channel move?",
                    {
                        f"MB/s by {name}": throughput(ours, theirs, outcome)
                        for name, theirs in others.items()
                    },
                    ours.dims,
                )
            )
    return found


def _of_diagnosis(outcome: Outcome, plan: Plan) -> Iterator[Conclusion]:
    """The waits in each system that was measured."""
    if DIAGNOSIS not in plan.sections:
        return
    for system in plan.systems:
        for mode, in_flight in DIAGNOSED:
            one = Condition(DIAGNOSIS, system, MIDDLE_US, mode, in_flight)
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
