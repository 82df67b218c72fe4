"""Writes of a share-partition's state, and the offsets in one. Values and pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StoredBatch(NamedTuple):
    """Offsets as the share coordinator keeps them; both ends included."""

    first_offset: int
    last_offset: int
    state: int  # AVAILABLE, ACKNOWLEDGED, ARCHIVING or ARCHIVED
    delivery_count: int


class Write(NamedTuple):
    """What the share coordinator is to keep from now on."""

    start_offset: int
    batches: tuple[StoredBatch, ...]
    # Offsets from the start to the end that are acknowledged or archived with this write.
    complete: int


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, without overlaps."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def add(batches: list[StoredBatch], batch: StoredBatch) -> None:
    """To the last one, where it goes on with the same state and count."""
    if batches:
        before = batches[-1]
        if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            batches[-1] = before._replace(last_offset=batch.last_offset)
            return
    batches.append(batch)
