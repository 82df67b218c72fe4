"""Records that a group has given up, and whose copies go to its dead-letter topic."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.replica.share.partition import SharePartition, ToCopy
from kbroker.replica.share.states import Event, State
from kbroker.replica.share.writes import StoredBatch, Write
from tests.unit.replica.share.world import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    SETTINGS,
    World,
    at,
    batches,
    copy,
)

COPIES = SETTINGS._replace(copies=True, deliveries=2)
ARCHIVING, ARCHIVED = State.ARCHIVING, State.ARCHIVED
FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE


def rejected(*sizes: int) -> World:
    """The first record of each batch was rejected."""
    world = World(batches(*sizes), settings=COPIES)
    world.fetch()
    for batch in world.log:
        world.say(batch.base_offset, batch.base_offset, REJECT)
    return world


def test_a_rejected_record_is_kept_as_archiving_until_its_copy_is_written() -> None:
    world = rejected(3)
    assert world.partition.to_copy(10) == []  # what the client waits for is not written yet
    assert world.write() == Write(0, (StoredBatch(0, 0, ARCHIVING, 1),), 0)
    assert world.partition.to_copy(10) == [ToCopy(0, 0, 1, Event.REJECT)]
    world.done(1, 2)
    assert world.partition.start == 0
    world.partition.copied(0, 0, world.settings)
    assert (world.partition.start, world.partition.archiving) == (3, 0)
    assert world.write() == Write(3, (), 0)


def test_a_rejection_whose_write_fails_is_none() -> None:
    world = rejected(3)
    world.write(FAILED)
    assert world.state(0) == "acquired 1"
    assert world.partition.archiving == 0
    world.done(0, 2)
    assert world.partition.start == 3


def test_each_record_has_its_cause() -> None:
    world = World(batches(1, 1, 1, 1, 1), settings=COPIES._replace(deliveries=1))
    for owner in range(1, 6):
        world.fetch(owner, 1, exactly=True)
    world.done(0, 0, RELEASE, owner=1)
    world.done(1, 1, REJECT, owner=2)
    world.partition.end_session(3, world.settings, world.now_ms)
    world.done(3, 3, GAP, owner=4)
    world.pass_ms(COPIES.lock_ms)
    causes = [each.cause for each in world.partition.to_copy(10)]
    assert causes == [Event.RELEASE, Event.REJECT, Event.SESSION_ENDS, Event.LOCK_ENDS]
    assert world.state(3) == "archived 1"
    counts = world.partition.take_counts()
    assert counts is not None
    assert counts.archived == dict.fromkeys(
        (Event.RELEASE, Event.REJECT, Event.SESSION_ENDS, Event.GAP, Event.LOCK_ENDS), 1
    )
    world.partition.copied(0, 4, world.settings)
    assert world.partition.take_counts().archived == {}  # type: ignore[union-attr]
    assert world.partition.start == 5


def test_so_many_at_most_and_the_first_ones_first() -> None:
    world = World(batches(10), settings=COPIES)
    world.fetch()
    world.done(2, 4, REJECT)
    world.done(6, 9, REJECT)
    assert [each[:2] for each in world.partition.to_copy(5)] == [(2, 4), (6, 7)]
    world.partition.copied(2, 3, world.settings)
    assert [each[:2] for each in world.partition.to_copy(5)] == [(4, 4), (6, 9)]
    assert world.partition.archiving == 5


def test_a_load_goes_on_with_it_and_knows_its_cause_no_more() -> None:
    stored = (StoredBatch(3, 3, ARCHIVING, 2), StoredBatch(4, 5, ARCHIVED, 2))
    partition, _ = SharePartition.load(3, stored, 0, 10)
    assert partition.to_copy(10) == [ToCopy(3, 3, 2, None)]
    assert (partition.archiving, partition.terminal) == (1, 2)
    partition.copied(3, 3, COPIES)
    assert partition.start == 6


def test_it_is_delivered_to_no_member_and_counts_in_the_window() -> None:
    world = World(batches(2, 1), settings=COPIES._replace(window=2))
    world.fetch(records=2)
    world.done(0, 0, REJECT)
    world.done(1, 1)
    assert world.partition.next_offset(world.settings) is None
    world.partition.copied(0, 0, world.settings)
    assert world.partition.next_offset(world.settings) == 2


def test_the_log_may_lose_it_before_its_copy_is_written() -> None:
    world = rejected(3, 3)
    world.write()
    world.partition.log_starts_at(2)
    counts = world.partition.take_counts()
    assert counts is not None
    assert counts.records[Event.LOG_STARTS_LATER] == 1
    assert counts.archived[Event.LOG_STARTS_LATER] == 1  # offset 1, which was acquired
    assert world.partition.archiving == 1
    world.partition.copied(0, 3, world.settings)
    assert world.state(3) == "archived 1"


@pytest.mark.parametrize("code", [ErrorCode.NONE, FAILED])
def test_a_copy_may_be_written_before_its_state_is(code: ErrorCode) -> None:
    world = World(batches(3), settings=COPIES._replace(deliveries=1))
    world.fetch()
    world.pass_ms(COPIES.lock_ms)
    assert world.partition.take_write() == Write(0, (StoredBatch(0, 2, ARCHIVING, 1),), 0)
    world.partition.copied(1, 1, world.settings)
    world.partition.written(code, world.settings, world.now_ms)
    kept = world.partition.take_write()
    assert kept is not None
    assert StoredBatch(1, 1, ARCHIVED, 1) in kept.batches
    assert len(kept.batches) == (1 if code is ErrorCode.NONE else 3)


def test_neighbours_of_one_cause_are_one_range_again() -> None:
    world = World(batches(4), settings=COPIES)
    world.fetch()
    for offset in (0, 1, 2, 3):
        world.done(offset, offset, ACCEPT if offset == 3 else REJECT)
    assert [(each.first, each.last) for each in copy(world.partition)] == [(0, 2), (3, 3)]
    found = at(world.partition, 1)
    assert found is not None
    assert found.deliveries == 1
