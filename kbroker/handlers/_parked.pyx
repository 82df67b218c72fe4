# cython: language_level=3
"""Long polls: fetches that wait for bytes, as C nodes on the partitions they read.

    park    copy the frame, link a watch to every partition, set the partition's flag, look once
            more (an append between the first look and the flag must not be missed), only then leave
    wake    after an append the worker visits the watches of the partitions it touched
    expire  the time wheel (Python) holds one operation per deadline tick and calls in here

Whoever wins the compare-and-swap on `done` completes the fetch: it unlinks the watches, reads again
and answers. Everybody else only drops its reference. The deadline list holds one reference until
the completer takes the fetch off it.

Locks: a partition's for its watch list, the table's ("queue") for the deadline lists; never two at
once, and nothing is completed while one is held. Bounds: one parked fetch per connection, its
memory counted by its frame and its partitions; ticks are TICK_MS wide.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker._arena cimport arena_take
from kbroker._atomics cimport (
    kb_add_int,
    kb_cas_int,
    kb_load_i64,
    kb_load_int,
    kb_store_int,
)
from kbroker._figures cimport kb_count
from kbroker._live_objects cimport LIVE_PARKED_FETCHES, LIVE_WATCHES, live_add
from kbroker._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker._sync cimport kb_now_ns
from kbroker.handlers._context cimport (
    PARKED_BUCKETS,
    TICK_MS,
    TICKS_MAX,
    HotContext,
    HotWorker,
    ParkedFetch,
    ParkedTable,
    ParkedWatch,
)
from kbroker.handlers._fetch cimport FetchPlan, FetchTarget, fetch_resume
from kbroker.log._partition cimport (
    Partition,
    partition_acquire,
    partition_lock,
    partition_readable_bytes,
    partition_release,
    partition_unlock,
)
from kbroker.net._request cimport request_detach
from kbroker.replica._snapshot cimport Snapshot

cdef enum:
    WAKE_BATCH = 64


cdef int parked_init(HotContext* context) noexcept nogil:
    memset(&context.parked, 0, sizeof(ParkedTable))
    return kb_mutex_init(&context.parked.lock)


cdef void _drop(ParkedFetch* parked) noexcept nogil:
    # The partitions go with the last reference: a visitor may still look at them after another
    # thread has completed the fetch and a topic's removal has let go of them.
    cdef int i
    if kb_add_int(&parked.refs, -1) != 0:
        return
    for i in range(parked.count):
        partition_release(parked.watches[i].partition)
    live_add(LIVE_WATCHES, -parked.count)
    live_add(LIVE_PARKED_FETCHES, -1)
    free(parked)


# --- watches -------------------------------------------------------------------------------------

cdef void _link(ParkedWatch* watch) noexcept nogil:
    cdef Partition* partition = watch.partition
    cdef ParkedWatch* head
    partition_lock(partition)
    head = <ParkedWatch*>partition.watchers
    watch.next = head
    watch.previous = NULL
    if head != NULL:
        head.previous = watch
    partition.watchers = watch
    watch.linked = 1
    kb_store_int(&partition.has_watchers, 1)
    partition_unlock(partition)


cdef void _unlink(ParkedWatch* watch) noexcept nogil:
    cdef Partition* partition = watch.partition
    partition_lock(partition)
    if watch.linked:
        if watch.previous != NULL:
            watch.previous.next = watch.next
        else:
            partition.watchers = watch.next
        if watch.next != NULL:
            watch.next.previous = watch.previous
        watch.linked = 0
        if partition.watchers == NULL:
            kb_store_int(&partition.has_watchers, 0)
    partition_unlock(partition)


cdef int _has_enough(ParkedFetch* parked) noexcept nogil:
    # Whether the bytes that it waits for are there, over all its partitions.
    cdef ParkedWatch* watch
    cdef int64_t readable = 0
    cdef int64_t here
    cdef int i
    for i in range(parked.count):
        watch = &parked.watches[i]
        here = partition_readable_bytes(
            watch.partition, watch.fetch_offset, watch.max_bytes, parked.read_committed)
        if here == 0 and not (watch.partition.online and watch.partition.is_leader):
            return 1              # deleted, broken or led elsewhere: an error to be told
        if watch.fetch_offset < kb_load_i64(&watch.partition.log_start_offset):
            return 1              # its records were deleted: out of range
        readable += here
        if readable >= parked.min_bytes:
            return 1
    return 0


# --- deadlines -----------------------------------------------------------------------------------

cdef void _list(HotWorker* worker, ParkedFetch* parked) noexcept nogil:
    # Into the bucket of its tick; the first of a tick is announced to Python.
    cdef ParkedTable* table = &worker.context.parked
    cdef uint64_t bucket = parked.tick % PARKED_BUCKETS
    lock_ranked(&table.lock, RANK_QUEUE)
    parked.previous = NULL
    parked.next = table.buckets[bucket]
    if parked.next != NULL:
        parked.next.previous = parked
    table.buckets[bucket] = parked
    parked.listed = 1
    table.count += 1
    table.parked_total += 1
    if table.announced[bucket] != parked.tick and worker.tick_count < TICKS_MAX:
        table.announced[bucket] = parked.tick
        worker.ticks[worker.tick_count] = parked.tick
        worker.tick_count += 1
    unlock_ranked(&table.lock, RANK_QUEUE)


cdef void _unlist(HotWorker* worker, ParkedFetch* parked) noexcept nogil:
    cdef ParkedTable* table = &worker.context.parked
    lock_ranked(&table.lock, RANK_QUEUE)
    if parked.listed:
        if parked.previous != NULL:
            parked.previous.next = parked.next
        else:
            table.buckets[parked.tick % PARKED_BUCKETS] = parked.next
        if parked.next != NULL:
            parked.next.previous = parked.previous
        parked.listed = 0
        table.count -= 1
    unlock_ranked(&table.lock, RANK_QUEUE)


# --- park and complete ---------------------------------------------------------------------------

cdef ParkedFetch* _new(FetchPlan* plan) noexcept nogil:
    cdef ParkedFetch* parked = <ParkedFetch*>calloc(
        1, sizeof(ParkedFetch) + sizeof(ParkedWatch) * <size_t>plan.count)
    cdef FetchTarget* target
    cdef ParkedWatch* watch
    cdef int64_t now_ns = kb_now_ns()
    cdef int i
    if parked == NULL:
        return NULL
    plan.request.waiting_ns = now_ns
    parked.refs = 2               # the deadline list's and this thread's
    parked.request = plan.request
    parked.min_bytes = plan.min_bytes
    parked.max_bytes = plan.max_bytes
    parked.read_committed = plan.read_committed
    parked.tick = <uint64_t>(now_ns // 1000000 + plan.max_wait_ms) // TICK_MS + 1
    parked.count = plan.count
    parked.watches = <ParkedWatch*>(<char*>parked + sizeof(ParkedFetch))
    for i in range(plan.count):
        target = &plan.targets[i]
        watch = &parked.watches[i]
        watch.parked = parked
        watch.partition = target.partition
        watch.fetch_offset = target.fetch_offset
        watch.max_bytes = target.max_bytes
        partition_acquire(target.partition)
    live_add(LIVE_WATCHES, parked.count)
    live_add(LIVE_PARKED_FETCHES, 1)
    return parked


cdef void _unhook(HotWorker* worker, ParkedFetch* parked) noexcept nogil:
    # By the one who won: off every list, and the deadline list's reference with it.
    cdef int i
    for i in range(parked.count):
        _unlink(&parked.watches[i])
    _unlist(worker, parked)
    _drop(parked)


cdef int park_fetch(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Parks a fetch that found too little; its partitions are all known and without error."""
    cdef ParkedFetch* parked
    cdef int i
    if kb_load_int(&worker.context.parked.closing) or request_detach(plan.request) != 0:
        return PARK_READ_AGAIN
    parked = _new(plan)
    if parked == NULL:
        return PARK_READ_AGAIN
    for i in range(parked.count):
        _link(&parked.watches[i])
    _list(worker, parked)
    if (_has_enough(parked) or kb_load_int(&worker.context.parked.closing)) and kb_cas_int(
        &parked.done, 0, 1
    ):
        _unhook(worker, parked)
        parked.request.waiting_ns = 0
        _drop(parked)
        return PARK_READ_AGAIN
    kb_count(&worker.parked_fetches, 1)
    _drop(parked)
    return PARK_WAITS


