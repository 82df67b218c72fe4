# cython: language_level=3
"""Completion of parked requests: by a partition that moved, a deadline, a connection's end, ours.

    wake    the thread that moved a partition (an append, a follower's fetch that moved its high
            watermark, a change of leadership) counts the watches on it again
    expire  the time wheel (Python) holds one operation per deadline tick and calls in here
    gather  a follower's fetch waits a moment for more than it asks for, on its handler's clock
    close   the broker stops: everything parked is answered
    end     of requests whose connection has gone, between two runs
    let go  before anything slow: what would wait for it is answered, or another handler's

A parked request (_parked) is answered by the thread that moved it to done, once no lock is held, as
its kind does it: a fetch reads again and gets what there is (_fetch), a produce gets the results of
its batches (_produce_wait), and so does a group whose write waited (_group_write).
"""

from libc.stdint cimport uint64_t

from kbroker.core._arena cimport arena_reset, arena_take
from kbroker.core._atomics cimport (
    kb_add_int,
    kb_load_int,
    kb_store_int,
    kb_store_ptr,
    kb_store_u64,
)
from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._require cimport require, require_same, take_reference
from kbroker.net._request_channel cimport request_channel_give_to_python
from kbroker.net._types cimport ACTION_NO_OP, LEFT
from kbroker.replica._partition cimport (
    Partition, Watchers, partition_lock, partition_unlock)
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave
from kbroker.engine.worker._answers cimport worker_answer, worker_give_up_role, worker_hand_over
from kbroker.engine.worker._context cimport (
    PARKED_BUCKETS,
    HotWorker,
    ParkedRequest,
    ParkedTable,
    ParkedWatch,
)
from kbroker.engine.waiting._parked cimport (
    parked_bucket,
    parked_complete,
    parked_drop,
    parked_give_asking,
    parked_give_ticks,
    parked_has_enough,
    parked_is_write,
    parked_take_asking_locked,
    parked_take_ticks_locked,
    watch_count_locked,
)
from kbroker.engine.waiting._parked_state cimport OPEN

cdef enum:
    WAKE_BATCH = 64


# Requests that are to be completed once the lock under which they were found is free, each with a
# reference.
cdef struct Due:
    ParkedRequest* some[WAKE_BATCH]
    ParkedRequest** requests
    int count
    int capacity
    int completed                 # by this thread, at last
    int completed_writes          # of them


cdef void _begin(Due* due) noexcept nogil:
    due.requests = due.some
    due.count = 0
    due.capacity = WAKE_BATCH
    due.completed = 0
    due.completed_writes = 0


cdef int _has_room(HotWorker* worker, Due* due) noexcept nogil:
    # 0: no memory. A request without room waits for the next event or its deadline.
    cdef ParkedRequest** more
    cdef int i
    if due.count < due.capacity:
        return 1
    more = <ParkedRequest**>arena_take(
        &worker.arena, sizeof(ParkedRequest*) * 2 * <size_t>due.count)
    if more == NULL:
        return 0
    for i in range(due.count):
        more[i] = due.requests[i]
    due.requests = more
    due.capacity *= 2
    return 1


cdef inline void _note(Due* due, ParkedRequest* parked) noexcept nogil:
    # With a reference, for which there is room.
    require(due.count < due.capacity, "long poll: there is room for one that is due",
            due.count, due.capacity)
    due.requests[due.count] = parked
    due.count += 1


cdef void _complete(HotWorker* worker, Snapshot* snapshot, Due* due) noexcept nogil:
    # A batch at a time: its answers leave before the next is looked at.
    cdef ParkedRequest** some
    cdef int count
    cdef int mine
    cdef int at = 0
    cdef int i
    while at < due.count:
        some = due.requests + at
        count = min(due.count - at, <int>WAKE_BATCH)
        at += count
        mine = parked_complete(some, count)
        due.completed += mine
        for i in range(count):
            if i < mine:
                due.completed_writes += parked_is_write(some[i])
                some[i].kind.complete(worker, snapshot, some[i])
            parked_drop(some[i])
        if at < due.count:
            worker_hand_over(worker)


cdef void _forget_unsettled(Due* due) noexcept nogil:
    # Writes that wait at other partitions. Not under a lock: theirs may be the last reference.
    cdef ParkedRequest* parked
    cdef int kept = 0
    cdef int i
    for i in range(due.count):
        parked = due.requests[i]
        if parked_is_write(parked) and not parked_has_enough(parked):
            parked_drop(parked)
        else:
            due.requests[kept] = parked
            kept += 1
    due.count = kept


cdef void _settle_locked(
    HotWorker* worker, Due* due, const Watchers* watchers
) noexcept nogil:
    # In the order of their offsets: the first that waits on ends the look.
    cdef ParkedRequest* parked
    cdef ParkedWatch* watch = <ParkedWatch*>watchers.first
    cdef ParkedWatch* following
    while watch != NULL and _has_room(worker, due):
        following = watch.next
        parked = watch.parked
        # Before it is settled: then others need no lock of ours.
        take_reference(&parked.refs, "long poll: a write that is settled is held")
        watch_count_locked(watch)
        if watch.linked:
            require(kb_add_int(&parked.refs, -1) > 0, "long poll: one that is listed is held", 0, 1)
            return
        _note(due, parked)
        watch = following


