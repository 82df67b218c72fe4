"""The share coordinator: checks in their order, rounds, refusals, terms, and its own tasks."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any
from unittest import mock

import pytest

from kbroker import limits
from kbroker.coordinator.share import coordinator as module
from kbroker.coordinator.share.images import NO_COUNT, NO_EPOCH, NO_START
from kbroker.coordinator.share.records import (
    SNAPSHOT,
    UPDATE,
    Snapshot,
    Update,
    decode_key,
    decode_value,
)
from kbroker.coordinator.share.requests import Delete, Initialize, Read, Summarize, Write
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.coordinator.share.state import ShareState
from kbroker.errors import ErrorCode
from tests.unit.coordinator.share.world import (
    KEY,
    NONE,
    OTHER_TOPIC,
    TOPIC,
    MemoryLog,
    World,
    batch,
    key_of,
)

INVALID = ErrorCode.INVALID_REQUEST
FENCED_LEADER = ErrorCode.FENCED_LEADER_EPOCH
FENCED_STATE = ErrorCode.FENCED_STATE_EPOCH
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UPDATES_KEY = module.UPDATES_MAX_KEY


def write(leader_epoch: int = 0, start: int = 0, *batches: Any, **how: Any) -> Write:
    key = how.pop("key", KEY)
    return Write(key, how.pop("state_epoch", 5), leader_epoch, start, batches, **how)


@pytest.fixture
def world() -> World:
    world = World()
    world.done(Initialize(KEY, 5, NO_START))
    return world


def values(world: World) -> list[Any]:
    found = []
    for key, value in world.log.records:
        kind = decode_key(key).kind
        found.append(None if value is None else decode_value(kind, value))
    return found


# --- requests -------------------------------------------------------------------------------------


def test_a_state_begins_is_written_read_and_ends(world: World) -> None:
    now = world.clock.wall_ms()
    assert values(world) == [Snapshot(0, 5, 0, NO_START, NO_COUNT, now, now, ())]
    assert world.read() == ReadState(state_epoch=5, start_offset=NO_START)
    world.done(write(0, 10, batch(10, 14), batch(16, 16, 0, 2), delivery_complete_count=5))
    assert values(world)[-1] == Update(0, 0, 10, 5, (batch(10, 14), batch(16, 16, 0, 2)))
    assert world.read() == ReadState(
        state_epoch=5, start_offset=10, batches=(batch(10, 14), batch(16, 16, 0, 2))
    )
    assert world.ask(Summarize(KEY, NO_EPOCH)) == Summary(
        state_epoch=5, leader_epoch=0, start_offset=10, delivery_complete_count=5
    )
    world.done(write(0, 15))
    assert world.read().batches == (batch(16, 16, 0, 2),)
    world.done(Delete(KEY))
    assert values(world)[-1] is None
    assert world.ask(Read(KEY, 1)).code is INVALID
    world.done(Delete(KEY))
    assert len(world.log.records) == 4


def test_a_read_fences_the_leaders_before_once(world: World) -> None:
    world.done(write(3, 7, delivery_complete_count=2))  # which has not read, and fences none
    before = len(world.log.records)
    assert world.read(leader_epoch=0).code is NONE
    assert len(world.log.records) == before
    for _ in range(2):
        assert world.read(leader_epoch=4).code is NONE
        assert values(world)[before:] == [Update(0, 4, 7, 2, ())]
    assert world.ask(write(3)).code is FENCED_LEADER
    assert world.ask(Read(KEY, 3)).code is world.ask(Read(KEY, NO_EPOCH)).code is FENCED_LEADER
    restarted = World(world.log)
    restarted.load()
    assert restarted.ask(write(3)).code is FENCED_LEADER
    restarted.done(write(4))


def test_a_summary_fences_no_leader_and_is_for_any(world: World) -> None:
    world.read(leader_epoch=3)
    for leader_epoch in (2, 9, NO_EPOCH):
        assert world.ask(Summarize(KEY, leader_epoch)).code is NONE
    world.done(write(3))


# By name, in the order of the checks: each request has this mistake and those after it.
MISTAKES = (
    ("partition", INVALID),
    ("no state", INVALID),
    ("leader epoch", FENCED_LEADER),
    ("state epoch", FENCED_STATE),
    ("topic", UNKNOWN_TOPIC),
)


@pytest.mark.parametrize("first", range(len(MISTAKES)))
def test_writes_are_checked_in_order(first: int) -> None:
    world = World()
    made = {name for name, _ in MISTAKES[first:]}
    key = KEY
    if "partition" in made:
        key = KEY._replace(partition=-1)
    if "no state" not in made:
        world.done(Initialize(key, 5, 0))
        world.read(key, 7)
    if "topic" in made:
        world.topics.clear()
    asked = write(
        6 if "leader epoch" in made else 7, 0,
        key=key, state_epoch=4 if "state epoch" in made else 5,
    )  # fmt: skip
    before = len(world.log.records)
    answer = world.ask(asked)
    assert (answer.code, bool(answer.message)) == (MISTAKES[first][1], True)
    assert len(world.log.records) == before


@pytest.mark.parametrize(
    "asked",
    [
        write(1, -2),
        write(1, 0, batch(5, 4)),
        write(1, 0, batch(0, 1, 1)),
        write(1, 0, batch(0, 1, 0, -1)),
        Initialize(KEY, 6, -2),
    ],
)
def test_values_that_make_no_sense_are_refused(world: World, asked: Any) -> None:
    assert world.ask(asked).code is INVALID
    assert len(world.log.records) == 1


def test_a_state_that_is_initialised_again_begins_again(world: World) -> None:
    world.read(leader_epoch=2)
    world.done(write(2, 10, batch(10, 12)))
    assert world.ask(Initialize(KEY, 4, 0)).code is FENCED_STATE
    world.done(Initialize(KEY, 6, 3))
    assert world.read(leader_epoch=2) == ReadState(state_epoch=6, start_offset=3)
    assert world.ask(write(2, 11)).code is FENCED_STATE
    world.done(write(2, 11, state_epoch=6))
    assert [each.snapshot_epoch for each in values(world)] == [0, 0, 0, 1, 1, 1]
    assert [each.leader_epoch for each in values(world)] == [0, 2, 2, 0, 2, 2]


def test_a_group_that_asks_for_a_state_twice_does_not_begin_it_again(world: World) -> None:
    """Its first request may come after a leader's writes: they would be lost."""
    world.read(leader_epoch=2)
    world.done(write(2, 10, batch(10, 12)))
    before = world.read(leader_epoch=2)
    world.done(Initialize(KEY, 5, NO_START))
    assert world.read(leader_epoch=2) == before
    assert len(world.log.records) == 3
    assert world.ask(Read(KEY, 1)).code is FENCED_LEADER
    world.done(Initialize(KEY, 5, 4))  # an operator's start
    assert world.read(leader_epoch=2) == ReadState(state_epoch=5, start_offset=4)


