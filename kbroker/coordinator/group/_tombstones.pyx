# cython: language_level=3
"""Committed offsets taken away again: tombstones in the log, then nothing in memory.

Which of them are there is looked up under the shard's lock, that of the append: a commit that was
answered a moment ago is not swept away by who has looked before it. Who finds nothing there may
be told so when the followers have all that was written: the tombstone of somebody before among it.
A group of many offsets takes several batches, and after an error it has what had not been reached.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from kbroker._arena cimport Arena, arena_take
from kbroker._error_codes cimport UNKNOWN_SERVER_ERROR
from kbroker.coordinator.group._offset_records cimport (
    BatchWriter,
    OffsetKey,
    batch_begin,
    batch_bound,
    batch_end,
    batch_put_offset,
    batch_put_record,
    offset_record_bound,
    record_bound,
)
from kbroker.coordinator.group._offsets cimport (
    entry_find_locked,
    entry_removed,
    offset_remove_locked,
    topic_find_locked,
)
from kbroker.coordinator.group._shards cimport (
    appended_of,
    batch_prepare,
    group_drop_if_bare_locked,
    group_find_locked,
    shard_append_locked,
    shard_batch_bytes_max_locked,
    shard_written_locked,
)
from kbroker.coordinator.group._structs cimport (
    Appended,
    Group,
    GroupTopic,
    OffsetEntry,
    Shard,
)
from kbroker.log._types cimport Batch


cdef int _is_there(
    Shard* shard, const OffsetKey* key, int64_t until_ms, const uint8_t* topic_id,
) noexcept nogil:
    cdef Group* group = group_find_locked(shard, key.group.at, key.group.length)
    cdef GroupTopic* topic
    cdef OffsetEntry* entry
    if group == NULL:
        return 0
    topic = topic_find_locked(group, key.topic.at, key.topic.length)
    if topic == NULL:
        return 0
    if topic_id != NULL and topic.has_id and memcmp(topic.topic_id, topic_id, 16) != 0:
        return 0              # somebody has committed for the topic that has the name now
    entry = entry_find_locked(topic, key.partition)
    return entry != NULL and not entry_removed(entry) and (
        until_ms < 0 or entry.commit_ms <= until_ms)


cdef inline size_t _bound(
    const OffsetKey* keys, int64_t count, const Behind* behind, int64_t number,
) noexcept nogil:
    if number < count:
        return offset_record_bound(&keys[number], NULL)
    number -= count
    return record_bound(behind.texts[2 * number].length, behind.texts[2 * number + 1].length)


cdef int _write_batch_locked(
    Shard* shard, const OffsetKey* keys, int64_t count, const Behind* behind, int64_t first,
    int64_t end, uint8_t* memory, int64_t now_ms, Appended* appended,
) noexcept nogil:
    # The records from `first` up to `end`: those of the keys, then those behind them.
    cdef BatchWriter writer
    cdef Batch batch
    cdef int64_t number
    batch_begin(&writer, memory, now_ms)
    for number in range(first, end):
        if number < count:
            batch_put_offset(&writer, &keys[number], NULL)
        else:
            batch_put_record(
                &writer, &behind.texts[2 * (number - count)],
                &behind.texts[2 * (number - count) + 1])
    batch_prepare(&batch, memory, batch_end(&writer), writer.count, now_ms)
    shard_append_locked(shard, &batch, now_ms)
    if batch.error == 0:
        appended[0] = appended_of(&batch)
    if batch.error == 0 and first < count:
        _forget_locked(
            shard, &keys[first], (end if end < count else count) - first, batch.base_offset)
    return batch.error


cdef int _write_locked(
    Shard* shard, const OffsetKey* keys, int64_t count, const Behind* behind, int64_t now_ms,
    Appended* appended,
) noexcept nogil:
    # In as many batches as the log's bound asks for. An error leaves the rest as it was.
    cdef size_t limit = <size_t>shard_batch_bytes_max_locked(shard)
    cdef int64_t in_all = count + behind.count
    cdef int64_t first = 0
    cdef int64_t end
    cdef size_t bound
    cdef uint8_t* memory
    cdef int error = 0
    while first < in_all and error == 0:
        end = first
        bound = batch_bound()
        while end < in_all and (
            end == first or bound + _bound(keys, count, behind, end) <= limit
        ):
            bound += _bound(keys, count, behind, end)
            end += 1
        memory = <uint8_t*>malloc(bound)
        if memory == NULL:
            return UNKNOWN_SERVER_ERROR
        error = _write_batch_locked(
            shard, keys, count, behind, first, end, memory, now_ms, appended)
        free(memory)
        first = end
    return error


cdef void _forget_locked(
    Shard* shard, const OffsetKey* keys, int64_t count, int64_t base_offset,
) noexcept nogil:
    # The keys' own names may be those of the group and the topic that go.
    cdef Group* group
    cdef int64_t i
    for i in range(count):
        group = group_find_locked(shard, keys[i].group.at, keys[i].group.length)
        if group != NULL:
            offset_remove_locked(shard, group, &keys[i], base_offset + i)
            group_drop_if_bare_locked(shard, group)


cdef int offsets_remove_locked(
    Shard* shard, Arena* arena, const OffsetKey* keys, int64_t count, int64_t until_ms,
    const uint8_t* topic_id, int64_t now_ms, Appended* appended,
) noexcept nogil:
    cdef OffsetKey* there = <OffsetKey*>arena_take(
        arena, sizeof(OffsetKey) * <size_t>(count + 1))
    cdef int64_t found = 0
    cdef int64_t i
    cdef Behind nothing
    if there == NULL:
        return UNKNOWN_SERVER_ERROR
    for i in range(count):
        if _is_there(shard, &keys[i], until_ms, topic_id):
            there[found] = keys[i]
            found += 1
    if found == 0:
        appended[0] = shard_written_locked(shard)
        return 0
    nothing.texts = NULL
    nothing.count = 0
    return _write_locked(shard, there, found, &nothing, now_ms, appended)


cdef int group_delete_locked(
    Shard* shard, Arena* arena, Group* group, const Behind* behind, int64_t now_ms,
    Appended* appended,
) noexcept nogil:
    cdef int64_t count = group.offset_count if group != NULL else 0
    cdef OffsetKey* keys = <OffsetKey*>arena_take(
        arena, sizeof(OffsetKey) * <size_t>(count + 1))
    cdef GroupTopic* topic
    cdef OffsetKey* key = keys
    cdef uint32_t place
    cdef int32_t i
    if keys == NULL:
        return UNKNOWN_SERVER_ERROR
    if count > 0:
        for place in range(group.topic_mask + 1):
            topic = group.topics[place]
            if topic == NULL:
                continue
            for i in range(topic.count):
                if entry_removed(&topic.entries[i]):
                    continue
                key.group.at = group.id
                key.group.length = group.id_length
                key.topic.at = topic.name
                key.topic.length = topic.name_length
                key.partition = topic.entries[i].partition
                key += 1
    return _write_locked(shard, keys, count, behind, now_ms, appended)