cdef void _complete(HotWorker* worker, Snapshot* snapshot, ParkedFetch* parked) noexcept nogil:
    # With a reference of the caller's, which it drops.
    if kb_cas_int(&parked.done, 0, 1):
        _unhook(worker, parked)
        fetch_resume(worker, snapshot, parked.request)
    _drop(parked)


cdef void parked_wake(HotWorker* worker, Snapshot* snapshot, Partition* partition) noexcept nogil:
    """After the partition moved: completes every fetch on it that now has enough."""
    cdef ParkedFetch** waiting
    cdef ParkedFetch** more
    cdef ParkedWatch* watch
    cdef int capacity = WAKE_BATCH
    cdef int count = 0
    cdef int i
    waiting = <ParkedFetch**>arena_take(&worker.arena, sizeof(ParkedFetch*) * WAKE_BATCH)
    if waiting == NULL:
        return
    partition_lock(partition)
    watch = <ParkedWatch*>partition.watchers
    while watch != NULL:
        if count == capacity:
            more = <ParkedFetch**>arena_take(
                &worker.arena, sizeof(ParkedFetch*) * 2 * <size_t>capacity)
            if more == NULL:
                break             # the others wait for the next append or their deadline
            for i in range(count):
                more[i] = waiting[i]
            waiting = more
            capacity *= 2
        kb_add_int(&watch.parked.refs, 1)
        waiting[count] = watch.parked
        count += 1
        watch = watch.next
    partition_unlock(partition)
    for i in range(count):
        if not kb_load_int(&waiting[i].done) and _has_enough(waiting[i]):
            _complete(worker, snapshot, waiting[i])
        else:
            _drop(waiting[i])


