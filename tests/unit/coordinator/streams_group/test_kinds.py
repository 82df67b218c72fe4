"""Streams groups and groups of other kinds under one id: an empty classic one makes room."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker import limits
from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.group_records import group_key
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.streams_group.coordinator import StreamsGroups
from kbroker.coordinator.streams_group.group import StreamsGroup
from kbroker.coordinator.streams_group.messages import HeartbeatAsked, StreamsAnswer
from kbroker.errors import ErrorCode
from kbroker.metadata.image import ClusterImage
from tests.unit.coordinator.consumer_group.world import Log, topic_of
from tests.unit.coordinator.group.world import GROUP, Answer
from tests.unit.coordinator.group.world import World as ClassicWorld
from tests.unit.coordinator.streams_group.world import EMPTY, NONE, SIMPLE

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE
CONFIG = BrokerConfig.load(None, {}, ["group.streams.initial.rebalance.delay.ms=0"])


class World(ClassicWorld):
    """A coordinator with groups of both kinds; the records of streams groups are in `log`."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        image = ClusterImage().with_topics([topic_of("t", 4)])
        self.streams = StreamsGroups(
            lambda: CONFIG,
            self.clock,
            self.timer.call_later,
            self.log,  # type: ignore[arg-type]
            self.view,
            self.coordinator,
            lambda: image,
            Topics(lambda: image),
            lambda job: bool(job()) or True,
        )

    def beat(self, member_id: str, epoch: int = 0) -> StreamsAnswer:
        answer: Answer[Any] = Answer()
        how: dict[str, Any] = {}
        if epoch == 0:
            how = {"rebalance_timeout_ms": 60_000, "topology": SIMPLE, "owned": EMPTY}
        self.streams.heartbeat(HeartbeatAsked(GROUP, member_id, epoch, **how), answer)
        found = answer.got
        assert isinstance(found, StreamsAnswer)
        return found

    def empty_classic(self) -> Group:
        (member_id,) = self.stable()
        self.leave(member_id)
        assert self.state is GroupState.EMPTY
        return self.group


@pytest.fixture
def world() -> World:
    return World()


def test_an_empty_classic_group_makes_room(world: World) -> None:
    world.empty_classic()
    assert world.beat("a").epoch == 2
    assert isinstance(world.coordinator.find(GROUP), StreamsGroup)
    (batch,) = world.log.batches
    assert batch[0] == (group_key(GROUP), None)
    world.beat("b")
    assert group_key(GROUP) not in dict(world.log.batches[1])


def test_a_classic_group_with_members_stays(world: World) -> None:
    world.stable()
    assert world.beat("a").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state is GroupState.STABLE
    assert not world.log.batches


def test_a_classic_group_whose_place_could_not_be_taken_is_as_before(world: World) -> None:
    before = world.empty_classic()
    world.pass_ms(5_000)
    world.log.refuses = AWAY
    assert world.beat("a").code is AWAY
    after = world.group
    assert after is not before
    assert after.generation == before.generation
    world.log.refuses = NONE
    assert world.beat("a").epoch == 2
    assert isinstance(world.coordinator.find(GROUP), StreamsGroup)


def test_a_step_that_raises_leaves_the_classic_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.empty_classic()

    def raises(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(StreamsGroups, "_made", raises)
    assert world.beat("a").code is AWAY
    assert world.state is GroupState.EMPTY


def test_requests_of_members_find_no_group_of_theirs(world: World) -> None:
    assert world.beat("a", 3).code is ErrorCode.GROUP_ID_NOT_FOUND
    world.stable()
    for epoch in (3, -1):
        answer = world.beat("a", epoch)
        assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.message == f"Group {GROUP} is not a streams group."
    assert world.streams.describe(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_cannot_be_made_now_is_not_missing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(world.coordinator), "take", lambda *_: (AWAY, None))
    answer = world.beat("a")
    assert (answer.code, answer.message) == (AWAY, None)


def test_an_empty_streams_group_makes_room_for_a_classic_one(world: World) -> None:
    world.beat("a")
    assert world.beat("a", -1).code is NONE
    world.stable()
    assert world.state is GroupState.STABLE


def test_a_group_beyond_the_bound_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 0)
    found = World().beat("m")
    assert found.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert found.message == "The broker coordinates as many groups as it may."
