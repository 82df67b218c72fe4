"""Batches of a streaming query into a table, exactly once.

Spark calls `write` at least once for each batch, perhaps again after the driver died, with the same
number and the same ranges of offsets. The order here is what makes it exactly once:

1. A batch whose key is in the ledger is done. (The driver died between ledger and Spark's log.)
2. The ranges of offsets come from the checkpoint's offset log, not from the rows: they are what
   Spark will have read, whether rows came of it or not. They must begin where the ledger ends.
3. Good rows are written into a unit of their own, then what is quarantined into a second one. Until
   they are committed no reader sees them; an attempt that dies leaves garbage, no rows.
4. The unit is read back: rows by date, late ones, the newest event, and that each row's offset is
   within the ranges.
5. One commit names both units. It is the only moment at which anything changes.

`step(name, batch id)` is called before and after each of them, so that tests can end the process
there. One thread, the one that runs the query's batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_jobs import tables
from spark_jobs.files import Files, join
from spark_jobs.ledger import (
    Commit,
    Ledger,
    LedgerDamaged,
    LedgerError,
    LiveUnit,
    Ranges,
    batch_key,
    new_unit,
    now_ms,
    unit_directory,
)
from spark_jobs.schema import QUARANTINE, WATERMARK_MINUTES, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Decode = Callable[["DataFrame"], "tuple[DataFrame, DataFrame | None]"]
Step = Callable[[str, int], None]

# The names that `step` gets, in order; a batch that is in the ledger already ends with SKIPPED.
BEGUN: Final = "begun"
WRITTEN: Final = "written"
SET_ASIDE: Final = "set aside"
READ_BACK: Final = "read back"
COMMITTED: Final = "committed"
SKIPPED: Final = "skipped"
STEPS: Final = (BEGUN, WRITTEN, SET_ASIDE, READ_BACK, COMMITTED)

TASKS_PER_CORE: Final = 4  # at most: each writes a file for each date

WATERMARK_MS: Final = WATERMARK_MINUTES * 60_000


@dataclass(frozen=True)
class Source:
    """What a query reads: `topic_id` "" where the broker has none; `query` with its version."""

    topic: str
    topic_id: str
    query: str


class Checkpoint:
    """What a query's checkpoint says of its batches; read only, Spark writes it."""

    def __init__(self, files: Files, uri: str) -> None:
        self._files = files
        self._uri = files.qualify(uri)
        self._query_id = ""

    def query_id(self) -> str:
        """Made with the checkpoint, the same for ever after. LedgerDamaged where there is none."""
        if not self._query_id:
            uri = join(self._uri, "metadata")
            self._query_id = str(_json_of(self._files.read(uri), uri).get("id", ""))
        if not self._query_id:
            raise LedgerDamaged(f"{self._uri}: it names no query", "begin with a new checkpoint")
        return self._query_id

    def ranges(
        self, batch_id: int, topic: str, ends: Mapping[int, int]
    ) -> dict[int, tuple[int, int]]:
        """partition -> first offset, offset after the last, of all the topic's partitions.

        The first batch begins where the source noted it began. A partition that is in
        neither begins at its end in the ledger, or at 0: it is new.
        """
        until = self._offsets(join(self._uri, "offsets", str(batch_id)), topic)
        if batch_id > 0:
            before = self._offsets(join(self._uri, "offsets", str(batch_id - 1)), topic)
        else:
            before = self.initial(topic)
        return {
            partition: (before.get(partition, ends.get(partition, 0)), end)
            for partition, end in sorted(until.items())
        }

    def initial(self, topic: str) -> dict[int, int]:
        """Where the source noted that the first batch begins; {} where it did not."""
        uri = join(self._uri, "sources", "0", "0")
        try:
            return self._offsets(uri, topic)
        except (FileNotFoundError, LedgerDamaged):
            return {}  # not every source notes it

    def _offsets(self, uri: str, topic: str) -> dict[int, int]:
        """Of a log of Spark's: a line with its version, lines of JSON, one of them the source's."""
        for line in reversed(self._files.read(uri).splitlines()):
            if not line.startswith(b"{"):
                continue
            found = _json_of(line, uri).get(topic)
            if isinstance(found, dict):
                try:
                    return {int(partition): int(offset) for partition, offset in found.items()}
                except (TypeError, ValueError):
                    break
        raise LedgerDamaged(f"{uri}: it has no offsets of {topic}", "begin with a new checkpoint")


