"""Batches over batches, beside a dictionary with one entry for each offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.share.batches import merge, prune, put
from kbroker.coordinator.share.images import StateBatch

Offsets = dict[int, tuple[int, int]]  # delivery count and state

offsets = st.integers(0, 30)
batches = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    offsets,
    st.integers(0, 8),
    st.sampled_from([0, 2, 4]),
    st.integers(0, 3),
)


def over(known: Offsets, batch: StateBatch) -> None:
    rank = (batch.delivery_count, batch.state)
    for offset in range(batch.first_offset, batch.last_offset + 1):
        known[offset] = max(known.get(offset, rank), rank)


def stated(kept: list[StateBatch]) -> Offsets:
    found: Offsets = {}
    for each in kept:
        for offset in range(each.first_offset, each.last_offset + 1):
            assert offset not in found
            found[offset] = (each.delivery_count, each.state)
    return found


def assert_in_order(kept: list[StateBatch]) -> None:
    for before, after in pairwise(kept):
        assert before.last_offset < after.first_offset
        touches = before.last_offset + 1 == after.first_offset
        assert not (touches and before[2:] == after[2:])


@given(st.lists(batches, max_size=25))
def test_each_offset_has_the_highest_count_and_then_state(written: list[StateBatch]) -> None:
    kept: list[StateBatch] = []
    known: Offsets = {}
    for each in written:
        put(kept, each)
        over(known, each)
        assert stated(kept) == known
        assert_in_order(kept)


@given(st.lists(batches, max_size=25), st.integers(-1, 45))
def test_offsets_below_the_start_are_forgotten(written: list[StateBatch], start: int) -> None:
    known: Offsets = {}
    for each in written:
        over(known, each)
    kept = merge(written, start)
    assert stated(kept) == {offset: rank for offset, rank in known.items() if offset >= start}
    assert_in_order(kept)
    prune(kept, start)
    assert stated(kept) == {offset: rank for offset, rank in known.items() if offset >= start}


def test_a_batch_between_others_joins_them() -> None:
    kept = merge([StateBatch(0, 4, 2, 1), StateBatch(10, 14, 2, 1)], -1)
    put(kept, StateBatch(5, 9, 2, 1))
    assert kept == [StateBatch(0, 14, 2, 1)]
    put(kept, StateBatch(6, 7, 0, 2))
    assert kept == [StateBatch(0, 5, 2, 1), StateBatch(6, 7, 0, 2), StateBatch(8, 14, 2, 1)]


def test_a_lower_count_changes_nothing() -> None:
    kept = [StateBatch(0, 9, 0, 2)]
    put(kept, StateBatch(0, 9, 4, 1))
    assert kept == [StateBatch(0, 9, 0, 2)]
