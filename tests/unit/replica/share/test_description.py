"""One record as its leader has it: before, in and after the window."""

from __future__ import annotations

from kbroker.replica.share.description import AFTER_WINDOW, BEFORE_WINDOW, describe
from kbroker.replica.share.ranges import NONE
from kbroker.replica.share.states import State
from tests.unit.replica.share.world import ACCEPT, ONE, World, batches


def test_a_record_in_each_place() -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    world.done(0, 2)
    world.say(4, 4, ACCEPT)
    before, held, said, after = (describe(world.partition, at) for at in (1, 3, 4, 10))
    assert (before.state, before.start, before.end) == (BEFORE_WINDOW, 3, 4)
    assert (held.state, held.owner, held.delivery_count) == (State.ACQUIRED, ONE, 1)
    assert (held.first_offset, held.last_offset, held.next_state) == (3, 3, NONE)
    assert held.deadline_ms > world.now_ms
    assert (said.state, said.next_state) == (State.ACQUIRED, State.ACKNOWLEDGED)
    assert after.state == AFTER_WINDOW
