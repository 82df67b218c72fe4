"""One consumer group: answers as Apache Kafka 4.3.0 gives them, and writes that fail."""

from __future__ import annotations

from uuid import UUID

import pytest

from kbroker.coordinator.consumer_group.images import CurrentImage, Kind
from kbroker.coordinator.consumer_group.quick import QUICK_MS
from kbroker.coordinator.consumer_group.records import change_of
from kbroker.coordinator.consumer_group.states import (
    CELLS,
    ConsumerGroupState,
    MemberState,
    Situation,
)
from kbroker.coordinator.group.consumer_records import decode_key
from kbroker.coordinator.group.messages import CommitAsked, LeaveAnswer, Leaver
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import (
    GROUP,
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    World,
    topic_of,
)

NONE = ErrorCode.NONE
T = topic_of("t", 4).topic_id


@pytest.fixture
def world() -> World:
    made = World()
    made.create(topic_of("t", 4))
    return made


def indexes(*some: int) -> dict[UUID, frozenset[int]]:
    return {T: frozenset(some)}


def current(world: World, member_id: str) -> CurrentImage:
    return world.group._state.current_of(member_id)


def shared(world: World) -> tuple[int, int]:
    """Two members with two partitions each; their epochs."""
    world.join("a")
    world.join("b")
    world.beat("a", 2, owned=indexes(0, 1, 2, 3))
    first = world.beat("a", 2, owned=indexes(0, 1))
    second = world.beat("b", 3)
    assert first.assignment is None
    assert second.assignment == indexes(2, 3)
    assert world.group.state is ConsumerGroupState.STABLE
    return first.epoch, second.epoch


def admit(world: World, member_id: str, epoch: int, *some: int, **how: object) -> ErrorCode:
    asked = CommitAsked(
        GROUP,
        member_id,
        None,
        epoch,
        lambda: [(T, index) for index in some],
        9,
        **how,  # type: ignore[arg-type]
    )
    return world.group.admit_commit(asked).code


def test_each_state_has_a_cell_for_each_situation() -> None:
    assert CELLS.keys() == {(state, each) for state in MemberState for each in Situation}


# --- joining ---


def test_the_first_member_gets_all_at_once(world: World) -> None:
    answer = world.join()
    assert (answer.code, answer.epoch, answer.assignment) == (NONE, 2, indexes(0, 1, 2, 3))
    assert world.group.state is ConsumerGroupState.STABLE


def test_the_records_of_a_first_join_are_in_apache_kafkas_order(world: World) -> None:
    world.join()
    (records,) = world.log.batches
    kinds = []
    for raw, value in records:
        key = decode_key(raw)
        assert key is not None
        kinds.append(change_of(key, value).kind)
    assert kinds == [Kind.MEMBER, Kind.GROUP, Kind.TARGET, Kind.TARGET_EPOCH, Kind.CURRENT]


def test_a_member_of_topics_that_do_not_exist(world: World) -> None:
    answer = world.join("a", "another")
    assert (answer.epoch, answer.assignment) == (2, {})


def test_a_join_that_is_repeated_is_the_same_member(world: World) -> None:
    first, again = world.join(), world.join()
    assert (first.epoch, again.epoch, again.assignment) == (2, 2, indexes(0, 1, 2, 3))
    assert world.group.member_count == 1


def test_a_second_member_comes_soon(world: World) -> None:
    assert world.join("a").interval_ms == QUICK_MS
    answer = world.join("b")
    assert (answer.epoch, answer.assignment, answer.interval_ms) == (3, {}, QUICK_MS)
    assert current(world, "b").state is MemberState.UNRELEASED
    world.pass_ms(3_000)
    world.beat("a", 2)
    world.pass_ms(3_000)
    assert world.beat("b", 3).interval_ms == HEARTBEAT_MS


def test_a_full_group() -> None:
    world = World(size_max=1)
    world.create(topic_of("t", 4))
    world.join("a")
    assert world.join("b").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("a").code is NONE


# --- epochs ---


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("a", 3, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, ErrorCode.FENCED_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, NONE),
    ],
)
def test_epochs_of_heartbeats(world: World, member_id: str, epoch: int, code: ErrorCode) -> None:
    world.join()
    answer = world.beat(member_id, epoch)
    assert (answer.code, answer.assignment) == (code, None)


def test_an_answer_that_was_lost(world: World) -> None:
    world.join("a")
    world.join("b")
    world.beat("a", 2, owned=indexes(0, 1, 2, 3))
    assert world.beat("a", 2, owned=indexes(0, 1)).epoch == 3  # and it does not come
    again = world.beat("a", 2, owned=indexes(0, 1))
    assert (again.code, again.epoch, again.assignment) == (NONE, 3, indexes(0, 1))
    fenced = world.beat("a", 2, owned=indexes(0, 2))
    assert fenced.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("a", 2).code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_group_that_is_not_there(world: World) -> None:
    for epoch in (5, -1):
        assert world.beat("a", epoch).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not world.log.batches


