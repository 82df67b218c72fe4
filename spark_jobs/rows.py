"""The rows of a number of a report, each with its topic, partition and offset.

    python -m spark_jobs.rows build/report/report.json latency.t0.r0.c7
    python -m spark_jobs.rows build/report/report.json --all

A number's address is what the page shows when the pointer rests on it. With --all every number is
asked for its rows, and those that are found in another number than the report counted are named:
after retention has taken rows away, or more came late, a report is history and should be made anew.

Exit codes: 0 done; 1 failed, or with --all some numbers have other rows than when the report was
made; 2 usage. Reads only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __package__ in (None, ""):  # run as a file by spark-submit
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from kbroker.errors import UserError
from kbroker.metrics import json_record
from spark_jobs.errors import EXIT_FAILED, EXIT_USAGE
from spark_jobs.html.words import clean
from spark_jobs.predicate import check
from spark_jobs.report_model import JSON_BYTES_MAX, Cell, Report, ReportError, Rows
from spark_jobs.schema import PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

LIMIT: Final = 100
ASKED_AT_ONCE: Final = 50  # predicates in one pass over a table
DAY_MS: Final = 24 * 3_600_000
EPOCH: Final = datetime.date(1970, 1, 1)
_DAY: Final = r"DATE'(\d{4}-\d{2}-\d{2})'"
_DAYS: Final = re.compile(rf"event_date BETWEEN {_DAY} AND {_DAY}(?: AND |$)")
NAMED: Final = ("source_topic", "source_partition", "source_offset")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.rows", description="The rows of a number of a report."
    )
    add = parser.add_argument
    add("report", metavar="REPORT.json", type=Path)
    add("address", metavar="ADDRESS", nargs="?", help="of a number, such as latency.t0.r0.c7")
    add("--all", action="store_true", help="count the rows of every number instead")
    add(
        "--tables", metavar="URI", help="where the tables are; default: where the report found them"
    )
    add("--limit", type=int, default=LIMIT, metavar="N", help=f"rows to print (default {LIMIT})")
    add("--json", action="store_true", help="rows as JSON, one to a line")
    add("--master", help="Spark's master; default: the submitter's, or local[2]")
    options = parser.parse_args(argv)
    if bool(options.address) == options.all:
        parser.error("give one number's ADDRESS, or --all")
    if options.limit < 1:
        parser.error("--limit: a number from 1 on")
    return options


def load(path: Path) -> Report:
    """The report of a JSON file; ReportError says what is wrong with it."""
    try:
        if path.stat().st_size > JSON_BYTES_MAX:
            raise ReportError(f"{path} has more than {JSON_BYTES_MAX} bytes: not a report")
        return Report.from_json(path.read_bytes())
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None


def dates(rows: Rows) -> tuple[int, int] | None:
    """[since, until) in ms outside of which no row can be, where the predicate starts with days.

    Only so that a question about one day does not read three months; None reads everything.
    """
    match = _DAYS.match(rows.where)
    if match is None or " or " in rows.where.lower():
        return None
    try:
        first, last = (datetime.date.fromisoformat(day) for day in match.groups())
    except ValueError:
        return None
    since, until = ((day - EPOCH).days * DAY_MS for day in (first, last))
    return max(0, since), max(0, until + DAY_MS)


def found(spark: SparkSession, root: str, name: str, when: tuple[int, int] | None) -> DataFrame:
    """A table as a report reads it: a writer's retries removed."""
    from spark_jobs import tables

    since, until = when if when is not None else (None, None)
    return tables.read(spark, root, name, since=since, until=until)


def rows_of(frame: DataFrame, rows: Rows) -> DataFrame:
    """The rows of the table that a number was made of, in the order of their topics."""
    frame = frame.where(check(rows.where, frame.columns))
    order = [name for name in PLACE if name in frame.columns]
    return frame.orderBy(*order) if order else frame


def line(plain: dict[str, Any]) -> str:
    """topic, partition and offset, then every field that has a value."""
    where = ""
    if "source_topic" in plain:
        topic, partition, offset = (plain.pop(name, None) for name in NAMED)
        where = f"{clean(str(topic), 250)} {partition}@{offset}  "
    return where + " ".join(f"{name}={clean(_short(value), 200)}" for name, value in plain.items())