def _json_of(data: bytes, uri: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise LedgerDamaged(f"{uri}: it is not JSON", "begin with a new checkpoint")
    return found


@dataclass(frozen=True)
class _Facts:
    """What was found in a unit that was read back."""

    units: tuple[LiveUnit, ...] = ()
    late: int = 0
    max_event_time_ms: int | None = None


class Sink:
    """Of one query that reads one topic into one table."""

    def __init__(
        self,
        ledger: Ledger,
        schema: TableSchema,
        source: Source,
        checkpoint: Checkpoint,
        decode: Decode,
        *,
        clock_ms: Callable[[], int] = now_ms,
        step: Step = lambda name, batch_id: None,
    ) -> None:
        self.ledger = ledger
        self._schema = schema
        self._source = source
        self._checkpoint = checkpoint
        self._decode = decode
        self._clock_ms = clock_ms
        self._step = step

    def write(self, batch: DataFrame, batch_id: int) -> Commit | None:
        """For foreachBatch: what was committed; None if the batch had been before.

        LedgerConflict: the batch does not begin where the table ends. Nothing was changed then.
        """
        key = batch_key(self._checkpoint.query_id(), batch_id)
        if self.ledger.committed(key):
            self._step(SKIPPED, batch_id)
            return None
        source = self._source
        _, ends = self.ledger.ends().get(source.topic, ("", {}))
        ranges = self._checkpoint.ranges(batch_id, source.topic, ends)
        news = {
            partition: found
            for partition, found in ranges.items()
            if found[1] > found[0] or partition not in ends
        }
        bare = Commit(key, "batch", self._clock_ms(), topic=source.topic,
                      topic_id=source.topic_id, query=source.query, ranges=ranges)  # fmt: skip
        self.ledger.check(bare)
        self._step(BEGUN, batch_id)
        good, aside = self._write_units(batch, batch_id, news, self.ledger.newest_ms())
        commit = Commit(
            key, "batch", self._clock_ms(), good.units, aside.units,
            topic=source.topic, topic_id=source.topic_id, query=source.query, ranges=news,
            late=good.late, max_event_time_ms=good.max_event_time_ms,
        )  # fmt: skip
        if not self.ledger.commit(commit):
            self._step(SKIPPED, batch_id)
            return None
        self._step(COMMITTED, batch_id)
        return commit

    def _write_units(
        self, batch: DataFrame, batch_id: int, ranges: Ranges, newest_ms: int | None
    ) -> tuple[_Facts, _Facts]:
        from pyspark.storagelevel import StorageLevel

        landed_ms = self._clock_ms()
        good, aside = self._decode(batch)
        kept = None
        if aside is not None:  # read twice: the broker is asked once
            kept = batch.persist(StorageLevel.MEMORY_AND_DISK)
            good, aside = self._decode(kept)
        try:
            unit, aside_unit = new_unit("batch"), new_unit("aside")
            self._write(self._rows(good, landed_ms, newest_ms), tables.DATA, unit)
            self._step(WRITTEN, batch_id)
            if aside is not None:
                self._write(self._aside(aside, landed_ms), tables.SET_ASIDE, aside_unit)
            self._step(SET_ASIDE, batch_id)
        finally:
            if kept is not None:
                kept.unpersist()
        found = self._read_back(batch, tables.DATA, unit, ranges, landed_ms)
        found_aside = _Facts()
        if aside is not None:
            found_aside = self._read_back(batch, tables.SET_ASIDE, aside_unit, ranges, landed_ms)
        self._step(READ_BACK, batch_id)
        return found, found_aside

    def _rows(self, good: DataFrame, landed_ms: int, newest_ms: int | None) -> DataFrame:
        """As the table has them. `late`: below the watermark of the batches before."""
        from pyspark.sql import functions as F

        late = F.lit(False)
        if newest_ms is not None:
            watermark = F.timestamp_millis(F.lit(newest_ms - WATERMARK_MS))
            late = F.coalesce(F.col("event_time") < watermark, F.lit(False))
        return (
            good.withColumn("source_topic_id", F.lit(self._source.topic_id or None))
            .withColumn("landed_at", F.timestamp_millis(F.lit(landed_ms)))
            .withColumn("late", late)
            .withColumn(tables.DATE, F.to_date("event_time"))
            .select(*self._schema.column_names)
        )

    def _aside(self, rows: DataFrame, landed_ms: int) -> DataFrame:
        from pyspark.sql import functions as F

        return (
            rows.withColumn("source_topic_id", F.lit(self._source.topic_id or None))
            .withColumn("landed_at", F.timestamp_millis(F.lit(landed_ms)))
            .withColumn(tables.DATE, F.to_date("landed_at"))
            .select(*QUARANTINE.column_names)
        )

    def _write(self, rows: DataFrame, kind: str, unit: str) -> None:
        uri = join(self.ledger.uri, kind, unit_directory(unit))
        # A topic of a thousand partitions would be a thousand files in each batch.
        tasks_max = TASKS_PER_CORE * rows.sparkSession.sparkContext.defaultParallelism
        rows.coalesce(tasks_max).write.partitionBy(tables.DATE).parquet(uri)
        self.ledger.files.sync(uri)

    def _read_back(
        self, batch: DataFrame, kind: str, unit: str, ranges: Ranges, landed_ms: int
    ) -> _Facts:
        from pyspark.sql import functions as F

        uri = join(self.ledger.uri, kind, unit_directory(unit))
        aside = kind == tables.SET_ASIDE
        schema = QUARANTINE if aside else self._schema
        if not any(entry.is_directory for entry in self.ledger.files.entries(uri)):
            self.ledger.files.delete(uri)
            return _Facts()  # no date, no rows
        late = F.lit(0) if aside else F.sum(F.col("late").cast("long"))
        newest = F.lit(None).cast("long") if aside else F.unix_millis(F.max("event_time"))
        frame = batch.sparkSession.read.schema(schema.row_type()).parquet(uri)
        found = (
            frame.groupBy(F.col(tables.DATE).cast("string").alias("date"), "source_partition")
            .agg(
                F.count("*").alias("rows"),
                late.alias("late"),
                newest.alias("newest"),
                F.min("source_offset").alias("first"),
                F.max("source_offset").alias("last"),
            )
            .collect()
        )
        rows: dict[str, int] = {}
        for one in found:
            first, until = ranges.get(one["source_partition"], (0, 0))
            if not first <= one["first"] <= one["last"] < until:
                raise LedgerError(
                    f"{self._source.topic}-{one['source_partition']}: rows of offsets"
                    f" {one['first']} to {one['last']} in a batch of [{first}, {until})",
                    "begin with a new checkpoint",
                )
            rows[one["date"]] = rows.get(one["date"], 0) + int(one["rows"])
        newest_ms = [int(one["newest"]) for one in found if one["newest"] is not None]
        return _Facts(
            tuple(LiveUnit(unit, date, count) for date, count in sorted(rows.items())),
            sum(int(one["late"]) for one in found),
            min(max(newest_ms), landed_ms) if newest_ms else None,
        )
