"""States of a group's share-partitions begin: what is asked, how often, what is written of it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from kbroker.coordinator.consumer_group import parts
from kbroker.coordinator.consumer_group.drafts import AnyChange
from kbroker.coordinator.share_group import decisions
from kbroker.coordinator.share_group.images import Kind, StateTopics
from kbroker.coordinator.share_group.questions import LOST_MS_MIN, PAUSE_MS, UNDER_WAY_MAX
from kbroker.coordinator.share_group.records import decode_key, record_of
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.share_group.world import AWAY, GROUP, NONE, RETRY_MS, World

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
PAUSE = 1_000


@pytest.fixture
def world() -> World:
    world = World()
    world.create(topic_of("t", 3))
    return world


def state_records(world: World) -> int:
    """How many records of all topics with a state are in the log."""
    return sum(has_topics(batch) for batch in world.log.batches)


def has_topics(records: Any) -> bool:
    kinds = [decode_key(key) for key, _ in records]
    return any(key is not None and key.kind is Kind.STATE_TOPICS for key in kinds)


def begun(world: World) -> int:
    return sum(len(each.partitions) for each in topics_of(world).initialized.values())


def topics_of(world: World) -> StateTopics:
    return world.group._state.state_topics


def test_the_states_of_many_topics_are_one_record() -> None:
    world = World()
    names = [f"t{number:02}" for number in range(40)]
    world.create(*(topic_of(name, 2) for name in names))
    world.join("a", *names)
    assert state_records(world) == 1
    assert len(world.persister.answer()) == 80
    assert state_records(world) == 2
    assert begun(world) == 80
    assert not topics_of(world).initializing


def test_a_group_leaves_room_in_the_queue() -> None:
    world = World()
    world.create(topic_of("t", 2 * UNDER_WAY_MAX + 200))
    world.join()
    sizes = []
    while world.persister.asked:
        sizes.append(len(world.persister.asked))
        world.persister.answer()
    assert sizes == [UNDER_WAY_MAX, UNDER_WAY_MAX, 200]
    assert begun(world) == 2 * UNDER_WAY_MAX + 200
    assert state_records(world) == 2  # it begins, and has come


def test_answers_wait_a_little_for_the_rest(world: World) -> None:
    world.join()
    world.beat("a", 2)
    *first, last = world.persister.take()
    for each in first:
        each.done(NONE)
    world.beat("a", 2)
    assert begun(world) == 0
    world.elapse(PAUSE)
    world.beat("a", 2)
    assert begun(world) == 2
    last.done(NONE)
    assert begun(world) == 3
    assert not world.persister.asked


def test_the_thread_that_answers_writes_nothing(world: World) -> None:
    world.join()
    world.works = False
    before = len(world.log.batches)
    world.persister.answer()
    assert len(world.log.batches) == before
    world.works_later.pop()()
    assert begun(world) == 3
    assert not world.works_later


def test_a_deletion_is_not_written_by_the_thread_that_answers(world: World) -> None:
    world.persister.at_once = True
    world.join()
    world.settle("a", 2)
    world.beat("a", -1)
    world.works = False
    codes: list[ErrorCode] = []
    world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)
    before = len(world.log.batches)
    world.persister.answer()
    assert (codes, len(world.log.batches)) == ([], before)
    world.works_later.pop()()
    assert codes == [NONE]


def test_an_error_costs_a_short_pause(world: World, caplog: Any) -> None:
    world.join()
    world.persister.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert "3 states" in caplog.text
    assert "UNKNOWN_TOPIC_OR_PARTITION" in caplog.text
    world.beat("a", 2)
    assert not world.persister.asked
    world.elapse(PAUSE_MS)
    world.beat("a", 2)
    world.persister.answer(AWAY)
    world.elapse(PAUSE_MS)
    world.beat("a", 2)
    assert not world.persister.asked
    world.elapse(PAUSE_MS)
    world.beat("a", 2)
    assert world.persister.answer() == [("initialize", n) for n in range(3)]
    assert begun(world) == 3


def test_a_question_without_an_answer_is_asked_again(world: World) -> None:
    world.join()
    lost = world.persister.take()
    world.elapse(RETRY_MS - 1)
    world.beat("a", 2)
    assert not world.persister.asked
    world.elapse(1)
    world.beat("a", 2)
    assert world.persister.answer() == [("initialize", n) for n in range(3)]
    epoch = world.settle("a", 2).epoch
    for each in lost:
        each.done(AWAY)
    assert begun(world) == 3
    assert world.beat("a", epoch).code is NONE


def test_an_older_step_asks_for_nothing_that_has_begun(world: World) -> None:
    """Else the state of a share-partition that is read would begin again."""
    world.join()
    world.log.holds = True
    world.group._begins = True
    world.group._see_to_states()  # it waits for the followers, and what it saw gets old
    world.log.holds = False
    world.persister.answer()
    assert begun(world) == 3
    world.log.release()
    assert not world.persister.asked


def test_a_heartbeat_is_answered_though_the_topics_are_too_many(world: World) -> None:
    world.log.refuses_batch = lambda records: TOO_LARGE if has_topics(records) else NONE
    assert world.join().code is NONE
    assert world.beat("a", 2).code is NONE
    assert not world.persister.asked
    world.log.refuses_batch = lambda records: NONE
    world.elapse(PAUSE)
    world.beat("a", 2)
    assert len(world.persister.answer()) == 3


def test_nothing_is_asked_before_the_followers_know(world: World) -> None:
    world.log.holds = True
    answer = world.begin("a", 0, ("t",))
    assert answer.waits
    world.log.release()
    assert answer.got.epoch == 2
    assert not world.persister.asked
    world.log.release()
    assert len(world.persister.asked) == 3


def test_nothing_is_asked_by_a_coordinator_that_has_lost_the_group(world: World) -> None:
    world.log.holds = True
    world.begin("a", 0, ("t",))
    world.log.release()
    world.group.unload()
    world.log.release()
    assert not world.persister.asked


def test_a_deletion_of_states_that_was_not_ended_is_ended(world: World) -> None:
    """As another coordinator has left it."""
    world.create(topic_of("u", 2))
    world.persister.at_once = True
    world.join()
    epoch = world.settle("a", 2).epoch
    kept = topics_of(world)._replace(deleting={world.id_of("u"): "u"})
    change = AnyChange(Kind.STATE_TOPICS, "", kept)
    world.log.batches.append([record_of(GROUP, change)])
    world.fail_over()
    world.beat("a", epoch)
    assert world.persister.answer(AWAY) == [("delete", 0), ("delete", 1)]
    assert topics_of(world).deleting
    world.elapse(PAUSE_MS)
    world.beat("a", epoch)
    assert world.persister.answer() == [("delete", 0), ("delete", 1)]
    assert not topics_of(world).deleting
    assert begun(world) == 3


def test_topics_that_go_are_asked_for_no_more(world: World) -> None:
    world.join()
    world.persister.answer(AWAY)
    world.remove("t")
    world.elapse(PAUSE_MS)
    world.beat("a", 2)
    assert not world.persister.asked
    assert not world.group._questions._pauses


def test_a_state_of_a_group_before_goes_and_another_one_begins(world: World) -> None:
    """Not before the log says that no other broker coordinates this group."""
    world.join()
    world.persister.codes[1] = ErrorCode.FENCED_STATE_EPOCH
    world.log.holds = True
    world.persister.answer()
    assert not world.persister.asked
    world.log.release()
    assert [(each.name, each.key.partition) for each in world.persister.take()] == [
        ("delete", 1), ("initialize", 1),
    ]  # fmt: skip


def test_a_state_that_stays_fenced_is_asked_for_after_a_pause(world: World) -> None:
    world.join()
    for _ in range(2):
        world.persister.answer(ErrorCode.FENCED_STATE_EPOCH)
    assert not world.persister.asked
    world.elapse(PAUSE_MS)
    world.beat("a", 2)
    assert [name for name, _ in world.persister.answer()] == ["delete", "initialize"] * 3
    assert begun(world) == 3
    assert not world.group._questions._fenced


def test_a_group_goes_without_share_coordinators(world: World) -> None:
    world.persister.at_once = True
    world.join()
    world.settle("a", 2)
    world.beat("a", -1)
    world.has_states = False
    codes: list[ErrorCode] = []
    world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)
    assert codes == [NONE]
    assert not world.persister.asked


def test_a_large_draft_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 600)
    world = World()
    world.create(topic_of("t", 300))
    world.persister.at_once = True
    names = [f"m{number}" for number in range(4)]
    for name in names:
        world.join(name)
    for name in names * 2:
        world.settle(name, world.group._state.current_of(name).epoch)
    batches = world.log.batches
    assert max(map(len, batches)) > 1
    assert all(len(batch) == 1 or size_of(batch) <= 800 for batch in batches)
    state = world.group._state.values()
    world.fail_over()
    assert world.group._state.values() == state


def test_of_a_draft_in_parts_a_first_part_may_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create(topic_of("t", 300))
    world.persister.at_once = True
    for name in ("a", "b"):
        world.join(name)
    for name in ("a", "b", "a"):
        world.settle(name, world.group._state.current_of(name).epoch)
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    seen: list[int] = []

    def refuses(records: Any) -> ErrorCode:
        seen.append(1)
        return TOO_LARGE if len(seen) == 2 else NONE

    world.log.refuses_batch = refuses
    assert world.join("c").code is TOO_LARGE
    state = world.group._state.values()
    world.fail_over()
    assert world.group._state.values() == state
    assert world.join("c").code is NONE


def size_of(batch: Any) -> int:
    return sum(len(key) + len(value or b"") for key, value in batch)


def test_an_older_step_does_not_ask_after_a_later_one(world: World) -> None:
    """Else what the later one has asked would count as not wanted, and its answer for nothing."""
    world.join()
    world.persister.answer()
    epoch = world.settle("a", 2).epoch
    world.log.holds = True
    world.group._begins = True
    world.group._see_to_states()
    held, world.log.held = world.log.held, []
    world.create(topic_of("t", 5))
    world.log.holds = False
    world.beat("a", epoch)
    assert len(world.persister.asked) == 2
    world.log.held = held
    world.log.release()
    world.persister.answer()
    assert begun(world) == 5


def test_topics_beyond_one_record_wait_with_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(decisions, "BATCH_BYTES_MAX", 100)
    world.create(topic_of("u", 3))
    assert world.join("a", "t", "u").code is NONE
    assert len(world.persister.answer()) == 3
    assert "1 topics of group g get no state" in caplog.text


def test_no_question_comes_after_those_of_a_deletion(world: World) -> None:
    """Else a state would stay, and a later group of this id would be fenced by it."""
    world.log.holds = True
    world.begin("a", 0, ("t",))
    world.log.release()
    world.log.holds = False
    codes: list[ErrorCode] = []

    def goes() -> None:
        world.begin("a", -1)
        world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)

    world.persister.on_first = goes
    world.log.release()
    names = [each.name for each in world.persister.take()]
    assert names == ["initialize"] * 3 + ["delete"] * 3


def test_a_question_is_not_asked_twice_while_it_may_be_answered(world: World) -> None:
    """Whatever `group.share.initialize.retry.interval.ms` says."""
    world.retry_ms = 10
    world.join()
    world.persister.take()
    world.elapse(LOST_MS_MIN - 1)
    world.beat("a", 2)
    assert not world.persister.asked
    world.elapse(1)
    world.beat("a", 2)
    assert len(world.persister.asked) == 3


def test_the_same_subscription_again_begins_no_states(world: World) -> None:
    epoch = world.join("a").epoch
    world.persister.answer()
    epoch = world.settle("a", epoch).epoch
    with mock.patch.object(decisions, "begin_states", wraps=decisions.begin_states) as begins:
        assert not world.begin("a", epoch, ("t",)).got.code
        assert not begins.called
        world.create(topic_of("u", 1))
        assert not world.begin("a", epoch, ("t", "u")).got.code
        assert begins.called
