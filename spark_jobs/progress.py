"""How the streaming job fares, as records of the topic kbroker.spark.progress.

Spark tells a listener of each batch; that makes a record (schema.PROGRESS) and puts it into a
queue, no more: the listener runs in Spark's own event thread. A thread of ours publishes the
queue, acks=all and idempotent, by the connector's own producer (so TLS and SASL are the job's) or
by our client where there is no connector. Nothing here can stop the job: a record that cannot be
published is given up with one line for the whole trouble, and counted.

The query that lands this very topic has no records: each of its batches would make the next one.

Bounds: QUEUE_MAX records wait; CLOSE_WAIT_S for the last ones at the end; an idle query has a
record once in IDLE_EVERY_S.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from spark_jobs.resume import Say, Work
from spark_jobs.schema import LIVE, PROGRESS, PROGRESS_TOPIC, PROGRESS_VERSION, TOPIC_CONFIGS
from spark_jobs.source import Endpoint, Inspector, java_trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.ledger import Commit

QUEUE_MAX: Final = 10_000
BATCH_MAX: Final = 500
CLOSE_WAIT_S: Final = 10.0
IDLE_EVERY_S: Final = 60.0
_NOTES_MAX: Final = 1_000
_TIMINGS: Final = {
    "triggerExecution": "batch_ms",
    "latestOffset": "latest_offset_ms",
    "queryPlanning": "planning_ms",
    "walCommit": "wal_commit_ms",
    "addBatch": "add_batch_ms",
    "commitOffsets": "commit_offsets_ms",
}

Record = dict[str, Any]


class Noted(NamedTuple):
    """Of a batch's commit: all its rows, and how many of them were late, or set aside.

    `rows` is None where they are not the records that were read but sums of them.
    """

    rows: int | None
    late: int
    aside: int


class Publisher(Protocol):
    def publish(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        """Key and value of each; returns when all are written, or raises whatever happened."""
        ...

    def close(self) -> None: ...


class Progress:
    """Between `begin` and `close`. `note` and the listener's methods: any thread."""

    def __init__(self, endpoint: Endpoint, inspector: Inspector, publisher: Publisher, say: Say):
        self.dropped = 0
        self._endpoint, self._inspector, self._publisher = endpoint, inspector, publisher
        self._say = say
        self._run_id = str(uuid.uuid4())
        self._sequence = 0
        self._works: dict[str, Work] = {}  # by the query's name in Spark
        self._names: dict[str, str] = {}  # of running queries, by run id
        self._idle_s: dict[str, float] = {}
        self._notes: dict[tuple[str, int], Noted] = {}
        self._queue: queue.Queue[Record | None] = queue.Queue(QUEUE_MAX)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._publish, name="progress", daemon=True)
        self._listener: Any = None

    def begin(self, spark: SparkSession, works: Mapping[str, Work]) -> None:
        self._works = {name: work for name, work in works.items() if work.topic != PROGRESS_TOPIC}
        self._listener = _listener(self)
        spark.streams.addListener(self._listener)
        self._thread.start()

    def close(self, spark: SparkSession) -> None:
        """Waits for Spark's last events, and for the queue, as long as the bound says."""
        deadline_s = time.monotonic() + CLOSE_WAIT_S
        with self._changed:
            self._changed.wait_for(lambda: not self._names, CLOSE_WAIT_S / 2)
        if self._listener is None:
            return  # it never began
        spark.streams.removeListener(self._listener)
        try:
            self._queue.put(None, timeout=CLOSE_WAIT_S / 2)
        except queue.Full:
            pass  # its thread is stuck at a broker that is away, and goes with the process
        self._thread.join(max(0.1, deadline_s - time.monotonic()))
        if self.dropped:
            self._say(f"{PROGRESS_TOPIC}: {self.dropped} records were given up")

    def note(self, name: str, batch_id: int, commit: Commit) -> None:
        """What a batch had that Spark does not know: its rows, late ones and quarantined ones."""
        aside = sum(unit.rows for unit in commit.quarantine)
        work = self._works.get(name)
        sums = work is not None and work.table == LIVE.name
        rows = None if sums else sum(unit.rows for unit in commit.units) + aside
        while len(self._notes) >= _NOTES_MAX:
            self._notes.pop(next(iter(self._notes)), None)
        self._notes[name, batch_id] = Noted(rows, commit.late, aside)

    # --- in Spark's event thread ---

    def started(self, event: Any) -> None:
        if event.name in self._works:
            self._names[str(event.runId)] = event.name
            self._put("start", event.name, event.id, event.runId, {})

    def progressed(self, event: Any) -> None:
        progress = event.progress
        if progress.name in self._works:
            noted = self._notes.pop((progress.name, progress.batchId), None)
            self._put("batch", progress.name, progress.id, progress.runId, figures(progress, noted))

    def idle(self, event: Any) -> None:
        name, now_s = self._names.get(str(event.runId)), time.monotonic()
        if name is not None and now_s - self._idle_s.get(name, float("-inf")) >= IDLE_EVERY_S:
            self._idle_s[name] = now_s
            self._put("batch", name, event.id, event.runId, {"input_rows": 0})

    def terminated(self, event: Any) -> None:
        with self._changed:
            name = self._names.pop(str(event.runId), None)
            self._changed.notify_all()
        if name is not None:
            error = event.exception
            line = {} if error is None else {"error": str(error).strip().split("\n", 1)[0][:500]}
            self._put("end", name, event.id, event.runId, line)

    def _put(self, kind: str, name: str, query_id: Any, run_id: Any, more: Record) -> None:
        work = self._works[name]
        record = {
            "schema_version": PROGRESS_VERSION, "run_id": self._run_id, "sequence": self._sequence,
            "event_time_ms": time.time_ns() // 1_000_000, "kind": kind, "query": work.query,
            "query_id": str(query_id), "query_run_id": str(run_id),
            "source": self._endpoint.kind, "topic": work.topic, **more,
        }  # fmt: skip
        self._sequence += 1
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    # --- in our own thread ---

    def _publish(self) -> None:
        more, trouble = True, ""
        while more:
            records = [self._queue.get()]
            while len(records) < BATCH_MAX and not self._queue.empty():
                records.append(self._queue.get_nowait())
            more = records[-1] is not None
            waiting = [record for record in records if record is not None]
            try:
                if waiting:
                    self._publisher.publish([self._encoded(record) for record in waiting])
                trouble = ""
            except Exception as error:
                self.dropped += len(waiting)
                line = _line(error)
                if line != trouble:
                    self._say(f"{PROGRESS_TOPIC}: {line}; the job goes on without its own progress")
                trouble = line
        self._publisher.close()

    def _encoded(self, record: Record) -> tuple[bytes, bytes]:
        ends = record.pop("_ends", None)
        if ends is not None and "lag_records" not in record:
            try:
                state = self._inspector.describe(record["topic"])
            except Exception:  # a figure that is missing is no reason to miss the others
                state = None
            if state is not None:
                latest = {partition: until for partition, (_, until) in state.offsets.items()}
                record.update(_lag(ends, latest))
        return record["query"].encode(), PROGRESS.encode(record)


