# cython: language_level=3
"""The partition: life, lock and offsets; the doors to validation, append and read.

`_partition.pxd` is the contract with those who hold requests; this unit keeps it and leaves the
work to the units below: `_records` (validation), `_append`, `_read`, `_segment`, `_storage`. A
Partition is counted by references; its log goes with the last one, its files stay. No GIL, no
Python object; functions that end in `_locked` below want the lock, all others take it.
"""

from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t)
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker._atomics cimport kb_add_int, kb_load_i64
from kbroker._live_objects cimport LIVE_PARTITIONS, live_add
from kbroker._sync cimport (
    kb_now_ns, pthread_cond_destroy, pthread_cond_init, pthread_mutex_destroy)
from kbroker.log._append cimport append_group_locked
from kbroker.log._read cimport (
    read_slice, readable_bytes, readable_bytes_locked, set_high_watermark_locked)
from kbroker.log._records cimport (
    AT_ATTRIBUTES, CODEC_MASK, HEADER_BYTES, NO_ERROR, Rules, batch_validate, rules_none)
from kbroker.log._segment cimport segment_add_reference, segment_drop_reference
from kbroker.log._storage cimport (
    RULE_CODEC_AT, RULE_COMPACTED, RULE_LOG_APPEND_TIME, RULE_RECOMPRESS, Log, TopicRules,
    kb_mutex_init, lock_partition, lock_to_look, log_free, log_new, log_of, unlock_partition)

cdef enum:
    STANDS_NS = 500000            # a write that lasts so long is waited for by one handler alone


cdef Partition* partition_new(
    const char* directory, int32_t partition_index, const uint8_t* topic_id
) noexcept nogil:
    cdef Partition* partition = <Partition*>calloc(1, sizeof(Partition))
    cdef Log* log = log_new(directory)
    if partition == NULL or log == NULL or kb_mutex_init(&partition.lock) != 0:
        log_free(log)
        free(partition)
        return NULL
    live_add(LIVE_PARTITIONS, 1)
    pthread_cond_init(&partition.written, NULL)
    partition.refs = 1
    partition.log = log
    partition.partition_index = partition_index
    memcpy(partition.topic_id, topic_id, 16)
    partition.leader_id = -1
    partition.leader_epoch = -1
    partition.min_in_sync = 1
    return partition


cdef void partition_acquire(Partition* partition) noexcept nogil:
    kb_add_int(&partition.refs, 1)


cdef void partition_release(Partition* partition) noexcept nogil:
    if kb_add_int(&partition.refs, -1) > 0:
        return
    log_free(log_of(partition))
    pthread_cond_destroy(&partition.written)
    pthread_mutex_destroy(&partition.lock)
    live_add(LIVE_PARTITIONS, -1)
    free(partition)


cdef void partition_lock(Partition* partition) noexcept nogil:
    lock_to_look(partition)


cdef void partition_unlock(Partition* partition) noexcept nogil:
    unlock_partition(partition)


cdef void segment_acquire(Segment* segment) noexcept nogil:
    segment_add_reference(segment)


cdef void segment_release(Segment* segment) noexcept nogil:
    segment_drop_reference(segment)


cdef void slice_release(FileSlice* slice) noexcept nogil:
    if slice.segment != NULL:
        segment_drop_reference(slice.segment)
    slice.segment = NULL
    slice.fd = -1
    slice.length = 0


# --- Leadership and offsets -----------------------------------------------------------------------

cdef void partition_set_leadership(
    Partition* partition, int32_t leader_id, int is_leader, int32_t leader_epoch,
    int32_t in_sync_count
) noexcept nogil:
    lock_partition(partition)
    partition.leader_id = leader_id
    partition.is_leader = is_leader
    partition.leader_epoch = leader_epoch
    partition.in_sync_count = in_sync_count
    if is_leader and in_sync_count <= 1 and partition.online and not partition.flush_due:
        set_high_watermark_locked(partition, partition.log_end_offset)
    unlock_partition(partition)


cdef int16_t partition_set_high_watermark(Partition* partition, int64_t offset) noexcept nogil:
    cdef int16_t error = NO_ERROR
    lock_partition(partition)
    if partition.online:
        error = set_high_watermark_locked(partition, offset)
    unlock_partition(partition)
    return error


