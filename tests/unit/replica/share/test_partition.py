"""Writes and their failures, loading, the log's start, and the ends of locks and sessions."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode, InvariantError
from kbroker.replica.share.partition import SharePartition
from kbroker.replica.share.spared import Spared
from kbroker.replica.share.states import Event, State
from kbroker.replica.share.writes import StoredBatch, Write
from tests.unit.replica.share.world import (
    ACCEPT,
    ONE,
    OTHER,
    REJECT,
    RELEASE,
    RENEW,
    SETTINGS,
    World,
    at,
    batches,
    copy,
)

FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
AVAILABLE, ACKNOWLEDGED, ARCHIVED = State.AVAILABLE, State.ACKNOWLEDGED, State.ARCHIVED


def test_a_fetch_by_itself_writes_nothing() -> None:
    world = World(batches(10))
    world.fetch()
    assert world.partition.take_write() is None


def test_a_write_has_the_start_before_it_and_the_count_after_it() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 3, ACCEPT)
    world.say(6, 6, REJECT)
    assert world.partition.take_write() == Write(
        0, (StoredBatch(0, 3, ACKNOWLEDGED, 1), StoredBatch(6, 6, ARCHIVED, 1)), 5
    )
    assert world.partition.start == 0
    assert world.partition.written(ErrorCode.NONE, world.settings, world.now_ms).tokens == [1, 2]
    assert world.partition.start == 4
    world.say(9, 9, ACCEPT)
    assert world.write() == Write(4, (StoredBatch(9, 9, ACKNOWLEDGED, 1),), 2)


def test_one_write_at_a_time() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 0, ACCEPT)
    world.say(1, 1, ACCEPT)
    first = world.partition.take_write()
    assert first is not None
    assert first.batches == (StoredBatch(0, 1, ACKNOWLEDGED, 1),)
    world.say(2, 2, ACCEPT)
    assert world.partition.is_awaited
    assert world.partition.take_write() is None
    assert world.partition.written(ErrorCode.NONE, world.settings, world.now_ms).tokens == [1, 2]
    second = world.partition.take_write()
    assert second == Write(2, (StoredBatch(2, 2, ACKNOWLEDGED, 1),), 1)
    assert world.partition.written(FAILED, world.settings, world.now_ms) == ([3], FAILED)


def test_a_failed_write_leaves_the_records_with_their_member() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 4, ACCEPT)
    world.write(FAILED)
    assert world.state(0) == "acquired 1"
    assert at(world.partition, 0).owner == ONE  # type: ignore[union-attr]
    assert world.say(0, 4, ACCEPT).code is None
    assert world.write() == Write(0, (StoredBatch(0, 4, ACKNOWLEDGED, 1),), 5)
    assert world.partition.start == 5


def test_a_failed_write_of_records_whose_lock_ran_out_meanwhile() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 4, ACCEPT)
    world.partition.take_write()
    world.pass_ms(SETTINGS.lock_ms)
    assert [world.state(0), world.state(5)] == ["prepared 1", "available 1"]
    world.partition.written(FAILED, world.settings, world.now_ms)
    deadline_ms = world.partition.next_deadline_ms
    assert deadline_ms is not None
    assert deadline_ms <= world.now_ms
    assert world.pass_ms(0)
    assert world.state(0) == "available 1"


def test_a_count_that_was_not_written_is_in_the_next_write() -> None:
    world = World(batches(10))
    world.fetch()
    assert world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.write(FAILED)
    assert world.partition.changed
    assert world.write() == Write(0, (StoredBatch(0, 9, AVAILABLE, 1),), 0)
    assert world.write() is None


def test_a_count_is_written_though_the_record_is_with_a_member_again() -> None:
    world = World(batches(10))
    world.fetch()
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.fetch(OTHER)
    assert world.write() == Write(0, (StoredBatch(0, 9, AVAILABLE, 1),), 0)
    assert world.state(0) == "acquired 2"


def test_a_count_is_written_after_an_acknowledgement_that_was_not() -> None:
    """The write of the one had the other's records, and failed: both are still to be written."""
    world = World(batches(10))
    world.fetch()
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.write(FAILED)
    world.fetch(OTHER)
    assert world.say(0, 9, ACCEPT, owner=OTHER).code is None
    world.write(FAILED)
    assert world.state(0) == "acquired 2"
    assert world.write() == Write(0, (StoredBatch(0, 9, AVAILABLE, 1),), 0)
    assert world.say(0, 9, ACCEPT, owner=OTHER).code is None
    world.write()
    assert world.write() is None


def test_the_start_alone_is_written_where_it_has_moved() -> None:
    world = World(batches(10), settings=SETTINGS._replace(deliveries=1))
    world.fetch()
    world.partition.end_session(ONE, world.settings, world.now_ms)
    assert world.partition.start == 10
    assert world.write() == Write(10, (), 0)
    assert world.write() is None


