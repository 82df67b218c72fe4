"""The data source `kbroker`: topics as Spark's Kafka connector gives them, without its jars.

    kbroker_source.register(spark)
    spark.readStream.format("kbroker").option("kafka.bootstrap.servers", "...")...

Columns, options and the JSON of offsets are those of the Kafka source as far as OPTIONS goes, so a
job may change from one to the other, its checkpoint included in what it says of offsets. An option
that is not known here is refused rather than ignored. TLS and SASL are those of our own client:
`kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`.

Planning (offsets) happens in a Python process beside the driver, reading in the executors' Python
workers; kbroker has to be installed for both, since its client has compiled parts that no archive
carries. Where it is not, importing this module is a SourceError, which Spark takes to the driver.
Records leave as Arrow batches, one for each fetch.

No loss is silent: a range that begins before the log's first offset, or ends after its last,
ends the query with one line that names it (retention overtook the reader, or the topic was made
anew). With failOnDataLoss=false it goes on with the rest, as the Kafka source does.

Bounds: FETCH_BYTES for one fetch, UNPACKED_BYTES_MAX for one batch that is compressed, STALL_S
without a record that must be there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kbroker.errors import ErrorCode, KafkaError, UserError
from spark_jobs.kbroker_options import (
    LostRecordsError,
    Offsets,
    Options,
    SourceError,
    Span,
    limited,
    resolved,
    shrunk,
    spans,
)

try:
    from kbroker.peer.client import Client
    from kbroker.peer.client_properties import login_of
    from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED, Aborted
    from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FetchResult
    from kbroker.types import TopicPartition
except ImportError as error:
    raise SourceError(
        f"--source kbroker needs kbroker installed on {socket.gethostname()}, and {error}: pip"
        " install kbroker there (driver and every worker), or give the connector with --jars"
    ) from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NAME: Final = "kbroker"
FETCH_BYTES: Final = 8 << 20
UNPACKED_BYTES_MAX: Final = 64 << 20
STALL_S: Final = 60.0

_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
_HEADERS: Final = ", headers array<struct<key: string, value: binary>>"
_MICROS_MAX: Final = 2**63 - 1


# --- where logs begin and end -------------------------------------------------------------------


class Logs:
    """The topics of one reader, asked over one connection that is opened when it is needed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def bounds(self) -> tuple[Offsets, Offsets]:
        """The first offset of each partition and the one after its last that is to be read."""
        try:
            if self._client is None:
                self._client = _connect(self._options)
            places = self._places(self._client)
            first = self._client.list_offsets(dict.fromkeys(places, EARLIEST_TIMESTAMP))
            last = self._client.list_offsets(
                dict.fromkeys(places, LATEST_TIMESTAMP), isolation=_isolation(self._options)
            )
        except (KafkaError, UserError) as error:
            self.close()
            raise SourceError(f"{self._options.bootstrap}: {error.message}") from None
        for where, result in (*first.items(), *last.items()):
            if result.error is not ErrorCode.NONE:
                raise SourceError(f"{where}: {result.error.name}")
        return _by_topic(first), _by_topic(last)

    def _places(self, client: Client) -> list[TopicPartition]:
        chosen = self._options.assigned
        found = []
        for topic in self._options.topics:
            there = client.partitions(topic)
            wanted = there if chosen is None else chosen[topic]
            if missing := sorted(set(wanted) - set(there)):
                raise SourceError(f"topic {topic} has no partition {missing[0]}")
            found += [TopicPartition(topic, partition) for partition in wanted]
        return found


def _connect(options: Options) -> Client:
    """UserError: TLS or SASL of the options are not served."""
    login = login_of("the options kafka.*", options.properties)
    return Client(
        options.bootstrap, client_id="kbroker-spark", timeout_ms=options.timeout_ms, login=login
    )


def _isolation(options: Options) -> int:
    return READ_COMMITTED if options.committed else READ_UNCOMMITTED


def _by_topic(found: Mapping[TopicPartition, Any]) -> Offsets:
    offsets: Offsets = {}
    for where, result in sorted(found.items()):
        offsets.setdefault(where.topic, {})[str(where.partition)] = result.offset
    return offsets


# --- reading ------------------------------------------------------------------------------------


class Range(InputPartition):
    """What one task reads."""

    def __init__(self, span: Span) -> None:
        super().__init__(tuple(span))
        self.where = TopicPartition(span.topic, span.partition)
        self.start, self.end = span.start, span.end


