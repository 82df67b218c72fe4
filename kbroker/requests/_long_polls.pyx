# cython: language_level=3
"""Who completes parked requests: a partition that moved, a deadline, a connection's end, ours.

    wake    whoever moved a partition (an append, a follower's fetch that moved its high watermark,
            a change of leadership) counts the watches on it anew
    expire  the time wheel (Python) holds one operation per deadline tick and calls in here
    close   the broker stops: everybody is answered
    end     of requests whose connection has gone, between two runs

A parked request (_parked) that somebody moves to done is answered by the thread that moved it, once
no lock is held: a fetch reads again and gets what there is (_fetch), a produce is told what became
of its batches (_produce_wait), and so are the groups whose writes wait (_group_write).
"""

from libc.stdint cimport uint64_t

from kbroker._arena cimport arena_reset, arena_take
from kbroker._atomics cimport kb_add_int, kb_load_int, kb_load_ptr, kb_store_int, kb_store_ptr
from kbroker._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.net._types cimport ACTION_NO_OP, LEFT
from kbroker.replica._partition cimport Partition, partition_lock, partition_unlock
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave
from kbroker.requests._answers cimport worker_answer, worker_flush, worker_give_up_role
from kbroker.requests._context cimport (
    PARKED_BUCKETS,
    HotWorker,
    ParkedRequest,
    ParkedTable,
    ParkedWatch,
)
from kbroker.requests._fetch cimport fetch_resume
from kbroker.requests._group_write cimport group_write_resume
from kbroker.requests._parked cimport (
    parked_bucket,
    parked_complete,
    parked_drop,
    parked_has_enough,
    parked_is_write,
    watch_count_locked,
)
from kbroker.requests._parked_state cimport OPEN
from kbroker.requests._produce_wait cimport produce_resume

cdef enum:
    WAKE_BATCH = 64


# Requests that are to be completed once the partition's lock is free, each with a reference.
cdef struct Due:
    ParkedRequest* some[WAKE_BATCH]
    ParkedRequest** requests
    int count
    int capacity


cdef void _answer(HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked) noexcept nogil:
    if parked.produce != NULL:
        produce_resume(worker, snapshot, parked)
    elif parked.group_write != NULL:
        group_write_resume(worker, parked)
    else:
        fetch_resume(worker, snapshot, parked.request)


cdef int _complete(HotWorker* worker, Snapshot* snapshot, ParkedRequest* parked) noexcept nogil:
    # With a reference of the caller's, which it drops. 0: somebody else was faster.
    cdef int mine = parked_complete(parked)
    if mine:
        _answer(worker, snapshot, parked)
    parked_drop(parked)
    return mine


cdef int _grow(HotWorker* worker, Due* due) noexcept nogil:
    cdef ParkedRequest** more = <ParkedRequest**>arena_take(
        &worker.arena, sizeof(ParkedRequest*) * 2 * <size_t>due.count)
    cdef int i
    if more == NULL:
        return -1
    for i in range(due.count):
        more[i] = due.requests[i]
    due.requests = more
    due.capacity *= 2
    return 0


cdef void _note_due_locked(HotWorker* worker, Due* due, ParkedRequest* parked) noexcept nogil:
    if not parked_has_enough(parked) or kb_load_int(&parked.state) != OPEN:
        return
    if due.count == due.capacity and _grow(worker, due) != 0:
        return                    # it waits for the next event or its deadline
    kb_add_int(&parked.refs, 1)
    due.requests[due.count] = parked
    due.count += 1


cdef void long_polls_wake(
    HotWorker* worker, Snapshot* snapshot, Partition* partition
) noexcept nogil:
    """After the partition moved: completes every request on it that now has enough."""
    cdef Due due
    cdef ParkedWatch* watch
    cdef ParkedWatch* following
    cdef int i
    due.requests = due.some
    due.count = 0
    due.capacity = WAKE_BATCH
    partition_lock(partition)
    watch = <ParkedWatch*>partition.waiting_fetches.first
    while watch != NULL:
        watch_count_locked(watch)
        _note_due_locked(worker, &due, watch.parked)
        watch = watch.next
    watch = <ParkedWatch*>partition.waiting_produces.first
    while watch != NULL:
        following = watch.next
        watch_count_locked(watch)
        if watch.linked:          # it waits on, and so does everything behind it
            break
        _note_due_locked(worker, &due, watch.parked)
        watch = following
    partition_unlock(partition)
    for i in range(due.count):
        _complete(worker, snapshot, due.requests[i])


