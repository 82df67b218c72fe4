"""Whether a partition of `__consumer_offsets` is in a producer's transaction (TxnOffsetCommit).

Place in the flow: the handler gives the partition of the group; the log answers by itself where the
transaction is open there, else it gives a guard, and the coordinator of the transactional id is
asked (`transaction_adds.py`). From version 5 of TxnOffsetCommit on the partition is added, where it
is missing. The batch is appended under the guard, which a marker that is written meanwhile ends;
it is let go of when `done` has returned.

Any thread; `done` is called once. No lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.errors import ErrorCode
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.once import once
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cluster.transaction_adds import Done, Errors

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
    ) -> None:
        """`is_enabled`: transaction.partition.verification.enable, which does not concern
        partitions that are added."""
        self._replica_of: Final = replica_of
        self._verify: Final = verify
        self._is_enabled: Final = is_enabled

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

        def verified(errors: Errors) -> None:
            try:
                done(errors[name], guard)  # which appends it
            finally:
                let_go()

        try:
            self._verify(
                transactional_id,
                producer_id,
                producer_epoch,
                [name],
                adds=adds,
                done=verified,
            )
        except BaseException:
            let_go()
            raise