def test_one_session_ends_and_the_others_keep_their_records() -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    world.fetch(OTHER)
    world.say(0, 0, ACCEPT)
    assert world.partition.end_session(ONE, SETTINGS, world.now_ms)
    assert [world.state(at) for at in (0, 1, 5)] == ["prepared 1", "available 1", "acquired 1"]
    assert not world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.write()
    assert world.partition.start == 1


SHORT = SETTINGS._replace(deliveries=2, short_ms=100)


def end_after(world: World, ms: int) -> None:
    """Its session ends so long after a fetch of all that is available."""
    world.fetch()
    world.now_ms += ms
    world.partition.end_session(ONE, world.settings, world.now_ms)


def test_a_session_that_ends_soon_counts_from_the_third_time_on() -> None:
    world = World(batches(10), settings=SHORT)
    for _ in range(2):
        end_after(world, 99)
        assert world.state(0) == "available 0"
        assert world.write() is None
    end_after(world, 99)
    assert world.write() == Write(0, (StoredBatch(0, 9, AVAILABLE, 1),), 0)
    end_after(world, 99)
    assert world.partition.start == 10
    counts = world.partition.take_counts()
    assert counts is not None
    assert counts.records[Event.SHORT_SESSION_ENDS] == 20
    assert counts.archived == {Event.SESSION_ENDS: 10}


def test_a_session_that_ends_later_counts() -> None:
    world = World(batches(10), settings=SHORT)
    end_after(world, 100)
    assert world.state(0) == "available 1"
    world.settings = SHORT._replace(short_ms=0)
    end_after(world, 0)
    assert world.state(9) == "done"


def test_a_renewed_record_was_acquired_before_that() -> None:
    world = World(batches(10), settings=SHORT)
    world.fetch()
    world.now_ms += 100
    assert world.say(0, 4, RENEW).code is ErrorCode.NONE
    world.partition.end_session(ONE, SHORT, world.now_ms)
    assert world.state(0) == "available 1"


def test_records_that_were_spared_differently_have_their_own_counts() -> None:
    world = World(batches(10), settings=SHORT)
    end_after(world, 0)
    world.fetch()
    world.done(0, 2)
    world.partition.end_session(ONE, SHORT, world.now_ms)
    world.log = batches(10, 5)
    end_after(world, 0)
    assert [world.state(at) for at in (2, 3, 9, 10, 14)] == [
        "done", "available 1", "available 1", "available 0", "available 0",
    ]  # fmt: skip


def test_spans_are_spared_in_pieces() -> None:
    spared = Spared()
    assert spared.spare([(0, 9), (20, 29)], 0) == [(0, 9), (20, 29)]
    assert spared.spare([(5, 24)], 0) == [(5, 9), (10, 19), (20, 24)]
    assert spared.spans == [(0, 4, 1), (5, 9, 2), (10, 19, 1), (20, 24, 2), (25, 29, 1)]
    assert spared.spare([(3, 6), (8, 8), (28, 40)], 0) == [(3, 4), (28, 29), (30, 40)]
    assert spared.spans == [
        (0, 2, 1), (3, 9, 2), (10, 19, 1), (20, 24, 2), (25, 27, 1), (28, 29, 2), (30, 40, 1)
    ]  # fmt: skip
    assert spared.spare([(41, 41)], 26) == [(41, 41)]
    assert spared.spans == [(25, 27, 1), (28, 29, 2), (30, 41, 1)]


def test_locks_end_one_after_the_other() -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    world.now_ms += 100
    world.fetch(OTHER)
    assert world.pass_ms(SETTINGS.lock_ms - 100)
    assert [world.state(0), world.state(5)] == ["available 1", "acquired 1"]
    assert not world.pass_ms(99)
    assert world.pass_ms(1)
    assert world.partition.next_deadline_ms is None


def test_a_record_that_was_acquired_again_has_its_new_lock() -> None:
    world = World(batches(5))
    world.fetch()
    world.now_ms += 10
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.fetch(OTHER)
    assert not world.pass_ms(SETTINGS.lock_ms - 10)
    assert world.state(0) == "acquired 2"
    assert world.pass_ms(10)


def test_locks_that_were_ended_before_do_not_pile_up() -> None:
    world = World(batches(*[1] * 5))
    for turn in range(2_000):
        world.log = batches(1, base=turn)
        assert world.fetch()
        world.done(turn, turn)
        world.now_ms += 1
    assert len(world.partition.locks) < 200
    assert len(world.partition.ranges) == 0


@pytest.mark.parametrize("start", [3, 5, 10, 12])
def test_the_log_starts_later(start: int) -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    world.done(1, 2)
    world.fetch(OTHER)
    world.say(3, 3, ACCEPT)
    assert world.partition.log_starts_at(start)
    assert world.partition.start == start
    assert world.partition.end == max(9, start - 1)
    assert world.partition.terminal == 0
    assert not world.partition.log_starts_at(start)
    assert world.partition.archived[Event.LOG_STARTS_LATER] == min(start, 10) - 2
    write = world.write()
    assert write is not None
    assert write.start_offset == start