cdef void long_polls_wake_touched(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    cdef int i
    for i in range(worker.touched_count):
        long_polls_wake(worker, snapshot, worker.touched[i])
    worker.touched_count = 0


cdef void long_polls_wake_advanced(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """Of the partitions whose high watermark a follower moved."""
    cdef Partition* partition
    while worker.advanced != NULL:
        partition = worker.advanced
        worker.advanced = partition.next_advanced
        kb_store_int(&partition.advanced, 0)  # before the look: what comes now is listed anew
        long_polls_wake(worker, snapshot, partition)


cdef void _complete_bucket(
    HotWorker* worker, Snapshot* snapshot, uint64_t bucket, uint64_t tick_max, int expires,
) noexcept nogil:
    # One at a time: the list may change whenever its lock is free.
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedRequest* parked
    cdef int done = 0
    cdef int is_produce = 0
    while True:
        lock_ranked(&table.lock, RANK_QUEUE)
        if expires and done:
            table.expired_total += 1
            table.expired_produces += is_produce
        parked = table.buckets[bucket]
        while parked != NULL and (
            parked.tick > tick_max or kb_load_int(&parked.state) != OPEN
        ):
            parked = parked.next
        if parked != NULL:
            kb_add_int(&parked.refs, 1)
        unlock_ranked(&table.lock, RANK_QUEUE)
        if parked == NULL:
            return
        is_produce = parked_is_write(parked)
        done = _complete(worker, snapshot, parked)


cdef void long_polls_expire(HotWorker* worker, Snapshot* snapshot, uint64_t tick) noexcept nogil:
    """The deadline of a tick has come."""
    cdef ParkedTable* table = &worker.context.parked
    cdef uint64_t bucket = parked_bucket(tick)
    # Who is late and lists one more of this tick announces it once more.
    lock_ranked(&table.lock, RANK_QUEUE)
    if table.announced[bucket] == tick:
        table.announced[bucket] = 0
    unlock_ranked(&table.lock, RANK_QUEUE)
    _complete_bucket(worker, snapshot, bucket, tick, 1)


cdef void long_polls_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """The broker stops: everything parked is answered, nothing is parked any more."""
    cdef uint64_t bucket
    kb_store_int(&worker.context.parked.closing, 1)
    for bucket in range(<uint64_t>PARKED_BUCKETS):
        _complete_bucket(worker, snapshot, bucket, <uint64_t>-1, 0)


cdef void _end_left(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    # With a reference, which it drops. A peer that still reads gets what there is.
    cdef Snapshot* snapshot
    cdef int how
    if parked.request == NULL:    # it is over already: this thread takes it to Python
        parked.next_left = worker.settled
        worker.settled = parked
        return
    if parked_complete(parked):
        lock_ranked(&parked.table.lock, RANK_QUEUE)
        how = parked.request.channel.left
        unlock_ranked(&parked.table.lock, RANK_QUEUE)
        if how == LEFT:
            parked.request.action = ACTION_NO_OP
            worker_answer(worker, parked.request)
        else:
            snapshot = snapshot_enter(worker.context.registry, worker.reader)
            _answer(worker, snapshot, parked)
            snapshot_leave(worker.reader)
        worker_flush(worker)
        arena_reset(&worker.arena)
    parked_drop(parked)


cdef int long_polls_end_left(HotWorker* worker) noexcept nogil:
    """Between two runs: ends every request whose connection has gone, and gathers the writes of
    Python's that are over. 0: there was none."""
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedRequest* parked
    cdef ParkedRequest* following
    if kb_load_ptr(&table.left) == NULL:
        return 0
    worker_give_up_role(worker)
    lock_ranked(&table.lock, RANK_QUEUE)
    parked = <ParkedRequest*>table.left
    kb_store_ptr(&table.left, NULL)
    unlock_ranked(&table.lock, RANK_QUEUE)
    while parked != NULL:
        following = parked.next_left
        _end_left(worker, parked)
        parked = following
    return 1
