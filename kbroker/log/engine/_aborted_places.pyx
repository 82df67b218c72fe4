# cython: language_level=3
"""Where fetches have found their first entries in an index of aborted transactions.

A consumer that goes on needs the entries from its last one on, and mostly none at all: between two
aborted transactions nothing is to be read. Four places an index are kept, for as many consumers in
different parts of the segment; each goes on with the place that it used. What a place says stays
true when entries are added. Entries are dropped only from the index of a segment that another one
replaces, and the new one has no places.

Threads: any, without the log's lock. A thread that meets another one here does without a place.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc

from kbroker.core._atomics cimport kb_cas_int, kb_store_int
from kbroker.log.engine._aborted_index cimport AbortedIndex, AbortedPlace, AbortedPlaces

cdef enum:
    PLACES = 4                    # as many as AbortedPlaces has
    SAME_READER_ENTRIES = 64      # a place that is nearer is the one that this fetch used


cdef AbortedPlace* nearest(AbortedIndex* index, int64_t offset) noexcept nogil:
    # NULL: there is none.
    cdef AbortedPlace* found = NULL
    cdef AbortedPlace* place
    cdef int i
    for i in range(PLACES):
        place = &index.places.places[i]
        if place.offset <= offset and (found == NULL or place.offset > found.offset):
            found = place
    return found


cdef int aborted_place(AbortedIndex* index, int64_t offset, AbortedPlace* place) noexcept nogil:
    cdef AbortedPlace* found = NULL
    if not kb_cas_int(&index.places_busy, 0, 1):
        return 0
    if index.places != NULL:
        found = nearest(index, offset)
    if found != NULL:
        place[0] = found[0]
    kb_store_int(&index.places_busy, 0)
    return found != NULL


cdef void aborted_note_place(AbortedIndex* index, const AbortedPlace* place) noexcept nogil:
    cdef AbortedPlace* target = NULL
    if not kb_cas_int(&index.places_busy, 0, 1):
        return
    if index.places == NULL:
        index.places = <AbortedPlaces*>calloc(1, sizeof(AbortedPlaces))
    if index.places != NULL:
        target = nearest(index, place.offset)
        if target == NULL or place.first - target.first > SAME_READER_ENTRIES:
            target = &index.places.places[index.places.next]
            index.places.next = (index.places.next + 1) % PLACES
        target[0] = place[0]
    kb_store_int(&index.places_busy, 0)
