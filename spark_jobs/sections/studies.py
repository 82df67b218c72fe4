"""The studies: what each one asked, what it answers, and the figures it answers from.

Verdicts are the study's own words, published with its blocks; the newest run of each study
counts. Beside them are its blocks by the varied columns, percentiles of merged histograms, and,
where some blocks are the baseline, every other value as a ratio to it. The answer "no result" is
one.
"""

from __future__ import annotations

import statistics
from typing import Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Cell, Plot, Section, Series, Table
from spark_jobs.sections.blocks import (
    P99,
    RECORDS,
    Block,
    Measure,
    grouped,
)
from spark_jobs.sections.cells import brief, figure, moment, same, words
from spark_jobs.sections.inputs import Inputs, collected, differing
from spark_jobs.sections.latency import COLUMNS, NAMES, PERCENTILES, Group, groups, shown_value
from spark_jobs.sections.paired import NOTE, Beside, Pair, count_of, pairs, reasons, versus, which
from spark_jobs.sections.paired import cell as ratio_cell

KEY: Final = "studies"
TITLE: Final = "Studies"
STUDIES: Final = ("pipelining", "latency-study", "tune")
VERDICTS_MAX: Final = 500
ROWS_MAX: Final = 600
CPU_RECORD: Final = Measure("CPU us/record", lambda block: block.cpu_us_per_record, "low")
RATIOS: Final = (RECORDS, P99, CPU_RECORD)
SHORT: Final = tuple(measure.name.partition(",")[0] for measure in RATIOS)
# Columns that a study may vary, in the order of the table.
VARIED: Final = ("measure", "cell", "work", "broker", "knob", "knob_value", "acks", "mode",
                 "batch_bytes", "linger_ms", "size_bytes", "in_flight", "connections",
                 "partitions", "replicas", "round_trip_us", "codec", "path", "rate")  # fmt: skip

Verdicts = list[dict[str, Any]]


def section(inputs: Inputs, blocks: list[Block]) -> Section:
    newest = _newest_runs(inputs)
    if not newest:
        return Section(KEY, TITLE, (
            "No study was run in this span: `kbroker perf pipelining`, `latency-study` and"
            " `tune` are some, and `--results-bootstrap HOST:PORT` brings them here.",
        ))  # fmt: skip
    runs = [row["run_id"] for row in newest]
    verdicts = _verdicts(inputs, runs)
    merged = groups(inputs, ("study", "run_id", *VARIED), _of_runs(runs))
    said: list[str] = []
    tables: list[Table] = []
    plots: list[Plot] = []
    for row in newest:
        study, run = row["study"], row["run_id"]
        mine = [one for one in verdicts if one["run_id"] == run]
        own = [block for block in blocks if block["run_id"] == run]
        its = [group for group in merged if group["run_id"] == run]
        its.sort(key=lambda group: group["measure"] != "end-to-end")  # what is asked about, first
        said += _said(row, mine)
        tables.append(_answers(study, mine))
        tables += _ratio_tables(inputs, study, own)
        if its:
            tables.append(_figures(inputs, study, run, its, own))
        plots += _plots(study, its, own)
    return Section(KEY, TITLE, tuple(said), tuple(tables), tuple(plots))


def _newest_runs(inputs: Inputs) -> Verdicts:
    """The newest run with an answer, of each study."""
    newest = F.struct("event_time_ms", "run_id")
    rows = collected(
        inputs.results.where("run_id IS NOT NULL AND event_time_ms IS NOT NULL")
        .where((F.col("kind") == "verdict") & F.col("study").isNotNull())
        .groupBy("study")
        .agg(
            F.max_by("run_id", newest).alias("run_id"),
            F.max_by("machine", newest).alias("machine"),
            F.max("event_time_ms").alias("at_ms"),
        )
        .limit(20)
    )
    return sorted(rows, key=lambda row: (_place(row["study"]), row["study"]))


def _place(study: str) -> int:
    return STUDIES.index(study) if study in STUDIES else len(STUDIES)


def _of_runs(runs: list[str]) -> str:
    return "(" + " OR ".join(same({"run_id": run}) for run in runs) + ")"


def _verdicts(inputs: Inputs, runs: list[str]) -> Verdicts:
    return collected(
        inputs.results.where("kind = 'verdict'")
        .where(_of_runs(runs))
        .select("study", "run_id", "question", "answer", "decided", "cell", "broker", "knob",
                "knob_value")
        .orderBy("run_id", "sequence")
        .limit(VERDICTS_MAX)
    )  # fmt: skip


