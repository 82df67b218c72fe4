"""The experiment told: tables for a terminal and for docs/pipelining.md, conclusions, JSON.

Pure functions of an Outcome; how one cell is shown is `shown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from perf.judge import FAILED, NOT_MEASURED, PASSED, times
from perf.pipelining.bars import (
    bars,
    java,
    java_p99,
    judged,
    killed,
    matrix,
    throughput,
    void_runs,
)
from perf.pipelining.plan import (
    ALL,
    BATCH_RECORDS,
    KAFKA,
    KILLED_IN_FLIGHT,
    LEADER,
    MIDDLE_US,
    MODES,
    PIPELINED,
    PRODUCERS,
    RECORD_BYTES,
    STOCK,
    STUDY,
    Plan,
    Section,
    conditions,
    title_of,
    with_slots,
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
    one_line,
)
from perf.pipelining.told_diagnosis import diagnosed, in_words, what_waits
from perf.report import bar_json, bar_table, table
from perf.studies.conclusion import Conclusion, from_verdicts
from perf.studies.study import Outcome

FAULT_CHARS_MAX: Final = 1000  # of a fault that a file says


def tables(outcome: Outcome, plan: Plan) -> list[Table]:
    """One for each section that was measured, and the diagnosis."""
    made: dict[str, Callable[[], Iterable[Table]]] = {
        "matrix": lambda: [*_matrix(outcome, plan), what_waits(outcome, plan)],
        "diagnosis": lambda: diagnosed(outcome, plan),
        "batches": lambda: [_batches(outcome, plan)],
        "producers": lambda: [_producers(outcome, plan)],
        "paced": lambda: [_paced(outcome, plan)],
        "java": lambda: [_java(outcome, plan)],
        "slots": lambda: [_slots(outcome, plan)],
        "killed": lambda: [_killed(outcome, plan)],
    }
    # Of the matrix the bars need single cells; a table of them would be full of holes.
    shown = [one for one in plan.sections if one != "matrix" or not plan.bars_alone]
    return [one for section in shown for one in made[section]()]


def _matrix(outcome: Outcome, plan: Plan) -> Iterable[Table]:
    """The document's table, one for each round trip."""
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
        yield f"{round_trip_us / 1000:g} ms between leader and follower", head, rows


def _batches(outcome: Outcome, plan: Plan) -> Table:
    head = [f"{n * RECORD_BYTES >> 10:,} KB" for n in BATCH_RECORDS]
    return (
        f"Larger batches, 5 in flight, {MIDDLE_US / 1000:g} ms",
        ["MB/s", "", *head],
        _by_system(outcome, plan, "batches"),
    )


def _producers(outcome: Outcome, plan: Plan) -> Table:
    return (
        f"More producers, each 5 in flight, {MIDDLE_US / 1000:g} ms",
        ["MB/s", "", *map(str, PRODUCERS)],
        _by_system(outcome, plan, "producers"),
    )


