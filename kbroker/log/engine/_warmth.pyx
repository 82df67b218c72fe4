# cython: language_level=3
"""Whether a slice older than the recent tail is in memory, or its sender would wait for the disk.

The tail was written a moment ago and is not asked for. Of the rest the kernel is asked once for a
stretch of LOOK_BYTES, and the answer counts for a second, so that one who reads through a log asks
about once in four megabytes. It is a hint: a page may have left memory when it is sent, and then
the sender waits for it.

The stretches are the log's, under the log's lock; the kernel is asked without it.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc

from kbroker.core._sync cimport kb_now_ns
from kbroker.log.engine._storage cimport (
    WARM_STRETCHES, Log, WarmStretch, lock_to_look_if, log_has_segment, unlock_log)

cdef extern from "page_cache.h" nogil:
    int kb_in_page_cache(int fd, int64_t position, int64_t length)

cdef enum:
    LOOK_BYTES = 4 << 20
    WARM_NS = 1000000000


cdef int _is_known_warm(
    Log* log, const FileSlice* slice, int64_t now_ns, Patience patience
) noexcept nogil:
    cdef WarmStretch* stretch
    cdef int known = 0
    cdef int at
    if not lock_to_look_if(log, patience):
        return 0
    if log.warm != NULL:
        for at in range(WARM_STRETCHES):
            stretch = &log.warm[at]
            known |= (stretch.segment_base == slice.segment.base_offset
                      and stretch.start <= slice.position
                      and slice.position + slice.length <= stretch.end
                      and now_ns < stretch.until_ns)
    unlock_log(log)
    return known


cdef void _note_warm(
    Log* log, const FileSlice* slice, int64_t end, int64_t now_ns, Patience patience
) noexcept nogil:
    cdef WarmStretch* stretch
    if not lock_to_look_if(log, patience):
        return                    # then the kernel is asked once more
    if log.warm == NULL:
        log.warm = <WarmStretch*>calloc(WARM_STRETCHES, sizeof(WarmStretch))
    if log.warm != NULL and log_has_segment(log, slice.segment):
        stretch = &log.warm[log.warm_next]
        stretch.segment_base = slice.segment.base_offset
        stretch.start = slice.position
        stretch.end = end
        stretch.until_ns = now_ns + WARM_NS
        log.warm_next = (log.warm_next + 1) % WARM_STRETCHES
    unlock_log(log)


cdef void look_whether_cold(
    Log* log, FileSlice* slice, int64_t limit, Patience patience
) noexcept nogil:
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t end = min(limit, slice.position + max(slice.length, <int64_t>LOOK_BYTES))
    if _is_known_warm(log, slice, now_ns, patience):
        return
    if kb_in_page_cache(slice.fd, slice.position, end - slice.position):
        _note_warm(log, slice, end, now_ns, patience)
    else:
        slice.cold = not kb_in_page_cache(slice.fd, slice.position, slice.length)
