"""A share-partition at the leader: which records of a partition are with which member of a group.

The offsets from `start` (Apache Kafka's SPSO) to `end` (SPEO) are the window: what was handed out
and is not done with, and what lies between. `ranges.py` has the state of each offset in it, and
`states.py` what becomes of it. Offsets before the start are done; those after the end were never
delivered. The window is bounded by `group.share.partition.max.record.locks`.

    load          the state that the share coordinator has kept becomes a window
    acquire       records that a read has found go to a member (`acquiring.py`)
    acknowledge   a member says what became of its records (`acknowledging.py`)
    to_copy       records that go to the group's dead-letter topic, until `copied` says so
    take_write    what is to be kept now, as one write
    written       the answer of that write

One write is under way at a time. What is decided meanwhile goes into the next one, so writes are in
order, and a write that failed, or of which it is not known whether it failed, is followed by one
that says what holds. A result that a client waits for is PREPARED until its write has succeeded.
The end of a lock or of a session is no promise to a client: the records are available at once, and
the next write keeps their counts. A write repeats the start that holds when it is made, never one
that it would bring about itself, since the outcome of a write can stay unknown.

A pure machine: the time is an argument, and reading the log and writing the state are its owner's.
It belongs to one leader epoch; the owner forgets it when another one begins. Not synchronized: the
owner has a lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, Self

from kbroker.errors import ErrorCode, InvariantError
from kbroker.limits import SHARE_DELAYED_MAX, SHARE_RANGES_MAX
from kbroker.replica.share.ranges import (
    NO_OWNER,
    NONE,
    STORING,
    UNWRITTEN,
    WRITING,
    Ranges,
)
from kbroker.replica.share.spared import Spared
from kbroker.replica.share.states import (
    CAUSES,
    NO_CAUSE,
    TABLE,
    TERMINAL,
    Cell,
    Do,
    Event,
    State,
    resolved,
)
from kbroker.replica.share.writes import StoredBatch, Write, add, merged

# Far beyond the longest delay.
_DOUBLINGS_MAX: Final = 30
# Entries of ended locks that may wait for their time, beside one for each range.
_LOCKS_SLACK: Final = 64
_TERMINAL: Final = frozenset(int(state) for state in TERMINAL)
_STORED: Final = frozenset({State.AVAILABLE, State.ARCHIVING, *TERMINAL})


class Settings(NamedTuple):
    """Of the group, as they are at this moment."""

    lock_ms: int  # share.record.lock.duration.ms
    deliveries: int  # share.delivery.count.limit
    window: int  # share.partition.max.record.locks
    renews: bool = True  # share.renew.acknowledge.enable
    # The end of a session so soon after a record was acquired does not count; 0: each one counts.
    short_ms: int = 0
    copies: bool = False  # it has a dead-letter topic
    # Before a record is delivered again that was released, or whose lock has ended: so long after
    # its first delivery, twice as long after each further one, up to the second value; 0: at once.
    delay_ms: int = 0  # kb.share.release.delay.ms
    delay_ms_max: int = 0  # kb.share.release.delay.max.ms
    heeds_times: bool = False  # kb.share.record.times.enable

    @property
    def waits(self) -> bool:
        """Whether records may wait for long."""
        return self.delay_ms > 0 or self.heeds_times

    def delay_after(self, deliveries: int) -> int:
        return min(self.delay_ms << min(max(deliveries, 1) - 1, _DOUBLINGS_MAX), self.delay_ms_max)


class ToCopy(NamedTuple):
    """Records for the dead-letter topic; both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: Event | None  # None: it is not known any more


class Counts(NamedTuple):
    """Offsets by event; for those that were archived, the first ones, too."""

    records: Counter[Event]
    archived: Counter[Event]
    first: dict[Event, int]


class Written(NamedTuple):
    """The acknowledgements that were in a write, and what they are answered with."""

    tokens: list[Any]
    code: ErrorCode


