"""Answers to the members of a classic group, as of Apache Kafka 4.3.0; by a fake clock."""

from __future__ import annotations

import logging

import pytest

from kbroker import limits
from kbroker.coordinator.group.messages import Leaver, Protocols
from kbroker.coordinator.group.states import GroupState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.group.world import (
    CHANGED,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    World,
)

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
BUSY = ErrorCode.REBALANCE_IN_PROGRESS
FENCED = ErrorCode.FENCED_INSTANCE_ID


# --- what needs no group ---


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "", "session_timeout_ms": 1}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, UNKNOWN),
    ],
)
def test_a_join_that_cannot_be(asked: dict[str, object], code: ErrorCode) -> None:
    answer = World().join(**asked).got  # type: ignore[arg-type]
    assert answer.code is code
    assert answer.member_id == asked.get("member_id", "")
    assert (answer.generation, answer.protocol, answer.leader) == (-1, None, "")


def test_a_known_member_makes_no_group() -> None:
    world = World()
    world.join("stranger")
    assert world.coordinator.find(GROUP) is None
    assert world.coordinator.heartbeat(GROUP, "stranger", None, 1) is UNKNOWN
    assert world.asks_to_leave(Leaver("a"), Leaver("b")).got == (NONE, (UNKNOWN, UNKNOWN))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_a_group_that_is_not_ours_now(code: ErrorCode) -> None:
    world = World()
    world.store.state = code
    assert world.join().got.code is code
    assert world.sync("m", 1).got.code is code
    assert world.asks_to_leave(Leaver("m")).got == (code, ())
    assert world.coordinator.describe(GROUP) is code
    assert world.delete().got is code
    assert world.coordinator.check_commit(GROUP, "", None, -1, 9) is code
    # While a group is being loaded its members are not frightened.
    loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.heartbeat(GROUP, "m", None, 1) is (NONE if loading else code)


