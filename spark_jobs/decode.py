"""A batch of Kafka's columns -> rows of a table, and what could not be read with the reason.

    good, quarantine = decoder("metrics")(batch)

`batch` has the columns of Spark's Kafka source: key, value (binary), topic, partition, offset,
timestamp. `good` has where it was read (source_*), event_time and the table's fields; `quarantine`
source_*, key, value, reason. The sink adds when and how late they landed. Every record of the batch
is in exactly one of the two; nothing is dropped, and no record that a producer may write into a
topic stops the job.

A value is read once, by from_json with the table's own types. It is put into an object between two
marks, `{"r": VALUE, "end": true}`, because Spark's reader stops at the end of the first value and
would not see the bytes after it. Strings are read as variants, since from_json makes a string of
anything. Only of values that do not fit, a second look finds the field that is to blame.

Bounds: a day becomes a directory, and a time far ahead makes everything after it late. So an event
time more than BEHIND_DAYS_MAX old or AHEAD_MS_MAX ahead is refused; where the record's own stamp is
all there is, such a stamp is kept in source_time, and event_time is the time of landing.

Lazy: no data is touched here. Any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_jobs.schema import PLAIN, TABLES, Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

DAY_MS: Final = 24 * 3_600_000
AHEAD_MS_MAX: Final = DAY_MS
BEHIND_DAYS_MAX: Final = 400
_FINITE_MAX: Final = "1.7976931348623157E308D"
_CORRUPT: Final = "_unreadable"
_BUCKETS: Final = "array<struct<le:double,count:bigint>>"
# The type that a column of the table is parsed as.
_PARSED: Final = {"long": "bigint", "double": "double", "boolean": "boolean", "string": "variant",
                  "buckets": _BUCKETS}  # fmt: skip
# How a JSON value of the right type looks to schema_of_variant.
_LOOKS: Final = {
    "long": "^(BIGINT|VOID)$",
    "double": "^(BIGINT|DECIMAL.*|DOUBLE|VOID)$",
    "boolean": "^(BOOLEAN|VOID)$",
    "string": "^(STRING|VOID)$",
}


class Decoded(NamedTuple):
    """`quarantine` is None where every record can be read: a table of bytes."""

    good: DataFrame
    quarantine: DataFrame | None


Decode = Callable[["DataFrame"], Decoded]


def wall_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def decoder(table: str, now_ms: Callable[[], int] = wall_ms) -> Decode:
    """For a table's name in TABLES, or "plain"."""
    if table == PLAIN.name:
        return lambda batch: _plain(batch, now_ms())
    schema = TABLES[table]
    return lambda batch: _split(_parsed(batch, schema, str(now_ms())), schema)


def good_rows(records: DataFrame, table: str) -> DataFrame:
    """Of a stream that runs for days: the clock is asked in each of its batches."""
    schema = TABLES[table]
    return _split(_parsed(records, schema, "unix_millis(current_timestamp())"), schema).good


def _source() -> list[SparkColumn]:
    from pyspark.sql import functions as F

    return [
        F.col("topic").alias("source_topic"),
        F.col("partition").cast("int").alias("source_partition"),
        F.col("offset").cast("bigint").alias("source_offset"),
        F.col("timestamp").alias("source_time"),
    ]


def _plain(batch: DataFrame, now_ms: int) -> Decoded:
    from pyspark.sql import functions as F

    earliest = F.timestamp_millis(F.lit(now_ms - BEHIND_DAYS_MAX * DAY_MS))
    latest = F.timestamp_millis(F.lit(now_ms + AHEAD_MS_MAX))
    stamp = F.col("timestamp")
    event_time = F.when(stamp.between(earliest, latest), stamp).otherwise(
        F.timestamp_millis(F.lit(now_ms))
    )
    names = [column.name for column in PLAIN.columns]
    return Decoded(batch.select(*_source(), event_time.alias("event_time"), *names), None)