def _by_system(outcome: Outcome, plan: Plan, section: Section) -> list[Sequence[str]]:
    """A row for each system and mode, its cells in the plan's order."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in conditions(plan):
        if one.section == section:
            rows.setdefault((one.system, one.mode), []).append(megabytes(outcome, one))
    return [
        [title_of(system), mode, *cells]
        for (system, mode), cells in sorted(
            rows.items(), key=lambda row: (plan.systems.index(row[0][0]), row[0][1])
        )
    ]


def _paced(outcome: Outcome, plan: Plan) -> Table:
    rows = []
    for one in (one for one in conditions(plan) if one.section == "paced"):
        rows.append(
            [
                f"{one.round_trip_us / 1000:g} ms",
                title_of(one.system),
                cell(outcome, one, figure("rate")),
                *late(outcome, one),
                cell(outcome, one, figure("leader_cpu_us"), 1),
                cell(outcome, one, figure("follower_cpu_us"), 1),
            ]
        )
    head = ["apart", "", "requests/s", *LATE_HEAD, "leader CPU us", "follower CPU us"]
    beside = "" if plan.with_kafka else ", since Apache Kafka is not in this study"
    return f"acks=-1 at half of what {title_of(plan.paced_by)} does at most{beside}", head, rows


def _java(outcome: Outcome, plan: Plan) -> Table:
    rows = []
    for one in (one for one in conditions(plan) if one.section == "java"):
        p99 = cell(outcome, one, lambda block: block.figures.get("p99_us", math.nan) / 1e3)
        rows.append([title_of(one.system), megabytes(outcome, one), p99])
    title = f"The Java producer with its defaults, {MIDDLE_US / 1000:g} ms"
    return title, ["", "MB/s", "p99 ms, in its own queue too"], rows


def _slots(outcome: Outcome, plan: Plan) -> Table:
    rows = []
    at_us = max(plan.round_trips_us)
    for mode in (ALL, LEADER):
        every = [one for one in conditions(plan) if one.section == "slots" and one.mode == mode]
        by_system = {one.system: one for one in every}
        rows.append(
            [mode, *(megabytes(outcome, by_system[with_slots(number)]) for number in plan.slots)]
        )
    title = f"channel.pipelining.max.requests, 2,000 in flight, {at_us / 1000:g} ms"
    return title, ["MB/s", *(f"{number:,}" for number in plan.slots)], rows


def _killed(outcome: Outcome, plan: Plan) -> Table:
    """Blocks that stand: in each, both replicas have every acknowledged record once, in order."""
    rows = []
    for one in (one for one in conditions(plan) if one.section == "killed"):
        rows.append(
            [
                title_of(one.system),
                f"{one.in_flight} in flight" + (", idempotent" if one.in_flight <= 5 else ""),
                cell(outcome, one, lambda block: float(block.records)),
                cell(outcome, one, figure("stood_still_s"), 1),
            ]
        )
    title = "The follower killed in the middle: every record there once, in order, on both"
    return title, ["", "", "records acknowledged", "stood still s"], rows


# In words.


def conclusions(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    """What is said in words, and every bar that was measured: the verdict rows of the results."""
    return [*_in_words(outcome, plan), *_of_bars(outcome)]


def _in_words(outcome: Outcome, plan: Plan) -> list[Conclusion]:
    return [
        *_of_matrix(outcome, plan),
        *in_words(outcome, plan),
        *_of_java(outcome, plan),
        *_of_killed(outcome, plan),
    ]


def _of_bars(outcome: Outcome) -> Iterable[Conclusion]:
    """Met, missed or undecided; of what was not asked for nothing."""
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
    """What pipelining changes, and against whom, for each round trip and number in flight."""
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


# As text, page, JSON.


def text(outcome: Outcome, plan: Plan) -> list[str]:
    lines: list[str] = []
    for title, head, rows in tables(outcome, plan):
        lines += ["", title, *table(head, rows)]
    lines += ["", *bar_table(bars(outcome)), ""]
    for one in _in_words(outcome, plan):
        lines += [one.question, f"    {one.answer}"]
    return lines


def page(outcome: Outcome, plan: Plan) -> str:
    """The measured part of docs/pipelining.md."""
    machine = {name: escape(one_line(said)) for name, said in outcome.machine.items()}
    lines = [
        f"*Measured* {machine['when'][:10]} on {machine['cpus']} x {machine['model']}, Linux "
        f"{machine['kernel']}, Python {machine['python']}, commit {machine['commit']}; records of "
        f"{RECORD_BYTES:,} bytes, one partition, {plan.rounds} rounds of {plan.seconds:g} s "
        "blocks, medians.",
    ]
    for title, head, rows in tables(outcome, plan):
        lines += ["", f"### {title}", "", _row(head), _row(["---"] * len(head))]
        lines += map(_row, rows)
    lines += ["", "### What it must show", "", "| what | bar | found | |", "|---|---|---|---|"]
    for bar in bars(outcome):
        value = NOTHING if bar.value is None else bar.value.text(times)
        verdict = bar.verdict if bar.verdict != PASSED else f"**{PASSED}**"
        lines.append(f"| {bar.what} | at most {times(bar.bar)} {bar.unit} | {value} | {verdict} |")
    answers = _in_words(outcome, plan)
    if answers:
        lines += ["", "### In words", "", *(f"- {one.question} *{one.answer}.*" for one in answers)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def to_json(outcome: Outcome, plan: Plan) -> dict[str, Any]:
    return {
        **outcome.to_json(),
        "study": STUDY,
        "bars": [bar_json(bar) for bar in bars(outcome)],
        "conclusions": [one.to_json() for one in conclusions(outcome, plan)],
    }
