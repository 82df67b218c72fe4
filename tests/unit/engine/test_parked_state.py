"""Walks every cell of the parked request's states against a grid that is written down here."""

from __future__ import annotations

import itertools

import pytest

from kbroker.engine.waiting._parked_state import ROWS, Event, State, fire
from kbroker.errors import InvariantError
from tests.support.source_tree import ROOT

# The result of each event in each state; None: the table does not list it.
GRID: dict[tuple[State, Event], State | None] = {
    (State.BUILDING, Event.LISTED): State.OPEN,
    (State.BUILDING, Event.GIVEN_UP): State.DONE,
    (State.BUILDING, Event.COMPLETED): State.BUILDING,
    (State.OPEN, Event.LISTED): None,
    (State.OPEN, Event.GIVEN_UP): None,
    (State.OPEN, Event.COMPLETED): State.DONE,
    (State.DONE, Event.LISTED): None,
    (State.DONE, Event.GIVEN_UP): None,
    (State.DONE, Event.COMPLETED): State.DONE,
}


def test_the_grid_has_every_cell_and_the_table_nothing_else() -> None:
    assert set(GRID) == set(itertools.product(State, Event))
    assert {(s, e): n for s, e, n in ROWS} == {k: n for k, n in GRID.items() if n is not None}


@pytest.mark.parametrize(("state", "event"), GRID)
def test_every_cell(state: State, event: Event) -> None:
    wanted = GRID[state, event]
    if wanted is None:
        with pytest.raises(InvariantError, match=f"{event.name} in {state.name}"):
            fire(state, event)
    else:
        assert fire(state, event) == (wanted, wanted is not state)


def test_one_of_all_that_complete_it_has_it() -> None:
    state, wins = State.OPEN, 0
    for _ in range(5):
        state, moved = fire(state, Event.COMPLETED)
        wins += moved
    assert (state, wins) == (State.DONE, 1)


def test_the_diagram_is_the_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for state, event, following in ROWS:
        line = f"    {State(state).name} --> {State(following).name}: {Event(event).name}"
        assert line in text, line
