"""One topic's query: begun, watched, begun again, and why it ended.

    waiting ──(the topic is there)──> running ──(available-now: all landed)──> done
       ^                                │
       └──(the broker is away, a batch failed)──┘        trouble that does not go: JobError

A query that fails is looked into before it is begun again: is the broker away (then it waits and
says so), are records gone (LostRange), does another job write to the table (Locked)? Anything else
is tried again, and given up after FAILURES_MAX tries in a row in which nothing landed.

Owner: the job's main thread, but for methods that are marked as the query's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from spark_jobs import resume
from spark_jobs.decode import decoder
from spark_jobs.errors import JobError, Locked, LostRange, first_line
from spark_jobs.files import Files, join
from spark_jobs.ledger import Commit, Ledger, LedgerConflict, LedgerError, UnitGone
from spark_jobs.resume import Say, Work
from spark_jobs.schema import TableSchema
from spark_jobs.sink import READ_BACK, Checkpoint, Sink, Source, Step
from spark_jobs.source import BrokerAway, Endpoint, Inspector, TopicState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Note = Callable[[str, int, Commit], None]


class BatchSink(Protocol):
    """Where batches go; `ledger` belongs to the query's thread."""

    ledger: Ledger

    def write(self, batch: DataFrame, batch_id: int, /) -> Commit | None:
        """What was committed; None if it had been before."""
        ...


FAILURES_MAX: Final = 3
PARTS_MANY: Final = 20_000  # two weeks of a batch a minute without a merge
# How long a query that is not running waits until it looks again.
LOOK_AGAIN_S: Final = 2.0
# Trouble that trying again does not mend: what Spark's text has -> the line for a person.
_WAYS_OUT: Final = {
    "overflows when converting": "a record's timestamp is none that Spark's connector can read;"
    " --source kbroker reads it as null",
    "CONCURRENT_STREAM_LOG_UPDATE": "another job uses this checkpoint; stop one of them",
}


@dataclass(frozen=True)
class Setting:
    """What all queries of a job share. `every_s` None: land what is there, then end."""

    spark: SparkSession
    endpoint: Endpoint
    inspector: Inspector
    files: Files
    tables: str
    checkpoints: str
    every_s: float | None
    accept_loss: bool
    records_max: int
    away_s_max: float
    say: Say
    step: Step
    note: Note  # (query's name in Spark, batch id, what was committed)


