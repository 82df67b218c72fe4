# cython: language_level=3
"""The last offset of each key, in a bounded piece of memory: what the cleaner remembers."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    KEY_ENTRY_BYTES = 24
    KEY_MAP_FULL = 1


cdef struct KeyEntry:
    uint64_t first                # 128 bits of the key's hash
    uint64_t second
    int64_t next_offset           # offset + 1; 0: free


cdef struct KeyMap:
    KeyEntry* entries
    int64_t slots
    int64_t count
    int64_t count_max             # so that a search stays short
    uint64_t key                  # of the hashes
    uint64_t other_key

# For so many keys, or as many as fit into `bytes_max`. 0 or ENOMEM.
cdef int key_map_open(
    KeyMap* map, int64_t bytes_max, double load_factor, int64_t keys) noexcept nogil
cdef void key_map_close(KeyMap* map) noexcept nogil

# 0, or KEY_MAP_FULL: the key is new, and there is no room.
cdef int key_map_put(
    KeyMap* map, const uint8_t* key, int64_t length, int64_t offset) noexcept nogil
# The largest offset that was put, or -1.
cdef int64_t key_map_get(const KeyMap* map, const uint8_t* key, int64_t length) noexcept nogil
