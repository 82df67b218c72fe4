"""TransactionStore: transactional ids, written to `__transaction_state` by its partitions' leader.

    TransactionCoordinator -> write, forget: one batch each, appended with acks=-1

An id has one write at a time, which its coordinator sees to, and nothing is written in another term
of a partition than it was decided in. So the order of records is that of the decisions, and no
entry for each id is needed here. Leadership and loading are the runtime's.

A write that hangs has one thread. Others for its partition are refused with
COORDINATOR_NOT_AVAILABLE, once it has lasted for PATIENCE_MS: a client comes again, and so does
what the coordinator writes of its own. So ids of other partitions have threads left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime._shard_table import (
    LOADING,
    ShardTable,
    Written,
    partition_for,
)
from kbroker.coordinator.runtime.store import CoordinatorStore
from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.records import encode_key, value_version
from kbroker.errors import ErrorCode
from kbroker.metadata.image import TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.store import Loader
    from kbroker.coordinator.txn.image import TransactionImage
    from kbroker.coordinator.txn.seams import Done
    from kbroker.replica._replica import Replica

NO_TERM: Final = -1
NO_EPOCH: Final = -1
PATIENCE_MS: Final = 1_000


class TransactionStore(CoordinatorStore[Written]):
    """See the head of this file."""

    def __init__(
        self,
        table: ShardTable,
        loader: Loader,
        replica_of: Callable[[str, int], Replica | None],
        node_id: int,
        level: Callable[[], int],
        again: Callable[[Callable[[], None]], object] = lambda call: None,
    ) -> None:
        """`level` is that of transaction.version, by which values are encoded."""
        super().__init__(
            TRANSACTIONS_TOPIC,
            "transactions",
            table,
            loader,
            partition_for,
            replica_of,
            node_id,
            again,
        )
        self._ids = table
        self._replica_at = replica_of
        self._level = level

    @property
    def is_loading(self) -> bool:
        states = map(self._ids.shard_state, range(self._ids.partition_count))
        return LOADING in states

    def partition_of(self, transactional_id: str) -> int:
        count = self._ids.partition_count
        return partition_for(transactional_id, count) if count else -1

    def term_of(self, transactional_id: str) -> int:
        partition = self.partition_of(transactional_id)
        return NO_TERM if partition < 0 else self._ids.term(partition)

    def coordinator_epoch(self, transactional_id: str, term: int) -> int:
        replica = self._replica_at(TRANSACTIONS_TOPIC, self.partition_of(transactional_id))
        epoch = NO_EPOCH if replica is None else replica.leader_epoch
        # These come after it: a partition that is lost is not active any more before its replica
        # follows, also where a write keeps it in its term.
        is_ours = self.term_of(transactional_id) == term and not self.state_of(transactional_id)
        return epoch if is_ours else NO_EPOCH

    def write(self, transactional_id: str, term: int, image: TransactionImage, done: Done) -> None:
        """Append the id's record; `done` is called once, without any lock held."""
        value = encode_value(image, value_version(self._level()))
        records = [(encode_key(transactional_id), value)]
        self._append(self.partition_of(transactional_id), records, term, done, image.timeout_ms)

    def forget(self, transactional_ids: Sequence[str], term: int, done: Done) -> None:
        """Append tombstones for ids of one partition."""
        records = [(encode_key(each), None) for each in transactional_ids]
        self._append(self.partition_of(transactional_ids[0]), records, term, done, None)

    def _append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        term: int,
        done: Done,
        timeout_ms: int | None,
    ) -> None:
        if partition < 0 or term < 0:
            done(ErrorCode.NOT_COORDINATOR)
            return
        written = Written()
        code = self._ids.append(partition, records, written, term, PATIENCE_MS)
        self._ids.when_replicated(written, code, done, timeout_ms)
