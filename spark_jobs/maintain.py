"""Keeps tables small and fast, beside the running stream and its readers.

    python -m spark_jobs.maintain --tables URI [--raw-days 90] [--dry-run]

In this order, each by commits of its own (spark_jobs/ledger.py), so that it may be ended anywhere:

1. Roll-ups: dates of `metrics` with rows that their hourly roll-up does not have.
2. Compaction: the small parts of a date become one, in every table. The new rows are read back
   and compared with the old ones: the number of rows and a hash over all of them.
3. Expiry: raw rows of dates that are more than --raw-days old; roll-ups stay. A date of `metrics`
   whose roll-up is not up to date is kept.
4. Folding: the ledger's state in one file.
5. Garbage: files that no reader can be at any more: parts that were replaced or expired a day ago,
   units of writers that died, commits before a fold. A reader has a day to finish.

A step that fails is said, and the next ones are done all the same: on a full disk expiry and
garbage make room for the merges of the next run. A stream only ever adds, so the two do not meet;
of two maintenances at once one gives way. Days are the machine's clock's; where it was set, expiry
and the day that readers have are as wrong as it was, and nothing else is. Exit codes: 0 done; 1
failed; 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if __package__ in (None, ""):  # run as a file by spark-submit
    from pathlib import Path

    sys.path[0] = str(Path(__file__).resolve().parents[1])

from kbroker.errors import InvariantError, UserError
from spark_jobs import rollup, tables
from spark_jobs.errors import EXIT_FAILED, EXIT_USAGE, JobError, first_line
from spark_jobs.files import files_of, join
from spark_jobs.garbage import collect
from spark_jobs.ledger import (
    Commit,
    Ledger,
    LedgerConflict,
    LedgerError,
    LiveUnit,
    State,
    new_unit,
    now_ms,
    unit_directory,
)
from spark_jobs.rollup import HOURLY
from spark_jobs.schema import METRICS, PLACE, QUARANTINE, TableSchema
from spark_jobs.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Say = Callable[[str], None]

DAY_MS: Final = 24 * 3_600_000
RAW_DAYS: Final = 90
GRACE_MS: Final = DAY_MS
FOLD_AFTER: Final = 64  # commits since the last fold
SMALL_BYTES: Final = 64 << 20  # a part below it is merged with others
FILE_BYTES: Final = 128 << 20
TOGETHER_BYTES_MAX: Final = 1 << 30  # read and written by one merge
# A date that still grows is merged only when it has become many parts; one that is over, at once.
PARTS_MAX_TODAY: Final = 32
PARTS_MAX: Final = 1


@dataclass(frozen=True)
class Plan:
    """What is asked of one run."""

    raw_days: int = RAW_DAYS
    dry_run: bool = False
    grace_ms: int = GRACE_MS


def maintain(
    spark: SparkSession,
    root: str,
    plan: Plan,
    *,
    say: Say,
    clock_ms: Callable[[], int] = now_ms,
) -> None:
    """All steps over all tables.

    UserError where a ledger is damaged, a merge is wrong, the disk is full, or whatever Spark says;
    all else is done first.
    """
    trouble = _Trouble(say)
    if METRICS.name in tables.names(spark, root):
        with trouble.of(HOURLY.name):
            _roll_up(spark, root, plan, say, clock_ms)
    for name in tables.names(spark, root):
        try:
            schema = tables.schema_of(name)
        except LedgerError as error:
            say(f"{name}: left alone: {error.message}")
            continue
        with trouble.of(name):
            _maintain(spark, root, schema, plan, trouble, clock_ms)
    if trouble.found:
        raise trouble.found[0]


class _Trouble:
    """What failed, each as a line, and the first as what the job ends with."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.found: list[UserError] = []
        self._lines: set[str] = set()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Around a step of one table; later steps are done all the same."""
        try:
            yield
        except InvariantError:
            raise
        except Exception as error:
            found = error if isinstance(error, UserError) else JobError(first_line(error))
            self.found.append(found)
            line = f"{name}: not maintained: {found.message}"
            if line not in self._lines:  # a ledger that is damaged is so for every step
                self.say(line)
            self._lines.add(line)


def _maintain(
    spark: SparkSession,
    root: str,
    schema: TableSchema,
    plan: Plan,
    trouble: _Trouble,
    clock_ms: Callable[[], int],
) -> None:
    """One table: merge, expire, fold, collect."""
    name, say = schema.name, trouble.say
    would = "would be " if plan.dry_run else ""
    ledger = Ledger(files_of(spark, root), tables.table_uri(root, name))
    merged = 0
    for kind in (tables.DATA, tables.SET_ASIDE):
        with trouble.of(name):
            merged += _merge(spark, ledger, kind, schema, plan, trouble, clock_ms)
    if merged:
        say(f"{name}: {merged} small parts {would}merged")
    if name != HOURLY.name:
        with trouble.of(name):
            _expire(spark, root, name, ledger, plan, say, clock_ms)
    with trouble.of(name):
        if not plan.dry_run and _unfolded(ledger) >= FOLD_AFTER:
            ledger.fold(clock_ms())
    removed = collect(ledger, clock_ms(), plan.grace_ms, dry_run=plan.dry_run)
    if removed:
        say(f"{name}: {removed} files and directories {would}removed")


def _roll_up(
    spark: SparkSession, root: str, plan: Plan, say: Say, clock_ms: Callable[[], int]
) -> None:
    if plan.dry_run:
        made = list(rollup.stale(spark, root))
    else:
        try:
            made = rollup.update(spark, root, clock_ms)
        except LedgerConflict as error:
            say(f"{HOURLY.name}: {error.message}")
            return
    if made:
        would = "would be " if plan.dry_run else ""
        say(f"{HOURLY.name}: {len(made)} dates {would}rolled up, {made[0]} to {made[-1]}")


# --- compaction ---------------------------------------------------------------------------------


def _merge(
    spark: SparkSession,
    ledger: Ledger,
    kind: str,
    schema: TableSchema,
    plan: Plan,
    trouble: _Trouble,
    clock_ms: Callable[[], int],
) -> int:
    """Merges of one table, or of its quarantine; the number of parts that are gone."""
    aside = kind == tables.SET_ASIDE
    merged = 0
    for group in groups(ledger, kind, ledger.state(), tables.date_of(clock_ms())):
        # Another maintenance may be at the same parts.
        with trouble.of(schema.name), suppress(LedgerConflict):
            if not plan.dry_run:
                _merge_one(spark, ledger, kind, QUARANTINE if aside else schema, group, clock_ms)
            merged += len(group.units)
    return merged


@dataclass(frozen=True)
class Group:
    """Parts of one date that are to become one."""

    date: str
    units: tuple[LiveUnit, ...]
    size: int


def groups(ledger: Ledger, kind: str, state: State, today: str) -> list[Group]:
    """What is worth merging, by date."""
    by_date: dict[str, list[LiveUnit]] = {}
    for unit in state.quarantine if kind == tables.SET_ASIDE else state.units:
        by_date.setdefault(unit.date, []).append(unit)
    found = []
    for date, units in sorted(by_date.items()):
        most = PARTS_MAX if date < today else PARTS_MAX_TODAY
        if len(units) > most:
            found += _groups_of(ledger, kind, date, units)
    return found


def _groups_of(ledger: Ledger, kind: str, date: str, units: Iterable[LiveUnit]) -> list[Group]:
    """Small parts, so many together as are to be read at once."""
    base = join(ledger.uri, kind)
    found: list[Group] = []
    together: list[LiveUnit] = []
    size = 0
    for unit in units:
        entries = ledger.files.entries(tables.part_uri(base, unit))
        own = sum(entry.size for entry in entries if entry.name.endswith(".parquet"))
        if own >= SMALL_BYTES:
            continue
        if size + own > TOGETHER_BYTES_MAX:
            found.append(Group(date, tuple(together), size))
            together, size = [], 0
        together.append(unit)
        size += own
    found.append(Group(date, tuple(together), size))
    return [group for group in found if len(group.units) > 1]


def _merge_one(
    spark: SparkSession,
    ledger: Ledger,
    kind: str,
    schema: TableSchema,
    group: Group,
    clock_ms: Callable[[], int],
) -> None:
    aside = kind == tables.SET_ASIDE
    before = tables.of_units(spark, ledger.uri, group.units, schema, set_aside=aside)
    name = new_unit("merge")
    uri = join(ledger.uri, kind, unit_directory(name))
    in_order = [column for column in PLACE if column in schema.column_names]
    rows = before.coalesce(1 + group.size // FILE_BYTES)
    if in_order:
        rows = rows.sortWithinPartitions(*in_order)
    rows.write.partitionBy(tables.DATE).parquet(uri)
    ledger.files.sync(uri)
    wanted = sum(unit.rows for unit in group.units)
    batches = sum(unit.batches for unit in group.units)
    unit = LiveUnit(name, group.date, wanted, batches)
    after = tables.of_units(spark, ledger.uri, [unit], schema, set_aside=aside)
    found = fingerprint(after)
    if found != fingerprint(before) or found[0] != wanted:
        raise LedgerError(
            f"{uri}: merged rows of {group.date} are not those they were made of",
            "nothing was changed; look at the disk, then try again",
        )
    ledger.commit(
        Commit(
            f"merge-{name}", "merge", clock_ms(),
            () if aside else (unit,), (unit,) if aside else (),
            drops=tuple(one.part for one in group.units),
        )
    )  # fmt: skip


def fingerprint(frame: DataFrame) -> tuple[int, int, int]:
    """The number of rows and a hash over all their columns that knows no order."""
    from pyspark.sql import functions as F

    # Two equal rows would cancel each other out by exclusive or alone.
    each = F.xxhash64(*frame.columns)
    row = frame.agg(
        F.count("*"), F.bit_xor(each), F.sum(F.shiftrightunsigned(each, 32))
    ).collect()[0]  # fmt: skip
    return int(row[0]), int(row[1] or 0), int(row[2] or 0)


# --- expiry -------------------------------------------------------------------------------------


def _expire(
    spark: SparkSession,
    root: str,
    name: str,
    ledger: Ledger,
    plan: Plan,
    say: Say,
    clock_ms: Callable[[], int],
) -> None:
    first = tables.date_of(clock_ms() - plan.raw_days * DAY_MS)
    state = ledger.state()
    kept = rollup.stale(spark, root) if name == METRICS.name else {}
    old = [unit for unit in state.units if unit.date < first and unit.date not in kept]
    aside = [unit for unit in state.quarantine if unit.date < first]
    waiting = sorted({unit.date for unit in state.units if unit.date < first} & kept.keys())
    if waiting:
        say(f"{name}: {len(waiting)} dates such as {waiting[0]} wait for their roll-ups")
    if not old and not aside:
        return
    if not plan.dry_run:
        drops = tuple(unit.part for unit in (*old, *aside))
        unit = new_unit("expire")
        try:
            ledger.commit(Commit(f"expire-{unit}", "expire", clock_ms(), drops=drops))
        except LedgerConflict as error:
            say(f"{name}: {error.message}")
            return
    rows = sum(unit.rows for unit in (*old, *aside))
    would = "would " if plan.dry_run else ""
    say(f"{name}: {rows} rows of before {first} {would}expire" + ("" if would else "d"))


def _unfolded(ledger: Ledger) -> int:
    """Commits that a reader has to read after the newest fold."""
    _, folds = ledger.numbers()
    return ledger.state().number - (folds[-1] if folds else 0)


# --- the job ------------------------------------------------------------------------------------


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.maintain",
        description="Rolls up, compacts, expires and cleans up, beside the running stream.",
    )
    add = parser.add_argument
    add("--tables", required=True, metavar="URI", help="where the tables are")
    add("--raw-days", type=_days, default=RAW_DAYS, metavar="N",
        help=f"raw rows are kept so long (default {RAW_DAYS}); roll-ups for ever")  # fmt: skip
    add("--dry-run", action="store_true", help="say what would be done")
    add("--master", help="Spark's master; default: the submitter's, or local[2]")
    return parser.parse_args(argv)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 36_500:
        raise argparse.ArgumentTypeError("a number of days from 1 on")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    try:
        options = arguments(argv)
    except SystemExit as error:
        return int(error.code or 0) and EXIT_USAGE
    try:
        spark = session(options.master, "kbroker-maintain", source="kbroker")
        try:
            if not tables.names(spark, options.tables):
                raise UserError(f"there are no tables in {options.tables}",
                                "name the place where spark_jobs.stream lands")  # fmt: skip
            maintain(spark, options.tables, Plan(options.raw_days, options.dry_run), say=_say)
        finally:
            spark.stop()
    except UserError as error:
        _say(f"error: {error.message}")
        return error.exit_code
    except OSError as error:
        _say(f"error: {first_line(error)}")
        return EXIT_FAILED
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
