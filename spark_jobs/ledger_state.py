"""A ledger's words: commits, the parts they name, and the state that follows from them in order.

Pure data: ledger_json.py is how it is written, ledger.py where. A Book belongs to one thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kbroker.errors import InvariantError, UserError

Kind = Literal["batch", "gap", "merge", "expire", "garbage"]
KINDS: Final[tuple[Kind, ...]] = ("batch", "gap", "merge", "expire", "garbage")
Part = tuple[str, str]  # unit, date
Ranges = Mapping[int, tuple[int, int]]  # partition -> first offset, offset after the last

# How long it is remembered when a part was dropped: some times the grace of its files.
DROPS_KEPT_MS: Final = 3 * 24 * 3_600_000

_BATCH_KEY: Final = re.compile(r"batch-(.+)-(\d{20})")


class LedgerError(UserError):
    """Expected trouble with a table."""


class LedgerConflict(LedgerError):
    """Another writer has changed meanwhile the parts that this commit relies on."""


class UnitGone(LedgerConflict):
    """What was written for this commit was taken for garbage: it is to be written again."""


class LedgerDamaged(LedgerError):
    """A file that is not there or cannot be understood."""


@dataclass(frozen=True, slots=True)  # there may be hundreds of thousands
class LiveUnit:
    """The rows of one date in one unit; `batches`: how many writes they came from."""

    unit: str
    date: str
    rows: int
    batches: int = 1

    @property
    def part(self) -> Part:
        return self.unit, self.date


@dataclass(frozen=True)
class Gap:
    """Offsets of a topic that will never be in the table, with the reason."""

    topic: str
    topic_id: str
    ranges: Ranges
    reason: str
    committed_at_ms: int


@dataclass(frozen=True)
class Commit:
    """One step of a table.

    `units` and `quarantine` are added, `drops` (of either) are live no longer; those of garbage
    never were, and cannot become so from then on. A batch or a gap is of a `topic`; a gap says with
    `ends` where the topic goes on. `covers` is for tables that are made of another one: which of
    its commits are in this table's rows of a date, all of which the commit replaces.
    """

    key: str
    kind: Kind
    committed_at_ms: int
    units: tuple[LiveUnit, ...] = ()
    quarantine: tuple[LiveUnit, ...] = ()
    drops: tuple[Part, ...] = ()
    topic: str = ""
    topic_id: str = ""
    query: str = ""
    ranges: Ranges = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    late: int = 0
    max_event_time_ms: int | None = None
    reason: str = ""
    covers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """A table at commit `number`. Dates are ISO, times ms since 1970 UTC."""

    number: int = 0
    units: tuple[LiveUnit, ...] = ()
    quarantine: tuple[LiveUnit, ...] = ()
    ends: Mapping[str, tuple[str, Mapping[int, int]]] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    max_event_time_ms: int | None = None
    batches: Mapping[str, int] = field(default_factory=dict)  # query id -> its last batch
    touched: Mapping[str, int] = field(default_factory=dict)  # date -> last commit with new rows
    covers: Mapping[str, int] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()  # dates of which rows are gone for good
    dropped: Mapping[Part, int] = field(default_factory=dict)  # when; files may still be there
    keys: frozenset[str] = frozenset()  # of commits that are no batches, since the last fold


def batch_key(query_id: str, batch_id: int) -> str:
    """The key of a query's batch; a new checkpoint has a new query id."""
    return f"batch-{query_id}-{batch_id:020d}"


def batch_of(key: str) -> tuple[str, int] | None:
    """The query id and the batch that a key is of; None for other kinds of keys."""
    found = _BATCH_KEY.fullmatch(key)
    return (found[1], int(found[2])) if found else None


