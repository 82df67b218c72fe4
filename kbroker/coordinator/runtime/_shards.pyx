# cython: language_level=3
"""Partitions of an internal topic in C, for any machine: whose they are, and what is appended.

A shard is such a partition while this broker leads it; its lock is of the rank "session", so the
partition's may be taken under it. Every append to the shard's partition is made with the shard's
lock held, over the append and what it means for the memory: order in memory is order in the log,
and nothing has to be compared later. What waits for the lock meanwhile is another request to the
same shard, for one write to the page cache. Where that takes long the hot path does not come for
the lock, but sets its requests aside (`shard_is_slow`).

A machine keeps its own memory in a shard: `ShardKind` clears it and applies records to it.

`_locked` functions want the shard's lock. Nothing here calls back or touches Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport usleep

from kbroker.coordinator.runtime._batches cimport Records, Text
from kbroker.coordinator.runtime._structs cimport (
    NO_MEMORY,
    SHARD_ACTIVE,
    SHARD_LOADING,
    SHARD_NOT_OWNER,
    SHARDS_MAX,
    Appended,
    Shard,
    ShardKind,
    Shards,
)
from kbroker.core._atomics cimport (
    kb_load_i64, kb_load_int, kb_load_ptr, kb_store_i64, kb_store_int, kb_store_ptr)
from kbroker.core._error_codes cimport (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NO_ERROR,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.core._lock_order cimport RANK_SESSION, kb_mutex_init, try_lock_ranked
from kbroker.core._require cimport require
from kbroker.core._sync cimport kb_now_ns, pthread_mutex_destroy
from kbroker.log.engine._storage cimport log_late_from_ns, writing_is_slow
from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport (
    Partition,
    partition_acquire,
    partition_append,
    partition_lock,
    partition_release,
    partition_unlock,
)

cdef enum:
    LOCK_POLL_US = 50

cdef ShardKind _PYTHON_ALONE = ShardKind(
    shard_bytes=sizeof(Shard), clear_locked=NULL, apply_locked=NULL)


cdef Shards* shards_new() noexcept nogil:
    cdef Shards* shards = <Shards*>calloc(1, sizeof(Shards))
    if shards == NULL:
        return NULL
    shards.kind = &_PYTHON_ALONE
    shards.shards = <Shard**>calloc(SHARDS_MAX, sizeof(Shard*))
    if shards.shards == NULL:
        free(shards)
        return NULL
    return shards


cdef void shards_free(Shards* shards) noexcept nogil:
    cdef Shard* shard
    cdef int i
    if shards == NULL:
        return
    for i in range(SHARDS_MAX):
        shard = shards.shards[i]
        if shard == NULL:
            break
        shard_clear_locked(shard)
        if shard.partition != NULL:
            partition_release(shard.partition)
        pthread_mutex_destroy(&shard.lock)
        free(shard)
    free(shards.shards)
    free(shards)


cdef int shards_grow(Shards* shards, int count) noexcept nogil:
    cdef Shard* shard
    cdef int i
    for i in range(count):
        if shards.shards[i] != NULL:
            continue
        shard = <Shard*>calloc(1, shards.kind.shard_bytes)
        if shard == NULL:
            return -1
        kb_mutex_init(&shard.lock)
        shard.index = i
        shard.kind = shards.kind
        shard.any_size = shards.any_size
        shards.shards[i] = shard
    kb_store_int(&shards.count, count)
    return 0


cdef int32_t _java_hash_ascii(const uint8_t* id, int32_t length) noexcept nogil:
    # String.hashCode of an ASCII text.
    cdef uint32_t mixed = 0
    cdef int32_t i
    for i in range(length):
        mixed = 31u * mixed + id[i]
    return <int32_t>mixed


cdef int32_t shard_index(int32_t hash, int count) noexcept nogil:
    # As Kafka finds the partition of a key: the absolute value, and 0 for the one that has none.
    cdef uint32_t positive = <uint32_t>hash
    if hash < 0:
        positive = 0u - positive
    if positive >> 31:
        return 0
    return <int32_t>(positive % <uint32_t>count)


cdef Shard* shard_for(Shards* shards, const uint8_t* id, int32_t length) noexcept nogil:
    cdef int count = kb_load_int(&shards.count)
    if count <= 0:
        return NULL
    return shards.shards[shard_index(_java_hash_ascii(id, length), count)]


cdef int shard_is_slow(Shard* shard) noexcept nogil:
    return writing_is_slow(&shard.writing_since_ns, &shard.slow_until_ns)


cdef int64_t* shard_late_from_ns(Shard* shard) noexcept nogil:
    return <int64_t*>kb_load_ptr(<void**>&shard.late_from_ns)


cdef void _note_directory_locked(Shard* shard) noexcept nogil:
    # With the partition that it has from now on, or since its log was moved.
    kb_store_ptr(<void**>&shard.late_from_ns, log_late_from_ns(shard.partition.log))


cdef int shard_hangs(Shard* shard) noexcept nogil:
    cdef int64_t not_till = 0
    return writing_is_slow(&shard.writing_since_ns, &not_till)


cdef int shard_error(Shard* shard) noexcept nogil:
    cdef int state = kb_load_int(&shard.state)
    if state == SHARD_ACTIVE:
        return NO_ERROR
    return COORDINATOR_LOAD_IN_PROGRESS if state == SHARD_LOADING else NOT_COORDINATOR


cdef int _lock_until(Shard* shard, int64_t until_ns) noexcept nogil:
    while not try_lock_ranked(&shard.lock, RANK_SESSION):
        if kb_now_ns() >= until_ns:
            return 0
        usleep(LOCK_POLL_US)
    return 1


cdef int shard_lock_within(Shard* shard, int64_t patience_ns) noexcept nogil:
    cdef int64_t since_ns = kb_load_i64(&shard.writing_since_ns)
    cdef int64_t now_ns = kb_now_ns()
    if patience_ns < 0:
        shard_lock(shard)
        return 1
    return _lock_until(shard, (since_ns if since_ns != 0 else now_ns) + patience_ns)


cdef int shard_change(
    Shard* shard, int state, Partition* partition, int64_t until_ns,
) noexcept nogil:
    cdef Partition* before
    # The lock may be held over a write that hangs. The next holder finds the shard not ours.
    kb_store_int(&shard.state, SHARD_NOT_OWNER)
    if not _lock_until(shard, until_ns):
        return 0
    if partition != NULL:
        partition_acquire(partition)
    before = shard.partition
    shard.partition = partition
    if partition != NULL:
        _note_directory_locked(shard)
    shard_clear_locked(shard)
    kb_store_i64(&shard.term, shard.term + 1)
    kb_store_int(&shard.state, state)
    shard_unlock(shard)
    if before != NULL:
        partition_release(before)
    return 1


cdef int coordinator_error(int error) noexcept nogil:
    # What a refused append means to a client of the coordinator, as Kafka puts it.
    if error == NOT_LEADER_OR_FOLLOWER or error == KAFKA_STORAGE_ERROR:
        return NOT_COORDINATOR
    if (
        error == NOT_ENOUGH_REPLICAS or error == NOT_ENOUGH_REPLICAS_AFTER_APPEND
        or error == UNKNOWN_TOPIC_OR_PARTITION or error == REQUEST_TIMED_OUT
    ):
        return COORDINATOR_NOT_AVAILABLE
    return error


cdef Appended appended_of(const Batch* batch) noexcept nogil:
    cdef Appended appended
    appended.last_offset = batch.last_offset
    appended.led_since = batch.led_since
    appended.awaits_followers = batch.awaits_followers
    return appended


cdef Appended shard_written_locked(Shard* shard) noexcept nogil:
    cdef Partition* partition = shard.partition
    cdef Appended appended
    partition_lock(partition)
    appended.last_offset = partition.log.log_end_offset - 1
    appended.led_since = partition.led_since
    appended.awaits_followers = appended.last_offset >= partition.high_watermark.offset
    partition_unlock(partition)
    return appended


cdef int64_t shard_batch_bytes_max_locked(Shard* shard) noexcept nogil:
    # A batch that is larger than a segment is refused, when others of its write may be in the log.
    return min(
        kb_load_i64(&shard.partition.log.rules.max_message_bytes),
        kb_load_i64(&shard.partition.log.settings.segment_bytes))


cdef int shard_append_locked(Shard* shard, Batch* first, int64_t now_ms) noexcept nogil:
    # With one replica in sync the records survive what acks=-1 survives when this returns. With
    # more the answer is to wait for the high watermark.
    cdef int64_t length_max = shard_batch_bytes_max_locked(shard)
    cdef Partition* partition = shard.partition
    cdef Batch* batch = first
    cdef int waiting
    require(shard.writing_since_ns == 0, "shard: one writes at a time", shard.writing_since_ns, 0)
    while batch != NULL:
        if batch.length_bytes > length_max and not shard.any_size:
            batch.error = MESSAGE_TOO_LARGE
        batch = batch.next
    kb_store_i64(&shard.writing_since_ns, kb_now_ns())
    _note_directory_locked(shard)
    waiting = partition_append(partition, first, now_ms)
    kb_store_i64(&shard.slow_until_ns, kb_load_i64(&partition.log.slow_until_ns))
    kb_store_i64(&shard.writing_since_ns, 0)
    batch = first
    while batch != NULL:
        batch.error = <short>coordinator_error(batch.error)
        if batch.error == RECORD_LIST_TOO_LARGE:
            batch.error = MESSAGE_TOO_LARGE
        batch = batch.next
    return waiting


cdef int records_write_locked(
    Shard* shard, Batch* batch, const Records* records,
) noexcept nogil:
    cdef const Text* texts = records.texts
    cdef Py_ssize_t i
    shard_append_locked(shard, batch, batch.max_timestamp_ms)
    if batch.error != 0:
        return batch.error
    for i in range(records.count):
        if record_apply_locked(
            shard, &texts[2 * i], &texts[2 * i + 1], batch.base_offset + i,
        ) == NO_MEMORY:
            return UNKNOWN_SERVER_ERROR
    return 0
