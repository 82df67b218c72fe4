# cython: language_level=3
"""The replica of one partition: leadership, in-sync replicas, high watermark, readable offsets.

`_partition.pxd` is the contract with the units that hold requests. Appends and reads go to the log
below; this unit decides whether they are allowed, and how far.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker.core._atomics cimport (
    kb_load_i64, kb_load_int, kb_store_i64, kb_store_int)
from kbroker.core._error_codes cimport (
    FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR, NO_ERROR, NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH)
from kbroker.core._live_objects cimport LIVE_PARTITIONS, live_add
from kbroker.core._require cimport drop_reference, require, take_reference
from kbroker.log.engine._append cimport log_append_locked, refuse_batch, refuse_batches
from kbroker.log.engine._append_follower cimport followed_bytes, log_append_follower_locked
from kbroker.log.engine._epochs cimport epoch_end_locked
from kbroker.log.upkeep._flush cimport log_flush
from kbroker.log.engine._read cimport (
    Found, log_find_locked, log_readable_bytes_locked, log_slice)
from kbroker.log.upkeep._retention cimport Retention, retained_from_locked
from kbroker.log.engine._segment cimport slice_release
from kbroker.log.engine._storage cimport (
    Log, lock_log, lock_log_until, lock_to_look_if, log_acquire, log_end_locked,
    log_is_sound_locked, log_release, log_requires)
from kbroker.log.engine._types cimport READ_WOULD_WAIT, WAITS_FOR_DISK
from kbroker.log.upkeep._trim cimport log_move_start_locked
from kbroker.replica._followers cimport (
    follower_note_fetch, followers_find, followers_free, followers_low_watermark,
    followers_replace)
from kbroker.replica._high_watermark cimport (
    find_last_stable, move_high_watermark_locked, move_last_stable_locked, partition_advance_locked)
from kbroker.replica._late cimport note_late
from kbroker.replica._required cimport (
    batches_are_sound, slice_is_sound, watermarks_are_sound_locked)


cdef Partition* partition_new(
    Log* log, int32_t partition_index, const uint8_t* topic_id
) noexcept nogil:
    cdef Partition* partition = <Partition*>calloc(1, sizeof(Partition))
    if partition == NULL:
        return NULL
    live_add(LIVE_PARTITIONS, 1)
    log_acquire(log)
    partition.refs = 1
    partition.log = log
    partition.partition_index = partition_index
    memcpy(partition.topic_id, topic_id, 16)
    partition.leader_id = -1
    partition.leader_epoch = -1
    lock_to_look(log)
    if log.segment_count:
        partition.high_watermark.offset = log.log_start_offset
        partition.high_watermark.segment_base = log.segments[0].base_offset
        partition.last_stable = partition.high_watermark
    if log.log_end_offset - log.recovery_point >= log.settings.flush_messages:
        kb_store_int(&log.flush_due, 1)      # a crash left records after the recovery point
    unlock_log(log)
    return partition


cdef void partition_acquire(Partition* partition) noexcept nogil:
    take_reference(&partition.refs, "partition: one with a reference gets another")


cdef void partition_release(Partition* partition) noexcept nogil:
    if drop_reference(&partition.refs, "partition: references are dropped once") > 0:
        return
    require(partition.waiting_fetches.first == NULL and partition.waiting_produces.first == NULL
            and partition.waiting_deletions.first == NULL,
            "partition: nothing waits for one that is freed", partition.has_watchers, 0)
    note_late(&partition.high_watermark_is_late, 0)
    note_late(&partition.last_stable_is_late, 0)
    log_release(partition.log)
    followers_free(&partition.followers)
    live_add(LIVE_PARTITIONS, -1)
    free(partition)


# --- Leadership and the high watermark ------------------------------------------------------------

cdef int partition_set_leadership(
    Partition* partition, int32_t leader_id, int is_leader, int32_t leader_epoch,
    int32_t in_sync_count, Follower* fresh, int32_t count, int64_t until_ns
) noexcept nogil:
    # A write that is under way ends in the epoch in which it began: who appends has noted that.
    if not lock_log_until(partition.log, until_ns, 0):
        return 0
    followers_replace(
        &partition.followers, fresh, count,
        not partition.is_leader or leader_epoch != partition.leader_epoch)
    if is_leader and not partition.is_leader:
        partition.led_since = leader_epoch
        kb_store_i64(&partition.awaited_end, 0)  # no write waits from before, when it led last
    partition.leader_id = leader_id
    partition.is_leader = is_leader
    partition.begins_epoch = 0
    kb_store_int(&partition.leader_epoch, leader_epoch)
    partition.in_sync_count = in_sync_count
    partition_advance_locked(partition)
    unlock_log(partition.log)
    return 1


cdef int partition_begin_epoch(
    Partition* partition, int begins, int64_t until_ns
) noexcept nogil:
    if not lock_log_until(partition.log, until_ns, 0):
        return 0
    partition.begins_epoch = begins
    unlock_log(partition.log)
    if begins:
        if not lock_log_until(partition.log, until_ns, 1):
            return 0
        unlock_log(partition.log)
    return 1


cdef void _move_start_locked(Partition* partition, int64_t offset) noexcept nogil:
    # What holds the last stable offset may lie below the log's start then.
    log_move_start_locked(partition.log, offset)
    if partition.last_stable.offset < partition.log.log_start_offset:
        move_last_stable_locked(partition)


cdef int16_t partition_lower(Partition* partition, int64_t offset, int was_cut) noexcept nogil:
    cdef Log* log = partition.log
    cdef int16_t error = NO_ERROR
    lock_log(log)
    offset = min(partition.high_watermark.offset, log.log_end_offset if was_cut else offset)
    offset = max(log.log_start_offset, offset)
    if log.online and (was_cut or offset < partition.high_watermark.offset):
        error = move_high_watermark_locked(partition, offset, WAITS_FOR_DISK)
        if error != NO_ERROR and was_cut:    # which records are committed is not known
            kb_store_int(&log.online, 0)
    unlock_log(log)
    if was_cut:
        find_last_stable(partition)
    return error


cdef void partition_offsets(
    Partition* partition, int64_t* log_start, int64_t* log_end, int64_t* high_watermark,
    int64_t* last_stable
) noexcept nogil:
    lock_to_look(partition.log)
    if log_start != NULL:
        log_start[0] = partition.log.log_start_offset
    if log_end != NULL:
        log_end[0] = partition.log.log_end_offset
    if high_watermark != NULL:
        high_watermark[0] = partition.high_watermark.offset
    if last_stable != NULL:
        last_stable[0] = partition.last_stable.offset
    unlock_log(partition.log)


cdef int16_t _leads_locked(const Partition* partition) noexcept nogil:
    if not partition.log.online:
        return KAFKA_STORAGE_ERROR
    return NO_ERROR if partition.is_leader else NOT_LEADER_OR_FOLLOWER


cdef int16_t partition_may_answer_locked(
    const Partition* partition, ReadFrom read_from
) noexcept nogil:
    cdef int16_t error = _leads_locked(partition)
    if error == NOT_LEADER_OR_FOLLOWER and read_from == FROM_ANY_REPLICA:
        return NO_ERROR
    return error


cdef int16_t partition_epoch_end(
    Partition* partition, int32_t asked, ReadFrom read_from, Patience patience, int32_t* epoch,
    int64_t* end_offset
) noexcept nogil:
    cdef int16_t error
    epoch[0] = -1
    end_offset[0] = -1
    if not lock_to_look_if(partition.log, patience):
        return READ_WOULD_WAIT
    error = partition_may_answer_locked(partition, read_from)
    if error == NO_ERROR:
        epoch_end_locked(partition.log, asked, epoch, end_offset)
    unlock_log(partition.log)
    return error


# --- Following and being followed -----------------------------------------------------------------

cdef int16_t _follows_locked(const Partition* partition, int32_t leader_epoch) noexcept nogil:
    # Whether what the leader of that epoch says is to be believed.
    if partition.is_leader:
        return NOT_LEADER_OR_FOLLOWER
    if leader_epoch < partition.leader_epoch:
        return FENCED_LEADER_EPOCH
    return UNKNOWN_LEADER_EPOCH if leader_epoch > partition.leader_epoch else NO_ERROR


cdef void partition_append_as_follower(
    Partition* partition, const uint8_t* data, int64_t length, int32_t leader_epoch,
    int64_t now_ms, Followed* out
) noexcept nogil:
    cdef int64_t whole = followed_bytes(data, length, out)
    if out.error != NO_ERROR:
        return
    lock_log(partition.log)
    out.error = _follows_locked(partition, leader_epoch)
    if out.error == NO_ERROR:
        log_append_follower_locked(partition.log, data, whole, now_ms, out)
    unlock_log(partition.log)


cdef int16_t partition_follow_bounds(
    Partition* partition, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset
) noexcept nogil:
    cdef Log* log = partition.log
    cdef int16_t error
    cdef int64_t reached
    lock_log(log)
    error = _follows_locked(partition, leader_epoch)
    if error == NO_ERROR and log.online:
        reached = min(high_watermark, log.log_end_offset)
        if reached > partition.high_watermark.offset:
            error = move_high_watermark_locked(partition, reached, WAITS_FOR_DISK)
        log_start_offset = min(log_start_offset, partition.high_watermark.offset)
        if log_start_offset > log.log_start_offset:
            _move_start_locked(partition, log_start_offset)
    unlock_log(log)
    return error


cdef int16_t _serves_follower_locked(
    const Partition* partition, const Follower* follower, const NotedFetch* fetch
) noexcept nogil:
    cdef const Log* log = partition.log
    if fetch.leader_epoch >= 0 and fetch.leader_epoch != partition.leader_epoch:
        return (FENCED_LEADER_EPOCH if fetch.leader_epoch < partition.leader_epoch
                else UNKNOWN_LEADER_EPOCH)
    if follower == NULL:          # it may know its assignment before this broker does
        return UNKNOWN_LEADER_EPOCH if fetch.leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER
    if 0 <= fetch.broker_epoch < follower.registered_epoch:
        return NOT_LEADER_OR_FOLLOWER
    # It has started again since the controller said that it is in sync: it may have left the set
    # with that, which is too small by now to commit anything.
    if follower.in_sync and 0 <= follower.registered_epoch < fetch.broker_epoch:
        return NOT_LEADER_OR_FOLLOWER
    if not log.log_start_offset <= fetch.offset <= log.log_end_offset:
        return OFFSET_OUT_OF_RANGE           # it has another history, or lags too far
    return NO_ERROR


cdef News _news_locked(
    const Partition* partition, const Follower* follower, int brings
) noexcept nogil:
    cdef int64_t sent = follower.sent_high_watermark
    if sent < 0:
        return NEWS_AT_ONCE
    if sent < partition.high_watermark.offset or (brings and sent < follower.log_end_offset):
        return NEWS_SOON
    return NO_NEWS


cdef int16_t partition_note_fetch(Partition* partition, NotedFetch* fetch) noexcept nogil:
    cdef Follower* follower
    cdef int64_t before
    cdef int brings = 0
    cdef int16_t error
    fetch.moved = fetch.in_sync = 0
    fetch.news = NO_NEWS
    # Does not wait for a write in progress: this comes in a run of other requests.
    partition_lock(partition)
    error = _leads_locked(partition)
    if error == NO_ERROR:
        follower = followers_find(&partition.followers, fetch.broker_id)
        error = _serves_follower_locked(partition, follower, fetch)
    if error == NO_ERROR:
        before = partition.high_watermark.offset
        brings = fetch.offset > follower.log_end_offset
        follower_note_fetch(follower, fetch.offset, partition.log.log_end_offset, fetch.now_ns)
        fetch.moved = (partition.waiting_deletions.first != NULL
                       and fetch.log_start_offset > follower.log_start_offset)
        follower.log_start_offset = fetch.log_start_offset
        follower.broker_epoch = fetch.broker_epoch
        partition_advance_locked(partition)
        fetch.moved |= partition.high_watermark.offset > before
        fetch.news = _news_locked(partition, follower, brings)
        fetch.in_sync = follower.in_sync
    partition_unlock(partition)
    return error


cdef int partition_holds_back(Partition* partition, int32_t broker_id) noexcept nogil:
    cdef Follower* follower
    cdef int holds_back
    if not kb_load_int(&partition.throttled):
        return 0
    partition_lock(partition)
    follower = followers_find(&partition.followers, broker_id)
    holds_back = follower == NULL or not follower.in_sync
    partition_unlock(partition)
    return holds_back


cdef void partition_note_sent(
    Partition* partition, int32_t broker_id, int64_t high_watermark
) noexcept nogil:
    cdef Follower* follower
    partition_lock(partition)
    follower = followers_find(&partition.followers, broker_id)
    if follower != NULL and high_watermark > follower.sent_high_watermark:
        follower.sent_high_watermark = high_watermark
    partition_unlock(partition)


# --- Produce, fetch, delete -----------------------------------------------------------------------

cdef void _refuse_too_few_in_sync(Partition* partition, Batch* first) noexcept nogil:
    cdef Batch* batch = first
    while batch != NULL:
        if batch.acks == -1 and batch.error == NO_ERROR:
            refuse_batch(
                batch, NOT_ENOUGH_REPLICAS, "fewer replicas in sync than min.insync.replicas")
            batch.log_start_offset = partition.log.log_start_offset
        batch = batch.next


cdef void partition_note_awaited_locked(Partition* partition, const Batch* batch) noexcept nogil:
    if batch.last_offset >= kb_load_i64(&partition.awaited_end):
        kb_store_i64(&partition.awaited_end, batch.last_offset + 1)


cdef int _note_waiting_locked(
    Partition* partition, Batch* first, int32_t led_since
) noexcept nogil:
    cdef Batch* batch = first
    cdef int waiting = 0
    while batch != NULL:
        # Among them duplicates: what they repeat may be lost as long as it is above.
        if (batch.acks == -1 and batch.error == NO_ERROR
                and batch.last_offset >= partition.high_watermark.offset):
            batch.awaits_followers = 1
            batch.led_since = led_since
            partition_note_awaited_locked(partition, batch)
            waiting = 1
        batch = batch.next
    return waiting


cdef int partition_append(Partition* partition, Batch* first, int64_t now_ms) noexcept nogil:
    cdef Log* log = partition.log
    cdef int32_t led_since
    cdef int64_t end_before
    cdef int waiting = 0
    lock_log(log)
    led_since = partition.led_since   # another may lead before this is written
    if log.online and log_is_sound_locked(log) and watermarks_are_sound_locked(
        log, partition.is_leader, partition.high_watermark.offset, partition.last_stable.offset
    ):
        batches_are_sound(log, first)
    end_before = log.log_end_offset
    if log.online and not partition.is_leader:
        refuse_batches(
            first, NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
    elif log.online and partition.begins_epoch:
        refuse_batches(
            first, NOT_LEADER_OR_FOLLOWER, "the partition's leader begins another epoch")
    elif log.online and kb_load_int(&log.refuses_producers) and first.marker == NULL:
        # A marker is no producer's, and small; what waits for it is compacted or deleted after it.
        refuse_batches(
            first, KAFKA_STORAGE_ERROR, "the data directory is nearly full: log.dir.min.free.bytes")
    elif log.online and first.alone and partition.followers.count > 0:
        refuse_batches(first, NOT_ENOUGH_REPLICAS, "the write is not to wait for followers")
    elif log.online and partition.in_sync_count < log.settings.min_in_sync:
        _refuse_too_few_in_sync(partition, first)
    log_append_locked(log, first, partition.leader_epoch, now_ms)
    if not log_requires(log, log.log_end_offset >= end_before,
                        "append: the log's end goes forward", log.log_end_offset, end_before):
        refuse_batches(first, KAFKA_STORAGE_ERROR, "the log cannot be trusted")
    partition_advance_locked(partition)
    if partition.high_watermark.offset < log.log_end_offset:
        waiting = _note_waiting_locked(partition, first, led_since)
    unlock_log(log)
    return waiting


cdef int partition_settle_locked(const Partition* partition, Batch* batch) noexcept nogil:
    cdef int16_t error = _leads_locked(partition)
    if error == NO_ERROR and partition.led_since != batch.led_since:
        error = NOT_LEADER_OR_FOLLOWER       # another did meanwhile: the offset may be his record's
    if error == NO_ERROR:
        if partition.high_watermark.offset <= batch.last_offset:
            return 0
        if partition.in_sync_count < partition.log.settings.min_in_sync:
            error = NOT_ENOUGH_REPLICAS_AFTER_APPEND
    batch.error = error
    batch.awaits_followers = 0
    return 1


cdef int partition_flush(Partition* partition, FlushDepth depth, Batch* first) noexcept nogil:
    cdef Batch* batch = first
    cdef int status = log_flush(partition.log, depth)
    lock_log(partition.log)
    partition_advance_locked(partition)
    while batch != NULL and status == 0:
        if batch.awaits_followers:
            partition_settle_locked(partition, batch)
        batch = batch.next
    unlock_log(partition.log)
    return status


cdef Bound _readable_to(Partition* partition, FetchIsolation isolation) noexcept nogil:
    if isolation == TO_LOG_END:
        return log_end_locked(partition.log)
    return partition.last_stable if isolation == TO_LAST_STABLE else partition.high_watermark


cdef int16_t partition_read(
    Partition* partition, int64_t offset, int64_t max_bytes, int whole_first,
    FetchIsolation isolation, ReadFrom read_from, Patience patience, FileSlice* out,
    ReplicaOffsets* offsets
) noexcept nogil:
    cdef Log* log = partition.log
    cdef Bound bound
    cdef Found found
    cdef int16_t error
    out.segment = NULL
    out.fd = -1
    out.position = 0
    out.length = 0
    out.cold = 0
    out.is_copied = 0
    found.segment = NULL
    found.patience = patience
    found.passes_empty = isolation != TO_LOG_END
    if not lock_to_look_if(log, patience):
        return READ_WOULD_WAIT
    error = partition_may_answer_locked(partition, read_from)
    if error == NO_ERROR:
        if not watermarks_are_sound_locked(
            log, partition.is_leader, partition.high_watermark.offset,
            partition.last_stable.offset
        ):
            error = KAFKA_STORAGE_ERROR
        offsets.log_start = log.log_start_offset
        offsets.high_watermark = partition.high_watermark.offset
        offsets.last_stable = partition.last_stable.offset
        bound = _readable_to(partition, isolation)
        if error == NO_ERROR:
            error = log_find_locked(log, offset, &bound, &found)
        if found.segment != NULL and found.exact:
            log.fast_reads += 1
    unlock_log(log)
    if error != NO_ERROR or found.segment == NULL:
        return error
    error = log_slice(log, &found, offset, &bound, max_bytes, whole_first, out)
    if error == NO_ERROR and out.segment != NULL and not slice_is_sound(log, out, &bound):
        slice_release(out)
        error = KAFKA_STORAGE_ERROR
    return error


cdef int64_t partition_readable_bytes_locked(
    Partition* partition, int64_t offset, int64_t max_bytes, FetchIsolation isolation,
    ReadFrom read_from
) noexcept nogil:
    cdef Bound bound = _readable_to(partition, isolation)
    if partition_may_answer_locked(partition, read_from) != NO_ERROR:
        return 0
    return log_readable_bytes_locked(partition.log, offset, &bound, max_bytes)


cdef int partition_in_older_segment_locked(
    Partition* partition, int64_t offset, FetchIsolation isolation
) noexcept nogil:
    if isolation == TO_LAST_STABLE:
        return offset < partition.last_stable.segment_base
    return offset < partition.high_watermark.segment_base


cdef int64_t partition_low_watermark_locked(const Partition* partition) noexcept nogil:
    return followers_low_watermark(&partition.followers, partition.log.log_start_offset)


cdef int partition_settle_deletion_locked(
    const Partition* partition, Batch* batch
) noexcept nogil:
    cdef int16_t error = _leads_locked(partition)
    if error == NO_ERROR and partition_low_watermark_locked(partition) < batch.last_offset:
        return 0
    batch.error = error
    batch.awaits_followers = 0
    return 1


cdef int16_t partition_delete_records(
    Partition* partition, int64_t offset, int64_t* start
) noexcept nogil:
    cdef int16_t error
    lock_log(partition.log)
    error = _leads_locked(partition)
    if error == NO_ERROR:
        if offset == -1:
            offset = partition.high_watermark.offset
        if offset < 0 or offset > partition.high_watermark.offset:
            error = OFFSET_OUT_OF_RANGE
        else:
            _move_start_locked(partition, offset)
            start[0] = partition.log.log_start_offset
    unlock_log(partition.log)
    return error


cdef int partition_apply_retention(
    Partition* partition, const Retention* retention, int64_t now_ms, int64_t* start
) noexcept nogil:
    cdef Log* log = partition.log
    cdef int64_t before
    # Does not wait for a write in progress: only the start moves, below the end that is there
    # already.
    lock_to_look(log)
    before = log.log_start_offset
    _move_start_locked(partition, retained_from_locked(
        log, retention, partition.high_watermark.offset, now_ms))
    start[0] = log.log_start_offset
    unlock_log(log)
    return start[0] > before
