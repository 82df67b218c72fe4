"""Which records a fetch hands out: batches, the record limit, gaps, poison, read_committed."""

from __future__ import annotations

import pytest

from kbroker.replica.share.acquiring import LogBatch
from kbroker.replica.share.partition import SharePartition
from kbroker.replica.share.states import Event, State
from kbroker.replica.share.writes import StoredBatch
from tests.unit.replica.share.world import (
    ACCEPT,
    ONE,
    OTHER,
    REJECT,
    RELEASE,
    SETTINGS,
    World,
    batches,
    copy,
)


def spans(given: object) -> list[tuple[int, int]]:
    assert isinstance(given, list)
    return [(one.first_offset, one.last_offset) for one in given]


def test_whole_batches_up_to_the_records_that_were_asked_for() -> None:
    world = World(batches(10, 10, 10))
    assert spans(world.fetch(records=5)) == [(0, 9)]
    assert spans(world.fetch(records=11)) == [(10, 29)]
    assert world.fetch() == []
    assert (world.partition.start, world.partition.end) == (0, 29)


def test_ranges_are_split_at_batches_of_the_log() -> None:
    world = World(batches(3, 3, 3, 20, 2))
    assert spans(world.fetch(size=5)) == [(0, 5), (6, 28), (29, 30)]


def test_each_batch_counts_its_deliveries() -> None:
    world = World(batches(4))
    (first,) = world.fetch()
    assert first.delivery_count == 1
    world.done(0, 3, RELEASE)
    (second,) = world.fetch(OTHER)
    assert second.delivery_count == 2


def test_the_record_limit_cuts_a_batch() -> None:
    world = World(batches(10, 10))
    assert spans(world.fetch(records=3, exactly=True)) == [(0, 2)]
    assert spans(world.fetch(OTHER, records=9, exactly=True)) == [(3, 9), (10, 11)]
    assert spans(world.fetch(records=20, exactly=True)) == [(12, 19)]


def test_the_record_limit_has_no_batch_size() -> None:
    world = World(batches(3, 4, 2, 10))
    assert spans(world.fetch(records=8, size=1, exactly=True)) == [(0, 7)]
    assert spans(world.fetch(records=3, size=1, exactly=True)) == [(8, 8), (9, 10)]


def test_the_rest_of_a_cut_batch_is_given_back_with_it() -> None:
    """The rest is in the window, and no record of it counts as delivered."""
    world = World(batches(10))
    world.fetch(records=3, exactly=True)
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    assert world.partition.end == 9
    given = world.fetch(OTHER)
    assert spans(given) == [(0, 2), (3, 9)]
    assert [one.delivery_count for one in given] == [2, 1]


def test_the_record_limit_at_a_gap_that_was_loaded() -> None:
    kept = [StoredBatch(8, 9, State.AVAILABLE, 1)]
    world = World(batches(20))
    world.partition, _ = SharePartition.load(0, kept, 0, 20)
    assert spans(world.fetch(records=3, exactly=True)) == [(0, 2)]
    assert spans(world.fetch(records=7, exactly=True)) == [(3, 7), (8, 9)]
    assert spans(world.fetch(records=7, exactly=True)) == [(10, 16)]


def test_no_record_is_with_two_members() -> None:
    world = World(batches(5, 5))
    world.fetch(to=4)
    assert spans(world.fetch(OTHER)) == [(5, 9)]
    assert set(world.partition.ranges.owner) == {ONE, OTHER}


def test_released_records_come_before_new_ones() -> None:
    world = World(batches(5, 5, 5))
    world.fetch(to=9)
    world.done(2, 3, RELEASE)
    given = world.fetch(OTHER)
    assert spans(given) == [(2, 3), (10, 14)]
    assert [one.delivery_count for one in given] == [2, 1]


def test_the_window_is_never_exceeded() -> None:
    world = World(batches(60, 60, 60), settings=SETTINGS._replace(window=100))
    assert spans(world.fetch()) == [(0, 99)]
    assert world.partition.next_offset(world.settings) is None
    assert world.fetch(OTHER) == []
    world.done(5, 5, RELEASE)
    assert spans(world.fetch(OTHER)) == [(5, 5)]
    world.done(0, 4)
    assert spans(world.fetch(OTHER)) == [(100, 104)]


def test_a_gap_between_two_batches_belongs_to_the_first() -> None:
    log = [LogBatch(0, 4), LogBatch(10, 14)]
    world = World(log)
    assert spans(world.fetch()) == [(0, 14)]
    world = World(log)
    assert spans(world.fetch(size=1)) == [(0, 9), (10, 14)]


def test_a_gap_before_the_first_batch_is_handed_to_no_member() -> None:
    world = World([LogBatch(5_000_000, 5_000_004)])
    assert spans(world.fetch()) == [(5_000_000, 5_000_004)]
    assert world.partition.start == 5_000_000
    write = world.write()
    assert write is not None
    assert (write.start_offset, write.batches) == (5_000_000, ())


def test_a_gap_after_the_window_fills_it() -> None:
    world = World([LogBatch(0, 0), LogBatch(5_000, 5_004)])
    world.fetch(to=0)
    assert world.fetch(OTHER) == []
    assert world.partition.in_flight == 2_000
    world.done(0, 0)
    assert world.partition.start == 2_000
    assert spans(world.fetch(OTHER)) == [(5_000, 5_004)]


