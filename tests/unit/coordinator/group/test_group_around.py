"""What is around a group: commits, the log, leadership, deletion, descriptions, callbacks."""

from __future__ import annotations

import pytest

from kbroker.coordinator.group.messages import JoinAsked, SyncAsked
from kbroker.coordinator.group.states import GroupState
from kbroker.coordinator.group.step import disagreement
from kbroker.errors import ErrorCode
from tests.unit.coordinator.group.world import CHANGED, GROUP, SESSION_MS, Answer, World

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
BUSY = ErrorCode.REBALANCE_IN_PROGRESS


# --- commits ---


def test_members_that_may_commit() -> None:
    world = World()
    check = world.coordinator.check_commit
    assert check(GROUP, "m", None, 3, 8) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, "m", None, 3, 9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.coordinator.find(GROUP) is None
    assert check(GROUP, "", None, -1, 2) is NONE  # no member: a group of offsets
    assert world.state is GroupState.EMPTY
    (leader,) = world.stable()
    assert check(GROUP, "", None, -1, 9) is UNKNOWN
    assert world.commit(leader) is NONE
    assert world.commit(leader, 7) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit(leader, -1) is ErrorCode.ILLEGAL_GENERATION
    world.join(leader, CHANGED)
    assert world.commit(leader) is BUSY


def test_members_that_may_commit_in_a_transaction() -> None:
    """As Apache Kafka: a rebalance is no reason against it, nor are members that are not named."""
    world = World()
    check = world.coordinator.check_transaction_commit
    assert check("", "", None, -1) is ErrorCode.INVALID_GROUP_ID
    assert check(GROUP, "m", None, 3) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, "", None, -1, make=False) is NONE
    assert world.coordinator.find(GROUP) is None
    assert check(GROUP, "", None, -1) is NONE
    assert world.state is GroupState.EMPTY
    (leader,) = world.stable()
    generation = world.group.generation
    assert check(GROUP, "", None, -1) is NONE
    assert check(GROUP, leader, None, generation) is NONE
    assert check(GROUP, leader, None, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, leader, None, -1) is ErrorCode.ILLEGAL_GENERATION
    assert check(GROUP, "stranger", None, generation) is UNKNOWN
    world.join(leader, CHANGED)
    assert world.commit(leader) is BUSY
    assert check(GROUP, leader, None, world.group.generation) is NONE
    world.store.state = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert check(GROUP, "", None, -1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_commit_in_a_transaction_to_a_group_that_is_dead() -> None:
    world = World()
    world.stable()
    world.group.unload()
    code = world.coordinator.check_transaction_commit(GROUP, "", None, -1)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (leader,) = world.stable()
    for _ in range(5):
        world.pass_ms(6_000)
        assert world.commit(leader) is NONE


# --- the log, leadership, deletion ---


def test_a_group_comes_back_from_the_log_as_it_was() -> None:
    world = World()
    leader, follower = world.stable(2)
    image = world.store.written[-1]
    later = World()
    later.coordinator.load([image])
    assert later.state is GroupState.STABLE
    assert later.view.groups[GROUP] == world.view.groups[GROUP]
    assert later.heartbeat(follower, image.generation) is NONE
    assert later.sync(follower).got.assignment == b"1"
    answered = later.join(follower).got
    assert (answered.generation, answered.leader) == (image.generation, leader)
    later.pass_ms(SESSION_MS + 100)
    assert later.state is GroupState.EMPTY


def test_a_group_that_is_too_large_for_this_broker_rebalances_when_it_is_loaded() -> None:
    world = World()
    world.stable(2)
    later = World(group_max_size=1)
    later.coordinator.load([world.store.written[-1]])
    assert later.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_waits_with_a_lost_group_is_sent_away() -> None:
    world = World()
    leader, follower = world.stable(2)
    join = world.join(leader)
    world.coordinator.unload(lambda group_id: group_id == GROUP)
    assert join.got.code is ErrorCode.NOT_COORDINATOR
    assert (len(world.timer), world.view.groups) == (0, {})
    assert world.coordinator.find(GROUP) is None
    assert world.coordinator.heartbeat(GROUP, follower, None, 1) is UNKNOWN


def test_none_waits_for_a_coordinator_that_is_closed() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower, CHANGED)
    world.coordinator.close()
    assert waiting.got.code is ErrorCode.NOT_COORDINATOR
    assert world.join().got.code is ErrorCode.NOT_COORDINATOR
    assert world.sync(leader, 1).got.code is ErrorCode.NOT_COORDINATOR
    assert (len(world.timer), world.coordinator.listings()) == (0, [])


