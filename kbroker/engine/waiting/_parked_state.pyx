# cython: language_level=3, auto_pickle=False
"""The states of a parked request, as one table: building, open, done.

ROWS is complete: (state, event, next state). An event that it does not list is illegal and changes
nothing. A row that keeps its state is a race that another thread wins: COMPLETED while it is being
built is noted by the parker, which looks at everything once more when it has listed the request;
COMPLETED when it is done came too late.

The thread that moves the state owns the consequences: from BUILDING the parker alone, from OPEN to
DONE exactly one of all that try, and that one unlinks the request and answers it.
docs/architecture.md has the diagram and the tests walk every cell.
"""

from enum import IntEnum

from kbroker.core._atomics cimport kb_cas_int, kb_load_int
from kbroker.core._require cimport require
from kbroker.errors import InvariantError

ROWS = (
    (BUILDING, LISTED, OPEN),
    (BUILDING, GIVEN_UP, DONE),
    (BUILDING, COMPLETED, BUILDING),
    (OPEN, COMPLETED, DONE),
    (DONE, COMPLETED, DONE),
)

# The table as C reads it: filled once, at import, and constant from then on.
cdef signed char _NEXT[PARKED_STATES][PARKED_EVENTS]


def _fill_table():
    for state in range(PARKED_STATES):
        for event in range(PARKED_EVENTS):
            _NEXT[<int>state][<int>event] = PARKED_ILLEGAL
    for state, event, next_state in ROWS:
        _NEXT[<int>state][<int>event] = next_state


_fill_table()


cdef int parked_fire(int* state, int event) noexcept nogil:
    cdef int before
    cdef int after
    while True:
        before = kb_load_int(state)
        require(0 <= before < PARKED_STATES, "parked request: its state is one", before,
                PARKED_STATES)
        after = _NEXT[before][event]
        if after == PARKED_ILLEGAL:
            return PARKED_ILLEGAL
        if after == before:
            return PARKED_STAYED
        if kb_cas_int(state, before, after):
            return PARKED_MOVED


class State(IntEnum):
    BUILDING = 0
    OPEN = 1
    DONE = 2


class Event(IntEnum):
    LISTED = 0
    GIVEN_UP = 1
    COMPLETED = 2


def fire(int state, int event):
    """(next state, whether it moved); an event that the table does not list raises."""
    cdef int now = State(state)
    cdef int verdict = parked_fire(&now, Event(event))
    if verdict == PARKED_ILLEGAL:
        raise InvariantError(f"{Event(event).name} in {State(state).name}")
    return State(now), verdict == PARKED_MOVED
