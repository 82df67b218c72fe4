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
    # On the monotonic clock: of the owner's lock; of a delayed record, when a member may have it.
    deadline_ms: int = 0
    cause: Event | None = None  # why it was given up, where a copy is to be written
    delayed: int = 0  # offsets of the window that wait for their time
    done: int = 0  # and those that are done with


def describe(partition: SharePartition, offset: int) -> Described:
    if offset < partition.start:
        return _outside(partition, BEFORE_WINDOW, offset)
    if offset > partition.end:
        return _outside(partition, AFTER_WINDOW, offset)
    each = partition.ranges.at(partition.ranges.find(offset))
    return Described(
        partition.start, partition.end, each.state, each.first, each.last, each.deliveries,
        each.target, each.owner, each.deadline_ms, CAUSES[each.cause],
        partition.delayed, partition.terminal,
    )  # fmt: skip


def _outside(partition: SharePartition, state: int, offset: int) -> Described:
    return Described(
        partition.start, partition.end, state, offset, offset, delayed=partition.delayed,
        done=partition.terminal,
    )  # fmt: skip
