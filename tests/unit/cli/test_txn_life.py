"""One id's life from records and batches: which marker is of which transaction, and the
steps that compaction has left."""

from __future__ import annotations

import pytest

from kbroker.cli.txn_life import Data, OneTransaction, Step, _assign, _events, _transactions
from kbroker.coordinator.txn import image as images
from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.states import State
from kbroker.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
COMMIT = State.PREPARE_COMMIT


class Life:
    """An id whose coordinator writes a record each second."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.now_ms = 1_000_000
        self.steps: list[Step] = []
        self.image = images.created(7, 60_000, self.now_ms)
        self.write(self.image)

    def write(self, image: TransactionImage | None) -> None:
        self.now_ms += 1_000
        if image is not None:
            self.image = image
        self.steps.append(Step(len(self.steps), self.now_ms, image))

    def transaction(self, *partitions: TopicPartition, until: State = State.COMPLETE_COMMIT) -> int:
        """When its outcome was decided."""
        for each in partitions:
            self.write(
                images.joined(self.image, frozenset({each}), self.version, self.now_ms + 1_000)
            )
        prepared_ms = self.now_ms + 1_000
        if until is not State.ONGOING:
            self.write(images.prepared(self.image, COMMIT, self.version, prepared_ms))
        if until is State.COMPLETE_COMMIT:
            self.write(images.completed(self.image, self.now_ms + 1_000))
        return prepared_ms

    def transactions(self) -> list[OneTransaction]:
        return [each for each in _transactions(self.steps) if isinstance(each, OneTransaction)]


def marker(time_ms: int, epoch: int, offset: int = 9) -> Data:
    return Data(
        7, epoch, first_offset=offset - 1, first_time_ms=time_ms, records=1, marker_offset=offset,
        marker_time_ms=time_ms, committed=True,
    )  # fmt: skip


def names(life: Life) -> list[str]:
    return [event.name for part in _transactions(life.steps) for event in _events(part)]


def test_steps_become_transactions() -> None:
    life = Life(2)
    life.transaction(A, B)
    life.transaction(B)
    life.write(
        images.renewed(life.image, 30_000, life.now_ms, last_epoch=images.NO_EPOCH, fresh_id=None)
    )
    life.transaction(A, until=State.ONGOING)
    life.steps.append(Step(99, life.now_ms, None))
    assert names(life) == [
        "epoch given",
        "partition added", "partition added", "prepare commit", "complete commit",
        "partition added", "prepare commit", "complete commit",
        "epoch given", "partition added", "forgotten",
    ]  # fmt: skip
    first, second, third = life.transactions()
    assert (first.partitions, second.partitions) == ({A, B}, {B})
    assert [each.is_complete for each in (first, second, third)] == [True, True, False]


def test_an_epoch_for_each_transaction_tells_markers_apart() -> None:
    """Whatever the clocks of their brokers say."""
    life = Life(2)
    life.transaction(A)
    life.transaction(A)
    first, second = life.transactions()
    for at, (time_ms, epoch) in enumerate(((5_000_000, 1), (1, 2))):
        _assign([first, second], A, marker(time_ms, epoch, at))
    assert [each.data[A][0].marker_offset for each in (first, second)] == [0, 1]


@pytest.mark.parametrize("skew_ms", [0, 2_500, -900])
def test_markers_with_one_epoch_are_in_the_order_of_transactions(skew_ms: int) -> None:
    """Clocks of two brokers differ, by less than a transaction takes or by more."""
    life = Life(0)
    times = [life.transaction(A) for _ in range(3)]
    found = life.transactions()
    _assign(found, A, marker(1, 0))  # of a transaction before these
    _assign(found, A, marker(times[0], 5))  # of another epoch
    for at, time_ms in enumerate(times):
        _assign(found, A, marker(time_ms + skew_ms, 0, at))
    assert [[each.marker_offset for each in one.data[A]] for one in found] == [[0], [1], [2]]


def test_a_marker_that_was_written_twice_is_of_the_same_transaction() -> None:
    life = Life(0)
    times = [life.transaction(A) for _ in range(2)]
    found = life.transactions()
    for offset, time_ms in ((3, times[0]), (4, times[0]), (5, times[1])):
        _assign(found, A, marker(time_ms, 0, offset))
    assert [[each.marker_offset for each in one.data[A]] for one in found] == [[3, 4], [5]]
    assert [event.name for event in _events(found[0])].count("marker commit") == 2


@pytest.mark.parametrize("until", [State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT])
def test_data_without_a_marker_belong_to_an_incomplete_transaction(until: State) -> None:
    life = Life(2)
    life.transaction(A)
    life.transaction(A, until=until)
    first, second = life.transactions()
    _assign([first, second], A, Data(7, 1, first_offset=4, first_time_ms=5, records=2))
    assert not first.data and bool(second.data) is (until is not State.COMPLETE_COMMIT)
    found = [event.where for event in _events(second) if event.name == "first batch"]
    assert found == ([] if until is State.COMPLETE_COMMIT else ["a/0 at 4 2 records"])


def test_records_that_compaction_has_left() -> None:
    """The last record alone: nothing is known of partitions."""
    life = Life(2)
    life.transaction(A)
    del life.steps[:-1]
    assert names(life) == ["complete commit"]
    (found,) = life.transactions()
    assert found.partitions == frozenset() and found.marker_epoch is None
