# cython: language_level=3
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kbroker.coordinator.runtime._batches cimport Records, Text
from kbroker.coordinator.runtime._structs cimport FOR_PYTHON, Appended, Shard, Shards
from kbroker.core._atomics cimport kb_load_i64
from kbroker.core._lock_order cimport RANK_SESSION, lock_ranked, unlock_ranked
from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport Partition

# Without a machine's memory, until its table sets `kind`; before the first shards_grow.
cdef Shards* shards_new() noexcept nogil
# When no thread uses it any more.
cdef void shards_free(Shards* shards) noexcept nogil
# 0, or -1: no memory.
cdef int shards_grow(Shards* shards, int count) noexcept nogil

# The shard of an ASCII key, not locked; NULL: the topic is not there.
cdef Shard* shard_for(Shards* shards, const uint8_t* id, int32_t length) noexcept nogil
cdef int32_t shard_index(int32_t hash, int count) noexcept nogil
# Without the lock: whether taking it is likely to wait for a write to a slow file; and the mark of
# the file's data directory (see _directory_mark).
cdef int shard_is_slow(Shard* shard) noexcept nogil
cdef int64_t* shard_late_from_ns(Shard* shard) noexcept nogil
# The same for certain: the lock is held over such a write now.
cdef int shard_hangs(Shard* shard) noexcept nogil
# 0, 14 or 16
cdef int shard_error(Shard* shard) noexcept nogil

# In this state, empty, with this partition (NULL: none). 0: its lock is held longer than until
# `until_ns`; it is not the owner's then, and the rest is to be tried again.
cdef int shard_change(
    Shard* shard, int state, Partition* partition, int64_t until_ns) noexcept nogil

# The most bytes that a write takes, as the log's settings are now.
cdef int64_t shard_batch_bytes_max_locked(Shard* shard) noexcept nogil
# All batches of the list in one write; then each has its offset, or a coordinator's error: 10 where
# the log will never take it. Not 0: the followers are to have some of them first,
# `awaits_followers`.
cdef int shard_append_locked(Shard* shard, Batch* first, int64_t now_ms) noexcept nogil
# One batch of these records, and what they mean to the machine's memory. 0, or a coordinator's
# error.
cdef int records_write_locked(
    Shard* shard, Batch* batch, const Records* records) noexcept nogil
cdef int coordinator_error(int error) noexcept nogil
cdef Appended appended_of(const Batch* batch) noexcept nogil
# The last record of any writer: a call that finds nothing to write waits for that.
cdef Appended shard_written_locked(Shard* shard) noexcept nogil


cdef inline void shard_lock(Shard* shard) noexcept nogil:
    lock_ranked(&shard.lock, RANK_SESSION)


# 0, and not locked: a write has the lock for longer than that; -1: however long.
cdef int shard_lock_within(Shard* shard, int64_t patience_ns) noexcept nogil


cdef inline void shard_unlock(Shard* shard) noexcept nogil:
    unlock_ranked(&shard.lock, RANK_SESSION)


cdef inline int64_t high_watermark_of(const Shard* shard) noexcept nogil:
    return kb_load_i64(&shard.partition.high_watermark.offset) if shard.partition else INT64_MAX


cdef inline void shard_clear_locked(Shard* shard) noexcept nogil:
    if shard.kind.clear_locked != NULL:
        shard.kind.clear_locked(shard)


cdef inline int record_apply_locked(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset,
) noexcept nogil:
    if shard.kind.apply_locked == NULL:
        return FOR_PYTHON
    return shard.kind.apply_locked(shard, key, value, log_offset)
