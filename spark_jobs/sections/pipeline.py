"""The pipeline about itself: what landed, its lag, what it could not use.

Lag, rows a second and batch times are what the streaming job's listener published; rows, late rows,
quarantine and gaps are counted in the tables. Late rows have landed all the same: they only missed
the live windows. A gap (records given up with --accept-loss) stays on the page, and is an alarm in
the reports whose span it was given up in: an alarm that never ends is not noticed.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from spark_jobs.report_model import Finding, Plot, Section, Table, Verdict
from spark_jobs.schema import TABLES
from spark_jobs.sections import timeline
from spark_jobs.sections.cells import (
    brief,
    figure,
    moment,
    same,
    words,
)
from spark_jobs.sections.inputs import Gap, Inputs, collected
from spark_jobs.sections.silence import EVERY_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = "pipeline"
TITLE: Final = "The pipeline itself"
REASONS_MAX: Final = 20
GAPS_MAX: Final = 50
BATCH: Final = "kind = 'batch'"


def section(inputs: Inputs) -> Section:
    landed = [_counts(inputs, name) for name in TABLES]
    queries = collected(_queries(inputs.progress))
    reasons = collected(_reasons(inputs.quarantine))
    tables = [_landed_table(inputs, landed)]
    if queries:
        tables.append(_query_table(inputs, queries))
    if reasons:
        tables.append(_reason_table(inputs, reasons))
    if inputs.gaps:
        tables.append(_gap_table(inputs.gaps))
    new = [gap for gap in inputs.gaps if gap.given_up_ms >= inputs.since_ms]
    return Section(
        KEY, TITLE, _words(inputs, landed, queries, reasons), tuple(tables),
        _plots(inputs) if queries else (), tuple(_alarm(gap) for gap in new[:GAPS_MAX]),
    )  # fmt: skip


def _counts(inputs: Inputs, name: str) -> dict[str, Any]:
    frame: DataFrame = getattr(inputs, name)
    row = frame.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(F.col("late"), 1)).alias("late"),
        F.unix_millis(F.min("event_time")).alias("first"),
        F.unix_millis(F.max("event_time")).alias("last"),
    ).collect()[0]
    found: dict[str, Any] = {"table": name, **row.asDict()}
    return {**found, "repeats": max(0, inputs.landed.get(name, found["rows"]) - found["rows"])}


def _queries(progress: DataFrame) -> DataFrame:
    newest = F.struct("event_time_ms", "sequence")
    return (
        progress.where(BATCH)
        .groupBy("query", "topic")
        .agg(
            F.count(F.lit(1)).alias("reports"),
            F.sum(F.col("input_rows").cast("double")).alias("rows"),
            F.sum(F.col("batch_ms").cast("double")).alias("busy_ms"),
            F.max("batch_ms").alias("batch_ms_max"),
            F.expr("percentile_approx(batch_ms, 0.5)").alias("batch_ms_median"),
            F.max("lag_records").alias("lag_max"),
            # What an idle query tells has no lag.
            F.max_by("lag_records", F.when(F.col("lag_records").isNotNull(), newest)).alias(
                "lag_last"
            ),
            F.sum(F.col("quarantined_rows").cast("double")).alias("quarantined"),
        )
        .orderBy("query", "topic")
    )


def _reasons(quarantine: DataFrame) -> DataFrame:
    return (
        quarantine.groupBy("source_topic", "reason")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.unix_millis(F.max("landed_at")).alias("last"),
            F.min(F.struct("source_partition", "source_offset")).alias("first"),
        )
        .orderBy(F.desc("rows"), "source_topic", "reason")
        .limit(REASONS_MAX)
    )


def _words(
    inputs: Inputs,
    landed: list[dict[str, Any]],
    queries: list[dict[str, Any]],
    reasons: list[dict[str, Any]],
) -> tuple[str, ...]:
    rows, late, repeats = (sum(one[name] for one in landed) for name in ("rows", "late", "repeats"))
    spoiled = sum(one["rows"] for one in reasons)
    came = f"{late:,} came late and are in all the same" if late else "none came late"
    again = f"{repeats:,} that a writer sent twice were taken out" if repeats else "none came twice"
    said = [f"{rows:,} rows of this span: {came}, {again}."]
    if reasons:
        said.append(f"{spoiled:,} records could not be read and lie in quarantine, with reasons.")
    else:
        said.append("Nothing was put in quarantine.")
    if not queries:
        said.append(
            "No report of the streaming job's progress landed in this span: a job that lands once"
            " publishes its own at its end, and the next one brings it."
        )
    if inputs.gaps:
        lost = sum(gap.end - gap.start for gap in inputs.gaps)
        least = "" if all(gap.end > gap.start for gap in inputs.gaps) else "At least "
        said.append(
            f"{least}{lost:,} records were given up in {len(inputs.gaps)} gaps (--accept-loss)."
        )
    return tuple(said)


def _landed_table(inputs: Inputs, landed: list[dict[str, Any]]) -> Table:
    made = []
    for one in landed:
        name = one["table"]
        source = inputs.rows(name, one["rows"])
        made.append((
            words(TABLES[name].topic), words(name), figure(one["rows"], source),
            figure(one["late"], inputs.rows(name, one["late"], "late")),
            figure(one["repeats"], source, verdict="open" if one["repeats"] else ""),
            words(moment(one["first"])), words(moment(one["last"])),
        ))  # fmt: skip
    return Table(
        "What landed",
        ("topic", "table", "rows", "late", "repetitions taken out", "first event, UTC",
         "last event, UTC"),
        tuple(made),
        "Repetitions: equal in the writer's own numbers (broker_id, run_ms, sequence; run_id,"
        " sequence); the lowest offset stays. Late: older than the stream's watermark.",
    )  # fmt: skip


def _query_table(inputs: Inputs, queries: list[dict[str, Any]]) -> Table:
    made = []
    for one in queries:
        who = same({"query": one["query"], "topic": one["topic"]})
        source = inputs.rows("progress", one["reports"], BATCH, who)
        per_s = one["rows"] / one["busy_ms"] * 1000 if one["rows"] and one["busy_ms"] else None
        made.append((
            words(one["query"]), words(one["topic"]), figure(one["reports"], source),
            figure(one["rows"], source), figure(per_s, source),
            figure(one["batch_ms_median"], source), figure(one["batch_ms_max"], source),
            figure(one["lag_last"], source, verdict=_of_lag(one["lag_last"])),
            figure(one["lag_max"], source), figure(one["quarantined"], source),
        ))  # fmt: skip
    return Table(
        "Queries",
        ("query", "topic", "reports", "rows", "rows/s while busy", "batch, ms, median",
         "batch, ms, longest", "lag at the end", "lag, most", "quarantined"),
        tuple(made),
        "As the streaming job's listener published it: a report for each batch, and one a minute"
        " while there is nothing to do. Lag: records in the topic that had not landed.",
    )  # fmt: skip


def _of_lag(records: int | None) -> Verdict:
    if records is None:
        return ""
    return "open" if records else "good"


def _reason_table(inputs: Inputs, reasons: list[dict[str, Any]]) -> Table:
    made = []
    for one in reasons:
        who = same({"source_topic": one["source_topic"], "reason": one["reason"]})
        first = one["first"]
        made.append((
            words(one["source_topic"]), words(one["reason"]),
            figure(one["rows"], inputs.rows("quarantine", one["rows"], who), verdict="bad"),
            words(f"{first['source_partition']}:{first['source_offset']}"),
            words(moment(one["last"])),
        ))  # fmt: skip
    return Table(
        "Quarantine",
        ("topic", "reason", "records", "first, partition:offset", "last landed, UTC"),
        tuple(made),
        "The records' bytes are in the table `quarantine`.",
    )


def _gap_table(gaps: tuple[Gap, ...]) -> Table:
    made = tuple(
        (words(gap.topic), words(gap.partition), words(_offsets(gap)),
         words(f"{gap.end - gap.start:,}" if gap.end > gap.start else "not known", "bad"),
         words(gap.reason), words(moment(gap.given_up_ms)))
        for gap in gaps[:GAPS_MAX]
    )  # fmt: skip
    columns = ("topic", "partition", "offsets", "records", "why", "given up, UTC")
    return Table("Gaps", columns, made)


def _alarm(gap: Gap) -> Finding:
    return Finding(
        f"{brief(gap.topic)}-{gap.partition}: records {_offsets(gap)} never landed"
        f" ({brief(gap.reason)})",
        gap.given_up_ms,
        "the streaming job: it has to run more often than the topic's retention",
    )


def _offsets(gap: Gap) -> str:
    """The end of a topic that was deleted is not known."""
    return f"{gap.start:,} to {gap.end - 1:,}" if gap.end > gap.start else f"from {gap.start:,} on"


def _plots(inputs: Inputs) -> tuple[Plot, ...]:
    step = timeline.axis(inputs.since_ms, inputs.since_ms, inputs.until_ms, EVERY_MS).step
    rows = collected(
        inputs.progress.where(BATCH)
        .where("event_time_ms IS NOT NULL")
        .groupBy("query", (F.floor(F.col("event_time_ms") / step) * step).alias("at"))
        .agg(
            F.max("lag_records").alias("lag"),
            F.max("batch_ms").alias("batch_ms"),
            F.max("processed_rows_per_s").alias("rows_per_s"),
        )
        .orderBy("at")
    )
    made = []
    between = (min((row["at"] for row in rows), default=0), inputs.until_ms)
    for column, title, unit in (("lag", "Lag", "records"), ("batch_ms", "Longest batch", "ms"),
                                ("rows_per_s", "Rows landed", "rows/s")):  # fmt: skip
        series = []
        for query in dict.fromkeys(row["query"] for row in rows):
            mine = [row for row in rows if row["query"] == query]
            points = [(row["at"], row[column]) for row in mine]
            line = timeline.series(brief(query), points, step, between, every_ms=_every(mine, step))
            if line is not None:
                series.append(line)
        if any(value for one in series for value in one.y if value == value):
            made.append(Plot(title, "line", "time, UTC", unit, tuple(series), x_is_time=True))
    return tuple(made)


def _every(rows: list[dict[str, Any]], step: float) -> float:
    """What a query leaves free: thrice what is usual between its reports, of cron or a service."""
    between = [b["at"] - a["at"] for a, b in itertools.pairwise(rows)]
    return 3 * max(statistics.median(between), step) if between else 3 * step