cdef void parked_wake_touched(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    cdef int i
    for i in range(worker.touched_count):
        parked_wake(worker, snapshot, worker.touched[i])
    worker.touched_count = 0


cdef void _complete_bucket(
    HotWorker* worker, Snapshot* snapshot, uint64_t bucket, uint64_t tick_max,
) noexcept nogil:
    # One at a time: the list may change whenever its lock is free.
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedFetch* parked
    while True:
        lock_ranked(&table.lock, RANK_QUEUE)
        parked = table.buckets[bucket]
        while parked != NULL and (parked.tick > tick_max or kb_load_int(&parked.done)):
            parked = parked.next
        if parked != NULL:
            kb_add_int(&parked.refs, 1)
            table.expired_total += 1
        unlock_ranked(&table.lock, RANK_QUEUE)
        if parked == NULL:
            return
        _complete(worker, snapshot, parked)


cdef void parked_expire(HotWorker* worker, Snapshot* snapshot, uint64_t tick) noexcept nogil:
    """The deadline of a tick has come."""
    cdef ParkedTable* table = &worker.context.parked
    cdef uint64_t bucket = tick % PARKED_BUCKETS
    # Who is late and lists one more of this tick announces it once more.
    lock_ranked(&table.lock, RANK_QUEUE)
    if table.announced[bucket] == tick:
        table.announced[bucket] = 0
    unlock_ranked(&table.lock, RANK_QUEUE)
    _complete_bucket(worker, snapshot, bucket, tick)


cdef void parked_close(HotWorker* worker, Snapshot* snapshot) noexcept nogil:
    """The broker stops: everything parked is answered, nothing is parked any more."""
    cdef uint64_t bucket
    kb_store_int(&worker.context.parked.closing, 1)
    for bucket in range(<uint64_t>PARKED_BUCKETS):
        _complete_bucket(worker, snapshot, bucket, <uint64_t>-1)
