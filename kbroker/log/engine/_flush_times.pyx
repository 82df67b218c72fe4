# cython: language_level=3
"""How long logs took to get to the disk: Kafka's LogFlushRateAndTimeMs.

Every flush of a log that had something to sync counts once, with the time of its fdatasyncs: full
segments in the background, everything at a clean stop. One `FlushTimes` for the logs of a broker
(`LogManager.flush_times`). Any thread may wait for a disk, so several threads write, with locked
adds, and a flush takes milliseconds. A log may outlive its broker, so the figures are counted
references. `tick` and `read` hold the GIL and are called by one thread at a time.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kbroker.core._atomics cimport kb_add_i64
from kbroker.core._figures cimport (
    KB_TIME_BUCKETS,
    kb_figure,
    kb_time_bucket,
    kb_time_bucket_floor,
)
from kbroker.core._require cimport drop_reference, take_reference


cdef void flush_figures_acquire(FlushFigures* figures) noexcept nogil:
    take_reference(&figures.refs, "flush figures: one with a reference gets another")


cdef void flush_figures_release(FlushFigures* figures) noexcept nogil:
    if figures != NULL and drop_reference(
            &figures.refs, "flush figures: references are dropped once") == 0:
        free(figures)


cdef void flush_note(FlushFigures* figures, int64_t took_ns) noexcept nogil:
    if figures == NULL:
        return
    kb_add_i64(&figures.flushes, 1)
    kb_add_i64(&figures.flush_ns, took_ns)
    kb_add_i64(&figures.buckets[kb_time_bucket(took_ns)], 1)


cdef class FlushTimes:
    """What logs are counted in whose `count_flushes` was called with it."""

    def __cinit__(self):
        self.figures = <FlushFigures*>calloc(1, sizeof(FlushFigures))
        if self.figures == NULL:
            raise MemoryError
        self.figures.refs = 1

    def __dealloc__(self):
        flush_figures_release(self.figures)

    def tick(self, double keep):
        """Earlier flushes weigh `keep` of their weight; new ones weigh 1."""
        cdef int64_t now
        cdef int at
        for at in range(KB_TIME_BUCKETS):
            now = kb_figure(&self.figures.buckets[at])
            self.weights[at] = self.weights[at] * keep + <double>(now - self.buckets_before[at])
            self.buckets_before[at] = now

    def read(self, tuple quantiles not None):
        """(flushes, milliseconds together, quantiles in ms of those of late)."""
        cdef FlushFigures* figures = self.figures
        cdef double recent[KB_TIME_BUCKETS]
        cdef double total = 0
        cdef double below = 0
        cdef double wanted
        cdef int at
        for at in range(KB_TIME_BUCKETS):
            recent[at] = self.weights[at] + <double>(
                kb_figure(&figures.buckets[at]) - self.buckets_before[at])
            total += recent[at]
        found = []
        at = 0
        for quantile in quantiles:        # ascending
            wanted = <double>quantile * total
            while at < KB_TIME_BUCKETS - 1 and below + recent[at] < wanted:
                below += recent[at]
                at += 1
            middle_ns = (kb_time_bucket_floor(at) + kb_time_bucket_floor(at + 1)) / 2
            found.append(middle_ns / 1e6 if total > 0 else 0.0)
        return kb_figure(&figures.flushes), kb_figure(&figures.flush_ns) / 1e6, tuple(found)

    def histogram(self):
        """Counts since the start by bucket: (upper bound in ms, flushes), empty ones left out."""
        cdef int64_t* buckets = self.figures.buckets
        cdef int at
        return [
            (kb_time_bucket_floor(at + 1) / 1e6, kb_figure(&buckets[at]))
            for at in range(KB_TIME_BUCKETS) if kb_figure(&buckets[at]) > 0
        ]
