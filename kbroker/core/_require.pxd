# cython: language_level=3
"""Invariants that every build checks, at the borders of units; see _require.pyx.

    require_same(watch.next.previous, watch, "watch: the next one names it as previous")
    require(handlers >= 0, "in Python: handlers that are there", handlers, 0)
    if not require_of(OF_CONNECTION, channel.connection_id, NULL, sent <= total, ...):
        channel_close(channel)

The text names the unit and the invariant, and is the site's name: no two sites have the same one.
Of the two numbers the first is what was found, the second what was required of it.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_add_int

cdef extern from "require.h" nogil:
    int kb_likely(int condition)
    void kb_process_has_ended()


# The smallest part that holds the wrong value, and cannot be trusted any more.
cdef enum RequireOf:
    OF_CONNECTION = 0             # the caller closes it
    OF_PARTITION = 1              # the caller takes its log offline
    OF_PROCESS = 2                # what several share: the process ends here, with a core
    OF_COUNT = 3                  # only the number: the caller corrects it
    REQUIRE_KINDS = 4

# Counts it and writes a line that names it, the site and the two numbers. 0; not OF_PROCESS, which
# does not return. `name` may be NULL. Any thread, with or without locks.
cdef int require_failed(
    int of, int64_t number, const char* name, const char* text, int64_t found, int64_t required
) noexcept nogil


# 1 where it holds. 0: it is counted and reported, and the caller ends what it is of.
cdef inline int require_of(
    int of, int64_t number, const char* name, int holds, const char* text, int64_t found,
    int64_t required
) noexcept nogil:
    if kb_likely(holds):
        return 1
    return require_failed(of, number, name, text, found, required)


# For structures that connections or partitions share: lists, tables, counts of references, arenas,
# the queue.
cdef inline void require(
    int holds, const char* text, int64_t found, int64_t required
) noexcept nogil:
    if not kb_likely(holds):
        require_failed(OF_PROCESS, -1, NULL, text, found, required)
        kb_process_has_ended()


# A count that nothing relies on but a bound or a metric, as it is from now on: 0 where it was
# below. Not for references, places in a table, or counts that free something.
cdef inline int64_t require_count(int64_t count, const char* text) noexcept nogil:
    if kb_likely(count >= 0):
        return count
    require_failed(OF_COUNT, -1, NULL, text, count, 0)
    return 0


# `require` of two pointers: what a neighbour in a list says of this one.
cdef inline void require_same(
    const void* found, const void* required, const char* text
) noexcept nogil:
    require(found == required, text, <int64_t>found, <int64_t>required)


# One more reference to something that has one already.
cdef inline void take_reference(int* refs, const char* text) noexcept nogil:
    cdef int now = kb_add_int(refs, 1)
    require(now > 1, text, now, 2)


# How many are left; at 0 the caller frees it.
cdef inline int drop_reference(int* refs, const char* text) noexcept nogil:
    cdef int left = kb_add_int(refs, -1)
    require(left >= 0, text, left, 0)
    return left
