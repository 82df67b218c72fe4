# cython: language_level=3
"""Records of `__consumer_offsets` into a shard: at a load, and behind every append from Python.

A record whose key is a committed offset's changes the shard; every other one, and one that does not
read, is listed for Python. `load_records` takes the shard's lock for a batch at a time, so that
whoever asks a loading shard is not kept waiting.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc

from kbroker.coordinator.group._offset_records cimport (
    OffsetKey,
    OffsetValue,
    RecordView,
    Text,
    next_record,
    read_offset_key,
    read_offset_value,
)
from kbroker.coordinator.group._offsets cimport offset_apply_locked, offset_remove_locked
from kbroker.coordinator.group._shards cimport (
    group_drop_if_bare_locked,
    group_find_locked,
    group_take_locked,
    shard_lock,
    shard_unlock,
)
from kbroker.coordinator.group._structs cimport Group, Shard
from kbroker.protocol._cursor cimport Cursor


cdef int record_apply_locked(
    Shard* shard, const Text* key, const Text* value, int64_t log_offset,
    const uint8_t* topic_id,
) noexcept nogil:
    cdef OffsetKey parsed
    cdef OffsetValue offset
    cdef Group* group
    if read_offset_key(key, &parsed) != 1:
        return NOT_AN_OFFSET
    if value.length < 0:
        group = group_find_locked(shard, parsed.group.at, parsed.group.length)
        if group != NULL:
            offset_remove_locked(shard, group, &parsed, log_offset)
            group_drop_if_bare_locked(shard, group)
        return APPLIED
    if read_offset_value(value, &offset) != 1:
        return NOT_AN_OFFSET
    if offset.topic_id == NULL:
        offset.topic_id = topic_id
    group = group_take_locked(shard, parsed.group.at, parsed.group.length)
    if group == NULL or offset_apply_locked(shard, group, &parsed, &offset, log_offset) != 0:
        return NO_MEMORY
    return APPLIED


cdef int _list(Others* others, const RecordView* record) noexcept nogil:
    cdef int64_t capacity
    cdef RecordView* grown
    if others.count == others.capacity:
        capacity = 2 * others.capacity + 16
        grown = <RecordView*>realloc(others.items, sizeof(RecordView) * <size_t>capacity)
        if grown == NULL:
            return NO_MEMORY
        others.items = grown
        others.capacity = capacity
    others.items[others.count] = record[0]
    others.count += 1
    return 0


cdef int _load_locked(
    Shard* shard, Cursor* cursor, int32_t count, int64_t base_offset, int64_t base_timestamp_ms,
    int apply, Others* others,
) noexcept nogil:
    cdef RecordView record
    cdef int status
    cdef int32_t _number
    for _number in range(count):
        if next_record(cursor, base_offset, base_timestamp_ms, &record) != 0:
            return DAMAGED
        status = NOT_AN_OFFSET
        if apply:
            status = record_apply_locked(
                shard, &record.key, &record.value, record.offset, NULL)
        if status == NOT_AN_OFFSET:
            status = _list(others, &record)
        if status == NO_MEMORY:
            return NO_MEMORY
    return 0


cdef int load_records(
    Shard* shard, uint8_t* records, int64_t length, int32_t count, int64_t base_offset,
    int64_t base_timestamp_ms, int apply, Others* others,
) noexcept nogil:
    cdef Cursor cursor
    cdef int status
    cursor.at = records
    cursor.left = <size_t>length
    cursor.failed = 0
    shard_lock(shard)
    status = _load_locked(
        shard, &cursor, count, base_offset, base_timestamp_ms, apply, others)
    shard_unlock(shard)
    return status
