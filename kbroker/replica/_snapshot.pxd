# cython: language_level=3
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from kbroker.core._sync cimport pthread_mutex_t
from kbroker.replica._partition cimport Partition
from kbroker.replica._topic_index cimport TopicIndex, TopicKey


cdef struct TopicEntry:
    TopicKey key                  # its name is in the same allocation
    int32_t partition_count
    Partition** partitions        # NULL where this broker has no replica
    int internal


cdef struct Snapshot:
    TopicIndex index              # of TopicEntries


cdef struct SnapshotReader:
    SnapshotReader* next
    uint64_t epoch                # atomic: 0 outside a hot call


# Memory that new readers cannot find any more, and that an earlier reader may still look at. The
# first field of the structure that holds it; `release` frees both.
cdef struct Retired:
    Retired* next
    uint64_t epoch                # readers of an earlier one may be in it
    void (*release)(Retired* retired) noexcept nogil


cdef struct SnapshotRegistry:
    pthread_mutex_t lock          # of the publisher; "table" in the lock order
    Snapshot* current             # atomic
    uint64_t epoch                # atomic
    SnapshotReader* readers
    Retired* retired_first        # by epoch
    Retired* retired_last


cdef SnapshotRegistry* registry_new() noexcept nogil
cdef void registry_free(SnapshotRegistry* registry) noexcept nogil
cdef SnapshotReader* reader_new(SnapshotRegistry* registry) noexcept nogil
cdef Snapshot* snapshot_enter(SnapshotRegistry* registry, SnapshotReader* reader) noexcept nogil
cdef void snapshot_leave(SnapshotReader* reader) noexcept nogil
cdef TopicEntry* snapshot_by_name(
    Snapshot* snapshot, const uint8_t* name, int32_t length) noexcept nogil
cdef TopicEntry* snapshot_by_id(Snapshot* snapshot, const uint8_t* topic_id) noexcept nogil
cdef TopicEntry* snapshot_by_hash(Snapshot* snapshot, uint32_t wanted) noexcept nogil
cdef TopicEntry* topic_entry_new(
    const uint8_t* name, int32_t length, const uint8_t* topic_id, int32_t partition_count,
    int internal) noexcept nogil
cdef void topic_entry_free(TopicEntry* entry) noexcept nogil
cdef int registry_publish(
    SnapshotRegistry* registry, TopicEntry** added, int added_count,
    const uint8_t** removed_ids, int removed_count) noexcept nogil
# Takes over `retired`, which holds the former content of that place.
cdef void registry_swap(
    SnapshotRegistry* registry, void** place, void* fresh, Retired* retired) noexcept nogil
# Frees what every reader has left; how much of it a reader is still in.
cdef int registry_reclaim(SnapshotRegistry* registry) noexcept nogil
