# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.coordinator.group._structs cimport Appended, GroupShards, Shard
from kbroker.replica._replica cimport Replica
from kbroker.coordinator.group._writing cimport Committer


cdef class Written:
    cdef Appended appended
    cdef Replica replica          # None: nobody has to wait


cdef class GroupTable:
    cdef GroupShards* shards
    cdef dict replicas            # partition: Replica, for the listener
    cdef dict open_transactions   # (partition, producer id): records without a marker yet
    cdef object listener          # runtime/machine.LogListener, or None
    cdef int64_t metadata_bytes_max  # of an offset: offset.metadata.max.bytes
    cdef Shard* _shard(self, int partition) except NULL
    cdef Shard* _shard_of(self, str group_id)
    cdef int _append(
        self, Shard* shard, list pairs, list topic_ids, Written written,
        const Committer* committer) except? -2
    cdef int _written(
        self, Shard* shard, int error, const Appended* appended, Written written) except? -2
    cdef int64_t _shift_ms(self) noexcept nogil
    cdef int _index_of(self, str group_id) except? -1
    cdef list _copied(
        self, int partition, str group_id=*, bytes topic=*, tuple expired=*)
    cdef _change(self, int partition, int state, Replica replica, int64_t wait_ms)
