# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.coordinator.runtime._structs cimport Appended, Shard, Shards
from kbroker.replica._replica cimport Replica


cdef class Written:
    cdef Appended appended
    cdef Replica replica          # None: there is nothing to wait for


cdef class ShardTable:
    cdef Shards* shards
    cdef dict replicas            # partition: Replica, for the listener
    cdef object open_transactions  # OpenTransactions: records without a marker yet
    cdef object listener          # runtime/machine.LogListener, or None
    cdef Shard* _shard(self, int partition) except NULL
    cdef Shard* _shard_of(self, str key)
    cdef int _written(
        self, Shard* shard, int error, const Appended* appended, Written written) except? -2
    cdef int64_t _shift_ms(self) noexcept nogil
    cdef _change(self, int partition, int state, Replica replica, int64_t wait_ms)
