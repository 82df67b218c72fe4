# cython: language_level=3
"""What every flush of a broker's logs is counted in; see _flush_times.pyx."""

from libc.stdint cimport int64_t

from kbroker.core._figures cimport KB_TIME_BUCKETS


cdef struct FlushFigures:
    int refs                      # atomic: one for the object, one for every log
    int64_t flushes               # atomic, as are the two below
    int64_t flush_ns
    int64_t buckets[KB_TIME_BUCKETS]


cdef void flush_figures_acquire(FlushFigures* figures) noexcept nogil
cdef void flush_figures_release(FlushFigures* figures) noexcept nogil       # NULL is none
# A log was flushed; from any thread. NULL: not counted.
cdef void flush_note(FlushFigures* figures, int64_t took_ns) noexcept nogil


cdef class FlushTimes:
    cdef FlushFigures* figures
    cdef int64_t buckets_before[KB_TIME_BUCKETS]
    cdef double weights[KB_TIME_BUCKETS]
