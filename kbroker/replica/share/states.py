"""A record's state in a share group as one table: states x events -> (what to do, next state).

Pure data: no clock, no lock, no log. `partition.py` finds the event and follows the cell, and the
tests walk every cell (KIP-932, as Apache Kafka 4.3 has it).

PREPARED is no state of a record on the wire: an acknowledgement has been accepted, and its result
is being written to the share state. Until that is done the member is not answered, no other
acknowledgement of the record is accepted, and it is delivered to no member. A write that fails
leaves the record ACQUIRED.

LIMITED is no state either: it is AVAILABLE for a record that may be delivered once more, GIVEN_UP
for one that was delivered as often as `share.delivery.count.limit` allows. GIVEN_UP is ARCHIVED, or
ARCHIVING where the group has a dead-letter topic (KIP-1191): no member gets the record again, and a
copy of it is being written to that topic. It is ARCHIVED when that is done, or has failed for good.

DELAYED is AVAILABLE for a record that no member gets before its time (kb.share.release.delay.ms,
and kb-deliver-at): in the share state, and for every event, it is AVAILABLE.

Three kinds of cell are no moves: REFUSE answers INVALID_RECORD_STATE, NOTHING is an event that came
too late or does not concern the record, NEVER cannot happen and raises.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(IntEnum):
    """The number is the one of the share state's records; below 0 it is in no record."""

    DELAYED = -4
    GIVEN_UP = -3
    LIMITED = -2
    PREPARED = -1
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


# The states that a record can be in.
STATES: Final = tuple(state for state in State if state >= State.PREPARED)
TERMINAL: Final = frozenset({State.ACKNOWLEDGED, State.ARCHIVED})


class Event(Enum):
    """What happens to a record; the value says it in words."""

    ACQUIRE = "a member fetches"
    ACCEPT = "the member that has it acknowledges it: accept"
    RELEASE = "the member that has it acknowledges it: release"
    REJECT = "the member that has it acknowledges it: reject"
    GAP = "the member that has it acknowledges it: there is no such record"
    RENEW = "the member that has it asks for more time"
    LOCK_ENDS = "its acquisition lock runs out"
    SESSION_ENDS = "the share session of the member that has it ends"
    SHORT_SESSION_ENDS = "the same, soon after it has fetched: it does not count"
    NOT_SENT = "the member that has it is not sent it: its session has ended, or its request"
    NOT_THERE = "a read finds no record, or one of an aborted transaction"
    EXPIRED = "a read finds that its time is over: kb-expires-at"
    USED_UP = "a read finds it delivered as often as is allowed: the limit was lowered"
    COPIED = "its copy is in the dead-letter topic, or there will be none"
    LOG_STARTS_LATER = "the log begins after it: retention, DeleteRecords"
    WRITTEN = "the share coordinator has its next state"
    WRITE_FAILED = "the share coordinator does not have its next state"


class Do(Enum):
    """What a cell does; the value says it in words."""

    MOVE = "the next state holds at once; it is written with the next write"
    MOVE_UNWRITTEN = "the next state holds at once; it is not written"
    PREPARE = "the next state is written, and holds then"
    REFUSE = "INVALID_RECORD_STATE"
    NOTHING = "nothing"
    NEVER = "it cannot happen"


class Cell(NamedTuple):
    do: Do
    next: State | None = None


_REFUSE: Final = Cell(Do.REFUSE)
_NOTHING: Final = Cell(Do.NOTHING)
_NEVER: Final = Cell(Do.NEVER)
_ARCHIVE: Final = Cell(Do.MOVE, State.ARCHIVED)
_GIVE_UP: Final = Cell(Do.MOVE, State.GIVEN_UP)
_LIMITED: Final = Cell(Do.MOVE, State.LIMITED)
_PASSED: Final = Cell(Do.MOVE_UNWRITTEN, State.ARCHIVED)


