# cython: language_level=3
"""The one bounded queue between the Processors and the request handlers.

Processors push what became complete in a turn; a handler takes runs. At most one handler is
*taking* at a time: it holds the role from the moment it is woken until it finds the queue empty or
meets a request that Python must answer (then it gives the role up first, so that no other
request waits for a slow one). While a handler takes, a push wakes none: that keeps the hand-offs
few.

    push:  queue; if no handler takes and one sleeps: pop the warmest sleeper, give it the role
    take:  queue empty -> give up the role, sleep on the own futex word, at most timeout

A run that waits at a slow file cannot give the role up: it is taken from it. A thread that finds
work in the queue and a run older than LONG_RUN_NS gives the role to a sleeper (a push; a Processor,
which looks again while something is queued) or takes it itself (a handler that comes back). A
relieved handler finishes its run and comes back without the role. The next relief needs the next
run to be old, so at most one handler is woken in LONG_RUN_NS, and none while runs are short. A
request that is known to be slow is set aside before it delays others: see _aside.

A long run is cheap while its work is quick. One that waits for the disk does so partition by
partition; all its answers leave together, so all its requests come back together: the others would
be idle for good. So for a while after such a run each handler takes its share of the queue.

Bounds: `queued.max.requests` counts frames, `queued.max.request.bytes` their bytes. A push takes
what fits and hands back the rest; its Processor keeps that with the connection, stops reading it
and is woken when there is room. A request alone larger than the byte bound is let in when the
queue is empty, or it could never pass. Lock: the channel's mutex, the last in the order; it is
never held across a system call but its own wake-ups.
"""

from libc.stdint cimport INT64_MAX, int16_t, int64_t
from libc.string cimport memset

from kbroker.core._atomics cimport kb_add_int, kb_load_i64, kb_load_int, kb_store_int
from kbroker.core._figures cimport kb_count
from kbroker.core._limits cimport (
    API_KEYS_MAX, API_VERSIONS_MAX, RUN_BYTES_MAX, RUN_REQUESTS_MAX)
from kbroker.core._list cimport list_append, list_remove
from kbroker.core._lock_order cimport RANK_QUEUE, kb_mutex_init, lock_ranked, unlock_ranked
from kbroker.core._require cimport require, require_count
from kbroker.core._sync cimport kb_futex_wait, kb_futex_wake, kb_now_ns
from kbroker.net._aside cimport (
    aside_add, aside_give_back, aside_has_turn, aside_next_file, aside_served, aside_hangs,
    aside_take)
from kbroker.net._in_python cimport (
    python_add, python_enter, python_is_full, python_leave, python_take)
from kbroker.net._request_queue cimport (
    queue_add_locked, queue_count_locked, queue_pop_locked, queue_unlink_locked)
from kbroker.net._served_time cimport served_locked, served_ns_locked, serving_locked
from kbroker.net._sleep cimport wake_processor
from kbroker.net._types cimport Handler, Request, RequestChannel

cdef enum:
    SHORT_RUNS = 64               # after one that waited for the disk
    LONG_RUN_NS = 1000000         # its handler waits somewhere: another one takes
    WOKEN_TO_TAKE = 1             # a handler's futex word: woken with the role, or a slow file
    WOKEN_TO_LEAVE = 2            # the channel closes
    WOKEN_BY_CALL = 3             # to come back with empty hands


cdef int request_channel_init(RequestChannel* channel) noexcept nogil:
    memset(channel, 0, sizeof(RequestChannel))
    memset(channel.flexible_from, -1, sizeof(channel.flexible_from))
    memset(channel.throttle_from, -1, sizeof(channel.throttle_from))
    return kb_mutex_init(&channel.lock)


cdef int api_is_hot(RequestChannel* channel, int16_t key, int16_t version) noexcept nogil:
    if not (0 <= key < API_KEYS_MAX and 0 <= version < API_VERSIONS_MAX):
        return 0
    return channel.hot[key][version]


cdef int request_is_hot(RequestChannel* channel, Request* request) noexcept nogil:
    return api_is_hot(channel, request.api_key, request.api_version)


