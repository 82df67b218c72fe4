"""Groups of both kinds under one id: an empty one makes room for the other kind."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker import limits
from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer_group.coordinator import ConsumerGroups
from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer, HeartbeatAsked
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from kbroker.metadata.image import ClusterImage
from tests.unit.coordinator.consumer_group.world import InC, Log, View, topic_of
from tests.unit.coordinator.group.world import GROUP, Answer
from tests.unit.coordinator.group.world import World as ClassicWorld

NONE = ErrorCode.NONE


class World(ClassicWorld):
    """A coordinator with groups of both kinds; the records of consumer groups are in `log`."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        image = ClusterImage().with_topics([topic_of("t", 4)])
        self.consumers = ConsumerGroups(
            lambda: CONFIG,
            self.clock,
            self.timer.call_later,
            self.log,  # type: ignore[arg-type]
            self.view,
            self.coordinator,
            lambda: image,
            InC(View(), self.clock),
            lambda job: bool(job()) or True,
        )

    def beat(self, member_id: str, epoch: int = 0) -> HeartbeatAnswer:
        answer: Answer[Any] = Answer()
        how: dict[str, Any] = {}
        if epoch == 0:
            how = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "owned": {}}
        self.consumers.heartbeat(HeartbeatAsked(GROUP, member_id, epoch, **how), answer)
        found = answer.got
        assert isinstance(found, HeartbeatAnswer)
        return found

    def empty_classic(self) -> Group:
        (member_id,) = self.stable()
        self.leave(member_id)
        assert self.state is GroupState.EMPTY
        return self.group


CONFIG = BrokerConfig.load(None, {}, [])


@pytest.fixture
def world() -> World:
    return World()


def test_a_classic_group_whose_place_could_not_be_taken_is_as_before(world: World) -> None:
    """So the time of its offsets begins when it became empty, as before."""
    before = world.empty_classic()
    world.pass_ms(5_000)
    world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.beat("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    after = world.group
    assert after is not before
    assert (after.generation, after.aged()) == (before.generation, before.aged()._replace(
        state=GroupState.EMPTY))  # fmt: skip
    world.log.refuses = NONE
    assert world.beat("a").epoch == 2
    assert isinstance(world.coordinator.find(GROUP), ConsumerGroup)


def test_a_consumer_that_comes_while_a_classic_group_goes_is_to_come_again(world: World) -> None:
    before = world.empty_classic()
    assert before.give_way(lambda image, is_empty: image) is not None
    assert world.beat("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_classic_member_of_before_removes_no_consumer_group(world: World) -> None:
    world.beat("a")
    world.beat("a", -1)
    batches = len(world.log.batches)
    assert world.join("client-1").got.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log.batches) == batches
    assert isinstance(world.coordinator.find(GROUP), ConsumerGroup)
    assert world.join().got.code is ErrorCode.MEMBER_ID_REQUIRED
    assert world.state is GroupState.EMPTY


def test_a_group_beyond_the_bound_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 0)
    found = World().beat("m")
    assert found.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert found.message == "The broker coordinates as many groups as it may."
