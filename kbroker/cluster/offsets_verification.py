"""Whether a partition of `__consumer_offsets` is in a producer's transaction (TxnOffsetCommit).

Place in the flow: the handler gives the partition of the group; the log answers by itself where the
transaction is open there, else it gives a guard, and the coordinator of the transactional id is
asked (`transaction_adds.py`). From version 5 of TxnOffsetCommit on the partition is added, where it
is missing. The batch is appended under the guard, which a marker that is written meanwhile ends;
it is let go of when `done` has returned.

Any thread that may wait for a log; `done` is called once, on this thread or on such another one: a
coordinator's answer may come on a loop. No lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.coordinator.txn.seams import at_once
from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.once import once
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cluster.transaction_adds import Done, Errors
    from kbroker.coordinator.txn.seams import OnWorker

NO_GUARD_NEEDED: Final = -1
# Of a batch that the group coordinator makes.
_NO_SEQUENCE: Final = -1
_SINCE_ADDED: Final = 5


class VerifiedLog(Protocol):
    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, bumps_epoch: bool
    ) -> tuple[ErrorCode, int]: ...

    def end_verification(self, producer_id: int, guard: int, *, refused: bool) -> None: ...


class Verify(Protocol):
    """`TransactionAdds.verify`."""

    def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: Done,
    ) -> None: ...


class OffsetsVerification:
    """See the head of this file; `Services.verify_offsets`."""

    def __init__(
        self,
        replica_of: Callable[[str, int], VerifiedLog | None],
        verify: Verify,
        is_enabled: Callable[[], bool],
        on_worker: OnWorker = at_once,
    ) -> None:
        """`is_enabled`: transaction.partition.verification.enable, which does not concern
        partitions that are added."""
        self._replica_of: Final = replica_of
        self._verify: Final = verify
        self._is_enabled: Final = is_enabled
        self._on_worker: Final = on_worker

    def __call__(
        self,
        partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        version: int,
        done: Callable[[ErrorCode, int], None],
    ) -> None:
        adds = version >= _SINCE_ADDED
        replica = self._replica_of(OFFSETS_TOPIC, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
            return
        if not adds and not self._is_enabled():
            done(ErrorCode.NONE, NO_GUARD_NEEDED)
            return
        code, guard = replica.begin_verification(
            producer_id, producer_epoch, _NO_SEQUENCE, bumps_epoch=adds
        )
        if code or not guard:
            done(code, guard)
            return
        name = TopicPartition(OFFSETS_TOPIC, partition)

        # Its batches are not numbered: one that comes again overtakes no other.
        let_go = once(partial(replica.end_verification, producer_id, guard, refused=True))
        thread = threading.get_ident()

        def verified(code: ErrorCode) -> None:
            try:
                done(code, guard)  # which appends it
            finally:
                let_go()

        def answered(errors: Errors) -> None:
            if threading.get_ident() == thread:
                verified(errors[name])
                return
            try:
                self._on_worker(name, partial(verified, errors[name]))
            except BaseException:
                let_go()
                done(ErrorCode.COORDINATOR_NOT_AVAILABLE, guard)  # which appends nothing
                raise

        try:
            self._verify(
                transactional_id,
                producer_id,
                producer_epoch,
                [name],
                adds=adds,
                done=answered,
            )
        except BaseException:
            let_go()
            raise
