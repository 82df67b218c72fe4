# cython: language_level=3
"""The C snapshot of the metadata: topic name or id to partitions, read without a lock.

The replica manager publishes a new snapshot for every change of topics; handlers read the current
one. Reading costs two atomic stores: a reader writes the epoch it entered in and zero when it
leaves. The publisher swaps the pointer, moves the epoch on and **retires** the old tables and the
entries that no table lists any more: they are freed when no reader is inside an older epoch.
Entries are shared between snapshots, so publishing copies pointers, not topics.

Hot calls last well below a millisecond, but for one at a file that hangs. So a publisher waits
GRACE_NS at most, and not at all while something it retired before is still looked at; what is left
is freed by the next one. A removed partition lives on through its references (parked fetches,
slices, retired entries) and answers as offline. The publisher must not hold the GIL. Lock:
`registry.lock`, the first of the order (table); readers take none.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from posix.unistd cimport usleep

from kbroker.core._atomics cimport (
    kb_add_u64,
    kb_load_ptr,
    kb_load_u64,
    kb_store_ptr,
    kb_store_u64,
)
from kbroker.core._list cimport list_append, list_remove_first
from kbroker.core._lock_order cimport RANK_TABLE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require
from kbroker.core._sync cimport kb_now_ns, pthread_mutex_destroy
from kbroker.replica._partition cimport Partition, partition_release
from kbroker.replica._topic_index cimport (
    topic_index_free, topic_index_init, topic_index_put, topic_key_init, topic_place_by_hash,
    topic_place_by_id, topic_place_by_name)

cdef enum:
    GRACE_POLL_US = 50
    GRACE_NS = 5000000


# A snapshot that another has taken the place of, and the entries that went with it.
cdef struct OldSnapshot:
    Retired retired               # the first
    Snapshot* snapshot
    TopicEntry** entries
    int count


# --- building ------------------------------------------------------------------------------------

cdef TopicEntry* topic_entry_new(
    const uint8_t* name, int32_t length, const uint8_t* topic_id, int32_t partition_count,
    int internal,
) noexcept nogil:
    """An entry with empty places for partitions, each of which takes a reference over."""
    cdef size_t places = sizeof(Partition*) * <size_t>partition_count
    cdef TopicEntry* entry = <TopicEntry*>calloc(1, sizeof(TopicEntry) + places + <size_t>length)
    if entry == NULL:
        return NULL
    entry.partitions = <Partition**>(<char*>entry + sizeof(TopicEntry))
    topic_key_init(&entry.key, <uint8_t*>entry.partitions + places, name, length, topic_id)
    entry.partition_count = partition_count
    entry.internal = internal
    return entry


cdef void topic_entry_free(TopicEntry* entry) noexcept nogil:
    """Of an entry that no snapshot lists: gives its partitions' references back."""
    cdef int32_t i
    if entry == NULL:
        return
    for i in range(entry.partition_count):
        if entry.partitions[i] != NULL:
            partition_release(entry.partitions[i])
    free(entry)


cdef Snapshot* _snapshot_new(int64_t count) noexcept nogil:
    cdef Snapshot* snapshot = <Snapshot*>calloc(1, sizeof(Snapshot))
    if snapshot != NULL and topic_index_init(&snapshot.index, count) != 0:
        _snapshot_free(snapshot)
        return NULL
    return snapshot


cdef void _snapshot_free(Snapshot* snapshot) noexcept nogil:
    topic_index_free(&snapshot.index)
    free(snapshot)


# --- reading -------------------------------------------------------------------------------------

cdef SnapshotReader* reader_new(SnapshotRegistry* registry) noexcept nogil:
    """One per thread that makes hot calls; it lives as long as the registry."""
    cdef SnapshotReader* reader = <SnapshotReader*>calloc(1, sizeof(SnapshotReader))
    if reader == NULL:
        return NULL
    lock_ranked(&registry.lock, RANK_TABLE)
    reader.next = registry.readers
    registry.readers = reader
    unlock_ranked(&registry.lock, RANK_TABLE)
    return reader