cdef inline int _may_enter_locked(RequestChannel* channel) noexcept nogil:
    return not python_is_full(
        &channel.python, kb_load_int(&channel.handler_count),
        channel.aside.file_count - channel.aside.retired + channel.standing)


cdef inline int _elsewhere_locked(RequestChannel* channel) noexcept nogil:
    # Handlers that are neither at slow files nor free.
    return channel.python.handlers + channel.standing


cdef void* _next_file_locked(RequestChannel* channel) noexcept nogil:
    return aside_next_file(
        &channel.aside, kb_load_int(&channel.handler_count), _elsewhere_locked(channel),
        kb_now_ns())


cdef inline void _relieve_locked(RequestChannel* channel) noexcept nogil:
    # The taker, if there is one, waits for something.
    if channel.taker == NULL:
        return
    channel.relieved += 1
    if not channel.taker.retired:
        channel.taker.relieved = 1
        channel.standing += 1


cdef inline void _leave_to_python_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    # A request that has to wait for a handler in Python must not block the others.
    cdef Request* request = channel.head
    while request != NULL and not (request_is_hot(channel, request) or _may_enter_locked(channel)):
        serving_locked(channel, now_ns)
        queue_unlink_locked(channel, request)
        python_add(&channel.python, request, request)
        request = channel.head


cdef inline int _wants_taker_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    # Whether there is work without a taker, or whose taker waits somewhere.
    return channel.head != NULL and (
        channel.taker == NULL or now_ns - channel.run_since_ns > LONG_RUN_NS)


cdef inline void _is_back_locked(RequestChannel* channel, Handler* handler) noexcept nogil:
    if handler.relieved:
        handler.relieved = 0
        channel.standing = <int>require_count(
            channel.standing - 1, "queue: handlers that wait are counted")


cdef Handler* _pop_sleeper_locked(RequestChannel* channel) noexcept nogil:
    # Its word is written under the lock: a sleeper whose time runs out just now must see what it
    # was given, or that is lost.
    cdef Handler* handler = channel.sleepers
    require(handler.asleep, "request queue: who is woken sleeps", handler.asleep, 1)
    channel.sleepers = handler.below
    handler.asleep = 0
    kb_store_int(&handler.awake, WOKEN_TO_TAKE)
    return handler


cdef Handler* _give_role_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    # Who is to be woken.
    if channel.sleepers == NULL:
        return NULL
    _leave_to_python_locked(channel, now_ns)
    if not _wants_taker_locked(channel, now_ns):
        return NULL
    _relieve_locked(channel)
    channel.taker = _pop_sleeper_locked(channel)
    channel.run_since_ns = INT64_MAX  # waking it once more would not help
    return channel.taker


cdef void _goes_to_file_locked(
    RequestChannel* channel, Handler* handler, void* file,
) noexcept nogil:
    handler.slow_file = file
    if file != NULL:
        channel.aside.retired += handler.retired