class TopicQuery:
    def __init__(self, setting: Setting, work: Work, schema: TableSchema) -> None:
        self.work: Final = work
        self.done = False
        self._setting = setting
        self._schema = schema
        self._ledger = self._another_ledger()
        self._query: Any = None
        self._error: BaseException | None = None  # what the sink raised: Spark makes text of it
        self._topic_id = ""
        self._failures = 0
        self._landed_before: object = None
        self._look_at_s = 0.0
        self._away_since_s: float | None = None
        self._said = ""
        self._parts_said = PARTS_MANY

    def _another_ledger(self) -> Ledger:
        return Ledger(self._setting.files, join(self._setting.tables, self.work.table))

    @property
    def running(self) -> bool:
        return self._query is not None

    def turn(self) -> None:
        """Looks after the query once, without waiting for it. JobError: it is over."""
        if self.done:
            return
        if self._query is not None:
            if self._query.isActive:
                return
            failed = self._query.exception()
            self._query = None
            if failed is None and self._error is None:
                self.done = self._setting.every_s is None
                return
            self._look_into(failed)
        if time.monotonic() >= self._look_at_s:
            self._begin()

    def stopped(self, *, at_once: bool = False) -> bool:
        """Ends the query if it is between two batches, or `at_once`; whether it has ended.

        A batch that is not committed is as if it had not been begun.
        """
        query = self._query
        if query is None:
            return True
        if not at_once and query.isActive and query.status["isTriggerActive"]:
            return False
        self._query = None
        try:
            query.stop()
        except Exception as error:  # its thread is stuck, and goes with the process
            self._setting.say(f"{self.work.topic}: {first_line(error)}")
        return True

    # --- begin ---

    def _begin(self) -> None:
        state = self._state()
        if state is None:
            return
        self._topic_id, self._error = state.topic_id, None
        try:
            self._landed_before = self._landed()
            self._query = self._launch(state)
        except LedgerError as error:
            raise JobError(f"{self.work.topic}: {error.message}") from error
        except OSError as error:
            self._again(error)
        self._ledger = self._another_ledger()  # what it has read is not kept twice

    def _launch(self, state: TopicState) -> Any:
        """The query of Spark's, started."""
        setting, work = self._setting, self.work
        plan = resume.plan(
            work, setting.files, self._ledger, setting.checkpoints, state,
            accept_loss=setting.accept_loss, say=setting.say,
        )  # fmt: skip
        source = Source(work.topic, plan.topic_id, work.query)
        sink = Sink(
            self._another_ledger(),  # of the query's thread
            self._schema, source, Checkpoint(setting.files, plan.checkpoint), decoder(work.table),
            step=self._step,
        )  # fmt: skip
        records = setting.endpoint.stream(
            setting.spark, work.topic, plan.starts, setting.records_max
        )
        return self._started(records, plan.checkpoint, sink)

    def _started(
        self, frame: DataFrame, checkpoint: str, sink: BatchSink, mode: str = "append"
    ) -> Any:
        """`sink.write` is called for each batch, in the query's own thread."""

        def batch(rows: DataFrame, batch_id: int) -> None:
            try:
                commit = sink.write(rows, batch_id)
            except BaseException as error:
                self._error = error
                # Spark looks through the text by a pattern, whose recursion a long one breaks.
                raise RuntimeError(first_line(error)) from None
            if commit is not None:
                self._setting.note(self.name, batch_id, commit)
                self._remind(sink.ledger.parts())

        writer = frame.writeStream.foreachBatch(batch).queryName(self.name).outputMode(mode)
        writer = writer.option("checkpointLocation", checkpoint)
        every_s = self._setting.every_s
        if every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()

    def _landed(self) -> object:
        """What changes when a batch has landed."""
        return self._ledger.ends().get(self.work.topic)

    @property
    def name(self) -> str:
        """Unique in the session, and what progress records and Spark's page show."""
        work = self.work
        return work.query if self._schema.topic else f"{work.query}:{work.topic}"

    def _state(self) -> TopicState | None:
        """The topic now; None while it is not there or no broker answers, which is said once."""
        setting, topic = self._setting, self.work.topic
        self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        try:
            state = setting.inspector.describe(topic)
        except BrokerAway as error:
            self._away(error)
            return None
        self._away_since_s = None
        if state is None:
            self._say_once(f"{topic}: there is no such topic yet")
            self.done = setting.every_s is None
            return None
        self._said = ""
        return state

    def _away(self, error: BrokerAway) -> None:
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        if now_s - self._away_since_s >= self._setting.away_s_max:
            raise error
        self._say_once(f"{self.work.topic}: {error.message}; waiting for it")

    def _say_once(self, line: str) -> None:
        if line != self._said:
            self._setting.say(line)
        self._said = line

    # --- in the query's own thread ---

    def _step(self, name: str, batch_id: int) -> None:
        """After the read and before the commit: was it the topic that we began with?

        Ids are never used again, so one that is right now was right while the batch was read.
        """
        if name == READ_BACK and self._topic_id:
            state = self._setting.inspector.describe(self.work.topic)
            if state is None or state.topic_id != self._topic_id:
                raise LostRange(f"{self.work.topic}: it was deleted while it was read")
        self._setting.step(name, batch_id)

    def _remind(self, parts: int) -> None:
        """That maintenance does not run; again when there are twice as many."""
        if parts >= self._parts_said:
            self._parts_said = 2 * parts
            self._setting.say(
                f"{self.work.table}: {parts} small parts, which make reports slow and need memory;"
                f" run python -m spark_jobs.maintain --tables {self._setting.tables} once a day"
            )

    # --- after a failure ---

    def _look_into(self, failed: Any) -> None:
        """Raises what does not go by itself; otherwise the query is begun again soon."""
        topic, error = self.work.topic, self._error
        self._error = None
        if isinstance(error, LedgerConflict) and not isinstance(error, UnitGone):
            raise Locked(
                f"{topic}: another job writes to this table ({error.message}); stop one of them"
            )
        if isinstance(error, LedgerError) and not isinstance(error, UnitGone):
            raise JobError(f"{topic}: {error.message}")
        if isinstance(error, JobError) and not isinstance(error, BrokerAway | LostRange):
            raise error
        for mark, way_out in _WAYS_OUT.items():
            if mark in str(error or failed):
                raise JobError(f"{topic}: {way_out}")
        self._again(error or failed)

    def _again(self, error: object) -> None:
        """Soon, unless it was in vain FAILURES_MAX times in a row."""
        try:
            landed = self._landed() != self._landed_before
        except OSError:  # which is what the trouble is about
            landed = False
        self._failures = 1 if landed else self._failures + 1
        self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        topic, line = self.work.topic, first_line(error)
        if self._failures >= FAILURES_MAX and self._state() is not None:
            raise JobError(f"{topic}: {line} ({self._failures} tries in a row)")
        self._setting.say(f"{topic}: {line}; looking again in {LOOK_AGAIN_S:g} s")