# --- topics ---


def test_a_topic_that_grows(world: World) -> None:
    world.join()
    world.create(topic_of("t", 6))
    answer = world.beat("a", 2)
    assert (answer.epoch, answer.assignment) == (3, indexes(0, 1, 2, 3, 4, 5))


def test_a_topic_that_was_created_again_is_another(world: World) -> None:
    world.join()
    world.remove("t")
    world.create(topic_of("t", 1, number=2))
    answer = world.beat("a", 2, owned=indexes(0, 1, 2, 3))
    assert (answer.epoch, answer.assignment) == (2, {})
    other = topic_of("t", 1, number=2).topic_id
    answer = world.beat("a", 2, owned={})
    assert (answer.epoch, answer.assignment) == (3, {other: frozenset({0})})


def test_a_rack_that_changes_is_a_change(world: World) -> None:
    world.join()
    world.racks({1: "here"})
    assert world.beat("a", 2).epoch == 3
    world.racks({})  # the broker is down, and its rack is remembered
    assert world.beat("a", 3).epoch == 3


def test_a_pattern_is_resolved_beside(world: World) -> None:
    answer = world.join("a", topics=(), pattern="t|x.*")
    assert (answer.epoch, answer.assignment, answer.interval_ms) == (1, {}, QUICK_MS)
    world.work_beside()
    answer = world.beat("a", 1)
    assert (answer.epoch, answer.assignment) == (2, indexes(0, 1, 2, 3))
    world.create(topic_of("xy", 1))
    world.beat("a", 2)
    assert not world.jobs
    world.pass_ms(10_000)
    world.beat("a", 2)
    world.work_beside()
    assert world.beat("a", 2).epoch == 3


def test_topics_that_the_client_may_not_describe_match_no_pattern(world: World) -> None:
    world.create(topic_of("tx", 1))
    world.join("a", topics=(), pattern="t.*", hidden=lambda names: frozenset({"tx"}))
    world.work_beside()
    assert world.beat("a", 1).assignment == indexes(0, 1, 2, 3)


# --- partitions are given up ---


def test_a_member_that_does_not_give_up_in_time_is_removed(world: World) -> None:
    world.join("a", rebalance_timeout_ms=6_000)
    world.join("b")
    assert world.beat("a", 2).assignment == indexes(0, 1)
    world.pass_ms(5_000)
    world.beat("a", 2)
    world.pass_ms(1_100)
    assert world.beat("a", 2).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("b", 3).assignment == indexes(0, 1, 2, 3)


def test_a_session_ends(world: World) -> None:
    world.join()
    world.pass_ms(SESSION_MS - 100)
    assert world.beat("a", 2).code is NONE
    world.pass_ms(SESSION_MS - 100)
    assert world.group.member_count == 1
    world.pass_ms(200)
    assert world.group.state is ConsumerGroupState.EMPTY
    assert world.group._state.metadata_hash == 0


def test_another_coordinator_gives_members_a_whole_session(world: World) -> None:
    world.join()
    world.pass_ms(SESSION_MS - 100)
    world.fail_over()
    world.pass_ms(SESSION_MS - 100)
    assert world.beat("a", 2).code is NONE


# --- static members ---


