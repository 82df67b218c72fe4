# cython: language_level=3
"""Groups by shard, in C: who is a member, and what each group has committed.

A shard is a partition of `__consumer_offsets` that this broker leads; its lock is of the rank
"session", so the partition's may be taken under it. Whoever appends to the shard's partition holds
the shard's lock over the append and what it means for the memory: order in memory is order in the
log, and nothing has to be told apart later. What waits for the lock meanwhile is another request to
groups of the same shard, for one write to the page cache. Where that takes long the hot path does
not come for the lock, but sets its requests aside (`shard_is_slow`).

Members are a copy: Python decides and shows them. Committed offsets are here alone; a group costs
about 120 bytes, a topic of a group 80 and its name, an offset 40 and, where there is one, its text.

`_locked` functions want the shard's lock. Nothing here calls back or touches Python. Who runs out
of memory gets -1 or NULL, and what there was stays.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.coordinator.group._members cimport (
    member_bytes,
    member_free,
    members_clear_locked,
    members_replace_locked,
)
from kbroker.coordinator.group._offsets cimport (
    extra_bytes,
    high_watermark_of,
    removal_end_locked,
    topic_free,
)
from kbroker.coordinator.group._state_rows cimport commits_in, heartbeat_error_in
from kbroker.coordinator.group._structs cimport (
    SHARD_ACTIVE,
    SHARD_LOADING,
    SHARDS_MAX,
    Appended,
    Group,
    GroupShards,
    GroupTopic,
    Member,
    OffsetEntry,
    Removal,
    Shard,
)
from kbroker.coordinator.group._table cimport (
    table_count, table_put, table_remove, table_room)
from kbroker.coordinator.runtime._batches cimport Text
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
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.core._live_objects cimport LIVE_GROUPS, live_add
from kbroker.core._lock_order cimport RANK_SESSION, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._name_hash cimport name_hash
from kbroker.core._require cimport OF_COUNT, require, require_count, require_of
from kbroker.core._sync cimport kb_now_ns, pthread_mutex_destroy
from kbroker.log.engine._storage cimport log_late_from_ns, writing_is_slow
from kbroker.log.engine._types cimport Batch
from kbroker.replica._partition cimport (
    Partition,
    partition_append,
    partition_lock,
    partition_release,
    partition_unlock,
)

cdef enum:
    REMOVALS_AT_ONCE = 256        # each moves what stands behind it in its topic


# --- shards --------------------------------------------------------------------------------------

cdef GroupShards* group_shards_new() noexcept nogil:
    cdef GroupShards* shards = <GroupShards*>calloc(1, sizeof(GroupShards))
    if shards == NULL:
        return NULL
    shards.shards = <Shard**>calloc(SHARDS_MAX, sizeof(Shard*))
    if shards.shards == NULL:
        free(shards)
        return NULL
    return shards


cdef void group_shards_free(GroupShards* shards) noexcept nogil:
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
        free(shard.groups)
        pthread_mutex_destroy(&shard.lock)
        free(shard)
    free(shards.shards)
    free(shards)


cdef int group_shards_grow(GroupShards* shards, int count) noexcept nogil:
    cdef Shard* shard
    cdef int i
    for i in range(count):
        if shards.shards[i] != NULL:
            continue
        shard = <Shard*>calloc(1, sizeof(Shard))
        if shard == NULL:
            return -1
        kb_mutex_init(&shard.lock)
        shard.index = i
        shards.shards[i] = shard
    kb_store_int(&shards.count, count)
    return 0


cdef int32_t java_hash_ascii(const uint8_t* id, int32_t length) noexcept nogil:
    """String.hashCode of an ASCII text."""
    cdef uint32_t mixed = 0
    cdef int32_t i
    for i in range(length):
        mixed = 31u * mixed + id[i]
    return <int32_t>mixed


cdef int32_t shard_index(int32_t hash, int count) noexcept nogil:
    """As Kafka finds a group's partition: the absolute value, and 0 for the one that has none."""
    cdef uint32_t positive = <uint32_t>hash
    if hash < 0:
        positive = 0u - positive
    if positive >> 31:
        return 0
    return <int32_t>(positive % <uint32_t>count)


cdef Shard* shard_for(GroupShards* shards, const uint8_t* id, int32_t length) noexcept nogil:
    cdef int count = kb_load_int(&shards.count)
    if count <= 0:
        return NULL
    return shards.shards[shard_index(java_hash_ascii(id, length), count)]


cdef void shard_lock(Shard* shard) noexcept nogil:
    """Tombstones that all replicas have by now go, a bounded number each time it is taken: who
    takes it next should not pay for a deletion of many. One that is there yet is told of nobody."""
    lock_ranked(&shard.lock, RANK_SESSION)
    if shard.removals != NULL:
        _end_removals_locked(shard)


