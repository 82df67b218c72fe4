# cython: language_level=3
"""Requests that wait, as C nodes on their partitions: fetches for bytes, writes for followers.

    park    keep what the answer needs; link a watch to every partition, which counts what is there;
            list the request under its deadline and open it; look at the sum once more, only then
            leave
    leave   a Processor says that a connection has gone; the next handler ends what waits for it

A request moves from building to open to done (_parked_state); the thread that moves it from open to
done takes it off the lists and answers (_long_polls). All others only drop their references. Until
it is open only the parker touches its lists; what came meanwhile is in the sum. The deadline list
holds one reference until the completer takes the request off it.

A request's kind says what it waits for and how it is answered (`WaiterKind`, in _context). One that
waits for a coordinator has no watch: Python asks and completes it by its number (_produce_verify).

The watch of a fetch counts bytes to be read: an append costs one count for each on its partition,
however many partitions those fetches name: a fetch has one watch on a partition (_fetch drops
repeated names), and a watch brings its own difference to the fetch's sum. The watch of a write
counts one, once its batch is settled (_produce_wait, _group_write), and leaves its partition's list
with that: the list is in the order of the offsets, so a look along it stops at the first that goes
on waiting. A duplicate of a batch with more than LINK_STEPS_MAX after it is listed among these and
waits for some of them, too: the list is not searched to its end for a place.

Locks: a partition's for its watches and their counts, the table's ("queue") for the deadline lists
and what is parked of each channel; never two at once, and nothing is completed while one is held.
Bounds: of one connection the pipeline's (net/_channel); `bytes_max` (PARKED_BYTES_MAX) for watches
and what is kept of all, and half of it for clients' fetches, beyond which a request is answered at
once; ticks are TICK_MS wide, and wider for waits of more than a second.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker.core._atomics cimport (
    kb_add_i64, kb_add_int, kb_add_u64, kb_cas_int, kb_load_int, kb_load_u64, kb_store_int,
    kb_store_ptr, kb_store_u64)
from kbroker.core._error_codes cimport NO_ERROR
from kbroker.core._list cimport linked_insert, linked_remove
from kbroker.core._live_objects cimport LIVE_PARKED_REQUESTS, LIVE_WATCHES, live_add
from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport drop_reference, require, require_count, take_reference
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._request_channel cimport request_channel_call
from kbroker.net._types cimport LEFT_ALL, Channel, Request
from kbroker.replica._partition cimport (
    TO_LOG_END, Partition, Watchers, partition_in_older_segment_locked, partition_lock,
    partition_may_answer_locked, partition_note_awaited_locked, partition_readable_bytes_locked,
    partition_release, partition_settle_deletion_locked,
    partition_settle_locked, partition_unlock)
from kbroker.engine.worker._context cimport (
    PARKED_BUCKETS, TICK_MS, TICKS_MAX, WAITS_FOR_BYTES, WAITS_FOR_LOG_STARTS, HotContext,
    HotWorker, ParkedRequest, ParkedTable, ParkedWatch, WaiterKind)
from kbroker.engine.waiting._parked_state cimport (
    BUILDING, COMPLETED, GIVEN_UP, LISTED, PARKED_ILLEGAL, PARKED_MOVED, parked_fire)
from kbroker.engine.worker._worker_mode cimport MAY_KEEP_DEADLINES

cdef enum:
    EXACT_TICKS = 256             # a wait of more of them ends up to a 128th of itself late
    LINK_STEPS_MAX = 1024         # what handlers that append beside one another may be apart


cdef int parked_init(HotContext* context, int64_t bytes_max) noexcept nogil:
    memset(&context.parked, 0, sizeof(ParkedTable))
    context.parked.bytes_max = bytes_max
    context.request_channel.on_left = _on_left
    context.request_channel.hot_context = context
    return kb_mutex_init(&context.parked.lock)


cdef int _fire(ParkedRequest* parked, int event) noexcept nogil:
    cdef int verdict = parked_fire(&parked.state, event)
    require(verdict != PARKED_ILLEGAL, "parked request: an event that its state allows",
            event, parked.state)
    return verdict == PARKED_MOVED


cdef void parked_drop(ParkedRequest* parked) noexcept nogil:
    # The partitions go with the last reference: a visitor may still look at them after another
    # thread has completed the request and a topic's removal has let go of them.
    cdef ParkedTable* table = parked.table
    cdef int i
    if drop_reference(&parked.refs, "parked request: references are dropped once") != 0:
        return
    require(not parked.listed, "parked request: one that is freed has left its lists", 0, 0)
    for i in range(parked.count):
        require(not kb_load_int(&parked.watches[i].linked), "watch: a freed one is unlinked", 0, 0)
        partition_release(parked.watches[i].partition)
    if parked.kept != NULL:
        parked.kind.free_kept(parked.kept)
    live_add(LIVE_WATCHES, -parked.count)
    live_add(LIVE_PARKED_REQUESTS, -1)
    _give_room(table, parked.size_bytes, parked.in_half)
    free(parked)


# --- watches -------------------------------------------------------------------------------------

cdef void watch_count_locked(ParkedWatch* watch) noexcept nogil:
    if watch.waits_for == WAITS_FOR_BYTES:
        _count_bytes_locked(watch)
    elif watch.counted == 0 and _settle_locked(watch):
        watch.counted = 1
        kb_add_u64(&watch.parked.found, 1)
        _unlink_locked(watch)


cdef int _settle_locked(ParkedWatch* watch) noexcept nogil:
    if watch.waits_for == WAITS_FOR_LOG_STARTS:
        return partition_settle_deletion_locked(watch.partition, watch.batch)
    return partition_settle_locked(watch.partition, watch.batch)


cdef void _count_bytes_locked(ParkedWatch* watch) noexcept nogil:
    # The bytes that can be read here, and whether there is anything else to answer.
    cdef Partition* partition = watch.partition
    cdef ParkedRequest* parked = watch.parked
    cdef int64_t here
    if (
        # Deleted or broken, or led elsewhere.
        partition_may_answer_locked(partition, parked.read_from) != NO_ERROR
        or 0 <= watch.leader_epoch != partition.leader_epoch
        or watch.fetch_offset < partition.log.log_start_offset  # its records were deleted
        or watch.fetch_offset > partition.log.log_end_offset
        # A reader that lags so far is answered at once, as by Apache Kafka: its position would have
        # to be looked up in a file at every append.
        or (not watch.held_back and partition_in_older_segment_locked(
            partition, watch.fetch_offset, parked.isolation))
    ):
        kb_store_int(&parked.must_answer, 1)
        return
    if parked.isolation == TO_LOG_END and (
            partition.high_watermark.offset > watch.high_watermark
            or partition.log.log_start_offset > watch.log_start):
        kb_store_int(&parked.must_answer, 1)  # a follower gets it, unless it soon will anyway
    if watch.held_back:
        return
    here = partition_readable_bytes_locked(
        partition, watch.fetch_offset, watch.max_bytes, parked.isolation, parked.read_from)
    if here < 0:
        here = 0
    if here != watch.counted:
        kb_add_u64(&parked.found, <uint64_t>(here - watch.counted))
        watch.counted = here
    if parked.lingers and here > 0 and is_awaited(partition, watch.fetch_offset):
        kb_store_u64(&parked.wanted, parked.wanted_least)


cdef int parked_has_enough(ParkedRequest* parked) noexcept nogil:
    return (
        kb_load_u64(&parked.found) >= kb_load_u64(&parked.wanted)
        or kb_load_int(&parked.must_answer)
    )


cdef inline Watchers* _list_of(ParkedWatch* watch) noexcept nogil:
    if watch.waits_for == WAITS_FOR_BYTES:
        return &watch.partition.waiting_fetches
    if watch.waits_for == WAITS_FOR_LOG_STARTS:
        return &watch.partition.waiting_deletions
    return &watch.partition.waiting_produces


cdef void _link_locked(ParkedWatch* watch) noexcept nogil:
    # The last of its list; a write follows those with lower offsets, and is mostly the last, too.
    cdef Watchers* watchers = _list_of(watch)
    cdef ParkedWatch* before = <ParkedWatch*>watchers.last
    cdef int steps = LINK_STEPS_MAX if watch.waits_for != WAITS_FOR_BYTES else 0
    while before != NULL and steps > 0 and before.batch.last_offset > watch.batch.last_offset:
        before = before.previous
        steps -= 1
    require(not watch.linked, "watch: it is linked once", watch.linked, 0)
    linked_insert(&watchers.first, &watchers.last, watch, &watch.previous, before,
                  "watch: the one after a new one names the one before it")
    kb_store_int(&watch.linked, 1)
    if watch.waits_for != WAITS_FOR_BYTES:
        if watch.waits_for != WAITS_FOR_LOG_STARTS:
            partition_note_awaited_locked(watch.partition, watch.batch)
    elif watch.parked.isolation != TO_LOG_END:
        kb_add_int(&watch.partition.consumers_waiting, 1)
    elif watch.parked.lingers:
        kb_add_int(&watch.partition.followers_lingering, 1)
    kb_store_int(&watch.partition.has_watchers, 1)


cdef void _unlink_locked(ParkedWatch* watch) noexcept nogil:
    cdef Watchers* watchers = _list_of(watch)
    if not watch.linked:
        return
    linked_remove(&watchers.first, &watchers.last, watch, &watch.previous,
                  "watch: neighbours name each other")
    if (watch.partition.waiting_fetches.first == NULL
            and watch.partition.waiting_produces.first == NULL
            and watch.partition.waiting_deletions.first == NULL):
        kb_store_int(&watch.partition.has_watchers, 0)
    if watch.waits_for == WAITS_FOR_BYTES and watch.parked.isolation != TO_LOG_END:
        require(kb_add_int(&watch.partition.consumers_waiting, -1) >= 0,
                "watch: consumers that wait are counted", watch.partition.consumers_waiting, 0)
    elif watch.waits_for == WAITS_FOR_BYTES and watch.parked.lingers:
        require(kb_add_int(&watch.partition.followers_lingering, -1) >= 0,
                "watch: followers that linger are counted", watch.partition.followers_lingering, 0)
    kb_store_int(&watch.linked, 0)     # the last: see _unlink


cdef void _link(ParkedWatch* watch) noexcept nogil:
    partition_lock(watch.partition)
    _link_locked(watch)
    watch_count_locked(watch)          # what comes from now on finds the watch
    partition_unlock(watch.partition)


cdef void _unlink(ParkedWatch* watch) noexcept nogil:
    # A settled write watch is already unlinked and its settler holds a reference, maybe under the
    # lock still, so there is nothing to wait for.
    if watch.waits_for != WAITS_FOR_BYTES and not kb_load_int(&watch.linked):
        return
    partition_lock(watch.partition)
    if watch.waits_for != WAITS_FOR_BYTES:
        watch_count_locked(watch)      # a move of the partition may not be counted here yet
    _unlink_locked(watch)
    partition_unlock(watch.partition)


# --- deadlines and connections -------------------------------------------------------------------

cdef uint64_t parked_bucket(uint64_t tick) noexcept nogil:
    # Wide ticks, of long waits, are multiples of a power of two: each lap begins one further, or
    # all of them would share a few buckets.
    return (tick + tick // PARKED_BUCKETS) % PARKED_BUCKETS


def bucket_of(uint64_t tick):
    return parked_bucket(tick)


cdef int _announce_locked(HotWorker* worker, ParkedTable* table, uint64_t tick) noexcept nogil:
    # The first of a tick is announced to Python. 1: by a handler that is to be called.
    cdef uint64_t bucket = parked_bucket(tick)
    if table.announced[bucket] == tick:
        return 0
    if not worker.may & MAY_KEEP_DEADLINES and table.tick_count < TICKS_MAX:
        table.announced[bucket] = tick
        table.ticks[table.tick_count] = tick
        kb_store_int(&table.tick_count, table.tick_count + 1)
        return 1
    if worker.tick_count < TICKS_MAX:
        table.announced[bucket] = tick
        worker.ticks[worker.tick_count] = tick
        worker.tick_count += 1
    return 0


cdef void parked_give_ticks(HotWorker* worker) noexcept nogil:
    """Before anything that may take long: new deadlines are another handler's to tell, as far as
    there is room for them."""
    cdef ParkedTable* table = &worker.context.parked
    cdef int given = 0
    if worker.tick_count == 0:
        return
    lock_ranked(&table.lock, RANK_QUEUE)
    while worker.tick_count > 0 and table.tick_count < TICKS_MAX:
        worker.tick_count -= 1
        table.ticks[table.tick_count] = worker.ticks[worker.tick_count]
        kb_store_int(&table.tick_count, table.tick_count + 1)
        given = 1
    unlock_ranked(&table.lock, RANK_QUEUE)
    if given:
        request_channel_call(worker.context.request_channel)


cdef void parked_ask(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    parked.next_asking = worker.asking
    worker.asking = parked


cdef void parked_give_asking(HotWorker* worker) noexcept nogil:
    cdef ParkedTable* table = &worker.context.parked
    cdef ParkedRequest* last = worker.asking
    if last == NULL:
        return
    while last.next_asking != NULL:
        last = last.next_asking
    lock_ranked(&table.lock, RANK_QUEUE)
    last.next_asking = <ParkedRequest*>table.asking
    kb_store_ptr(&table.asking, worker.asking)
    unlock_ranked(&table.lock, RANK_QUEUE)
    worker.asking = NULL
    request_channel_call(worker.context.request_channel)


cdef void parked_take_asking_locked(HotWorker* worker, ParkedTable* table) noexcept nogil:
    cdef ParkedRequest* parked
    while table.asking != NULL:
        parked = <ParkedRequest*>table.asking
        kb_store_ptr(&table.asking, parked.next_asking)
        parked_ask(worker, parked)


cdef void parked_take_ticks_locked(HotWorker* worker, ParkedTable* table) noexcept nogil:
    while table.tick_count > 0 and worker.tick_count < TICKS_MAX:
        kb_store_int(&table.tick_count, table.tick_count - 1)
        worker.ticks[worker.tick_count] = table.ticks[table.tick_count]
        worker.tick_count += 1


cdef int _open(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    # On the last list, the bucket of its tick, and open; 0: it may not wait (any more).
    cdef ParkedTable* table = parked.table
    cdef Channel* channel = parked.request.channel if parked.request != NULL else NULL
    cdef int opened = 0
    cdef int calls = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    if not kb_load_int(&table.closing) and (channel == NULL or channel.left == 0):
        linked_insert(&table.buckets[parked_bucket(parked.tick)], NULL, parked, &parked.previous,
                      NULL, "deadlines: nothing is before the first")
        parked.listed = 1
        if channel != NULL:
            linked_insert(&channel.parked, NULL, parked, &parked.previous_here,
                          NULL, "of a channel: nothing is before the first")
        table.count += 1
        table.produce_count += parked_is_write(parked)
        calls = _announce_locked(worker, table, parked.tick)
        opened = _fire(parked, LISTED)
    unlock_ranked(&table.lock, RANK_QUEUE)
    if calls:
        request_channel_call(worker.context.request_channel)
    if not opened:
        _fire(parked, GIVEN_UP)
    return opened


cdef void _unlist_locked(ParkedTable* table, ParkedRequest* parked) noexcept nogil:
    if not parked.listed:
        return
    linked_remove(&table.buckets[parked_bucket(parked.tick)], NULL, parked, &parked.previous,
                  "deadlines: neighbours name each other")
    parked.listed = 0
    if parked.request != NULL:
        linked_remove(&parked.request.channel.parked, NULL, parked, &parked.previous_here,
                      "of a channel: neighbours name each other")
    table.count = require_count(table.count - 1, "parked requests: they are counted")
    table.produce_count = require_count(
        table.produce_count - parked_is_write(parked), "parked requests: writes are counted")


cdef void _on_left(void* context, Channel* channel, int how) noexcept nogil:
    # On the channel's Processor. What waits for it is a handler's to end: unlinking takes
    # partitions' locks, which are held while a roll creates files.
    cdef HotContext* hot = <HotContext*>context
    cdef ParkedTable* table = &hot.parked
    cdef ParkedRequest* parked
    cdef ParkedRequest* following
    cdef int some = 0
    lock_ranked(&table.lock, RANK_QUEUE)
    channel.left = <signed char>how
    parked = <ParkedRequest*>channel.parked
    while parked != NULL:
        following = parked.next_here
        if parked.outlasts_requests and how != LEFT_ALL:
            parked = following
            continue
        if parked.request == NULL:  # it waits for this alone, and is handed over with its reference
            linked_remove(&channel.parked, NULL, parked, &parked.previous_here,
                          "of a lost channel: neighbours name each other")
        elif not parked.left:
            take_reference(&parked.refs, "parked request: one of a lost connection is held")
            table.left_total += 1
        if not parked.left:
            parked.left = 1
            parked.next_left = <ParkedRequest*>table.left
            kb_store_ptr(&table.left, parked)
            some = 1
        parked = following
    unlock_ranked(&table.lock, RANK_QUEUE)
    if some:
        request_channel_call(hot.request_channel)


cdef void parked_hand_over(HotContext* context, ParkedRequest* parked) noexcept nogil:
    cdef ParkedTable* table = &context.parked
    take_reference(&parked.refs, "parked request: one that is handed over is held")
    lock_ranked(&table.lock, RANK_QUEUE)
    parked.next_left = <ParkedRequest*>table.left
    kb_store_ptr(&table.left, parked)
    unlock_ranked(&table.lock, RANK_QUEUE)
    request_channel_call(context.request_channel)


# --- park and complete ---------------------------------------------------------------------------

cdef void note_advanced(HotWorker* worker, Partition* partition) noexcept nogil:
    if kb_load_int(&partition.has_watchers) and kb_cas_int(&partition.advanced, 0, 1):
        partition.next_advanced = worker.advanced
        worker.advanced = partition


cdef uint64_t _deadline_tick(int64_t now_ns, int32_t wait_ms) noexcept nogil:
    # Long waits share ticks, or a client with ever other waits would fill the time wheel.
    cdef uint64_t tick = <uint64_t>(now_ns // 1000000 + wait_ms) // TICK_MS + 1
    cdef uint64_t width = 1
    while <uint64_t>wait_ms >= width * TICK_MS * EXACT_TICKS:
        width *= 2
    return _wider(tick, width)


cdef inline uint64_t _wider(uint64_t tick, uint64_t width) noexcept nogil:
    # The next multiple of a power of two.
    return (tick + width - 1) & ~(width - 1)


cdef int _take_room(ParkedTable* table, int64_t size_bytes, int in_half) noexcept nogil:
    # 0: there is none; it is given back all the same. Clients' fetches leave half of it: a write
    # that finds no room fails, and a follower that finds none fetches without end.
    cdef int fits = kb_add_i64(&table.bytes, size_bytes) <= table.bytes_max
    if in_half:
        fits &= kb_add_i64(&table.half_bytes, size_bytes) <= table.bytes_max // 2
    return fits


cdef void _give_room(ParkedTable* table, int64_t size_bytes, int in_half) noexcept nogil:
    kb_add_i64(&table.bytes, -size_bytes)
    if in_half:
        kb_add_i64(&table.half_bytes, -size_bytes)


cdef ParkedRequest* parked_new(
    HotWorker* worker, const WaiterKind* kind, Request* request, int count, int64_t kept_bytes,
    int32_t wait_ms, int in_half,
) noexcept nogil:
    """Being built, with room for so many watches and counted with the bytes kept for its answer.

    NULL: no memory, no more may be parked, or the broker stops.
    """
    cdef ParkedTable* table = &worker.context.parked
    cdef size_t node_bytes = sizeof(ParkedRequest) + sizeof(ParkedWatch) * <size_t>count
    cdef int64_t size_bytes = <int64_t>node_bytes + kept_bytes
    cdef int64_t now_ns = kb_now_ns()
    cdef ParkedRequest* parked = NULL
    cdef int i
    if kb_load_int(&table.closing):
        return NULL
    if _take_room(table, size_bytes, in_half):
        parked = <ParkedRequest*>calloc(1, node_bytes)
    if parked == NULL:
        _give_room(table, size_bytes, in_half)
        return NULL
    live_add(LIVE_WATCHES, count)
    live_add(LIVE_PARKED_REQUESTS, 1)
    if request != NULL:
        request.waiting_ns = now_ns
    parked.state = BUILDING
    parked.refs = 2               # the deadline list's and this thread's
    parked.kind = kind
    parked.request = request
    parked.table = table
    parked.tick = _deadline_tick(now_ns, wait_ms)
    parked.count = count
    parked.size_bytes = size_bytes
    parked.in_half = in_half
    parked.watches = <ParkedWatch*>(<char*>parked + sizeof(ParkedRequest))
    for i in range(count):
        parked.watches[i].parked = parked
        parked.watches[i].waits_for = kind.waits_for
    return parked


cdef void parked_widen(ParkedRequest* parked, uint64_t ticks) noexcept nogil:
    parked.tick = _wider(parked.tick, ticks)


cdef void parked_abandon(ParkedRequest* parked) noexcept nogil:
    """What was begun with parked_new(), before a watch has a partition."""
    parked.request.waiting_ns = 0
    live_add(LIVE_WATCHES, -parked.count)
    parked.count = 0
    parked.refs = 1
    parked_drop(parked)


cdef void _unhook(ParkedRequest** some, int count) noexcept nogil:
    # By the one who moved them to done: off every list, and the deadline list's references with it.
    cdef ParkedTable* table
    cdef int number
    cdef int i
    if count == 0:
        return
    for number in range(count):
        for i in range(some[number].count):
            _unlink(&some[number].watches[i])
    table = some[0].table
    lock_ranked(&table.lock, RANK_QUEUE)
    for number in range(count):
        _unlist_locked(table, some[number])
    unlock_ranked(&table.lock, RANK_QUEUE)
    for number in range(count):
        parked_drop(some[number])


cdef int parked_wait(HotWorker* worker, ParkedRequest* parked) noexcept nogil:
    """Links, lists and opens it. 0: there is enough, or it may not wait (any more); then it is off
    every list, and the caller's with the reference that it has."""
    cdef ParkedWatch* watch
    cdef int mine = 1
    cdef int i
    for i in range(parked.count):
        watch = &parked.watches[i]
        _link(watch)
        if (watch.waits_for == WAITS_FOR_BYTES and parked.isolation != TO_LOG_END
                and kb_load_int(&watch.partition.followers_lingering) > 0):
            note_advanced(worker, watch.partition)  # a consumer waits for their fetches
    if _open(worker, parked):
        # An event before this found it being built and left it: the sum has its bytes.
        mine = parked_has_enough(parked) and _fire(parked, COMPLETED)
    if not mine:
        parked_drop(parked)
        return 1
    if parked.request != NULL:
        parked.request.waiting_ns = 0
    _unhook(&parked, 1)
    return 0


cdef int parked_complete(ParkedRequest** some, int count) noexcept nogil:
    """Moves them to done and off every list, all of them with one look at the table.

    Returns how many this thread moved: these come to the front, and their requests are the
    caller's. The caller holds a reference to each of all, before and after.
    """
    cdef ParkedRequest* parked
    cdef int mine = 0
    cdef int i
    for i in range(count):
        parked = some[i]
        if _fire(parked, COMPLETED):
            some[i] = some[mine]
            some[mine] = parked
            mine += 1
    _unhook(some, mine)
    return mine
