"""The last minutes by partition, while the stream runs: table `live`.

A second query over the samples sums PartitionMessages by minute and partition. After each batch it
writes the minutes that changed, each with its sum so far: of the rows of one minute and partition
the greatest counts, which is what `windows` gives.

A watermark bounds what Spark keeps, the sums and the numbers of the samples that are in them: one
that a writer sent twice counts once, and one that comes more than WATERMARK_MINUTES after the
newest is in the raw table and in no window. So this is for looking at the present, and reports are
made of the raw table. For the same reason nothing here stops the job: offsets that are gone are
gone over, a checkpoint that is lost is begun anew with the topic's records.

Its checkpoint goes with the topic's id: one that was made anew has windows of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spark_jobs import tables
from spark_jobs.decode import good_rows
from spark_jobs.files import join
from spark_jobs.ledger import Commit, Ledger, LiveUnit, batch_key, new_unit, now_ms, unit_directory
from spark_jobs.resume import Work
from spark_jobs.schema import LIVE, METRICS, WATERMARK_MINUTES
from spark_jobs.sink import Checkpoint
from spark_jobs.source import TopicState
from spark_jobs.topic_query import Setting, TopicQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WINDOW: Final = "1 minute"
# Of the state that Spark keeps, in the checkpoint's name: another plan cannot go on with it.
PLAN: Final = "once"
_BY: Final = ("window_start", "broker_id", "topic", "partition")
_SUMS: Final = ("message_count", "bytes_in")


def summed(samples: DataFrame) -> DataFrame:
    """Rows of `metrics`, a stream's or a batch's -> sums by minute and partition."""
    from pyspark.sql import functions as F

    counted = samples.where(F.col("metric_name") == "PartitionMessages")
    late = counted.withWatermark("event_time", f"{WATERMARK_MINUTES} minutes")
    by_minute = _once(late).groupBy(F.window("event_time", WINDOW).alias("window"), *_BY[1:])
    # try_sum: a sum that does not fit, of counts that any producer may have written, is null.
    sums = by_minute.agg(*(F.try_sum(name).alias(name) for name in _SUMS))
    return sums.select(F.col("window.start").alias("window_start"), *_BY[1:], *_SUMS)


def _once(samples: DataFrame) -> DataFrame:
    """Without a writer's repetitions; a sample that lacks one of its numbers repeats nothing.

    Of a stream its numbers are kept until the watermark has passed the sample's own time, after
    which the sums would not take it either.
    """
    from pyspark.sql import functions as F

    numbered = " AND ".join(f"{name} IS NOT NULL" for name in METRICS.retries)
    place = F.struct("source_partition", "source_offset")
    told_apart = samples.withColumn("_place", F.when(~F.expr(numbered), place))
    keys = [*METRICS.retries, "_place"]
    if samples.isStreaming:
        return told_apart.dropDuplicatesWithinWatermark(keys)
    return told_apart.dropDuplicates(keys)


def windows(spark: SparkSession, root: str, **when: Any) -> DataFrame:
    """One row for each minute and partition: the newest sum. `when` as tables.read takes it."""
    from pyspark.sql import functions as F

    rows = tables.read(spark, root, LIVE.name, **when)
    return rows.groupBy(*_BY).agg(*(F.max(name).alias(name) for name in _SUMS))


class LiveSink:
    """A batch's sums into the table: once for each batch, though any number would do."""

    def __init__(self, ledger: Ledger, checkpoint: Checkpoint, query: str) -> None:
        self.ledger, self._checkpoint, self._query = ledger, checkpoint, query

    def write(self, sums: DataFrame, batch_id: int) -> Commit | None:
        """None if it had been written before."""
        from pyspark.sql import functions as F

        key = batch_key(self._checkpoint.query_id(), batch_id)
        if self.ledger.committed(key):
            return None
        landed_ms, unit = now_ms(), new_unit("batch")
        uri = join(self.ledger.uri, tables.DATA, unit_directory(unit))
        rows = sums.withColumn("landed_at", F.timestamp_millis(F.lit(landed_ms)))
        rows = rows.withColumn(tables.DATE, F.to_date("window_start")).select(*LIVE.column_names)
        rows.write.partitionBy(tables.DATE).parquet(uri)
        self.ledger.files.sync(uri)
        written = sums.sparkSession.read.schema(LIVE.row_type()).parquet(uri)
        counts = written.groupBy(F.col(tables.DATE).cast("string").alias("date")).count().collect()
        units = tuple(LiveUnit(unit, row["date"], int(row["count"])) for row in counts)
        commit = Commit(key, "batch", landed_ms, units, query=self._query)
        return commit if self.ledger.commit(commit) else None


class LiveQuery(TopicQuery):
    """Beside the query that lands the samples; it does without what is gone."""

    def __init__(self, setting: Setting, version: int) -> None:
        work = Work(METRICS.topic, LIVE.name, f"{LIVE.name}-v{version}")
        super().__init__(setting, work, LIVE)

    @property
    def name(self) -> str:
        return self.work.query

    def _launch(self, state: TopicState) -> Any:
        setting = self._setting
        own = f"{self.name}-{PLAN}-{state.topic_id or 'any'}"
        place = join(setting.checkpoints, self.work.topic, own)
        checkpoint = join(place, f"{self._number(place):06d}")
        sink = LiveSink(self._another_ledger(), Checkpoint(setting.files, checkpoint), self.name)
        starts = {partition: first for partition, (first, _) in state.offsets.items()}
        records = setting.endpoint.stream(
            setting.spark, self.work.topic, starts, setting.records_max, fail_on_loss=False
        )
        sums = summed(good_rows(records, METRICS.name))
        return self._started(sums, checkpoint, sink, mode="update")

    def _number(self, place: str) -> int:
        """The newest checkpoint; after two failures in a row, the next one."""
        numbers = [int(entry.name) for entry in self._setting.files.entries(place)
                   if entry.name.isascii() and entry.name.isdigit()]  # fmt: skip
        newest = max(numbers, default=1)
        return newest + 1 if self._failures > 1 and numbers else newest

    def _landed(self) -> object:
        return dict(self._ledger.state().batches)
