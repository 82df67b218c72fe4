"""Offsets of a share group: altered, deleted, and gone with the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share_group import group, offset_steps
from kbroker.coordinator.share_group.images import StateTopics, TopicPartitions
from kbroker.coordinator.share_group.messages import AlterAsked, Altered, OffsetsDeleted
from kbroker.errors import ErrorCode
from tests.unit.coordinator.consumer_group.world import topic_of
from tests.unit.coordinator.share_group.world import AWAY, GROUP, NONE, RETRY_MS, World

MOVED = ErrorCode.NOT_COORDINATOR
FENCED = ErrorCode.FENCED_STATE_EPOCH


@pytest.fixture
def world() -> World:
    world = World()
    world.create(topic_of("t", 3), topic_of("u", 1))
    return world


@pytest.fixture
def left(world: World) -> World:
    """Its member has read from all partitions of t, and is gone."""
    world.persister.at_once = True
    world.join()
    world.settle("a", 2)
    world.beat("a", -1)
    world.persister.at_once = False
    return world


def kept(world: World) -> StateTopics:
    return world.group._state.state_topics


def partitions(world: World) -> tuple[dict[str, list[int]], dict[str, list[int]], list[str]]:
    """Initializing, initialized and deleting."""
    found: Any = [
        {some.name: sorted(some.partitions) for some in part.values()} for part in kept(world)[:2]
    ]
    return found[0], found[1], sorted(kept(world).deleting.values())


def alter(world: World, starts: dict[int, int], name: str = "t") -> list[Altered]:
    topic_id = world.id_of(name)
    answers: list[Altered] = []
    topics = {topic_id: TopicPartitions(name, frozenset(starts))} if starts else {}
    keys = {SharePartition(GROUP, topic_id, index): start for index, start in starts.items()}
    world.group.alter(AlterAsked(GROUP, topics, keys), answers.append)
    return answers


def delete(world: World, *names: str) -> list[OffsetsDeleted]:
    answers: list[OffsetsDeleted] = []
    topics = {}
    for name in names:
        topic = world.image.topic(name)
        assert topic is not None
        every = frozenset(range(len(topic.partitions)))
        topics[topic.topic_id] = TopicPartitions(name, every)
    world.group.delete_offsets(topics, answers.append)
    return answers


def remove(world: World) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    world.group.delete(codes.append, unless=lambda: False, gone=lambda: None)
    return codes


def codes_of(answers: Sequence[Altered]) -> dict[int, ErrorCode]:
    (answer,) = answers
    assert not answer.code
    return {key.partition: outcome.code for key, outcome in answer.outcomes.items()}


def started(world: World) -> dict[int, int]:
    return {key.partition: start for key, start in world.persister.starts.items()}


# --- alterations ----------------------------------------------------------------------------------


def test_an_alteration_begins_states_again(left: World) -> None:
    answers = alter(left, {0: 7, 2: 9})
    assert answers == []
    assert partitions(left) == ({"t": [0, 2]}, {"t": [0, 1, 2]}, [])
    asked = [(name, key.partition, epoch) for name, key, epoch, _ in left.persister.asked]
    epoch = left.group._state.epoch
    assert asked == [("initialize", 0, epoch), ("initialize", 2, epoch)]
    left.persister.answer()
    assert codes_of(answers) == {0: NONE, 2: NONE}
    assert started(left) == {0: 7, 1: -1, 2: 9}
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])
    before = left.group._state.values()
    left.fail_over()
    assert left.group._state.values() == before


def test_a_group_with_members_is_not_altered(world: World) -> None:
    world.join()
    (answer,) = alter(world, {0: 7})
    assert answer.code is ErrorCode.NON_EMPTY_GROUP
    assert not answer.outcomes
    assert not kept(world).initialized


def test_a_group_that_is_not_there_is_made(world: World) -> None:
    answers = alter(world, {1: 4})
    world.persister.answer()
    assert codes_of(answers) == {1: NONE}
    assert partitions(world) == ({}, {"t": [1]}, [])
    world.fail_over()
    assert world.group.exists
    # A member has the other partitions from where the group's reset says.
    world.persister.at_once = True
    epoch = world.join().epoch
    assert epoch > 0
    found = world.settle("a", epoch)
    assert found.assignment == {world.id_of("t"): frozenset({0, 1, 2})}
    assert started(world) == {0: -1, 1: 4, 2: -1}


def test_a_group_is_not_made_for_nothing(world: World) -> None:
    assert alter(world, {}) == [Altered()]
    assert not world.group.exists
    assert not world.log.batches


def test_an_alteration_that_fails_changes_nothing(left: World) -> None:
    left.create(topic_of("v", 2))
    answers = alter(left, {0: 7, 1: 8})
    left.persister.answer(p0=FENCED, p1=ErrorCode.NETWORK_EXCEPTION)
    assert codes_of(answers) == {0: FENCED, 1: AWAY}
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])
    answers = alter(left, {0: 7, 1: 8}, "v")
    left.persister.answer(p0=FENCED)
    assert codes_of(answers) == {0: FENCED, 1: NONE}
    assert partitions(left) == ({}, {"t": [0, 1, 2], "v": [1]}, [])


def test_a_member_that_joins_takes_no_start_back(left: World) -> None:
    """An alteration is under way, then the coordinator fails: the states are there all the time."""
    alter(left, {0: 7})
    asked = left.persister.asked
    left.persister.asked = []
    epoch = left.join().epoch
    left.beat("a", epoch)
    left.elapse(RETRY_MS)
    left.beat("a", left.group._state.current_of("a").epoch)
    assert not left.persister.asked
    left.persister.asked = asked
    left.persister.answer()
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])
    left.beat("a", -1)

    alter(left, {0: 8})
    left.persister.asked.clear()
    left.fail_over()
    assert partitions(left)[0] == {"t": [0]}
    epoch = left.join().epoch
    left.settle("a", epoch)
    assert not left.persister.asked
    assert started(left)[0] == 8


def test_a_member_that_joins_a_group_that_is_being_made(world: World) -> None:
    answers = alter(world, {1: 4})
    asked, world.persister.asked = world.persister.asked, []
    world.join()
    assert partitions(world) == ({"t": [0, 1, 2]}, {}, [])
    assert world.persister.answer() == [("initialize", 0), ("initialize", 2)]
    world.persister.asked = asked
    world.persister.answer()
    assert codes_of(answers) == {1: NONE}
    assert partitions(world) == ({}, {"t": [0, 1, 2]}, [])
    assert started(world) == {0: -1, 1: 4, 2: -1}


def test_the_later_alteration_counts(left: World) -> None:
    first, second = alter(left, {0: 7}), alter(left, {0: 9})
    assert left.persister.answer() == left.persister.answer() == [("initialize", 0)]
    assert codes_of(first) == codes_of(second) == {0: NONE}
    assert started(left)[0] == 9
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])


def test_an_alteration_is_in_the_log_before_it_is_done(left: World) -> None:
    left.log.holds = True
    answers = alter(left, {0: 7})
    assert not left.persister.asked
    left.log.release()
    left.persister.answer()
    assert answers == []
    left.log.release()
    assert codes_of(answers) == {0: NONE}


@pytest.mark.parametrize("late", [False, True])
def test_an_alteration_that_the_log_refuses(left: World, late: bool) -> None:
    before = left.group._state.values()
    left.log.refuses = NONE if late else AWAY
    answers = alter(left, {0: 7})
    left.log.refuses = AWAY
    left.persister.answer()
    assert [answer.code for answer in answers] == [AWAY]
    left.log.refuses = NONE
    if not late:
        assert left.group._state.values() == before
    answers = alter(left, {0: 7})
    left.persister.answer()
    assert codes_of(answers) == {0: NONE}
    assert left.group._state.values() == before


def test_a_group_that_moves_while_it_is_altered(left: World) -> None:
    answers = alter(left, {0: 7})
    left.group.unload()
    left.persister.answer()
    assert [answer.code for answer in answers] == [MOVED]


def test_a_group_that_has_moved_asks_nothing_more(left: World) -> None:
    alter(left, {0: 7})
    answers = delete(left, "t")
    left.group.unload()
    assert left.persister.answer() == [("initialize", 0)]
    assert not left.persister.asked
    assert [answer.code for answer in answers] == [MOVED]


def test_a_persister_that_cannot_be_made(left: World) -> None:
    persister, left.persister = left.persister, None  # type: ignore[assignment]
    left.group._persister = lambda: 1 / 0  # type: ignore[assignment, return-value]
    assert codes_of(alter(left, {0: 7})) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert left.failures.count == 1
    left.persister, left.group._persister = persister, left._persister
    answers = alter(left, {0: 7})
    left.persister.answer()
    assert codes_of(answers) == {0: NONE}


def test_a_persister_that_raises_half_way(left: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = left.persister.initialize

    def initialize(key: SharePartition, epoch: int, start: int, done: Any) -> None:
        if key.partition == 1:
            raise MemoryError
        asked(key, epoch, start, done)

    monkeypatch.setattr(left.persister, "initialize", initialize)
    answers = alter(left, {0: 7, 1: 8, 2: 9})
    left.persister.answer()
    assert codes_of(answers) == {0: NONE, 1: ErrorCode.UNKNOWN_SERVER_ERROR, 2: NONE}
    assert left.failures.count == 1
    monkeypatch.setattr(left.persister, "initialize", asked)
    answers = alter(left, {1: 8})
    left.persister.answer()
    assert codes_of(answers) == {1: NONE}


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (offset_steps, group):
        monkeypatch.setattr(module, "UNDER_WAY_MAX", 1)


@pytest.mark.usefixtures("one_by_one")
def test_an_alteration_ends_when_its_client_has_gone(left: World) -> None:
    answers, later = alter(left, {0: 7, 1: 8, 2: 9}), alter(left, {0: 6}, "u")
    left.clock.advance(offset_steps.ASKING_MS_MAX)
    assert left.persister.answer() == [("initialize", 0)]
    assert not left.persister.asked
    assert codes_of(answers) == {0: NONE, 1: AWAY, 2: AWAY}
    assert codes_of(later) == {0: AWAY}
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])


@pytest.mark.usefixtures("one_by_one")
def test_many_requests_that_are_too_late_need_no_stack(left: World) -> None:
    """The last of them would not be answered, nor any request after it."""
    first, later = alter(left, {0: 7}), [alter(left, {1: 8}) for _ in range(400)]
    left.clock.advance(offset_steps.ASKING_MS_MAX)
    left.persister.answer()
    assert codes_of(first) == {0: NONE}
    assert [codes_of(each) for each in later] == [{1: AWAY}] * 400
    assert left.failures.count == 0
    again = alter(left, {1: 8})
    left.persister.answer()
    assert codes_of(again) == {1: NONE}


# --- deletions ------------------------------------------------------------------------------------


def test_offsets_of_a_topic_are_deleted(left: World) -> None:
    answers = delete(left, "t", "u")
    assert partitions(left) == ({}, {}, ["t"])
    assert left.persister.answer() == [("delete", 0), ("delete", 1), ("delete", 2)]
    assert [answer.codes for answer in answers] == [{left.id_of("t"): NONE}]
    assert partitions(left) == ({}, {}, [])
    assert delete(left, "t")[0] == OffsetsDeleted()
    left.fail_over()
    left.persister.at_once = True
    found = left.settle("a", left.join().epoch)
    assert found.assignment == {left.id_of("t"): frozenset({0, 1, 2})}
    assert started(left) == {0: -1, 1: -1, 2: -1}


def test_offsets_of_a_group_with_members_stay(world: World) -> None:
    (answer,) = delete(world, "t")
    assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    world.group = world.new_group()
    world.join()
    (answer,) = delete(world, "t")
    assert answer.code is ErrorCode.NON_EMPTY_GROUP
    assert partitions(world)[2] == []


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_deletion_that_fails_is_made_again(left: World, fails_over: bool) -> None:
    """Also where a coordinator ends half way."""
    answers = delete(left, "t")
    if fails_over:
        left.persister.asked.clear()
        left.fail_over()
    else:
        left.persister.answer(p1=ErrorCode.REQUEST_TIMED_OUT)
        assert [answer.codes for answer in answers] == [{left.id_of("t"): AWAY}]
    assert partitions(left) == ({}, {}, ["t"])
    # A state that may be gone is not taken for one.
    left.create(topic_of("t", 4))
    answers = delete(left, "t")
    assert left.persister.answer() == [("delete", n) for n in range(4)]
    assert answers[0].codes == {left.id_of("t"): NONE}
    assert partitions(left) == ({}, {}, [])


def test_a_member_that_joins_a_group_of_a_failed_deletion_begins_anew(left: World) -> None:
    delete(left, "t")
    left.persister.answer(AWAY)
    left.persister.at_once = True
    found = left.settle("a", left.join().epoch)
    assert found.assignment == {left.id_of("t"): frozenset({0, 1, 2})}
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])
    assert started(left) == {0: -1, 1: -1, 2: -1}


def test_a_member_that_joins_while_offsets_are_deleted(left: World) -> None:
    """Its heartbeat asks for states when the old ones are gone."""
    answers = delete(left, "t")
    left.join()
    assert partitions(left) == ({"t": [0, 1, 2]}, {}, [])
    assert left.persister.answer() == [("delete", n) for n in range(3)]
    left.beat("a", left.group._state.current_of("a").epoch)
    assert left.persister.answer() == [("initialize", n) for n in range(3)]
    assert answers[0].codes == {left.id_of("t"): NONE}
    assert partitions(left) == ({}, {"t": [0, 1, 2]}, [])


def test_a_deletion_ends_an_alteration(left: World) -> None:
    altered = alter(left, {0: 7})
    deleted = delete(left, "t")
    assert left.persister.answer() == [("initialize", 0)]
    assert left.persister.answer() == [("delete", n) for n in range(3)]
    assert codes_of(altered) == {0: NONE}
    assert deleted[0].codes == {left.id_of("t"): NONE}
    assert partitions(left) == ({}, {}, [])


def test_a_deletion_ends_the_beginning_of_states(world: World) -> None:
    """A state that was asked for before it comes after a member has joined again."""
    world.join()
    world.persister.answer(p2=AWAY)
    world.elapse(RETRY_MS)
    world.beat("a", 2)
    world.beat("a", -1)
    delete(world, "t")
    epoch = world.join().epoch
    deletions = [("delete", n) for n in range(3)]
    assert world.persister.answer() == [("initialize", 2), *deletions]
    assert partitions(world) == ({"t": [0, 1, 2]}, {}, [])
    world.beat("a", epoch)
    assert world.persister.answer() == [("initialize", n) for n in range(3)]
    assert partitions(world) == ({}, {"t": [0, 1, 2]}, [])


def test_an_alteration_after_a_deletion_counts(left: World) -> None:
    deleted = delete(left, "t")
    altered = alter(left, {0: 7})
    left.persister.answer()
    assert left.persister.answer() == [("initialize", 0)]
    assert deleted[0].codes == {left.id_of("t"): NONE}
    assert codes_of(altered) == {0: NONE}
    assert partitions(left) == ({}, {"t": [0]}, [])


def test_a_deletion_that_the_log_refuses(left: World) -> None:
    before = left.group._state.values()
    left.log.refuses = AWAY
    answers = delete(left, "t")
    assert [answer.code for answer in answers] == [AWAY]
    assert not left.persister.asked
    assert left.group._state.values() == before


# --- removal of the group -------------------------------------------------------------------------


def test_a_group_whose_states_stay_begins_anew(left: World) -> None:
    codes = remove(left)
    left.persister.answer(p1=ErrorCode.NETWORK_EXCEPTION)
    assert codes == [AWAY]
    assert left.group.exists
    assert partitions(left) == ({}, {}, ["t"])
    left.persister.at_once = True
    found = left.settle("a", left.join().epoch)
    assert found.assignment == {left.id_of("t"): frozenset({0, 1, 2})}


@pytest.mark.usefixtures("one_by_one")
def test_a_group_whose_states_take_too_long_stays(left: World) -> None:
    codes = remove(left)
    left.clock.advance(offset_steps.ASKING_MS_MAX)
    assert left.persister.answer() == [("delete", 0)]
    assert (codes, left.persister.asked) == ([AWAY], [])
    assert partitions(left) == ({}, {}, ["t"])
    codes = remove(left)
    while left.persister.asked:
        left.persister.answer()
    assert codes == [NONE]


def test_all_that_may_have_a_state_goes_with_the_group(left: World) -> None:
    alter(left, {0: 3}, "u")
    left.persister.answer()
    delete(left, "t")
    left.persister.answer(AWAY)
    codes = remove(left)
    asked = sorted((str(key.topic_id), key.partition) for _, key, _, _ in left.persister.asked)
    t, u = str(left.id_of("t")), str(left.id_of("u"))
    assert asked == sorted([(t, 0), (t, 1), (t, 2), (u, 0)])
    left.persister.answer()
    assert codes == [NONE]
    left.fail_over()
    assert not left.group.exists


def test_topics_that_are_gone_keep_no_group(left: World) -> None:
    """The share coordinator removes their states; one that goes meanwhile is no error."""
    left.remove("t")
    assert remove(left) == [NONE]
    assert not left.persister.asked


def test_a_topic_that_goes_meanwhile_keeps_no_group(left: World) -> None:
    codes = remove(left)
    left.persister.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes == [NONE]


def test_a_group_that_is_altered_is_not_removed(left: World) -> None:
    """Its state would stay, or come after the removal."""
    answers = alter(left, {1: 5})
    assert remove(left) == [AWAY]
    left.persister.answer()
    assert codes_of(answers) == {1: NONE}
    codes = remove(left)
    assert left.persister.answer() == [("delete", n) for n in range(3)]
    assert codes == [NONE]


def test_a_group_that_is_removed_is_not_altered(left: World) -> None:
    codes = remove(left)
    (altered,) = alter(left, {1: 5})
    (deleted,) = delete(left, "t")
    assert altered.code is deleted.code is AWAY
    left.persister.answer()
    assert codes == [NONE]


def test_two_deletions_at_once(left: World) -> None:
    first, second = remove(left), remove(left)
    assert second == [AWAY]
    left.persister.answer()
    assert first == [NONE]


def test_a_group_with_nothing_goes_at_once(world: World) -> None:
    world.begin("a", 0, ("none",))
    world.beat("a", -1)
    assert remove(world) == [NONE]
    assert remove(world) == [MOVED]
