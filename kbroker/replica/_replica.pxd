# cython: language_level=3
"""For units that hold requests: the C partition of a Replica.

Take a reference with partition_acquire() before the object may go.
"""

from kbroker.replica._partition cimport Partition


cdef class Replica:
    cdef Partition* partition
    cdef readonly object log      # the PartitionLog
