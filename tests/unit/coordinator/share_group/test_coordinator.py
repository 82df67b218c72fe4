"""The door to share groups: what a client is answered where there is no group of its."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kbroker import limits
from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer_group.messages import HeartbeatAnswer
from kbroker.coordinator.consumer_group.topics import Topics
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share_group.coordinator import ShareGroups
from kbroker.coordinator.share_group.images import TopicPartitions
from kbroker.coordinator.share_group.messages import AlterAsked, Altered, HeartbeatAsked
from kbroker.errors import ErrorCode
from kbroker.metadata.image import ClusterImage
from tests.unit.coordinator.consumer_group.world import Log
from tests.unit.coordinator.group.world import GROUP, Answer
from tests.unit.coordinator.group.world import World as ClassicWorld
from tests.unit.coordinator.share_group.world import FakePersister

CONFIG = BrokerConfig.load(None, {}, [])


class World(ClassicWorld):
    """A coordinator with classic groups and share groups."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.topics = Topics(ClusterImage)
        persister: Any = FakePersister()
        self.shares = ShareGroups(
            lambda: CONFIG,
            self.clock,
            self.timer.call_later,
            self.log,  # type: ignore[arg-type]
            self.view,
            self.coordinator,
            ClusterImage,
            self.topics,
            lambda job: bool(job()) or True,
            lambda: persister,
            lambda group_id, call: call(),
        )

    def beat(self, group_id: str, epoch: int = 0) -> HeartbeatAnswer:
        answer: Answer[Any] = Answer()
        asked = HeartbeatAsked(group_id, "m", epoch, None, ("t",), "client", "/host")
        self.shares.heartbeat(asked, answer)
        found = answer.got
        assert isinstance(found, HeartbeatAnswer)
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_group_of_another_kind_is_none(world: World) -> None:
    world.stable()
    found = world.beat(GROUP)
    assert found.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert found.message == f"Group {GROUP} is not a share group."
    assert world.beat("other", 3).message == "Group other not found."


def test_an_error_has_no_words_about_another_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 0)
    words = "The broker coordinates as many groups as it may."
    assert world.beat("g") == HeartbeatAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, words)
    assert world.beat("g" * 40_000) == HeartbeatAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_group_goes_where_the_level_has_no_share_coordinators(world: World) -> None:
    """As after a downgrade: its id is free again."""
    assert world.beat("g").epoch == 2
    assert world.shares.describe("g")
    asked = HeartbeatAsked("g", "m", -1, None, None, "client", "/host")
    world.shares.heartbeat(asked, Answer[Any]())
    codes: list[ErrorCode] = []
    world.coordinator.delete("g", codes.append)
    assert codes == [ErrorCode.NONE]
    assert world.coordinator.find("g") is None


def test_share_groups_have_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their own: groups of other kinds do not count, and those that are there go on."""
    monkeypatch.setattr(limits, "SHARE_GROUPS_MAX", 2)
    world.stable()
    assert [world.beat(group_id).code for group_id in "abc"] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]  # fmt: skip
    assert not world.beat("a").code
    answers: list[Altered] = []
    starts = {SharePartition("c", UUID(int=1), 0): 5}
    topics = {UUID(int=1): TopicPartitions("t", frozenset({0}))}
    world.shares.alter(AlterAsked("c", topics, starts), answers.append)
    assert [each.code for each in answers] == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    group = world.coordinator.find("a")
    assert group is not None
    world.coordinator.forget(group)
    assert not world.beat("c").code
    assert world.beat("a").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.coordinator.refused.counts() == {"groups": 0, "share groups": 3}
