"""The report: tables become one HTML file that opens anywhere, and the same as JSON.

    python -m spark_jobs.report --tables ./tables --out report.html --json report.json
    python -m spark_jobs.report --tables ./tables --bootstrap-server 127.0.0.1:9092
    spark-submit --jars ... --py-files ... spark_jobs/report.py --tables URI --out FILE.html

With `--bootstrap-server` it first lands what the topics hold (as spark_jobs.stream does once). It
reads the rows of a span only, by default the last day of samples and the last week of measurements,
and computes everything anew from them, so rows that came late count. What it shows of earlier days
comes from the hourly roll-ups: those of days with news are made anew first, as maintenance does it
(spark_jobs/rollup.py), unless --no-rollup is given or the tables may only be read. Otherwise it
writes nothing but the two files, each whole or not at all. It may run beside the streaming job,
maintenance and other reports.

Exit codes: 0 made; 1 failed, or a section could not be made; 2 usage; 10 made, and there is an
alarm: a broker that fell silent, topics that are not read any more, no samples at all, a disk that
is full within 72 h, or records that never landed.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __package__ in (None, ""):  # run as a file by spark-submit
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from kbroker.errors import UsageError, UserError
from spark_jobs import rollup, stream, tables
from spark_jobs.errors import EXIT_ALARM, EXIT_FAILED, EXIT_USAGE, JobError
from spark_jobs.html.page import render
from spark_jobs.report_model import Report
from spark_jobs.schema import QUARANTINE, TABLES
from spark_jobs.sections import everything
from spark_jobs.sections.cells import DAY_MS, days, span
from spark_jobs.sections.history import since_ms
from spark_jobs.sections.inputs import STALE_MS, Gap, Inputs
from spark_jobs.session import JAVA_OPTIONS, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLES_MS: Final = DAY_MS
RESULTS_MS: Final = 7 * DAY_MS
# A minute of many small questions: compiling them well costs more than it saves (measured: half of
# the processor time of a small report). Without effect under spark-submit, whose Java runs already.
_SHORT: Final = {JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

_AGO: Final = re.compile(r"(\d{1,6})(m|h|d)")
_AGO_MS: Final = {"m": 60_000, "h": 3_600_000, "d": DAY_MS}

Say = Callable[[str], None]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.report", description="Tables become a report: HTML and JSON."
    )
    add = parser.add_argument
    add("--tables", required=True, metavar="URI", help="where the tables are")
    add("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")
    add("--json", metavar="FILE", help="the same as JSON (default: beside the page)")
    add("--since", type=moment_of, metavar="TIME",
        help="2026-11-22T08:00, or 36h, 7d ago (default: 24h; measurements 7d)")  # fmt: skip
    add("--until", type=moment_of, metavar="TIME", help="to when (default: now)")
    add("--stale-after", type=_duration_ms, default=STALE_MS, metavar="TIME",
        help="an alarm if nothing landed for so long before the end (default: 15m; more where"
        " landing runs seldom: 5h, 2d)")  # fmt: skip
    add("--disk", choices=("ssd", "hdd"), default="ssd",
        help="which limit the alert on disks has (default: ssd)")  # fmt: skip
    add("--rollup-rows", type=_rows, default=rollup.ROWS_MAX, metavar="N",
        help="days with news are rolled up anew, the newest first, as long as they have so many"
        f" samples together (default: {rollup.ROWS_MAX:,})")  # fmt: skip
    add("--no-rollup", dest="rollup_rows", action="store_const", const=0,
        help="write nothing to the tables; the page says which roll-ups lag")  # fmt: skip
    stream.add_source_options(parser, required=False)
    return parser.parse_args(argv)


def _duration_ms(text: str) -> int:
    if (match := _AGO.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 15m, 5h or 2d")
    return int(match[1]) * _AGO_MS[match[2]]


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 10**12:
        raise argparse.ArgumentTypeError("a number of rows; 0: none")
    return int(text)


def moment_of(text: str, now_ms: int | None = None) -> int:
    """ms since 1970 of 2026-11-22, 2026-11-22T08:00 (UTC where it does not say), or of 36h ago."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _AGO_MS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-11-22T08:00, or 36h or 7d for so long ago"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0, round(at.timestamp() * 1000))


def json_of(options: argparse.Namespace) -> str:
    """Where the JSON goes. UserError where the page would."""
    path: str = options.json or str(Path(options.out).with_suffix(".json"))
    if Path(path).absolute() == Path(options.out).absolute():
        raise UsageError(f"the page and its JSON would both be {options.out}",
                         "--out names the page (report.html), --json the numbers")  # fmt: skip
    return path


def span_of(options: argparse.Namespace, now_ms: int) -> tuple[int, int, int]:
    """since, until, and since when measurements count. UserError if nothing is in between."""
    until = now_ms if options.until is None else options.until
    since = max(0, until - SAMPLES_MS) if options.since is None else options.since
    results = max(0, until - RESULTS_MS) if options.since is None else options.since
    if since >= until:
        raise UsageError("--since is not before --until", "give an earlier --since")
    return since, until, results


# -- reading


