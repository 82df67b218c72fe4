"""The actions of clients and their answers, noted as they happen and never changed.

A producer numbers its records for each partition, from 0 on, so a record is known by its producer
and its number. Everything is noted under one lock: the order of the notes is an order in which it
may have happened. Records that were read are kept by offset, so that a look at one partition costs
its records and nothing else.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kbroker.types import TopicPartition

PADDING: Final = b"." * 80
NO_OFFSET: Final = -1
INVALID: Final = -1
GROUPS: Final = TopicPartition("the group's commits", 0)  # in their silences


class Record(NamedTuple):
    """Who wrote it, and the how manieth of its partition it is. INVALID: no bytes of ours."""

    producer: int
    number: int


class Answered(NamedTuple):
    """A record that a producer got acknowledged; NO_OFFSET: without its place."""

    record: Record
    offset: int


class Fetched(NamedTuple):
    """The group's offset, as its coordinator answered it when `committed` had been acknowledged."""

    committed: int
    offset: int


class Begun(NamedTuple):
    """A member of the group has been given a partition when `committed` had been acknowledged."""

    member: str
    committed: int
    first: int  # the first offset that it has read; NO_OFFSET: none


def value_of(record: Record, padding: int = 0) -> bytes:
    return b"%d %d %s" % (record.producer, record.number, PADDING[:padding])


def record_of(value: bytes | None) -> Record:
    try:
        producer, number, _ = (value or b"").split(b" ")
        return Record(int(producer), int(number))
    except ValueError:
        return Record(INVALID, INVALID)


class ReadBy:
    """What one reader has seen of one partition, in the order of its reading."""

    def __init__(self) -> None:
        self._rows = array("q")
        self.highest = NO_OFFSET

    def add(self, offset: int, record: Record) -> None:
        self.highest = max(self.highest, offset)
        self._rows.extend((offset, *record))

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        rows = self._rows
        for at in range(0, len(rows), 3):
            yield rows[at], Record(rows[at + 1], rows[at + 2])

    def __len__(self) -> int:
        return len(self._rows) // 3


class Silences:
    """The longest time between two events of each place; only under the history's lock."""

    def __init__(self) -> None:
        self.longest_s: dict[TopicPartition, float] = {}
        self._last_s: dict[TopicPartition, float] = {}

    def watch(self) -> None:
        self.longest_s = dict.fromkeys(self._last_s, 0.0)
        self._last_s = dict.fromkeys(self._last_s, time.monotonic())

    def end(self, place: TopicPartition) -> None:
        now_s = time.monotonic()
        silent_s = now_s - self._last_s.get(place, now_s)
        self.longest_s[place] = max(self.longest_s.get(place, 0.0), silent_s)
        self._last_s[place] = now_s


class History:
    """See the head of this file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.sent: dict[tuple[TopicPartition, int], int] = defaultdict(int)
        self._answered: dict[TopicPartition, array[int]] = defaultdict(lambda: array("q"))
        self._last: dict[tuple[TopicPartition, int], int] = {}
        self._silences = Silences()
        self._commit_silences = Silences()
        self.refused: list[str] = []
        self.once: set[int] = set()  # producers that send each record once, many at a time
        self.read: dict[str, dict[TopicPartition, ReadBy]] = defaultdict(
            lambda: defaultdict(ReadBy)
        )
        self.committed: dict[TopicPartition, int] = defaultdict(int)
        self.begun: dict[TopicPartition, list[Begun]] = defaultdict(list)
        self._begins: dict[tuple[str, TopicPartition], int] = {}
        self.fetched: dict[TopicPartition, list[Fetched]] = defaultdict(list)
        self.commits = 0

    # --- producers --------------------------------------------------------------------------------

    def sends_once(self, producer: int) -> None:
        """It neither numbers its batches nor sends one again: its order holds where it is known."""
        with self._lock:
            self.once.add(producer)

    def send(self, place: TopicPartition, producer: int) -> Record:
        """The next record of this producer there; it may be on its way from now on."""
        with self._lock:
            number = self.sent[place, producer]
            self.sent[place, producer] = number + 1
            return Record(producer, number)

    def acknowledge(self, place: TopicPartition, record: Record, offset: int) -> None:
        with self._lock:
            self._answered[place].extend((*record, offset))
            self._last[place, record.producer] = record.number
            self._silences.end(place)

    def refuse(self, why: str) -> None:
        """A producer got an error for a record that is never taken."""
        with self._lock:
            self.refused.append(why)

    def answered(self, place: TopicPartition) -> Iterator[Answered]:
        rows = self._answered.get(place, ())
        for at in range(0, len(rows), 3):
            yield Answered(Record(rows[at], rows[at + 1]), rows[at + 2])

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return sum(map(len, self._answered.values())) // 3

    def mark(self) -> dict[tuple[TopicPartition, int], int]:
        """How much every producer has sent by now."""
        with self._lock:
            return dict(self.sent)

    def gone_on(self, place: TopicPartition, mark: dict[tuple[TopicPartition, int], int]) -> bool:
        """Whether something that was sent after the mark has been acknowledged there."""
        with self._lock:
            return any(
                number >= mark.get((where, producer), 0)
                for (where, producer), number in self._last.items()
                if where == place
            )

    def watch_silence(self) -> None:
        """From now on."""
        with self._lock:
            self._silences.watch()
            self._commit_silences.watch()

    def silences_s(self) -> dict[TopicPartition, float]:
        """For so long each partition acknowledged nothing, up to an acknowledgement."""
        with self._lock:
            return dict(self._silences.longest_s)

    @property
    def commits_silent_s(self) -> float:
        """For so long no commit of the group was acknowledged, up to one that was."""
        with self._lock:
            return max(self._commit_silences.longest_s.values(), default=0.0)

    # --- readers and the group --------------------------------------------------------------------

    def see(self, reader: str, place: TopicPartition, offset: int, value: bytes | None) -> None:
        with self._lock:
            self.read[reader][place].add(offset, record_of(value))
            committed = self._begins.pop((reader, place), None)
            if committed is not None:
                self.begun[place].append(Begun(reader, committed, offset))

    def begin(self, member: str, place: TopicPartition) -> None:
        """The member was given the partition; it asks for the committed offset after this."""
        with self._lock:
            self._begins[member, place] = self.committed[place]

    def commit(self, place: TopicPartition, offset: int) -> None:
        """A commit was acknowledged."""
        with self._lock:
            self.commits += 1
            self._commit_silences.end(GROUPS)
            self.committed[place] = max(self.committed[place], offset)

    def committed_of(self, place: TopicPartition) -> int:
        """What has been acknowledged by now; 0: nothing."""
        with self._lock:
            return self.committed.get(place, 0)

    def see_committed(self, place: TopicPartition, committed: int, offset: int) -> None:
        """The coordinator was asked when `committed` had been acknowledged."""
        with self._lock:
            self.fetched[place].append(Fetched(committed, offset))

    def furthest(self, readers: str, place: TopicPartition) -> int:
        """The highest offset that one of these, by the beginning of their names, has read."""
        with self._lock:
            rows = [
                places[place]
                for reader, places in self.read.items()
                if reader.startswith(readers) and place in places
            ]
            return max((each.highest for each in rows), default=NO_OFFSET)

    @property
    def records_read(self) -> int:
        with self._lock:
            return sum(len(each) for places in self.read.values() for each in places.values())
