# cython: language_level=3
"""Hash tables of pointers; inline, without a module.

Linear probing in a power of two of places; NULL is a free place, and ends a search. Removal closes
the gap, so there are no marks. What is in a table is compared by a function that the caller names,
in place: it is inline there, and costs no call. Hashes must be keyed where strangers choose what is
hashed. A table that is all zero is empty. No lock.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._require cimport require

cdef enum:
    TABLE_PLACES_MIN = 16


cdef struct Table:
    void** places                 # NULL: nothing was put there yet
    uint32_t mask                 # places - 1
    uint32_t count


ctypedef uint32_t (*hash_of)(const void* item) noexcept nogil
ctypedef int (*is_key)(const void* item, const void* key) noexcept nogil


cdef inline int64_t table_places(const Table* table) noexcept nogil:
    return <int64_t>table.mask + 1 if table.places != NULL else 0


cdef inline int64_t table_bytes(const Table* table) noexcept nogil:
    return table_places(table) * <int64_t>sizeof(void*)


# Room for so many, with every other place free, in the arena if there is one. -1: no memory.
cdef inline int table_init(Table* table, Arena* arena, int64_t count) noexcept nogil:
    cdef uint32_t places = TABLE_PLACES_MIN
    while places < 2 * count:
        places *= 2
    if arena != NULL:
        table.places = <void**>arena_take(arena, sizeof(void*) * places)
    else:
        table.places = <void**>calloc(places, sizeof(void*))
    table.mask = places - 1
    table.count = 0
    return 0 if table.places != NULL else -1


cdef inline void table_free(Table* table) noexcept nogil:
    # It is empty, and may be used again.
    free(table.places)
    table.places = NULL
    table.mask = 0
    table.count = 0


# The place of the item with this key, or the free one that it would take.
cdef inline void** table_place(
    const Table* table, uint32_t hash, is_key same, const void* key
) noexcept nogil:
    cdef uint32_t place = hash & table.mask
    while table.places[place] != NULL and not same(table.places[place], key):
        place = (place + 1) & table.mask
    return &table.places[place]


# NULL: nothing has this key.
cdef inline void* table_find(
    const Table* table, uint32_t hash, is_key same, const void* key
) noexcept nogil:
    return table_place(table, hash, same, key)[0] if table.places != NULL else NULL


# The equal item in the table; this item itself, from now on, if there was none. There is room.
cdef inline void* table_find_or_put(
    Table* table, uint32_t hash, is_key same, void* item
) noexcept nogil:
    cdef void** place = table_place(table, hash, same, item)
    if place[0] == NULL:
        require(table.count < table.mask, "table: a place is left free", table.count, table.mask)
        place[0] = item
        table.count += 1
    return place[0]


cdef inline int _is_other(const void* item, const void* key) noexcept nogil:
    return 0


# There is room, and nothing that is the same.
cdef inline void table_put(Table* table, void* item, uint32_t hash) noexcept nogil:
    table_find_or_put(table, hash, _is_other, item)


# -1: no memory, and it stays as it is.
cdef inline int table_resize(Table* table, uint32_t places, hash_of item_hash) noexcept nogil:
    cdef Table fresh
    cdef int64_t place
    fresh.places = <void**>calloc(places, sizeof(void*))
    fresh.mask = places - 1
    fresh.count = 0
    if fresh.places == NULL:
        return -1
    for place in range(table_places(table)):
        if table.places[place] != NULL:
            table_put(&fresh, table.places[place], item_hash(table.places[place]))
    table_free(table)
    table[0] = fresh
    return 0


# Beyond three quarters searches get long.
cdef inline int table_is_full(const Table* table) noexcept nogil:
    return 4 * (<int64_t>table.count + 1) > 3 * (<int64_t>table.mask + 1)


# Room for one more. -1: no memory.
cdef inline int table_room(Table* table, hash_of item_hash) noexcept nogil:
    if table.places == NULL:
        return table_init(table, NULL, 0)
    return table_resize(table, 2 * (table.mask + 1), item_hash) if table_is_full(table) else 0


cdef inline void table_remove(
    Table* table, void* item, hash_of item_hash, const char* text
) noexcept nogil:
    cdef uint32_t gap = item_hash(item) & table.mask
    cdef uint32_t place
    cdef uint32_t home
    require(table.count > 0, text, 0, 1)
    while table.places[gap] != item:
        require(table.places[gap] != NULL, text, gap, table.mask)
        gap = (gap + 1) & table.mask
    place = gap
    while True:
        place = (place + 1) & table.mask
        if table.places[place] == NULL:
            break
        home = item_hash(table.places[place]) & table.mask
        # It may move back to the gap if its own place is not after the gap.
        if ((place - home) & table.mask) >= ((place - gap) & table.mask):
            table.places[gap] = table.places[place]
            gap = place
    table.places[gap] = NULL
    table.count -= 1
