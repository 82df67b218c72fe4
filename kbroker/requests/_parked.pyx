# cython: language_level=3
"""Long polls: fetches that wait for bytes, as C nodes on the partitions they read.

    park    copy the frame; link a watch to every partition, which counts what is there; list the
            fetch under its deadline and open it; look at the sum once more, only then leave
    leave   a Processor says that a connection has gone; the next handler ends what waits for it

A fetch moves from building to open to done (_parked_state); whoever moves it from open to done
takes it off the lists, reads again and answers (_long_polls). Everybody else only drops its
reference.
Until it is open nobody but the parker touches its lists; what came meanwhile is in the sum. The
deadline list holds one reference until the completer takes the fetch off it.

An append costs one count for each watch on its partition, however many partitions those fetches
name: a fetch has one watch on a partition (_fetch drops what is named twice), and a watch brings
its own difference to the fetch's sum.

Locks: a partition's for its watches and their counts, the table's ("queue") for the deadline lists
and the channels' `parked`; never two at once, and nothing is completed while one is held. Bounds:
one parked fetch per connection; PARKED_BYTES_MAX for frames and watches of all, beyond which a
fetch is answered at once; ticks are TICK_MS wide, and wider for waits of more than a second.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker._atomics cimport (
    kb_add_i64,
    kb_add_int,
    kb_add_u64,
    kb_load_int,
    kb_load_u64,
    kb_store_int,
    kb_store_ptr,
)
from kbroker._figures cimport kb_count
from kbroker._live_objects cimport LIVE_PARKED_FETCHES, LIVE_WATCHES, live_add
from kbroker._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker._sync cimport kb_now_ns
from kbroker.net._request cimport request_detach
from kbroker.net._request_channel cimport request_channel_call
from kbroker.net._types cimport Channel
from kbroker.replica._partition cimport (
    TO_LOG_END,
    Partition,
    partition_acquire,
    partition_in_older_segment_locked,
    partition_lock,
    partition_readable_bytes_locked,
    partition_release,
    partition_unlock,
)
from kbroker.requests._context cimport (
    PARKED_BUCKETS,
    TICK_MS,
    TICKS_MAX,
    HotContext,
    HotWorker,
    ParkedFetch,
    ParkedTable,
    ParkedWatch,
)
from kbroker.requests._fetch_plan cimport FetchPlan, FetchTarget
from kbroker.requests._parked_state cimport (
    BUILDING,
    COMPLETED,
    GIVEN_UP,
    LISTED,
    PARKED_ILLEGAL,
    PARKED_MOVED,
    parked_fire,
)

cdef extern from "debug.h" nogil:
    void kb_assert(int condition, const char* text)

cdef enum:
    EXACT_TICKS = 256             # a wait of more of them ends up to a 128th of itself late
    PARKED_BYTES_MAX = 256 << 20  # of all connections; beyond it fetches do not wait


cdef int parked_init(HotContext* context) noexcept nogil:
    memset(&context.parked, 0, sizeof(ParkedTable))
    context.channel.on_left = _on_left
    context.channel.hot_context = context
    return kb_mutex_init(&context.parked.lock)


cdef int _fire(ParkedFetch* parked, int event) noexcept nogil:
    cdef int verdict = parked_fire(&parked.state, event)
    kb_assert(verdict != PARKED_ILLEGAL, "a parked fetch met an event that its state does not know")
    return verdict == PARKED_MOVED


cdef void parked_drop(ParkedFetch* parked) noexcept nogil:
    # The partitions go with the last reference: a visitor may still look at them after another
    # thread has completed the fetch and a topic's removal has let go of them.
    cdef ParkedTable* table = parked.table
    cdef int i
    if kb_add_int(&parked.refs, -1) != 0:
        return
    for i in range(parked.count):
        partition_release(parked.watches[i].partition)
    live_add(LIVE_WATCHES, -parked.count)
    live_add(LIVE_PARKED_FETCHES, -1)
    kb_add_i64(&table.bytes, -parked.size_bytes)
    free(parked)


# --- watches -------------------------------------------------------------------------------------

cdef void watch_count_locked(ParkedWatch* watch) noexcept nogil:
    # What there is to be read here, and whether there is something to be told of it.
    cdef Partition* partition = watch.partition
    cdef ParkedFetch* parked = watch.parked
    cdef int64_t here
    if (
        not (partition.log.online and partition.is_leader)     # deleted, broken or led elsewhere
        or watch.fetch_offset < partition.log.log_start_offset  # its records were deleted
        or watch.fetch_offset > partition.log.log_end_offset
        # Who is so far behind is answered at once, as by Apache Kafka: where it reads would have
        # to be looked up in a file at every append.
        or partition_in_older_segment_locked(partition, watch.fetch_offset)
    ):
        kb_store_int(&parked.must_answer, 1)
        return
    if parked.isolation == TO_LOG_END and partition.high_watermark.offset > watch.high_watermark:
        kb_store_int(&parked.must_answer, 1)  # followers are told where it is now
    here = partition_readable_bytes_locked(
        partition, watch.fetch_offset, watch.max_bytes, parked.isolation)
    if here < 0:
        here = 0
    if here != watch.counted:
        kb_add_u64(&parked.readable, <uint64_t>(here - watch.counted))
        watch.counted = here


cdef int parked_has_enough(ParkedFetch* parked) noexcept nogil:
    return (
        <int64_t>kb_load_u64(&parked.readable) >= parked.min_bytes
        or kb_load_int(&parked.must_answer)
    )


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
    watch_count_locked(watch)          # what comes from now on finds the watch
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


# --- deadlines and connections -------------------------------------------------------------------

cdef uint64_t parked_bucket(uint64_t tick) noexcept nogil:
    # Wide ticks, of long waits, are multiples of a power of two: each lap begins one further, or
    # all of them would share a few buckets.
    return (tick + tick // PARKED_BUCKETS) % PARKED_BUCKETS


def bucket_of(uint64_t tick):
    return parked_bucket(tick)


cdef void _announce_locked(HotWorker* worker, ParkedTable* table, uint64_t tick) noexcept nogil:
    # The first of a tick is told to Python.
    cdef uint64_t bucket = parked_bucket(tick)
    if table.announced[bucket] != tick and worker.tick_count < TICKS_MAX:
        table.announced[bucket] = tick
        worker.ticks[worker.tick_count] = tick
        worker.tick_count += 1


cdef int _open(HotWorker* worker, ParkedFetch* parked) noexcept nogil:
    # On the last list, the bucket of its tick, and open; 0: it may not wait (any more).
    cdef ParkedTable* table = parked.table
    cdef Channel* channel = parked.request.channel
    cdef ParkedFetch** head = &table.buckets[parked_bucket(parked.tick)]
    cdef int opened = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    if not kb_load_int(&table.closing) and channel.left == 0 and channel.parked == NULL:
        parked.next = head[0]
        if parked.next != NULL:
            parked.next.previous = parked
        head[0] = parked
        parked.listed = 1
        channel.parked = parked
        table.count += 1
        table.parked_total += 1
        _announce_locked(worker, table, parked.tick)
        opened = _fire(parked, LISTED)
    unlock_ranked(&table.lock, RANK_QUEUE)
    if not opened:
        _fire(parked, GIVEN_UP)
    return opened


cdef void _unlist(ParkedFetch* parked) noexcept nogil:
    cdef ParkedTable* table = parked.table
    lock_ranked(&table.lock, RANK_QUEUE)
    if parked.listed:
        if parked.previous != NULL:
            parked.previous.next = parked.next
        else:
            table.buckets[parked_bucket(parked.tick)] = parked.next
        if parked.next != NULL:
            parked.next.previous = parked.previous
        parked.listed = 0
        parked.request.channel.parked = NULL
        table.count -= 1
    unlock_ranked(&table.lock, RANK_QUEUE)


cdef void _on_left(void* context, Channel* channel, int how) noexcept nogil:
    # On the channel's Processor. What waits for it is a handler's to end: unlinking takes
    # partitions' locks, which are held while a roll creates files.
    cdef HotContext* hot = <HotContext*>context
    cdef ParkedTable* table = &hot.parked
    cdef ParkedFetch* parked
    lock_ranked(&table.lock, RANK_QUEUE)
    channel.left = <signed char>how
    parked = <ParkedFetch*>channel.parked
    if parked != NULL and not parked.left:
        parked.left = 1
        kb_add_int(&parked.refs, 1)
        parked.next_left = <ParkedFetch*>table.left
        table.left_total += 1
        kb_store_ptr(&table.left, parked)
    else:
        parked = NULL
    unlock_ranked(&table.lock, RANK_QUEUE)
    if parked != NULL:
        request_channel_call(hot.channel)


# --- park and complete ---------------------------------------------------------------------------

cdef ParkedFetch* _allocate(HotWorker* worker, FetchPlan* plan, int count) noexcept nogil:
    # NULL: no memory, or no more may be parked.
    cdef ParkedTable* table = &worker.context.parked
    cdef size_t node_bytes = sizeof(ParkedFetch) + sizeof(ParkedWatch) * <size_t>count
    cdef int64_t size_bytes = <int64_t>node_bytes + plan.request.length_bytes
    cdef ParkedFetch* parked = NULL
    if kb_add_i64(&table.bytes, size_bytes) <= PARKED_BYTES_MAX:
        parked = <ParkedFetch*>calloc(1, node_bytes)
    if parked != NULL and request_detach(plan.request) != 0:
        free(parked)
        parked = NULL
    if parked == NULL:
        kb_add_i64(&table.bytes, -size_bytes)
        return NULL
    live_add(LIVE_WATCHES, count)
    live_add(LIVE_PARKED_FETCHES, 1)
    parked.table = table
    parked.count = count
    parked.size_bytes = size_bytes
    parked.watches = <ParkedWatch*>(<char*>parked + sizeof(ParkedFetch))
    return parked


cdef uint64_t _deadline_tick(int64_t now_ns, int32_t wait_ms) noexcept nogil:
    # Long waits share ticks, or whoever comes and goes with ever other ones fills the time wheel.
    cdef uint64_t tick = <uint64_t>(now_ns // 1000000 + wait_ms) // TICK_MS + 1
    cdef uint64_t width = 1
    while <uint64_t>wait_ms >= width * TICK_MS * EXACT_TICKS:
        width *= 2
    return (tick + width - 1) & ~(width - 1)


cdef ParkedFetch* _new(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    cdef ParkedFetch* parked = _allocate(worker, plan, plan.count - plan.not_there_count)
    cdef ParkedWatch* watch
    cdef FetchTarget* target
    cdef int64_t now_ns = kb_now_ns()
    cdef int i
    if parked == NULL:
        return NULL
    plan.request.waiting_ns = now_ns
    parked.state = BUILDING
    parked.refs = 2               # the deadline list's and this thread's
    parked.request = plan.request
    parked.min_bytes = plan.min_bytes
    parked.isolation = plan.isolation
    parked.tick = _deadline_tick(now_ns, plan.max_wait_ms)
    watch = parked.watches
    for i in range(plan.count):
        target = &plan.targets[i]
        if target.not_there:
            continue
        watch.parked = parked
        watch.partition = target.partition
        watch.fetch_offset = target.fetch_offset
        watch.high_watermark = target.high_watermark
        watch.max_bytes = <int>target.max_bytes
        partition_acquire(target.partition)
        watch += 1
    return parked


cdef void _unhook(ParkedFetch* parked) noexcept nogil:
    # By the one who moved it to done: off every list, and the deadline list's reference with it.
    cdef int i
    for i in range(parked.count):
        _unlink(&parked.watches[i])
    _unlist(parked)
    parked_drop(parked)


cdef int park_fetch(HotWorker* worker, FetchPlan* plan) noexcept nogil:
    """Parks a fetch that found too little; what it names and is there has no error."""
    cdef ParkedFetch* parked
    cdef int mine
    cdef int i
    if kb_load_int(&worker.context.parked.closing):
        return PARK_READ_AGAIN
    parked = _new(worker, plan)
    if parked == NULL:
        return PARK_READ_AGAIN
    for i in range(parked.count):
        _link(&parked.watches[i])
    mine = 1
    if _open(worker, parked):
        # Whoever came before this found it being built and left it: the sum says what they had.
        mine = parked_has_enough(parked) and _fire(parked, COMPLETED)
    if not mine:
        kb_count(&worker.parked_fetches, 1)
        parked_drop(parked)
        return PARK_WAITS
    parked.request.waiting_ns = 0
    _unhook(parked)
    parked_drop(parked)
    return PARK_READ_AGAIN


cdef int parked_complete(ParkedFetch* parked) noexcept nogil:
    """Moves it to done and off every list: its request is the caller's; 0: somebody was faster.

    The caller holds a reference, before and after.
    """
    if not _fire(parked, COMPLETED):
        return 0
    _unhook(parked)
    return 1
