# cython: language_level=3
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kbroker.coordinator.group._structs cimport OffsetEntry, GroupShard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.core._arena cimport Arena


# Which offsets are wanted; what is zero or NULL does not count.
cdef struct Wanted:
    Text topic                    # at NULL: all
    int8_t expired
    int64_t before_ms             # committed before, where they have no time of their own
    int64_t now_ms


# An offset as it was when the lock was held; everything it points at is in the arena.
cdef struct Copy:
    Text group
    Text topic
    const uint8_t* topic_id       # NULL: not known
    Text metadata
    int64_t expire_ms
    OffsetEntry entry


cdef struct Copies:
    Arena* arena
    Copy* items
    int64_t count
    int64_t capacity
    int failed                    # no memory


# Of one group, or with NULL of all in the shard.
cdef void copy_offsets(
    GroupShard* shard, const Text* id, const Wanted* wanted, Copies* copies) noexcept nogil
cdef void copies_free(Copies* copies) noexcept nogil
