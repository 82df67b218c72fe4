"""Transactions in C, for a hot path whose broker coordinates some; see _transactions.pyx."""

from typing_extensions import disjoint_base

from kbroker.coordinator.runtime._shard_table import ShardTable
from kbroker.coordinator.txn._ids import TransactionalIds
from kbroker.engine._hot import HotPath

@disjoint_base
class HotTransactions:
    """The hot path serves the ids of this table from now on, as long as it lives; once.

    `epoch_max`: the last epoch of a producer id. `value_version`: of the records it writes.
    """

    def __init__(
        self,
        hot: HotPath,
        table: ShardTable,
        ids: TransactionalIds,
        *,
        epoch_max: int,
        value_version: int,
    ) -> None: ...
    def follow_version(self, value_version: int) -> None:
        """Of the records from now on."""

    def serve(self, serves: bool) -> None:
        """False: Python serves all of it from now on; what is under way is finished."""