def _row(
    available: Cell,
    acquired: Cell,
    prepared: Cell,
    acknowledged: Cell,
    archived: Cell,
    archiving: Cell | None = None,
) -> Mapping[State, Cell]:
    """ARCHIVING is as ARCHIVED, where nothing else is said."""
    cells = (prepared, available, acquired, acknowledged, archiving or archived, archived)
    return MappingProxyType(dict(zip(STATES, cells, strict=True)))


def _acknowledged(prepares: State) -> Mapping[State, Cell]:
    return _row(_REFUSE, Cell(Do.PREPARE, prepares), _REFUSE, _REFUSE, _REFUSE)


_UNSENT: Final = Cell(Do.MOVE_UNWRITTEN, State.AVAILABLE)
_ACQUIRED: Final = Cell(Do.MOVE_UNWRITTEN, State.ACQUIRED)

# Each row: AVAILABLE, ACQUIRED, PREPARED, ACKNOWLEDGED, ARCHIVED, and ARCHIVING.
TABLE: Final[Mapping[Event, Mapping[State, Cell]]] = MappingProxyType(
    {
        Event.ACQUIRE: _row(_ACQUIRED, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
        Event.ACCEPT: _acknowledged(State.ACKNOWLEDGED),
        Event.RELEASE: _acknowledged(State.LIMITED),
        Event.REJECT: _acknowledged(State.GIVEN_UP),
        Event.GAP: _acknowledged(State.ARCHIVED),
        Event.RENEW: _row(_REFUSE, _ACQUIRED, _REFUSE, _REFUSE, _REFUSE),
        Event.LOCK_ENDS: _row(_NOTHING, _LIMITED, _NOTHING, _NOTHING, _NOTHING),
        Event.SESSION_ENDS: _row(_NOTHING, _LIMITED, _NOTHING, _NOTHING, _NOTHING),
        Event.SHORT_SESSION_ENDS: _row(_NOTHING, _UNSENT, _NOTHING, _NOTHING, _NOTHING),
        Event.NOT_SENT: _row(_NOTHING, _UNSENT, _NOTHING, _NOTHING, _NOTHING),
        Event.NOT_THERE: _row(_ARCHIVE, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
        Event.EXPIRED: _row(_ARCHIVE, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
        Event.USED_UP: _row(_GIVE_UP, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
        Event.COPIED: _row(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, _ARCHIVE),
        Event.LOG_STARTS_LATER: _row(_PASSED, _PASSED, _PASSED, _NOTHING, _NOTHING, _PASSED),
        Event.WRITTEN: _row(_NEVER, _NEVER, Cell(Do.MOVE_UNWRITTEN), _NEVER, _NEVER),
        Event.WRITE_FAILED: _row(_NEVER, _NEVER, _ACQUIRED, _NEVER, _NEVER),
    }
)

# The types of an acknowledgement on the wire.
GAP_TYPE, ACCEPT_TYPE, RELEASE_TYPE, REJECT_TYPE, RENEW_TYPE = range(5)
EVENT_OF_TYPE: Final[Mapping[int, Event]] = MappingProxyType(
    {
        GAP_TYPE: Event.GAP,
        ACCEPT_TYPE: Event.ACCEPT,
        RELEASE_TYPE: Event.RELEASE,
        REJECT_TYPE: Event.REJECT,
        RENEW_TYPE: Event.RENEW,
    }
)


# Why a record was given up; its place here is its cause, 0 where that is not known any more.
CAUSES: Final = (
    None, Event.REJECT, Event.RELEASE, Event.LOCK_ENDS, Event.SESSION_ENDS, Event.USED_UP,
)  # fmt: skip
NO_CAUSE: Final = 0


def resolved(state: State, count: int, limit: int, *, copies: bool) -> State:
    """The state that LIMITED or GIVEN_UP means for a record that was delivered so often. `copies`:
    its group has a dead-letter topic."""
    if state is State.LIMITED:
        state = State.GIVEN_UP if count >= limit else State.AVAILABLE
    if state is State.GIVEN_UP:
        return State.ARCHIVING if copies else State.ARCHIVED
    return state
