"""The tables: one for each topic, and what a row has beside the record's own fields.

One table drives three things: the JSON that a writer makes (`encode`), the types that Spark reads
(`row_type`) and docs/topics.md. The broker's and perf's tables are beside their
writers (kbroker/metrics/samples.py, perf/results_table.py); the jobs' own is here.

A raw row is IDENTITY, then the table's columns, flat and nullable. Identity is (source_topic_id,
source_partition, source_offset), which a record has once for ever: a topic that was deleted and
made again has another id, and its offsets begin anew. Rows that landed before ids were kept have
none.
`retries` names the columns by which a writer's own repetitions are known. Fields that are new keep
the version; a version that a reader does not know is quarantined.

pyspark is imported where a StructType is made, so that the rest works without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kbroker.metrics import json_record, samples
from kbroker.metrics.samples import FieldType
from perf import results_table

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ColumnType = Literal[FieldType, "int", "timestamp", "date", "binary"]

WATERMARK_MINUTES: Final = 10
PROGRESS_VERSION: Final = 1
PROGRESS_TOPIC: Final = "kbroker.spark.progress"
TOPIC_CONFIGS: Final = samples.TOPIC_CONFIGS  # of every topic of measurements


class Column(NamedTuple):
    name: str
    type: ColumnType
    help: str


SOURCE: Final = (
    Column("source_topic", "string", "The topic it was read from."),
    Column("source_topic_id", "string",
           "Its id, which no other topic has; null where brokers have none, and in old rows."),
    Column("source_partition", "int", "The partition it was read from."),
    Column("source_offset", "long", "Its offset there."),
    Column("source_time", "timestamp", "The record's own timestamp."),
    Column("landed_at", "timestamp", "When the batch that wrote the row began."),
)  # fmt: skip
# A record's place, which distinguishes and orders its rows.
PLACE: Final = ("source_topic", "source_topic_id", "source_partition", "source_offset")
# Before the record's fields, in every raw row.
IDENTITY: Final = (
    *SOURCE,
    Column(
        "late", "boolean",
        f"Older than the newest event of earlier batches by more than {WATERMARK_MINUTES} minutes.",
    ),
    Column("event_time", "timestamp", "Of event_time_ms; the record's timestamp if it has none."),
    Column("event_date", "date", "Of event_time, in UTC: the partition directory."),
)  # fmt: skip


class Kind(NamedTuple):
    """One shape of record in a topic: `value` in the column that tells kinds apart."""

    value: str
    help: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class TableSchema:
    """A table; with a `topic` the record's value is one JSON object of `columns`.

    `key` says what a record's key is. `retries` are the columns that are equal in two records that
    are one, sent twice. `kind_column` tells the kinds apart.
    """

    name: str
    help: str
    columns: tuple[Column, ...]
    topic: str = ""
    version: int = 1
    key: str = ""
    retries: tuple[str, ...] = ()
    kind_column: str = ""
    kinds: tuple[Kind, ...] = ()
    identity: tuple[Column, ...] = IDENTITY

    @property
    def json_columns(self) -> dict[str, FieldType]:
        """Name -> type of the record's JSON; empty for a table that is not of JSON."""
        if not self.topic:
            return {}
        return {column.name: column.type for column in self.columns}  # type: ignore[misc]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Of a row, in order."""
        return tuple(column.name for column in (*self.identity, *self.columns))

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """A record's value as its writer sends it. ValueError names a field that does not fit."""
        return json_record.encode(self.json_columns, record)

    def row_type(self) -> StructType:
        """A row of the table: identity, then the record's fields."""
        return _struct((*self.identity, *self.columns))


def _struct(columns: tuple[Column, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, _spark_type(kind)) for name, kind, _ in columns])


def _spark_type(kind: ColumnType) -> DataType:
    from pyspark.sql import types

    if kind == "buckets":
        bucket = types.StructType(
            [
                types.StructField("le", types.DoubleType()),
                types.StructField("count", types.LongType()),
            ]
        )
        return types.ArrayType(bucket)
    simple: dict[str, type[DataType]] = {
        "long": types.LongType,
        "double": types.DoubleType,
        "string": types.StringType,
        "boolean": types.BooleanType,
        "int": types.IntegerType,
        "timestamp": types.TimestampType,
        "date": types.DateType,
        "binary": types.BinaryType,
    }
    return simple[kind]()


# --- the broker's samples and perf's results, as their writers have them ------------------------


def _metrics() -> TableSchema:
    described = {field.name: field.help for field in samples.COMMON}
    for kind in samples.KINDS:
        for field in kind.fields:
            growth = " Growth." if field.growth else ""
            described.setdefault(field.name, f"{field.help}{growth}")
    return TableSchema(
        "metrics",
        "The broker's samples of itself (metrics.topic.enable).",
        tuple(Column(name, kind, described[name]) for name, kind in samples.columns().items()),
        topic=samples.TOPIC,
        version=samples.SCHEMA_VERSION,
        key="broker[:topic:partition]",
        retries=("broker_id", "run_ms", "sequence"),
        kind_column="metric_name",
        kinds=tuple(
            Kind(kind.metric_name, kind.help, tuple(field.name for field in kind.fields))
            for kind in samples.KINDS
        ),
    )


_RESULT_KINDS: Final = {
    "block": "One run of one piece of work on one broker.",
    "verdict": "What a study concludes.",
    "figure": "A single number.",
}