def test_a_write_that_comes_late_takes_nothing_back(world: World) -> None:
    """Its writer has had no answer, and has made it again, and a later one."""
    world.read(leader_epoch=2)
    first, second = (write(2, start, run=7, number=n) for n, start in ((1, 10), (2, 15)))
    for asked in (first, first, second):
        world.done(asked)
    count = len(world.log.records)
    world.done(first)
    assert world.read(leader_epoch=2).start_offset == 15
    assert len(world.log.records) == count
    world.done(write(2, 12, run=8, number=1))  # the leader has started again, in the same epoch
    assert world.read(leader_epoch=2).start_offset == 12
    world.done(write(2, 11))  # of another kind of broker
    assert world.read(leader_epoch=2).start_offset == 11


def test_after_enough_updates_comes_a_snapshot(world: World) -> None:
    world.settings[UPDATES_KEY] = 3
    for start in range(8):
        world.done(write(1, start, batch(start, start + 4)))
    kinds = [decode_key(key).kind for key, _ in world.log.records]
    assert kinds == [SNAPSHOT] + 2 * ([UPDATE] * 3 + [SNAPSHOT])
    assert [value.snapshot_epoch for value in values(world)] == [0] * 4 + [1] * 4 + [2]
    restarted = World(world.log)
    restarted.load()
    assert restarted.read() == world.read() == ReadState(
        state_epoch=5, start_offset=7, batches=(batch(7, 11),)
    )  # fmt: skip