def _parsed(batch: DataFrame, schema: TableSchema, now: str) -> DataFrame:
    """The batch's columns, `_r` (the record) and `_reason` (null: it can be read)."""
    from pyspark.sql import functions as F

    fields = ",".join(f"`{c.name}`:{_PARSED[c.type]}" for c in schema.columns)
    wrapped = F.concat(F.lit('{"r":'), F.col("_text"), F.lit(',"end":true}'))
    json = F.from_json(
        wrapped,
        f"r struct<{fields}>, end boolean, {_CORRUPT} string",
        {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE",
         "allowSingleQuotes": "false"},
    )  # fmt: skip
    text = batch.withColumn("_text", F.col("value").cast("string")).withColumn("_json", json)
    reason = F.expr(_reason(schema, now))
    return text.withColumn("_r", F.col("_json.r")).withColumn("_reason", reason)


def _reason(schema: TableSchema, now: str) -> str:
    """SQL: why a record cannot be read, most telling first. `now`: SQL too, in ms."""
    version = "_r.schema_version"
    cases = [
        ("value IS NULL", "'no value'"),
        ("NOT is_valid_utf8(_text)", "'not UTF-8'"),
        (f"{version} <> {schema.version}", f"concat('unknown schema_version ', {version})"),
        (f"_json.{_CORRUPT} IS NOT NULL OR _json.end IS NOT TRUE", _to_blame(schema)),
        ("_r IS NULL", "'not an object'"),
        *((_misfit(column), _wrong(column)) for column in schema.columns if _misfit(column)),
        (f"{version} IS NULL", "'without schema_version'"),
        ("_r.event_time_ms IS NULL", "'without event_time_ms'"),
        (f"_r.event_time_ms < {now} - {BEHIND_DAYS_MAX * DAY_MS}",
         f"'event_time_ms is more than {BEHIND_DAYS_MAX} days old'"),
        (f"_r.event_time_ms > {now} + {AHEAD_MS_MAX}",
         "'event_time_ms is more than a day ahead'"),
    ]  # fmt: skip
    return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " END"


def _wrong(column: Column) -> str:
    return f"'field {column.name} is not {column.type}'"


def _misfit(column: Column) -> str:
    """SQL: a value that from_json took although it is none of the column's; "" if it takes none."""
    name = f"_r.`{column.name}`"
    if column.type == "string":
        return f"NOT rlike(schema_of_variant({name}), '{_LOOKS['string']}')"
    if column.type == "double":
        return f"(isnan({name}) OR abs({name}) > {_FINITE_MAX})"
    if column.type == "buckets":
        return (
            f"exists({name}, b -> b IS NULL OR b.le IS NULL OR b.count IS NULL"
            " OR isnan(b.le) OR b.count < 0)"
        )
    return ""


def _to_blame(schema: TableSchema) -> str:
    """SQL for a value that from_json refused: the first field that does not fit."""
    whole = "try_parse_json(concat('{\"r\":', _text, ',\"end\":true}'))"
    value = f"variant_get({whole}, '$.r')"
    cases = [
        (f"variant_get({whole}, '$.end') IS NULL", "'not JSON'"),
        (f"NOT startswith(schema_of_variant({value}), 'OBJECT')", "'not an object'"),
    ]
    refused = []
    for column in schema.columns:
        field = f"variant_get({value}, '$.{column.name}')"
        given = f"schema_of_variant({field}) <> 'VOID'"
        if column.type == "buckets":  # whatever else fits: an element of it is to blame
            refused.append((given, _wrong(column)))
            continue
        cases.append((f"NOT rlike(schema_of_variant({field}), '{_LOOKS[column.type]}')",
                      _wrong(column)))  # fmt: skip
    first = " ".join(f"WHEN {when} THEN {then}" for when, then in (*cases, *refused))
    return f"CASE {first} ELSE 'not JSON of this table' END"


def _split(parsed: DataFrame, schema: TableSchema) -> Decoded:
    from pyspark.sql import functions as F

    event_time = F.timestamp_millis(F.col("_r.event_time_ms")).alias("event_time")
    fields = [_field(column) for column in schema.columns]
    good = parsed.where(F.col("_reason").isNull())
    bad = parsed.where(F.col("_reason").isNotNull())
    return Decoded(
        good.select(*_source(), event_time, *fields),
        bad.select(*_source(), "key", "value", F.col("_reason").alias("reason")),
    )


def _field(column: Column) -> SparkColumn:
    from pyspark.sql import functions as F

    if column.type == "string":
        return F.expr(f"CAST(_r.`{column.name}` AS STRING)").alias(column.name)
    return F.col(f"_r.`{column.name}`").alias(column.name)
