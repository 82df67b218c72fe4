"""What is asked of the share coordinator about one share-partition, free of versions and bytes.

The handlers make these from requests, the persister sends them, here or to another broker. The
answers are those of `seams.py`. Immutable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.coordinator.share.images import NO_COUNT, SharePartition, StateBatch
from kbroker.coordinator.share.seams import Outcome, ReadState, Summary
from kbroker.errors import ErrorCode


class Initialize(NamedTuple):
    key: SharePartition
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    key: SharePartition
    leader_epoch: int


class Write(NamedTuple):
    key: SharePartition
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int = NO_COUNT
    # The writer's run, and the place of the write among all of that run; 0: it is no kbroker.
    run: int = 0
    number: int = 0


class Delete(NamedTuple):
    key: SharePartition


class Summarize(NamedTuple):
    key: SharePartition
    leader_epoch: int


class Forget(NamedTuple):
    """The coordinator's own: its topic is no more."""

    key: SharePartition


class Renew(NamedTuple):
    """The coordinator's own: another snapshot of a state that nothing was written to for long, so
    that the log before it may go. Nothing is done where one was written since."""

    key: SharePartition
    before_ms: int  # wall clock


Asked = Initialize | Read | Write | Delete | Summarize | Forget | Renew
Answer = Outcome | ReadState | Summary
# Of each kind: `Outcome`, but `ReadState` of a Read and `Summary` of a Summarize.
Done = Callable[[Answer], object]


def failed(asked: Asked, code: ErrorCode, message: str | None = None) -> Answer:
    """The answer that it was not done."""
    if isinstance(asked, Read):
        return ReadState(code, message)
    if isinstance(asked, Summarize):
        return Summary(code, message)
    return Outcome(code, message)


def full(asked: Asked) -> Answer:
    """The answer that there is no room for it."""
    words = "too much waits for the share coordinator; try again later"
    return failed(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE, words)._replace(is_full=True)


def room_for(asked: Asked, waiting_max: int) -> int:
    """How many may wait before this one. Summaries are for tools: they leave half of the room to
    what the members of groups wait for."""
    return waiting_max // 2 if isinstance(asked, Summarize) else waiting_max
