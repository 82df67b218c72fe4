# cython: language_level=3
"""The records of moves, appended; see _writes.pyx."""

from libc.stdint cimport int32_t, int64_t

from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.coordinator.txn._moves cimport TxnMove
from kbroker.core._arena cimport Arena
from kbroker.replica._partition cimport Partition


# The moves of one shard in a run.
cdef struct ShardMoves:
    Shard* shard
    TxnMove* first
    TxnMove* last


# The moves of a run by shard; RUN_REQUESTS_MAX of them at most, in the order in which they came.
cdef struct RunMoves:
    ShardMoves* shards
    int32_t count


# Room for them. -1: no memory.
cdef int moves_init(RunMoves* moves, Arena* arena) noexcept nogil
cdef void moves_add(RunMoves* moves, TxnMove* move) noexcept nogil

# Builds the records of a shard's moves and appends them, in one write; then each `fails` or has its
# leader epoch. The partition, with a reference, if readers wait there; else NULL.
cdef Partition* moves_write(
    ShardMoves* moves, int version, int64_t now_ms, Arena* arena) noexcept nogil
