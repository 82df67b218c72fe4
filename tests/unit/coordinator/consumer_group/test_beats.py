"""Heartbeats that C answers: which members are published to it, and what ends that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.coordinator.consumer_group.messages import HeartbeatAsked
from kbroker.coordinator.group.messages import Leaver
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.played import Played
from tests.unit.coordinator.consumer_group.world import (
    GROUP,
    HEARTBEAT_MS,
    SESSION_MS,
    World,
    topic_of,
)

REFRESH_MS = 600_000
QUIET_MS = 3_000  # after the last change


@pytest.fixture
def world() -> World:
    made = World()
    made.create(topic_of("t", 4), topic_of("u", 2))
    return made


def is_in_c(world: World, member_id: str, epoch: int) -> bool:
    """Whether C would answer the member's next heartbeat."""
    asked = HeartbeatAsked(
        GROUP, member_id, epoch, client_id="client", client_host="/127.0.0.1"
    )  # fmt: skip
    return world.in_c.answer(asked) is not None


def at_rest(world: World, *members: str, **how: object) -> int:
    """Members of a group that changes no more, each with a heartbeat since; their epoch."""
    for member_id in members:
        world.join(member_id, **how)
    world.work_beside()
    state = world.group._state
    for _ in range(3):
        for member_id in members:
            owned = dict(state.target_of(member_id))
            world.beat(member_id, state.current_of(member_id).epoch, owned=owned)
    epoch = state.assignment_epoch
    world.pass_ms(QUIET_MS)
    for member_id in members:
        assert world.beat(member_id, epoch).interval_ms == HEARTBEAT_MS
    return epoch


def test_a_member_is_published_when_its_group_is_at_rest(world: World) -> None:
    epoch = world.join("a").epoch
    world.beat("a", epoch)
    assert not is_in_c(world, "a", epoch)  # it is to come soon
    world.pass_ms(QUIET_MS)
    assert not is_in_c(world, "a", epoch)  # it has not come since
    world.beat("a", epoch)
    assert is_in_c(world, "a", epoch)
    assert not is_in_c(world, "a", epoch - 1)
    assert not is_in_c(world, "b", epoch)