cdef void _give_back_aside_locked(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    # What waits for a write that is over, and has no turn, is queued once more.
    cdef Request* last
    cdef Request* request = aside_give_back(
        &channel.aside, &last, kb_load_int(&channel.handler_count), _elsewhere_locked(channel),
        now_ns)
    if request == NULL:
        return
    queue_add_locked(channel, request, last)
    while request != NULL:
        queue_count_locked(channel, request, 1)
        request = request.next


cdef inline void _look_aside_locked(
    RequestChannel* channel, int in_any_case, int64_t now_ns,
) noexcept nogil:
    # A handler that comes back, or whose time is over, looks; and one that never sleeps.
    if channel.aside.head != NULL and (
        in_any_case or (channel.sleepers == NULL and channel.head != NULL)
    ):
        _give_back_aside_locked(channel, now_ns)


cdef Handler* _give_aside_locked(RequestChannel* channel) noexcept nogil:
    # The handler to be woken for requests that were set aside.
    cdef Handler* handler
    cdef void* file = NULL
    if channel.sleepers != NULL:
        file = _next_file_locked(channel)
    if file == NULL:
        return NULL
    handler = _pop_sleeper_locked(channel)
    _goes_to_file_locked(channel, handler, file)
    return handler


cdef void _wake(Handler* handler) noexcept nogil:
    if handler != NULL:
        kb_futex_wake(&handler.awake, 1)


cdef void _wake_processors(RequestChannel* channel) noexcept nogil:
    cdef int i
    for i in range(kb_load_int(&channel.processor_count)):
        wake_processor(channel.processors[i])


cdef Request* request_channel_push(
    RequestChannel* channel, Request* first, Request** last, int64_t now_ns,
) noexcept nogil:
    """Queues a list in its order; answers with the first that found no room (NULL: all went in).
    A request that was taken before and comes again has room. Below the bounds there is room for any
    request, a train and a large one too: else others' small ones would take each place that is
    free, and this Processor's connections would wait without an end."""
    cdef Request* request = first
    cdef Request* following
    cdef Handler* woken
    lock_ranked(&channel.lock, RANK_QUEUE)
    while request != NULL:
        if channel.count > 0 and request.guards == NULL and request.rights == NULL and (
            channel.count >= channel.count_max
            or (channel.bytes_max >= 0 and channel.bytes >= channel.bytes_max)
        ):
            channel.stalled = 1
            break
        following = request.next
        request.next = NULL
        queue_add_locked(channel, request, request)
        queue_count_locked(channel, request, 1)
        request = following
    if channel.count > channel.count_peak:
        channel.count_peak = channel.count
    woken = _give_role_locked(channel, now_ns)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)
    if request == NULL:
        last[0] = NULL
    return request


cdef int request_channel_waits(RequestChannel* channel) noexcept nogil:
    """Whether something is in the queue; without the lock."""
    return kb_load_i64(&channel.count) > 0


cdef int request_channel_sleeps(RequestChannel* channel) noexcept nogil:
    """Whether a push would wake a handler, and nothing is before it."""
    cdef int sleeps
    lock_ranked(&channel.lock, RANK_QUEUE)
    sleeps = channel.head == NULL and channel.taker == NULL and channel.sleepers != NULL
    unlock_ranked(&channel.lock, RANK_QUEUE)
    return sleeps


