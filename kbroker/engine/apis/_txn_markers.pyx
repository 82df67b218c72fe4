# cython: language_level=3
"""The markers of a run's outcomes, appended by the handler that has written the outcomes.

A marker in a partition that this broker leads, and that has no followers, is an append and nothing
else; those of a run for one partition are one write. Where one fails, Python takes the outcome over
and writes its markers again: a marker that is written twice does no harm.

What is looked at before an outcome is written may change until its markers are appended: that they
wait for no follower is compared under the partition's lock (`Batch.alone`). The worker's own
thread, no GIL. Locks: a partition's, one at a time.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from kbroker.coordinator.txn._moves cimport TxnMove
from kbroker.coordinator.txn._places cimport Place, PlacesWalk, places_next, places_walk
from kbroker.coordinator.txn._structs cimport TXN_PREPARE_COMMIT
from kbroker.core._arena cimport arena_take
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._list cimport list_append
from kbroker.core._table cimport Table, table_find_or_put, table_init
from kbroker.engine.apis._txn_write cimport TxnTouched, touched_add
from kbroker.engine.worker._context cimport HotWorker
from kbroker.log.engine._markers cimport MARKER_BYTES, marker_prepare
from kbroker.log.engine._storage cimport log_is_slow
from kbroker.log.engine._types cimport Batch
from kbroker.log.upkeep._flush cimport FLUSH_RECORDS
from kbroker.replica._partition cimport (
    Partition, partition_acquire, partition_append, partition_flush, partition_lock,
    partition_unlock)
from kbroker.replica._snapshot cimport Snapshot, TopicEntry, snapshot_by_name


cdef enum:
    MARKERS_MAX = 1_000           # of one outcome; a run has 64


# The markers of one partition.
cdef struct Group:
    Partition* partition
    Batch* first
    Batch* last


# --- plan ----------------------------------------------------------------------------------------

cdef int _is_alone(Partition* partition) noexcept nogil:
    # As it is now.
    cdef int is_alone
    partition_lock(partition)
    is_alone = (
        partition.is_leader and partition.followers.count == 0 and partition.log.online
        and partition.log.settings.flush_messages == INT64_MAX)
    partition_unlock(partition)
    return is_alone


cdef int markers_plan(
    HotWorker* worker, Snapshot* snapshot, TxnMarkers* markers
) noexcept nogil:
    cdef PlacesWalk walk = places_walk(markers.move.after.places)
    cdef const uint8_t* topic = NULL
    cdef TopicEntry* entry = NULL
    cdef PartitionMarker* marker
    cdef Place place
    cdef int slow
    markers.count = 0
    markers.slow = NULL
    markers.slow_hangs = 0
    if markers.move.after.places.count > MARKERS_MAX:
        return -1
    markers.partitions = <PartitionMarker*>arena_take(
        &worker.arena, sizeof(PartitionMarker) * <size_t>markers.move.after.places.count)
    if markers.partitions == NULL:
        return -1
    while places_next(&walk, &place):
        if place.topic != topic:
            topic = place.topic
            entry = snapshot_by_name(snapshot, topic, place.topic_length)
        if (entry == NULL or entry.internal or place.index < 0
                or place.index >= entry.partition_count):
            return -1
        marker = &markers.partitions[markers.count]
        marker.partition = entry.partitions[place.index]
        if marker.partition == NULL or not _is_alone(marker.partition):
            return -1
        markers.count += 1
        slow = log_is_slow(marker.partition.log)
        if slow > markers.slow_hangs:
            markers.slow = marker.partition.log
            markers.slow_hangs = slow
    return 0


# --- write ---------------------------------------------------------------------------------------

cdef inline int _is_of_partition(const void* item, const void* fresh) noexcept nogil:
    return (<const Group*>item).partition == (<const Group*>fresh).partition


cdef int _gather(
    HotWorker* worker, TxnMarkers* markers, Table* table, Group* groups, int64_t now_ms
) noexcept nogil:
    # -1: no memory.
    cdef const TxnMove* move = markers.move
    cdef uint8_t* memory = <uint8_t*>arena_take(
        &worker.arena, MARKER_BYTES * <size_t>markers.count)
    cdef PartitionMarker* place
    cdef Group* group
    cdef int32_t i
    if memory == NULL:
        return -1
    markers.marker.coordinator_epoch = move.leader_epoch
    markers.marker.transaction_version = move.after.client_version
    markers.marker.committed = move.after.state == TXN_PREPARE_COMMIT
    markers.marker.first_offset = markers.marker.last_offset = -1
    markers.marker.run = markers.marker.number = 0  # this is its only copy
    for i in range(markers.count):
        place = &markers.partitions[i]
        marker_prepare(
            &place.batch, memory + MARKER_BYTES * <size_t>i, move.after.producer_id,
            move.after.epoch, &markers.marker, now_ms)
        place.batch.alone = 1
        groups[table.count].partition = place.partition
        group = <Group*>table_find_or_put(
            table, <uint32_t>((<size_t>place.partition >> 6) * 2654435761u), _is_of_partition,
            &groups[table.count])
        list_append(&group.first, &group.last, &place.batch, &place.batch.next,
                    "a partition's markers: nothing is after the last")
    return 0


cdef void _append(Group* group, TxnTouched* touched, int64_t now_ms) noexcept nogil:
    cdef Partition* partition = group.partition
    cdef Batch* batch = group.first
    cdef int waiting = partition_append(partition, batch, now_ms)
    # The flush of another thread may have had these, too.
    if (waiting or kb_load_int(&partition.log.flush_due)) and partition_flush(
        partition, FLUSH_RECORDS, batch
    ) != 0:
        while batch != NULL:
            batch.awaits_followers = 1    # not known to be on the disk
            batch = batch.next
    if kb_load_int(&partition.has_watchers):
        partition_acquire(partition)
        touched_add(touched, partition)


cdef void markers_write(
    HotWorker* worker, TxnMarkers* first, TxnTouched* touched, int64_t now_ms
) noexcept nogil:
    cdef TxnMarkers* markers = first
    cdef int64_t total = 0
    cdef Group* groups
    cdef Table table              # of groups
    cdef uint32_t at
    cdef int32_t i
    while markers != NULL:
        markers.fails = 1
        total += markers.count
        markers = markers.next
    groups = <Group*>arena_take(&worker.arena, sizeof(Group) * <size_t>(total + 1))
    if groups == NULL or table_init(&table, &worker.arena, total) != 0:
        return
    markers = first
    while markers != NULL:
        markers.fails = _gather(worker, markers, &table, groups, now_ms) != 0
        markers = markers.next
    for at in range(table.count):
        _append(&groups[at], touched, now_ms)
    markers = first
    while markers != NULL:
        for i in range(markers.count):
            if (markers.partitions[i].batch.error != 0
                    or markers.partitions[i].batch.awaits_followers != 0):
                markers.fails = 1
        markers = markers.next
