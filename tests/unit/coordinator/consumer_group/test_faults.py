"""Faults around a consumer group: what is refused, lost or late is made good, and none waits for
ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from kbroker.coordinator.consumer_group import parts
from kbroker.coordinator.consumer_group.beside import Beside
from kbroker.coordinator.consumer_group.group import ConsumerGroup
from kbroker.coordinator.consumer_group.images import (
    Change,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    TargetEpoch,
)
from kbroker.coordinator.consumer_group.records import record_of
from kbroker.coordinator.consumer_group.states import ConsumerGroupState, MemberState
from kbroker.coordinator.group.machine import GroupReplay
from kbroker.coordinator.group.messages import LeaveAnswer, Leaver
from kbroker.coordinator.runtime._shard_table import LoadedRecord
from kbroker.coordinator.txn.machine import TransactionReplay
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Answer,
    World,
    replay,
    topic_of,
)

NONE = ErrorCode.NONE
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE
T = topic_of("t", 4).topic_id


@pytest.fixture
def world() -> World:
    made = World()
    made.create(topic_of("t", 4))
    return made


def indexes(*some: int) -> dict[UUID, frozenset[int]]:
    return {T: frozenset(some)}


# --- what is done beside comes back to a group that is being removed ---


def refused_deletion(world: World, meanwhile: Callable[[], None]) -> None:
    """The empty group is to be deleted; in the end it stays."""
    codes: list[ErrorCode] = []

    def used() -> bool:
        meanwhile()
        return True

    world.group.delete(codes.append, unless=used, gone=lambda: None)
    assert codes == [ErrorCode.NON_EMPTY_GROUP]


def test_an_assignment_that_ends_during_a_deletion(world: World) -> None:
    world.create(topic_of("t", 3_000))
    world.join("a")
    world.beat("a", -1)
    refused_deletion(world, world.work_beside)
    world.join("b")
    world.work_beside()
    assert world.group._state.assignment_epoch == world.group._state.epoch


def test_a_look_that_ends_during_a_deletion(world: World) -> None:
    world.join("a", topics=(), pattern="t")
    world.beat("a", -1)
    refused_deletion(world, world.work_beside)
    joined = world.join("b", topics=(), pattern="t")
    world.work_beside()
    assert world.beat("b", joined.epoch).assignment == indexes(0, 1, 2, 3)


def leaving_refused(world: World, meanwhile: Callable[[], None]) -> None:
    """The last member leaves, which cannot be written; the log is well again after it."""
    write = world.log.write_records

    def refuse(*how: Any) -> None:
        world.log.write_records = write  # type: ignore[method-assign]
        meanwhile()
        world.log.refuses = REFUSED
        write(*how)
        world.log.refuses = NONE

    world.log.write_records = refuse  # type: ignore[method-assign, assignment]
    assert world.beat("a", -1).code is REFUSED


@pytest.mark.parametrize("how", ["deleted", "retired"])
def test_a_group_is_not_removed_whose_last_member_is_there_again(world: World, how: str) -> None:
    world.join("a")
    codes: list[ErrorCode] = []

    def remove() -> None:
        if how == "retired":
            world.group.retire(codes.append)
        else:
            world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)

    leaving_refused(world, remove)
    assert codes == [ErrorCode.NON_EMPTY_GROUP]
    assert world.replayed().values() == world.group._state.values()
    assert world.beat("a", 2).code is NONE


# --- the thread beside ---


def test_a_thread_that_cannot_start_is_started_by_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside = Beside()
    started: list[bool] = []

    def start() -> None:
        started.append(True)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(beside.thread, "start", start)
    assert not beside.submit(lambda: None)
    assert beside.thread.failures.count == 1
    assert beside.submit(lambda: None)
    assert beside.submit(lambda: None)
    assert len(started) == 2


# --- patterns ---


def test_a_pattern_that_is_none_leaves_the_others_their_topics(world: World) -> None:
    """The log may have it of a coordinator with another syntax."""
    world.join("a", topics=(), pattern="t")
    world.join("b", topics=(), pattern="(?!x)t")
    world.jobs.clear()
    world.fail_over()
    world.beat("a", 1)
    world.work_beside()
    assert world.group._state.patterns["t"].topics == ("t",)
    assert world.group._state.patterns["(?!x)t"].topics == ()
    assert world.failures.count == 0


def test_a_new_pattern_is_looked_for_alone(world: World) -> None:
    """So a group costs as many matches as it has patterns, and a client that may know less than
    the others takes no topics from them."""
    world.join("a", topics=(), pattern="t")
    world.work_beside()
    world.create(topic_of("tx", 1))
    world.join("b", topics=(), pattern="t.*", hidden=lambda names: frozenset({"t"}))
    world.work_beside()
    found = world.group._state.patterns
    assert (found["t"].topics, found["t.*"].topics) == (("t",), ("tx",))
    assert not world.group._state.unresolved


def test_other_groups_have_their_turn_between_two_patterns(world: World) -> None:
    for number in range(3):
        world.join(f"m{number}", topics=(), pattern=f"t{number}?")
    world.work_beside()
    world.fail_over()
    world.beat("m0", 1)
    for left in (1, 1, 0):
        assert len(world.jobs) == 1
        world.jobs.pop()()
        assert len(world.jobs) == left


def test_topics_of_a_pattern_that_could_not_be_written_are_looked_for_again(world: World) -> None:
    world.join("a", topics=(), pattern="t.*")
    world.work_beside()
    epoch = world.beat("a", 1).epoch
    world.create(topic_of("tx", 1))
    world.pass_ms(10_000)
    world.beat("a", epoch)
    world.log.refuses = REFUSED
    world.work_beside()
    world.log.refuses = NONE
    assert world.group._state.patterns["t.*"].topics == ("t",)
    world.beat("a", epoch)
    assert not world.jobs  # not at once
    world.pass_ms(1_000)
    world.beat("a", epoch)
    world.work_beside()
    assert world.group._state.patterns["t.*"].topics == ("t", "tx")


def test_an_answer_after_a_change_that_was_taken_back(world: World) -> None:
    world.join("a")
    write = world.log.write_records
    later: list[Answer] = []

    def refuse(*how: Any) -> None:
        world.log.write_records = write  # type: ignore[method-assign]
        later.append(world.ask("b", 3))  # changes nothing
        assert later[0].waits
        world.log.refuses = REFUSED
        write(*how)
        world.log.refuses = NONE

    world.log.write_records = refuse  # type: ignore[method-assign, assignment]
    assert world.join("b").code is REFUSED
    assert later[0].got.code is REFUSED
    assert world.beat("b", 3).code is ErrorCode.UNKNOWN_MEMBER_ID


# --- steps that fail ---


def test_a_change_of_topics_is_seen_again_after_a_step_that_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join("a")
    world.create(topic_of("t", 5))
    with monkeypatch.context() as patched:
        patched.setattr(world.group, "_looks", None)
        assert world.beat("a", 2).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.beat("a", 2).assignment == indexes(0, 1, 2, 3, 4)


def test_the_end_of_a_session_that_failed_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join("a")
    with monkeypatch.context() as patched:
        patched.setattr(world.group._around.topics, "seen", None)
        world.pass_ms(SESSION_MS + 100)
    assert world.failures.count == 1
    assert world.group.member_count == 1
    assert world.departures.of(GROUP) == ()
    world.pass_ms(1_100)
    assert world.group.is_empty
    assert not len(world.timer)


def test_the_end_of_the_time_to_give_up_that_failed_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(session_timeout_ms=2 * REBALANCE_MS)
    world.create(topic_of("t", 4))
    world.join("a")
    world.join("b")
    world.beat("a", 2)
    with monkeypatch.context() as patched:
        patched.setattr(world.group._around.topics, "seen", None)
        world.pass_ms(REBALANCE_MS + 100)
    assert world.failures.count == 1
    assert set(world.group._state.members) == {"a", "b"}
    world.pass_ms(1_000)
    assert set(world.group._state.members) == {"b"}


# --- members ---


def test_an_operator_removes_many_members_in_one_epoch(world: World) -> None:
    for number in range(4):
        world.join(f"m{number}")
    answers: list[LeaveAnswer] = []
    epoch = world.group._state.epoch
    world.group.leave([Leaver(f"m{number}") for number in range(3)], answers.append)
    assert answers == [LeaveAnswer(NONE, (NONE, NONE, NONE))]
    assert world.group._state.epoch == epoch + 1


def test_a_static_member_that_leaves_while_it_gives_up_has_its_session(world: World) -> None:
    world.join("a", instance_id="i", rebalance_timeout_ms=6_000)
    world.join("b")
    assert world.beat("a", 2, instance_id="i").assignment == indexes(0, 1)
    assert world.group._state.current_of("a").state is MemberState.UNREVOKED
    world.beat("a", -2, instance_id="i")
    world.beat("b", 3)
    world.pass_ms(10_000)
    assert world.group.member_count == 2
    assert world.join("c", instance_id="i").code is NONE


# --- the log ---


def member_image(*topics: str) -> MemberImage:
    return MemberImage(None, None, "client", "/127.0.0.1", topics, "", REBALANCE_MS, None)


def test_partitions_of_a_member_without_a_record_are_free(world: World) -> None:
    """Its record could not be read."""
    current = CurrentImage(2, 1, MemberState.STABLE, {T: dict.fromkeys(range(4), 2)})
    changes = [
        Change(Kind.GROUP, "", GroupImage(2, world.topics.seen().hash_of(["t"]))),
        Change(Kind.MEMBER, "a", member_image("t")),
        Change(Kind.TARGET, "lost", indexes(0, 1, 2, 3)),
        Change(Kind.TARGET_EPOCH, "", TargetEpoch(2, 0)),
        Change(Kind.CURRENT, "lost", current),
    ]
    world.log.batches.append([record_of(GROUP, change) for change in changes])
    world.fail_over()
    assert world.beat("a", 0, topics=("t",), owned={}, rebalance_timeout_ms=1).code is NONE
    world.join("b")
    world.beat("a", 2, owned={})
    world.beat("b", 3, owned={})
    assert world.group.state is ConsumerGroupState.STABLE


# --- large drafts ---


PART_BYTES = 700


def many(world: World, members: int) -> None:
    world.create(topic_of("t", 300))
    for number in range(members):
        world.join(f"m{number:03}")


def test_a_large_target_is_written_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 30)
    monkeypatch.setattr(parts, "PART_BYTES", PART_BYTES)
    before = len(world.log.batches)
    assert world.join("new").epoch == 32
    made = world.log.batches[before:]
    assert len(made) > 3
    for some in made:
        assert sum(len(key) + len(value or b"") for key, value in some) < PART_BYTES
    state = world.group._state
    assert world.replayed().values() == state.values()
    for end in range(before + 1, len(world.log.batches)):
        prefix = replay(world.log.batches[:end])[GROUP]
        finds_another = prefix.epoch > prefix.assignment_epoch
        assert finds_another or prefix.targets == state.targets


def test_few_large_changes_are_written_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one member with many partitions: together they may be larger than a batch may be."""
    monkeypatch.setattr(parts, "PART_BYTES", PART_BYTES)
    world.create(topic_of("t", 300))
    before = len(world.log.batches)
    world.join("a")
    made = [sum(len(key) + len(value or b"") for key, value in each) for each in world.log.batches]
    assert sum(made[before:]) > PART_BYTES and len(made[before:]) > 1
    assert world.replayed().values() == world.group._state.values()


