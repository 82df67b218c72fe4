"""The classic group's state machine as one table: states x events -> (what to do, next state).

Level coordinator; pure data and no lock. `group.py` follows it, the tests walk every cell of it,
and `draw_groups.py` draws docs/groups.md from it. Events of requests are raised when the request's
member, instance and generation have been checked; so the cells say what the *state* makes of them.
Three kinds of cell are not moves: REFUSE answers the cell's code, NOTHING is an event that came too
late (a timer, a write that was overtaken), NEVER cannot happen and raises.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class GroupState(IntEnum):
    """The number is for the compiled view; the label for clients."""

    EMPTY = 0
    PREPARING_REBALANCE = 1
    COMPLETING_REBALANCE = 2
    STABLE = 3
    DEAD = 4

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS: Final = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING_REBALANCE: "PreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "CompletingRebalance",
    GroupState.STABLE: "Stable",
    GroupState.DEAD: "Dead",
}


class Event(Enum):
    """What happens to a group; the value says it in words."""

    ASK_ID = "a new member without an id asks to join (KIP-394)"
    JOIN = "a member is new, or comes with other protocols"
    REJOIN_LEADER = "the leader joins again with the same protocols"
    REJOIN_SAME = "another member joins again with the same protocols"
    RETURN = "a static member comes back under a new id; the chosen protocol stays"
    SYNC = "a follower asks for its assignment"
    SYNC_LEADER = "the leader brings the assignment"
    HEARTBEAT = "a member says that it is alive"
    COMMIT = "a member, or a client that is none, commits offsets"
    GONE = "members left, were lost or were put out"
    ID_GONE = "an id that was handed out left or was not used in time"
    ALL_JOINED = "all members that are awaited have joined"
    NOBODY_LEFT = "the last member has gone"
    JOIN_TIMEOUT = "the time for joining is over"
    SYNC_TIMEOUT = "the time for asking for assignments is over"
    STORED = "the assignment is in the log"
    NOT_STORED = "the assignment could not be written"
    DELETE = "the group is to be deleted"
    KEPT = "the group could not be deleted"
    CONVERT = "the group goes on as one of another kind"
    UNLOAD = "this broker no longer owns the group"


class Do(Enum):
    """What a cell does; the value says it in words."""

    GIVE_ID = "hand out an id, to be joined with"
    BEGIN = "wait for others, then form the first generation"
    RESTART = "have all members join again"
    PARK = "let the join wait for the others"
    REPEAT = "answer with the present generation"
    REPLACE = "store the new id, answer with the present generation"
    WAIT = "let the sync wait for the assignment"
    STORE = "write the assignment"
    GIVE = "answer with the assignment"
    ANSWER = "note that the member is alive, answer"
    REFUSE = "answer with an error"
    CHECK = "see whether all have joined"
    FORM = "choose protocol and leader, answer the joins"
    CLOSE = "put absentees out that are not static"
    EXPEL = "put those out that did not ask, then restart"
    EMPTIED = "write the empty generation"
    SETTLE = "answer the waiting syncs"
    BURY = "answer waiting requests; forget the group"
    KEEP = "be as before"
    NOTHING = "too late: nothing"
    NEVER = "cannot happen"


class Cell(NamedTuple):
    do: Do
    to: GroupState
    code: ErrorCode = ErrorCode.NONE


_E, _P, _C, _S, _D = GroupState
_NO_MEMBER: Final = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING: Final = ErrorCode.REBALANCE_IN_PROGRESS
_NON_EMPTY: Final = ErrorCode.NON_EMPTY_GROUP
_GONE: Final = Cell(Do.REFUSE, _D, ErrorCode.COORDINATOR_NOT_AVAILABLE)

# One row per event, one cell per state in the order of GroupState.
_ROWS: Final[dict[Event, tuple[Cell, Cell, Cell, Cell, Cell]]] = {
    Event.ASK_ID: (
        Cell(Do.GIVE_ID, _E), Cell(Do.GIVE_ID, _P), Cell(Do.GIVE_ID, _C), Cell(Do.GIVE_ID, _S),
        _GONE,
    ),
    Event.JOIN: (
        Cell(Do.BEGIN, _P), Cell(Do.PARK, _P), Cell(Do.RESTART, _P), Cell(Do.RESTART, _P), _GONE,
    ),
    Event.REJOIN_LEADER: (
        Cell(Do.REFUSE, _E, _NO_MEMBER), Cell(Do.PARK, _P), Cell(Do.REPEAT, _C),
        Cell(Do.RESTART, _P), _GONE,
    ),
    Event.REJOIN_SAME: (
        Cell(Do.REFUSE, _E, _NO_MEMBER), Cell(Do.PARK, _P), Cell(Do.REPEAT, _C),
        Cell(Do.REPEAT, _S), _GONE,
    ),
    Event.RETURN: (
        Cell(Do.NEVER, _E), Cell(Do.PARK, _P), Cell(Do.RESTART, _P), Cell(Do.REPLACE, _S), _GONE,
    ),
    Event.SYNC: (
        Cell(Do.REFUSE, _E, _NO_MEMBER), Cell(Do.REFUSE, _P, _REBALANCING), Cell(Do.WAIT, _C),
        Cell(Do.GIVE, _S), _GONE,
    ),
    Event.SYNC_LEADER: (
        Cell(Do.REFUSE, _E, _NO_MEMBER), Cell(Do.REFUSE, _P, _REBALANCING), Cell(Do.STORE, _C),
        Cell(Do.GIVE, _S), _GONE,
    ),
    Event.HEARTBEAT: (
        Cell(Do.REFUSE, _E, _NO_MEMBER), Cell(Do.ANSWER, _P, _REBALANCING), Cell(Do.ANSWER, _C),
        Cell(Do.ANSWER, _S), _GONE,
    ),
    Event.COMMIT: (
        Cell(Do.ANSWER, _E), Cell(Do.ANSWER, _P), Cell(Do.REFUSE, _C, _REBALANCING),
        Cell(Do.ANSWER, _S), _GONE,
    ),
    Event.GONE: (
        Cell(Do.NEVER, _E), Cell(Do.CHECK, _P), Cell(Do.RESTART, _P), Cell(Do.RESTART, _P),
        Cell(Do.NOTHING, _D),
    ),
    Event.ID_GONE: (
        Cell(Do.NOTHING, _E), Cell(Do.CHECK, _P), Cell(Do.NOTHING, _C), Cell(Do.NOTHING, _S),
        Cell(Do.NOTHING, _D),
    ),
    Event.ALL_JOINED: (
        Cell(Do.NEVER, _E), Cell(Do.FORM, _C), Cell(Do.NEVER, _C), Cell(Do.NEVER, _S),
        Cell(Do.NEVER, _D),
    ),
    Event.NOBODY_LEFT: (
        Cell(Do.NEVER, _E), Cell(Do.EMPTIED, _E), Cell(Do.NEVER, _C), Cell(Do.NEVER, _S),
        Cell(Do.NEVER, _D),
    ),
    Event.JOIN_TIMEOUT: (
        Cell(Do.NOTHING, _E), Cell(Do.CLOSE, _P), Cell(Do.NOTHING, _C), Cell(Do.NOTHING, _S),
        Cell(Do.NOTHING, _D),
    ),
    Event.SYNC_TIMEOUT: (
        Cell(Do.NOTHING, _E), Cell(Do.NOTHING, _P), Cell(Do.EXPEL, _P), Cell(Do.EXPEL, _P),
        Cell(Do.NOTHING, _D),
    ),
    Event.STORED: (
        Cell(Do.NOTHING, _E), Cell(Do.NOTHING, _P), Cell(Do.SETTLE, _S), Cell(Do.NOTHING, _S),
        Cell(Do.NOTHING, _D),
    ),
    Event.NOT_STORED: (
        Cell(Do.NOTHING, _E), Cell(Do.NOTHING, _P), Cell(Do.RESTART, _P), Cell(Do.NOTHING, _S),
        Cell(Do.NOTHING, _D),
    ),
    Event.DELETE: (
        Cell(Do.BURY, _D), Cell(Do.REFUSE, _P, _NON_EMPTY), Cell(Do.REFUSE, _C, _NON_EMPTY),
        Cell(Do.REFUSE, _S, _NON_EMPTY), Cell(Do.REFUSE, _D, ErrorCode.GROUP_ID_NOT_FOUND),
    ),
    Event.KEPT: (
        Cell(Do.NEVER, _E), Cell(Do.NEVER, _P), Cell(Do.NEVER, _C), Cell(Do.NEVER, _S),
        Cell(Do.KEEP, _E),
    ),
    Event.CONVERT: (
        Cell(Do.BURY, _D), Cell(Do.BURY, _D), Cell(Do.BURY, _D), Cell(Do.BURY, _D),
        Cell(Do.NEVER, _D),
    ),
    Event.UNLOAD: (
        Cell(Do.BURY, _D), Cell(Do.BURY, _D), Cell(Do.BURY, _D), Cell(Do.BURY, _D),
        Cell(Do.NOTHING, _D),
    ),
}  # fmt: skip

TABLE: Final[Mapping[tuple[GroupState, Event], Cell]] = MappingProxyType(
    {
        (state, event): cell
        for event, row in _ROWS.items()
        for state, cell in zip(GroupState, row, strict=True)
    }
)
