# cython: language_level=3
"""The partitions of a transaction: a list of topics by name, each with its partitions, ascending.

    int16 length, name; int32 count, int32 partition, ...; the next topic

These are the bytes of a record in version 0, and of later versions but for its lengths. A list does
not change: a transaction that more partitions join gets another one. It belongs to one owner. Names
are compared as bytes, which is the order of the texts. Pure functions; no lock, no Python object.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcmp

from kbroker.protocol._cursor cimport (
    get_i32, kb_get_u16, kb_put_u16, kb_put_u32, put_i32, put_raw)

cdef enum:
    TOPIC_HEAD_BYTES = 2 + 4


cdef int _compare_names(const Place* one, const Place* other) noexcept nogil:
    cdef int32_t shorter = min(one.topic_length, other.topic_length)
    cdef int order = memcmp(one.topic, other.topic, <size_t>shorter) if shorter > 0 else 0
    return order if order != 0 else one.topic_length - other.topic_length


cdef int _compare(const void* first, const void* second) noexcept nogil:
    cdef const Place* one = <const Place*>first
    cdef const Place* other = <const Place*>second
    cdef int order = _compare_names(one, other)
    if order != 0:
        return order
    return (one.index > other.index) - (one.index < other.index)


cdef int32_t places_sort(Place* places, int32_t count) noexcept nogil:
    cdef int32_t kept = 0
    cdef int32_t i
    qsort(places, <size_t>count, sizeof(Place), _compare)
    for i in range(count):
        if kept == 0 or _compare(&places[kept - 1], &places[i]) != 0:
            places[kept] = places[i]
            kept += 1
    return kept


cdef int places_new(const Place* sorted, int32_t count, Places** made) noexcept nogil:
    cdef int64_t size_bytes = 0
    cdef Places* places
    cdef uint8_t* at
    cdef uint8_t* counted = NULL
    cdef int32_t i
    made[0] = NULL
    if count == 0:
        return 0
    for i in range(count):
        size_bytes += 4
        if i == 0 or _compare_names(&sorted[i - 1], &sorted[i]) != 0:
            size_bytes += TOPIC_HEAD_BYTES + sorted[i].topic_length
    places = <Places*>calloc(1, sizeof(Places) + <size_t>size_bytes)
    if places == NULL:
        return -1
    places.size_bytes = size_bytes
    places.count = count
    at = <uint8_t*>places + sizeof(Places)
    for i in range(count):
        if i == 0 or _compare_names(&sorted[i - 1], &sorted[i]) != 0:
            places.topic_count += 1
            kb_put_u16(at, <uint16_t>sorted[i].topic_length)
            counted = put_raw(at + 2, sorted[i].topic, <size_t>sorted[i].topic_length)
            at = counted + 4
        kb_put_u32(counted, <uint32_t>(get_i32(counted) + 1))
        at = put_i32(at, sorted[i].index)
    made[0] = places
    return 0


cdef void places_free(Places* places) noexcept nogil:
    free(places)


cdef PlacesWalk places_walk(const Places* places) noexcept nogil:
    cdef PlacesWalk walk
    walk.at = walk.end = NULL
    if places != NULL:
        walk.at = places_list(places)
        walk.end = walk.at + places.size_bytes
    walk.topic = NULL
    walk.topic_length = walk.left = 0
    return walk


cdef int places_next(PlacesWalk* walk, Place* place) noexcept nogil:
    if walk.left == 0:
        if walk.at == walk.end:
            return 0
        walk.topic_length = kb_get_u16(walk.at)
        walk.topic = walk.at + 2
        walk.left = get_i32(walk.topic + walk.topic_length)
        walk.at = walk.topic + walk.topic_length + 4
    place.topic = walk.topic
    place.topic_length = walk.topic_length
    place.index = get_i32(walk.at)
    walk.at += 4
    walk.left -= 1
    return 1


cdef int places_hold(const Places* places, const Place* sorted, int32_t count) noexcept nogil:
    # Both in their order: one walk.
    cdef PlacesWalk walk = places_walk(places)
    cdef Place place
    cdef int32_t i = 0
    while i < count:
        if not places_next(&walk, &place):
            return 0
        i += _compare(&place, &sorted[i]) == 0
    return 1


cdef int places_join(
    const Places* places, const Place* sorted, int32_t count, Places** made
) noexcept nogil:
    # Both in their order: one merge.
    cdef PlacesWalk walk = places_walk(places)
    cdef int64_t total = <int64_t>count + (places.count if places != NULL else 0)
    cdef Place* all = <Place*>calloc(<size_t>total + 1, sizeof(Place))
    cdef Place known
    cdef int more = places_next(&walk, &known)
    cdef int32_t at = 0
    cdef int32_t i = 0
    cdef int order
    cdef int status
    made[0] = NULL
    if all == NULL:
        return -1
    while more or i < count:
        order = -1 if i == count else 1
        if more and i < count:
            order = _compare(&known, &sorted[i])
        all[at] = known if order <= 0 else sorted[i]
        at += 1
        i += order >= 0
        if order <= 0:
            more = places_next(&walk, &known)
    status = places_new(all, at, made)
    free(all)
    return status
