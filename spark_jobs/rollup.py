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

The driver's thread; safe beside the stream and other maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kbroker.metrics import samples
from spark_jobs import tables
from spark_jobs.files import files_of, join
from spark_jobs.ledger import Commit, Ledger, LiveUnit, State, new_unit, now_ms, unit_directory
from spark_jobs.schema import METRICS, Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_FIELDS: Final = {field.name: field for kind in samples.KINDS for field in kind.fields}


def _names(wanted: Iterable[samples.Field]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(field.name for field in wanted))


# What tells the entities apart, what is added up, what is added up bound by bound, what is a level.
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
        F.count("*").alias("samples"),
        F.try_sum("interval_ms").alias("covered_ms"),
        *(F.try_sum(name).alias(name) for name in GROWTH),
        *(column for name in GAUGES for column in _level(name)),
    )
    for name in BUCKETS:
        found = _beside(found, _merged(hourly, keys, name), keys)
    dated = found.withColumn("event_date", F.to_date("hour"))
    return dated.select(*HOURLY.column_names)


def _level(name: str) -> tuple[SparkColumn, ...]:
    from pyspark.sql import functions as F

    when = F.when(F.col(name).isNotNull(), F.col("event_time"))
    return (
        F.min(name).alias(f"{name}_min"),
        F.max(name).alias(f"{name}_max"),
        F.max_by(name, when).alias(f"{name}_last"),
        F.sum(F.col(name).cast("double")).alias(f"{name}_sum"),
    )


def _merged(hourly: DataFrame, keys: tuple[str, ...], name: str) -> DataFrame:
    """Buckets of equal bounds added up, in the order of their bounds."""
    from pyspark.sql import functions as F

    by_bound = (
        hourly.where(F.col(name).isNotNull())
        .select(*keys, F.explode(name).alias("_bucket"))
        .groupBy(*keys, F.col("_bucket.le").alias("le"))
        .agg(F.try_sum("_bucket.count").alias("count"))
    )
    together = F.sort_array(F.collect_list(F.struct("le", "count")))
    return by_bound.groupBy(*keys).agg(together.alias(name))


def _beside(left: DataFrame, right: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Joined by keys, of which null is equal to null."""
    renamed = right.withColumnsRenamed({key: f"_{key}" for key in keys})
    same: Any = None
    for key in keys:
        equal = left[key].eqNullSafe(renamed[f"_{key}"])
        same = equal if same is None else same & equal
    return left.join(renamed, same, "left").drop(*(f"_{key}" for key in keys))


def stale(spark: SparkSession, root: str) -> dict[str, int]:
    """Dates that `update` would make."""
    files = files_of(spark, root)
    states = [Ledger(files, tables.table_uri(root, name)).state()
              for name in (METRICS.name, HOURLY.name)]  # fmt: skip
    return stale_dates(*states)


def stale_dates(raw: State, hourly: State) -> dict[str, int]:
    """date -> the raw table's commit that is to be covered, oldest first."""
    return {
        date: number
        for date, number in sorted(raw.touched.items())
        if number > hourly.covers.get(date, 0) and date >= raw.expired_before
    }


def update(spark: SparkSession, root: str) -> list[str]:
    """Makes the roll-ups of dates that need it; returns these dates.

    LedgerConflict where somebody else made the same meanwhile.
    """
    files = files_of(spark, root)
    raw = Ledger(files, tables.table_uri(root, METRICS.name))
    hourly = Ledger(files, tables.table_uri(root, HOURLY.name))
    state = raw.state()
    stale = stale_dates(state, hourly.state())
    for date, number in stale.items():
        rows = tables.of_parts(spark, raw.uri, state, METRICS, (date, date))
        _replace(spark, hourly, date, number, hours_of(_once(rows)))
    return list(stale)


def _once(rows: DataFrame) -> DataFrame:
    return tables.without_repeats(rows, METRICS.retries)


def _replace(spark: SparkSession, hourly: Ledger, date: str, number: int, rows: DataFrame) -> None:
    unit = new_unit("hours")
    uri = join(hourly.uri, tables.DATA, unit_directory(unit))
    old = [found for found in hourly.state().units if found.date == date]
    rows.coalesce(1).write.partitionBy(tables.DATE).parquet(uri)
    hourly.files.sync(uri)
    made = tables.of_units(spark, hourly.uri, [LiveUnit(unit, date, 0)], HOURLY).count()
    hourly.commit(
        Commit(
            f"hours-{unit}", "merge", now_ms(), (LiveUnit(unit, date, made),),
            drops=tuple(found.part for found in old), covers={date: number},
        )
    )  # fmt: skip