cdef Snapshot* snapshot_enter(SnapshotRegistry* registry, SnapshotReader* reader) noexcept nogil:
    """What it answers with stays valid until snapshot_leave; not to be nested."""
    require(reader.epoch == 0, "snapshot: a reader enters one at a time", <int64_t>reader.epoch, 0)
    kb_store_u64(&reader.epoch, kb_load_u64(&registry.epoch))
    return <Snapshot*>kb_load_ptr(<void**>&registry.current)


cdef void snapshot_leave(SnapshotReader* reader) noexcept nogil:
    require(reader.epoch != 0, "snapshot: who leaves has entered", 0, 1)
    kb_store_u64(&reader.epoch, 0)


cdef TopicEntry* snapshot_by_name(
    Snapshot* snapshot, const uint8_t* name, int32_t length,
) noexcept nogil:
    return <TopicEntry*>topic_place_by_name(&snapshot.index, name, length)[0]


cdef TopicEntry* snapshot_by_id(Snapshot* snapshot, const uint8_t* topic_id) noexcept nogil:
    return <TopicEntry*>topic_place_by_id(&snapshot.index, topic_id)[0]


cdef TopicEntry* snapshot_by_hash(Snapshot* snapshot, uint32_t wanted) noexcept nogil:
    """A topic whose name has this hash: the same name again, but for one pair in four billion."""
    return <TopicEntry*>topic_place_by_hash(&snapshot.index, wanted)[0]


# --- publishing ----------------------------------------------------------------------------------

cdef SnapshotRegistry* registry_new() noexcept nogil:
    cdef SnapshotRegistry* registry = <SnapshotRegistry*>calloc(1, sizeof(SnapshotRegistry))
    if registry == NULL:
        return NULL
    kb_mutex_init(&registry.lock)
    registry.epoch = 1
    registry.current = _snapshot_new(0)
    if registry.current == NULL:
        free(registry)
        return NULL
    return registry


cdef void registry_free(SnapshotRegistry* registry) noexcept nogil:
    """When no thread makes hot calls any more."""
    cdef SnapshotReader* reader
    cdef uint32_t place
    cdef Retired* retired
    if registry == NULL:
        return
    while registry.retired_first != NULL:
        retired = registry.retired_first
        registry.retired_first = retired.next
        retired.release(retired)
    for place in range(registry.current.index.by_name.mask + 1):
        topic_entry_free(<TopicEntry*>registry.current.index.by_name.places[place])
    _snapshot_free(registry.current)
    while registry.readers != NULL:
        reader = registry.readers
        registry.readers = reader.next
        free(reader)
    pthread_mutex_destroy(&registry.lock)
    free(registry)


cdef int _is_removed(
    TopicEntry* entry, TopicEntry** added, int added_count,
    const uint8_t** removed_ids, int removed_count,
) noexcept nogil:
    # Removed by id, or replaced by an entry of the same id.
    cdef int i
    for i in range(removed_count):
        if memcmp(entry.key.topic_id, removed_ids[i], 16) == 0:
            return 1
    for i in range(added_count):
        if memcmp(entry.key.topic_id, added[i].key.topic_id, 16) == 0:
            return 1
    return 0


cdef int _is_inside_locked(SnapshotRegistry* registry, uint64_t epoch) noexcept nogil:
    # Whether a reader came before this epoch and has not left.
    cdef SnapshotReader* reader = registry.readers
    cdef uint64_t inside
    while reader != NULL:
        inside = kb_load_u64(&reader.epoch)
        if inside != 0 and inside < epoch:
            return 1
        reader = reader.next
    return 0


cdef void _reclaim_locked(SnapshotRegistry* registry) noexcept nogil:
    cdef Retired* retired = registry.retired_first
    while retired != NULL and not _is_inside_locked(registry, retired.epoch):
        list_remove_first(&registry.retired_first, &registry.retired_last, retired, &retired.next,
                          "snapshot: what is freed was retired first")
        retired.release(retired)
        retired = registry.retired_first