def _plain(row: Row) -> dict[str, Any]:
    fields = row.asDict(recursive=True).items()
    return {name: json_record.strict(value) for name, value in fields if value is not None}


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value if value and not any(c.isspace() for c in value) else json.dumps(value)
    return json.dumps(value, default=_text, ensure_ascii=False)


def _text(value: Any) -> str:
    if isinstance(value, datetime.datetime):  # Spark gives it in this machine's zone, unsaid
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def show(spark: SparkSession, report: Report, root: str, options: argparse.Namespace) -> None:
    """The rows of one number, on standard output; what is said about them goes to the other."""
    cell = report.cell(options.address)
    if cell.rows is None:
        raise ReportError(f"{options.address} is {cell.text!r}, which was made of no rows")
    rows = rows_of(found(spark, root, cell.rows.table, dates(cell.rows)), cell.rows)
    _say(f"{options.address}: {cell.text}")
    _say(f"table {cell.rows.table}, where {cell.rows.where}")
    listed = rows.limit(options.limit).collect()
    for row in listed:
        plain = _plain(row)
        text = json.dumps(plain, default=_text, allow_nan=False) if options.json else line(plain)
        print(text, flush=False)
    count = rows.count() if len(listed) == options.limit else len(listed)
    more = f", {count - len(listed)} more: --limit {count}" if count > len(listed) else ""
    _say(f"{count} rows{_apart(count, cell)}{more}")


def _apart(count: int, cell: Cell) -> str:
    if cell.rows is None or count == cell.rows.count:
        return ", as the report counted"
    return f"; the report counted {cell.rows.count}, so the table has changed since it was made"


def audit(spark: SparkSession, report: Report, root: str) -> list[str]:
    """A line for every number whose rows are not found in the number that the report counted."""
    addresses: dict[Rows, list[str]] = defaultdict(list)
    for address, cell in report.cells():
        if cell.rows is not None:
            addresses[cell.rows].append(address)
    wrong = []
    for rows, count in counted(spark, root, addresses).items():
        if count != rows.count:
            wrong.append(
                f"{' '.join(addresses[rows])}: {count} rows of {rows.table},"
                f" the report counted {rows.count}; where {rows.where}"
            )
    numbers = sum(map(len, addresses.values()))
    _say(f"{numbers} numbers from {len(addresses)} sets of rows, {len(wrong)} not as counted")
    return wrong


def counted(spark: SparkSession, root: str, wanted: Iterable[Rows]) -> dict[Rows, int]:
    """How many rows each has now: one pass over a table's days for ASKED_AT_ONCE of them."""
    from pyspark.sql import functions as F

    places: dict[tuple[str, tuple[int, int] | None], list[Rows]] = defaultdict(list)
    for rows in wanted:
        places[rows.table, dates(rows)].append(rows)
    counts: dict[Rows, int] = {}
    for (name, when), all_rows in places.items():
        frame = found(spark, root, name, when)
        for start in range(0, len(all_rows), ASKED_AT_ONCE):
            part = all_rows[start : start + ASKED_AT_ONCE]
            asked = [
                F.count_if(F.expr(check(rows.where, frame.columns))).alias(f"n{n}")
                for n, rows in enumerate(part)
            ]
            answer = frame.agg(*asked).collect()[0]
            counts.update((rows, int(answer[n])) for n, rows in enumerate(part))
    return counts


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    try:
        options = arguments(argv)
    except SystemExit as error:
        return int(error.code or 0) and EXIT_USAGE
    try:
        report = load(options.report)
        if not options.all:
            report.cell(options.address)
        return _ask(report, options)
    except ReportError as error:
        _say(f"error: {error}")
    except UserError as error:
        _say(f"error: {error.message}")
        return error.exit_code
    except BrokenPipeError:
        return EXIT_FAILED  # the reader has seen enough
    return EXIT_FAILED


def _ask(report: Report, options: argparse.Namespace) -> int:
    from pyspark.errors import AnalysisException, ParseException

    from spark_jobs.session import session

    spark = session(options.master, "kbroker-rows", source="kbroker")
    root = options.tables or report.root
    try:
        if not options.all:
            show(spark, report, root, options)
            return 0
        wrong = audit(spark, report, root)
        for text in wrong:
            print(text)
        return EXIT_FAILED if wrong else 0
    except (AnalysisException, ParseException) as error:
        raise ReportError(f"Spark cannot ask that: {' '.join(str(error).split())[:300]}") from None
    finally:
        spark.stop()


def _say(text: str) -> None:
    print(clean(text), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
