# cython: language_level=3
"""Committed offsets taken away again: tombstones in the log, then nothing in memory.

The offsets are looked up under the shard's lock, that of the append: a commit that was answered a
moment ago is not removed by a caller that looked before it. A caller that finds none may be
answered so when the followers have all that was written: an earlier caller's tombstones may be
among it. A group of many offsets takes several batches, in one write up to WRITE_BYTES_MAX: that is
refused as a whole, before anything is gone. If the disk fails half way the first ones are in the
log, and the log is led elsewhere.

A tombstone also ends what open transactions have pending for its partition: `_groups` does that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from kbroker.coordinator.group._offset_records cimport (
    OffsetKey, batch_put_offset, offset_record_bound)
from kbroker.coordinator.group._offsets cimport (
    entry_find_locked,
    entry_removed,
    offset_remove_locked,
    topic_find_locked,
)
from kbroker.coordinator.group._shards cimport group_drop_if_bare_locked, group_find_locked
from kbroker.coordinator.group._structs cimport Group, GroupTopic, OffsetEntry, GroupShard
from kbroker.coordinator.runtime._batches cimport (
    BatchWriter, batch_begin, batch_bound, batch_end, batch_prepare, batch_put_record, record_bound)
from kbroker.coordinator.runtime._shards cimport (
    appended_of, shard_append_locked, shard_batch_bytes_max_locked, shard_written_locked)
from kbroker.coordinator.runtime._structs cimport Appended
from kbroker.core._arena cimport Arena, arena_take
from kbroker.core._error_codes cimport MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR
from kbroker.log.engine._types cimport Batch


cdef enum:
    WRITE_BYTES_MAX = 64 << 20    # held for one write: each record repeats the group's name


cdef int _is_there(
    GroupShard* shard, const OffsetKey* key, int64_t until_ms, const uint8_t* topic_id,
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
        return 0              # committed for the topic that has the name now
    entry = entry_find_locked(topic, key.partition)
    return entry != NULL and not entry_removed(entry) and (
        until_ms < 0 or entry.commit_ms <= until_ms)


cdef inline size_t _bound(
    const OffsetKey* keys, int64_t count, const MoreRecords* more, int64_t number,
) noexcept nogil:
    if number < count:
        return offset_record_bound(&keys[number], NULL)
    number -= count
    return record_bound(more.texts[2 * number].length, more.texts[2 * number + 1].length)


# A batch on its way into the log, and the records that it has: from `first` up to `end` of those of
# the keys and those that follow them. Its bytes follow.
cdef struct Piece:
    Batch batch
    int64_t first
    int64_t end


cdef Piece* _piece_new(
    const OffsetKey* keys, int64_t count, const MoreRecords* more, int64_t first, size_t limit,
    int64_t now_ms,
) noexcept nogil:
    # As many as the log takes in one, and one at least.
    cdef BatchWriter writer
    cdef Piece* piece
    cdef uint8_t* memory
    cdef size_t bound = batch_bound()
    cdef int64_t end = first
    cdef int64_t number
    while end < count + more.count and (
        end == first or bound + _bound(keys, count, more, end) <= limit
    ):
        bound += _bound(keys, count, more, end)
        end += 1
    piece = <Piece*>malloc(sizeof(Piece) + bound)
    if piece == NULL:
        return NULL
    memory = <uint8_t*>piece + sizeof(Piece)
    batch_begin(&writer, memory, now_ms)
    for number in range(first, end):
        if number < count:
            batch_put_offset(&writer, &keys[number], NULL)
        else:
            batch_put_record(
                &writer, &more.texts[2 * (number - count)],
                &more.texts[2 * (number - count) + 1])
    batch_prepare(&piece.batch, memory, batch_end(&writer), writer.count, now_ms)
    piece.first = first
    piece.end = end
    return piece


cdef int _written_locked(
    GroupShard* shard, const OffsetKey* keys, int64_t count, Batch* first, Appended* appended,
) noexcept nogil:
    cdef Batch* batch = first
    cdef Piece* piece
    cdef int error = 0
    while batch != NULL:
        piece = <Piece*>batch
        if batch.error != 0:
            error = batch.error
        else:
            appended[0] = appended_of(batch)
            if piece.first < count:
                _forget_locked(
                    shard, &keys[piece.first], min(piece.end, count) - piece.first,
                    batch.base_offset)
        batch = batch.next
    return error


cdef int _write_some_locked(
    GroupShard* shard, const OffsetKey* keys, int64_t count, const MoreRecords* more,
    int64_t now_ms, int64_t* end, Appended* appended,
) noexcept nogil:
    # From the record at `end`, which moves on.
    cdef size_t limit = <size_t>shard_batch_bytes_max_locked(&shard.base)
    cdef Batch* first = NULL
    cdef Batch** place = &first
    cdef Batch* batch
    cdef Piece* piece
    cdef int64_t held_bytes = 0
    cdef int error = 0
    while end[0] < count + more.count and held_bytes < WRITE_BYTES_MAX and error == 0:
        piece = _piece_new(keys, count, more, end[0], limit, now_ms)
        if piece == NULL:
            error = UNKNOWN_SERVER_ERROR
            break
        place[0] = &piece.batch
        place = &piece.batch.next
        end[0] = piece.end
        held_bytes += piece.batch.length_bytes
        if piece.batch.length_bytes > limit:
            error = MESSAGE_TOO_LARGE
    if error == 0:
        shard_append_locked(&shard.base, first, now_ms)
        error = _written_locked(shard, keys, count, first, appended)
    while first != NULL:
        batch = first
        first = batch.next
        free(batch)
    return error


cdef int _write_locked(
    GroupShard* shard, const OffsetKey* keys, int64_t count, const MoreRecords* more,
    int64_t now_ms, Appended* appended,
) noexcept nogil:
    cdef int64_t end = 0
    cdef int error = 0
    while end < count + more.count and error == 0:
        error = _write_some_locked(shard, keys, count, more, now_ms, &end, appended)
    return error


cdef void _forget_locked(
    GroupShard* shard, const OffsetKey* keys, int64_t count, int64_t base_offset,
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
    GroupShard* shard, OffsetKey* keys, int64_t* count, const MoreRecords* more, int64_t until_ms,
    const uint8_t* topic_id, int64_t now_ms, Appended* appended,
) noexcept nogil:
    cdef int64_t found = 0
    cdef int64_t i
    for i in range(count[0]):
        if _is_there(shard, &keys[i], until_ms, topic_id):
            keys[found] = keys[i]
            found += 1
    count[0] = found
    if found + more.count == 0:
        appended[0] = shard_written_locked(&shard.base)
        return 0
    return _write_locked(shard, keys, found, more, now_ms, appended)


cdef int group_delete_locked(
    GroupShard* shard, Arena* arena, Group* group, const MoreRecords* more, int64_t now_ms,
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
    return _write_locked(shard, keys, count, more, now_ms, appended)
