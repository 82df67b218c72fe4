"""What a table consists of: small numbered files, each written once, that are the whole truth.

A table's directory:

    data/ledger_unit=<unit>/event_date=YYYY-MM-DD/part-*.parquet
    quarantine/ledger_unit=<unit>/event_date=...
    _ledger/00000000000000000012.json, _ledger/00000000000000000012.fold.json

A *unit* is one attempt to write, under a name that is never used again. A *commit* says which
(unit, date) parts belong to the table from now on and which no longer do. Commit n+1 is the file of
that number, created whole or not at all and never overwritten (files.py): the writer that creates
it has committed, all others look again. So commits are in one order, a writer decides on the state
that its commit follows, and a reader's state is the table at one number. A unit that no commit
names does not exist. A *fold* is the state after its number, so that the files before it need not
be read. A writer that folds removes the files older than the fold before, so that a ledger is at
most so many files, whether maintenance runs or not, and a fold that the disk spoiled can be done
without.

A batch's commit carries the ranges of offsets it holds, and is refused unless they begin where its
topic ends in the ledger. So no range is in a table twice or left out, whatever became of Spark's
checkpoint; a range given up on purpose is a commit of its own, a gap.

`key` is what a commit is about, such as a query's batch: it is committed once. Batches of one query
come in order, so the last number of each query is all that is remembered of them.

One Ledger belongs to one thread; any number of processes may use one directory.
"""

from __future__ import annotations

import errno
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from spark_jobs.files import Files, join
from spark_jobs.ledger_json import commit_from, commit_json, fold_from, fold_json
from spark_jobs.ledger_state import (
    Book,
    Commit,
    Gap,
    LedgerConflict,
    LedgerDamaged,
    LedgerError,
    LiveUnit,
    Part,
    Ranges,
    State,
    UnitGone,
    batch_key,
)

__all__ = [
    "Commit", "Gap", "Ledger", "LedgerConflict", "LedgerDamaged", "LedgerError", "LiveUnit", "Part",
    "Ranges", "State", "UnitGone", "batch_key", "new_unit", "now_ms",
]  # fmt: skip

DIRECTORY: Final = "_ledger"
FOLD_EVERY: Final = 512  # commits: what a reader has to read at most, and a fold's cost shared
REMOVED_MAX: Final = 4 * FOLD_EVERY  # files that one fold removes: a batch waits for it
BYTES_MAX: Final = 1 << 28  # a file of the ledger; a fold has some 70 for each live part
TRIES_MAX: Final = 100  # writers at one table are few; each lost race means that another writer won

_NAME: Final = re.compile(r"(\d{20})(\.fold)?\.json")


def now_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


# Spark reads a directory's name as a column, which hides the rows' own column of that name: no
# table may have one (results have `unit`).
UNIT_COLUMN: Final = "ledger_unit"


def unit_directory(unit: str) -> str:
    """The name of a unit's directory."""
    return f"{UNIT_COLUMN}={unit}"


def unit_of(directory: str) -> str | None:
    """The unit whose directory has this name; None for any other."""
    key, _, unit = directory.partition("=")
    return unit if key == UNIT_COLUMN and unit else None


def new_unit(kind: str) -> str:
    """A new name for a unit; it begins with `kind` (a to z)."""
    return f"{kind}-{uuid.uuid4().hex}"


