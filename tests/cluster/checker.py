"""The rules for a history and for the logs at the end. Pure functions, rule by rule.

Each gives its violations; none is what is wanted. `contents` is a partition's records from offset 0
on, as a consumer reads them when everything is over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from kbroker.types import TopicPartition
from tests.cluster.history import INVALID, NO_OFFSET, Answered, History, Record

SHOWN_MAX: Final = 5
Contents = Mapping[TopicPartition, Sequence[Record]]
Found = Iterator[str]


class Violation(NamedTuple):
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History, contents: Contents) -> list[Violation]:
    """Every violation of every rule; of each rule and partition the first few."""
    found = [
        Violation(name, f"{place}: {text}")
        for place in contents
        for name, rule in RULES.items()
        for text in _first(rule(place, history, contents[place]))
    ]
    found += [Violation("refused", text) for text in _first(iter(history.refused))]
    return found


def lost(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """Acknowledged, and not in the log."""
    stored = {*there}
    for record, offset in history.answered(place):
        if record not in stored:
            yield f"{_told(record)}, acknowledged at {_where(offset)}, is not there"


def moved(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """Acknowledged at an offset where something else is."""
    for record, offset in history.answered(place):
        if offset != NO_OFFSET and (offset >= len(there) or there[offset] != record):
            there_is = _told(there[offset]) if offset < len(there) else "nothing"
            yield f"{_told(record)} was acknowledged at offset {offset}, where {there_is} is"


def doubled(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    first: dict[Record, int] = {}
    for offset, record in enumerate(there):
        if record.producer != INVALID and record in first:
            yield f"{_told(record)} is at {first[record]} and at {offset}"
        first.setdefault(record, offset)


def reordered(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """After a later one of the same producer, where that was promised."""
    highest: dict[int, int] = defaultdict(lambda: -1)
    seen: set[Record] = set()
    for offset, record in enumerate(there):
        if record.producer in history.once:
            continue
        if record.number < highest[record.producer] and record not in seen:
            yield f"{_told(record)} at {offset} is after its {highest[record.producer]}"
        highest[record.producer] = max(highest[record.producer], record.number)
        seen.add(record)


def fell(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """Acknowledged at or below the offset of a record that its producer sent earlier."""
    highest: dict[int, Answered] = {}
    for record, offset in sorted(history.answered(place)):
        if record.producer not in history.once or offset == NO_OFFSET:
            continue
        before = highest.get(record.producer)
        if before is not None and offset <= before.offset:
            yield (
                f"{_told(record)} was acknowledged at {offset}, {before.record.number} at"
                f" {before.offset}"
            )
        else:
            highest[record.producer] = Answered(record, offset)


def invented(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """Never sent there."""
    for offset, record in enumerate(there):
        if not 0 <= record.number < history.sent.get((place, record.producer), 0):
            yield f"{_told(record)} at {offset} was never sent"


def gone(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """Read once, and not there any more, or another record in its place."""
    for reader, places in sorted(history.read.items()):
        for offset, record in places.get(place, ()):
            if offset >= len(there) or there[offset] != record:
                there_is = _told(there[offset]) if offset < len(there) else "nothing"
                yield f"{reader} has read {_told(record)} at {offset}, where {there_is} is"


def skipped(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """A reader without a group has each record once, in order."""
    for reader, places in sorted(history.read.items()):
        if place in places and reader.startswith(READER):
            offsets = [-1, *(offset for offset, _ in places[place])]
            for before, after in pairwise(offsets):
                if after != before + 1:
                    yield f"{reader} has read {after} after {before}"
            if offsets[-1] < len(there) - 1:
                yield f"{reader} has read up to {offsets[-1]}, the last is {len(there) - 1}"


def unread(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """The members of the group together have every record."""
    places = [p for reader, p in history.read.items() if reader.startswith(MEMBER)]
    if places:
        seen = {offset for each in places for offset, _ in each.get(place, ())}
        for offset in range(len(there)):
            if offset not in seen:
                yield f"no member of the group has read {offset} of {len(there)}"


def uncommitted(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """A member begins at the group's offset: an acknowledged commit is known ever after."""
    for member, committed, first in history.begun.get(place, ()):
        if first < committed:
            yield f"{member} began at {first}, and {committed} had been committed"
    if history.committed.get(place, 0) > len(there):
        yield f"{history.committed[place]} is committed, the end is {len(there)}"


def went_back(place: TopicPartition, history: History, there: Sequence[Record]) -> Found:
    """The coordinator's answer is never less than the offsets acknowledged before the question."""
    for committed, offset in history.fetched.get(place, ()):
        if offset < committed:
            yield f"the group was at {offset}, and {committed} had been committed"


READER: Final = "reader"
MEMBER: Final = "member"
Rule = Callable[[TopicPartition, History, Sequence[Record]], Found]
RULES: Final[Mapping[str, Rule]] = {
    "lost": lost,
    "moved": moved,
    "doubled": doubled,
    "reordered": reordered,
    "fell": fell,
    "invented": invented,
    "read then gone": gone,
    "skipped": skipped,
    "unread": unread,
    "commit lost": uncommitted,
    "commit went back": went_back,
}


def _first(found: Iterable[str]) -> list[str]:
    every = list(found)
    more = [f"and {len(every) - SHOWN_MAX} more"] if len(every) > SHOWN_MAX else []
    return every[:SHOWN_MAX] + more


def _told(record: Record) -> str:
    return f"{record.number} of producer {record.producer}"


def _where(offset: int) -> str:
    return "no offset" if offset == NO_OFFSET else f"offset {offset}"