def figures(progress: Any, noted: Noted | None) -> Record:
    """Of Spark's StreamingQueryProgress; what it does not say is left out.

    Rows are those of the commit. A batch that made none had them committed before the driver died:
    they are counted by its offsets, unless it is a checkpoint's first, which Spark gives no begin.
    """
    source = progress.sources[0]
    first, ends, latest = (
        _offsets(text) for text in (source.startOffset, source.endOffset, source.latestOffset)
    )
    durations = progress.durationMs or {}
    found: Record = {name: int(durations[key]) for key, name in _TIMINGS.items()
                     if key in durations}  # fmt: skip
    rows = noted.rows if noted else None
    if noted is not None and rows is None:
        rows = int(progress.numInputRows)  # of sums Spark alone knows how many records they are of
    if rows is None and first:
        rows = sum(until - first.get(partition, 0) for partition, until in ends.items())
    if rows is not None:
        found["input_rows"] = rows
        if found.get("batch_ms"):
            found["processed_rows_per_s"] = 1000 * rows / found["batch_ms"]
    if ends:
        found["partitions"] = len(ends)
        found |= _lag(ends, latest) if latest else {"_ends": ends}
    found["batch_id"] = int(progress.batchId)
    found["input_rows_per_s"] = float(progress.inputRowsPerSecond)
    if noted is not None:
        found["late_rows"], found["quarantined_rows"] = noted.late, noted.aside
    if progress.stateOperators:
        found["state_rows"] = sum(int(one.numRowsTotal) for one in progress.stateOperators)
    return found