CHANGES: dict[str, Callable[[World, int], object]] = {
    "another joins": lambda world, epoch: world.join("c"),
    "another leaves": lambda world, epoch: world.beat("b", -1),
    "another subscribes": lambda world, epoch: world.beat("b", epoch, topics=("u",)),
    "another has a rack": lambda world, epoch: world.beat("b", epoch, rack_id="r"),
    "another is put out": lambda world, epoch: world.group.leave([Leaver("b", None)], print),
    "a topic grows": lambda world, epoch: world.create(topic_of("t", 5)),
    "another topic is there": lambda world, epoch: world.create(topic_of("v", 5)),
    "a broker has a rack": lambda world, epoch: world.racks({1: "r"}),
    "the group is unloaded": lambda world, epoch: world.group.unload(),
    "another coordinator": lambda world, epoch: world.fail_over(),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_after_each_change_python_is_asked(world: World, change: str) -> None:
    epoch = at_rest(world, "a", "b")
    assert is_in_c(world, "a", epoch)
    CHANGES[change](world, epoch)
    assert not is_in_c(world, "a", epoch)


def test_a_change_is_not_in_the_log_before_c_has_let_go(world: World) -> None:
    epoch = at_rest(world, "a", "b")
    seen: list[bool] = []
    world.log.on_append = lambda records: seen.append(is_in_c(world, "a", epoch))
    world.join("c")
    world.beat("b", -1)
    assert seen == [False, False]


def test_an_image_that_changes_nothing_costs_a_group_one_heartbeat(world: World) -> None:
    epoch = at_rest(world, "a", "b")
    world.create(topic_of("another", 1))
    assert not is_in_c(world, "a", epoch)
    assert not is_in_c(world, "b", epoch)
    world.beat("a", epoch)
    assert is_in_c(world, "a", epoch)
    assert is_in_c(world, "b", epoch)


def test_after_a_refused_write_no_member_is_in_c(world: World) -> None:
    epoch = at_rest(world, "a", "b")
    world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.join("c").code
    world.log.refuses = ErrorCode.NONE
    assert not is_in_c(world, "a", epoch)
    world.pass_ms(QUIET_MS)
    world.beat("a", epoch)
    assert is_in_c(world, "a", epoch)


def test_records_that_the_followers_lack_are_waited_for(world: World) -> None:
    epoch = at_rest(world, "a", "b")
    world.log.holds = True
    world.ask("b", epoch, rack_id="r")
    world.pass_ms(QUIET_MS)
    assert world.ask("a", epoch).waits
    assert not is_in_c(world, "a", epoch)
    world.log.release()
    world.log.holds = False
    world.beat("a", epoch)
    assert is_in_c(world, "a", epoch)


@pytest.mark.parametrize("setting", ["heartbeat_interval_ms", "session_timeout_ms"])
def test_other_settings_are_for_each_member(world: World, setting: str) -> None:
    epoch = at_rest(world, "a", "b")
    world.settings = world.settings._replace(**{setting: 50_000})
    world.create(topic_of("another", 1))  # settings come with an image
    world.beat("a", epoch)
    assert is_in_c(world, "a", epoch)
    assert not is_in_c(world, "b", epoch)
    world.beat("b", epoch)
    assert is_in_c(world, "a", epoch)
    assert is_in_c(world, "b", epoch)


def test_a_session_begins_with_each_heartbeat_in_c(world: World) -> None:
    epoch = at_rest(world, "a")
    world.c_answers = lambda: True
    for _ in range(20):
        world.pass_ms(HEARTBEAT_MS)
        world.beat("a", epoch)
    assert world.in_c.answered == 20
    assert list(world.group._state.members) == ["a"]


def test_sessions_go_on_if_c_does_not_get_the_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C alone has the time of their last heartbeats."""
    epoch = at_rest(world, "a")
    world.c_answers = lambda: True
    world.pass_ms(SESSION_MS - 5_000)
    world.beat("a", epoch)
    assert world.in_c.answered == 1
    with monkeypatch.context() as patched:
        patched.setattr(world.view, "publish_members", None)
        world.join("b")
    assert not world.in_c.heard_ms(GROUP, "a")
    world.pass_ms(SESSION_MS - 1)
    assert set(world.group._state.members) == {"a", "b"}
    world.pass_ms(1)
    assert world.group.is_empty


def test_a_session_without_heartbeats_ends(world: World) -> None:
    epoch = at_rest(world, "a")
    world.c_answers = lambda: True
    world.pass_ms(40_000)
    world.beat("a", epoch)
    assert world.in_c.answered == 1
    world.pass_ms(SESSION_MS - 1)
    assert world.group.member_count == 1
    world.pass_ms(1)
    assert world.group.member_count == 0
    assert not is_in_c(world, "a", epoch)


def test_a_session_lasts_as_long_as_it_did_when_it_began(world: World) -> None:
    epoch = at_rest(world, "a")
    world.c_answers = lambda: True
    world.pass_ms(10_000)
    world.beat("a", epoch)
    world.settings = world.settings._replace(session_timeout_ms=60_000)
    world.create(topic_of("another", 1))
    world.pass_ms(SESSION_MS)
    assert world.group.member_count == 0


def test_a_pattern_is_looked_for_in_time(world: World) -> None:
    epoch = at_rest(world, "a", topics=(), pattern="t.*")
    assert is_in_c(world, "a", epoch)
    world.pass_ms(SESSION_MS - 5_000)
    world.beat("a", epoch)
    world.create(topic_of("another", 1))
    world.beat("a", epoch)
    assert world.jobs  # the last look is long ago
    assert not is_in_c(world, "a", epoch)
    world.work_beside()
    world.beat("a", epoch)
    world.create(topic_of("tt", 1))
    world.beat("a", epoch)
    assert not world.jobs
    assert is_in_c(world, "a", epoch)
    world.pass_ms(10_000)
    assert not is_in_c(world, "a", epoch)
    world.beat("a", epoch)
    assert world.jobs


def test_random_schedules_have_heartbeats_in_c() -> None:
    """Those of test_played, which compare each with Python's."""
    answered = 0
    for seed in range(1_000, 1_010):
        played = Played(seed)
        played.run(60)
        answered += played.world.in_c.answered
    assert answered > 20