class SharePartition:
    """See the module."""

    __slots__ = (
        "acquired", "archived", "archiving", "changed", "counted", "delayed", "end",
        "first_archived", "kept_start", "locks", "prepared", "ranges", "spared", "start",
        "terminal", "waiting", "writing", "writing_start",
    )  # fmt: skip

    def __init__(self, start: int) -> None:
        """An empty window: nothing from this offset on was delivered."""
        self.start = start
        self.end = start - 1
        self.kept_start = start  # the start of the last write that succeeded, or as it was read
        self.writing_start = start
        self.ranges: Final = Ranges()
        self.spared = Spared()
        self.terminal = 0  # offsets of the window that are acknowledged or archived
        self.archiving = 0  # and those of which a copy is to be written before they are archived
        self.acquired = 0  # those that members have
        self.delayed = 0  # those that wait for their time: the window is longer by these
        # A heap of (deadline, first, last): offsets that were acquired, or are delayed, until then.
        # Some are neither by now.
        self.locks: list[tuple[int, int, int]] = []
        self.changed: list[tuple[int, int]] = []  # offsets with something for the next write
        self.writing: list[tuple[int, int]] | None = None  # those of the write under way
        self.prepared: list[Any] = []  # tokens of the acknowledgements for the next write
        self.waiting: list[Any] = []  # and of those in the write under way
        # Offsets since `take_counts`, by event; those that were archived, and the first of them.
        self.counted: Counter[Event] = Counter()
        self.archived: Counter[Event] = Counter()
        self.first_archived: dict[Event, int] = {}

    # --- Loading ----------------------------------------------------------------------------------

    @classmethod
    def load(
        cls, start: int, batches: Iterable[StoredBatch], log_start: int, log_end: int
    ) -> tuple[Self, tuple[Write, ...]]:
        """The window that the share coordinator has kept, in a log with these offsets.

        Offsets between two batches that were acquired, and never kept, are available again; a read
        finds out which of them are records. What was kept of offsets that the log does not have any
        more (an unclean election) is of other records than those that will have them. It is
        forgotten by the writes that are returned, which must have succeeded, one after the other,
        before a record is delivered: a state gives way to a higher start alone. ValueError: the
        batches are none.
        """
        loaded = cls(min(start, log_end))
        kept_to = start - 1
        for first, last, state, count in batches:
            if last < first or state not in _STORED or count < 0:
                raise ValueError(f"{first}-{last} in state {state} is no batch of share state")
            kept_to = max(kept_to, last)
            first, last = max(first, loaded.start), min(last, log_end - 1)
            if first > last:
                continue
            if first <= loaded.end:
                raise ValueError(f"{first}-{last} does not follow {loaded.end}")
            if first > loaded.end + 1:
                loaded._append(loaded.end + 1, first - 1, State.AVAILABLE, 0, length=0)
            loaded._append(first, last, State(state), count, length=last - first + 1)
        loaded.log_starts_at(log_start)
        loaded.advance()
        if kept_to < log_end:
            return loaded, ()
        return loaded, (Write(kept_to + 1, (), 0), loaded._whole())

    def _whole(self) -> Write:
        """All that is known of the window."""
        every = (self.ranges.at(place) for place in range(len(self.ranges)))
        batches = (
            StoredBatch(each.first, each.last, each.state, each.deliveries)
            for each in every
            if each.length
        )
        return Write(self.start, tuple(batches), self.terminal)

    def _append(self, first: int, last: int, state: State, count: int, *, length: int) -> None:
        self.ranges.append(first, last, state, count, length=length)
        self.end = last
        if state in TERMINAL:
            self.terminal += last - first + 1
        elif state is State.ARCHIVING:
            self.archiving += last - first + 1

    def extend(self, last: int) -> None:
        """The window reaches to this offset; what is new in it was never delivered."""
        if last <= self.end:
            return
        ranges = self.ranges
        if ranges and ranges.state[-1] == State.AVAILABLE and not ranges.length[-1]:
            ranges.last[-1] = self.end = last
        else:
            self._append(self.end + 1, last, State.AVAILABLE, 0, length=0)

    def skip_to(self, offset: int, event: Event) -> None:
        """An empty window begins later: before that a read has found no record to deliver."""
        if self.ranges or offset <= self.start:
            raise InvariantError(f"{self.start}-{self.end} cannot skip to {offset}")
        self._count_archived(event, self.start, offset - 1)
        self.changed.append((self.start, offset - 1))
        self.start = offset
        self.end = offset - 1

    def give_back_tail(self) -> None:
        """Undo `extend`, as far as no member has acquired anything."""
        ranges = self.ranges
        while (
            ranges.first and ranges.state[-1] == State.AVAILABLE and not ranges.length[-1]
        ):  # fmt: skip
            self.end = ranges.first[-1] - 1
            ranges.drop_from(ranges.first[-1])

    # --- One range --------------------------------------------------------------------------------

    def cell(self, place: int, event: Event) -> Cell:
        """What the event does to the range at this place."""
        if self.ranges.target[place] != NONE:
            return TABLE[event][State.PREPARED]
        state = State(self.ranges.state[place])
        return TABLE[event][State.AVAILABLE if state is State.DELAYED else state]

    def follow(self, place: int, event: Event, settings: Settings) -> None:
        """An event that ends the range's state, or prepares its end."""
        cell = self.cell(place, event)
        if cell.next is None or cell.next is State.ACQUIRED:
            if cell.do is Do.NOTHING:
                return
            raise InvariantError(f"{event.name} on {self.ranges.at(place)}")
        ranges = self.ranges
        state = resolved(
            cell.next, ranges.count[place], settings.deliveries, copies=settings.copies
        )
        self.count(event, ranges.first[place], ranges.last[place])
        if state in (State.ARCHIVED, State.ARCHIVING) and event is not Event.COPIED:
            self._count_archived(event, ranges.first[place], ranges.last[place])
        if state is State.ARCHIVING:
            ranges.cause[place] = CAUSES.index(event)
        if cell.do is Do.PREPARE:
            ranges.target[place] = state
        else:
            self._put(place, state)
            if cell.do is not Do.MOVE:
                return
            ranges.flags[place] |= UNWRITTEN
        self.changed.append((ranges.first[place], ranges.last[place]))

    def _put(self, place: int, state: State) -> None:
        ranges = self.ranges
        count = ranges.last[place] - ranges.first[place] + 1
        self._no_more(place, count)
        if state is State.ARCHIVING:
            self.archiving += count
        else:
            ranges.cause[place] = NO_CAUSE
        ranges.state[place] = state
        ranges.target[place] = NONE
        ranges.owner[place] = NO_OWNER
        ranges.deadline_ms[place] = 0
        ranges.acquired_ms[place] = 0
        if state in TERMINAL:
            self.terminal += count

    def _no_more(self, place: int, count: int) -> None:
        """So many offsets of the range are not in its state any more."""
        state = self.ranges.state[place]
        if state == State.ACQUIRED:
            self.acquired -= count
        elif state == State.DELAYED:
            self.delayed -= count
        elif state == State.ARCHIVING:
            self.archiving -= count

    def give(self, place: int, owner: int, settings: Settings, now_ms: int) -> None:
        """The range, which is available, is with this owner until its lock ends."""
        ranges = self.ranges
        ranges.state[place] = State.ACQUIRED
        ranges.count[place] += 1
        ranges.owner[place] = owner
        ranges.acquired_ms[place] = now_ms
        self.acquired += ranges.last[place] - ranges.first[place] + 1
        self.lock(place, now_ms + settings.lock_ms)

    def _delay(self, place: int, settings: Settings, now_ms: int) -> None:
        """A record that was released, or whose lock has ended, may have to wait."""
        ranges = self.ranges
        delay_ms = settings.delay_after(ranges.count[place]) if settings.delay_ms else 0
        if delay_ms and ranges.state[place] == State.AVAILABLE:
            self.put_off(place, now_ms + delay_ms)

    def put_off(self, place: int, until_ms: int) -> None:
        """The range, which is available, waits so long."""
        ranges = self.ranges
        ranges.state[place] = State.DELAYED
        self.delayed += ranges.last[place] - ranges.first[place] + 1
        self.lock(place, until_ms)

    def lock(self, place: int, until_ms: int) -> None:
        """The range's owner has it until then; a delayed one waits so long."""
        ranges = self.ranges
        ranges.deadline_ms[place] = until_ms
        heappush(self.locks, (until_ms, ranges.first[place], ranges.last[place]))
        if len(self.locks) > 2 * len(ranges) + _LOCKS_SLACK:
            self.locks = [
                (ranges.deadline_ms[at], ranges.first[at], ranges.last[at])
                for at in range(len(ranges))
                if ranges.state[at] in (State.ACQUIRED, State.DELAYED)
            ]
            heapify(self.locks)

    def advance(self) -> None:
        """The start moves past what is done with."""
        ranges = self.ranges
        place = 0
        while place < len(ranges) and ranges.state[place] in _TERMINAL:
            self.terminal -= ranges.last[place] - ranges.first[place] + 1
            place += 1
        if place:
            self.start = ranges.last[place - 1] + 1
            ranges.drop_before(self.start)

    # --- Events -----------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """When `end_locks` may have something to do; None: there are no locks, and no delays."""
        return self.locks[0][0] if self.locks else None

    def end_locks(self, now_ms: int, settings: Settings) -> bool:
        """The locks and delays that are over; True if a record is available, or done with, by
        that."""
        ended, ranges = False, self.ranges
        while self.locks and self.locks[0][0] <= now_ms:
            _, first, last = heappop(self.locks)
            for place in ranges.overlapping(first, last):
                if ranges.deadline_ms[place] > now_ms or ranges.target[place] != NONE:
                    continue
                if ranges.state[place] == State.ACQUIRED:
                    self.follow(place, Event.LOCK_ENDS, settings)
                    self._delay(place, settings, now_ms)
                    ended = True
                elif ranges.state[place] == State.DELAYED:
                    self._put(place, State.AVAILABLE)
                    ended = True
            self.ranges.join(first, last)
        if ended:
            self.advance()
        return ended

    def end_session(self, owner: int | None, settings: Settings, now_ms: int) -> bool:
        """The session's records, or (None) those of all; True if a record is available, or done
        with, by that."""
        ended = bool(settings.short_ms) and self._end_short_session(owner, settings, now_ms)
        for place in self._owned(owner):
            self.follow(place, Event.SESSION_ENDS, settings)
            ended = True
        ranges = self.ranges
        if ended:
            ranges.join(self.start, self.end)
            self.advance()
        return ended

    def _owned(self, owner: int | None) -> Iterator[int]:
        """The places of the session's records, or (None) of those of all, that are not written."""
        ranges = self.ranges
        for place in range(len(ranges)):
            has = ranges.owner[place]
            if has != NO_OWNER and owner in (None, has) and ranges.target[place] == NONE:
                yield place

    def _end_short_session(self, owner: int | None, settings: Settings, now_ms: int) -> bool:
        """Those of the records that were acquired a short time before, as if they had not been, as
        often as that is allowed for each."""
        ranges, since_ms = self.ranges, now_ms - settings.short_ms
        short = [
            (ranges.first[place], ranges.last[place])
            for place in self._owned(owner)
            if ranges.acquired_ms[place] > since_ms
        ]
        spared = self.spared.spare(short, self.start)
        for first, last in spared:
            for place in ranges.span(first, last):
                self.follow(place, Event.SHORT_SESSION_ENDS, settings)
                ranges.count[place] -= 1
        return bool(spared)

    def give_back(self, owner: int, first: int, last: int) -> bool:
        """Records that the session has acquired, and that are not sent: as if it had not. True if
        some are available by that."""
        given, ranges = False, self.ranges
        for place in ranges.span(first, last):
            if ranges.owner[place] != owner or ranges.target[place] != NONE:
                continue
            if self.cell(place, Event.NOT_SENT).next is State.AVAILABLE:
                self._put(place, State.AVAILABLE)
                ranges.count[place] -= 1
                given = True
        ranges.join(first, last)
        return given

    def log_starts_at(self, offset: int) -> bool:
        """The log begins later; True if the start has moved by that. The next write has the start:
        else what the coordinator keeps would lack records that no member can get any more."""
        if offset <= self.start:
            return False
        ranges = self.ranges
        for place in ranges.overlapping(self.start, offset - 1):
            count = min(ranges.last[place], offset - 1) - ranges.first[place] + 1
            last = ranges.first[place] + count - 1
            self._no_more(place, count)
            if ranges.state[place] in _TERMINAL:
                self.terminal -= count
            elif ranges.state[place] == State.ARCHIVING:  # counted when it was given up
                self.count(Event.LOG_STARTS_LATER, ranges.first[place], last)
            else:
                self._count_archived(Event.LOG_STARTS_LATER, ranges.first[place], last)
        ranges.drop_before(offset)
        self.changed.append((self.start, offset - 1))
        self.start = offset
        self.end = max(self.end, offset - 1)
        self.advance()
        return True

    def to_copy(self, records_max: int) -> list[ToCopy]:
        """The first records of which a copy is to be written, so many at most."""
        found: list[ToCopy] = []
        if not self.archiving:
            return found
        ranges, left = self.ranges, records_max
        for place in range(ranges.state.index(State.ARCHIVING), len(ranges)):
            if ranges.state[place] != State.ARCHIVING:
                continue
            first, last = ranges.first[place], ranges.last[place]
            last = min(last, first + left - 1)
            found.append(ToCopy(first, last, ranges.count[place], CAUSES[ranges.cause[place]]))
            left -= last - first + 1
            if not left:
                break
        return found

    def copied(self, first: int, last: int, settings: Settings) -> None:
        """Their copies are written, or will never be."""
        ranges = self.ranges
        for place in ranges.span(first, last):
            self.follow(place, Event.COPIED, settings)
        ranges.join(first, last)
        self.advance()

    def next_offset(self, settings: Settings) -> int | None:
        """From where a fetch is to read: the first record that is available, or the one after the
        window if that has room. None: there is none until something changes."""
        ranges = self.ranges
        if self.acquired >= settings.window:
            return None
        try:
            return ranges.first[ranges.state.index(State.AVAILABLE)]
        except ValueError:
            return self.end + 1 if self.room(settings) > 0 else None

    @property
    def in_flight(self) -> int:
        """Offsets in the window, without those that are delayed."""
        return self.end - self.start + 1 - self.delayed

    @property
    def is_full_of_delayed(self) -> bool:
        """Whether as many records are delayed as may be, or lie in so many parts of the window with
        those that are done with: no new one is delivered."""
        return self.delayed >= SHARE_DELAYED_MAX or len(self.ranges) >= SHARE_RANGES_MAX

    def room(self, settings: Settings) -> int:
        """So many new offsets may be delivered. Where records may wait for long, those after them
        that are done with take no place either: else one that waits would hold the others up."""
        if self.is_full_of_delayed:
            return 0
        return settings.window - self.in_flight + (self.terminal if settings.waits else 0)

    # --- Counts -----------------------------------------------------------------------------------

    def count(self, event: Event, first: int, last: int) -> None:
        self.counted[event] += last - first + 1

    def _count_archived(self, event: Event, first: int, last: int) -> None:
        self.archived[event] += last - first + 1
        self.first_archived.setdefault(event, first)

    def take_counts(self) -> Counts | None:
        """What has happened since the last time; None: nothing."""
        if not (self.counted or self.archived):
            return None
        taken = Counts(self.counted, self.archived, self.first_archived)
        self.counted, self.archived, self.first_archived = Counter(), Counter(), {}
        return taken

    # --- Writing ----------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for the next write."""
        return bool(self.prepared)

    def take_write(self) -> Write | None:
        """What is to be written now; None: nothing, or a write is under way."""
        if self.writing is not None or not self.changed:
            return None
        ranges, complete = self.ranges, self.terminal
        batches: list[StoredBatch] = []
        self.writing, self.changed = merged(self.changed), []
        self.waiting, self.prepared = self.prepared, []
        for first, last in self.writing:
            for place in ranges.overlapping(first, last):
                flags, count = ranges.flags[place], ranges.count[place]
                state = ranges.target[place]
                if state != NONE and not flags & WRITING:
                    ranges.flags[place] = flags | WRITING  # if it fails, what was unwritten is
                    if state in _TERMINAL:
                        complete += ranges.last[place] - ranges.first[place] + 1
                elif flags & UNWRITTEN:
                    ranges.flags[place] = flags & ~UNWRITTEN | STORING
                    state = ranges.state[place]
                    if state == State.ACQUIRED:  # what was to be written is older
                        state, count = int(State.AVAILABLE), count - 1
                    elif state == State.DELAYED:
                        state = int(State.AVAILABLE)
                else:
                    continue
                add(batches, StoredBatch(ranges.first[place], ranges.last[place], state, count))
        if not batches and not self.waiting and self.start == self.kept_start:
            self.writing = None
            return None
        self.writing_start = self.start
        return Write(self.start, tuple(batches), complete)

    def written(self, code: ErrorCode, settings: Settings, now_ms: int) -> Written:
        """The write that was taken last is over. The tokens are those of the acknowledgements in
        it."""
        if self.writing is None:
            raise InvariantError("no write is under way")
        ranges, succeeded = self.ranges, code is ErrorCode.NONE
        spans, self.writing = self.writing, None
        tokens, self.waiting = self.waiting, []
        if succeeded:
            self.kept_start = self.writing_start
        for first, last in spans:
            for place in ranges.overlapping(first, last):
                flags = ranges.flags[place]
                if flags & WRITING:
                    ranges.flags[place] = flags & ~(WRITING | UNWRITTEN * succeeded)
                    self._settle(place, Event.WRITTEN if succeeded else Event.WRITE_FAILED)
                    self._delay(place, settings, now_ms)
                elif flags & STORING:
                    ranges.flags[place] = flags & ~STORING
                    if not succeeded:
                        ranges.flags[place] |= UNWRITTEN
            if not succeeded:
                self.changed.append((first, last))
            ranges.join(first, last)
        self.advance()
        return Written(tokens, code)

    def _settle(self, place: int, event: Event) -> None:
        cell, ranges = self.cell(place, event), self.ranges
        if cell.do is not Do.MOVE_UNWRITTEN:
            raise InvariantError(f"{event.name} on {ranges.at(place)}")
        if cell.next is State.ACQUIRED:
            ranges.target[place] = NONE
            ranges.cause[place] = NO_CAUSE
            self.lock(place, ranges.deadline_ms[place])  # it may have run out meanwhile
        else:
            self._put(place, State(ranges.target[place]))

    def forget_write(self) -> list[Any]:
        """The leader does not lead any more: all tokens that wait, in their order."""
        tokens = [*self.waiting, *self.prepared]
        self.waiting, self.prepared = [], []
        return tokens