def _lag(ends: Mapping[int, int], latest: Mapping[int, int]) -> Record:
    lags = [max(0, until - ends.get(partition, until)) for partition, until in latest.items()]
    return {"lag_records": sum(lags), "lag_records_max": max(lags, default=0)}


def _offsets(text: str | None) -> dict[int, int]:
    """Of the one topic in a source's JSON; empty where there is none."""
    try:
        found = json.loads(text or "{}")
        (topic,) = found.values()
        return {int(partition): int(offset) for partition, offset in topic.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _line(error: Exception) -> str:
    if hasattr(error, "java_exception"):
        return " ".join(java_trouble(error))
    return str(error).split("\n", 1)[0] or type(error).__name__


def _listener(progress: Progress) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Names what Spark calls; a fault here ends in Spark's log, not in the query."""

        def onQueryStarted(self, event: Any) -> None:
            progress.started(event)

        def onQueryProgress(self, event: Any) -> None:
            progress.progressed(event)

        def onQueryIdle(self, event: Any) -> None:
            progress.idle(event)

        def onQueryTerminated(self, event: Any) -> None:
            progress.terminated(event)

    return Listener()


def publisher(spark: SparkSession, endpoint: Endpoint) -> Publisher:
    """As the job reads."""
    if endpoint.kind == "kafka":
        return JavaPublisher(spark, endpoint.client_properties())
    return PeerPublisher(endpoint.bootstrap, endpoint.properties)


class JavaPublisher:
    """By the connector's producer, in the driver's JVM. One thread."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        self._jvm: Any = spark._jvm
        self._properties = {
            **properties, "acks": "all", "enable.idempotence": "true",
            "delivery.timeout.ms": "30000", "request.timeout.ms": "10000", "linger.ms": "5",
            "max.block.ms": "10000", "client.id": "kbroker-spark-progress",
        }  # fmt: skip
        self._producer: Any = None

    def publish(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        kafka = self._jvm.org.apache.kafka
        if self._producer is None:
            self._make_topic()
            bytes_of = kafka.common.serialization.ByteArraySerializer
            self._producer = kafka.clients.producer.KafkaProducer(
                self._java_properties(), bytes_of(), bytes_of()
            )
        record = kafka.clients.producer.ProducerRecord
        sent = [self._producer.send(record(PROGRESS_TOPIC, key, value)) for key, value in values]
        self._producer.flush()
        for future in sent:
            future.get()

    def _java_properties(self) -> Any:
        properties = self._jvm.java.util.Properties()
        for name, value in self._properties.items():
            properties.setProperty(name, value)
        return properties

    def _make_topic(self) -> None:
        """With its retention, unless it is there."""
        from py4j.protocol import Py4JJavaError

        admin = self._jvm.org.apache.kafka.clients.admin
        optional = self._jvm.java.util.Optional
        topic = admin.NewTopic(PROGRESS_TOPIC, optional.empty(), optional.empty())
        client = admin.Admin.create(self._java_properties())
        try:
            client.createTopics(
                self._jvm.java.util.List.of(topic.configs(TOPIC_CONFIGS))
            ).all().get()
        except Py4JJavaError as error:
            if java_trouble(error)[0] != "TopicExistsException":
                raise
        finally:
            client.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(self._jvm.java.time.Duration.ofSeconds(1))


class PeerPublisher:
    """By our own client. One thread."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties`: of the client, for TLS and SASL."""
        self._bootstrap = bootstrap
        self._properties = properties or {}
        self._publisher: Any = None

    def publish(self, values: Sequence[tuple[bytes, bytes]]) -> None:
        from kbroker.peer.client_properties import login_of
        from kbroker.peer.messages import NewTopic
        from kbroker.peer.publisher import Publisher as PeerTopic
        from kbroker.protocol.record_batch import Record as LogRecord

        if self._publisher is None:
            topic = NewTopic(PROGRESS_TOPIC, configs=TOPIC_CONFIGS)
            login = login_of("client properties", self._properties)
            self._publisher = PeerTopic(
                self._bootstrap, topic, client_id="kbroker-spark-progress", login=login
            )
        try:
            self._publisher.send([LogRecord(key=key, value=value) for key, value in values])
        except BaseException:
            self.close()  # to be made anew
            raise

    def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