cdef void partition_offsets(
    Partition* partition, int64_t* log_start, int64_t* log_end, int64_t* high_watermark,
    int64_t* last_stable
) noexcept nogil:
    lock_to_look(partition)
    if log_start != NULL:
        log_start[0] = partition.log_start_offset
    if log_end != NULL:
        log_end[0] = partition.log_end_offset
    if high_watermark != NULL:
        high_watermark[0] = partition.high_watermark
    if last_stable != NULL:
        last_stable[0] = partition.last_stable_offset
    unlock_partition(partition)


# --- Produce and fetch ----------------------------------------------------------------------------

cdef inline int64_t shifted(int64_t time_ms, int64_t by_ms) noexcept nogil:
    # Saturates: the window's defaults are the largest int64.
    if by_ms > 0 and time_ms > INT64_MAX - by_ms:
        return INT64_MAX
    if by_ms < 0 and time_ms < INT64_MIN - by_ms:
        return INT64_MIN
    return time_ms + by_ms


cdef int partition_repacks(Partition* partition, const Batch* batch) noexcept nogil:
    cdef int64_t flags = kb_load_i64(&log_of(partition).rules.flags)
    return (flags & RULE_RECOMPRESS != 0 and batch.length_bytes >= HEADER_BYTES
            and batch.data[AT_ATTRIBUTES + 1] & CODEC_MASK != flags >> RULE_CODEC_AT)


cdef int partition_validate(Partition* partition, Batch* batch, int64_t now_ms) noexcept nogil:
    cdef Rules rules
    cdef TopicRules* topic = &log_of(partition).rules
    cdef int64_t flags = kb_load_i64(&topic.flags)
    cdef int64_t before_ms = kb_load_i64(&topic.timestamp_before_max_ms)
    rules_none(&rules)
    rules.compacted = flags & RULE_COMPACTED != 0
    if not flags & RULE_LOG_APPEND_TIME:
        if before_ms < INT64_MAX:
            rules.timestamp_min_ms = shifted(now_ms, -before_ms)
        rules.timestamp_max_ms = shifted(now_ms, kb_load_i64(&topic.timestamp_after_max_ms))
    rules.arena = batch.arena
    if (flags & RULE_RECOMPRESS and not batch.prechecked and not batch.repacked
            and partition_repacks(partition, batch)):
        return NEEDS_PYTHON
    if batch_validate(
            batch, &rules, kb_load_i64(&topic.max_message_bytes),
            flags & RULE_LOG_APPEND_TIME != 0, now_ms) == NEEDS_PYTHON:
        return NEEDS_PYTHON
    if batch.log_start_offset == 0:
        batch.log_start_offset = kb_load_i64(&partition.log_start_offset)
    return VALIDATED


cdef void partition_append(Partition* partition, Batch* first, int64_t now_ms) noexcept nogil:
    lock_partition(partition)
    append_group_locked(partition, first, now_ms)
    unlock_partition(partition)


cdef int partition_is_slow(Partition* partition) noexcept nogil:
    return writing_is_slow(&partition.writing_since_ns, &partition.slow_until_ns)


cdef int writing_is_slow(int64_t* writing_since_ns, int64_t* slow_until_ns) noexcept nogil:
    cdef int64_t since_ns = kb_load_i64(writing_since_ns)
    cdef int64_t until_ns = kb_load_i64(slow_until_ns)
    cdef int64_t now_ns
    if since_ns == 0 and until_ns == 0:
        return 0
    now_ns = kb_now_ns()
    return now_ns < until_ns or (since_ns != 0 and now_ns - since_ns > STANDS_NS)


cdef int16_t partition_read(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first, int read_committed,
    int may_wait, FileSlice* out
) noexcept nogil:
    return read_slice(partition, offset, max_bytes, whole_first, read_committed, may_wait, out)


cdef int64_t partition_readable_bytes(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed
) noexcept nogil:
    return readable_bytes(partition, offset, max_bytes, read_committed)


cdef int64_t partition_readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, int read_committed
) noexcept nogil:
    return readable_bytes_locked(partition, offset, max_bytes, read_committed)


cdef int partition_in_older_segment_locked(Partition* partition, int64_t offset) noexcept nogil:
    return offset < log_of(partition).high_watermark_base
