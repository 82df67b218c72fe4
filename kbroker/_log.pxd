# cython: language_level=3
"""For units that hold requests, and the replica: the C log of a LocalLog.

Take a reference with log_acquire() before the object may go.
"""

from kbroker.log.engine._storage cimport Log


cdef class LocalLog:
    cdef Log* storage
    cdef readonly str directory
    cdef readonly str topic
    cdef readonly int index
    cdef readonly object topic_id