class Ledger:
    """The ledger of the table at `uri`; keeps what it has read, since files never change."""

    def __init__(self, files: Files, uri: str) -> None:
        self.files = files
        self.uri = files.qualify(uri)
        self._book = Book()
        self._opened = False

    @property
    def directory(self) -> str:
        return join(self.uri, DIRECTORY)

    def state(self) -> State:
        """The table now. LedgerDamaged where files are missing or cannot be read."""
        self._read_on()
        return self._book.state()

    def ends(self) -> dict[str, tuple[str, dict[int, int]]]:
        """topic -> (topic id, {partition: next offset})."""
        self._read_on()
        ends = self._book.ends
        return {topic: (topic_id, dict(known)) for topic, (topic_id, known) in ends.items()}

    def newest_ms(self) -> int | None:
        """The newest event's time."""
        self._read_on()
        return self._book.max_event_time_ms

    def parts(self) -> int:
        """How many parts are live, by the last read."""
        return len(self._book.units) + len(self._book.quarantine)

    def committed(self, key: str) -> bool:
        """Whether the key has been committed, by any writer."""
        self._read_on()
        return self._book.has(key)

    def check(self, commit: Commit) -> None:
        """LedgerConflict if the commit would be refused now."""
        self._read_on()
        self._book.check(commit)

    def commit(self, commit: Commit) -> bool:
        """False if its key had been committed before; True once it is safe.

        LedgerConflict: it does not follow from the table as it is now, and nothing was changed.
        """
        for _ in range(TRIES_MAX):
            self._read_on()
            if self._book.has(commit.key):
                return False
            self._book.check(commit)
            number = self._book.number + 1
            if self.files.create(self._file(number), commit_json(commit)):
                self._book.add(commit)
                if number % FOLD_EVERY == 0:
                    with suppress(OSError):  # the commit is valid; the next fold does it
                        self.fold(commit.committed_at_ms)
                return True
        raise LedgerError(f"{self.uri}: {TRIES_MAX} other commits came first", "run one job for it")

    def accept_gap(
        self, topic: str, topic_id: str, lost: Ranges, ends: Mapping[int, int], reason: str
    ) -> bool:
        """Gives `lost` up for good: the topic goes on at `ends`, under its id of today.

        A topic that was re-created has another id: then `ends` are all there are.
        """
        key = f"gap-{topic}-{uuid.uuid4().hex}"
        return self.commit(
            Commit(key, "gap", now_ms(), topic=topic, topic_id=topic_id, ranges=lost, ends=ends,
                   reason=reason)
        )  # fmt: skip

    def fold(self, at_ms: int | None = None) -> str | None:
        """Writes the state of now, and removes what is of no use with it; None: nothing to fold.

        Forgets what was dropped days before `at_ms`, the time of now unless it is given.
        """
        self._read_on()
        if self._book.number == 0:
            return None
        uri = self._file(self._book.number, fold=True)
        self._book.forget(now_ms() if at_ms is None else at_ms)
        self.files.create(uri, fold_json(self._book.state()))
        self._remove_old()
        return uri

    def _remove_old(self) -> None:
        """From the lowest commit on up to the fold before the newest one, whose own stays.

        A reader needs no grace: one that finds a file gone begins again at a newer fold.
        """
        commits, folds = self.numbers()
        kept = folds[-2] if len(folds) > 1 else 0
        old = [self._file(number) for number in commits if number < kept]
        old += [self._file(number, fold=True) for number in folds if number < kept]
        for uri in old[:REMOVED_MAX]:
            self.files.delete(uri)

    def numbers(self) -> tuple[list[int], list[int]]:
        """The numbers of the commits and of the folds that are there as files, in order."""
        commits: list[int] = []
        folds: list[int] = []
        for entry in self.files.entries(self.directory):
            found = _NAME.fullmatch(entry.name)
            if found:
                (folds if found[2] else commits).append(int(found[1]))
        return commits, folds

    @staticmethod
    def name(number: int, *, fold: bool = False) -> str:
        """A commit's or a fold's file in the directory."""
        return f"{number:020d}{'.fold' if fold else ''}.json"

    def _file(self, number: int, *, fold: bool = False) -> str:
        return join(self.directory, self.name(number, fold=fold))

    def _read_on(self) -> None:
        if not self._opened:
            _retried(self._open)
            self._opened = True
        while self._read_next():
            pass
        if self._overtaken():
            _retried(self._open)

    def _overtaken(self) -> bool:
        """Whether what follows has been folded and removed since we looked last.

        A fold removes commits from the lowest on and never the last one before a fold that stays.
        So where the one that was read last is still there, the next one is not there yet.
        """
        if self._book.number == 0:
            return self.numbers() != ([], [])
        return not self.files.exists(self._file(self._book.number))

    def _open(self) -> None:
        """From the newest fold through every commit that is listed."""
        commits, folds = self.numbers()
        book = Book()
        if folds:
            book = Book(self._folded(folds[-1], spare=len(folds) > 1 or commits[:1] == [1]))
        self._book = book
        while self._read_next():
            pass
        if commits and commits[-1] > self._book.number:
            raise FileNotFoundError(self._file(self._book.number + 1))

    def _folded(self, number: int, *, spare: bool) -> State:
        """A fold's state; `spare`: what is before it tells the same."""
        uri = self._file(number, fold=True)
        try:
            state = fold_from(self._bytes(uri), uri)
            if state.number != number:
                raise LedgerDamaged(f"{uri}: it is of {state.number}", "restore it from a backup")
        except LedgerDamaged as error:
            if not spare:
                raise
            way_out = "remove it, what was before it is still there and tells the same"
            raise LedgerDamaged(error.cause, way_out) from None
        return state

    def _read_next(self) -> bool:
        uri = self._file(self._book.number + 1)
        try:
            data = self._bytes(uri)
        except FileNotFoundError:
            return False
        self._book.add(commit_from(data, uri))
        return True

    def _bytes(self, uri: str) -> bytes:
        try:
            return self.files.read(uri, BYTES_MAX)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise LedgerDamaged(f"{uri}: {error.strerror}", "restore it from a backup") from None


def _retried(once: Callable[[], None], tries: int = 3) -> None:
    """What was listed may be folded away before it is read: then a newer fold is there."""
    missing = ""
    for _ in range(tries):
        try:
            once()
        except FileNotFoundError as error:
            missing = str(error.filename or error)
        else:
            return
    raise LedgerDamaged(f"{missing} is missing", "restore it from a backup")
