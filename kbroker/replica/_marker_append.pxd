# cython: language_level=3
"""The append of a marker, for Python."""

from libc.stdint cimport int16_t, int64_t

from kbroker.log.engine._types cimport Marker
from kbroker.replica._partition cimport Partition

# A MarkerAppended. Without a time (-1) it has that of the wall clock.
cdef object marker_append(
    Partition* partition, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t now_ms)
