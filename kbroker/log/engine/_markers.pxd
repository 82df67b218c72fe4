# cython: language_level=3
"""The control batch that ends a transaction."""

from libc.stdint cimport int16_t, int64_t, uint8_t

from kbroker.log.engine._records cimport HEADER_BYTES, Header
from kbroker.log.engine._types cimport Batch, Marker

cdef enum:
    MARKER_RECORD_BYTES = 17
    MARKER_BYTES = HEADER_BYTES + MARKER_RECORD_BYTES
    # No more of its records is looked at, by those who have all of them either: a later version
    # may hold more after what is known.
    MARKER_RECORD_BYTES_MAX = 256


# The batch in MARKER_BYTES of memory, but for its offset and leader epoch, to be appended as with
# acks=-1. It lives as long as the memory and the marker.
cdef void marker_prepare(
    Batch* batch, uint8_t* data, int64_t producer_id, int16_t producer_epoch, const Marker* marker,
    int64_t timestamp_ms) noexcept nogil

# Whether a batch may be one, by its header: then its records are to be read.
cdef inline int may_be_marker(const Header* header) noexcept nogil:
    return (header.attributes & 0x30) == 0x30 and header.producer_id >= 0

# From so many bytes of its records, all or the first of them. 0: it has none, which compaction
# leaves, or no marker's.
cdef int marker_read(
    const Header* header, const uint8_t* records, int64_t length, Marker* marker) noexcept nogil