def _said(row: dict[str, Any], verdicts: Verdicts) -> list[str]:
    decided = sum(one["decided"] is True for one in verdicts)
    about = [one for one in verdicts if one["knob"] is None]
    return [
        f"`{brief(row['study'])}`, {moment(row['at_ms'])} UTC on {brief(row['machine'])}:"
        f" {decided} of {len(verdicts)} questions decided.",
        *(f"{brief(one['question'])} {brief(one['answer'])}" for one in about[:8]),
    ]


def _answers(study: str, verdicts: Verdicts) -> Table:
    about = [name for name in ("broker", "cell", "knob", "knob_value")
             if any(one[name] is not None for one in verdicts)]  # fmt: skip
    rows = tuple(
        (
            words(one["question"]), *(words(one[name]) for name in about),
            Cell(_whole(one["answer"])),
            words("decided", "good") if one["decided"] else words("no result", "open"),
        )
        for one in verdicts
    )  # fmt: skip
    head = [NAMES.get(name, name) for name in about]
    return Table(f"{brief(study)}: answers", ("question", *head, "answer", "verdict"), rows)


def _whole(answer: str | None) -> str:
    """An answer may be longer than other values."""
    return " ".join((answer or "-").split())[:2_000]


# -- ratios to the baseline


def _ratio_tables(inputs: Inputs, study: str, blocks: list[Block]) -> list[Table]:
    """Every value against the baseline of the same work, if the study has one."""
    lines = ratios(blocks)
    if not lines:
        return []
    apart = ["cell", "knob", "knob_value", "broker", "measure"]
    columns = differing([beside.first.row for beside in lines], apart) or ["cell"]
    rows = []
    for beside in lines[:ROWS_MAX]:
        source = inputs.rows("results", count_of(beside.every), which(beside.every))
        found = [versus(beside, measure) for measure in RATIOS]
        cells: list[Cell] = [words(shown_value(name, beside.first[name])) for name in columns]
        cells.append(figure(len(beside.quiet), source))
        cells += [ratio_cell(one, source) for one in found]
        cells.append(words(reasons(found, SHORT)))
        rows.append(tuple(cells))
    return [Table(
        f"{brief(study)}: against the baseline",
        (*(NAMES.get(name, name) for name in columns), "quiet rounds",
         *(f"{name} x" for name in SHORT), "no result"),
        tuple(rows),
        f"To the baseline's block of the same round. {NOTE}",
    )]  # fmt: skip


def ratios(blocks: list[Block]) -> list[Beside]:
    """By value: its blocks beside the baseline's of the same round."""
    found = []
    for many in grouped(blocks, ("cell", "work", "knob", "measure")).values():
        null = _null(many)
        base = [block for block in many if block["baseline"] is True and not block.again]
        others = [block for block in many if block["baseline"] is not True and not block.again]
        for mine in grouped(others, ("broker", "knob_value")).values():
            same_broker = [block for block in base if block["broker"] == mine[0]["broker"]]
            if beside := pairs(mine, same_broker or base):
                found.append(Beside(beside, null))
    return found


def _null(many: list[Block]) -> tuple[tuple[Pair, ...], ...]:
    """What is measured once more, beside what it repeats: the same server, or its twin."""
    found = []
    for (broker,), seconds in grouped([b for b in many if b.again], ("broker",)).items():
        own = [block for block in many if block["broker"] == broker and not block.again]
        same_value = [block for block in own if block["knob_value"] == seconds[0]["knob_value"]]
        base = [block for block in own if block["baseline"] is True]
        if both := pairs(same_value or base, seconds):
            found.append(both)
    return tuple(found)


# -- figures


def _figures(
    inputs: Inputs, study: str, run: str, found: list[Group], blocks: list[Block]
) -> Table:
    columns = [name for name in VARIED if name in differing(found, VARIED)] or ["broker"]
    by_place = grouped(blocks, VARIED)
    rows = []
    for group in found[:ROWS_MAX]:
        place = {name: group[name] for name in VARIED}
        who = same({"run_id": run, "study": group["study"], **place})
        source = inputs.rows(
            "results", group["blocks"], "kind = 'block' AND size(buckets) > 0", who
        )
        mine = by_place.get(tuple(place.values()), [])
        cells = [words(shown_value(name, group[name])) for name in columns]
        cells.append(figure(group["blocks"], source))
        for measure in (RECORDS, CPU_RECORD):
            cells.append(_median(mine, measure, source))
        cells += [figure(None if group[n] is None else group[n] / 1e6, source) for n in PERCENTILES]
        rows.append(tuple(cells))
    note = (
        f"{len(found) - ROWS_MAX:,} more lines are in `results`." if len(found) > ROWS_MAX else ""
    )
    return Table(
        f"{brief(study)}: measured",
        (*(NAMES.get(name, name) for name in columns), "blocks", RECORDS.name, CPU_RECORD.name,
         *COLUMNS),
        tuple(rows),
        f"Percentiles of merged histograms; records and CPU are medians over the blocks. {note}",
    )  # fmt: skip


