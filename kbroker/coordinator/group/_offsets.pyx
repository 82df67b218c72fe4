# cython: language_level=3
"""What a group has committed: its topics, and in each the entries by partition.

An offset costs 40 bytes and, where there is one, its text; a topic of a group some 70 and its name.
Every entry knows the log offset of its record, and a record that is not later changes nothing.

A request is answered with commits below the high watermark: one above may be lost with this broker.
So an entry above it keeps the one before, in a chain down to the first that may be answered. The
chain is cut with the next commit. Without followers there is none: a record is below when it comes
here. A tombstone above it is such an entry, too, for groups that never commit again: the shard
lists it, and when the high watermark has passed it the entry goes. One below takes the whole entry
at once.

The shard's lock is held. -1: no memory, and what there was stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from kbroker.coordinator.group._offset_records cimport NO_EXPIRY, OffsetKey, OffsetValue
from kbroker.coordinator.group._structs cimport (
    Group,
    GroupTopic,
    OffsetEntry,
    OffsetExtra,
    Removal,
    GroupShard,
)
from kbroker.coordinator.group._table cimport table_put, table_remove, table_room
from kbroker.coordinator.runtime._batches cimport Text
from kbroker.coordinator.runtime._shards cimport high_watermark_of
from kbroker.core._name_hash cimport name_hash


cdef inline uint32_t _topic_hash(void* item) noexcept nogil:
    return (<GroupTopic*>item).hash


cdef void topic_free(GroupTopic* topic) noexcept nogil:
    cdef int32_t i
    for i in range(topic.count):
        _extra_free(topic.entries[i].extra)
    free(topic.entries)
    free(topic)


cdef void _extra_free(OffsetExtra* extra) noexcept nogil:
    cdef OffsetEntry* before
    while extra != NULL:
        before = extra.before
        free(extra)
        extra = before.extra if before != NULL else NULL
        free(before)


cdef int64_t extra_bytes(const OffsetExtra* extra) noexcept nogil:
    if extra == NULL:
        return 0
    return <int64_t>sizeof(OffsetExtra) + extra.length + extra.below_bytes


cdef int entry_removed(const OffsetEntry* entry) noexcept nogil:
    return entry.extra != NULL and entry.extra.removed


cdef const OffsetEntry* entry_replicated(
    const OffsetEntry* entry, int64_t high_watermark,
) noexcept nogil:
    while entry != NULL and entry.log_offset >= high_watermark:
        entry = entry.extra.before if entry.extra != NULL else NULL
    if entry != NULL and entry_removed(entry):
        return NULL
    return entry


cdef OffsetExtra* _extra_new(int64_t expire_ms, const Text* metadata) noexcept nogil:
    cdef OffsetExtra* extra = <OffsetExtra*>malloc(
        sizeof(OffsetExtra) + <size_t>metadata.length)
    if extra == NULL:
        return NULL
    extra.expire_ms = expire_ms
    extra.before = NULL
    extra.below_bytes = 0
    extra.cut_above = 0
    extra.length = metadata.length
    extra.removed = 0
    if metadata.length > 0:
        memcpy(<uint8_t*>extra + sizeof(OffsetExtra), metadata.at, <size_t>metadata.length)
    return extra


cdef void _cut(OffsetExtra* extra, int64_t log_offset, int64_t high_watermark) noexcept nogil:
    # Drops the entries below the first that may be answered; there are some.
    cdef OffsetEntry* readable = extra.before
    cdef OffsetEntry* above = extra.before
    cdef int64_t freed_bytes
    extra.cut_above = log_offset
    while readable.log_offset >= high_watermark:
        extra.cut_above = readable.log_offset
        readable = readable.extra.before
    freed_bytes = readable.extra.below_bytes
    _extra_free(readable.extra.before.extra)
    free(readable.extra.before)
    readable.extra.before = NULL
    readable.extra.below_bytes = 0
    while above != readable:
        above.extra.below_bytes -= freed_bytes
        above = above.extra.before


cdef int _keep_before(
    OffsetExtra* extra, OffsetEntry* entry, int64_t log_offset, int64_t high_watermark,
) noexcept nogil:
    # Moves the entry, as it is, below the extra of the one that comes. -1: no memory. The chain is
    # not walked before there is something to be cut: it may be long while a follower fetches
    # nothing, or where a log is loaded that ends far above the high watermark.
    cdef OffsetEntry* last = <OffsetEntry*>malloc(sizeof(OffsetEntry))
    if last == NULL:
        return -1
    last[0] = entry[0]
    entry.extra = NULL
    extra.before = last
    extra.cut_above = log_offset
    if last.extra != NULL and last.extra.before != NULL:
        extra.cut_above = last.extra.cut_above
    if extra.cut_above < high_watermark:
        _cut(extra, log_offset, high_watermark)
    extra.below_bytes = <int64_t>sizeof(OffsetEntry) + extra_bytes(last.extra)
    return 0


cdef Text entry_metadata(const OffsetEntry* entry) noexcept nogil:
    """In the entry: good while the lock is held."""
    cdef Text text
    text.at = NULL
    text.length = 0
    if entry.extra != NULL:
        text.at = <const uint8_t*>entry.extra + sizeof(OffsetExtra)
        text.length = entry.extra.length
    return text


cdef int64_t entry_expire_ms(const OffsetEntry* entry) noexcept nogil:
    return entry.extra.expire_ms if entry.extra != NULL else NO_EXPIRY


cdef GroupTopic* topic_find_locked(
    Group* group, const uint8_t* name, int32_t length,
) noexcept nogil:
    cdef uint32_t wanted
    cdef uint32_t place
    cdef GroupTopic* topic
    if group.topics == NULL:
        return NULL
    wanted = name_hash(name, length)
    place = wanted & group.topic_mask
    while True:
        topic = group.topics[place]
        if topic == NULL:
            return NULL
        if (
            topic.hash == wanted and topic.name_length == length
            and memcmp(topic.name, name, <size_t>length) == 0
        ):
            return topic
        place = (place + 1) & group.topic_mask


cdef GroupTopic* _topic_take_locked(
    GroupShard* shard, Group* group, const uint8_t* name, int32_t length,
) noexcept nogil:
    cdef GroupTopic* topic = topic_find_locked(group, name, length)
    if topic != NULL:
        return topic
    if table_room(
        <void***>&group.topics, &group.topic_mask, group.topic_count, _topic_hash,
    ) != 0:
        return NULL
    topic = <GroupTopic*>calloc(1, sizeof(GroupTopic) + <size_t>length)
    if topic == NULL:
        return NULL
    topic.name = <uint8_t*>topic + sizeof(GroupTopic)
    memcpy(topic.name, name, <size_t>length)
    topic.name_length = length
    topic.hash = name_hash(name, length)
    table_put(<void**>group.topics, group.topic_mask, topic, topic.hash)
    group.topic_count += 1
    shard.bytes += <int64_t>sizeof(GroupTopic) + length
    return topic


cdef int32_t _place_of(GroupTopic* topic, int32_t partition) noexcept nogil:
    # The first entry that is not below; most topics are dense, so it is tried first.
    cdef int32_t low = 0
    cdef int32_t high = topic.count
    cdef int32_t middle
    if 0 <= partition < topic.count and topic.entries[partition].partition == partition:
        return partition
    if high > 0 and topic.entries[high - 1].partition < partition:
        return high
    while low < high:
        middle = low + (high - low) // 2
        if topic.entries[middle].partition < partition:
            low = middle + 1
        else:
            high = middle
    return low


cdef OffsetEntry* entry_find_locked(GroupTopic* topic, int32_t partition) noexcept nogil:
    cdef int32_t place = _place_of(topic, partition)
    if place < topic.count and topic.entries[place].partition == partition:
        return &topic.entries[place]
    return NULL


cdef int _entries_room(GroupShard* shard, GroupTopic* topic) noexcept nogil:
    # For one more.
    cdef int32_t capacity
    cdef OffsetEntry* grown
    if topic.count < topic.capacity:
        return 0
    capacity = topic.capacity + (topic.capacity >> 1) + 1
    grown = <OffsetEntry*>realloc(topic.entries, sizeof(OffsetEntry) * <size_t>capacity)
    if grown == NULL:
        return -1
    shard.bytes += (capacity - topic.capacity) * <int64_t>sizeof(OffsetEntry)
    topic.entries = grown
    topic.capacity = capacity
    return 0


cdef OffsetEntry* _entry_take_locked(
    GroupShard* shard, Group* group, GroupTopic* topic, int32_t partition,
) noexcept nogil:
    cdef int32_t place = _place_of(topic, partition)
    cdef OffsetEntry* entry
    if place < topic.count and topic.entries[place].partition == partition:
        return &topic.entries[place]
    if _entries_room(shard, topic) != 0:
        return NULL
    entry = &topic.entries[place]
    memmove(entry + 1, entry, sizeof(OffsetEntry) * <size_t>(topic.count - place))
    topic.count += 1
    _count_locked(shard, group, 1)
    entry.partition = partition
    entry.log_offset = -1
    entry.offset = -1
    entry.extra = NULL
    return entry


cdef inline void _count_locked(GroupShard* shard, Group* group, int offsets) noexcept nogil:
    group.offset_count += offsets
    shard.offset_count += offsets


cdef int _becomes_another_locked(
    GroupShard* shard, Group* group, GroupTopic* topic, int64_t log_offset,
) noexcept nogil:
    # The name has another topic now: what was committed for the one before goes. 0: it is the
    # record that is the older one, since a transaction's come with its marker.
    cdef int32_t i
    for i in range(topic.count):
        if topic.entries[i].log_offset >= log_offset:
            return 0
    for i in range(topic.count):
        if not entry_removed(&topic.entries[i]):
            _count_locked(shard, group, -1)
        shard.bytes -= extra_bytes(topic.entries[i].extra)
        _extra_free(topic.entries[i].extra)
    topic.count = 0
    return 1


cdef int offset_apply_locked(
    GroupShard* shard, Group* group, const OffsetKey* key, const OffsetValue* value,
    int64_t log_offset,
) noexcept nogil:
    """The record of `log_offset`, unless a later one is there."""
    cdef GroupTopic* topic
    cdef OffsetEntry* entry
    cdef OffsetExtra* extra = NULL
    cdef int64_t high_watermark = high_watermark_of(&shard.base)
    cdef int64_t before_bytes
    cdef int was_removed
    topic = _topic_take_locked(shard, group, key.topic.at, key.topic.length)
    if topic == NULL:
        return -1
    if (
        value.metadata.length > 0 or value.expire_ms != NO_EXPIRY or log_offset >= high_watermark
    ):
        extra = _extra_new(value.expire_ms, &value.metadata)
        if extra == NULL:
            return -1
    if value.topic_id != NULL and topic.has_id and memcmp(topic.topic_id, value.topic_id, 16) != 0:
        if not _becomes_another_locked(shard, group, topic, log_offset):
            free(extra)
            return 0
    entry = _entry_take_locked(shard, group, topic, key.partition)
    if entry == NULL or entry.log_offset >= log_offset:
        free(extra)
        return -1 if entry == NULL else 0
    before_bytes = extra_bytes(entry.extra)
    was_removed = entry_removed(entry)
    if log_offset >= high_watermark and entry.log_offset >= 0:
        if _keep_before(extra, entry, log_offset, high_watermark) != 0:
            free(extra)
            return -1
    if was_removed:
        _count_locked(shard, group, 1)
    shard.bytes += extra_bytes(extra) - before_bytes
    _extra_free(entry.extra)
    entry.extra = extra
    entry.offset = value.offset
    entry.log_offset = log_offset
    entry.commit_ms = value.commit_ms
    entry.leader_epoch = value.leader_epoch
    if value.topic_id != NULL:
        memcpy(topic.topic_id, value.topic_id, 16)
        topic.has_id = 1
    return 0


cdef int _remove_later_locked(
    GroupShard* shard, Group* group, GroupTopic* topic, OffsetEntry* entry, int64_t log_offset,
    int64_t high_watermark,
) noexcept nogil:
    # The commit is answered until the high watermark has passed the tombstone. The high watermark
    # moves without the shard's lock and was read once. -1: no memory.
    cdef int64_t before_bytes = extra_bytes(entry.extra)
    cdef Removal* removal = <Removal*>malloc(sizeof(Removal))
    cdef Text no_text
    cdef OffsetExtra* extra
    no_text.at = NULL
    no_text.length = 0
    extra = _extra_new(NO_EXPIRY, &no_text)
    if removal == NULL or extra == NULL or (
        _keep_before(extra, entry, log_offset, high_watermark) != 0
    ):
        free(removal)
        free(extra)
        return -1
    extra.removed = 1
    entry.extra = extra
    entry.log_offset = log_offset
    removal.next = NULL
    removal.group = group
    removal.topic = topic
    removal.log_offset = log_offset
    removal.partition = entry.partition
    if shard.removals == NULL:
        shard.removals = removal
    else:
        shard.last_removal.next = removal
    shard.last_removal = removal
    topic.removals += 1
    shard.bytes += <int64_t>sizeof(Removal) + extra_bytes(extra) - before_bytes
    return 0


cdef void _entry_drop_locked(
    GroupShard* shard, GroupTopic* topic, OffsetEntry* entry,
) noexcept nogil:
    cdef int64_t place = entry - topic.entries
    shard.bytes -= extra_bytes(entry.extra)
    _extra_free(entry.extra)
    topic.count -= 1
    memmove(entry, entry + 1, sizeof(OffsetEntry) * <size_t>(topic.count - place))


cdef void _topic_drop_if_bare_locked(
    GroupShard* shard, Group* group, GroupTopic* topic,
) noexcept nogil:
    if topic.count > 0 or topic.removals > 0:
        return
    shard.bytes -= <int64_t>sizeof(GroupTopic) + topic.name_length
    shard.bytes -= topic.capacity * <int64_t>sizeof(OffsetEntry)
    table_remove(<void**>group.topics, group.topic_mask, topic, _topic_hash)
    group.topic_count -= 1
    topic_free(topic)


cdef void offset_remove_locked(
    GroupShard* shard, Group* group, const OffsetKey* key, int64_t log_offset,
) noexcept nogil:
    """The tombstone of `log_offset`; what is left of a group without a member goes with it."""
    cdef GroupTopic* topic = topic_find_locked(group, key.topic.at, key.topic.length)
    cdef OffsetEntry* entry
    cdef int64_t high_watermark = high_watermark_of(&shard.base)
    if topic == NULL:
        return
    entry = entry_find_locked(topic, key.partition)
    if entry == NULL or entry_removed(entry) or entry.log_offset >= log_offset:
        return
    _count_locked(shard, group, -1)
    if log_offset >= high_watermark and (
        _remove_later_locked(shard, group, topic, entry, log_offset, high_watermark) == 0
    ):
        return
    _entry_drop_locked(shard, topic, entry)
    _topic_drop_if_bare_locked(shard, group, topic)


cdef void removal_end_locked(GroupShard* shard, Removal* removal) noexcept nogil:
    cdef GroupTopic* topic = removal.topic
    cdef OffsetEntry* entry = entry_find_locked(topic, removal.partition)
    # Unless something has been committed since.
    if entry != NULL and entry_removed(entry) and entry.log_offset == removal.log_offset:
        _entry_drop_locked(shard, topic, entry)
    topic.removals -= 1
    shard.bytes -= <int64_t>sizeof(Removal)
    _topic_drop_if_bare_locked(shard, removal.group, topic)
