"""Reading tables: the rows of live parts, as one DataFrame, beside a running stream.

What a table consists of is asked of its ledger once, when `read` is called; what is written,
compacted or expired afterwards does not touch that DataFrame, since maintenance keeps files that
are live no longer for a day. Rows come with the columns of the table's schema, in its order;
fields that a part was written without are null.

A writer's retries: two records that are equal in the schema's `retries` are one, sent twice. They
are looked for when `read` is called (a job over a few columns, of the dates that are asked for) and
only where there are any does the DataFrame leave them out, all but the lowest offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_jobs.files import files_of, join
from spark_jobs.ledger import DIRECTORY, Gap, Ledger, LedgerError, LiveUnit, State, unit_directory
from spark_jobs.schema import LIVE, PLAIN, QUARANTINE, TABLES, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Moment = datetime | int | None  # with a time zone; or ms since 1970 UTC

DATA: Final = "data"
SET_ASIDE: Final = "quarantine"
DATE: Final = "event_date"
# By which column a table's rows are in time; the first that it has.
_TIMES: Final = ("event_time", "hour", "window_start", "landed_at")
# A writer that sent more than this twice: its rows are compared by a sort instead of a broadcast.
REPEATED_MAX: Final = 100_000


def schema_of(name: str) -> TableSchema:
    """LedgerError for a name that no table has."""
    from spark_jobs.rollup import HOURLY  # which reads tables itself

    found = {t.name: t for t in (HOURLY, LIVE, PLAIN, QUARANTINE, *TABLES.values())}.get(name)
    if found is None:
        raise LedgerError(f"no table is called {name!r}", f"there are {', '.join(TABLES)}, plain")
    return found


def table_uri(root: str, name: str) -> str:
    return join(root, name)


def ledger(spark: SparkSession, root: str, name: str) -> Ledger:
    """The ledger of a table, whether there is anything in it or not."""
    return Ledger(files_of(spark, root), table_uri(root, name))


def names(spark: SparkSession, root: str) -> list[str]:
    """The tables below `root` that have a ledger."""
    files = files_of(spark, root)
    return [
        entry.name
        for entry in files.entries(root)
        if entry.is_directory and files.exists(join(root, entry.name, DIRECTORY))
    ]


def read(
    spark: SparkSession,
    root: str,
    name: str,
    *,
    since: Moment = None,
    until: Moment = None,
    repeats: bool = False,
) -> DataFrame:
    """Rows with since <= time < until, no row where there is no table. See the module.

    `name`: one of schema.TABLES, plain, live, hourly; or quarantine, which is read over all tables.
    """
    if name == QUARANTINE.name:
        return quarantine(spark, root, since=since, until=until)
    schema = schema_of(name)
    state = ledger(spark, root, name).state()
    frame = _between(of_parts(spark, table_uri(root, name), state, schema, _dates(since, until)),
                     schema, since, until)  # fmt: skip
    return frame if repeats or not schema.retries else without_repeats(frame, schema.retries)


def quarantine(
    spark: SparkSession, root: str, *, since: Moment = None, until: Moment = None
) -> DataFrame:
    """What could not be read, of all tables, by the time it landed."""
    found = no_rows(spark, QUARANTINE)
    for name in names(spark, root):
        state = ledger(spark, root, name).state()
        if state.quarantine:
            uri = table_uri(root, name)
            found = found.unionByName(
                of_parts(spark, uri, state, QUARANTINE, _dates(since, until), set_aside=True)
            )
    return _between(found, QUARANTINE, since, until)


def gaps(spark: SparkSession, root: str) -> dict[str, tuple[Gap, ...]]:
    """By table: the offsets that were given up."""
    states = {name: ledger(spark, root, name).state() for name in names(spark, root)}
    return {name: state.gaps for name, state in states.items() if state.gaps}


def of_parts(
    spark: SparkSession,
    uri: str,
    state: State,
    schema: TableSchema,
    dates: tuple[str, str] = ("", ""),
    *,
    set_aside: bool = False,
) -> DataFrame:
    """The rows of live parts; `dates`: first and last, ISO, "" for no bound."""
    first, last = dates
    units = state.quarantine if set_aside else state.units
    wanted = [
        unit for unit in units
        if (not first or unit.date >= first) and (not last or unit.date <= last)
    ]  # fmt: skip
    return of_units(spark, uri, wanted, schema, set_aside=set_aside)


def of_units(
    spark: SparkSession,
    uri: str,
    units: Iterable[LiveUnit],
    schema: TableSchema,
    *,
    set_aside: bool = False,
) -> DataFrame:
    """The rows of these parts of the table at `uri`."""
    base = join(uri, SET_ASIDE if set_aside else DATA)
    paths = [part_uri(base, unit) for unit in units]
    if not paths:
        return no_rows(spark, schema)
    frame = spark.read.schema(schema.row_type()).option("basePath", base).parquet(*paths)
    return frame.selectExpr(*schema.column_names)


def part_uri(base: str, unit: LiveUnit) -> str:
    return join(base, unit_directory(unit.unit), f"{DATE}={unit.date}")


def no_rows(spark: SparkSession, schema: TableSchema) -> DataFrame:
    """An empty table; made by the JVM alone, so that no Python worker starts."""
    columns = ", ".join(
        f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
        for field in schema.row_type().fields
    )
    return spark.sql(f"SELECT {columns} FROM range(0)")


def without_repeats(frame: DataFrame, retries: tuple[str, ...]) -> DataFrame:
    """Of rows that are equal in `retries` the one with the lowest offset; null is equal to nothing.

    Runs a job that groups by these columns.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    topic_id = F.coalesce("source_topic_id", F.lit("")).alias("source_topic_id")  # of old rows
    identity = F.struct("source_partition", "source_offset", topic_id)
    known = " AND ".join(f"{column} IS NOT NULL" for column in retries)
    repeated = (
        frame.where(known)
        .groupBy(*retries)
        .agg(F.count("*").alias("_count"), F.min(identity).alias("_kept"))
        .where("_count > 1")
        .drop("_count")
    )
    found = repeated.limit(REPEATED_MAX + 1).collect()
    if not found:
        return frame
    if len(found) > REPEATED_MAX:
        order = Window.partitionBy(*retries).orderBy(identity)
        numbered = frame.withColumn("_number", F.row_number().over(order))
        return numbered.where(f"_number = 1 OR NOT ({known})").drop("_number")
    small = frame.sparkSession.createDataFrame(found, repeated.schema)
    joined = frame.join(F.broadcast(small), list(retries), "left")
    kept = joined.where(F.col("_kept").isNull() | (F.col("_kept") == identity))
    return kept.select(*frame.columns)


def _between(frame: DataFrame, schema: TableSchema, since: Moment, until: Moment) -> DataFrame:
    column = next(name for name in _TIMES if name in schema.column_names)
    asked = [
        f"{column} {how} timestamp_millis({to_ms(moment)}L)"
        for how, moment in ((">=", since), ("<", until))
        if moment is not None
    ]
    return frame.where(" AND ".join(asked)) if asked else frame


def _dates(since: Moment, until: Moment) -> tuple[str, str]:
    return ("" if since is None else date_of(to_ms(since)),
            "" if until is None else date_of(to_ms(until)))  # fmt: skip


def date_of(time_ms: int) -> str:
    """The date of a moment, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date().isoformat()


def to_ms(moment: datetime | int) -> int:
    """ms since 1970 UTC. LedgerError for a time that does not say where it is meant."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise LedgerError(f"{moment}: a time without a time zone", "add +00:00 for UTC")
    return round(moment.timestamp() * 1000)
