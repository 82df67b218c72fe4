# cython: language_level=3
"""The partitions of a transaction; see _places.pyx."""

from libc.stdint cimport int32_t, uint8_t

from kbroker.coordinator.txn._structs cimport Places


# One of them, as a request or a record names it; the topic's name is in that.
cdef struct Place:
    const uint8_t* topic
    int32_t topic_length
    int32_t index


# A walk over all of them, in their order.
cdef struct PlacesWalk:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* topic
    int32_t topic_length
    int32_t left                  # of the topic's partitions


cdef inline const uint8_t* places_list(const Places* places) noexcept nogil:
    return <const uint8_t*>places + sizeof(Places)

# By name and number, each once; how many these are.
cdef int32_t places_sort(Place* places, int32_t count) noexcept nogil
# Of sorted ones; none is NULL as well. -1: no memory.
cdef int places_new(const Place* sorted, int32_t count, Places** made) noexcept nogil
cdef void places_free(Places* places) noexcept nogil

# Whether all of these sorted ones are among them. NULL: there are none.
cdef int places_hold(const Places* places, const Place* sorted, int32_t count) noexcept nogil
# These sorted ones, too: a new list. -1: no memory.
cdef int places_join(
    const Places* places, const Place* sorted, int32_t count, Places** made) noexcept nogil

cdef PlacesWalk places_walk(const Places* places) noexcept nogil
# 0: that was the last.
cdef int places_next(PlacesWalk* walk, Place* place) noexcept nogil
