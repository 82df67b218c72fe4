"""What became of one record, from the records of a share-partition's state."""

from __future__ import annotations

from uuid import UUID

from kbroker.cli.share_life import Batch, Life, life_of
from kbroker.coordinator.share.images import NO_COUNT, SharePartition, StateBatch
from kbroker.coordinator.share.records import Snapshot, Update, Value, record_of, tombstone_of
from kbroker.protocol.record_batch import Record

KEY = SharePartition("g", UUID(int=5), 0)
OTHER = KEY._replace(group_id="other")
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def snapshot(start: int, *batches: StateBatch, epoch: int = 0, state_epoch: int = 1) -> Snapshot:
    return Snapshot(epoch, state_epoch, 0, start, NO_COUNT, 0, 0, batches)


def update(start: int, *batches: StateBatch, epoch: int = 0) -> Update:
    return Update(epoch, 0, start, NO_COUNT, batches)


def life(offset: int, *values: tuple[SharePartition, Value | None]) -> Life | None:
    batches = []
    for at, (key, value) in enumerate(values):
        name, data = tombstone_of(key) if value is None else record_of(key, value)
        batches.append(Batch(at * 10, [Record(name, data, offset=at)]))
    return life_of(batches, KEY, offset)


def events(found: Life | None) -> list[tuple[int, str, int | None]]:
    assert found is not None
    return [(each.offset, each.event, each.delivery_count) for each in found.steps]


def test_a_record_that_was_released_and_then_acknowledged() -> None:
    found = life(
        7,
        (KEY, snapshot(-1)),
        (OTHER, update(0, StateBatch(0, 9, ARCHIVED, 5))),
        (KEY, update(3)),
        (KEY, update(3, StateBatch(5, 8, AVAILABLE, 1))),
        (KEY, update(3, StateBatch(8, 8, AVAILABLE, 2))),
        (KEY, update(3, StateBatch(7, 7, ACKNOWLEDGED, 2))),
        (KEY, update(9)),
    )
    assert events(found) == [
        (0, "state begins", None), (2, "start found", None), (3, "available again", 1),
        (5, "acknowledged", 2), (6, "start passed it", None),
    ]  # fmt: skip
    assert found is not None
    assert (found.start, found.state, found.delivery_count) == (9, ACKNOWLEDGED, 2)


def test_a_snapshot_of_the_same_state_is_no_step() -> None:
    batch = StateBatch(7, 7, AVAILABLE, 1)
    found = life(
        7, (KEY, snapshot(3)), (KEY, update(3, batch)), (KEY, snapshot(3, batch, epoch=1)),
        (KEY, update(3, StateBatch(7, 7, ARCHIVED, 2))),  # of the snapshot before: another log's
        (KEY, update(3, StateBatch(7, 7, ARCHIVED, 2), epoch=1)),
    )  # fmt: skip
    assert events(found) == [
        (0, "state begins", None), (0, "start found", None), (1, "available again", 1),
        (4, "archived", 2),
    ]  # fmt: skip


def test_a_state_that_begins_again_and_one_that_is_deleted() -> None:
    found = life(
        7,
        (KEY, snapshot(3, StateBatch(7, 7, ACKNOWLEDGED, 1))),
        (KEY, snapshot(5, epoch=1, state_epoch=2)),
        (KEY, None),
    )
    assert [name for _, name, _ in events(found)] == [
        "state begins", "start found", "acknowledged", "state begins", "start found",
        "state deleted",
    ]  # fmt: skip
    assert found is not None
    assert (found.start, found.state) == (-1, None)


def test_a_lower_count_changes_nothing_and_a_damaged_record_is_left_out() -> None:
    found = life(7, (KEY, snapshot(3, StateBatch(7, 7, AVAILABLE, 3))))
    assert found is not None
    name, data = record_of(KEY, update(3, StateBatch(7, 7, AVAILABLE, 2)))
    batches = [Batch(0, [Record(*record_of(KEY, snapshot(3, StateBatch(7, 7, AVAILABLE, 3))))])]
    batches += [Batch(1, [Record(name, data), Record(name, b"\0\0\1"), Record(None, None)])]
    again = life_of(batches, KEY, 7)
    assert again is not None
    assert [each.event for each in again.steps] == [each.event for each in found.steps]


def test_without_a_record_of_the_share_partition_nothing_is_known() -> None:
    assert life(7, (OTHER, snapshot(3))) is None