def _median(blocks: list[Block], measure: Measure, source: Any) -> Cell:
    values = [value for block in blocks if (value := measure.of(block)) is not None]
    return figure(statistics.median(values), source) if values else words("-")


# -- plots


def _plots(study: str, found: list[Group], blocks: list[Block]) -> list[Plot]:
    if study == "latency-study":
        return _by_linger(found)
    if study == "tune":
        return _effects(blocks)
    return _by_broker(study, found, blocks)


def _by_linger(found: list[Group]) -> list[Plot]:
    """p50 and p99 over linger, for each broker and measure."""
    made = []
    apart = [
        n for n in ("acks", "mode", "batch_bytes", "cell", "rate") if n in differing(found, VARIED)
    ]
    plain = [group for group in found if group["knob"] is None and group["linger_ms"] is not None]
    for (broker, measure), mine in _by(plain, ("broker", "measure")).items():
        for percent in ("p50", "p99"):
            series = []
            for place, its in _by(mine, tuple(apart)).items():
                points = sorted((float(g["linger_ms"]), g[percent] / 1e6) for g in its
                                if g[percent] is not None)  # fmt: skip
                if len(points) > 1:
                    name = ", ".join(_label(n, v) for n, v in zip(apart, place, strict=True))
                    x, y = zip(*points, strict=True)
                    series.append(Series(name or brief(broker), x, y))
            if series:
                title = f"latency-study: {percent}, {brief(measure)}, {brief(broker)}"
                made.append(Plot(title, "line", "linger, ms", "ms", tuple(series), log_y=True))
    return made


def _label(name: str, value: Any) -> str:
    text = shown_value(name, value)
    return text if name in ("mode", "cell") else f"{NAMES.get(name, name)} {text}"


def _by(found: list[Group], names: tuple[str, ...]) -> dict[tuple[Any, ...], list[Group]]:
    made: dict[tuple[Any, ...], list[Group]] = {}
    for group in found:
        made.setdefault(tuple(group[name] for name in names), []).append(group)
    return made


def _effects(blocks: list[Block]) -> list[Plot]:
    """Each value's ratio to the default, by figure."""
    lines = [line for line in ratios(blocks) if line.first["knob"] is not None]
    made = []
    for measure in RATIOS:
        have = []
        for beside in lines:
            one = versus(beside, measure)
            if one is not None and one.pairs:
                first = beside.first
                label = f"{brief(first['knob'])}={brief(first['knob_value'])}"
                have.append((label, one.estimate))
        if have:
            series = Series(
                "value / default", tuple(name for name, _ in have),
                tuple(one.median for _, one in have), tuple(one.low for _, one in have),
                tuple(one.high for _, one in have),
            )  # fmt: skip
            title = f"tune: {measure.name.partition(',')[0]} against the default"
            made.append(Plot(title, "intervals", "setting", "ratio", (series,), reference=1.0))
    return made


def _by_broker(study: str, found: list[Group], blocks: list[Block]) -> list[Plot]:
    """Records a second and p99 of every design, by the work."""
    made = []
    speed = []
    for cell, many in grouped(blocks, ("cell",)).items():
        y = {brief(place[0]): _median_of(mine, RECORDS)
             for place, mine in grouped(many, ("broker",)).items()}  # fmt: skip
        known = {name: value for name, value in y.items() if value is not None}
        if known:
            speed.append(Series(brief(cell[0]), tuple(known), tuple(known.values())))
    if speed:
        made.append(Plot(f"{brief(study)}: records/s", "bars", "broker", "records/s", tuple(speed),
                         log_y=True))  # fmt: skip
    slow = []
    for cell, its in _by(found, ("cell",)).items():
        known = {brief(g["broker"]): g["p99"] / 1e6 for g in its if g["p99"] is not None}
        if known:
            slow.append(Series(brief(cell[0]), tuple(known), tuple(known.values())))
    if slow:
        made.append(Plot(f"{brief(study)}: p99", "bars", "broker", "ms", tuple(slow), log_y=True))
    return made


def _median_of(blocks: list[Block], measure: Measure) -> float | None:
    values = [value for block in blocks if (value := measure.of(block)) is not None]
    return statistics.median(values) if values else None