cdef void long_polls_wake(
    HotWorker* worker, Snapshot* snapshot, Partition* partition
) noexcept nogil:
    """After the partition moved: completes every request on it that now has enough."""
    cdef Due due
    cdef ParkedRequest* parked
    cdef ParkedWatch* watch
    _begin(&due)
    partition_lock(partition)
    watch = <ParkedWatch*>partition.waiting_fetches.first
    while watch != NULL:
        require_same(watch.partition, partition, "long poll: a watch is on its partition's list")
        watch_count_locked(watch)
        parked = watch.parked
        if (parked_has_enough(parked) and kb_load_int(&parked.state) == OPEN
                and _has_room(worker, &due)):
            take_reference(&parked.refs, "long poll: a fetch that has enough is held")
            _note(&due, parked)
        watch = watch.next
    _settle_locked(worker, &due, &partition.waiting_produces)
    _settle_locked(worker, &due, &partition.waiting_deletions)
    partition_unlock(partition)
    _forget_unsettled(&due)
    _complete(worker, snapshot, &due)


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
    # All that are there with one look along the list, then who was listed meanwhile.
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedRequest* parked
    cdef Due due
    _begin(&due)
    while True:
        lock_ranked(&table.lock, RANK_QUEUE)
        if expires:
            table.expired_total += due.completed
            table.expired_produces += due.completed_writes
        _begin(&due)
        parked = table.buckets[bucket]
        while parked != NULL and _has_room(worker, &due):
            if parked.tick <= tick_max and kb_load_int(&parked.state) == OPEN:
                take_reference(&parked.refs, "long poll: one whose time is over is held")
                _note(&due, parked)
            parked = parked.next
        unlock_ranked(&table.lock, RANK_QUEUE)
        if due.count == 0:
            return
        _complete(worker, snapshot, &due)


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


cdef void long_polls_let_go(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """To be called before slow work: hands over everything that other handlers can finish
    meanwhile. A fetch that gathers is answered; new deadlines, questions to coordinators, and what
    the run has left for Python go to another handler. Between two steps of a run: what is in the
    arena stays. `snapshot`: as below."""
    long_polls_end_gathering(worker, snapshot)
    parked_give_ticks(worker)
    parked_give_asking(worker)
    if worker.cold_head != NULL:
        request_channel_give_to_python(
            worker.context.request_channel, &worker.cold_head, &worker.cold_tail)


cdef void long_polls_end_gathering(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """The moment is over in which a follower's fetch waits for more than it asks for. `snapshot`:
    the one that is entered, or NULL."""
    cdef ParkedRequest* parked = worker.gathering
    cdef Snapshot* entered = snapshot
    if parked == NULL:
        return
    worker.gathering = NULL
    # Lower `wanted` before reading `found`: an append missed here then sees the lower threshold.
    kb_store_u64(&parked.wanted, parked.wanted_least)
    if kb_load_int(&parked.state) == OPEN and parked_has_enough(parked) \
            and parked_complete(&parked, 1):
        if entered == NULL:
            entered = snapshot_enter(worker.context.registry, worker.reader)
        parked.kind.complete(worker, entered, parked)
        worker_hand_over(worker)
        if snapshot == NULL:
            snapshot_leave(worker.reader)
    parked_drop(parked)


cdef void _end_left(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    # With a reference, which it drops. A peer that still reads gets what there is.
    cdef Snapshot* snapshot
    cdef int how
    if parked.request == NULL:    # it is over already: this thread takes it to Python
        parked.next_left = worker.settled
        worker.settled = parked
        return
    if parked_complete(&parked, 1):
        lock_ranked(&parked.table.lock, RANK_QUEUE)
        how = parked.request.channel.left
        unlock_ranked(&parked.table.lock, RANK_QUEUE)
        if how == LEFT:
            if parked.kind.give_up != NULL:
                parked.kind.give_up(parked)
            parked.request.action = ACTION_NO_OP
            worker_answer(worker, parked.request)
        else:
            snapshot = snapshot_enter(worker.context.registry, worker.reader)
            parked.kind.complete(worker, snapshot, parked)
            snapshot_leave(worker.reader)
        worker_hand_over(worker)
        arena_reset(&worker.arena)
    parked_drop(parked)


cdef void long_polls_end_listed(HotWorker* worker) noexcept nogil:
    """Between two runs: ends every request whose connection has gone, and gathers for Python the
    writes of its own that are over, and of handlers that are busy the deadlines and the questions
    to coordinators.
    """
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedRequest* parked
    cdef ParkedRequest* following
    worker_give_up_role(worker)
    lock_ranked(&table.lock, RANK_QUEUE)
    parked = <ParkedRequest*>table.left
    kb_store_ptr(&table.left, NULL)
    parked_take_ticks_locked(worker, table)
    parked_take_asking_locked(worker, table)
    unlock_ranked(&table.lock, RANK_QUEUE)
    while parked != NULL:
        following = parked.next_left
        _end_left(worker, parked)
        parked = following
