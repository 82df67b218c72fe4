# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.group._structs cimport (
    Appended,
    Group,
    GroupShards,
    Member,
    Shard,
)
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.log.engine._types cimport Batch

cdef GroupShards* group_shards_new() noexcept nogil
# When no thread uses it any more.
cdef void group_shards_free(GroupShards* shards) noexcept nogil
# 0, or -1: no memory.
cdef int group_shards_grow(GroupShards* shards, int count) noexcept nogil

# The shard of an ASCII group id, not locked; NULL: the topic is not there.
cdef Shard* shard_for(GroupShards* shards, const uint8_t* id, int32_t length) noexcept nogil
cdef int32_t java_hash_ascii(const uint8_t* id, int32_t length) noexcept nogil
cdef int32_t shard_index(int32_t hash, int count) noexcept nogil
cdef void shard_lock(Shard* shard) noexcept nogil
cdef void shard_unlock(Shard* shard) noexcept nogil
# Without the lock: whether taking it is likely to wait for a write to a slow file; and the mark of
# the file's data directory (see _directory_mark).
cdef int shard_is_slow(Shard* shard) noexcept nogil
cdef int64_t* shard_late_from_ns(Shard* shard) noexcept nogil
# With the partition that it has from now on, or since its log was moved.
cdef void shard_note_directory_locked(Shard* shard) noexcept nogil
# The same for certain: it is held over such a write now.
cdef int shard_stands(Shard* shard) noexcept nogil
# 0, 14 or 16
cdef int shard_error(Shard* shard) noexcept nogil
# Everything in it is forgotten; its state and partition stay.
cdef void shard_clear_locked(Shard* shard) noexcept nogil

cdef Group* group_find_locked(Shard* shard, const uint8_t* id, int32_t length) noexcept nogil
# NULL: no memory.
cdef Group* group_take_locked(Shard* shard, const uint8_t* id, int32_t length) noexcept nogil
# With all it has.
cdef void group_remove_locked(Shard* shard, Group* group) noexcept nogil
# If nothing is left of it.
cdef void group_drop_if_bare_locked(Shard* shard, Group* group) noexcept nogil

# 10 where the log will never take it, else what a coordinator says. Not 0: there are batches that
# the followers are to have first, `awaits_followers`.
cdef int shard_append_locked(Shard* shard, Batch* first, int64_t now_ms) noexcept nogil
cdef int64_t shard_batch_bytes_max_locked(Shard* shard) noexcept nogil
cdef int coordinator_error(int error) noexcept nogil
cdef Appended appended_of(const Batch* batch) noexcept nogil
# All that was written there, by whomever: who finds nothing to write waits for that.
cdef Appended shard_written_locked(Shard* shard) noexcept nogil

# What Python says of a group. 1: the members are the group's now; -1: no memory.
cdef int group_show_locked(
    Shard* shard, const Text* id, int state, int generation, Member** members, int32_t count
) noexcept nogil
cdef void group_hide_locked(Shard* shard, const Text* id) noexcept nogil
