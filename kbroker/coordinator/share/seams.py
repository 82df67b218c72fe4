"""What the leaders of share-partitions, and share groups, ask of the share coordinator.

    ShareFetch, ShareAcknowledge -> leader of the share-partition -+
    ShareGroupHeartbeat, offsets -> group coordinator -------------+-> Persister -> coordinator

The coordinator of a share-partition is the leader of its partition of `__share_group_state`; the
persister finds it, here or at another broker. Requests that wait for one coordinator leave
together.

Every call returns at once: it waits for no disk and no socket, nor for a lock that is held over
either. Its `done` is called exactly once, with no lock of the persister held, on any thread: also
on the one that calls, before the call returns. So call without a lock that `done` takes. `done`
must not wait.

Calls for one share-partition are done in the order in which they were made, also where the first
has to be tried again; those for different ones in any order. So an older write never comes after a
later one of the same leader.

A coordinator that cannot be reached, is loading or has just moved is asked again, until the time of
a call is over. Then `code` is the last error: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or
COORDINATOR_LOAD_IN_PROGRESS; NETWORK_EXCEPTION or REQUEST_TIMED_OUT where it is not known what
became of the request. The queue has a bound; a call beyond it is answered at once, with
COORDINATOR_NOT_AVAILABLE and `is_full`. Other errors are the coordinator's answer, and are not
tried again:

    FENCED_LEADER_EPOCH         another broker leads the share-partition, in a later epoch
    FENCED_STATE_EPOCH          the group has initialised the state again (offsets were altered)
    INVALID_REQUEST             there is no such state: it was not initialised, or was deleted; or
                                the request makes no sense
    UNKNOWN_TOPIC_OR_PARTITION  the topic is no more
    POLICY_VIOLATION            of a state that is to begin: there are as many as there may be
    CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR

After any error of a write the leader does not know what is kept, until it has read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kbroker.coordinator.share.images import NO_COUNT, NO_START, SharePartition, StateBatch
from kbroker.errors import ErrorCode


class Outcome(NamedTuple):
    """Of initialize, write and delete."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    is_full: bool = False  # the queue was: nothing was sent


class ReadState(NamedTuple):
    """The state as it is kept. `batches` are in order, do not overlap, and have nothing below the
    start."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = NO_START
    batches: tuple[StateBatch, ...] = ()
    is_full: bool = False


class Summary(NamedTuple):
    """As `ReadState`, without batches."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START
    # Offsets from the start on that are done; NO_COUNT: not known.
    delivery_complete_count: int = NO_COUNT
    is_full: bool = False


class Persister(Protocol):
    """See the head of this file. One for each broker; any thread."""

    def initialize(
        self,
        key: SharePartition,
        state_epoch: int,
        start_offset: int,
        done: Callable[[Outcome], object],
    ) -> None:
        """There is a state from now on, with this start and no batches (InitializeShareGroupState).

        `state_epoch`: the group's epoch. A state that is there begins again, which fences leaders
        that write with an older epoch; one of a higher epoch stays (FENCED_STATE_EPOCH). The group
        calls this, not the leader."""
        ...

    def read(
        self, key: SharePartition, leader_epoch: int, done: Callable[[ReadState], object]
    ) -> None:
        """The whole state, for the broker that leads the share-partition in this epoch
        (ReadShareGroupState). Leaders of earlier epochs are fenced from now on: their reads and
        writes are refused. A leader reads before it writes: a write fences no other."""
        ...

    def write(
        self,
        key: SharePartition,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        done: Callable[[Outcome], object],
        *,
        delivery_complete_count: int = NO_COUNT,
    ) -> None:
        """Put these batches over what is kept, and the start (WriteShareGroupState).

        `start_offset`: NO_START leaves it as it is; else it becomes this, and what is kept below it
        is forgotten. `batches`: those that have changed. Where one meets what is kept, each offset
        has the state with the higher delivery count, and of equal counts the higher state, as in
        Apache Kafka: a count never falls. `delivery_complete_count`: all offsets from the new start
        on that are acknowledged or archived; NO_COUNT: from now on it is not known.

        `done` with NONE: the in-sync replicas of the state topic have it."""
        ...

    def delete(self, key: SharePartition, done: Callable[[Outcome], object]) -> None:
        """There is no state any more (DeleteShareGroupState). NONE also where there was none."""
        ...

    def summary(
        self, key: SharePartition, leader_epoch: int, done: Callable[[Summary], object]
    ) -> None:
        """The start and the epochs (ReadShareGroupStateSummary), for any broker. It fences no
        leader, and `leader_epoch` is not compared."""
        ...
