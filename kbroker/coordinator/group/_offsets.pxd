# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.group._offset_records cimport OffsetKey, OffsetValue
from kbroker.coordinator.group._structs cimport (
    Group,
    GroupTopic,
    OffsetEntry,
    OffsetExtra,
    Removal,
    GroupShard,
)

cdef void topic_free(GroupTopic* topic) noexcept nogil
# With the entries before it that it keeps.
cdef int64_t extra_bytes(const OffsetExtra* extra) noexcept nogil
cdef GroupTopic* topic_find_locked(
    Group* group, const uint8_t* name, int32_t length) noexcept nogil
cdef OffsetEntry* entry_find_locked(GroupTopic* topic, int32_t partition) noexcept nogil
# It is a tombstone that the followers may not have: a writer finds nothing there.
cdef int entry_removed(const OffsetEntry* entry) noexcept nogil
# The entry to answer: the last one that all replicas in sync have; NULL: none.
cdef const OffsetEntry* entry_replicated(
    const OffsetEntry* entry, int64_t high_watermark) noexcept nogil
# -1: no memory, and nothing has changed.
cdef int offset_apply_locked(
    GroupShard* shard, Group* group, const OffsetKey* key, const OffsetValue* value,
    int64_t log_offset) noexcept nogil
cdef void offset_remove_locked(
    GroupShard* shard, Group* group, const OffsetKey* key, int64_t log_offset) noexcept nogil
# The followers have the tombstone, which is off the shard's list.
cdef void removal_end_locked(GroupShard* shard, Removal* removal) noexcept nogil
cdef Text entry_metadata(const OffsetEntry* entry) noexcept nogil
cdef int64_t entry_expire_ms(const OffsetEntry* entry) noexcept nogil
