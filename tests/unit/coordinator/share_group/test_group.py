"""A share group: joins, states of its share-partitions, targets, losses, failovers, deletion."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.share_group.group import ShareGroup
from kbroker.coordinator.share_group.state import ShareGroupLabel
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.share_group.world import AWAY, NONE, RETRY_MS, World

MOVED = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def world() -> World:
    world = World()
    world.create(topic_of("t", 3))
    return world


def of(world: World, name: str, *partitions: int) -> Any:
    return {world.id_of(name): frozenset(partitions)}


def test_partitions_come_when_they_have_a_state(world: World) -> None:
    """The epochs are those of Apache Kafka 4.3.0."""
    joined = world.join()
    assert (joined.code, joined.epoch, joined.assignment) == (NONE, 2, {})
    assert world.beat("a", 2).assignment is None
    assert [(key.partition, epoch) for _, key, epoch, _ in world.persister.asked] == [
        (0, 2), (1, 2), (2, 2),
    ]  # fmt: skip
    world.persister.answer()
    found = world.beat("a", 2)
    assert (found.epoch, found.assignment) == (3, of(world, "t", 0, 1, 2))
    found = world.beat("a", 3)
    assert (found.epoch, found.assignment) == (3, None)
    assert not world.persister.asked


def test_a_load_asks_again_at_once(world: World) -> None:
    world.join()
    world.persister.asked.clear()
    world.fail_over()
    world.beat("a", 2)
    assert len(world.persister.answer()) == 3
    assert world.beat("a", 2).assignment == of(world, "t", 0, 1, 2)


def test_more_partitions_and_topics_get_states_too(world: World) -> None:
    world.persister.at_once = True
    world.join()
    epoch = world.settle("a", 2).epoch
    world.create(topic_of("t", 5))
    found = world.settle("a", epoch)
    assert found.assignment == of(world, "t", 0, 1, 2, 3, 4)
    world.create(topic_of("u", 1))
    assert world.join("a", "t", "u").code is NONE
    found = world.settle("a", found.epoch)
    kept = world.group._state.state_topics
    assert not kept.initializing
    assert {some.name for some in kept.initialized.values()} == {"t", "u"}


def test_states_that_come_while_a_target_is_computed_are_given(world: World) -> None:
    world.persister.at_once = True
    world.join()
    epoch = world.settle("a", 2).epoch
    world.persister.at_once = False
    world.group._assigner._unit_ns = 1e12  # each target is computed beside
    world.create(topic_of("t", 5))
    world.beat("a", epoch)
    assert len(world.jobs) == 1
    world.persister.answer()
    world.beat("a", epoch)
    world.jobs.pop()()
    world.group._assigner._unit_ns = 1.0
    world.elapse(1_000)
    assert world.settle("a", epoch).assignment == of(world, "t", 0, 1, 2, 3, 4)


def test_a_deleted_topic_goes(world: World) -> None:
    world.persister.at_once = True
    world.join()
    epoch = world.settle("a", 2).epoch
    world.remove("t")
    found = world.settle("a", epoch)
    assert found.assignment in ({}, None)
    assert not world.group._state.state_topics.initialized
    assert world.group._state.current_of("a").assigned == {}


def test_members_share_partitions(world: World) -> None:
    world.persister.at_once = True
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        assert world.join(name).code is NONE
    epochs = dict.fromkeys(names, 0)
    assigned: dict[str, Any] = {}
    for name in names * 3:
        state = world.group._state
        found = world.settle(name, state.current_of(name).epoch)
        epochs[name] = found.epoch
        assigned[name] = state.current_of(name).assigned
    assert set(epochs.values()) == {world.group._state.epoch}
    partitions = [index for each in assigned.values() for some in each.values() for index in some]
    assert len(partitions) == 5
    assert set(partitions) == {0, 1, 2}


@pytest.mark.parametrize("epoch", [1, 7])
def test_a_member_with_another_epoch_is_fenced(world: World, epoch: int) -> None:
    world.join()
    assert world.beat("a", epoch).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.beat("b", epoch).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_goes_on(world: World) -> None:
    world.persister.at_once = True
    world.join()
    assert world.beat("a", 2).epoch == 3
    again = world.beat("a", 2)
    assert (again.code, again.epoch, again.assignment) == (NONE, 3, of(world, "t", 0, 1, 2))


def test_a_group_has_a_bound() -> None:
    world = World(size_max=1)
    assert world.join("a").code is NONE
    assert world.join("b").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("a").code is NONE


def test_a_silent_member_is_lost(world: World) -> None:
    world.persister.at_once = True
    world.join("a")
    world.join("b")
    world.settle("b", world.group._state.current_of("b").epoch)
    world.elapse(44_000)
    world.settle("b", world.group._state.current_of("b").epoch)
    world.elapse(2_000)
    assert set(world.group._state.members) == {"b"}
    found = world.settle("b", world.group._state.current_of("b").epoch)
    assert world.group._state.current_of("b").assigned == of(world, "t", 0, 1, 2)
    assert found.code is NONE


def test_a_member_leaves(world: World) -> None:
    world.join()
    left = world.beat("a", -1)
    assert (left.code, left.epoch) == (NONE, -1)
    assert world.group.state is ShareGroupLabel.EMPTY
    assert world.beat("a", -1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.exists


def test_a_group_that_is_not_there() -> None:
    world = World()
    assert world.beat("a", 3).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(world.gone) == 1


def test_a_failover_has_all_that_was_answered(world: World) -> None:
    world.persister.at_once = True
    for name in ("a", "b"):
        world.join(name)
    for name in ("a", "b", "a"):
        world.settle(name, world.group._state.current_of(name).epoch)
        before = world.group._state.values()
        world.fail_over()
        assert world.group._state.values() == before


def test_a_write_that_is_refused_changes_nothing(world: World) -> None:
    world.join()
    before = world.group._state.values()
    world.log.refuses = MOVED
    world.persister.answer()
    assert world.join("b").code is MOVED
    assert world.group._state.values() == before
    world.log.refuses = NONE
    world.elapse(RETRY_MS)
    world.beat("a", 2)
    world.persister.answer()
    assert world.beat("a", 2).assignment == of(world, "t", 0, 1, 2)


def delete(world: World) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)
    return codes


def test_a_deletion_takes_the_states_first(world: World) -> None:
    world.persister.at_once = True
    world.join()
    world.settle("a", 2)
    assert delete(world) == [ErrorCode.NON_EMPTY_GROUP]
    world.beat("a", -1)
    codes = delete(world)
    assert codes == []
    assert world.persister.answer(AWAY) == [("delete", n) for n in range(3)]
    assert codes == [AWAY]
    assert world.group.exists
    codes = delete(world)
    world.persister.answer()
    assert codes == [NONE]
    assert not world.group.exists
    world.fail_over()
    assert not world.group.exists


def empty_group(world: World, *topics: str) -> None:
    """All share-partitions have a state, and the last member has left."""
    world.persister.at_once = True
    world.join("a", *topics)
    world.settle("a", 2)
    world.beat("a", -1)


def test_a_deletion_asks_nothing_of_topics_that_are_gone(world: World) -> None:
    world.create(topic_of("u", 2))
    empty_group(world, "t", "u")
    world.remove("t")
    codes = delete(world)
    assert world.persister.answer() == [("delete", 0), ("delete", 1)]
    assert codes == [NONE]


def test_a_partition_that_no_coordinator_knows_has_no_state(world: World) -> None:
    empty_group(world)
    world.persister.codes[1] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = delete(world)
    world.persister.answer()
    assert codes == [NONE]
    assert not world.group.exists


@pytest.mark.parametrize("fails_over", [False, True])
def test_after_half_a_deletion_the_states_begin_again(world: World, fails_over: bool) -> None:
    empty_group(world)
    world.persister.codes[1] = AWAY
    codes = delete(world)
    world.persister.answer()
    assert codes == [AWAY]
    if fails_over:
        world.fail_over()
    world.persister.codes.clear()
    world.persister.at_once = False
    world.join()
    assert world.persister.answer() == [("initialize", n) for n in range(3)]
    epoch = world.group._state.current_of("a").epoch
    assert world.settle("a", epoch).assignment == of(world, "t", 0, 1, 2)


def test_a_deletion_that_failed_is_made_again(world: World) -> None:
    empty_group(world)
    world.persister.codes[1] = AWAY
    delete(world)
    world.persister.answer()
    world.persister.codes.clear()
    codes = delete(world)
    assert world.persister.answer() == [("delete", n) for n in range(3)]
    assert codes == [NONE]


def test_a_deletion_that_cannot_ask_leaves_the_group(world: World) -> None:
    empty_group(world)
    persister, world.persister = world.persister, None  # type: ignore[assignment]
    assert delete(world) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert world.failures.count == 1
    world.persister = persister
    assert world.join().code is NONE


def test_a_deletion_that_cannot_be_written_asks_nothing(world: World) -> None:
    empty_group(world)
    world.log.refuses = MOVED
    assert delete(world) == [MOVED]
    assert not world.persister.asked
    world.log.refuses = NONE
    assert world.join().code is NONE


def test_a_deletion_leaves_room_in_the_queue(world: World) -> None:
    world.create(topic_of("t", 1_200))
    empty_group(world)
    codes = delete(world)
    sizes = []
    while world.persister.asked:
        sizes.append(len(world.persister.asked))
        world.persister.answer()
    assert codes == [NONE]
    assert max(sizes) == 500


def test_requests_of_other_protocols_are_refused(world: World) -> None:
    world.join()
    group: Any = world.group
    codes: list[Any] = []
    asked: Any = type("Asked", (), {"member_id": "x"})
    group.join(asked, lambda answer: codes.append((answer.code, answer.member_id)))
    group.sync(asked, lambda answer: codes.append(answer.code))
    group.retire(codes.append)
    group.leave([asked], lambda answer: codes.append(answer.members))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert codes == [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""), unknown, ErrorCode.NON_EMPTY_GROUP, (unknown,),
    ]  # fmt: skip
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert group.admit_commit(asked).code is missing
    assert group.fetch_error(None, -1) is NONE
    assert (group.readers()[0], group.heartbeat("x", None, 1)) == (missing, unknown)
    assert group.listed()[2:] == ("share", "share")
    assert not group.is_empty


def test_a_join_that_fails_leaves_no_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timer would fire for ever: no member is there to end."""
    world.join()

    def fails(group: Any, draft: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(ShareGroup, "_parts", fails)
        assert world.join("b").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group._timers.without(["a", "b"]) == ["b"]
    assert world.join("b").code is NONE
    assert not world.group._timers.without(["a", "b"])
