"""Batches of a share-partition's state: those that were written last, over those that are kept.

Of two batches that overlap, each offset has the state with the higher delivery count, and of equal
counts the one with the higher number of state (Apache Kafka's rule: brokers of either kind find the
same state in one log). Neighbours with equal states and counts are one batch.

The kept batches are a list in the order of offsets. A write costs the batches that it touches and
two searches, whatever the list's length, beside the move of the list's tail. Pure; the list belongs
to its state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from kbroker.coordinator.share.images import DeliveryState, StateBatch

_last_offset: Final = attrgetter("last_offset")
_first_offset: Final = attrgetter("first_offset")
_DONE: Final = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


def prune(kept: list[StateBatch], start_offset: int) -> None:
    """Forget what is below the start."""
    at = bisect_left(kept, start_offset, key=_last_offset)
    del kept[:at]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)


def put(kept: list[StateBatch], batch: StateBatch) -> None:
    """This one over those that are kept."""
    # Those that overlap it, and the neighbours that may become one with it.
    begin = bisect_left(kept, batch.first_offset - 1, key=_last_offset)
    end = bisect_left(kept, batch.last_offset + 2, begin, key=_first_offset)
    if begin == end:
        kept.insert(begin, batch)
        return
    merged: list[StateBatch] = []
    at = batch.first_offset
    for each in kept[begin:end]:
        if each.last_offset < batch.first_offset or each.first_offset > batch.last_offset:
            if each.first_offset > batch.last_offset and at <= batch.last_offset:
                _add(merged, batch, at, batch.last_offset)
                at = batch.last_offset + 1
            _add(merged, each, each.first_offset, each.last_offset)
            continue
        if each.first_offset < at:
            _add(merged, each, each.first_offset, at - 1)
        elif each.first_offset > at:
            _add(merged, batch, at, each.first_offset - 1)
            at = each.first_offset
        last = min(each.last_offset, batch.last_offset)
        _add(merged, each if _rank(each) > _rank(batch) else batch, at, last)
        at = last + 1
        if each.last_offset > batch.last_offset:
            _add(merged, each, at, each.last_offset)
    if at <= batch.last_offset:
        _add(merged, batch, at, batch.last_offset)
    kept[begin:end] = merged


def join_done(kept: list[StateBatch]) -> None:
    """Make one batch of neighbours whose records are done with in the same way, whatever their
    delivery counts, which count no more. A leader has one range of them."""
    joined: list[StateBatch] = []
    for each in kept:
        before = joined[-1] if joined else None
        if (
            before is not None
            and each.state in _DONE
            and before.state == each.state
            and before.last_offset + 1 == each.first_offset
        ):
            count = max(before.delivery_count, each.delivery_count)
            joined[-1] = before._replace(last_offset=each.last_offset, delivery_count=count)
        else:
            joined.append(each)
    kept[:] = joined


def merge(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """These alone, in order and without what is below the start."""
    kept: list[StateBatch] = []
    for each in sorted(batches):  # each is put at the end
        put(kept, each)
    prune(kept, start_offset)
    return kept


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state


def _add(merged: list[StateBatch], of: StateBatch, first_offset: int, last_offset: int) -> None:
    """Offsets with the state of this one, after those that are there."""
    before = merged[-1] if merged else None
    if before is not None and before[2:] == of[2:] and before.last_offset + 1 == first_offset:
        merged[-1] = before._replace(last_offset=last_offset)
    else:
        merged.append(StateBatch(first_offset, last_offset, of.state, of.delivery_count))
