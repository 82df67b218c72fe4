"""Hourly roll-ups of the broker's samples: what is kept when raw rows expire.

One row for each hour and entity: a broker's kind of sample, by its labels (topic and partition,
directory, kind of request and so on). What a sample counts as growth is added up, buckets are added
up bound by bound, a gauge becomes its lowest, highest and last value and its sum, whose mean is
`x_sum / samples`. A sum that no long can hold is null: a record may claim anything. A writer's
retries are left out before, as tables.read does.

A date is made anew, from all its raw rows, when there are rows of it that its roll-up does not
have: the ledger of `metrics` says which commit touched a date last, the ledger of `hourly` which it
covers. The new rows take the old one's place in one commit. A date whose raw rows have expired
stays as it is, whatever comes so late.

Maintenance makes whatever is to be made (`update`), a report what it is about to show, within
bounds (`freshen`). The driver's thread; safe beside the stream, maintenance and other reports: of
two that make the same date one gives way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kbroker.metrics import samples
from spark_jobs import tables
from spark_jobs.files import files_of, join
from spark_jobs.ledger import (
    Commit,
    Ledger,
    LedgerConflict,
    LiveUnit,
    State,
    new_unit,
    now_ms,
    unit_directory,
)
from spark_jobs.schema import METRICS, Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Samples that one job makes roll-ups of, and what a report spends on it: two days of one broker
# with 100 partitions.
ROWS_MAX: Final = 2_500_000
REASON_CHARS_MAX: Final = 200

_FIELDS: Final = {one.name: one for kind in samples.KINDS for one in kind.fields}


def _names(wanted: Iterable[samples.Field]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for field in wanted))


# Columns that name the entity, are added up, are added up bound by bound, are a level.
LABELS: Final = (
    "broker_id",
    "metric_name",
    *_names(f for f in _FIELDS.values() if f.type == "string" or f.name == "partition"),
)
BUCKETS: Final = _names(f for f in _FIELDS.values() if f.type == "buckets")
GROWTH: Final = _names(f for f in _FIELDS.values() if f.growth and f.type != "buckets")
GAUGES: Final = _names(f for f in _FIELDS.values() if f.name not in (*LABELS, *BUCKETS, *GROWTH))


def _columns() -> tuple[Column, ...]:
    kinds = dict(samples.columns())
    described = {column.name: column.help for column in METRICS.columns}
    found = [
        Column("hour", "timestamp", "Its beginning, UTC."),
        Column("event_date", "date", "Of hour: the partition directory."),
        *(Column(name, kinds[name], described[name]) for name in LABELS),
        Column("samples", "long", "Records that the row is made of, a writer's retries left out."),
        Column("late_samples", "long", "Those of them that came late."),
        Column("covered_ms", "long", "What they cover: the sum of interval_ms."),
        *(Column(name, kinds[name], f"Sum: {described[name]}") for name in (*GROWTH, *BUCKETS)),
    ]
    for name in GAUGES:
        kind = kinds[name]
        found += [
            Column(f"{name}_min", kind, f"Lowest: {described[name]}"),
            Column(f"{name}_max", kind, f"Highest: {described[name]}"),
            Column(f"{name}_last", kind, f"Last of the hour: {described[name]}"),
            Column(f"{name}_sum", "double", f"Sum over the samples: {described[name]}"),
        ]
    return tuple(found)


HOURLY: Final = TableSchema(
    "hourly",
    "The broker's samples by the hour, kept when raw rows expire.",
    _columns(),
    identity=(),
)


def hours_of(rows: DataFrame) -> DataFrame:
    """Rows of `metrics` without a writer's retries -> rows of HOURLY."""
    from pyspark.sql import functions as F

    keys = ("hour", *LABELS)
    hourly = rows.withColumn("hour", F.date_trunc("hour", "event_time"))
    found = hourly.groupBy(*keys).agg(
        F.expr("count(*) AS samples"),
        F.expr("count_if(late) AS late_samples"),
        F.expr("try_sum(interval_ms) AS covered_ms"),
        *(F.expr(f"try_sum({name}) AS {name}") for name in GROWTH),
        *(F.expr(text) for name in GAUGES for text in _level(name)),
    )
    for name in BUCKETS:
        found = _beside(found, _merged(hourly, keys, name), keys)
    dated = found.withColumn("event_date", F.to_date("hour"))
    return dated.selectExpr(*HOURLY.column_names)


def _level(name: str) -> tuple[str, ...]:
    return (
        f"min({name}) AS {name}_min",
        f"max({name}) AS {name}_max",
        f"max_by({name}, if({name} IS NULL, NULL, event_time)) AS {name}_last",
        f"sum(double({name})) AS {name}_sum",
    )


def _merged(hourly: DataFrame, keys: tuple[str, ...], name: str) -> DataFrame:
    """Buckets of equal bounds added up, in the order of their bounds."""
    from pyspark.sql import functions as F

    by_bound = (
        hourly.where(f"{name} IS NOT NULL")
        .selectExpr(*keys, f"explode({name}) AS _bucket")
        .groupBy(*keys, F.expr("_bucket.le AS le"))
        .agg(F.expr("try_sum(_bucket.count) AS count"))
    )
    together = F.expr(f"sort_array(collect_list(struct(le, count))) AS {name}")
    return by_bound.groupBy(*keys).agg(together)


