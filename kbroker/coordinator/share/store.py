"""ShareStateStore: the partitions of `__share_group_state` that this broker leads, and their logs.

    ShareCoordinator -> append, settled, offsets, prune

One round at a time writes to a partition, which its coordinator sees to, and nothing is written in
another term than it was decided in. Leadership and loading are the runtime's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.coordinator.runtime._shard_table import (
    ACTIVE,
    LOADING,
    ShardTable,
    Written,
    partition_for,
)
from kbroker.coordinator.runtime.store import CoordinatorStore
from kbroker.errors import ErrorCode
from kbroker.metadata.image import SHARE_STATE_TOPIC
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.runtime.store import Loader
    from kbroker.coordinator.share.coordinator import Record
    from kbroker.replica._replica import Replica

_ERRORS: Final = {ACTIVE: ErrorCode.NONE, LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class ShareStateStore(CoordinatorStore[Written]):
    """See the head of this file; the `ShareLog` of the coordinator."""

    def __init__(
        self,
        table: ShardTable,
        loader: Loader,
        replica_of: Callable[[str, int], Replica | None],
        node_id: int,
        again: Callable[[Callable[[], None]], object] = lambda call: None,
        delete_records: Callable[[TopicPartition, int], object] = lambda place, offset: None,
    ) -> None:
        """`delete_records` moves the start of a log forward."""
        super().__init__(
            SHARE_STATE_TOPIC,
            "share state",
            table,
            loader,
            partition_for,
            replica_of,
            node_id,
            again,
        )
        self._shards = table
        self._replica_at = replica_of
        self._delete_records = delete_records

    @property
    def partition_count(self) -> int:
        return self._shards.partition_count

    def partition_of(self, key: str) -> int:
        count = self._shards.partition_count
        return partition_for(key, count) if count else -1

    def term_of(self, partition: int) -> int:
        return self._shards.term(partition)

    def error_of(self, partition: int) -> ErrorCode:
        return _ERRORS.get(self._shards.shard_state(partition), ErrorCode.NOT_COORDINATOR)

    def offsets(self, partition: int) -> tuple[int, int]:
        replica = self._replica_at(SHARE_STATE_TOPIC, partition)
        return (0, 0) if replica is None else (replica.log_start_offset, replica.log_end_offset)

    def append(
        self,
        partition: int,
        term: int,
        records: Sequence[Record],
        in_log: Callable[[], object],
        done: Callable[[ErrorCode], object],
        timeout_ms: int,
    ) -> None:
        written = Written()
        code = self._shards.append(partition, records, written, term)
        if not code:
            in_log()
        self._shards.when_replicated(written, code, done, timeout_ms)

    def settled(self, key: str, done: Callable[[ErrorCode], object], timeout_ms: int) -> None:
        written = Written()
        code = self._shards.written_before(key, written)
        self._shards.when_replicated(written, code, done, timeout_ms)

    def prune(self, partition: int, offset: int, replicated_to: int) -> bool:
        replica = self._replica_at(SHARE_STATE_TOPIC, partition)
        if replica is None or replica.high_watermark < replicated_to:
            return False
        self._delete_records(TopicPartition(SHARE_STATE_TOPIC, partition), offset)
        return True
