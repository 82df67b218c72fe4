"""The states of a parked request; see _parked_state.pyx."""

from enum import IntEnum
from typing import Final

class State(IntEnum):
    BUILDING = 0
    OPEN = 1
    DONE = 2

class Event(IntEnum):
    LISTED = 0
    GIVEN_UP = 1
    COMPLETED = 2

ROWS: Final[tuple[tuple[int, int, int], ...]]

# (next state, whether it moved); InvariantError for an event that the table does not list
def fire(state: int, event: int) -> tuple[State, bool]: ...
