"""Walks every cell of both channel state machines against a grid written down independently.

The grid below is the description's, not the code's: rows are states, columns events, a dot is
illegal. A cell changed in `_state.pyx` must be changed here by hand as well.
"""

from __future__ import annotations

import itertools

import pytest

from kbroker import _state
from kbroker._state import ChannelStateMachine, Event, IllegalTransition, State
from kbroker.errors import InvariantError

SHORT = {
    "open": State.NOT_MUTED,
    "muted": State.MUTED,
    "pend": State.MUTED_AND_RESPONSE_PENDING,
    "thr": State.MUTED_AND_THROTTLED,
    "tpend": State.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    "cach": State.REQCACHED_AND_RESPONSE_PENDING,
    "both": State.REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING,
    "tcach": State.THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING,
    "tboth": State.THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING,
    "hand": State.HANDSHAKING,
    "auth": State.AUTHENTICATING,
    "apend": State.AUTHENTICATING_AND_RESPONSE_PENDING,
}
COLUMNS = [
    Event.FRAME_COMPLETE,
    Event.REQUEST_RECEIVED,
    Event.REQUEST_LOCAL_PROCESSED,
    Event.RESPONSE_SENT,
    Event.RESPONSE_SENT_LAST,
    Event.THROTTLE_STARTED,
    Event.THROTTLE_ENDED,
    Event.UNMUTE,
    Event.HANDSHAKE_COMPLETE,
    Event.AUTHENTICATION_COMPLETE,
]
#         frame  received local  sent   last   thr-on thr-off unmute hand  auth
STOCK = """
open      muted  .        .      .      .      .      .       .      .      .
muted     .      pend     .      .      .      .      .       open   .      .
pend      .      .        .      .      muted  tpend  .       .      .      .
thr       .      .        .      .      .      .      muted   .      .      .
tpend     .      .        .      .      thr    .      pend    .      .      .
cach      .      .        .      .      .      .      .       .      .      .
both      .      .        .      .      .      .      .       .      .      .
tcach     .      .        .      .      .      .      .       .      .      .
tboth     .      .        .      .      .      .      .       .      .      .
hand      .      .        .      .      .      .      .       .      auth   .
auth      apend  .        .      .      .      .      .       .      .      open
apend     .      apend    .      .      auth   .      .       .      .      pend
"""
PIPELINED = """
open      muted  .        .      .      .      .      .       .      .      .
muted     .      pend     .      .      .      .      .       open   .      .
pend      .      .        cach   .      muted  tpend  .       .      .      .
thr       .      .        .      .      .      .      muted   .      .      .
tpend     .      .        tcach  .      thr    tpend  pend    .      .      .
cach      .      both     .      cach   muted  tcach  .       .      .      .
both      .      .        cach   both   pend   tboth  .       .      .      .
tcach     .      .        .      tcach  thr    tcach  cach    .      .      .
tboth     .      .        tcach  tboth  tpend  tboth  both    .      .      .
hand      .      .        .      .      .      .      .       .      auth   .
auth      apend  .        .      .      .      .      .       .      .      open
apend     .      apend    .      .      auth   .      .       .      .      pend
"""


def grid(text: str) -> dict[tuple[State, Event], State | None]:
    cells: dict[tuple[State, Event], State | None] = {}
    for line in text.split("\n")[1:-1]:
        name, *targets = line.split()
        for event, target in zip(COLUMNS, targets, strict=True):
            cells[SHORT[name], event] = None if target == "." else SHORT[target]
    return cells


GRIDS = {False: grid(STOCK), True: grid(PIPELINED)}
MACHINES = [pytest.param(False, id="stock"), pytest.param(True, id="pipelined")]


def machine_in(pipelined: bool, wanted: State) -> ChannelStateMachine | None:
    """A machine brought to `wanted` by legal events only, or None if no path leads there."""
    paths: dict[State, list[Event]] = {State.HANDSHAKING: []}
    frontier = [State.HANDSHAKING]
    while frontier:
        here = frontier.pop(0)
        for event in Event:
            reached = GRIDS[pipelined][here, event]
            if reached is not None and reached not in paths:
                paths[reached] = [*paths[here], event]
                frontier.append(reached)
    if wanted not in paths:
        return None
    machine = ChannelStateMachine(
        pipelined, "127.0.0.1:9092-127.0.0.1:40000-7", state=State.HANDSHAKING
    )
    for event in paths[wanted]:
        machine.fire(event)
    assert machine.state is wanted
    return machine


def test_the_grid_names_every_cell() -> None:
    for cells in GRIDS.values():
        assert set(cells) == set(itertools.product(State, Event))


