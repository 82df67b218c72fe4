# cython: language_level=3
"""Counts with one writer, and histograms of times, of native/figures.h; inline, no module."""

from libc.stdint cimport int64_t

cdef extern from "figures.h" nogil:
    enum:
        KB_TIME_BUCKETS
    void kb_count(int64_t* figure, int64_t n)
    int64_t kb_figure(const int64_t* figure)
    int kb_time_bucket(int64_t ns)
    int64_t kb_time_bucket_floor(int bucket)
