# cython: language_level=3
"""The last offset of each key, by 128 bits of its hash.

Keys themselves are not kept: of a thousand million, two with one hash are there once in 10^20
tables. Both halves are under secret keys, so no client can choose two such. Open addressing: the
next free place after the hash's own. 24 bytes a key, as in Apache Kafka's, whose hash is MD5.

Not a table of core: that has pointers, which would be 8 bytes and an allocation more for each of
millions of keys. This one has its size from a bound by bytes, neither grows nor loses a key, and
its entries are in place.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_random_key

cdef enum:
    SLOTS_MIN = 16

cdef double LOAD_FACTOR_MIN = 0.1
cdef double LOAD_FACTOR_MAX = 0.95


cdef int key_map_open(
    KeyMap* map, int64_t bytes_max, double load_factor, int64_t keys
) noexcept nogil:
    # A search ends at a free place, and at least some keys fit.
    cdef double factor = min(max(load_factor, LOAD_FACTOR_MIN), LOAD_FACTOR_MAX)
    cdef int64_t slots = bytes_max / KEY_ENTRY_BYTES
    if <double>keys / factor + 1 < <double>slots:
        slots = <int64_t>(<double>keys / factor) + 1
    if slots < SLOTS_MIN:
        slots = SLOTS_MIN
    map.count = 0
    map.slots = slots
    map.count_max = <int64_t>(<double>slots * factor)
    map.key = kb_random_key()
    map.other_key = kb_random_key()
    map.entries = <KeyEntry*>calloc(<size_t>slots, sizeof(KeyEntry))
    return ENOMEM if map.entries == NULL else 0


cdef void key_map_close(KeyMap* map) noexcept nogil:
    free(map.entries)
    map.entries = NULL


cdef inline KeyEntry* find(
    const KeyMap* map, const uint8_t* key, int64_t length, uint64_t* first, uint64_t* second
) noexcept nogil:
    # The key's entry, or the free one where it belongs.
    cdef int64_t at
    cdef KeyEntry* entry
    first[0] = kb_keyed_hash(map.key, key, <size_t>length)
    second[0] = kb_keyed_hash(map.other_key, key, <size_t>length)
    at = <int64_t>(first[0] % <uint64_t>map.slots)
    while True:
        entry = map.entries + at
        if entry.next_offset == 0 or (entry.first == first[0] and entry.second == second[0]):
            return entry
        at += 1
        if at == map.slots:
            at = 0


cdef int key_map_put(
    KeyMap* map, const uint8_t* key, int64_t length, int64_t offset
) noexcept nogil:
    cdef uint64_t first, second
    cdef KeyEntry* entry = find(map, key, length, &first, &second)
    if entry.next_offset == 0:
        if map.count == map.count_max:
            return KEY_MAP_FULL
        map.count += 1
        entry.first = first
        entry.second = second
    if entry.next_offset <= offset:
        entry.next_offset = offset + 1
    return 0


cdef int64_t key_map_get(const KeyMap* map, const uint8_t* key, int64_t length) noexcept nogil:
    cdef uint64_t first, second
    return find(map, key, length, &first, &second).next_offset - 1
