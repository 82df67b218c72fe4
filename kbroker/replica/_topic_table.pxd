# cython: language_level=3
from kbroker.replica._snapshot cimport SnapshotRegistry


cdef class TopicTable:
    cdef SnapshotRegistry* registry