def freshened(
    spark: SparkSession, root: str, until: int, rows_max: int, say: Say
) -> rollup.Freshness:
    """The roll-ups that "Day by day" will show, up to date as far as that may be."""
    first, last = tables.date_of(since_ms(until)), tables.date_of(max(0, until - 1))
    fresh = rollup.freshen(spark, root, first, last, rows_max)
    if fresh.made:
        say(f"roll-ups of {days(fresh.made)} made anew")
    if fresh.lagging:
        say(f"roll-ups of {days(fresh.lagging)} lag: {fresh.why}")
    return fresh


def inputs_of(
    spark: SparkSession,
    root: str,
    since: int,
    until: int,
    results: int,
    fresh: rollup.Freshness,
) -> Inputs:
    """The tables of the span. Nothing is kept in memory: a section reads the few columns it needs.

    What a table consists of is settled here, so maintenance beside it changes nothing.
    """
    begin = {name: results if name == "results" else since for name in TABLES}
    frames: dict[str, Any] = {}
    landed = {}
    for name, first in begin.items():
        frames[name] = tables.read(spark, root, name, since=first, until=until)
        whole = tables.read(spark, root, name, since=first, until=until, repeats=True)
        landed[name] = whole.count()
    day = max(0, until - DAY_MS)
    last_day = tables.read(spark, root, "metrics", since=day, until=until) if day < since else None
    spoiled = tables.read(spark, root, QUARANTINE.name, since=since, until=until)
    rolled_up = tables.read(spark, root, "hourly", since=since_ms(until), until=until)
    return Inputs(
        spark, since, until, **frames, quarantine=spoiled, results_since_ms=results,
        gaps=gaps_of(spark, root), hourly=rolled_up, landed=landed, day=last_day, fresh=fresh,
    )  # fmt: skip


def gaps_of(spark: SparkSession, root: str) -> tuple[Gap, ...]:
    """What was given up, of every table; not cut to the span, because it stays missing."""
    return tuple(
        Gap(gap.topic, partition, start, end, gap.reason, gap.committed_at_ms)
        for _, found in sorted(tables.gaps(spark, root).items())
        for gap in found
        for partition, (start, end) in sorted(gap.ranges.items())
    )


# -- writing


def write_whole(path: str, text: str) -> None:
    """A file that is there whole or not at all; its directory is made."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(made, 0o644)
        os.replace(made, place)
    except BaseException as error:
        Path(made).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise UserError(f"no room for {path}", "make some, or name another place") from None
        raise


def make(
    spark: SparkSession,
    options: argparse.Namespace,
    now_ms: int,
    say: Say,
) -> int:
    """Land if asked, read, compute, write; the exit code."""
    since, until, results = span_of(options, now_ms)
    json_path = json_of(options)
    landing = _landed(spark, options, say)
    if not tables.names(spark, options.tables):
        if options.bootstrap_server:
            raise UserError("the topics hold nothing yet, so there is nothing to report",
                            "set metrics.topic.enable=true on the broker, or run kbroker perf with"
                            " --results-bootstrap")  # fmt: skip
        raise UserError(f"there are no tables in {options.tables}",
                        "name the place where spark_jobs.stream lands, or --bootstrap-server"
                        " to land now")  # fmt: skip
    started = time.monotonic()
    fresh = freshened(spark, options.tables, until, options.rollup_rows, say)
    inputs = replace(
        inputs_of(spark, options.tables, since, until, results, fresh),
        stale_ms=options.stale_after, **landing,
    )  # fmt: skip
    made = everything(inputs, say, disk=options.disk)
    report = Report(now_ms, options.tables, since, until, made.sections)
    write_whole(json_path, report.to_json())
    write_whole(options.out, render(report, Path(json_path).name))
    say(f"{options.out} and {json_path}, in {span((time.monotonic() - started) * 1000)}")
    for alarm in report.alarms:
        say(f"alarm: {alarm}")
    if made.failed:
        say(f"error: sections {', '.join(made.failed)} could not be made; the page says why")
        return EXIT_FAILED
    return EXIT_ALARM if report.alarms else 0


def _landed(spark: SparkSession, options: Any, say: Say) -> dict[str, Any]:
    """Arguments of Inputs. Rows that landed before are reported even if brokers are away.

    JobError where nothing has landed yet, or an operator has to decide (records that are gone,
    another job that lands, a wrong option).
    """
    if not options.bootstrap_server:
        return {}
    say("landing what the topics hold")
    began_ms = time.time_ns() // 1_000_000
    try:
        _land(spark, options, say)
    except JobError as error:
        if error.exit_code != EXIT_FAILED or not tables.names(spark, options.tables):
            raise
        return {"landing_trouble": error.message}
    return {"read_ms": began_ms}  # records since then may be missing


def _land(spark: SparkSession, options: Any, say: Say) -> None:
    """As spark_jobs.stream with --trigger available-now."""
    argv = ["--bootstrap-server", options.bootstrap_server, "--tables", options.tables,
            "--source", options.source]  # fmt: skip
    for pair in options.kafka_option:
        argv += ["--kafka-option", pair]
    if options.command_config:
        argv += ["--command-config", options.command_config]
    stream.land(spark, stream.arguments(argv), stop=threading.Event(), say=say)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    try:
        options = arguments(argv)
    except SystemExit as error:
        return int(error.code or 0) and EXIT_USAGE
    try:
        spark = session(
            options.master, "kbroker-report", source=options.source, ui=options.ui, conf=_SHORT
        )
        try:
            return make(spark, options, time.time_ns() // 1_000_000, _say)
        finally:
            spark.stop()
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a place that cannot be reached or written
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