def test_records_that_the_log_has_lost_are_archived() -> None:
    world = World(batches(5, 5, 5))
    world.fetch(OTHER, to=4)
    world.fetch(to=9)
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.log = [LogBatch(0, 4), LogBatch(8, 9), LogBatch(10, 14)]
    assert spans(world.fetch()) == [(8, 9), (10, 14)]
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    world.log = [LogBatch(0, 4), LogBatch(10, 14)]
    assert spans(world.fetch()) == [(10, 14)]
    assert [world.state(7), world.state(8)] == ["archived 1", "archived 2"]
    assert world.partition.archived == {Event.NOT_THERE: 5}


@pytest.mark.parametrize(
    ("deliveries", "pieces"),
    [
        (2, [10, 10]),
        (3, [10, 10, 1]),
        (5, [10, 10, 10, 5, 1]),
        (10, [16, 16, 16, 16, 16, 8, 4, 2, 1, 1]),
    ],
)
def test_poison_is_delivered_in_ever_smaller_pieces(deliveries: int, pieces: list[int]) -> None:
    size = pieces[0]
    world = World(batches(size, 5), settings=SETTINGS._replace(deliveries=deliveries))
    sizes = []
    for _ in pieces:
        (given, *_) = world.fetch(to=size - 1)
        assert given.first_offset == 0
        sizes.append(given.last_offset + 1)
        world.partition.end_session(ONE, world.settings, world.now_ms)
    assert sizes == pieces
    assert world.state(0) in ("done", f"archived {deliveries}")


def test_a_piece_is_delivered_alone() -> None:
    world = World(batches(4, 4), settings=SETTINGS._replace(deliveries=3))
    for _ in range(2):
        world.fetch(to=3)
        world.partition.end_session(ONE, world.settings, world.now_ms)
    assert spans(world.fetch()) == [(0, 0)]
    assert spans(world.fetch()) == [(1, 1)]
    world.done(0, 0)
    assert spans(world.fetch(OTHER)) == [(2, 2)]
    assert spans(world.fetch(OTHER)) == [(3, 3)]
    assert spans(world.fetch(OTHER)) == [(4, 7)]


def test_no_piece_follows_other_records_in_one_answer() -> None:
    world = World(batches(4, 4), settings=SETTINGS._replace(deliveries=3))
    world.fetch(OTHER, to=3)
    for _ in range(2):
        world.fetch(to=7)
        world.partition.end_session(ONE, world.settings, world.now_ms)
    world.done(0, 3, RELEASE, owner=OTHER)
    assert spans(world.fetch()) == [(0, 3)]
    assert spans(world.fetch()) == [(4, 4)]


def test_a_lowered_limit_archives_at_the_next_read() -> None:
    world = World(batches(4, 4))
    for _ in range(3):
        world.fetch(to=3)
        world.partition.end_session(ONE, world.settings, world.now_ms)
    world.settings = SETTINGS._replace(deliveries=2)
    assert spans(world.fetch()) == [(4, 7)]
    assert world.partition.start == 4
    assert world.partition.archived == {Event.USED_UP: 4}


def test_aborted_records_are_archived_and_kept_so() -> None:
    log = batches(3, 4, 1, 2)
    world = World(log)
    assert spans(world.fetch(aborted=[log[1]])) == [(0, 2), (7, 9)]
    assert world.state(3) == "archived 0"
    write = world.write()
    assert write is not None
    assert write.batches == (StoredBatch(3, 6, State.ARCHIVED, 0),)
    assert write.complete == 4


def test_a_long_aborted_transaction_at_the_start_moves_it() -> None:
    log = [LogBatch(0, 9_999), LogBatch(10_000, 19_999), LogBatch(20_000, 20_000)]
    world = World(log)
    assert world.fetch(to=10_000, aborted=log[:2]) == []
    assert world.partition.start == 20_000
    assert spans(world.fetch()) == [(20_000, 20_000)]


def test_a_read_that_finds_nothing_changes_nothing() -> None:
    world = World(start=7)
    assert world.fetch() == []
    assert copy(world.partition) == []
    assert world.partition.take_write() is None


def test_the_lock_of_a_record_runs_out_before_a_fetch_looks() -> None:
    world = World(batches(3))
    world.fetch()
    world.now_ms += SETTINGS.lock_ms
    world.fetch(OTHER)
    assert world.state(0) == "available 1"
    assert spans(world.fetch(OTHER)) == [(0, 2)]


def test_a_loaded_gap_is_read_again_batch_by_batch() -> None:
    kept = [
        StoredBatch(0, 4, State.AVAILABLE, 1),
        StoredBatch(15, 19, State.ACKNOWLEDGED, 1),
    ]
    partition, writes = SharePartition.load(0, kept, 0, 30)
    assert writes == ()
    world = World([LogBatch(0, 4), LogBatch(7, 9), LogBatch(10, 14), LogBatch(15, 29)])
    world.partition = partition
    assert spans(world.fetch(to=4)) == [(0, 4)]
    assert spans(world.fetch(records=2, size=2, to=14)) == [(7, 9)]
    assert world.state(5) == "archived 0"
    assert spans(world.fetch()) == [(10, 14), (20, 29)]


def test_a_rejected_record_is_not_delivered_again() -> None:
    world = World(batches(3))
    world.fetch()
    world.done(1, 1, REJECT)
    world.done(0, 0, ACCEPT)
    world.partition.end_session(ONE, SETTINGS, world.now_ms)
    assert spans(world.fetch()) == [(2, 2)]
    assert world.partition.start == 2
