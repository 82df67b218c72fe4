# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.replica._metadata_view cimport MetadataView, ViewTopic
from kbroker.replica._snapshot cimport SnapshotRegistry


cdef class ViewRow:
    cdef ViewTopic* topic         # NULL once a view has it
    cdef readonly str name
    cdef int filled               # partitions so far
    cdef tuple last_ids           # the last list of replicas, and its place
    cdef int64_t last_place
    cdef int _fill(self, object partition) except -1


cdef class TopicTable:
    cdef SnapshotRegistry* registry
    cdef MetadataView* published  # atomic; NULL: Python answers Metadata
    cdef MetadataView* _build(
        self, ViewTopic** added, int added_count, int gone_count, object brokers,
        str cluster_id,
    ) except NULL
