"""A small table and a small topic for tests: a sink with a checkpoint that was written by hand.

A record's value is `run sequence seconds`, its event at NOON + seconds; `bad` cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger
from spark_jobs.schema import Column, TableSchema
from spark_jobs.sink import Checkpoint, Decode, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "things"
NOON: Final = datetime(2020, 11, 22, 12, tzinfo=UTC)
NOW_MS: Final = int((NOON + timedelta(days=1)).timestamp() * 1000)
THINGS: Final = TableSchema(
    "things",
    "For tests.",
    (Column("run_id", "string", "Who."), Column("sequence", "long", "Which.")),
    topic=TOPIC,
    retries=("run_id", "sequence"),
)


def decode(batch: DataFrame) -> tuple[DataFrame, DataFrame]:
    from pyspark.sql import functions as F

    words = F.split(F.col("value").cast("string"), " ")
    source = batch.selectExpr(
        "topic AS source_topic",
        "partition AS source_partition",
        "offset AS source_offset",
        "timestamp AS source_time",
        "key",
        "value",
    )
    good = source.where("value <> X'626164'").select(
        "source_topic",
        "source_partition",
        "source_offset",
        "source_time",
        F.timestamp_seconds(F.lit(NOON.timestamp()) + words[2].cast("long")).alias("event_time"),
        F.nullif(words[0], F.lit("-")).alias("run_id"),
        words[1].cast("long").alias("sequence"),
    )
    return good, source.where("value = X'626164'").withColumn("reason", F.lit("bad"))


class Topic:
    """Records, and the checkpoint of a query that reads them in batches."""

    _NOBODY: Final = f"(X'', X'', '{TOPIC}', 0, 0L, TIMESTAMP'2020-11-22 12:00:00')"

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        query_id: str = "q-1",
        *,
        topic_id: str = "id-1",
        schema: TableSchema = THINGS,
        decode: Decode = decode,
    ) -> None:
        self._spark = spark
        self._schema = schema
        self._decode = decode
        self._ends: dict[int, int] = {}
        self._topic_id = topic_id
        self.root = str(place)
        self.checkpoint = place / "checkpoints" / query_id
        for name in ("offsets", "sources/0"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
        self.records: dict[int, list[str]] = {0: [], 1: []}

    def begin_at(self, ends: Mapping[int, int]) -> None:
        self._note("sources/0/0", ends)

    def write(self, partition: int, *values: str) -> None:
        self.records[partition] += values

    def plan(self, batch_id: int) -> dict[int, int]:
        """Spark's offset log: the batch ends where the topic ends now."""
        ends = {partition: len(values) for partition, values in self.records.items()}
        self._note(f"offsets/{batch_id}", ends)
        return ends

    def batch(self, since: Mapping[int, int], until: Mapping[int, int]) -> DataFrame:
        rows = [
            f"(CAST(NULL AS BINARY), X'{value.encode().hex()}', '{TOPIC}', {partition},"
            f" {offset}L, TIMESTAMP'{NOON:%Y-%m-%d %H:%M:%S}')"
            for partition, values in self.records.items()
            for offset, value in enumerate(values)
            if since.get(partition, 0) <= offset < until[partition]
        ]
        names = "(key, value, topic, partition, offset, timestamp)"
        if not rows:
            return self._spark.sql(f"SELECT * FROM VALUES {self._NOBODY} AS t{names} LIMIT 0")
        return self._spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t{names}")

    def land(self, batch_id: int) -> None:
        """What has been written since the batch before."""
        since, self._ends = self._ends, self.plan(batch_id)
        self.sink().write(self.batch(since, self._ends), batch_id)

    def _note(self, name: str, ends: Mapping[int, int]) -> None:
        offsets = json.dumps({TOPIC: {str(partition): end for partition, end in ends.items()}})
        (self.checkpoint / name).write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{offsets}')

    def ledger(self) -> Ledger:
        return Ledger(LocalFiles(), f"{self.root}/{self._schema.name}")

    def sink(self, **options: Any) -> Sink:
        options.setdefault("clock_ms", lambda: NOW_MS)
        return Sink(
            self.ledger(),
            self._schema,
            Source(TOPIC, self._topic_id, "things-v1"),
            Checkpoint(LocalFiles(), str(self.checkpoint)),
            self._decode,
            **options,
        )


def identities(frame: DataFrame) -> list[tuple[int, int]]:
    found: Iterable[Any] = frame.select("source_partition", "source_offset").collect()
    return sorted((row[0], row[1]) for row in found)
