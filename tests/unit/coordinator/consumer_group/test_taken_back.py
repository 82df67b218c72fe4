"""A consumer that is given partitions, and back what it had before, before it has taken them.

The Java consumer 4.3 takes partitions beside its heartbeats, and numbers what it is given: it says
what it owns when the number of that is another one than it said last, also where the partitions are
the same. So it is waited for no longer than until its next heartbeat. (Kafka Streams compares the
tasks alone: see `streams_group/confirmed.py`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from kbroker.coordinator.consumer_group.images import CurrentImage
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from tests.unit.coordinator.consumer_group.test_group import indexes, shared
from tests.unit.coordinator.consumer_group.world import REBALANCE_MS, World, topic_of

Assignment = Mapping[UUID, frozenset[int]]


class Consumer:
    """`numbers`: it compares the numbers of assignments, too."""

    def __init__(self, world: World, epoch: int, has: Assignment, *, numbers: bool = True) -> None:
        self._world, self._numbers = world, numbers
        self.epoch = epoch
        self._given = self._has = self._said = 1, has

    def beat(self) -> HeartbeatAnswer:
        is_same = self._has == self._said if self._numbers else self._has[1] == self._said[1]
        owned = None if is_same else self._has[1]
        self._said = self._has
        answer = self._world.beat("a", self.epoch, owned=owned)
        assert not answer.code
        self.epoch = answer.epoch
        if answer.assignment is not None and answer.assignment != self._given[1]:
            self._given = self._given[0] + 1, answer.assignment
        return answer

    def take(self) -> None:
        """Its application has seen to all that it was given."""
        self._has = self._given

    @property
    def given(self) -> Assignment:
        return self._given[1]


def current(world: World) -> CurrentImage:
    return world.group._state.current_of("a")


@pytest.mark.parametrize("numbers", [True, False])
def test_it_confirms_an_assignment_that_is_the_same(numbers: bool) -> None:
    world = World()
    world.create(topic_of("t", 4))
    epoch, of_b = shared(world)
    consumer = Consumer(world, epoch, indexes(0, 1), numbers=numbers)
    world.beat("b", -1)
    consumer.beat()
    assert consumer.given == indexes(0, 1, 2, 3)
    joined = world.join("c")
    assert joined.epoch > of_b
    consumer.beat()
    assert consumer.given == indexes(0, 1)
    assert current(world).state is MemberState.UNREVOKED
    consumer.take()  # both, one after the other
    consumer.beat()
    found = world.beat("c", joined.epoch)
    if numbers:
        assert found.assignment == indexes(2, 3)
        assert world.group.state is ConsumerGroupState.STABLE
    else:  # such a consumer is waited for, and lost
        assert found.assignment is None
        world.pass_ms(REBALANCE_MS)
        assert "a" not in world.group._state.members
