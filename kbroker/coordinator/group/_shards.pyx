# cython: language_level=3
"""Groups by shard, in C: who is a member, and what each group has committed.

A shard is a partition of `__consumer_offsets`; what is not of groups in it is the runtime's
(`coordinator/runtime/_shards`), as is its lock.

Members are a copy: Python decides and shows them. Committed offsets are here alone; a group costs
about 120 bytes, a topic of a group 80 and its name, an offset 40 and, where there is one, its text.

`_locked` functions want the shard's lock. Nothing here calls back or touches Python. Who runs out
of memory gets -1 or NULL, and what there was stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._beats cimport beats_bytes, beats_clear_locked, beats_free
from kbroker.coordinator.group._members cimport (
    member_bytes,
    member_free,
    members_clear_locked,
    members_replace_locked,
)
from kbroker.coordinator.group._offsets cimport extra_bytes, removal_end_locked, topic_free
from kbroker.coordinator.group._state_rows cimport commits_in, heartbeat_error_in
from kbroker.coordinator.group._structs cimport (
    Group,
    GroupShard,
    GroupTopic,
    Member,
    OffsetEntry,
    Removal,
)
from kbroker.coordinator.group._table cimport (
    table_count, table_put, table_remove, table_room)
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._shards cimport high_watermark_of
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.core._live_objects cimport LIVE_GROUPS, live_add
from kbroker.core._name_hash cimport name_hash
from kbroker.core._require cimport OF_COUNT, require_count, require_of

cdef enum:
    REMOVALS_AT_ONCE = 256        # each moves what follows it in its topic


# --- shards --------------------------------------------------------------------------------------

cdef void removals_end_locked(GroupShard* shard) noexcept nogil:
    cdef int64_t high_watermark = high_watermark_of(&shard.base)
    cdef Removal* removal = shard.removals
    cdef int left = REMOVALS_AT_ONCE
    while removal != NULL and removal.log_offset < high_watermark and left > 0:
        left -= 1
        shard.removals = removal.next
        removal_end_locked(shard, removal)
        group_drop_if_bare_locked(shard, removal.group)
        free(removal)
        removal = shard.removals


cdef void group_shard_clear_locked(Shard* runtime_shard) noexcept nogil:
    cdef GroupShard* shard = <GroupShard*>runtime_shard
    cdef uint32_t place
    cdef Removal* removal
    while shard.removals != NULL:
        removal = shard.removals
        shard.removals = removal.next
        free(removal)
    if shard.groups == NULL:
        return
    for place in range(shard.mask + 1):
        if shard.groups[place] != NULL:
            _group_free(shard.groups[place])
    free(shard.groups)
    shard.groups = NULL
    shard.mask = 0
    shard.count = 0
    shard.offset_count = 0
    shard.bytes = 0


cdef inline uint32_t _group_hash(void* item) noexcept nogil:
    return (<Group*>item).hash


# --- groups --------------------------------------------------------------------------------------

cdef Group* group_find_locked(GroupShard* shard, const uint8_t* id, int32_t length) noexcept nogil:
    cdef uint32_t wanted
    cdef uint32_t place
    cdef Group* group
    if shard.groups == NULL:
        return NULL
    wanted = name_hash(id, length)
    place = wanted & shard.mask
    while True:
        group = shard.groups[place]
        if group == NULL:
            return NULL
        if (
            group.hash == wanted and group.id_length == length
            and memcmp(group.id, id, <size_t>length) == 0
        ):
            return group
        place = (place + 1) & shard.mask


cdef Group* group_take_locked(GroupShard* shard, const uint8_t* id, int32_t length) noexcept nogil:
    cdef Group* group = group_find_locked(shard, id, length)
    if group != NULL:
        return group
    if table_room(<void***>&shard.groups, &shard.mask, shard.count, _group_hash) != 0:
        return NULL
    group = <Group*>calloc(1, sizeof(Group) + <size_t>length)
    if group == NULL:
        return NULL
    live_add(LIVE_GROUPS, 1)
    group.id = <uint8_t*>group + sizeof(Group)
    memcpy(group.id, id, <size_t>length)
    group.id_length = length
    group.hash = name_hash(id, length)
    table_put(<void**>shard.groups, shard.mask, group, group.hash)
    shard.count += 1
    shard.bytes += <int64_t>sizeof(Group) + length
    return group


cdef void _group_free(Group* group) noexcept nogil:
    cdef uint32_t place
    if group.members != NULL:
        for place in range(group.member_mask + 1):
            member_free(group.members[place])
        free(group.members)
    beats_free(group)
    if group.topics != NULL:
        for place in range(group.topic_mask + 1):
            if group.topics[place] != NULL:
                topic_free(group.topics[place])
        free(group.topics)
    live_add(LIVE_GROUPS, -1)
    free(group)


cdef int64_t _group_bytes(Group* group) noexcept nogil:
    # What a removal of all of it gives back, as it was counted.
    cdef int64_t total = <int64_t>sizeof(Group) + group.id_length
    cdef GroupTopic* topic
    cdef uint32_t place
    cdef int32_t i
    if group.members != NULL:
        for place in range(group.member_mask + 1):
            total += member_bytes(group.members[place])
    total += beats_bytes(group)
    if group.topics != NULL:
        for place in range(group.topic_mask + 1):
            topic = group.topics[place]
            if topic == NULL:
                continue
            total += <int64_t>sizeof(GroupTopic) + topic.name_length
            total += topic.capacity * <int64_t>sizeof(OffsetEntry)
            for i in range(topic.count):
                total += extra_bytes(topic.entries[i].extra)
    return total


cdef void group_remove_locked(GroupShard* shard, Group* group) noexcept nogil:
    shard.bytes = require_count(
        shard.bytes - _group_bytes(group), "shard: its bytes are counted")
    shard.offset_count = require_count(
        shard.offset_count - group.offset_count, "shard: its offsets are counted")
    table_remove(<void**>shard.groups, shard.mask, group, _group_hash)
    shard.count -= 1
    if not require_of(OF_COUNT, shard.base.index, NULL, shard.count >= 0,
                      "shard: its groups are counted", shard.count, 0):
        # The table grows by this count; a lookup in one that is full would not end.
        shard.count = table_count(<void**>shard.groups, shard.mask)
    _group_free(group)


cdef void group_drop_if_bare_locked(GroupShard* shard, Group* group) noexcept nogil:
    if not group.published and group.topic_count == 0:
        group_remove_locked(shard, group)


# --- what Python shows ---------------------------------------------------------------------------

cdef int group_publish_locked(
    GroupShard* shard, const Text* id, int state, int generation, Member** members, int32_t count,
) noexcept nogil:
    # 1: the members are the group's now; -1: no memory.
    cdef Group* group = group_take_locked(shard, id.at, id.length)
    if group == NULL or members_replace_locked(shard, group, members, count) != 0:
        return -1
    group.published = 1
    group.state = state
    group.commits_of = commits_in(state)
    group.heartbeat_error = heartbeat_error_in(state)
    group.generation = generation
    return 1


cdef void group_hide_locked(GroupShard* shard, const Text* id) noexcept nogil:
    cdef Group* group = group_find_locked(shard, id.at, id.length)
    if group != NULL:
        members_clear_locked(shard, group)
        beats_clear_locked(shard, group)
        group.published = 0
        group_drop_if_bare_locked(shard, group)