def _beside(left: DataFrame, right: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Joined by keys, of which null is equal to null."""
    from pyspark.sql import functions as F

    renamed = right.withColumnsRenamed({key: f"_{key}" for key in keys})
    same = F.expr(" AND ".join(f"{key} <=> _{key}" for key in keys))
    return left.join(renamed, same, "left").drop(*(f"_{key}" for key in keys))


# -- which dates


def stale(spark: SparkSession, root: str) -> dict[str, int]:
    """Dates that `update` would make."""
    raw, hourly = _ledgers(spark, root)
    return stale_dates(raw.state(), hourly.state())


def stale_dates(raw: State, hourly: State) -> dict[str, int]:
    """date -> the raw table's commit that is to be covered, oldest first."""
    return {
        date: number
        for date, number in sorted(raw.touched.items())
        if number > hourly.covers.get(date, 0) and date not in raw.expired
    }


def _ledgers(spark: SparkSession, root: str) -> tuple[Ledger, Ledger]:
    files = files_of(spark, root)
    raw, hourly = (Ledger(files, tables.table_uri(root, name))
                   for name in (METRICS.name, HOURLY.name))  # fmt: skip
    return raw, hourly


def _rows_by_date(raw: State) -> dict[str, int]:
    found: dict[str, int] = {}
    for unit in raw.units:
        found[unit.date] = found.get(unit.date, 0) + unit.rows
    return found


def _together(dates: Iterable[str], rows: Mapping[str, int]) -> Iterator[list[str]]:
    """Dates in groups of ROWS_MAX samples, or of one date that has more."""
    group: list[str] = []
    for date in dates:
        if group and sum(rows.get(one, 0) for one in (*group, date)) > ROWS_MAX:
            yield group
            group = []
        group.append(date)
    if group:
        yield group


# -- making them


def update(spark: SparkSession, root: str, clock_ms: Callable[[], int] = now_ms) -> list[str]:
    """Makes the roll-ups of dates that need it; returns these dates.

    LedgerConflict where another job made the same meanwhile.
    """
    raw, hourly = _ledgers(spark, root)
    state = raw.state()
    stale = stale_dates(state, hourly.state())
    for dates in _together(stale, _rows_by_date(state)):
        _make(spark, raw, state, hourly, {date: stale[date] for date in dates}, clock_ms)
    return list(stale)


@dataclass(frozen=True)
class Freshness:
    """The dates that `freshen` made; those that still lag, with the samples that landed of
    each; and why they are."""

    made: tuple[str, ...] = ()
    lagging: Mapping[str, int] = field(default_factory=dict)
    why: str = ""


def freshen(
    spark: SparkSession, root: str, first: str, last: str, rows_max: int = ROWS_MAX
) -> Freshness:
    """Makes the roll-ups of dates from first to last that need it, in one commit.

    The newest first, as many as have `rows_max` samples together; 0 writes nothing. What hinders it
    (tables that one may only read, another job) is said and not raised.
    """
    raw, hourly = _ledgers(spark, root)
    state = raw.state()

    def lagging() -> dict[str, int]:
        found = stale_dates(state, hourly.state())
        return {date: number for date, number in found.items() if first <= date <= last}

    stale, rows = lagging(), _rows_by_date(state)
    chosen: list[str] = []
    for date in reversed(stale):
        if sum(rows.get(one, 0) for one in (*chosen, date)) <= rows_max:
            chosen.append(date)
    why = (
        f"they are of more than the {rows_max:,} samples that a report may roll up"
        if rows_max
        else "--no-rollup was given"
    )
    if chosen:
        try:
            _try_to_write(hourly)
            _make(spark, raw, state, hourly, {date: stale[date] for date in sorted(chosen)})
        except LedgerConflict:
            why = "another job was making them"
        except OSError as error:
            why = f"the tables cannot be written ({error.strerror or error})"
        except Exception as error:  # of Spark or of Java: the report is made all the same
            why = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS_MAX]
    left = {date: rows.get(date, 0) for date in lagging()}
    made = tuple(date for date in stale if date not in left)
    return Freshness(made, left, why if left else "")


def _try_to_write(ledger: Ledger) -> None:
    """OSError before the work instead of after it."""
    uri = join(ledger.uri, f".{uuid.uuid4().hex}.tmp")
    ledger.files.create(uri, b"")
    ledger.files.delete(uri)


def _make(
    spark: SparkSession,
    raw: Ledger,
    state: State,
    hourly: Ledger,
    dates: Mapping[str, int],
    clock_ms: Callable[[], int] = now_ms,
) -> None:
    """The hours of these dates, from all raw rows of them at `state`."""
    units = [unit for unit in state.units if unit.date in dates]
    rows = tables.of_units(spark, raw.uri, units, METRICS)
    once = tables.without_repeats(rows, METRICS.retries)
    _replace(spark, hourly, dates, hours_of(once), clock_ms)


def _replace(
    spark: SparkSession,
    hourly: Ledger,
    dates: Mapping[str, int],
    rows: DataFrame,
    clock_ms: Callable[[], int] = now_ms,
) -> None:
    """`rows` become all that there is of `dates`, which say what they cover."""
    from pyspark.sql import functions as F

    unit = new_unit("hours")
    uri = join(hourly.uri, tables.DATA, unit_directory(unit))
    old = [found for found in hourly.state().units if found.date in dates]
    rows.coalesce(1).write.partitionBy(tables.DATE).parquet(uri)
    hourly.files.sync(uri)
    written = spark.read.schema(HOURLY.row_type()).parquet(uri)
    counts = written.groupBy(F.col(tables.DATE).cast("string").alias("date")).count().collect()
    hourly.commit(
        Commit(
            f"hours-{unit}", "merge", clock_ms(),
            tuple(LiveUnit(unit, row["date"], int(row["count"])) for row in counts),
            drops=tuple(found.part for found in old), covers=dict(dates),
        )
    )  # fmt: skip