def _results() -> TableSchema:
    table = results_table
    fields = (*table.COMMON, *table.DIMENSIONS, *table.FIGURES, *table.VERDICT, *table.FIGURE)
    return TableSchema(
        "results",
        "What `kbroker perf` measured (--results-bootstrap).",
        tuple(Column(*field) for field in fields),
        topic=table.TOPIC,
        version=table.SCHEMA_VERSION,
        key="run_id",
        retries=("run_id", "sequence"),
        kind_column="kind",
        kinds=tuple(
            Kind(kind, _RESULT_KINDS[kind], tuple(field.name for field in table.FIELDS[kind]))
            for kind in table.KINDS
        ),
    )


# --- the streaming job's own progress ---------------------------------------------------------

_PROGRESS_COMMON: Final = (
    Column("schema_version", "long", "Of this table."),
    Column("run_id", "string", "One run of the streaming job: a random UUID."),
    Column("sequence", "long", "The record's number within the run."),
    Column("event_time_ms", "long", "When Spark reported it, in ms since 1970 UTC."),
    Column("kind", "string", "start, batch or end."),
    Column("query", "string", "The query's name with its version, such as metrics-v1."),
    Column("query_id", "string", "The checkpoint's own id: stays over restarts."),
    Column("query_run_id", "string", "Of this start of the query."),
    Column("source", "string", "kafka or kbroker."),
    Column("topic", "string", "The topic that the query reads."),
)
_PROGRESS_BATCH: Final = (
    Column("batch_id", "long", "The batch's number in its checkpoint."),
    Column("input_rows", "long", "Records in it."),
    Column("input_rows_per_s", "double", "Records that arrived a second since the batch before."),
    Column("processed_rows_per_s", "double", "Records landed a second while the batch ran."),
    Column("batch_ms", "long", "The whole batch."),
    Column("latest_offset_ms", "long", "Asking the broker where its topic ends."),
    Column("planning_ms", "long", "Spark's planning."),
    Column("wal_commit_ms", "long", "Writing the checkpoint's offset log."),
    Column("add_batch_ms", "long", "Reading, writing the rows, and the ledger."),
    Column("commit_offsets_ms", "long", "Writing the checkpoint's commit log."),
    Column("lag_records", "long", "Records in the topic that have not landed, all partitions."),
    Column("lag_records_max", "long", "The same of the partition with the largest lag."),
    Column("partitions", "long", "Partitions of the topic."),
    Column("late_rows", "long", "Rows that came after their watermark."),
    Column("quarantined_rows", "long", "Rows that could not be read."),
    Column("watermark_ms", "long", "The stream's watermark, in ms since 1970 UTC."),
    Column("state_rows", "long", "Rows that Spark keeps for open windows."),
)
_PROGRESS_END: Final = (Column("error", "string", "Why the query ended; null: it was asked to."),)


def _progress() -> TableSchema:
    names = tuple(column.name for column in _PROGRESS_BATCH)
    return TableSchema(
        "progress",
        "How the streaming job fares: its lag, its rows a second, its batches' times.",
        (*_PROGRESS_COMMON, *_PROGRESS_BATCH, *_PROGRESS_END),
        topic=PROGRESS_TOPIC,
        version=PROGRESS_VERSION,
        key="query",
        retries=("run_id", "sequence"),
        kind_column="kind",
        kinds=(
            Kind("start", "A query began.", ()),
            Kind("batch", "A batch was done, or there was nothing to do for a while.", names),
            Kind("end", "A query ended.", ("error",)),
        ),
    )


METRICS: Final = _metrics()
RESULTS: Final = _results()
PROGRESS: Final = _progress()

# By the table's name: those that a topic of JSON fills.
TABLES: Final[dict[str, TableSchema]] = {
    table.name: table for table in (METRICS, RESULTS, PROGRESS)
}
BY_TOPIC: Final[dict[str, TableSchema]] = {table.topic: table for table in TABLES.values()}
# The pipeline's own topics: reports mark them, so that they are not taken for a user's load.
OWN_TOPICS: Final = frozenset(BY_TOPIC)

# Any other topic that is named lands as it is.
PLAIN: Final = TableSchema(
    "plain",
    "Records of any other topic, as bytes.",
    (
        Column("key", "binary", "The record's key."),
        Column("value", "binary", "The record's value."),
    ),
)
QUARANTINE: Final = TableSchema(
    "quarantine",
    "Records that could not be read, with the reason.",
    (
        Column("key", "binary", "The record's key."),
        Column("value", "binary", "The record's value."),
        Column("reason", "string", "Why: not JSON, an unknown version, a field of another type."),
    ),
    identity=(*SOURCE, Column("event_date", "date", "Of landed_at: the partition directory.")),
)

# Sums of the samples while the stream runs, written again as they grow (spark_jobs/live.py).
LIVE: Final = TableSchema(
    "live",
    "Messages by minute and partition, while the stream runs.",
    (
        Column("window_start", "timestamp", "The minute, UTC."),
        Column("broker_id", "long", "Who measured."),
        Column("topic", "string", "The topic."),
        Column("partition", "long", "The partition's number."),
        Column("message_count", "long", "Records appended in that minute, so far."),
        Column("bytes_in", "long", "Bytes of record batches appended in that minute, so far."),
        Column("landed_at", "timestamp", "When the sum was written."),
        Column("event_date", "date", "Of window_start, in UTC: the partition directory."),
    ),
    identity=(),
)


def table_for(topic: str) -> TableSchema:
    """The table that a topic's records land in."""
    return BY_TOPIC.get(topic, PLAIN)