cdef void request_channel_look(RequestChannel* channel, int64_t now_ns) noexcept nogil:
    """As a push that brings nothing: requests queued after a run that waits get a taker."""
    cdef Handler* woken
    lock_ranked(&channel.lock, RANK_QUEUE)
    woken = _give_role_locked(channel, now_ns)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef int _run_max_locked(RequestChannel* channel) noexcept nogil:
    # How many requests a run may have: as many as there are, or this handler's share of them.
    cdef int left = kb_load_int(&channel.short_runs)
    cdef int handlers = kb_load_int(&channel.handler_count)
    if left == 0 or handlers == 0:
        return RUN_REQUESTS_MAX
    kb_store_int(&channel.short_runs, left - 1)
    return min(RUN_REQUESTS_MAX, 1 + <int>((channel.count - 1) // handlers))


cdef int _take_locked(
    RequestChannel* channel, Handler* handler, Request** run, int* count, int64_t now_ns,
) noexcept nogil:
    # A run of hot requests, or a single cold one, for which the role is given up.
    cdef Request* request = channel.head
    cdef Request* tail = NULL
    cdef int64_t bytes_taken = 0
    cdef int taken = 0
    cdef int most = _run_max_locked(channel)
    run[0] = NULL
    serving_locked(channel, now_ns)
    if not request_is_hot(channel, request):
        queue_pop_locked(channel, request)
        python_enter(&channel.python, handler)
        served_locked(channel, now_ns)
        request.dequeued_ns = now_ns
        run[0] = request
        count[0] = 1
        channel.taker = NULL
        return TAKE_COLD
    while request != NULL and taken < most and bytes_taken < RUN_BYTES_MAX:
        if not request_is_hot(channel, request):
            break
        bytes_taken += request.total_bytes
        taken += 1
        queue_pop_locked(channel, request)
        request.dequeued_ns = now_ns
        list_append(run, &tail, request, &request.next, "a run: nothing is after the last")
        request = channel.head
    count[0] = taken
    channel.taker = handler
    channel.run_since_ns = now_ns
    return TAKE_RUN


cdef int _take_aside_locked(
    RequestChannel* channel, Handler* handler, int takes, Request** run, int* count,
    int64_t now_ns,
) noexcept nogil:
    # Whether this handler has a run of requests set aside: it was woken for one, or has nothing
    # else to do, or no other could. Then it takes turns with the queue.
    if handler.slow_file == NULL and channel.aside.head != NULL and (
        not takes
        or (channel.sleepers == NULL and not handler.was_aside
            and aside_hangs(&channel.aside, now_ns))
    ):
        _goes_to_file_locked(channel, handler, _next_file_locked(channel))
    handler.was_aside = handler.slow_file != NULL
    if handler.slow_file == NULL:
        return 0
    count[0] = aside_take(&channel.aside, handler.slow_file, run, RUN_REQUESTS_MAX, RUN_BYTES_MAX)
    require(count[0] > 0, "set aside: who is sent to a file has requests there", count[0], 1)
    return 1


cdef int _take_waiting_locked(
    RequestChannel* channel, Handler* handler, Request** run, int* count, int64_t now_ns,
) noexcept nogil:
    # Whether this handler has requests that waited for Python. Not one that was woken for a slow
    # file: no other serves that.
    if (handler.slow_file != NULL or channel.python.head == NULL
            or not _may_enter_locked(channel)):
        return 0
    run[0] = python_take(&channel.python)
    count[0] = 1
    queue_count_locked(channel, run[0], -1)
    python_enter(&channel.python, handler)
    if run[0].dequeued_ns == 0:
        run[0].dequeued_ns = now_ns
    if channel.taker == NULL and channel.head == NULL:
        served_locked(channel, now_ns)
    return 1


cdef int request_channel_take(
    RequestChannel* channel, Handler* handler, int had_role, int64_t timeout_ns,
    Request** run, int* count,
) noexcept nogil:
    """Waits for work. `had_role`: the caller kept the role of taker from its last run."""
    cdef int64_t now_ns = kb_now_ns()
    cdef int64_t deadline_ns = now_ns + timeout_ns
    cdef int64_t slept_ns
    cdef int64_t served_ns
    cdef int status, takes, waited, room, was_away
    cdef Handler* woken
    lock_ranked(&channel.lock, RANK_QUEUE)
    was_away = handler.relieved or handler.in_python
    python_leave(&channel.python, handler)
    _is_back_locked(channel, handler)
    if had_role and channel.taker == handler:
        channel.taker = NULL
        if channel.head == NULL:
            served_locked(channel, now_ns)
    while True:
        _look_aside_locked(channel, was_away or now_ns >= deadline_ns, now_ns)
        was_away = 0
        _leave_to_python_locked(channel, now_ns)
        takes = _wants_taker_locked(channel, now_ns)
        waited = _take_waiting_locked(channel, handler, run, count, now_ns)
        if not waited and _take_aside_locked(channel, handler, takes, run, count, now_ns):
            unlock_ranked(&channel.lock, RANK_QUEUE)
            return TAKE_ASIDE
        if waited or takes:
            status = TAKE_COLD
            if not waited:
                _relieve_locked(channel)
                status = _take_locked(channel, handler, run, count, now_ns)
            room = channel.stalled
            channel.stalled = 0
            woken = _give_role_locked(channel, now_ns)
            unlock_ranked(&channel.lock, RANK_QUEUE)
            _wake(woken)
            if room:
                _wake_processors(channel)
            return status
        if channel.closed:
            unlock_ranked(&channel.lock, RANK_QUEUE)
            return TAKE_CLOSED
        if channel.called or now_ns >= deadline_ns:
            channel.called = 0
            unlock_ranked(&channel.lock, RANK_QUEUE)
            return TAKE_IDLE
        kb_store_int(&handler.awake, 0)
        handler.asleep = 1
        handler.below = channel.sleepers
        channel.sleepers = handler
        slept_ns = now_ns
        served_ns = served_ns_locked(channel, now_ns)
        unlock_ranked(&channel.lock, RANK_QUEUE)
        if kb_load_int(&handler.awake) == 0:
            kb_futex_wait(&handler.awake, 0, deadline_ns - now_ns)
        now_ns = kb_now_ns()
        lock_ranked(&channel.lock, RANK_QUEUE)
        if channel.head != NULL:
            serving_locked(channel, now_ns)
        served_ns = served_ns_locked(channel, now_ns) - served_ns
        if now_ns - slept_ns > served_ns:
            kb_count(&handler.idle_ns, now_ns - slept_ns - served_ns)
        if handler.asleep:
            _leave_stack_locked(channel, handler)
        elif channel.taker == handler:
            channel.taker = NULL  # the role came with the wake-up; taken again above


cdef void _leave_stack_locked(RequestChannel* channel, Handler* handler) noexcept nogil:
    # This handler was not popped: a timeout or a signal.
    list_remove(&channel.sleepers, handler, &handler.below,
                "request queue: a handler that sleeps is among the sleepers")
    handler.asleep = 0


cdef void request_channel_yield(RequestChannel* channel, Handler* handler) noexcept nogil:
    """The taker goes off to something slow: a sleeper may take the queued requests."""
    cdef Handler* woken = NULL
    cdef int64_t now_ns = kb_now_ns()
    lock_ranked(&channel.lock, RANK_QUEUE)
    if channel.taker == handler:  # and has not been relieved
        channel.taker = NULL
        served_locked(channel, now_ns)
        woken = _give_role_locked(channel, now_ns)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef void _leave_run_to_python_locked(
    RequestChannel* channel, Request** first, Request** last,
) noexcept nogil:
    # What a run has left for Python waits, and is no longer its handler's.
    cdef Request* request = first[0]
    while request != NULL:
        queue_count_locked(channel, request, 1)
        request = request.next
    python_add(&channel.python, first[0], last[0])
    first[0] = NULL
    last[0] = NULL


cdef int request_channel_enter_python(
    RequestChannel* channel, Handler* handler, int in_any_case, Request** first, Request** last,
) noexcept nogil:
    """Whether the caller goes to Python with the rest of its run; else that waits, and is no longer
    the caller's."""
    cdef int enters
    lock_ranked(&channel.lock, RANK_QUEUE)
    enters = in_any_case or _may_enter_locked(channel)
    _is_back_locked(channel, handler)
    if enters:
        python_enter(&channel.python, handler)
    else:
        _leave_run_to_python_locked(channel, first, last)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    return enters


cdef void request_channel_give_to_python(
    RequestChannel* channel, Request** first, Request** last,
) noexcept nogil:
    """For a handler that has something slow to do first: the requests that its run has left for
    Python wait for the next handler, which may be a sleeper."""
    cdef Handler* woken = NULL
    lock_ranked(&channel.lock, RANK_QUEUE)
    _leave_run_to_python_locked(channel, first, last)
    if channel.sleepers != NULL and _may_enter_locked(channel):
        woken = _pop_sleeper_locked(channel)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef void request_channel_add_handler(RequestChannel* channel, Handler* handler) noexcept nogil:
    """It counts from now on: a new one, or one whose thread has left since it was retired."""
    lock_ranked(&channel.lock, RANK_QUEUE)
    handler.retired = 0
    kb_add_int(&channel.handler_count, 1)
    unlock_ranked(&channel.lock, RANK_QUEUE)


cdef void request_channel_retire(RequestChannel* channel, Handler* handler) noexcept nogil:
    """It counts no more. It will not take again, and may be at a file, in a run or in Python for
    good: what waits for its place there has it."""
    cdef Handler* woken = NULL
    lock_ranked(&channel.lock, RANK_QUEUE)
    kb_add_int(&channel.handler_count, -1)
    handler.retired = 1
    if handler.slow_file != NULL:
        channel.aside.retired += 1
    python_leave(&channel.python, handler)
    _is_back_locked(channel, handler)
    woken = _give_aside_locked(channel)
    if woken == NULL and channel.python.head != NULL and channel.sleepers != NULL:
        woken = _pop_sleeper_locked(channel)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef void request_channel_left(RequestChannel* channel) noexcept nogil:
    """A handler that was retired is back from its run, and leaves."""
    cdef Handler* woken
    cdef int64_t now_ns = kb_now_ns()
    lock_ranked(&channel.lock, RANK_QUEUE)
    _give_back_aside_locked(channel, now_ns)
    woken = _give_role_locked(channel, now_ns)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef int request_channel_is_held(RequestChannel* channel, Handler* handler) noexcept nogil:
    """Whether it is at a slow file, or in a run that takes long."""
    cdef int held
    lock_ranked(&channel.lock, RANK_QUEUE)
    held = handler.slow_file != NULL or handler.relieved
    unlock_ranked(&channel.lock, RANK_QUEUE)
    return held


cdef int request_channel_set_aside(
    RequestChannel* channel, Request* request, void* slow_file, int64_t* late_from_ns, int waits,
) noexcept nogil:
    """Leaves a request to the handler that serves that file. 0: no room, the caller does it.

    `late_from_ns`: of the data directory, for a write. `waits`: something does at that file or in
    that directory. Otherwise it was slow of late, no more, and is not to wait for files at which
    something may wait for good.
    """
    cdef Handler* woken = NULL
    cdef int added = 0
    lock_ranked(&channel.lock, RANK_QUEUE)
    if not channel.closed and (waits or aside_has_turn(
            &channel.aside, slow_file, kb_load_int(&channel.handler_count),
            _elsewhere_locked(channel))):
        added = aside_add(&channel.aside, request, slow_file, late_from_ns, channel.count_max)
        woken = _give_aside_locked(channel)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)
    return added


cdef void request_channel_served_aside(
    RequestChannel* channel, Handler* handler,
) noexcept nogil:
    """The run is done: the next file, or more of this one, may be served."""
    cdef Handler* woken
    lock_ranked(&channel.lock, RANK_QUEUE)
    aside_served(&channel.aside, handler.slow_file)
    handler.slow_file = NULL
    channel.aside.retired -= handler.retired
    woken = _give_aside_locked(channel)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(woken)


cdef void request_channel_shorten_runs(RequestChannel* channel) noexcept nogil:
    """The caller waits for the disk: what is queued next is divided among the handlers."""
    kb_store_int(&channel.short_runs, SHORT_RUNS)


cdef void request_channel_call(RequestChannel* channel) noexcept nogil:
    """Has one handler come back from `take` with TAKE_IDLE: a sleeper, or the next that would be.

    For work that is no request: the caller has put it where handlers look between two runs.
    """
    cdef Handler* handler
    lock_ranked(&channel.lock, RANK_QUEUE)
    channel.called = 1
    handler = channel.sleepers
    if handler != NULL:
        channel.sleepers = handler.below
        handler.asleep = 0
        kb_store_int(&handler.awake, WOKEN_BY_CALL)
    unlock_ranked(&channel.lock, RANK_QUEUE)
    _wake(handler)


cdef void request_channel_close(RequestChannel* channel) noexcept nogil:
    """Nothing more will be queued; sleepers wake and leave once the queue is empty."""
    cdef Handler* handler
    cdef Handler* below
    lock_ranked(&channel.lock, RANK_QUEUE)
    channel.closed = 1
    handler = channel.sleepers
    channel.sleepers = NULL
    while handler != NULL:
        below = handler.below
        handler.asleep = 0
        kb_store_int(&handler.awake, WOKEN_TO_LEAVE)
        kb_futex_wake(&handler.awake, 1)
        handler = below
    unlock_ranked(&channel.lock, RANK_QUEUE)