cdef void _retire_locked(SnapshotRegistry* registry, Retired* retired) noexcept nogil:
    # After the swap, which no reader that enters from here on can miss.
    cdef int64_t until_ns = kb_now_ns() + GRACE_NS
    _reclaim_locked(registry)
    retired.epoch = kb_add_u64(&registry.epoch, 1)
    require(registry.retired_first == NULL or registry.retired_last.epoch < retired.epoch,
            "snapshot: epochs go forward", <int64_t>retired.epoch, 0)
    list_append(&registry.retired_first, &registry.retired_last, retired, &retired.next,
                "snapshot: nothing is after the last that was retired")
    if registry.retired_first != retired:
        return                    # a reader that is in one of before is in this one, too
    while _is_inside_locked(registry, retired.epoch) and kb_now_ns() < until_ns:
        usleep(GRACE_POLL_US)
    _reclaim_locked(registry)


cdef int registry_reclaim(SnapshotRegistry* registry) noexcept nogil:
    cdef Retired* retired
    cdef int left = 0
    lock_ranked(&registry.lock, RANK_TABLE)
    _reclaim_locked(registry)
    retired = registry.retired_first
    while retired != NULL:
        left += 1
        retired = retired.next
    unlock_ranked(&registry.lock, RANK_TABLE)
    return left


cdef void _old_snapshot_release(Retired* retired) noexcept nogil:
    cdef OldSnapshot* old = <OldSnapshot*>retired
    cdef int i
    for i in range(old.count):
        topic_entry_free(old.entries[i])
    _snapshot_free(old.snapshot)
    free(old)


cdef OldSnapshot* _old_snapshot_new(int entries_max) noexcept nogil:
    cdef OldSnapshot* old = <OldSnapshot*>calloc(
        1, sizeof(OldSnapshot) + <size_t>entries_max * sizeof(TopicEntry*))
    if old != NULL:
        old.retired.release = _old_snapshot_release
        old.entries = <TopicEntry**>(<char*>old + sizeof(OldSnapshot))
    return old


cdef int registry_publish(
    SnapshotRegistry* registry, TopicEntry** added, int added_count,
    const uint8_t** removed_ids, int removed_count,
) noexcept nogil:
    """Adds (or replaces, by id) and removes topics; -1: no memory, nothing changed.

    Without the GIL. On return no reader finds a removed entry; one that had found it may still be
    at it, and its partitions' references are given back after that.
    """
    cdef OldSnapshot* old = _old_snapshot_new(added_count + removed_count)
    cdef Snapshot* fresh = NULL
    cdef TopicEntry* entry
    cdef uint32_t place
    cdef int i
    lock_ranked(&registry.lock, RANK_TABLE)
    if old != NULL:
        old.snapshot = registry.current
        fresh = _snapshot_new(<int64_t>old.snapshot.index.by_name.count + added_count)
    if fresh == NULL:
        unlock_ranked(&registry.lock, RANK_TABLE)
        free(old)
        return -1
    for place in range(old.snapshot.index.by_name.mask + 1):
        entry = <TopicEntry*>old.snapshot.index.by_name.places[place]
        if entry == NULL:
            continue
        if _is_removed(entry, added, added_count, removed_ids, removed_count):
            old.entries[old.count] = entry
            old.count += 1
        else:
            topic_index_put(&fresh.index, &entry.key)
    for i in range(added_count):
        topic_index_put(&fresh.index, &added[i].key)
    kb_store_ptr(<void**>&registry.current, fresh)
    _retire_locked(registry, &old.retired)
    unlock_ranked(&registry.lock, RANK_TABLE)
    return 0


cdef void registry_swap(
    SnapshotRegistry* registry, void** place, void* fresh, Retired* retired,
) noexcept nogil:
    """Puts `fresh` where readers look between enter and leave. Without the GIL, like publishing."""
    lock_ranked(&registry.lock, RANK_TABLE)
    kb_store_ptr(place, fresh)
    _retire_locked(registry, retired)
    unlock_ranked(&registry.lock, RANK_TABLE)
