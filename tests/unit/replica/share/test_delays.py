"""Records that wait before they are delivered again (kb.share.release.delay.ms)."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.limits import SHARE_DELAYED_MAX
from kbroker.replica.share.acquiring import Acquired, Timed, Wanted, acquire
from kbroker.replica.share.description import AFTER_WINDOW, describe
from kbroker.replica.share.partition import SharePartition
from kbroker.replica.share.states import Event, State
from kbroker.replica.share.writes import StoredBatch, Write
from tests.unit.replica.share.world import ACCEPT, OTHER, RELEASE, SETTINGS, World, batches

DELAYS = SETTINGS._replace(delay_ms=100, delay_ms_max=350)


def world_of(*sizes: int, **settings: int) -> World:
    return World(batches(*sizes), settings=DELAYS._replace(**settings))


def test_a_released_record_waits_and_is_kept_as_available() -> None:
    world = world_of(2)
    world.fetch()
    world.say(0, 0, RELEASE)
    assert world.state(0) == "prepared 1"
    assert world.write() == Write(0, (StoredBatch(0, 0, State.AVAILABLE, 1),), 0)
    assert world.state(0) == "delayed 1"
    assert (world.partition.delayed, world.partition.acquired) == (1, 1)
    assert not world.pass_ms(99)
    assert world.fetch(OTHER) == []
    assert world.partition.next_deadline_ms == world.now_ms + 1
    assert world.pass_ms(1)
    assert world.fetch(OTHER) == [Acquired(0, 0, 2)]
    assert (world.partition.delayed, world.partition.acquired) == (0, 2)


def test_it_waits_twice_as_long_after_each_delivery_up_to_a_bound() -> None:
    world = world_of(1, deliveries=10)
    for delay_ms in (100, 200, 350, 350):
        assert world.fetch() != []
        world.done(0, 0, RELEASE)
        assert not world.pass_ms(delay_ms - 1)
        assert world.pass_ms(1)


def test_a_record_whose_lock_has_ended_waits() -> None:
    world = world_of(1)
    world.fetch()
    assert world.pass_ms(DELAYS.lock_ms)
    assert world.state(0) == "delayed 1"
    world.pass_ms(100)
    assert world.state(0) == "available 1"


def test_a_record_of_a_session_that_ends_does_not() -> None:
    world = world_of(1)
    world.fetch()
    world.partition.end_session(1, world.settings, world.now_ms)
    assert world.state(0) == "available 1"


def test_the_last_delivery_is_the_last() -> None:
    world = world_of(1, deliveries=2)
    for _ in range(2):
        world.fetch()
        world.done(0, 0, RELEASE)
        world.pass_ms(350)
    assert world.partition.start == 1
    assert world.partition.delayed == 0


def test_delayed_records_do_not_fill_the_window() -> None:
    world = world_of(4, 4, 4, window=4)
    assert world.fetch(records=4, size=4) == [Acquired(0, 3, 1)]
    assert world.partition.next_offset(world.settings) is None
    world.done(0, 3, RELEASE)
    assert world.partition.in_flight == 0
    assert world.fetch(records=4, size=4) == [Acquired(4, 7, 1)]
    assert describe(world.partition, 0).delayed == 4
    assert describe(world.partition, 9)[:3] == (0, 7, AFTER_WINDOW)
    assert describe(world.partition, 9).delayed == 4


def test_records_after_a_delayed_one_do_not_fill_the_window() -> None:
    """It keeps the start, so those that are done with stay in the window."""
    world = world_of(*[2] * 20, window=4, delay_ms_max=100_000, delay_ms=100_000)
    world.fetch(records=2, size=2)
    world.done(0, 0, RELEASE)
    world.done(1, 1)
    for first in range(2, 40, 2):
        assert world.fetch(records=2, size=2) == [Acquired(first, first + 1, 1)]
        world.done(first, first + 1)
    assert (world.partition.start, world.partition.end) == (0, 39)
    assert len(world.partition.ranges) == 2
    world.pass_ms(100_000)
    assert world.fetch() == [Acquired(0, 0, 2)]
    world.done(0, 0)
    assert world.partition.start == 40


def test_the_parts_of_the_window_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.replica.share.partition.SHARE_RANGES_MAX", 6)
    world = world_of(*[1] * 20, window=4)
    for offset in range(6):
        assert world.fetch(records=1, size=1) == [Acquired(offset, offset, 1)]
        world.done(offset, offset, ACCEPT if offset % 2 else RELEASE)
    assert world.fetch() == []
    assert world.partition.is_full_of_delayed
    world.pass_ms(100)
    world.fetch(records=1, exactly=True)
    world.done(0, 0)
    assert world.partition.start == 2
    assert not world.partition.is_full_of_delayed


def test_members_have_no_more_than_the_window_when_many_delays_end() -> None:
    world = world_of(4, 4, 4, window=4)
    for first in (0, 4, 8):
        assert world.fetch(records=4, size=4) == [Acquired(first, first + 3, 1)]
        world.done(first, first + 3, RELEASE)
    assert world.partition.delayed == 12
    world.pass_ms(100)
    assert world.partition.in_flight == 12
    assert world.fetch(records=12) == [Acquired(0, 3, 2)]
    assert world.fetch(OTHER) == []
    assert world.partition.next_offset(world.settings) is None
    world.done(0, 1)
    assert world.fetch(OTHER) == [Acquired(4, 5, 2)]
    assert world.partition.acquired == 4


def test_a_window_that_was_loaded_is_acquired_up_to_the_bound() -> None:
    """The leader before this one had more records delayed."""
    world = world_of(10, 10, window=4)
    world.partition, _ = SharePartition.load(0, (StoredBatch(19, 19, 2, 1),), 0, 20)
    assert world.fetch(records=20) == [Acquired(0, 3, 1)]
    assert world.fetch(OTHER) == []
    world.done(0, 3)
    assert world.fetch(OTHER) == [Acquired(4, 7, 1)]


def test_at_their_bound_no_new_record_is_delivered() -> None:
    world = World(batches(SHARE_DELAYED_MAX + 10), settings=DELAYS._replace(window=10_000))
    while world.partition.delayed < SHARE_DELAYED_MAX:
        ((first, last, _),) = world.fetch(records=10_000, exactly=True)
        world.done(first, last, RELEASE)
    assert world.partition.is_full_of_delayed
    assert world.partition.next_offset(world.settings) is None
    world.pass_ms(100)
    assert not world.partition.is_full_of_delayed
    assert world.fetch() == [Acquired(0, 9_999, 2)]


def test_the_log_may_lose_a_delayed_record() -> None:
    world = world_of(2)
    world.fetch()
    world.done(0, 1, RELEASE)
    world.partition.log_starts_at(1)
    assert world.partition.delayed == 1
    world.pass_ms(100)
    assert world.fetch() == [Acquired(1, 1, 2)]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_delayed_record_may_be_in_a_write(code: ErrorCode) -> None:
    world = world_of(1)
    world.fetch()
    world.pass_ms(DELAYS.lock_ms)
    assert world.partition.take_write() == Write(0, (StoredBatch(0, 0, State.AVAILABLE, 1),), 0)
    world.partition.written(code, world.settings, world.now_ms)
    assert world.state(0) == "delayed 1"
    assert (world.partition.take_write() is None) == (code is ErrorCode.NONE)


HEEDS = SETTINGS._replace(heeds_times=True, window=4)


def take(world: World, timed: list[Timed], records: int = 500) -> list[Acquired]:
    """A fetch that finds these times."""
    read_from = world.partition.next_offset(world.settings)
    if read_from is None:
        return []
    found = [batch for batch in world.log if batch.last_offset >= read_from]
    return acquire(
        world.partition, 1, read_from, found, Wanted(records, 500), world.settings, world.now_ms,
        (), timed,
    )  # fmt: skip


def test_records_that_wait_or_have_expired_give_their_places_to_others() -> None:
    world = World(batches(20), settings=HEEDS)
    timed = [Timed(0, 6, 5_000), Timed(8, 10, None), Timed(12, 12, 6_000)]
    assert take(world, timed) == [Acquired(7, 7, 1), Acquired(11, 11, 1), Acquired(13, 14, 1)]
    assert (world.partition.delayed, world.partition.acquired) == (8, 4)
    assert world.partition.archived == {Event.EXPIRED: 3}
    assert take(world, []) == []
    world.done(7, 7)
    assert take(world, []) == [Acquired(15, 15, 1)]
    assert world.partition.next_deadline_ms == 5_000


def test_all_of_a_read_may_wait() -> None:
    world = World(batches(20, 5), settings=HEEDS)
    assert take(world, [Timed(0, 19, 5_000), Timed(20, 24, None)]) == []
    assert (world.partition.start, world.partition.end) == (0, 24)
    assert world.partition.next_offset(world.settings) == 25
    world.pass_ms(5_000)
    assert take(world, []) == [Acquired(0, 3, 1)]


def test_expired_records_at_the_start_are_passed() -> None:
    world = World(batches(20), settings=HEEDS)
    assert take(world, [Timed(0, 17, None)]) == [Acquired(18, 19, 1)]
    assert world.partition.start == 18


def test_a_record_that_a_member_has_may_expire() -> None:
    world = World(batches(2), settings=HEEDS)
    assert take(world, []) == [Acquired(0, 1, 1)]
    world.partition.end_session(1, world.settings, world.now_ms)
    assert take(world, [Timed(0, 0, None)]) == [Acquired(1, 1, 2)]


def test_scheduled_records_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.replica.share.partition.SHARE_DELAYED_MAX", 6)
    world = World(batches(20), settings=HEEDS)
    assert take(world, [Timed(0, 19, 5_000)]) == []
    assert world.partition.delayed == 8
    assert world.partition.next_offset(world.settings) is None
