# cython: language_level=3
"""The reads of a Fetch: what each of its partitions brings, in order and within the bounds.

A follower's fetch is noted before its partition is read, and may move the high watermark. A
consumer's rack may send it to a closer replica (KIP-392), and then nothing is read here. A read
that would wait for the disk, in a thread that may not, leaves its partition in `plan.slow`.

Locks: what `partition_read` takes.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport (
    FENCED_LEADER_EPOCH,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
)
from kbroker.core._require cimport require_same
from kbroker.core._sync cimport kb_now_ns
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget
from kbroker.engine.waiting._parked cimport note_advanced
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.worker._leader_throttle cimport leader_throttle_holds
from kbroker.engine.worker._worker_mode cimport MAY_USE_BLOCKS
from kbroker.log.engine._aborted cimport aborted_collect
from kbroker.log.engine._segment cimport slice_release
from kbroker.log.engine._types cimport READ_WOULD_WAIT, WAITS_FOR_NOTHING
from kbroker.net._blocks cimport block_next, block_take
from kbroker.net._types cimport Block
from kbroker.replica._closest cimport NO_PREFERRED_REPLICA, partition_closest
from kbroker.replica._partition cimport (
    NEWS_AT_ONCE,
    NEWS_SOON,
    TO_LAST_STABLE,
    TO_LOG_END,
    NotedFetch,
    Partition,
    ReplicaOffsets,
    partition_epoch_end,
    partition_note_fetch,
    partition_offsets,
    partition_read,
)


cdef int16_t _check_epoch(Partition* partition, FetchTarget* target) noexcept nogil:
    cdef int32_t leader_epoch = kb_load_int(&partition.leader_epoch)
    if target.leader_epoch < 0 or target.leader_epoch == leader_epoch:
        return NO_ERROR
    if target.leader_epoch < leader_epoch:
        return FENCED_LEADER_EPOCH
    return UNKNOWN_LEADER_EPOCH


cdef int16_t _check_divergence(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # Whether the client's last epoch went as far here as it did there (KIP-595).
    cdef int16_t error = partition_epoch_end(
        target.partition, target.fetched_epoch, plan.read_from, plan.patience,
        &target.diverging_epoch, &target.diverging_end)
    if error != NO_ERROR:
        return error
    if target.diverging_epoch < 0:
        return OFFSET_OUT_OF_RANGE
    target.diverges = (target.diverging_epoch < target.fetched_epoch
                       or target.diverging_end < target.fetch_offset)
    return NO_ERROR


cdef int16_t _note_follower(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target
) noexcept nogil:
    cdef NotedFetch fetch
    cdef int16_t error
    fetch.broker_id = plan.replica_id
    fetch.broker_epoch = plan.replica_epoch
    fetch.leader_epoch = target.leader_epoch
    fetch.offset = target.fetch_offset
    fetch.log_start_offset = target.follower_start
    fetch.now_ns = kb_now_ns()
    error = partition_note_fetch(target.partition, &fetch)
    plan.any_error |= fetch.news == NEWS_AT_ONCE
    plan.has_news |= fetch.news == NEWS_SOON
    plan.out_of_sync |= not fetch.in_sync
    if fetch.moved:
        note_advanced(worker, target.partition)
    return error


cdef int _is_sent_elsewhere(FetchPlan* plan, FetchTarget* target) noexcept nogil:
    # To a replica that is closer, and nothing is read here; or it would have to wait for that.
    cdef ReplicaOffsets offsets
    if target.error == NO_ERROR:
        target.error = partition_closest(
            target.partition, target.fetch_offset, &plan.place, plan.patience, &target.preferred,
            &offsets)
    if target.error != NO_ERROR or target.preferred == NO_PREFERRED_REPLICA:
        return 0
    plan.any_error = 1
    _note_offsets(target, &offsets)
    return 1


cdef void _note_offsets(FetchTarget* target, const ReplicaOffsets* offsets) noexcept nogil:
    target.log_start = offsets.log_start
    target.high_watermark = offsets.high_watermark
    target.last_stable = offsets.last_stable


cdef void _find_aborted(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target, int64_t last_stable
) noexcept nogil:
    # An entry too many does no harm; one that is missing would bring aborted records to the reader.
    target.error = aborted_collect(
        target.partition.log, target.fetch_offset, &target.slice, last_stable, plan.patience,
        &worker.arena, &target.aborted, &target.aborted_count)
    if target.error != NO_ERROR:
        slice_release(&target.slice)
        target.slice.length = 0


cdef inline uint8_t* _room(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # Flexible versions have tags after the records, so that the records are copied in any case.
    cdef Block* block = NULL
    if plan.flexible and worker.may & MAY_USE_BLOCKS:
        block = block_next(plan.request.processor)
    return block.data if block != NULL else NULL


cdef void _read_target(
    HotWorker* worker, FetchPlan* plan, FetchTarget* target, int64_t left
) noexcept nogil:
    cdef ReplicaOffsets offsets
    cdef int64_t most = target.max_bytes
    target.high_watermark = -1
    target.last_stable = -1
    target.log_start = -1
    if target.error == NO_ERROR:
        target.error = _check_epoch(target.partition, target)
    if plan.place.rack_length > 0 and _is_sent_elsewhere(plan, target):
        return
    if target.error == NO_ERROR and target.fetched_epoch >= 0:
        target.error = _check_divergence(plan, target)
        plan.any_error |= target.diverges
    if plan.notes_follower and target.error == NO_ERROR and not target.diverges:
        target.error = _note_follower(worker, plan, target)
    if target.error == NO_ERROR and not target.diverges:
        if plan.isolation == TO_LOG_END:
            target.held_back = leader_throttle_holds(
                &worker.context.leader_throttle, target.partition, plan.replica_id, kb_now_ns())
        target.slice.room = _room(worker, plan)
        most = 0 if target.held_back else max(min(most, left), 0)
        target.error = partition_read(
            target.partition, target.fetch_offset, most,
            plan.read_bytes == 0 and not target.held_back,
            plan.isolation, plan.read_from, plan.patience, &target.slice, &offsets)
        if target.slice.is_copied:
            target.block = block_take(plan.request.processor)
            require_same(target.block.data, target.slice.room, "blocks: another was written into")
        if (target.error == NO_ERROR and plan.isolation == TO_LAST_STABLE
                and target.slice.length > 0):
            _find_aborted(worker, plan, target, offsets.last_stable)
    elif target.error == NO_ERROR and plan.patience == WAITS_FOR_NOTHING:
        target.error = READ_WOULD_WAIT  # to return the log's offsets: rare
    if target.error == READ_WOULD_WAIT:
        plan.slow = target.partition
        return
    if target.error != NO_ERROR:
        # A missing partition does not keep the fetch from waiting for the others, as in Apache
        # Kafka.
        plan.any_error |= _is_news(target)
        return
    if target.diverges:
        partition_offsets(target.partition, &target.log_start, NULL,
                          &target.high_watermark, &target.last_stable)
        return
    _note_offsets(target, &offsets)
    plan.read_bytes += target.slice.length


cdef int _is_news(FetchTarget* target) noexcept nogil:
    # That a topic was made again is answered at once, and after that as what is not there.
    if target.not_there:
        return target.made_again and target.entry.sent_error != target.error
    return 1


cdef void fetch_read_all(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    # In order; the first data may exceed the bounds by one whole batch, then they hold.
    cdef int32_t i
    plan.read_bytes = 0
    plan.any_error = plan.has_news = 0
    for i in range(plan.count):
        _read_target(worker, plan, &plan.targets[i], plan.max_bytes - plan.read_bytes)
        if plan.slow != NULL:
            return