@pytest.mark.parametrize("written", [0, 1, 3])
def test_parts_that_are_refused_are_taken_back_and_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    many(world, 30)
    monkeypatch.setattr(parts, "PART_BYTES", PART_BYTES)
    before = len(world.log.batches)

    def appended(records: Sequence[object]) -> None:
        if len(world.log.batches) == before + written:
            world.log.refuses = REFUSED

    world.log.on_append = appended
    if not written:
        world.log.refuses = REFUSED
    assert world.join("new").code is REFUSED
    assert len(world.log.batches) == before + written
    assert world.replayed().values() == world.group._state.values()
    world.log.on_append = lambda records: None
    world.log.refuses = NONE
    assert world.join("new").code is NONE
    state = world.group._state
    assert world.replayed().values() == state.values()
    assert state.assignment_epoch == state.epoch
    assert sum(len(target.get(T, ())) for target in state.targets.values()) == 300


def test_many_removals_have_the_epoch_in_their_first_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(world, 30)
    monkeypatch.setattr(parts, "PART_BYTES", PART_BYTES)
    before, epoch = len(world.log.batches), world.group._state.epoch
    answers: list[LeaveAnswer] = []
    world.group.leave([Leaver(f"m{number:03}") for number in range(20)], answers.append)
    assert answers == [LeaveAnswer(NONE, (NONE,) * 20)]
    assert len(world.log.batches) > before + 1
    assert replay(world.log.batches[: before + 1])[GROUP].epoch == epoch + 1
    assert world.replayed().values() == world.group._state.values()


def test_a_record_without_a_key_costs_no_partition() -> None:
    """Only a log from elsewhere has one: a broker refuses it for a topic that is compacted."""
    record = LoadedRecord(7, 0, None, b"value")
    nothing: Any = None
    GroupReplay(nothing, nothing, 0).record(record)
    TransactionReplay(nothing).record(record)


def test_a_join_that_fails_leaves_no_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.join("a")

    def fails(group: Any, draft: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(ConsumerGroup, "_parts", fails)
        assert world.join("b").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.group._timers.without(["a", "b"]) == ["b"]
