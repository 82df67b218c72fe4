"""Single figures: what a command published beside its blocks, each with its unit.

The seconds of a start, the bytes of an idle connection, the share of a job's time that it waited:
one number a round, without a histogram. Of each command the newest run that published any counts;
figures that differ in nothing but the round are one line with their median and their ends.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import functions as F

from perf.results_table import DIMENSIONS, STUDIES
from spark_jobs.report_model import Cell, Section, Table
from spark_jobs.sections.cells import brief, figure, moment, number, percent, same, size, words
from spark_jobs.sections.inputs import Inputs, collected, differing
from spark_jobs.sections.latency import NAMES, shown_value

KEY: Final = "figures"
TITLE: Final = "Single figures"
ROWS_MAX: Final = 400
FIGURE: Final = "kind = 'figure' AND value IS NOT NULL"
BY: Final = tuple(one.name for one in DIMENSIONS if one.name not in ("round", "baseline"))

Line = dict[str, Any]


def section(inputs: Inputs) -> Section:
    runs = _newest_runs(inputs)
    if not runs:
        return Section(KEY, TITLE, (
            "No single figures in this span: `kbroker perf start`, `idle`, `groups` and `compare`"
            " publish some with `--results-bootstrap HOST:PORT`.",
        ))  # fmt: skip
    newest = " OR ".join(same({"study": run["study"], "run_id": run["run_id"]}) for run in runs)
    lines = _lines(inputs, f"({newest})")
    listed, more = lines[:ROWS_MAX], len(lines) > ROWS_MAX
    said = "; ".join(f"`{brief(run['study'])}` of {moment(run['at_ms'])}" for run in runs)
    tables = [
        _table(inputs, run, mine, more)
        for run in runs
        if (mine := [line for line in listed if line["study"] == run["study"]])
    ]
    return Section(KEY, TITLE, (f"The newest run of each command, UTC: {said}.",), tuple(tables))


def _newest_runs(inputs: Inputs) -> list[Line]:
    """Of each command, in the order in which perf lists them."""
    newest = F.struct("event_time_ms", "run_id")
    rows = collected(
        inputs.results.where(FIGURE)
        .where("study IS NOT NULL AND run_id IS NOT NULL AND event_time_ms IS NOT NULL")
        .groupBy("study")
        .agg(F.max_by("run_id", newest).alias("run_id"), F.max("event_time_ms").alias("at_ms"))
        .orderBy("study")
        .limit(20)
    )
    places = {study: place for place, study in enumerate(STUDIES)}
    return sorted(rows, key=lambda row: (places.get(row["study"], len(places)), row["study"]))


def _lines(inputs: Inputs, newest: str) -> list[Line]:
    """In the order in which they were published; one more than ROWS_MAX says: cut."""
    return collected(
        inputs.results.where(FIGURE)
        .where(newest)
        .groupBy("study", "run_id", "name", "unit", *BY)
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.expr("percentile(value, 0.5)").alias("median"),
            F.min("value").alias("lowest"),
            F.max("value").alias("highest"),
            F.min("sequence").alias("first"),
        )
        .orderBy("study", "first")
        .limit(ROWS_MAX + 1)
    )


def _table(inputs: Inputs, run: Line, lines: list[Line], more: bool) -> Table:
    about = differing(lines, BY) or ["broker"]
    rounds = any(line["n"] > 1 for line in lines)
    rows = []
    for line in lines:
        which = {name: line[name] for name in ("study", "run_id", "name", "unit", *BY)}
        source = inputs.rows("results", line["n"], FIGURE, same(which))

        def value(column: str, line: Line = line, source: Any = source) -> Cell:
            return figure(line[column], source, in_unit(line[column], line["unit"]))

        cells = [words(line["name"]), *(words(shown_value(n, line[n])) for n in about)]
        cells.append(value("median"))
        if rounds:
            many = line["n"] > 1
            cells += [value(end) if many else words("-") for end in ("lowest", "highest")]
            cells.append(figure(line["n"], source))
        rows.append(tuple(cells))
    notes = []
    if rounds:
        notes.append("Figure: the median of the rounds.")
    if more:
        notes.append("More lines are in the table `results`.")
    return Table(
        brief(run["study"]),
        ("what", *(NAMES.get(name, name) for name in about), "figure",
         *(("lowest", "highest", "rounds") if rounds else ())),
        tuple(rows),
        " ".join(notes),
    )  # fmt: skip


def in_unit(value: float | None, unit: str | None) -> str:
    """1.74 kB, 0.25 s, 2.73 ms, 12.6 % of task time."""
    if value is None or unit is None:
        return number(value)
    if unit == "B":
        return size(value)
    if unit == "us" and abs(value) >= 1000:
        return f"{number(value / 1000)} ms"
    if unit.startswith("of "):  # a share
        return f"{percent(value)} {brief(unit)}"
    return f"{number(value)} {brief(unit)}"