def test_without_a_topic_there_is_no_coordinator() -> None:
    world = World()
    world.log.has_topic = False
    assert world.ask(Read(KEY, 0)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- rounds ---------------------------------------------------------------------------------------


def test_requests_that_wait_are_one_batch(world: World) -> None:
    world.at_once = False
    answers = [world.begin(Initialize(key_of(n), 5, n)) for n in range(1, 6)]
    assert answers == [[]] * 5
    world.work()
    assert answers == [[Outcome()]] * 5
    assert [len(each) for each in world.log.batches] == [1, 5]


def test_requests_for_one_state_are_done_in_their_order(world: World) -> None:
    world.at_once = False
    answers = [world.begin(write(1, start)) for start in range(3)]
    fenced = world.begin(write(1, 0, state_epoch=4))
    read = world.begin(Read(KEY, 0))
    world.work()
    assert answers == [[Outcome()]] * 3
    assert fenced[0].code is FENCED_STATE
    assert read[0].start_offset == 2
    assert len(world.log.batches) == 4


def test_a_large_record_leaves_the_rest_to_the_next_round(world: World) -> None:
    world.at_once = False
    large = [batch(2 * n, 2 * n) for n in range(15_000)]  # of 20 bytes each
    answers = [world.begin(Initialize(key_of(n), 5, 0)) for n in range(1, 4)]
    world.work()
    answers += [world.begin(write(1, 0, *large, key=key_of(n))) for n in range(1, 4)]
    world.work()
    assert answers == [[Outcome()]] * 6
    assert [len(each) for each in world.log.batches] == [1, 3, 1, 1, 1]


def test_an_answer_waits_for_the_followers(world: World) -> None:
    world.log.holds = True
    written, read = world.begin(write(1, 4)), world.begin(Read(KEY, 0))
    refused = world.begin(write(1, 4, state_epoch=4))
    assert written == read == refused == []
    world.log.release()
    assert (written[0].code, read[0].start_offset, refused[0].code) == (NONE, 4, FENCED_STATE)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_followers_that_are_too_slow_are_an_error(world: World, code: ErrorCode) -> None:
    world.log.holds = True
    written, read = world.begin(write(1, 4)), world.begin(Read(KEY, 0))
    world.log.release(code)
    assert (written[0].code, read[0].code) == (code, code)
    assert world.coordinator.counts.unwritten == 1


def test_a_write_that_the_log_refuses_changes_nothing(world: World) -> None:
    before = world.read()
    world.log.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.ask(write(1, 4)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.ask(Delete(KEY)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.refuses = NONE
    assert world.read() == before
    world.done(write(1, 4))


def test_a_log_that_raises_is_an_error(world: World) -> None:
    with mock.patch.object(MemoryLog, "append", side_effect=OSError("a disk")):
        assert world.ask(write(1, 4)).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.failures.count == 1
    world.done(write(1, 4))


def test_a_worker_that_cannot_begin_is_an_error(world: World) -> None:
    with mock.patch.object(world, "jobs", None):
        assert world.ask(write(1, 4)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.done(write(1, 4))


def test_a_round_that_cannot_begin_is_followed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no memory for it."""
    world = World(at_once=False)
    original = module._take

    def fail(waiting: deque[Any], taken: list[Any]) -> None:
        if not world.failures.count:
            original(waiting, taken)
            raise MemoryError
        original(waiting, taken)

    monkeypatch.setattr(module, "_take", fail)
    first, second = world.begin(Initialize(KEY, 1, 5)), world.begin(Initialize(KEY, 1, 5))
    world.work()
    assert [each.code for each in first] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert second == [Outcome()]
    after = world.begin(Initialize(KEY, 2, 5))
    world.work()
    assert after == [Outcome()]


def test_a_record_that_cannot_be_made_leaves_the_others(world: World) -> None:
    """U+FFFD is read for a byte that is not UTF-8, and takes three."""
    world.at_once = False
    group = world.begin(Initialize(KEY._replace(group_id="\ufffd" * 11_000), 0, 0))
    with mock.patch.object(module, "record_of", side_effect=[ValueError, (b"k", b"v")]):
        broken, other = world.begin(write(1, 4)), world.begin(Initialize(key_of(1), 0, 0))
        world.work()
    assert [group[0].code, broken[0].code] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert other == [Outcome()]


def test_a_state_has_so_many_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.coordinator.share.decisions.STATE_BATCHES_MAX", 3)
    world.done(write(1, 0, batch(0, 0), batch(2, 2)))
    assert world.ask(write(1, 0, batch(4, 4), batch(6, 6))).code is INVALID
    world.done(write(1, 0, batch(4, 4)))


def test_records_that_are_done_with_are_joined_before_a_state_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their delivery counts: their leader has one range of them."""
    monkeypatch.setattr("kbroker.coordinator.share.decisions.STATE_BATCHES_MAX", 3)
    for offset in range(1, 20):
        world.done(write(1, 0, batch(offset, offset, count=1 + offset % 2)))
    assert world.ask(write(1, 0, batch(30, 30), batch(32, 32), batch(34, 34))).code is INVALID


def test_a_callback_that_raises_leaves_the_others(world: World) -> None:
    world.at_once = False
    world.coordinator.ask(write(1, 4), mock.Mock(side_effect=ValueError))
    other = world.begin(Initialize(key_of(1), 0, 0))
    world.work()
    assert other == [Outcome()]
    assert world.failures.count == 1


def test_the_queue_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    world.at_once = False
    answers = [world.begin(write(1, 4)) for _ in range(3)]
    assert [each.is_full for each in answers[2]] == [True]
    assert answers[2][0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.work()
    assert answers[:2] == [[Outcome()]] * 2


def test_summaries_leave_room_for_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    world.at_once = False
    answers = [world.begin(Summarize(KEY, 0)) for _ in range(2)]
    assert [each.is_full for each in answers[1]] == [True]
    assert world.begin(write(1, 4)) == []


# --- leadership -----------------------------------------------------------------------------------


def test_a_request_that_waits_while_the_partition_is_lost_is_not_written(world: World) -> None:
    world.at_once = False
    waiting = world.begin(write(1, 4))
    world.log.term += 1
    world.coordinator.unload([0])
    world.work()
    assert waiting[0].code is ErrorCode.NOT_COORDINATOR
    assert len(world.log.records) == 1


def test_while_it_loads_clients_come_again(world: World) -> None:
    world.log.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.ask(Read(KEY, 0)).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_later_term_knows_nothing_of_the_one_before(world: World) -> None:
    """Its log was empty, so nothing was loaded."""
    world.log.term += 2
    assert world.ask(Read(KEY, 0)).code is INVALID


def test_a_request_of_an_earlier_look_leaves_the_loaded_states(world: World) -> None:
    """It was held up between its look at the term and its place in the queue."""
    term = world.log.term
    world.log.term += 2
    world.load()
    terms = [term, *itertools.repeat(term + 2, 9)]
    with mock.patch.object(MemoryLog, "term_of", side_effect=terms):
        assert world.read().code is NONE


# --- tasks ----------------------------------------------------------------------------------------


def run(steps: Any) -> None:
    for _ in steps:
        pass


def test_topics_that_are_deleted_take_their_states(world: World) -> None:
    other = KEY._replace(topic_id=OTHER_TOPIC)
    world.done(Initialize(other, 1, 0))
    world.topics.discard(TOPIC)
    world.coordinator.forget_topic(TOPIC)
    assert world.coordinator.state_count() == 1
    assert world.read(other).code is NONE
    world.topics.clear()
    world.coordinator.forget_others(0)
    assert world.coordinator.state_count(0) == 0
    assert values(world)[-2:] == [None, None]


def test_the_log_is_pruned_up_to_the_oldest_snapshot(world: World) -> None:
    world.settings[UPDATES_KEY] = 2
    for start in range(6):
        world.done(write(1, start))
    run(world.coordinator.prune())
    assert world.log.begin == 6  # where the last snapshot is
    restarted = World(world.log)
    restarted.load()
    assert restarted.read() == world.read()
    world.done(Delete(KEY))
    run(world.coordinator.prune())
    assert world.log.begin == len(world.log.records)


def test_a_record_that_is_being_written_is_not_pruned(world: World) -> None:
    world.done(Delete(KEY))
    world.at_once = False
    begun = world.begin(Initialize(KEY, 7, 0))
    run(world.coordinator.prune())
    assert world.log.begin == 0  # the round has not begun, and may be at any offset
    with mock.patch.object(world.log, "append", wraps=world.log.append) as append:
        append.side_effect = lambda *of: run(world.coordinator.prune()) or mock.DEFAULT
        world.work()
    assert world.log.begin == 2
    assert begun == [Outcome()]
    restarted = World(world.log)
    restarted.load()
    assert restarted.read().code is NONE


def test_a_tombstone_that_was_refused_is_written_later(world: World) -> None:
    world.topics.discard(TOPIC)
    world.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.forget_topic(TOPIC)
    world.log.refuses = NONE
    assert world.coordinator.state_count() == 1
    run(world.coordinator.renew_cold())
    assert world.coordinator.state_count() == 1  # it may be the image that is late
    world.clock.advance(400_000)
    run(world.coordinator.renew_cold())
    assert world.coordinator.state_count() == 0
    assert values(world)[-1] is None


def test_a_cold_state_is_written_again_so_that_the_log_may_go(world: World) -> None:
    world.done(Initialize(key_of(1), 5, 9))
    world.clock.advance(200_000)
    for start in range(3):
        world.done(write(1, start))
    run(world.coordinator.renew_cold())
    assert len(world.log.records) == 5  # none of them is old enough
    world.clock.advance(100_000)
    before = world.read(key_of(1))
    run(world.coordinator.renew_cold())
    assert len(world.log.records) == 7
    assert {decode_key(key).kind for key, _ in world.log.records[-2:]} == {SNAPSHOT}
    run(world.coordinator.prune())
    assert world.log.begin == 5
    assert world.read(key_of(1)) == before
    world.clock.advance(900_000)
    run(world.coordinator.renew_cold())
    assert len(world.log.records) == 7  # each record is a snapshot that is needed


def test_a_state_that_was_written_meanwhile_is_not_cold(world: World) -> None:
    world.done(write(1, 0))
    world.clock.advance(400_000)
    world.at_once = False
    world.settings[UPDATES_KEY] = 0
    world.begin(write(1, 3))
    run(world.coordinator.renew_cold())
    world.work()
    assert [decode_key(key).kind for key, _ in world.log.records] == [SNAPSHOT, UPDATE, SNAPSHOT]


def test_replaced_records_go_when_the_followers_have_the_snapshot(world: World) -> None:
    world.settings[UPDATES_KEY] = 0
    world.log.high_watermark = 1
    world.done(write(1, 3))
    run(world.coordinator.prune())
    assert world.log.begin == 0
    world.log.high_watermark = 2
    world.done(write(1, 4))
    run(world.coordinator.prune())
    assert world.log.begin == 1  # what was found the time before


def test_states_of_a_partition_have_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SHARE_STATES_OF_PARTITION_MAX", 2)
    world.done(Initialize(key_of(1), 5, NO_START))
    for number in (2, 3):
        refused = world.ask(Initialize(key_of(number), 5, NO_START))
        assert refused.code is ErrorCode.POLICY_VIOLATION
    assert len(world.log.records) == 2
    assert len([each for each in caplog.messages if "as many as it may have" in each]) == 1
    world.done(Initialize(key_of(1), 6, 10))  # which is there
    world.done(Delete(key_of(1)))
    world.done(Initialize(key_of(2), 5, NO_START))


def test_states_of_all_partitions_have_a_bound(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SHARE_STATES_MAX", 4)
    found = ShareState.after(None, Snapshot(0, 5, 0, NO_START, NO_COUNT, 0, 0, ()), 0)
    assert found is not None
    world.coordinator.load(1, 1, {key_of(8): found, key_of(9): found})
    world.done(Initialize(key_of(1), 5, NO_START))
    refused = world.ask(Initialize(key_of(2), 5, NO_START))
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert refused.message == module.FULL_WORDS
    assert len([each for each in caplog.messages if "coordinates 4 states" in each]) == 1
    world.done(Initialize(key_of(1), 6, 10))  # which is there
    world.coordinator.unload([1])
    world.done(Initialize(key_of(2), 5, NO_START))