@pytest.mark.parametrize("pipelined", MACHINES)
@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("state", list(State))
def test_every_cell(pipelined: bool, state: State, event: Event) -> None:
    expected = GRIDS[pipelined][state, event]
    assert _state.next_state(pipelined, state, event) == (-1 if expected is None else expected)
    machine = machine_in(pipelined, state)
    if machine is None:
        assert expected is None, "an unreachable state has no legal event"
        return
    if expected is not None:
        assert machine.fire(event) is expected
        assert machine.state is expected
        return
    with pytest.raises(IllegalTransition) as raised:
        machine.fire(event)
    assert machine.state is state, "an illegal event changes nothing"
    assert (raised.value.state, raised.value.event) == (state, event)
    assert raised.value.connection_id == "127.0.0.1:9092-127.0.0.1:40000-7"
    assert state.name in str(raised.value) and event.name in str(raised.value)


@pytest.mark.parametrize("pipelined", MACHINES)
def test_transitions_is_the_table_that_c_reads(pipelined: bool) -> None:
    legal = {cell: to for cell, to in GRIDS[pipelined].items() if to is not None}
    assert ChannelStateMachine(pipelined).transitions() == legal


def test_the_pipelined_machine_keeps_every_stock_cell() -> None:
    stock = ChannelStateMachine(False).transitions()
    pipelined = ChannelStateMachine(True).transitions()
    assert stock.items() <= pipelined.items()
    added = set(pipelined) - set(stock)
    assert added and all(cell[0] in tuple(State)[2:] for cell in added), (
        "an open or merely muted channel behaves as in the stock machine"
    )


@pytest.mark.parametrize("pipelined", MACHINES)
def test_every_state_of_a_machine_leads_back_to_open(pipelined: bool) -> None:
    legal = ChannelStateMachine(pipelined).transitions()
    home = {State.NOT_MUTED}
    while True:
        more = {start for (start, _), to in legal.items() if to in home} - home
        if not more:
            break
        home |= more
    assert home == {start for start, _ in legal}
    assert len(home) == (12 if pipelined else 8)


@pytest.mark.parametrize("pipelined", MACHINES)
@pytest.mark.parametrize("state", list(State))
def test_readable_and_cached(pipelined: bool, state: State) -> None:
    machine = machine_in(pipelined, state)
    if machine is None:
        return
    reads = (State.NOT_MUTED, State.REQCACHED_AND_RESPONSE_PENDING, State.AUTHENTICATING)
    assert machine.readable == (state in reads)
    assert machine.cached == ("REQCACHED" in state.name)


@pytest.mark.parametrize("pipelined", MACHINES)
def test_a_throttled_channel_is_never_read_and_receives_nothing(pipelined: bool) -> None:
    for state, event in ChannelStateMachine(pipelined).transitions():
        if "THROTTLED" in state.name:
            assert event not in (Event.FRAME_COMPLETE, Event.REQUEST_RECEIVED, Event.UNMUTE)
            machine = machine_in(pipelined, state)
            assert machine is not None and not machine.readable


@pytest.mark.parametrize(
    "numbers", [(-1, 0), (0, -1), (len(State), 0), (0, len(Event)), (2**31 - 1, 0), (0, -(2**31))]
)
def test_numbers_out_of_range_are_illegal(numbers: tuple[int, int]) -> None:
    assert _state.next_state(True, *numbers) == -1
    assert _state.next_state(False, *numbers) == -1


def test_illegal_transition_is_an_invariant_error() -> None:
    assert issubclass(IllegalTransition, InvariantError)
    with pytest.raises(InvariantError):
        ChannelStateMachine(False).fire(Event.RESPONSE_SENT)


def test_a_pipelined_life_with_throttling() -> None:
    """Two produces cached, a third in processing, the first one's answer throttles the client."""
    machine = ChannelStateMachine(True)
    for event, readable in [
        (Event.FRAME_COMPLETE, False),
        (Event.REQUEST_RECEIVED, False),
        (Event.REQUEST_LOCAL_PROCESSED, True),
        (Event.REQUEST_RECEIVED, False),
        (Event.REQUEST_LOCAL_PROCESSED, True),
        (Event.REQUEST_RECEIVED, False),
        (Event.THROTTLE_STARTED, False),
        (Event.RESPONSE_SENT, False),
        (Event.REQUEST_LOCAL_PROCESSED, False),
        (Event.THROTTLE_STARTED, False),
        (Event.RESPONSE_SENT, False),
        (Event.RESPONSE_SENT_LAST, False),
        (Event.THROTTLE_ENDED, False),
        (Event.UNMUTE, True),
    ]:
        machine.fire(event)
        assert machine.readable is readable, event
    assert machine.state is State.NOT_MUTED
