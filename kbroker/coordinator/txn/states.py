"""A transactional id's state machine as one table: states x events -> (what to do, next state).

Pure data: no clock, no lock, no log. `decisions.py` finds the event and follows the cell, the tests
walk every cell, and `draw_transactions.py` draws docs/transactions.md from it.

Two columns are no states of a record: NONE is an id that is unknown, PENDING one with a write
under way or with markers to be written. So an id is PENDING from the decision on an outcome until
Complete* is in the log; requests meet Prepare* in no other way. An event says what a request
brings: the right pair of producer id and epoch, an older epoch, another producer id. So one row is
one check, and the order of the checks is in the cells: a PENDING cell comes before any pair is
compared, but for EndTxn 0-4, as in Apache Kafka 4.3.

Three kinds of cell are not moves: REFUSE answers the cell's code, NOTHING is an event that came too
late, NEVER cannot happen and raises.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(IntEnum):
    """The number is the one in the records; below 0 it is in no record."""

    NONE = -2
    PENDING = -1
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """As Apache Kafka lists it."""
        return _LABELS[self]


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})  # outcomes
UNFINISHED: Final = PREPARED | {State.ONGOING}  # a partition may have records without a marker

_LABELS: Final = {
    State.NONE: "unknown",
    State.PENDING: "pending",
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}


class Event(Enum):
    """What happens to a transactional id; the value says it in words."""

    INIT = "InitProducerId without a producer id"
    INIT_CURRENT = "InitProducerId with the current producer id and epoch"
    INIT_LAST = "InitProducerId with the epoch before the current one: its response was lost"
    INIT_OLD = "InitProducerId with another epoch of a known producer id"
    INIT_FOREIGN = "InitProducerId with an unknown producer id"
    ADD = "partitions are added, by the right producer"
    ADD_KNOWN = "partitions are added that the transaction has already"
    ADD_OLD = "partitions are added with another epoch"
    ADD_FOREIGN = "partitions are added with an unknown producer id"
    COMMIT = "EndTxn 0-4 commits, with the current epoch"
    ABORT = "EndTxn 0-4 aborts, with the current epoch"
    COMMIT_AND_RAISE = "EndTxn 5 commits, with the current epoch"
    ABORT_AND_RAISE = "EndTxn 5 aborts, with the current epoch"
    COMMIT_AGAIN = "EndTxn 5 commits, with the epoch before the current one: a retry"
    ABORT_AGAIN = "EndTxn 5 aborts, with the epoch before the current one: a retry"
    END_OLD = "EndTxn 0-4 with another epoch"
    END_FOREIGN = "EndTxn 0-4 with an unknown producer id"
    END_OLD_AND_RAISE = "EndTxn 5 with another epoch"
    END_FOREIGN_AND_RAISE = "EndTxn 5 with an unknown producer id"
    TIMEOUT = "the transaction is open for longer than its timeout"
    MARKED = "every partition of the transaction has its marker"
    EXPIRE = "the id was not used for `transactional.id.expiration.ms`"


class Do(Enum):
    """What a cell does; the value says it in words."""

    CREATE = "write the id with a new producer id and epoch 0"
    RENEW = "raise the epoch, or begin a new producer id where the epochs are used up"
    REPEAT = "answer with the current epoch once more"
    FENCE = "raise the epoch and abort; the client is answered CONCURRENT_TRANSACTIONS"
    BEGIN = "begin a transaction with these partitions"
    JOIN = "write the transaction with these partitions, too"
    PREPARE = "write the outcome, then answer, then write markers"
    COMPLETE = "write that the transaction is over"
    FORGET = "write a tombstone"
    ANSWER = "answer without a write"
    REFUSE = "answer with an error"
    NOTHING = "too late: nothing"
    NEVER = "cannot happen"


class Cell(NamedTuple):
    do: Do
    to: State
    code: ErrorCode = ErrorCode.NONE


_N, _P, _E, _O, _PC, _PA, _CC, _CA = State

_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_FENCED: Final = ErrorCode.PRODUCER_FENCED
_MAPPING: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_TXN_STATE: Final = ErrorCode.INVALID_TXN_STATE


def _refuse(code: ErrorCode, *states: State) -> tuple[Cell, ...]:
    return tuple(Cell(Do.REFUSE, state, code) for state in states)


_CREATE: Final = Cell(Do.CREATE, _E)
_RENEW: Final = Cell(Do.RENEW, _E)
_FENCE: Final = Cell(Do.FENCE, _PA)
_BEGIN: Final = Cell(Do.BEGIN, _O)
_TO_COMMIT, _TO_ABORT = Cell(Do.PREPARE, _PC), Cell(Do.PREPARE, _PA)
_FORGET: Final = Cell(Do.FORGET, _N)
_BUSY: Final = _refuse(_CONCURRENT, _P)[0]
_UNKNOWN: Final = _refuse(_MAPPING, _N)[0]
_SETTLED: Final = (_E, _O, _CC, _CA)


def _nothing(*states: State) -> tuple[Cell, ...]:
    return tuple(Cell(Do.NOTHING, state) for state in states)


def _no(code: ErrorCode, state: State) -> Cell:
    return Cell(Do.REFUSE, state, code)


def _yes(state: State) -> Cell:
    return Cell(Do.ANSWER, state)


_NEVER: Final = Cell(Do.NEVER, _N)


def _row(
    none: Cell, pending: Cell, empty: Cell, ongoing: Cell, *complete: Cell
) -> tuple[Cell, ...]:
    """Of a request: an outcome that is not complete is pending, whatever its client asks."""
    prepared = (pending._replace(to=state) for state in (_PC, _PA))
    return none, pending, empty, ongoing, *prepared, *complete


# One row per event, one cell per state in the order of State.
_ROWS: Final[dict[Event, tuple[Cell, ...]]] = {
    Event.INIT: _row(_CREATE, _BUSY, _RENEW, _FENCE, _RENEW, _RENEW),
    Event.INIT_CURRENT: _row(_CREATE, _BUSY, _RENEW, _FENCE, _RENEW, _RENEW),
    Event.INIT_LAST: _row(
        _CREATE, _BUSY, Cell(Do.REPEAT, _E), _FENCE, Cell(Do.REPEAT, _E), Cell(Do.REPEAT, _E)
    ),
    Event.INIT_OLD: _row(_CREATE, _BUSY, _no(_FENCED, _E), _FENCE, *_refuse(_FENCED, _CC, _CA)),
    Event.INIT_FOREIGN: _row(_CREATE, _BUSY, *_refuse(_FENCED, *_SETTLED)),
    Event.ADD: _row(_UNKNOWN, _BUSY, _BEGIN, Cell(Do.JOIN, _O), _BEGIN, _BEGIN),
    Event.ADD_KNOWN: _row(_UNKNOWN, _BUSY, _BEGIN, _yes(_O), _BEGIN, _BEGIN),
    Event.ADD_OLD: _row(_UNKNOWN, _BUSY, *_refuse(_FENCED, *_SETTLED)),
    Event.ADD_FOREIGN: _row(_UNKNOWN, _BUSY, *_refuse(_MAPPING, *_SETTLED)),
    Event.COMMIT: _row(
        _UNKNOWN, _BUSY, _no(_TXN_STATE, _E), _TO_COMMIT, _yes(_CC), _no(_TXN_STATE, _CA)
    ),
    Event.ABORT: _row(
        _UNKNOWN, _BUSY, _no(_TXN_STATE, _E), _TO_ABORT, _no(_TXN_STATE, _CC), _yes(_CA)
    ),
    Event.COMMIT_AND_RAISE: _row(
        _UNKNOWN, _BUSY, _no(_TXN_STATE, _E), _TO_COMMIT, *_refuse(_TXN_STATE, _CC, _CA)
    ),
    Event.ABORT_AND_RAISE: _row(_UNKNOWN, _BUSY, _TO_ABORT, _TO_ABORT, _TO_ABORT, _TO_ABORT),
    Event.COMMIT_AGAIN: _row(
        _UNKNOWN, _BUSY, *_refuse(_FENCED, _E, _O), _yes(_CC), _no(_TXN_STATE, _CA)
    ),
    Event.ABORT_AGAIN: _row(
        _UNKNOWN, _BUSY, *_refuse(_FENCED, _E, _O), _no(_TXN_STATE, _CC), _yes(_CA)
    ),
    Event.END_OLD: _row(_UNKNOWN, _no(_FENCED, _P), *_refuse(_FENCED, *_SETTLED)),
    Event.END_FOREIGN: _row(_UNKNOWN, _no(_MAPPING, _P), *_refuse(_MAPPING, *_SETTLED)),
    Event.END_OLD_AND_RAISE: _row(_UNKNOWN, _BUSY, *_refuse(_FENCED, *_SETTLED)),
    Event.END_FOREIGN_AND_RAISE: _row(_UNKNOWN, _BUSY, *_refuse(_MAPPING, *_SETTLED)),
    Event.TIMEOUT: (_NEVER, *_nothing(_P, _E), _FENCE, *_nothing(_PC, _PA, _CC, _CA)),
    Event.MARKED: (
        _NEVER, *_nothing(_P, _E, _O), Cell(Do.COMPLETE, _CC), Cell(Do.COMPLETE, _CA),
        *_nothing(_CC, _CA),
    ),
    Event.EXPIRE: (
        _NEVER, *_nothing(_P), _FORGET, *_nothing(_O, _PC, _PA), _FORGET, _FORGET,
    ),
}  # fmt: skip

TABLE: Final[Mapping[tuple[State, Event], Cell]] = MappingProxyType(
    {
        (state, event): cell
        for event, row in _ROWS.items()
        for state, cell in zip(State, row, strict=True)
    }
)