class Book:
    """A state that commits are added to; `state()` gives what it is at the moment."""

    def __init__(self, start: State = State()) -> None:
        self.number = start.number
        self.units = {unit.part: unit for unit in start.units}
        self.quarantine = {unit.part: unit for unit in start.quarantine}
        self.ends = {topic: (id_, dict(ends)) for topic, (id_, ends) in start.ends.items()}
        self.gaps = list(start.gaps)
        self.max_event_time_ms = start.max_event_time_ms
        self.batches = dict(start.batches)
        self.touched = dict(start.touched)
        self.covers = dict(start.covers)
        self.expired = set(start.expired)
        self.dropped = dict(start.dropped)
        self.keys = set(start.keys)

    def has(self, key: str) -> bool:
        batch = batch_of(key)
        if batch is None:
            return key in self.keys
        return self.batches.get(batch[0], -1) >= batch[1]

    def check(self, commit: Commit) -> None:
        """LedgerConflict where the commit does not follow from this state."""
        garbage = commit.kind == "garbage"
        wrong = [part for part in commit.drops
                 if (part in self.units or part in self.quarantine) == garbage]  # fmt: skip
        if wrong:
            what = "live" if garbage else "not live"
            raise LedgerConflict(f"{commit.key}: {len(wrong)} parts such as {wrong[0]} are {what}",
                                 "another maintenance is running; try again")  # fmt: skip
        self._check_names(commit)
        covered = [date for date, number in commit.covers.items()
                  if number <= self.covers.get(date, 0)]  # fmt: skip
        kept = [unit.part for unit in self.units.values()
                if unit.date in commit.covers and unit.part not in commit.drops]  # fmt: skip
        if covered or kept:
            raise LedgerConflict(f"{commit.key}: another writer has made the same rows",
                                 "another maintenance is running; try again")  # fmt: skip
        if commit.kind != "batch" or commit.topic not in self.ends:
            return
        topic_id, ends = self.ends[commit.topic]
        if topic_id and commit.topic_id and topic_id != commit.topic_id:
            raise LedgerConflict(
                f"{commit.topic}: the table holds topic id {topic_id}, the batch is of"
                f" {commit.topic_id}: the topic was re-created",
                "start the job again with --accept-loss",
            )
        for partition, (first, _) in sorted(commit.ranges.items()):
            end = ends.get(partition)
            if end is not None and end != first:
                raise LedgerConflict(
                    f"{commit.topic}-{partition}: the table ends at offset {end}, the batch begins"
                    f" at {first}",
                    "two jobs write this table, or a checkpoint is older than it: start one job"
                    " with a new checkpoint",
                )

    def _check_names(self, commit: Commit) -> None:
        """A unit is committed once, and not after its end."""
        new = [unit.part for unit in (*commit.units, *commit.quarantine)]
        again = [part for part in new if part in self.units or part in self.quarantine]
        if again or len(set(new)) < len(new):
            raise InvariantError(f"{commit.key}: a unit's name is used twice: {[*again, *new][0]}")
        names = {unit for unit, _ in new}
        gone = next((unit for unit, _ in self.dropped if unit in names), None)
        if gone is not None:
            raise UnitGone(f"{commit.key}: {gone} was taken for garbage while it was written",
                           "was the clock set, or the machine asleep?")  # fmt: skip

    def add(self, commit: Commit) -> None:
        """The commit of the next number."""
        self.number += 1
        batch = batch_of(commit.key)
        if batch is None:
            self.keys.add(commit.key)
        else:
            self.batches[batch[0]] = max(batch[1], self.batches.get(batch[0], -1))
        for part in commit.drops:
            if self.units.pop(part, None) is not None and commit.kind == "expire":
                self.expired.add(part[1])
            self.quarantine.pop(part, None)
            self.dropped[part] = commit.committed_at_ms
        self.units.update((unit.part, unit) for unit in commit.units)
        self.quarantine.update((unit.part, unit) for unit in commit.quarantine)
        self.covers.update(commit.covers)
        if commit.max_event_time_ms is not None:
            self.max_event_time_ms = max(commit.max_event_time_ms, self.max_event_time_ms or 0)
        if commit.kind == "batch":
            self.touched.update((unit.date, self.number) for unit in commit.units)
        if commit.topic:
            self._move_ends(commit)

    def _move_ends(self, commit: Commit) -> None:
        known_id, ends = self.ends.get(commit.topic, (commit.topic_id, {}))
        topic_id = commit.topic_id or known_id
        if commit.kind == "gap":
            if known_id != topic_id:
                ends = {}  # another topic of the same name: its offsets begin anew
            ends.update(commit.ends)
            self.gaps.append(Gap(commit.topic, known_id, dict(commit.ranges), commit.reason,
                                 commit.committed_at_ms))  # fmt: skip
        else:
            ends.update((partition, until) for partition, (_, until) in commit.ranges.items())
        self.ends[commit.topic] = (topic_id, ends)

    def forget(self, at_ms: int) -> None:
        """Entries that need not be kept for ever: drops that are old at `at_ms`, keys of finished
        work. A drop of later than that, as a clock says that was set back, is no old one."""
        oldest_ms = at_ms - DROPS_KEPT_MS
        self.dropped = {part: at_ms for part, at_ms in self.dropped.items() if at_ms >= oldest_ms}
        self.keys = set()

    def state(self) -> State:
        return State(
            self.number,
            tuple(self.units.values()),
            tuple(self.quarantine.values()),
            {topic: (topic_id, dict(ends)) for topic, (topic_id, ends) in self.ends.items()},
            tuple(self.gaps),
            self.max_event_time_ms,
            dict(self.batches),
            dict(self.touched),
            dict(self.covers),
            frozenset(self.expired),
            dict(self.dropped),
            frozenset(self.keys),
        )
