# cython: language_level=3
"""Transactions in C, for a hot path whose broker coordinates some: `HotTransactions`.

Until it is made, AddPartitionsToTxn, EndTxn and produces that begin a transaction go to Python, and
nothing of this is imported: `TransactionHooks` in the hot path's context has the functions. It
lives as long as the hot path. Made by one thread; any may call `serve` and `follow_version`.
"""

from kbroker.coordinator.runtime._shard_table cimport ShardTable
from kbroker.coordinator.txn._ids cimport TransactionalIds
from kbroker.core._atomics cimport kb_store_int, kb_store_ptr
from kbroker.engine._hot cimport HotPath
from kbroker.engine.apis._add_partitions cimport add_partitions_run
from kbroker.engine.apis._end_txn cimport end_txn_run
from kbroker.engine.apis._produce_join cimport produce_join, produce_verify_here
from kbroker.engine.worker._context cimport TransactionHooks


cdef class HotTransactions:
    """See _transactions.pyi."""

    cdef TransactionHooks hooks
    cdef ShardTable table
    cdef TransactionalIds ids

    def __init__(
        self, HotPath hot not None, ShardTable table not None, TransactionalIds ids not None, *,
        int epoch_max, int value_version,
    ):
        self.table = table
        self.ids = ids
        self.hooks.shards = table.shards
        self.hooks.ids = &ids.ids
        self.hooks.epoch_max = epoch_max
        self.hooks.value_version = value_version
        self.hooks.serves = 1
        self.hooks.add_partitions_run = add_partitions_run
        self.hooks.end_txn_run = end_txn_run
        self.hooks.produce_verify = produce_verify_here
        self.hooks.produce_join = produce_join
        hot.transactions = self
        kb_store_ptr(<void**>&hot.context.transactions, &self.hooks)

    def follow_version(self, int value_version):
        kb_store_int(&self.hooks.value_version, value_version)

    def serve(self, bint serves):
        kb_store_int(&self.hooks.serves, serves)
