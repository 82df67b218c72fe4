# cython: language_level=3
"""Who completes long polls: an append, a deadline, a connection's end, the broker's.

    wake    after an append the worker counts the watches of the partitions it touched anew
    advance after followers' fetches, of the partitions whose high watermark they moved
    expire  the time wheel (Python) holds one operation per deadline tick and calls in here
    close   the broker stops: everybody is answered
    end     of fetches whose connection has gone, between two runs

A parked fetch (_parked) that somebody moves to done is read again and answered with what there is
(_fetch), by the thread that moved it, once no lock is held.
"""

from libc.stdint cimport int64_t, uint64_t

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
    ParkedFetch,
    ParkedTable,
    ParkedWatch,
)
from kbroker.requests._fetch cimport fetch_resume
from kbroker.requests._parked cimport (
    parked_bucket,
    parked_complete,
    parked_drop,
    parked_has_enough,
    watch_count_locked,
)
from kbroker.requests._parked_state cimport OPEN

cdef enum:
    WAKE_BATCH = 64


cdef int _complete(HotWorker* worker, Snapshot* snapshot, ParkedFetch* parked) noexcept nogil:
    # With a reference of the caller's, which it drops. 0: somebody else was faster.
    cdef int mine = parked_complete(parked)
    if mine:
        fetch_resume(worker, snapshot, parked.request)
    parked_drop(parked)
    return mine


cdef ParkedFetch** _grown(HotWorker* worker, ParkedFetch** waiting, int count) noexcept nogil:
    cdef ParkedFetch** more = <ParkedFetch**>arena_take(
        &worker.arena, sizeof(ParkedFetch*) * 2 * <size_t>count)
    cdef int i
    if more != NULL:
        for i in range(count):
            more[i] = waiting[i]
    return more


cdef void long_polls_wake(
    HotWorker* worker, Snapshot* snapshot, Partition* partition
) noexcept nogil:
    """After the partition moved: completes every fetch on it that now has enough."""
    cdef ParkedFetch* some[WAKE_BATCH]
    cdef ParkedFetch** waiting = some
    cdef ParkedFetch** more
    cdef ParkedWatch* watch
    cdef int capacity = WAKE_BATCH
    cdef int count = 0
    cdef int i
    partition_lock(partition)
    watch = <ParkedWatch*>partition.watchers
    while watch != NULL:
        watch_count_locked(watch)
        if parked_has_enough(watch.parked) and kb_load_int(&watch.parked.state) == OPEN:
            if count == capacity:
                more = _grown(worker, waiting, count)
                if more == NULL:
                    break         # the others wait for the next append or their deadline
                waiting = more
                capacity *= 2
            kb_add_int(&watch.parked.refs, 1)
            waiting[count] = watch.parked
            count += 1
        watch = watch.next
    partition_unlock(partition)
    for i in range(count):
        _complete(worker, snapshot, waiting[i])


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
    HotWorker* worker, Snapshot* snapshot, uint64_t bucket, uint64_t tick_max, int64_t* completed,
) noexcept nogil:
    # One at a time: the list may change whenever its lock is free.
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedFetch* parked
    cdef int64_t done = 0
    while True:
        lock_ranked(&table.lock, RANK_QUEUE)
        completed[0] += done
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
    _complete_bucket(worker, snapshot, bucket, tick, &table.expired_total)


cdef void long_polls_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """The broker stops: everything parked is answered, nothing is parked any more."""
    cdef uint64_t bucket
    cdef int64_t answered = 0
    kb_store_int(&worker.context.parked.closing, 1)
    for bucket in range(<uint64_t>PARKED_BUCKETS):
        _complete_bucket(worker, snapshot, bucket, <uint64_t>-1, &answered)


cdef void _end_left(HotWorker* worker, ParkedFetch* parked) noexcept nogil:
    # With a reference, which it drops. A peer that still reads gets what there is.
    cdef Snapshot* snapshot
    cdef int how
    if parked_complete(parked):
        lock_ranked(&parked.table.lock, RANK_QUEUE)
        how = parked.request.channel.left
        unlock_ranked(&parked.table.lock, RANK_QUEUE)
        if how == LEFT:
            parked.request.action = ACTION_NO_OP
            worker_answer(worker, parked.request)
        else:
            snapshot = snapshot_enter(worker.context.registry, worker.reader)
            fetch_resume(worker, snapshot, parked.request)
            snapshot_leave(worker.reader)
        worker_flush(worker)
        arena_reset(&worker.arena)
    parked_drop(parked)


cdef int long_polls_end_left(HotWorker* worker) noexcept nogil:
    """Between two runs: ends every fetch whose connection has gone. 0: there was none."""
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedFetch* parked
    cdef ParkedFetch* following
    if kb_load_ptr(&table.left) == NULL:
        return 0
    worker_give_up_role(worker)
    lock_ranked(&table.lock, RANK_QUEUE)
    parked = <ParkedFetch*>table.left
    kb_store_ptr(&table.left, NULL)
    unlock_ranked(&table.lock, RANK_QUEUE)
    while parked != NULL:
        following = parked.next_left
        _end_left(worker, parked)
        parked = following
    return 1