@pytest.mark.parametrize("commits", [False, True])
def test_a_group_that_is_lost_while_it_is_made_does_not_stay(
    commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    codes = iter([NONE, ErrorCode.NOT_COORDINATOR])
    monkeypatch.setattr(world.store, "state_of", lambda group_id: next(codes))
    if commits:
        code = world.coordinator.check_commit(GROUP, "", None, -1, 9)
    else:
        code = world.join().got.code
    assert code is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.find(GROUP) is None


def test_an_image_replaces_the_group_that_is_there() -> None:
    world = World()
    world.stable(2)
    world.coordinator.load([world.store.written[-1]])
    assert world.view.groups[GROUP].state is GroupState.STABLE
    assert len(world.coordinator.listings()) == 1


def test_an_empty_group_is_deleted_when_its_tombstones_are_in_the_log() -> None:
    world = World()
    (leader,) = world.stable()
    assert world.delete().got is ErrorCode.NON_EMPTY_GROUP
    world.leave(leader)
    world.store.holds = True
    deleted = world.delete()
    again = world.delete()
    assert deleted.waits
    assert again.waits  # for the same tombstones
    world.store.release()
    assert deleted.got is NONE
    assert again.got is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.coordinator.describe(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.join().got.code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_deleted_group_is_gone_though_its_followers_are_late() -> None:
    """Its tombstones are in the log and its offsets are gone: it is not kept without them."""
    world = World()
    (leader,) = world.stable()
    world.leave(leader)
    world.store.holds = True
    deleted = world.delete()
    world.store.release(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert deleted.got is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.describe(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
    again = world.delete()
    assert again.waits
    world.store.release()
    assert again.got is ErrorCode.GROUP_ID_NOT_FOUND
    assert GROUP not in world.view.groups


def test_a_client_that_deletes_a_group_that_is_kept_in_the_end_is_to_ask_again() -> None:
    world = World()
    world.coordinator.ensure_group(GROUP)
    beside: list[Answer[ErrorCode]] = []

    def used() -> bool:
        beside.append(world.delete())
        return True

    assert world.delete(unless=used).got is ErrorCode.NON_EMPTY_GROUP
    assert beside[0].got is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.delete().got is NONE


def test_a_new_group_comes_after_the_tombstones_of_the_one_before() -> None:
    world = World()
    (leader,) = world.stable()
    world.leave(leader)
    world.store.holds = True
    deleted = world.delete()
    world.store.holds = False
    (leader,) = world.stable()
    world.store.release(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert deleted.got is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state is GroupState.STABLE
    assert world.view.groups[GROUP].members == [(leader, None)]


@pytest.mark.parametrize("why", ["used", "not stored", "the disk", "raises"])
def test_a_group_that_cannot_be_deleted_is_unchanged(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    (leader,) = world.stable()
    world.leave(leader)
    before = world.group.aged(), world.group.generation
    world.pass_ms(5_000)
    if why == "used":
        assert world.delete(unless=lambda: True).got is ErrorCode.NON_EMPTY_GROUP
    elif why == "not stored":
        world.store.fails = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.delete().got is ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif why == "the disk":
        world.store.fails = ErrorCode.NOT_COORDINATOR  # though its log is led here
        assert world.delete().got is ErrorCode.NOT_COORDINATOR
    else:
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "delete_group", raises)
            assert world.delete().got is ErrorCode.UNKNOWN_SERVER_ERROR
    world.store.fails = NONE
    assert (world.group.aged(), world.group.generation) == before
    (leader,) = world.stable()
    assert world.store.written[-1].generation == world.group.generation == before[1] + 1


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NONE])
def test_a_group_lost_during_its_deletion_is_not_published_over_its_successor(
    code: ErrorCode,
) -> None:
    world = World()
    (leader,) = world.stable()
    image = world.store.written[-1]
    world.leave(leader)
    world.store.holds = True
    deleted = world.delete()
    world.coordinator.unload(lambda group_id: True)
    world.coordinator.load([image])  # the partition is ours again
    world.store.release(code)
    assert deleted.got is code
    assert world.state is GroupState.STABLE
    assert disagreement(world.group) is None
    assert world.view.groups[GROUP].members == [(leader, None)]


def test_a_lost_group_does_not_write_its_pending_records() -> None:
    world = World()
    (leader,) = world.stable()
    world.leave(leader)
    group = world.group

    def lost() -> bool:
        """While its outbox hangs, the partition goes and comes back."""
        world.coordinator.unload(lambda group_id: True)
        world.coordinator.ensure_group(GROUP)
        return False

    written = len(world.store.written)
    group.outbox.add(lost)
    deleted = world.delete()
    assert deleted.got is ErrorCode.NOT_COORDINATOR
    assert world.group is not group
    assert (len(world.store.written), world.store.deleted) == (written, 0)


def raises(*_: object, **__: object) -> None:
    raise MemoryError("of this test")


# --- descriptions ---


def test_a_description_shows_subscriptions_of_a_stable_group_only() -> None:
    world = World()
    leader, _ = world.stable(2)
    described = world.group.described()
    assert (described.state, described.protocol) == (GroupState.STABLE, "range")
    assert [m.subscription for m in described.members] == [b"topics"] * 2
    assert [m.assignment for m in described.members] == [b"0", b"1"]
    world.join(leader)
    described = world.group.described()
    assert (described.state.label, described.protocol) == ("PreparingRebalance", "")
    assert [m.subscription for m in described.members] == [b""] * 2
    assert [m.assignment for m in described.members] == [b"0", b"1"]
    assert described.members[0].client_host == "/127.0.0.1"


def test_figures() -> None:
    world = World()
    world.stable(3)
    world.coordinator.ensure_group("other")
    counts = world.coordinator.counts()
    assert (counts[GroupState.STABLE], counts[GroupState.EMPTY]) == (1, 1)
    assert world.coordinator.member_counts() == {GROUP: 3, "other": 0}


# --- who is called, and when ---


def test_nothing_is_called_under_a_lock() -> None:
    """An answer, or a write, may come back into the group at once."""
    world = World()
    seen: list[bool] = []

    def answer(_: object) -> None:
        seen.append(world.group.lock.locked())
        world.heartbeat("stranger", 1)

    fields = JoinAsked(
        GROUP, "", None, "c", "/h", "consumer", (("range", b""),), 10_000, 5_000, needs_id=False
    )
    world.coordinator.join(fields, answer)
    (member,) = world.group.members
    world.coordinator.sync(SyncAsked(GROUP, member.member_id, None, 1), answer)
    assert seen == [False, False]


def test_an_answer_that_fails_hurts_no_other() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(leader)
    member = world.group.roster.members[leader]

    def broken(_: object) -> None:
        raise OSError("no such connection")

    member.awaiting_join = broken
    assert world.join(follower).got.code is NONE
    assert waiting.waits


@pytest.mark.parametrize("empties", [False, True])
def test_the_last_generation_is_followed_by_the_first(empties: bool) -> None:
    """The number is a record's, and Apache Kafka's record may have any."""
    world = World()
    (leader,) = world.stable()
    later = World()
    later.coordinator.load([world.store.written[-1]._replace(generation=2**31 - 1)])
    assert later.heartbeat(leader, 2**31 - 1) is NONE
    if empties:
        assert later.leave(leader) == [NONE]
        leader, joined = later.new()
    else:
        joined = later.join(leader, CHANGED)
    assert (joined.got.code, joined.got.generation) == (NONE, 2 if empties else 1)
    assert later.sync(leader, joined.got.generation).got.code is NONE
    assert later.commit(leader) is NONE