def read(options: Options, part: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches, one for each fetch."""
    position, moved_at = part.start, time.monotonic()
    try:
        with _connect(options) as client:
            client.partitions(part.where.topic)
            while position < part.end:
                found = client.fetch(
                    {part.where: position}, max_bytes=FETCH_BYTES,
                    partition_max_bytes=FETCH_BYTES, isolation=_isolation(options),
                )  # fmt: skip
                batch, after = None, position
                if part.where in found:
                    result = found[part.where]
                    gone = _gone(part, position, result.error, result.log_start_offset)
                    if gone and options.fail_on_loss:
                        raise LostRecordsError(gone)
                    if gone:
                        after = _behind_the_gap(client, part, position)
                    else:
                        batch, after = _decoded(options, part, position, result)
                if after > position:
                    position, moved_at = after, time.monotonic()
                elif time.monotonic() - moved_at > STALL_S:
                    raise SourceError(f"{part.where}: nothing at offset {position} for {STALL_S} s")
                if batch is not None:
                    yield batch
    except (KafkaError, UserError) as error:
        raise SourceError(f"{part.where}: {error.message}") from None


def _gone(part: Range, position: int, error: ErrorCode, log_start: int) -> str:
    """The line about records that are not in the log any more; "" if the answer is good."""
    if error is ErrorCode.OFFSET_OUT_OF_RANGE or log_start > position:
        gone = f"{position} to {min(log_start, part.end)}" if log_start > position else position
        return (
            f"lost: {part.where} begins at {log_start}, {gone} is gone: retention was faster, or "
            "the topic was made anew"
        )
    if error is not ErrorCode.NONE:
        raise SourceError(f"{part.where}: {error.name}")
    return ""


def _behind_the_gap(client: Client, part: Range, position: int) -> int:
    """Where the log begins now; the range's end where the log ends before the position."""
    (found,) = client.list_offsets({part.where: EARLIEST_TIMESTAMP}).values()
    if found.error is not ErrorCode.NONE:
        raise SourceError(f"{part.where}: {found.error.name}")
    return min(found.offset, part.end) if found.offset > position else part.end


def _decoded(
    options: Options, part: Range, position: int, fetched: FetchResult
) -> tuple[pa.RecordBatch | None, int]:
    """The records from `position` to the range's end, and the offset to go on from."""
    import pyarrow as pa

    from kbroker.protocol.record_batch import decode_batches
    from kbroker.protocol.wire import ProtocolError

    records = []
    kinds = []
    aborted = Aborted(fetched.aborted)
    try:
        for found in decode_batches(fetched.records, UNPACKED_BYTES_MAX):
            if aborted.holds(found):
                position = max(position, found.last_offset + 1)
                continue
            if found.last_offset < position:
                continue
            if not found.control:
                kept = [one for one in found.records if position <= one.offset < part.end]
                records += kept
                kinds += [int(found.log_append_time)] * len(kept)
            position = found.last_offset + 1
            if position >= part.end:
                break
    except ProtocolError as error:
        raise SourceError(f"{part.where}: offset {position} cannot be read: {error}") from None
    if not records:
        return None, position
    count = len(records)
    columns = [
        pa.array([one.key for one in records], pa.binary()),
        pa.array([one.value for one in records], pa.binary()),
        pa.repeat(pa.scalar(part.where.topic, pa.string()), count),
        pa.repeat(pa.scalar(part.where.partition, pa.int32()), count),
        pa.array([one.offset for one in records], pa.int64()),
        pa.array([_micros(one.timestamp_ms) for one in records], pa.timestamp("us", "UTC")),
        pa.array(kinds, pa.int32()),
    ]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    if options.headers:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        headers = [
            [{"key": name, "value": value} for name, value in one.headers] or None
            for one in records
        ]
        columns.append(pa.array(headers, pa.list_(pa.field("element", pair))))
        names.append("headers")
    return pa.RecordBatch.from_arrays(columns, names=names), position


def _micros(timestamp_ms: int) -> int | None:
    """A producer may stamp a record with any 64 bits; a stamp without microseconds is no time."""
    micros = timestamp_ms * 1000
    return micros if -_MICROS_MAX <= micros <= _MICROS_MAX else None


# --- what Spark calls -----------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        logs = Logs(self._options)
        try:
            first, last = logs.bounds()
        finally:
            logs.close()
        start = resolved(self._options.starting, first, last)
        end = resolved(self._options.ending, first, last)
        loss = self._options.fail_on_loss
        return [Range(span) for span in spans(start, end, first, last, fail_on_loss=loss)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, _range(partition))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each start of a query; Spark's planning calls it from one thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logs = Logs(options)
        self._frozen: Offsets | None = None
        self._latest: Offsets | None = None

    def initialOffset(self) -> Offsets:
        first, last = self._logs.bounds()
        return resolved(self._options.starting, first, last)

    def prepareForTriggerAvailableNow(self) -> None:
        """This run ends where the logs end now."""
        self._frozen = self._logs.bounds()[1]

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.rows_max
        return ReadMaxRows(rows_max) if rows_max else ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """LostRecordsError if a log ends before `start` and that is not accepted."""
        now = self._logs.bounds()[1]
        if self._options.fail_on_loss:
            shrunk(start, now)
        self._latest = now if self._frozen is None else self._frozen
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return limited(start, self._latest, rows_max)

    def reportLatestOffset(self) -> Offsets | None:
        """For the query's progress: lag is the difference."""
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        loss = self._options.fail_on_loss
        found = spans(start, end, *self._logs.bounds(), fail_on_loss=loss)
        return [Range(span) for span in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, _range(partition))

    def commit(self, end: Offsets) -> None:
        """The checkpoint has the offsets; nothing is committed to brokers."""

    def stop(self) -> None:
        self._logs.close()


def _range(partition: InputPartition) -> Range:
    if not isinstance(partition, Range):
        raise TypeError(f"not a range: {partition!r}")
    return partition


class KBrokerSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return _COLUMNS + _HEADERS if headers else _COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(Options.of(self.options, stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(Options.of(self.options, stream=True))


def register(spark: SparkSession) -> None:
    """Make `format("kbroker")` known to a session; harmless a second time."""
    spark.dataSource.register(KBrokerSource)