def test_a_start_that_moves_with_the_log_is_written() -> None:
    """A group that has nothing left would lag for ever."""
    world = World(batches(5))
    world.fetch()
    world.done(0, 4)
    assert world.partition.log_starts_at(9)
    write = world.write()
    assert write is not None
    assert (write.start_offset, write.batches, write.complete) == (9, (), 0)
    assert world.write() is None


def test_the_log_starts_within_a_write_under_way() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 9, ACCEPT)
    world.partition.take_write()
    world.partition.log_starts_at(5)
    assert world.partition.written(ErrorCode.NONE, world.settings, world.now_ms).tokens == [1]
    assert (world.partition.start, world.partition.end) == (10, 9)


class TestLoad:
    def test_of_nothing(self) -> None:
        partition, writes = SharePartition.load(7, [], 0, 20)
        assert writes == ()
        assert (partition.start, partition.end, copy(partition)) == (7, 6, [])

    def test_done_at_the_start(self) -> None:
        kept = [StoredBatch(0, 4, ACKNOWLEDGED, 1), StoredBatch(5, 9, ARCHIVED, 5)]
        partition, writes = SharePartition.load(0, kept, 0, 20)
        assert writes == ()
        assert (partition.start, partition.end, partition.terminal) == (10, 9, 0)

    def test_gaps_are_available(self) -> None:
        kept = [StoredBatch(3, 4, ACKNOWLEDGED, 1), StoredBatch(8, 9, AVAILABLE, 2)]
        partition, _ = SharePartition.load(0, kept, 0, 20)
        world = World(start=0)
        world.partition = partition
        assert [world.state(at) for at in (0, 3, 5, 8, 10)] == [
            "available 0", "acknowledged 1", "available 0", "available 2", "",
        ]  # fmt: skip
        assert partition.terminal == 2

    def test_the_log_starts_later(self) -> None:
        kept = [StoredBatch(3, 4, AVAILABLE, 1), StoredBatch(8, 9, AVAILABLE, 2)]
        partition, _ = SharePartition.load(0, kept, 9, 20)
        assert (partition.start, partition.end) == (9, 9)

    def test_the_log_has_lost_its_end(self) -> None:
        kept = [
            StoredBatch(0, 4, AVAILABLE, 1),
            StoredBatch(5, 9, ACKNOWLEDGED, 1),
            StoredBatch(12, 12, ACKNOWLEDGED, 1),
        ]
        partition, writes = SharePartition.load(0, kept, 0, 7)
        assert (partition.start, partition.end) == (0, 6)
        left = (StoredBatch(0, 4, AVAILABLE, 1), StoredBatch(5, 6, ACKNOWLEDGED, 1))
        assert writes == (Write(13, (), 0), Write(0, left, 2))

    def test_the_log_ends_before_the_start(self) -> None:
        kept = [StoredBatch(30, 31, ACKNOWLEDGED, 1)]
        partition, writes = SharePartition.load(30, kept, 0, 7)
        assert (partition.start, partition.end) == (7, 6)
        assert writes == (Write(32, (), 0), Write(7, (), 0))

    @pytest.mark.parametrize(
        "kept",
        [
            [StoredBatch(4, 3, AVAILABLE, 0)],
            [StoredBatch(4, 5, State.ACQUIRED, 0)],
            [StoredBatch(4, 5, 9, 0)],
            [StoredBatch(4, 5, AVAILABLE, -1)],
            [StoredBatch(4, 5, AVAILABLE, 0), StoredBatch(5, 6, AVAILABLE, 0)],
        ],
    )
    def test_of_no_state(self, kept: list[StoredBatch]) -> None:
        with pytest.raises(ValueError):
            SharePartition.load(0, kept, 0, 20)

    def test_a_write_is_loaded_as_it_was(self) -> None:
        world = World(batches(5, 5, 5))
        world.fetch()
        world.say(0, 2, ACCEPT)
        world.say(5, 6, RELEASE)
        world.say(14, 14, REJECT)
        write = world.write()
        assert write is not None
        loaded, _ = SharePartition.load(write.start_offset, write.batches, 0, 15)
        assert (loaded.start, loaded.end) == (3, 14)
        assert loaded.terminal == 1 == world.partition.terminal


def test_tokens_of_a_leader_that_leads_no_more() -> None:
    world = World(batches(10))
    world.fetch()
    world.say(0, 0, ACCEPT)
    world.partition.take_write()
    world.say(1, 1, RELEASE)
    assert world.partition.forget_write() == [1, 2]
    assert world.partition.forget_write() == []


def test_a_window_with_records_skips_nothing() -> None:
    world = World(batches(10))
    world.fetch()
    with pytest.raises(InvariantError):
        world.partition.skip_to(20, Event.NOT_THERE)
