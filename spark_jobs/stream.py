"""The streaming job: topics of records into tables, exactly once.

    python -m spark_jobs.stream --bootstrap-server 127.0.0.1:9092 --tables ./tables
    spark-submit --jars ... --py-files ... spark_jobs/stream.py --bootstrap-server ... --tables URI

One query for each topic: the broker's samples, perf's results and this job's own progress land in
tables of their own (spark_jobs/schema.py), any other topic that is named lands as bytes in `plain`.
With `--trigger available-now` it lands what is there and ends; with a number of seconds it goes on
until SIGTERM or SIGINT, waits for a topic that is not there and for a broker that is away.

Exit codes: 0 done or asked to stop; 1 failed; 2 usage; 4 records are gone (`--accept-loss` records
the gap and goes on); 5 another job lands the same topic into the same tables.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if __package__ in (None, ""):  # run as a file by spark-submit
    from pathlib import Path

    sys.path[0] = str(Path(__file__).resolve().parents[1])

from kbroker.errors import UserError
from spark_jobs.errors import EXIT_FAILED, EXIT_USAGE, first_line
from spark_jobs.files import files_of, join
from spark_jobs.live import LiveQuery
from spark_jobs.lock import JobLock
from spark_jobs.progress import Progress, publisher
from spark_jobs.resume import Say, Work
from spark_jobs.schema import PROGRESS_TOPIC, TABLES, table_for
from spark_jobs.session import session
from spark_jobs.sink import Step
from spark_jobs.source import endpoint
from spark_jobs.topic_query import Setting, TopicQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of every query: a change that cannot go on from an older checkpoint raises it.
QUERY_VERSION: Final = 1
DEFAULT_TOPICS: Final = tuple(schema.topic for schema in TABLES.values())
RECORDS_MAX: Final = 1_000_000  # in a batch: bounds what is kept of it, and what a retry repeats
AWAY_S_MAX: Final = 60.0
STOP_WAIT_S: Final = 15.0  # for the batches that are under way, together
_TURN_S: Final = 0.2
_POLL_S: Final = 0.05
_EVERY_S_MAX: Final = 24 * 3600.0


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.stream", description="Lands topics in tables, exactly once."
    )
    add_source_options(parser)
    add = parser.add_argument
    add("--tables", required=True, metavar="URI", help="where the tables are")
    add("--checkpoints", metavar="URI", help="Spark's checkpoints; default: TABLES/_checkpoints")
    add("--topic", action="append", metavar="NAME", dest="topics",
        help=f"may be repeated; default: {', '.join(DEFAULT_TOPICS)}")  # fmt: skip
    add("--trigger", default="available-now", type=_trigger, metavar="SECONDS|available-now",
        help="land what is there and end (default), or go on: a batch every so many")  # fmt: skip
    add("--max-records", type=_count, default=RECORDS_MAX, metavar="N",
        help=f"in a batch at most (default {RECORDS_MAX:,})")  # fmt: skip
    add("--accept-loss", action="store_true", help="what is gone becomes a gap in the table")
    add("--live", action="store_true",
        help="also messages and bytes by minute and partition, in table live")  # fmt: skip
    add("--no-progress", action="store_true",
        help=f"do not write the job's own progress to {PROGRESS_TOPIC}")  # fmt: skip
    add("--wait", type=float, default=AWAY_S_MAX, metavar="SECONDS",
        help="available-now: how long to wait for a broker that is away (default 60)")  # fmt: skip
    return parser.parse_args(argv)


def add_source_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The options by which every job that reads topics finds its brokers and its Spark."""
    add = parser.add_argument
    add("--bootstrap-server", required=required, metavar="HOST:PORT", help="the brokers")
    add("--source", choices=("auto", "kafka", "kbroker"), default="auto",
        help="Spark's connector, or our own source without jars; auto: what is there")  # fmt: skip
    add("--kafka-option", action="append", default=[], metavar="NAME=VALUE",
        help="a client property, such as security.protocol=SASL_SSL; may be repeated")  # fmt: skip
    add("--command-config", metavar="FILE", help="client properties, as Kafka's own tools take")
    add("--master", help="Spark's master; default: the submitter's, or local[2]")
    add("--ui", action="store_true", help="Spark's web page")


def _trigger(text: str) -> float | None:
    """None: available now."""
    if text == "available-now":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= _EVERY_S_MAX:
        raise argparse.ArgumentTypeError("available-now, or seconds from 0.1 to 86400")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("a number from 1 on")
    return int(text)


def works(topics: Sequence[str], version: int) -> list[Work]:
    """What lands where; a topic that is named twice is meant once."""
    found = []
    for topic in dict.fromkeys(topics):
        table = table_for(topic).name
        found.append(Work(topic, table, f"{table}-v{version}"))
    return found


def land(
    spark: SparkSession,
    options: argparse.Namespace,
    *,
    stop: threading.Event,
    say: Say,
    step: Step = lambda name, batch_id: None,
    version: int = QUERY_VERSION,
) -> None:
    """Lands until all is landed, or until `stop`. JobError says what ended it before."""
    reached = endpoint(spark, options.bootstrap_server, options.source, options.kafka_option,
                       options.command_config)  # fmt: skip
    files = files_of(spark, options.tables)
    root = files.qualify(options.tables)
    inspector = reached.inspector(spark)
    progress = None
    if not options.no_progress:
        progress = Progress(reached, inspector, publisher(spark, reached), say)
    setting = Setting(
        spark, reached, inspector, files, root,
        files.qualify(options.checkpoints or join(root, "_checkpoints")),
        options.trigger, options.accept_loss, options.max_records,
        options.wait if options.trigger is None else float("inf"), say, step,
        progress.note if progress is not None else lambda name, batch_id, commit: None,
    )  # fmt: skip
    wanted = works(options.topics or DEFAULT_TOPICS, version)
    queries = [TopicQuery(setting, work, table_for(work.topic)) for work in wanted]
    if options.live:
        queries.append(LiveQuery(setting, version))
    locks = [JobLock(root, work.topic) for work in wanted]
    try:
        for lock in locks:
            lock.take()
        if progress is not None:
            progress.begin(spark, {query.name: query.work for query in queries})
        while not stop.is_set() and not all(query.done for query in queries):
            for query in queries:
                query.turn()
            stop.wait(_TURN_S)
    finally:
        _stop(queries)
        if progress is not None:
            progress.close(spark)
        for lock in locks:
            lock.release()
        inspector.close()


def _stop(queries: Sequence[TopicQuery]) -> None:
    """Each between two of its batches, or all the same when the time is over."""
    deadline_s = time.monotonic() + STOP_WAIT_S
    while not all([query.stopped() for query in queries]) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    for query in queries:
        query.stopped(at_once=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    try:
        options = arguments(argv)
    except SystemExit as error:
        return int(error.code or 0) and EXIT_USAGE
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        spark = session(options.master, "kbroker-stream", source=options.source, ui=options.ui)
        _stop_on_signals(stop)  # Spark takes SIGINT for itself
        try:
            land(spark, options, stop=stop, say=_say)
        finally:
            spark.stop()
    except UserError as error:
        _say(f"error: {error.message}")
        return error.exit_code
    except OSError as error:
        _say(f"error: {first_line(error)}")
        return EXIT_FAILED
    return 0


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
