# cython: language_level=3
"""The records of a run's transactions; see _txn_write.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.txn._writes cimport RunMoves
from kbroker.net._types cimport Request
from kbroker.replica._metadata_view cimport ViewTopic
from kbroker.replica._partition cimport Partition
from kbroker.replica._snapshot cimport Snapshot
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.engine.worker._context cimport HotWorker, TransactionHooks


# Partitions with readers that wait, each with a reference.
cdef struct TxnTouched:
    Partition** partitions
    int count
    int capacity


# The transactions that handlers serve without Python; NULL: Python serves all.
cdef TransactionHooks* transactions_of(HotWorker* worker) noexcept nogil
# As the coordinator's clock has it.
cdef int64_t transactions_now_ms(const TransactionHooks* hooks) noexcept nogil

# Of the published image, by which Python writes markers: a topic that is new there later counts as
# deleted. NULL: it does not have the topic, or Python alone knows.
cdef const ViewTopic* published_topic(
    HotWorker* worker, const uint8_t* name, int32_t length) noexcept nogil

# Room for so many. -1: no memory.
cdef int touched_init(HotWorker* worker, TxnTouched* touched, int capacity) noexcept nogil
# Takes over the reference.
cdef void touched_add(TxnTouched* touched, Partition* partition) noexcept nogil
cdef void touched_wake(
    HotWorker* worker, Snapshot* snapshot, TxnTouched* touched) noexcept nogil

# 1: its shard's log is slow, and another handler waits for that.
cdef int is_set_aside(HotWorker* worker, Request* request, Shard* shard) noexcept nogil

# All moves, shard by shard; then each `fails`, or is in the log.
cdef void txn_write(
    HotWorker* worker, RunMoves* moves, TxnTouched* touched, int64_t now_ms) noexcept nogil
