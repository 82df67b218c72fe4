# cython: language_level=3
"""Offsets copied out of a shard under its lock, so that Python reads them without it.

Copying is what a commit to the same shard waits for: some 50 ns an offset. Copies of one topic
share its name. No memory is `failed`, once; nothing else goes wrong.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._offset_records cimport NO_EXPIRY
from kbroker.coordinator.group._offsets cimport entry_expire_ms, entry_metadata, entry_removed
from kbroker.coordinator.group._shards cimport group_find_locked, group_shard_lock
from kbroker.coordinator.group._structs cimport Group, GroupTopic, OffsetEntry, GroupShard
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._shards cimport shard_unlock
from kbroker.core._arena cimport arena_take


cdef Text _kept(Copies* copies, const uint8_t* at, int32_t length) noexcept nogil:
    cdef Text text
    text.length = length
    text.at = <uint8_t*>arena_take(copies.arena, <size_t>length + 1)
    if text.at == NULL:
        copies.failed = 1
        text.length = 0
    elif length > 0:
        memcpy(<void*>text.at, at, <size_t>length)
    return text


cdef int _is_wanted(const OffsetEntry* entry, const Wanted* wanted) noexcept nogil:
    cdef int64_t expire_ms
    if not wanted.expired:
        return 1
    expire_ms = entry_expire_ms(entry)
    if expire_ms != NO_EXPIRY:
        return expire_ms <= wanted.now_ms
    return entry.commit_ms <= wanted.before_ms


cdef Copy* _one_more(Copies* copies) noexcept nogil:
    cdef int64_t capacity
    cdef Copy* grown
    if copies.count == copies.capacity:
        capacity = 2 * copies.capacity + 16
        grown = <Copy*>realloc(copies.items, sizeof(Copy) * <size_t>capacity)
        if grown == NULL:
            copies.failed = 1
            return NULL
        copies.items = grown
        copies.capacity = capacity
    copies.count += 1
    return &copies.items[copies.count - 1]


cdef void _copy_topic(
    Copies* copies, Text* group, GroupTopic* topic, const Wanted* wanted,
) noexcept nogil:
    cdef Text name
    cdef Text metadata
    cdef const uint8_t* topic_id = NULL
    cdef Copy* copied
    cdef int32_t i
    name.at = NULL
    for i in range(topic.count):
        if entry_removed(&topic.entries[i]) or not _is_wanted(&topic.entries[i], wanted):
            continue
        if name.at == NULL:
            name = _kept(copies, topic.name, topic.name_length)
            if topic.has_id:
                topic_id = _kept(copies, topic.topic_id, 16).at
        metadata = entry_metadata(&topic.entries[i])
        copied = _one_more(copies)
        if copied == NULL or copies.failed:
            return
        copied.group = group[0]
        copied.topic = name
        copied.topic_id = topic_id
        copied.metadata = _kept(copies, metadata.at, metadata.length)
        copied.expire_ms = entry_expire_ms(&topic.entries[i])
        copied.entry = topic.entries[i]
        copied.entry.extra = NULL


cdef void _copy_group(Copies* copies, Group* group, const Wanted* wanted) noexcept nogil:
    cdef Text id
    cdef GroupTopic* topic
    cdef uint32_t place
    if group.topics == NULL or copies.failed:
        return
    id = _kept(copies, group.id, group.id_length)
    for place in range(group.topic_mask + 1):
        topic = group.topics[place]
        if topic == NULL or copies.failed:
            continue
        if wanted.topic.at != NULL and (
            topic.name_length != wanted.topic.length
            or memcmp(topic.name, wanted.topic.at, <size_t>topic.name_length) != 0
        ):
            continue
        _copy_topic(copies, &id, topic, wanted)


cdef void _copy_shard(Copies* copies, GroupShard* shard, const Wanted* wanted) noexcept nogil:
    cdef uint32_t place
    if shard.groups == NULL:
        return
    for place in range(shard.mask + 1):
        if shard.groups[place] != NULL:
            _copy_group(copies, shard.groups[place], wanted)


cdef void copy_offsets(
    GroupShard* shard, const Text* id, const Wanted* wanted, Copies* copies,
) noexcept nogil:
    cdef Group* group
    group_shard_lock(shard)
    if id == NULL:
        _copy_shard(copies, shard, wanted)
    else:
        group = group_find_locked(shard, id.at, id.length)
        if group != NULL:
            _copy_group(copies, group, wanted)
    shard_unlock(&shard.base)


cdef void copies_free(Copies* copies) noexcept nogil:
    free(copies.items)
    copies.items = NULL
    copies.count = 0
    copies.capacity = 0