def test_there_are_not_more_groups_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients would try for ever with a code of theirs to try again."""
    monkeypatch.setattr(limits, "GROUPS_MAX", 1)
    world = World()
    world.stable()
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    with caplog.at_level(logging.WARNING, "kbroker.groups"):
        for _ in range(2):
            joined = world.join(group_id="other").got
            assert (joined.code, joined.member_id) == (full, "")
            assert world.coordinator.check_commit("other", "", None, -1, 9) is full
            # A transactional producer fails for good on a code that it does not know.
            again = world.coordinator.check_transaction_commit("other", "", None, -1)
            assert again is ErrorCode.COORDINATOR_NOT_AVAILABLE
            world.pass_ms(60_000)
    lines = [each.getMessage() for each in caplog.records if "was refused" in each.getMessage()]
    first = "group other was refused: there are 1 groups, as many as a broker may coordinate -> "
    assert lines[0].startswith(first)
    assert lines[1].endswith("(and 2 like it before)")
    assert len(lines) == 2
    assert world.coordinator.refused.counts() == {"groups": 6, "share groups": 0}


# --- ids first (KIP-394) ---


def test_a_new_member_is_given_its_id_first() -> None:
    world = World()
    given = world.join(client_id="app").got
    assert given.code is ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id.startswith("app-")
    assert len(given.member_id) == len("app-") + 36
    joined = world.join(given.member_id).got
    assert (joined.code, joined.member_id, joined.generation) == (NONE, given.member_id, 1)


def test_before_version_4_it_joins_at_once() -> None:
    assert World().join(needs_id=False).got.generation == 1


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    world = World()
    given = world.join().got
    world.pass_ms(SESSION_MS - 200)
    assert given.member_id in world.group.roster.pending
    world.pass_ms(300)
    assert not world.group.roster.pending
    assert world.join(given.member_id).got.code is UNKNOWN
    assert len(world.timer) == 0


def test_an_id_that_left_is_forgotten_and_one_for_no_static_member() -> None:
    world = World()
    given = world.join().got.member_id
    odd = world.join(given, instance_id="i").got
    assert (odd.code, odd.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert world.leave(Leaver(given, "i"), given) == [NONE, UNKNOWN]
    assert len(world.timer) == 0


def test_a_generation_waits_for_ids_that_were_handed_out() -> None:
    world = World()
    (leader,) = world.stable()
    given = world.join().got.member_id
    waiting = world.join(leader, CHANGED)
    assert waiting.waits
    joined = world.join(given, CHANGED)
    assert (waiting.got.generation, joined.got.generation) == (2, 2)
    # And no longer than it takes to see that one does not come.
    world.join()
    waiting = world.join(leader)
    world.pass_ms(REBALANCE_MS + 200)
    assert not waiting.waits


def test_ids_are_not_handed_out_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_PENDING_MEMBERS_MAX", 3)
    world = World()
    codes = [world.join().got.code for _ in range(4)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


# --- the first generation ---


def test_the_first_generation_waits_for_more_members() -> None:
    world = World(group_initial_rebalance_delay_ms=3_000)
    _, first = world.new("a", rebalance_timeout_ms=60_000)
    world.pass_ms(2_900)
    assert first.waits
    _, second = world.new("b", rebalance_timeout_ms=60_000)
    world.pass_ms(2_900)  # a newcomer prolongs the wait by as much again
    assert first.waits
    world.pass_ms(300)
    assert first.got.generation == second.got.generation == 1
    assert len(first.got.members) == 2
    assert second.got.members == ()


def test_the_first_generation_waits_no_longer_than_the_rebalance_timeout() -> None:
    world = World(group_initial_rebalance_delay_ms=3_000)
    _, first = world.new(rebalance_timeout_ms=7_000)
    for _ in range(6):
        world.pass_ms(1_000)
        world.new(rebalance_timeout_ms=7_000)
        assert first.waits
    world.pass_ms(1_100)
    assert len(first.got.members) == 7


def test_an_id_that_is_not_used_does_not_keep_the_first_generation() -> None:
    world = World()
    world.join()
    _, joined = world.new()
    assert joined.got.generation == 1


# --- rebalances ---


def test_a_follower_with_the_same_subscription_gets_the_present_generation() -> None:
    world = World()
    leader, follower = world.stable(2)
    generation = world.group.generation
    answered = world.join(follower).got
    assert (answered.generation, answered.leader, answered.members) == (generation, leader, ())
    assert world.state is GroupState.STABLE


def test_the_leader_starts_a_rebalance_by_joining() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(leader)
    assert waiting.waits
    assert world.heartbeat(follower) is BUSY
    answered = world.join(follower).got
    assert answered.leader == leader
    assert [member.member_id for member in waiting.got.members] == [leader, follower]
    assert [member.subscription for member in waiting.got.members] == [b"topics"] * 2


def test_a_lost_join_answer_is_repeated() -> None:
    world = World()
    (leader,) = world.stable()
    first = world.join(leader, CHANGED).got
    assert world.join(leader, CHANGED).got == first
    assert world.state is GroupState.COMPLETING_REBALANCE


def test_other_metadata_before_the_assignment_starts_over() -> None:
    world = World()
    leader, follower = world.stable(2)
    other = world.join(leader)
    world.join(follower)
    waiting = world.sync(follower)
    again = world.join(leader, CHANGED)
    assert other.got.code is NONE
    assert waiting.got.code is BUSY
    assert again.waits


def test_a_member_that_asks_twice_is_answered_on_the_later_request() -> None:
    world = World()
    leader, follower = world.stable(2)
    first = world.join(follower, CHANGED)
    second = world.join(follower, CHANGED)
    assert (first.got.code, first.got.member_id) == (BUSY, follower)
    assert second.waits
    world.join(leader)
    assert second.got.code is NONE
    one = world.sync(follower)
    two = world.sync(follower)
    assert one.got.code is BUSY
    world.sync(leader, given={follower: b"x"})
    assert two.got.assignment == b"x"


def test_absentees_are_put_out_and_the_leader_with_them() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower, CHANGED)
    world.pass_ms(REBALANCE_MS - 200)
    assert waiting.waits
    assert world.heartbeat(leader) is BUSY
    world.pass_ms(300)
    assert (waiting.got.leader, len(waiting.got.members)) == (follower, 1)
    assert world.heartbeat(leader) is UNKNOWN
    assert world.join(leader).got.code is UNKNOWN


def test_the_longest_rebalance_timeout_counts() -> None:
    world = World()
    slow, _ = world.new("slow", rebalance_timeout_ms=60_000, session_timeout_ms=90_000)
    world.settle([slow])
    _, quick = world.new("quick", rebalance_timeout_ms=1_000)
    world.pass_ms(59_000, step_ms=1_000)
    assert quick.waits
    world.pass_ms(1_100)
    assert not quick.waits


def test_a_member_that_does_not_sync_is_put_out() -> None:
    world = World()
    leader, follower = world.stable(2)
    world.join(leader)
    world.join(follower)
    world.sync(leader, given={leader: b"all"})
    world.pass_ms(REBALANCE_MS - 100)
    assert world.state is GroupState.STABLE
    world.pass_ms(200)
    assert world.state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat(follower) is UNKNOWN


# --- protocols ---


def votes(*protocols: str) -> str | None:
    """The protocol that is chosen of members with these preferences."""
    world = World(group_initial_rebalance_delay_ms=3_000)
    said: list[Protocols] = [tuple((name, b"") for name in each) for each in protocols]
    joins = [world.join(protocols=each, needs_id=False) for each in said]
    world.pass_ms(6_100)
    chosen: str | None = joins[0].got.protocol
    return chosen


def test_the_protocol_is_chosen_by_votes_among_those_all_have() -> None:
    assert votes("ab", "ba", "ba") == "b"
    assert votes("abc", "cb", "dcb") == "c"
    assert votes("ab", "ba") == "a"  # equal: the earliest member's
    assert votes("xa", "ya", "za") == "a"


def test_a_member_without_a_protocol_in_common_is_refused() -> None:
    world = World()
    world.stable()
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=(("other", b""),)).got.code is code
    assert world.join(protocol_type="connect").got.code is code


def test_the_sync_must_name_the_protocol_it_means() -> None:
    world = World()
    (leader,) = world.stable()
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(leader, protocol_type="connect").got.code is code
    assert world.sync(leader, protocol="sticky").got.code is code
    answer = world.sync(leader, protocol_type="consumer", protocol="range").got
    assert (answer.code, answer.protocol_type, answer.protocol) == (NONE, "consumer", "range")


# --- assignments ---


def test_missing_members_get_an_empty_assignment_and_strangers_none() -> None:
    world = World()
    leader, follower = world.stable(2)
    other = world.join(leader)
    world.join(follower)
    waiting = world.sync(follower)
    assert other.got.code is NONE
    assert world.sync(leader, given={leader: b"x", "stranger": b"y"}).got.assignment == b"x"
    assert waiting.got.assignment == b""
    image = world.store.written[-1]
    assert [(m.member_id, m.assignment) for m in image.members] == [(leader, b"x"), (follower, b"")]
    assert (image.generation, image.protocol, image.leader) == (3, "range", leader)


def test_a_sync_of_a_wrong_generation_or_member() -> None:
    world = World()
    (leader,) = world.stable()
    assert world.sync(leader, 2).got.code is ErrorCode.ILLEGAL_GENERATION
    assert world.sync("stranger").got.code is UNKNOWN
    assert world.sync(leader, instance_id="i").got.code is UNKNOWN
    assert world.sync(leader).got.assignment == b"0"


# --- sessions ---


def test_a_silent_member_is_lost_when_its_session_is_over() -> None:
    world = World()
    leader, follower = world.stable(2)
    for _ in range(6):
        world.pass_ms(2_000)
        assert world.heartbeat(leader) in (NONE, BUSY)
        if world.state is GroupState.STABLE:
            last_seen = world.clock.monotonic_ms()
    assert world.heartbeat(follower) is UNKNOWN
    assert world.state is GroupState.PREPARING_REBALANCE
    assert world.clock.monotonic_ms() - last_seen <= 2 * 2_000


def test_a_member_with_requests_in_c_is_not_lost() -> None:
    world = World()
    (leader,) = world.stable()
    for _ in range(10):
        world.view.last_ms[leader] = world.clock.monotonic_ms()
        world.pass_ms(4_000)
    assert world.state is GroupState.STABLE
    world.pass_ms(SESSION_MS - 4_000 + 100)
    assert world.state is GroupState.EMPTY


def test_a_session_is_one_timer_however_many_heartbeats() -> None:
    world = World()
    (leader,) = world.stable()
    before = world.timer.statistics()
    for _ in range(1_000):
        world.heartbeat(leader)
    assert world.timer.statistics() == before


def test_answers_begin_a_session() -> None:
    world = World()
    leader, follower = world.stable(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    world.join(leader, rebalance_timeout_ms=60_000, session_timeout_ms=6_000)
    world.pass_ms(5_000)
    world.join(follower, rebalance_timeout_ms=60_000, session_timeout_ms=6_000)
    world.pass_ms(5_000)
    waiting = world.sync(follower)
    world.pass_ms(900)
    assert world.sync(leader).got.code is NONE
    assert waiting.got.code is NONE
    world.pass_ms(5_500)
    assert world.state is GroupState.STABLE
    world.pass_ms(600)
    assert world.state is GroupState.EMPTY


def test_a_member_that_waits_is_not_lost() -> None:
    world = World()
    leader, _ = world.stable(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    waiting = world.join(leader, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    world.pass_ms(6_100)  # the other one is lost meanwhile, and the leader is not
    assert waiting.got.code is NONE
    assert [member.member_id for member in waiting.got.members] == [leader]


def test_a_new_member_whose_join_waits_for_ever_is_given_up() -> None:
    world = World()
    slow = {"rebalance_timeout_ms": 1_000_000, "session_timeout_ms": 1_000_000}
    world.stable(1, **slow)
    _, newest = world.new("late", **slow)
    world.pass_ms(limits.GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS - 1_000, step_ms=1_000)
    assert newest.waits
    world.pass_ms(2_000, step_ms=1_000)
    assert (newest.got.code, newest.got.member_id) == (UNKNOWN, "")


def test_a_step_of_the_wall_clock_expires_no_member() -> None:
    world = World()
    world.stable()
    world.clock.set_wall_ms(world.clock.wall_ms() + 10**9)
    world.timer.advance()
    assert world.state is GroupState.STABLE


# --- leaving ---


def test_a_batch_of_leavers_has_an_error_for_each() -> None:
    world = World()
    leader, follower = world.stable(2)
    codes = world.leave("stranger", follower, follower, Leaver("", None), Leaver("", "i"))
    assert codes == [UNKNOWN, NONE, UNKNOWN, UNKNOWN, UNKNOWN]
    assert world.heartbeat(leader) is BUSY
    assert world.view.groups[GROUP].members == [(leader, None)]


def test_the_last_one_leaves_an_empty_group_of_a_new_generation() -> None:
    world = World()
    (leader,) = world.stable()
    assert world.leave(leader) == [NONE]
    assert (world.state, world.group.generation) == (GroupState.EMPTY, 2)
    assert world.group.listed().protocol_type == "consumer"
    assert world.view.groups[GROUP] == (GroupState.EMPTY, 2, [])
    _, joined = world.new(protocol_type="connect", protocols=(("p", b""),))
    assert (joined.got.generation, joined.got.protocol_type) == (3, "connect")


def test_a_second_plan_of_a_generation_is_not_written() -> None:
    """Members would have the first one here, and the second one from the next coordinator."""
    world = World()
    world.store.holds = True
    leader, joined = world.new()
    asked_first = world.sync(leader, given={leader: b"first"})
    assert world.join(leader).got.generation == joined.got.generation
    asked_again = world.sync(leader, given={leader: b"second"})
    world.store.release()
    assert asked_first.got.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert asked_again.got.assignment == b"first"
    assert [member.assignment for member in world.store.written[-1].members] == [b"first"]


def test_a_plan_that_could_not_be_written_makes_way_for_that_of_the_next_generation() -> None:
    world = World()
    world.store.holds = True
    leader, _ = world.new()
    world.sync(leader, given={leader: b"first"})
    world.store.release(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    world.store.holds = False
    assert world.join(leader).got.generation == 2
    assert world.sync(leader, given={leader: b"second"}).got.assignment == b"second"


@pytest.mark.parametrize("code", [NONE, ErrorCode.NOT_COORDINATOR])
def test_the_last_one_is_answered_when_the_end_is_in_the_log(code: ErrorCode) -> None:
    world = World()
    leader, follower = world.stable(2)
    world.store.holds = True
    assert world.asks_to_leave(Leaver(follower), Leaver("stranger")).got.members == (NONE, UNKNOWN)
    last = world.asks_to_leave(Leaver(leader))
    assert last.waits
    world.store.release(code)
    assert last.got == (code, () if code else (NONE,))
    assert world.asks_to_leave(Leaver(leader)).got.members == (UNKNOWN,)


def test_a_waiting_member_that_is_taken_out_is_answered() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(follower, CHANGED)
    world.leave(follower)
    assert (waiting.got.code, waiting.got.member_id) == (UNKNOWN, "")
    assert world.state is GroupState.PREPARING_REBALANCE
    assert world.join(leader).got.generation == 3


# --- size ---


def test_a_full_group_refuses_newcomers() -> None:
    world = World(group_max_size=2)
    leader, follower = world.stable(2)
    refused = world.join().got
    assert (refused.code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    waiting = world.join(leader)
    world.join(follower)
    assert waiting.got.code is NONE


def test_of_a_group_that_became_too_large_the_first_to_come_stay() -> None:
    world = World()
    a, b, c = world.stable(3)
    world.config["group.max.size"] = 2
    first, second = world.join(a, CHANGED), world.join(b)
    assert world.join(c).got.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(first.got.members) == 2
    assert second.got.code is NONE
