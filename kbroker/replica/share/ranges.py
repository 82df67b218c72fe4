"""The offsets of a share-partition's window, as ranges of the same state.

The ranges lie one after the other without a gap, from the share-partition's start to its end, both
included: each offset is in exactly one. A range is a place in parallel arrays, 54 bytes, so a
window in which each record is a range of its own costs no object for a record. What is done here
needs no object of Python: it is to become C, with the same functions.

    first, last     both ends included
    state           State: AVAILABLE, DELAYED, ACQUIRED, ACKNOWLEDGED, ARCHIVING or ARCHIVED
    target          the state that is being written for it; NONE: it is not PREPARED
    flags           UNWRITTEN: what is kept of it is older; WRITING, STORING: it is in the write
                    that is under way, by its target or by its state
    count           how often it was delivered
    owner           the number of the session that has it; 0: none has
    deadline_ms     of its lock, on the monotonic clock; of DELAYED: when it is available
    acquired_ms     when its owner has acquired it, on the same clock
    origin, length  the batch of which it is a part, as it was first delivered; length 0: it was
                    never delivered, and may be of several batches of the log
    cause           of ARCHIVING, or its target: why the record was given up (`CAUSES`)

Not synchronized: the owner of the share-partition has its lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from kbroker.errors import InvariantError
from kbroker.replica.share.states import NO_CAUSE, State

NONE: Final = -1
NO_OWNER: Final = 0

UNWRITTEN: Final = 1
WRITING: Final = 2
STORING: Final = 4


class Range(NamedTuple):
    """A copy of one, for tests and for descriptions."""

    first: int
    last: int
    state: State
    target: int
    flags: int
    deliveries: int
    owner: int
    deadline_ms: int
    origin: int
    length: int
    acquired_ms: int
    cause: int = NO_CAUSE


class Ranges:
    """See the module."""

    __slots__ = (
        "acquired_ms", "cause", "count", "deadline_ms", "first", "flags", "last", "length",
        "origin", "owner", "state", "target",
    )  # fmt: skip

    def __init__(self) -> None:
        self.first = array("q")
        self.last = array("q")
        self.state = array("b")
        self.target = array("b")
        self.flags = array("b")
        self.count = array("h")
        self.owner = array("q")
        self.deadline_ms = array("q")
        self.acquired_ms = array("q")
        self.origin = array("q")
        self.length = array("i")
        self.cause = array("b")

    def __len__(self) -> int:
        return len(self.first)

    def at(self, place: int) -> Range:
        return Range(
            self.first[place], self.last[place], State(self.state[place]), self.target[place],
            self.flags[place], self.count[place], self.owner[place], self.deadline_ms[place],
            self.origin[place], self.length[place], self.acquired_ms[place], self.cause[place],
        )  # fmt: skip

    def find(self, offset: int) -> int:
        """The place of the range with this offset; the first one for an offset before all, the
        number of ranges for one after all."""
        if not self.first or offset > self.last[-1]:
            return len(self.first)
        return max(0, bisect_right(self.first, offset) - 1)

    def append(self, first: int, last: int, state: State, count: int, *, length: int) -> None:
        """At the end. `length`: that of its batch, 0 where it was never delivered."""
        if last < first or (self.first and first != self.last[-1] + 1):
            raise InvariantError(f"the range {first}-{last} does not follow the last one")
        if length > 2**31 - 1:
            length = 2**31 - 1  # a batch of the log is shorter
        self.first.append(first)
        self.last.append(last)
        self.state.append(state)
        self.target.append(NONE)
        self.flags.append(0)
        self.count.append(count)
        self.owner.append(NO_OWNER)
        self.deadline_ms.append(0)
        self.acquired_ms.append(0)
        self.origin.append(first)
        self.length.append(length)
        self.cause.append(NO_CAUSE)

    def cut(self, offset: int) -> int:
        """The place of the range that begins with this offset; a range that has it within is cut in
        two. For an offset after all ranges, their number."""
        place = self.find(offset)
        if place == len(self.first) or self.first[place] >= offset:
            return place
        self.first.insert(place + 1, offset)
        self.last.insert(place, offset - 1)
        for column in (self.state, self.target, self.flags, self.count, self.owner,
                       self.deadline_ms, self.acquired_ms, self.origin, self.length,
                       self.cause):  # fmt: skip
            column.insert(place, column[place])
        return place + 1

    def span(self, first: int, last: int) -> range:
        """The places of the ranges that are exactly these offsets, as far as there are ranges."""
        begin = self.cut(first)
        end = self.cut(last + 1)
        return range(begin, end)

    def overlapping(self, first: int, last: int) -> range:
        """The places of the ranges with some of these offsets; nothing is cut."""
        if not self.first or first > self.last[-1] or last < self.first[0] or last < first:
            return range(0)
        return range(self.find(first), min(self.find(last) + 1, len(self.first)))

    def join(self, first: int, last: int) -> None:
        """Make one range of neighbours that are the same, among these offsets and beside them."""
        around = self.overlapping(first - 1, last + 1)
        for place in range(around.stop - 1, around.start, -1):
            if self._are_same(place - 1, place):
                self.last[place - 1] = self.last[place]
                self._remove(place, place + 1)

    def _are_same(self, one: int, other: int) -> bool:
        if (
            self.state[one] != self.state[other]
            or self.target[one] != self.target[other]
            or self.flags[one] != self.flags[other]
        ):
            return False
        if self.state[one] in (State.ACKNOWLEDGED, State.ARCHIVED) and not self.flags[one]:
            return True
        return (
            self.count[one] == self.count[other]
            and self.owner[one] == self.owner[other]
            and self.deadline_ms[one] == self.deadline_ms[other]
            and self.acquired_ms[one] == self.acquired_ms[other]
            and self.origin[one] == self.origin[other]
            and self.length[one] == self.length[other]
            and self.cause[one] == self.cause[other]
        )

    def drop_before(self, offset: int) -> None:
        """The ranges begin with this offset from now on."""
        self._remove(0, self.cut(offset))

    def drop_from(self, offset: int) -> None:
        """The ranges end before this offset from now on."""
        self._remove(self.cut(offset), len(self.first))

    def _remove(self, begin: int, end: int) -> None:
        for column in (self.first, self.last, self.state, self.target, self.flags, self.count,
                       self.owner, self.deadline_ms, self.acquired_ms, self.origin,
                       self.length, self.cause):  # fmt: skip
            del column[begin:end]
