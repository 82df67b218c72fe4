# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.coordinator.group._structs cimport GroupShard
from kbroker.coordinator.runtime._shard_table cimport ShardTable


cdef class GroupTable(ShardTable):
    cdef int64_t metadata_bytes_max  # of an offset: offset.metadata.max.bytes
    cdef dict transaction_locks      # by partition: from an append to the note of it
    cdef GroupShard* _group_shard(self, int partition) except NULL
    cdef GroupShard* _group_shard_of(self, str group_id)
    cdef int _index_of(self, str group_id) except? -1
    cdef list _copied(
        self, int partition, str group_id=*, bytes topic=*, tuple expired=*)
