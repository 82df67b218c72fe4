# cython: language_level=3
"""Writes that wait for followers beside produces: those of groups, and deletions of records.

A commit that was answered must outlive this broker, so where the offsets' partition has followers
its answer waits, as a produce with acks=-1 does and in the same lists (`_parked`): one watch, for
the last batch. There are two kinds:

    an OffsetCommit of C      its answer is written when it is parked, with a 0 for each partition;
                              the places of these are kept, for the case that it ends with an error
    a write of Python         has no request: several callbacks may wait for one write, or none. It
                              is known by a number, and given to a handler, which goes to Python
                              with it (HotPath.take_settled)

Errors are a coordinator's: 16 where this broker leads no more, has not led all the time, or stops;
15 where too few are in sync by then or `offsets.commit.timeout.ms` is over. The records stay, as in
Apache Kafka.

A deletion of records (`replica/record_deletion.py`) is of the second kind: it waits until the logs
of all live replicas begin at an offset or later, which is the `last_offset` of its batch. Its
errors are 6 where this broker leads no more or stops, 56 where its log has failed, 7 when its time
is over. Threads: the worker's own; no lock is held.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free

from kbroker.coordinator.runtime._shards cimport coordinator_error
from kbroker.core._atomics cimport kb_load_int
from kbroker.core._error_codes cimport (
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT)
from kbroker.core._figures cimport kb_count
from kbroker.log.engine._types cimport Batch
from kbroker.net._request cimport request_let_go
from kbroker.net._types cimport ACTION_SEND, Request
from kbroker.protocol._cursor cimport put_i16
from kbroker.replica._partition cimport Partition, partition_acquire
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._charges cimport worker_answer_charged
from kbroker.engine.worker._context cimport (
    WAITS_FOR_FOLLOWERS, WAITS_FOR_LOG_STARTS, HotWorker, ParkedRequest, WaiterKind)
from kbroker.engine.waiting._parked cimport parked_drop, parked_hand_over, parked_new, parked_wait


cdef WaiterKind _GROUP_WRITE = WaiterKind(
    waits_for=WAITS_FOR_FOLLOWERS, complete=_complete, give_up=NULL, free_kept=free)
cdef WaiterKind _DELETION = WaiterKind(
    waits_for=WAITS_FOR_LOG_STARTS, complete=_complete, give_up=NULL, free_kept=free)


cdef GroupWrite* group_write_new(const Batch* batch, int32_t place_count) noexcept nogil:
    cdef GroupWrite* write = <GroupWrite*>calloc(
        1, sizeof(GroupWrite) + sizeof(uint32_t) * <size_t>place_count)
    if write == NULL:
        return NULL
    write.batch = batch[0]
    write.batch.data = NULL
    write.batch.next = NULL
    write.place_count = place_count
    write.places = <uint32_t*>(<char*>write + sizeof(GroupWrite))
    return write


cdef void _end(HotWorker* worker, GroupWrite* write) noexcept nogil:
    # The caller is the last to look at its batch.
    cdef int closing = kb_load_int(&worker.context.parked.closing)
    if write.deletes and not write.batch.awaits_followers:
        write.error = write.batch.error
    elif write.deletes:
        write.error = NOT_LEADER_OR_FOLLOWER if closing else REQUEST_TIMED_OUT
    elif not write.batch.awaits_followers:
        write.error = coordinator_error(write.batch.error)
    elif closing:
        write.error = NOT_COORDINATOR
    else:
        write.error = COORDINATOR_NOT_AVAILABLE


cdef void _send(HotWorker* worker, Request* request, const GroupWrite* write) noexcept nogil:
    cdef int32_t i
    if write.error != 0:
        for i in range(write.place_count):
            put_i16(request.head + write.places[i], <short>write.error)
    request.action = ACTION_SEND
    worker_answer_charged(worker, request)


cdef ParkedRequest* _parked(
    HotWorker* worker, Request* request, GroupWrite* write, Partition* partition,
    int32_t timeout_ms,
) noexcept nogil:
    # With the write, unless it is NULL: it cannot wait.
    cdef int64_t size_bytes = <int64_t>sizeof(GroupWrite) + (
        write.place_count * <int64_t>sizeof(uint32_t))
    cdef const WaiterKind* kind = &_DELETION if write.deletes else &_GROUP_WRITE
    cdef ParkedRequest* parked = parked_new(worker, kind, request, 1, size_bytes, timeout_ms, 0)
    if parked == NULL:
        return NULL
    parked.kept = write
    parked.wanted = 1
    parked.watches[0].batch = &write.batch
    parked.watches[0].partition = partition
    partition_acquire(partition)
    return parked


cdef void group_write_answer(
    HotWorker* worker, Request* request, GroupWrite* write, Partition* partition,
) noexcept nogil:
    cdef int64_t timeout_ms = worker.context.groups.write_timeout_ms
    cdef ParkedRequest* parked = _parked(worker, request, write, partition, <int32_t>timeout_ms)
    if parked == NULL:            # answered at once as it would be later: not known to be safe
        _end(worker, write)
        _send(worker, request, write)
        free(write)
        return
    request_let_go(request)
    if parked_wait(worker, parked):
        kb_count(&worker.parked_produces, 1)
    else:
        _complete(worker, NULL, parked)
        parked_drop(parked)


cdef int group_write_wait(
    HotWorker* worker, GroupWrite* write, Partition* partition, int32_t timeout_ms,
) noexcept nogil:
    cdef ParkedRequest* parked = _parked(worker, NULL, write, partition, timeout_ms)
    cdef int error
    if parked == NULL:
        _end(worker, write)
        error = write.error
        free(write)
        return error
    if parked_wait(worker, parked):
        kb_count(&worker.parked_produces, 1)
        return WRITE_WAITS
    _end(worker, write)
    error = write.error
    parked_drop(parked)
    return error


cdef void _complete(
    HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked
) noexcept nogil:
    cdef GroupWrite* write = <GroupWrite*>parked.kept
    _end(worker, write)
    if parked.request != NULL:
        _send(worker, parked.request, write)
    else:
        parked_hand_over(worker.context, parked)
