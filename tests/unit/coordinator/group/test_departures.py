"""Why members have gone, as the coordinator remembers it, and what a rebalance waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.clock import ManualClock
from kbroker.coordinator.group.departures import (
    GROUPS_MAX,
    ID_CHARS_MAX,
    OF_A_GROUP_MAX,
    Departures,
    Why,
)
from kbroker.coordinator.group.messages import Leaver
from tests.unit.coordinator.consumer_group.world import REBALANCE_MS as CONSUMER_REBALANCE_MS
from tests.unit.coordinator.consumer_group.world import SESSION_MS as CONSUMER_SESSION_MS
from tests.unit.coordinator.consumer_group.world import World as ConsumerWorld
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.group.world import CHANGED, GROUP, REBALANCE_MS, SESSION_MS, World


def noted(world: World) -> list[tuple[str, Why]]:
    return [(each.member_id, each.why) for each in world.coordinator.departures.of(GROUP)]


def test_a_member_of_a_classic_group_that_leaves() -> None:
    world = World()
    _, follower = world.stable(2)
    world.leave(follower)
    assert noted(world) == [(follower, Why.LEFT)]
    (one,) = world.coordinator.departures.of(GROUP)
    assert one.time_ms == world.clock.wall_ms()


def test_a_session_that_is_over() -> None:
    world = World()
    (member,) = world.stable()
    world.pass_ms(SESSION_MS + 100)
    assert noted(world) == [(member, Why.SESSION_OVER)]


def test_a_member_that_does_not_join_again() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(follower, CHANGED)
    assert world.coordinator.awaited(GROUP) == (leader,)
    world.pass_ms(REBALANCE_MS + 100)
    assert noted(world) == [(leader, Why.NOT_JOINED)]
    assert world.coordinator.awaited(GROUP) == (follower,)  # its sync


def test_a_member_that_does_not_ask_for_its_assignment() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(leader)
    world.join(follower)
    world.sync(leader, given={leader: b"all"})
    world.pass_ms(REBALANCE_MS + 100)
    assert noted(world) == [(follower, Why.NOT_SYNCED)]


def test_a_member_that_has_no_room_any_more() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.config["group.max.size"] = 1
    world.join(leader)
    world.join(follower)
    assert noted(world) == [(follower, Why.NO_ROOM)]


def test_the_group_of_another_kind_awaits_no_member_and_nor_does_none() -> None:
    world = World()
    assert world.coordinator.awaited("none") == ()
    world.stable()
    assert world.coordinator.awaited(GROUP) == ()


CONSUMERS: dict[Why, Callable[[ConsumerWorld], object]] = {
    Why.LEFT: lambda world: world.beat("b", -1),
    Why.REMOVED: lambda world: world.group.leave([Leaver("b", None)], print),
    Why.SESSION_OVER: lambda world: [
        world.pass_ms(CONSUMER_SESSION_MS // 2), world.beat("a", 2),
        world.pass_ms(CONSUMER_SESSION_MS // 2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("why", list(CONSUMERS))
def test_members_of_consumer_groups(why: Why) -> None:
    world = ConsumerWorld()
    world.create(topic_of("t", 4))
    world.join("a")
    world.join("b")
    CONSUMERS[why](world)
    assert [(each.member_id, each.why) for each in world.departures.of("g")] == [("b", why)]


def test_a_member_that_does_not_give_up_its_partitions() -> None:
    world = ConsumerWorld(session_timeout_ms=2 * CONSUMER_REBALANCE_MS)
    world.create(topic_of("t", 4))
    world.join("a")
    world.join("b")
    world.beat("a", 2)
    world.pass_ms(CONSUMER_REBALANCE_MS)
    assert [(each.member_id, each.why) for each in world.departures.of("g")] == [
        ("a", Why.NOT_REVOKED)
    ]


def test_a_static_member_that_leaves_for_now_or_comes_back_has_not_gone() -> None:
    world = ConsumerWorld()
    world.create(topic_of("t", 4))
    world.join("a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.join("a2", instance_id="i")
    assert world.departures.of("g") == ()


def test_a_departure_that_is_tried_again_counts_once() -> None:
    clock = ManualClock()
    departures = Departures(clock)
    times: list[int] = []
    for member_id in ("a", "b", "b", "a"):
        clock.advance(1_000)
        times.append(clock.wall_ms())
        departures.note("g", member_id, Why.SESSION_OVER)
    departures.note("g", "a", Why.LEFT)
    found = [(each.time_ms, each.member_id) for each in departures.of("g")]
    assert found == [(times[0], "a"), (times[2], "b"), (times[3], "a"), (times[3], "a")]


def test_the_memory_is_bounded() -> None:
    departures = Departures(ManualClock())
    for number in range(OF_A_GROUP_MAX + 3):
        departures.note("g", f"m{number}", Why.LEFT)
    of_g = departures.of("g")
    assert [each.member_id for each in of_g] == [f"m{n}" for n in range(3, OF_A_GROUP_MAX + 3)]
    for number in range(GROUPS_MAX):
        departures.note(f"g{number}", "m", Why.LEFT)
    assert departures.of("g") == ()
    assert len(departures.of("g0")) == len(departures.of(f"g{GROUPS_MAX - 1}")) == 1
    long = "x" * (ID_CHARS_MAX + 1)
    departures.note(long, "m", Why.LEFT)
    departures.note("g", long, Why.LEFT)
    assert departures.of(long) == departures.of("g") == ()