cdef void _end_removals_locked(Shard* shard) noexcept nogil:
    cdef int64_t high_watermark = high_watermark_of(shard)
    cdef Removal* removal = shard.removals
    cdef int left = REMOVALS_AT_ONCE
    while removal != NULL and removal.log_offset < high_watermark and left > 0:
        left -= 1
        shard.removals = removal.next
        removal_end_locked(shard, removal)
        group_drop_if_bare_locked(shard, removal.group)
        free(removal)
        removal = shard.removals


cdef void shard_unlock(Shard* shard) noexcept nogil:
    unlock_ranked(&shard.lock, RANK_SESSION)


cdef int shard_is_slow(Shard* shard) noexcept nogil:
    return writing_is_slow(&shard.writing_since_ns, &shard.slow_until_ns)


cdef int64_t* shard_late_from_ns(Shard* shard) noexcept nogil:
    return <int64_t*>kb_load_ptr(<void**>&shard.late_from_ns)


cdef void shard_note_directory_locked(Shard* shard) noexcept nogil:
    kb_store_ptr(<void**>&shard.late_from_ns, log_late_from_ns(shard.partition.log))


cdef int shard_stands(Shard* shard) noexcept nogil:
    cdef int64_t not_till = 0
    return writing_is_slow(&shard.writing_since_ns, &not_till)


cdef int shard_error(Shard* shard) noexcept nogil:
    cdef int state = kb_load_int(&shard.state)
    if state == SHARD_ACTIVE:
        return NO_ERROR
    return COORDINATOR_LOAD_IN_PROGRESS if state == SHARD_LOADING else NOT_COORDINATOR


cdef void shard_clear_locked(Shard* shard) noexcept nogil:
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

cdef Group* group_find_locked(Shard* shard, const uint8_t* id, int32_t length) noexcept nogil:
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


cdef Group* group_take_locked(Shard* shard, const uint8_t* id, int32_t length) noexcept nogil:
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


cdef void group_remove_locked(Shard* shard, Group* group) noexcept nogil:
    shard.bytes = require_count(
        shard.bytes - _group_bytes(group), "shard: its bytes are counted")
    shard.offset_count = require_count(
        shard.offset_count - group.offset_count, "shard: its offsets are counted")
    table_remove(<void**>shard.groups, shard.mask, group, _group_hash)
    shard.count -= 1
    if not require_of(OF_COUNT, shard.index, NULL, shard.count >= 0,
                      "shard: its groups are counted", shard.count, 0):
        # The table grows by this count; a lookup in one that is full would not end.
        shard.count = table_count(<void**>shard.groups, shard.mask)
    _group_free(group)


cdef void group_drop_if_bare_locked(Shard* shard, Group* group) noexcept nogil:
    if not group.shown and group.topic_count == 0:
        group_remove_locked(shard, group)


# --- what Python shows ---------------------------------------------------------------------------

cdef int group_show_locked(
    Shard* shard, const Text* id, int state, int generation, Member** members, int32_t count,
) noexcept nogil:
    # 1: the members are the group's now; -1: no memory.
    cdef Group* group = group_take_locked(shard, id.at, id.length)
    if group == NULL or members_replace_locked(shard, group, members, count) != 0:
        return -1
    group.shown = 1
    group.state = state
    group.commits_of = commits_in(state)
    group.heartbeat_error = heartbeat_error_in(state)
    group.generation = generation
    return 1


cdef void group_hide_locked(Shard* shard, const Text* id) noexcept nogil:
    cdef Group* group = group_find_locked(shard, id.at, id.length)
    if group != NULL:
        members_clear_locked(shard, group)
        group.shown = 0
        group_drop_if_bare_locked(shard, group)


# --- the log -------------------------------------------------------------------------------------

cdef int coordinator_error(int error) noexcept nogil:
    """What a refused append means to a client of the coordinator, as Kafka puts it."""
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
    """What the log takes at most, as its settings are now."""
    return kb_load_i64(&shard.partition.log.rules.max_message_bytes)


cdef int shard_append_locked(Shard* shard, Batch* first, int64_t now_ms) noexcept nogil:
    """All batches of the list in one write; then each has its offset, or a coordinator's error.

    With one replica in sync the records survive what acks=-1 survives when this returns. With more
    the answer is to wait for the high watermark.
    """
    cdef int64_t length_max = shard_batch_bytes_max_locked(shard)
    cdef Partition* partition = shard.partition
    cdef Batch* batch = first
    cdef int waiting
    require(shard.writing_since_ns == 0, "shard: one writes at a time", shard.writing_since_ns, 0)
    while batch != NULL:
        if batch.length_bytes > length_max:
            batch.error = MESSAGE_TOO_LARGE
        batch = batch.next
    kb_store_i64(&shard.writing_since_ns, kb_now_ns())
    shard_note_directory_locked(shard)
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
