# cython: language_level=3
"""Hash tables of pointers for the coordinator's C half; inline, no module.

Linear probing in a power of two of places, at most three quarters full; a function gives the hash
of an item. Removal closes the gap, so there are no marks. A table that is NULL is empty.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from kbroker.core._require cimport require

cdef enum:
    TABLE_MIN = 4                 # places of the smallest


ctypedef uint32_t (*hash_of)(void* item) noexcept nogil


cdef inline void table_put(
    void** table, uint32_t mask, void* item, uint32_t item_hash,
) noexcept nogil:
    cdef uint32_t place = item_hash & mask
    while table[place] != NULL:
        place = (place + 1) & mask
    table[place] = item


cdef inline int table_room(
    void*** table, uint32_t* mask, int64_t count, hash_of item_hash,
) noexcept nogil:
    # Room for one more than `count`; -1: no memory.
    cdef uint32_t capacity = TABLE_MIN
    cdef void** fresh
    cdef uint32_t place
    if table[0] != NULL and 4 * (count + 1) <= 3 * (<int64_t>mask[0] + 1):
        return 0
    if table[0] != NULL:
        capacity = 2 * (mask[0] + 1)
    fresh = <void**>calloc(capacity, sizeof(void*))
    if fresh == NULL:
        return -1
    if table[0] != NULL:
        for place in range(mask[0] + 1):
            if table[0][place] != NULL:
                table_put(
                    fresh, capacity - 1, table[0][place], item_hash(table[0][place]))
        free(table[0])
    table[0] = fresh
    mask[0] = capacity - 1
    return 0


cdef inline int64_t table_count(void** table, uint32_t mask) noexcept nogil:
    cdef int64_t count = 0
    cdef int64_t place
    for place in range(<int64_t>mask + 1):
        count += table[place] != NULL
    return count


cdef inline void table_remove(
    void** table, uint32_t mask, void* item, hash_of item_hash,
) noexcept nogil:
    cdef uint32_t gap = item_hash(item) & mask
    cdef uint32_t place
    cdef uint32_t home
    while table[gap] != item:
        require(table[gap] != NULL, "group's table: what leaves is in it", gap, mask)
        gap = (gap + 1) & mask
    place = gap
    while True:
        place = (place + 1) & mask
        if table[place] == NULL:
            break
        home = item_hash(table[place]) & mask
        # It may move back to the gap if its own place is not after the gap.
        if ((place - home) & mask) >= ((place - gap) & mask):
            table[gap] = table[place]
            gap = place
    table[gap] = NULL
