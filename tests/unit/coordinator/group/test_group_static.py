"""Static members (KIP-345): they come back under a new id, fence their old selves, and stay."""

from __future__ import annotations

from kbroker.coordinator.group.messages import Leaver, Protocols
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.group.world import CHANGED, REBALANCE_MS, World

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID


def static_pair(world: World) -> tuple[str, str]:
    a = world.join(instance_id="ia").got.member_id
    assert a.startswith("ia-")
    world.settle([a])
    waiting = world.join(instance_id="ib")
    world.join(a, instance_id="ia")
    b = waiting.got.member_id
    world.settle_pair(a, b)
    return a, b


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() -> None:
    world = World()
    a, b = static_pair(world)
    joined = world.join(instance_id="ib").got
    assert (joined.code, joined.generation, joined.leader, joined.skip_assignment) == (
        NONE,
        2,
        a,
        False,
    )
    assert joined.member_id != b
    assert world.state is GroupState.STABLE
    assert world.heartbeat(b, instance_id="ib") is FENCED
    assert world.heartbeat(b) is UNKNOWN
    assert world.commit(b, instance_id="ib") is FENCED
    assert world.sync(b, instance_id="ib").got.code is FENCED
    refused = world.join(b, instance_id="ib").got
    assert (refused.code, refused.member_id) == (FENCED, b)
    assert world.leave(Leaver(b, "ib")) == [FENCED]
    assert world.sync(joined.member_id, instance_id="ib").got.assignment == b"1"
    stored = world.store.written[-1]
    assert [member.member_id for member in stored.members] == [a, joined.member_id]


def test_a_leader_that_comes_back_is_not_to_assign() -> None:
    world = World()
    a, _ = static_pair(world)
    joined = world.join(instance_id="ia").got
    assert joined.skip_assignment
    assert joined.leader == joined.member_id != a
    assert len(joined.members) == 2
    # Before version 9 it is made to believe that another leads.
    older = world.join(instance_id="ia", may_skip=False).got
    assert (older.leader, older.members, older.skip_assignment) == (joined.member_id, (), False)
    assert world.group.roster.leader == older.member_id


def test_a_static_member_whose_return_cannot_be_stored_is_answered_so() -> None:
    world = World()
    static_pair(world)
    world.store.fails = ErrorCode.NOT_COORDINATOR
    joined = world.join(instance_id="ib").got
    assert (joined.code, joined.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    world.store.fails = NONE
    assert world.join(instance_id="ib").got.code is NONE


def test_a_static_member_that_comes_back_with_another_preference_starts_a_rebalance() -> None:
    world = World()
    both: Protocols = (("range", b"x"), ("sticky", b"x"))
    a = world.join(instance_id="ia", protocols=both).got.member_id
    world.settle([a])
    joined = world.join(instance_id="ia", protocols=both[::-1]).got
    assert (joined.generation, joined.protocol) == (2, "sticky")


def test_the_old_self_that_waits_is_fenced() -> None:
    world = World()
    a, b = static_pair(world)
    waiting = world.join(b, CHANGED, instance_id="ib")
    again = world.join(instance_id="ib")
    assert (waiting.got.code, waiting.got.member_id) == (FENCED, b)
    world.join(a, instance_id="ia")
    syncing = world.sync(again.got.member_id, instance_id="ib")
    world.join(instance_id="ib")
    assert syncing.got.code is FENCED


def test_a_static_member_is_removed_by_its_instance() -> None:
    world = World()
    static_pair(world)
    assert world.leave(Leaver("", "ib"), Leaver("", "ib")) == [NONE, UNKNOWN]


def test_static_absentees_stay_in_the_group() -> None:
    world = World()
    a, _ = static_pair(world)
    waiting = world.join(a, CHANGED, instance_id="ia")
    world.pass_ms(REBALANCE_MS + 100)
    assert (waiting.got.leader, len(waiting.got.members)) == (a, 2)


def test_if_none_of_the_static_members_comes_the_group_waits_for_one() -> None:
    world = World()
    _, b = static_pair(world)
    visitor, _ = world.new()
    world.leave(visitor)
    world.pass_ms(REBALANCE_MS + 100)
    assert world.state is GroupState.PREPARING_REBALANCE
    assert len(world.group.roster) == 2
    waiting = world.join(b, instance_id="ib")
    assert waiting.waits
    world.pass_ms(REBALANCE_MS)
    assert (waiting.got.leader, len(waiting.got.members)) == (b, 2)
