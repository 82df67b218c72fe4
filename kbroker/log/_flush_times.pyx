# cython: language_level=3
"""How long logs took to get to the disk: Kafka's LogFlushRateAndTimeMs.

Every flush of a log that had something to sync counts once, with the time of its fdatasyncs: full
segments in the background, everything at a clean stop. One histogram for the process, since a disk
is waited for by whoever comes; several threads write, so with locked adds, and a flush takes
milliseconds. `tick` and `read` hold the GIL and are called by one thread at a time.
"""

from libc.stdint cimport int64_t

from kbroker._atomics cimport kb_add_i64
from kbroker._figures cimport (
    KB_TIME_BUCKETS,
    kb_figure,
    kb_time_bucket,
    kb_time_bucket_floor,
)

cdef int64_t flushes = 0
cdef int64_t flush_ns = 0
cdef int64_t buckets[KB_TIME_BUCKETS]
cdef int64_t buckets_before[KB_TIME_BUCKETS]
cdef double weights[KB_TIME_BUCKETS]


cdef void flush_note(int64_t took_ns) noexcept nogil:
    """A log was flushed; from any thread."""
    kb_add_i64(&flushes, 1)
    kb_add_i64(&flush_ns, took_ns)
    kb_add_i64(&buckets[kb_time_bucket(took_ns)], 1)


def tick(double keep):
    """What was counted before weighs `keep` of what it weighed; what is new weighs 1."""
    cdef int64_t now
    cdef int at
    for at in range(KB_TIME_BUCKETS):
        now = kb_figure(&buckets[at])
        weights[at] = weights[at] * keep + <double>(now - buckets_before[at])
        buckets_before[at] = now


def read(tuple quantiles not None):
    """(flushes, milliseconds together, quantiles in ms of those of late)."""
    cdef double recent[KB_TIME_BUCKETS]
    cdef double total = 0
    cdef double below = 0
    cdef double wanted
    cdef int at
    for at in range(KB_TIME_BUCKETS):
        recent[at] = weights[at] + <double>(kb_figure(&buckets[at]) - buckets_before[at])
        total += recent[at]
    found = []
    at = 0
    for quantile in quantiles:        # ascending
        wanted = <double>quantile * total
        while at < KB_TIME_BUCKETS - 1 and below + recent[at] < wanted:
            below += recent[at]
            at += 1
        found.append(
            (kb_time_bucket_floor(at) + kb_time_bucket_floor(at + 1)) / 2e6 if total > 0 else 0.0)
    return kb_figure(&flushes), kb_figure(&flush_ns) / 1e6, tuple(found)


def histogram():
    """Counts since the start by bucket: (upper bound in ms, flushes), empty ones left out."""
    cdef int at
    return [
        (kb_time_bucket_floor(at + 1) / 1e6, kb_figure(&buckets[at]))
        for at in range(KB_TIME_BUCKETS) if kb_figure(&buckets[at]) > 0
    ]
