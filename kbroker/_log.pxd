# cython: language_level=3
"""For units that hold requests: the partition behind a PartitionLog.

Take a reference with partition_acquire() before the object may go.
"""

from kbroker.log._partition cimport Partition


cdef class PartitionLog:
    cdef Partition* partition
    cdef readonly str directory
    cdef readonly str topic
    cdef readonly int index
    cdef readonly object topic_id