def test_a_static_member_comes_back_without_a_move(world: World) -> None:
    world.join("a", instance_id="i")
    assert world.join("b", instance_id="i").code is ErrorCode.UNRELEASED_INSTANCE_ID
    left = world.beat("a", -2, instance_id="i")
    assert (left.code, left.epoch) == (NONE, -2)
    assert world.group.state is ConsumerGroupState.RECONCILING
    late = world.beat("a", 2, instance_id="i")
    assert late.code is ErrorCode.FENCED_MEMBER_EPOCH
    back = world.join("b", instance_id="i")
    assert (back.epoch, back.assignment) == (2, indexes(0, 1, 2, 3))
    assert world.beat("a", 2, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
    assert world.beat("b", 2, instance_id="j").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_removed(world: World) -> None:
    world.join("a", instance_id="i")
    world.beat("a", -2, instance_id="i")
    world.pass_ms(SESSION_MS + 100)
    assert world.group.is_empty


def test_an_operator_removes_members(world: World) -> None:
    world.join("a", instance_id="i")
    world.join("b")
    answers: list[LeaveAnswer] = []
    leavers = [Leaver("", "i"), Leaver("b"), Leaver("b"), Leaver("", "j"), Leaver("")]
    world.group.leave(leavers, answers.append)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answers == [LeaveAnswer(NONE, (NONE, NONE, NONE, unknown, unknown))]
    assert world.group.is_empty
    assert world.group._state.epoch == 4


# --- offsets ---


def test_commits_of_earlier_epochs(world: World) -> None:
    """KIP-1251: from the epoch in which the partition was handed over on."""
    first, second = shared(world)
    assert (first, second) == (3, 3)
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert admit(world, "a", 2, 0, 1) is NONE
    assert admit(world, "a", 1, 0) is stale
    assert admit(world, "a", 2, 0, 2) is stale
    assert admit(world, "a", 3, 2) is NONE  # the right epoch is enough
    assert admit(world, "b", 2, 2) is stale
    assert admit(world, "b", 4, 2) is stale
    assert admit(world, "b", -1, 2) is stale
    assert admit(world, "", -1, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert admit(world, "x", 3, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_in_transactions(world: World) -> None:
    shared(world)
    assert admit(world, "b", 2, 2, in_transaction=True) is ErrorCode.ILLEGAL_GENERATION
    assert admit(world, "", -1, 2, in_transaction=True) is NONE


def test_an_empty_group_takes_commits_of_no_member(world: World) -> None:
    world.join()
    world.beat("a", -1)
    assert admit(world, "", -1, 0) is NONE
    assert world.view.published[GROUP][0] == 0


def test_a_change_after_the_check_has_a_commit_checked_again(world: World) -> None:
    world.join()
    asked = CommitAsked(GROUP, "a", None, 2, lambda: [(T, 0)], 9)
    admission = world.group.admit_commit(asked)
    assert world.view.published[GROUP][1] == admission.generation
    world.join("b")
    assert world.view.published[GROUP][1] != admission.generation


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, NONE),
        ("a", 2, NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches_of_offsets(
    world: World, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    world.join()
    assert world.group.fetch_error(member_id, epoch) is code


# --- writes ---


def test_an_answer_waits_for_the_followers(world: World) -> None:
    world.log.holds = True
    joined = world.ask("a", 0, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned={})
    assert joined.waits
    assert len(world.log.batches) == 1
    unchanged = world.ask("a", 2)
    assert unchanged.waits  # it would say what the followers may not have
    world.log.release()
    assert joined.got.epoch == unchanged.got.epoch == 2


def test_a_write_that_is_refused_changes_nothing(world: World) -> None:
    world.join("a")
    before = world.group._state.values()
    world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.join("b").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group._state.values() == before
    world.log.refuses = NONE
    assert world.join("b").epoch == 3


def test_a_first_write_that_is_refused_leaves_no_group(world: World) -> None:
    world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    group = world.group
    assert world.join("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.gone == [group]
    assert group.lost
    assert not len(world.timer)


def test_a_step_that_fails_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.join("a")
    before = world.group._state.values()
    monkeypatch.setattr(world.group._assigner, "_clock", None)
    assert world.join("b").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group._state.values() == before
    assert world.failures.count == 1


def test_a_lost_group_has_no_timers_and_no_answers(world: World) -> None:
    world.join("a")
    world.group.unload()
    assert world.beat("a", 2).code is ErrorCode.NOT_COORDINATOR
    assert not len(world.timer)
    assert GROUP not in world.view.published


# --- the end ---


def test_a_group_with_members_is_not_deleted(world: World) -> None:
    world.join()
    codes: list[ErrorCode] = []
    gone: list[bool] = []

    def end() -> None:
        gone.append(True)

    world.group.delete(codes.append, unless=lambda: False, gone=end)
    world.beat("a", -1)
    world.group.delete(codes.append, unless=lambda: True, gone=end)
    not_empty, refused = ErrorCode.NON_EMPTY_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE
    the_disk_refuses = ErrorCode.NOT_COORDINATOR
    for world.log.refuses in (refused, the_disk_refuses):
        world.group.delete(codes.append, unless=lambda: False, gone=end)
    world.log.refuses = NONE
    assert not gone
    world.group.delete(codes.append, unless=lambda: False, gone=end)
    assert codes == [not_empty, not_empty, refused, the_disk_refuses, NONE]
    assert gone
    assert not world.replayed().exists


def test_an_empty_group_makes_room(world: World) -> None:
    world.join()
    codes: list[ErrorCode] = []
    world.group.retire(codes.append)
    world.beat("a", -1)
    world.group.retire(codes.append)
    assert codes == [ErrorCode.NON_EMPTY_GROUP, NONE]
    assert world.group.lost
    assert not world.replayed().exists


# --- large groups ---


def test_a_large_assignment_is_computed_beside(world: World) -> None:
    world.create(topic_of("t", 3_000))
    answer = world.join("a")
    assert (answer.epoch, answer.assignment) == (1, {})
    assert world.group.state is ConsumerGroupState.ASSIGNING
    world.work_beside()
    answer = world.beat("a", 1)
    assert answer.epoch == 2
    assert answer.assignment is not None
    assert len(answer.assignment[T]) == 3_000
