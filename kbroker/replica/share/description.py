"""One record of a share-partition, as its leader has it now: for `kbroker share explain`.

Pure; under the lock of the share-partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.replica.share.ranges import NO_OWNER, NONE
from kbroker.replica.share.states import CAUSES

if TYPE_CHECKING:
    from kbroker.replica.share.partition import SharePartition
    from kbroker.replica.share.states import Event

# Of an offset outside of the window; the other numbers are those of `State`.
BEFORE_WINDOW: Final = -3
AFTER_WINDOW: Final = -2


class Described(NamedTuple):
    """`first_offset` to `last_offset`: the offsets around it with the same state."""

    start: int
    end: int  # the last offset that was handed out; below the start: none is in flight
    state: int
    first_offset: int
    last_offset: int
    delivery_count: int = 0
    next_state: int = NONE  # which is being written
    owner: int = NO_OWNER  # the number of a session
    deadline_ms: int = 0  # of the owner's lock, on the monotonic clock
    cause: Event | None = None  # why it was given up, where a copy is to be written


def describe(partition: SharePartition, offset: int) -> Described:
    if offset < partition.start:
        return Described(partition.start, partition.end, BEFORE_WINDOW, offset, offset)
    if offset > partition.end:
        return Described(partition.start, partition.end, AFTER_WINDOW, offset, offset)
    each = partition.ranges.at(partition.ranges.find(offset))
    return Described(
        partition.start, partition.end, each.state, each.first, each.last, each.deliveries,
        each.target, each.owner, each.deadline_ms, CAUSES[each.cause],
    )  # fmt: skip
