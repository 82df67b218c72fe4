# cython: language_level=3
"""A network thread: one epoll set and every connection in it, without the GIL from start to end.

    while running:
        configure new connections -> process answers -> poll -> process events
        -> process channels that are ready without an event -> hand requests over -> shake hands
        -> close the idle

Others reach it through two things under its lock: the ring of new connections (20, as in Kafka) and
the list of answers, which needs no bound since every answer is a request that was counted when it
came in. The eventfd is written only when the thread sleeps. The requests of one round go
to the request queue in one push: that is where runs come from.

A wake-up costs more than a short answer. So the thread lends its **turn** while it sleeps: it is a
lock that it holds but for epoll_wait, and who holds it is the thread, for its channels and for all
else that is its own. A handler with short answers takes the turn if it is free, sends them, unmutes
their channels, and lets the thread sleep on. It reads nothing and hands nothing over: where more is
to be done than to answer, the thread is woken as ever.

Stopping: `stopping` says how (`_ending`). The struct of one that was taken away stays, with its
figures, and may get another thread.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport close, read

from kbroker.core._atomics cimport kb_cas_int, kb_load_int, kb_load_ptr, kb_store_i64, kb_store_int
from kbroker.core._figures cimport kb_count
from kbroker.core._list cimport list_append, list_append_all
from kbroker.core._live_objects cimport LIVE_CHUNKS, live_add
from kbroker.core._lock_order cimport (
    RANK_QUEUE, RANK_TURN, kb_mutex_init, lock_ranked, try_lock_ranked, unlock_ranked)
from kbroker.core._require cimport require, require_same
from kbroker.core._sync cimport (
    kb_now_ns, pthread_create, pthread_join, pthread_mutex_destroy, pthread_setname_np)
from kbroker.net._blocks cimport blocks_free
from kbroker.net._channel cimport (
    channel_answer, channel_close, channel_end_throttles, channel_has_work, channel_local_processed,
    channel_on_readable, channel_on_writable, channel_open, channel_received,
    channel_turn)
from kbroker.net._ending cimport (
    close_crowding, close_idle, close_opening, close_unread, has_idle, has_stopped, reap_closed)
from kbroker.net._frames cimport FRAMES_REFUSED, frames_compact
from kbroker.net._processor_lists cimport channel_make_ready
from kbroker.net._request cimport chunk_release
from kbroker.net._request_channel cimport (
    request_channel_look, request_channel_push, request_channel_sleeps, request_is_hot,
    request_channel_waits)
from kbroker.net._request_times cimport request_times_free
from kbroker.net._shaking cimport shake_hands
from kbroker.net._sleep cimport ASLEEP, AWAKE, LENT, interrupt_sleep, wake_processor
from kbroker.net._throttle cimport throttle_sleep_ms
from kbroker.net._unsent cimport unsent_are_too_many
from kbroker.net._types cimport (
    NEW_CONNECTIONS_MAX, STOP_AT_ONCE, STOP_SEND, STOP_RETIRE, Channel, NetworkSettings,
    NewConnection, Processor, Request, RequestChannel, RequestList)
from kbroker.net._unsent cimport unsent_are_too_many

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* text, size_t size, const char* format, ...)

cdef extern from "socket_io.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_wait(int epoll_fd, epoll_event* events, int count, int timeout_ms)
    int eventfd(unsigned int initial, int flags)
    int kb_epoll_add_level(int epoll_fd, int fd, void* data)
    enum: EPOLLIN
    enum: EPOLLOUT
    enum: EPOLLRDHUP
    enum: EPOLLERR
    enum: EPOLLHUP
    enum: EPOLL_CLOEXEC
    enum: EFD_NONBLOCK
    enum: EFD_CLOEXEC

cdef enum:
    EVENTS_MAX = 256
    POLL_MS = 300
    STOPPING_POLL_MS = 10
    LOOK_MS = 10                  # at requests queued after a run: no timer before a tick
    LOOK_NS = 10000000
    COMPACT_NS = 1000000000
    AT_ONCE_MAX = 8               # requests of a turn; more of them are worth waking a handler


cdef Processor* processor_new(
    int index, NetworkSettings* settings, RequestChannel* channel,
) noexcept nogil:
    """NULL when the kernel gives no epoll or eventfd."""
    cdef Processor* processor = <Processor*>calloc(1, sizeof(Processor))
    if processor == NULL:
        return NULL
    processor.index = index
    processor.settings = settings
    processor.request_channel = channel
    kb_mutex_init(&processor.turn)
    kb_mutex_init(&processor.lock)
    processor.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    processor.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if (
        processor.epoll_fd < 0
        or processor.event_fd < 0
        or kb_epoll_add_level(processor.epoll_fd, processor.event_fd, NULL) != 0
    ):
        processor_free(processor)
        return NULL
    return processor


cdef int processor_start(Processor* processor) noexcept nogil:
    cdef char name[16]
    kb_store_i64(&processor.started_ns, kb_now_ns())
    if pthread_create(&processor.thread, NULL, _main, processor) != 0:
        return -1
    processor.started = 1
    # 15 bytes of the full name, kafka-network-thread-N, which logs and metrics carry.
    snprintf(name, sizeof(name), "network-%d", processor.index)
    pthread_setname_np(processor.thread, name)
    return 0


cdef void processor_stop(Processor* processor, int at_once) noexcept nogil:
    """Asks the thread to end: all of them, before the first is waited for."""
    kb_store_int(&processor.stopping, STOP_AT_ONCE if at_once else STOP_SEND)
    wake_processor(processor)


cdef void processor_join(Processor* processor) noexcept nogil:
    """Waits for a thread that was asked to end; call it without the GIL."""
    if processor.started:
        pthread_join(processor.thread, NULL)
        processor.started = 0


cdef void processor_retire(Processor* processor) noexcept nogil:
    """Has the thread end by itself, once its connections are closed. See the head of this file."""
    kb_store_int(&processor.stopping, STOP_RETIRE)
    if not processor.started:
        kb_store_int(&processor.ended, 1)
    wake_processor(processor)


cdef int processor_is_serving(Processor* processor) noexcept nogil:
    """Whether it takes connections."""
    return kb_load_int(&processor.stopping) == 0


cdef int processor_has_retired(Processor* processor) noexcept nogil:
    """Whether it could be started again."""
    return (
        kb_load_int(&processor.stopping) == STOP_RETIRE and kb_load_int(&processor.ended)
    )


cdef int processor_start_again(Processor* processor) noexcept nogil:
    """Another thread for one that has retired; -1: there is none to be had."""
    if processor.started:
        pthread_join(processor.thread, NULL)
        processor.started = 0
        kb_count(&processor.served_ns, kb_now_ns() - processor.started_ns)
    kb_store_int(&processor.ended, 0)
    kb_store_int(&processor.stopping, 0)
    if processor_start(processor) != 0:
        # What an acceptor has offered meanwhile waits for the next one who tries.
        processor_retire(processor)
        return -1
    return 0


cdef void processor_free(Processor* processor) noexcept nogil:
    """After the thread has ended. One with requests still lent is left: they will come back."""
    cdef Request* request
    if processor == NULL or processor.abandoned:
        return
    while processor.free_requests != NULL:
        request = processor.free_requests
        processor.free_requests = request.next
        free(request)
    if processor.shared != NULL:
        live_add(LIVE_CHUNKS, 1)
        chunk_release(processor.shared)
    request_times_free(processor)
    blocks_free(processor)
    free(processor.copies)
    free(processor.opening)
    if processor.epoll_fd >= 0:
        close(processor.epoll_fd)
    if processor.event_fd >= 0:
        close(processor.event_fd)
    pthread_mutex_destroy(&processor.turn)
    pthread_mutex_destroy(&processor.lock)
    free(processor)


# --- from other threads ------------------------------------------------------------------------

cdef int processor_offer(Processor* processor, NewConnection* connection) noexcept nogil:
    """-1: its ring of new connections is full, or it is stopping."""
    cdef int status = -1
    lock_ranked(&processor.lock, RANK_QUEUE)
    if processor.new_count < NEW_CONNECTIONS_MAX and not kb_load_int(&processor.stopping):
        processor.new_connections[processor.new_count] = connection[0]
        processor.new_count += 1
        status = 0
    unlock_ranked(&processor.lock, RANK_QUEUE)
    if status == 0:
        wake_processor(processor)
    return status


cdef void processor_push(
    Processor* processor, RequestList answered, RequestList local, int are_short
) noexcept nogil:
    """Requests that come back with their answers, and those that are locally processed, whose
    answers come later; by `next` and by `local_next`, and either may be empty. It is notified
    by one of the two functions below."""
    lock_ranked(&processor.lock, RANK_QUEUE)
    if answered.head != NULL:
        list_append_all(&processor.answers_head, &processor.answers_tail, answered.head,
                        answered.tail, &answered.tail.next, "answers: nothing is after the last")
    if local.head != NULL:
        local.tail.local_next = processor.local_head
        processor.local_head = local.head
    if not are_short:
        processor.has_long_answers = 1
    unlock_ranked(&processor.lock, RANK_QUEUE)


cdef void processor_notify(Processor* processor) noexcept nogil:
    """For callers that may hold a lock, or have more to do than to send."""
    wake_processor(processor)


cdef void processor_notify_or_answer(Processor* processor) noexcept nogil:
    """Sends what was pushed in the Processor's turn, if it sleeps. The caller holds no lock."""
    cdef int64_t since_ns
    cdef int has_more
    if not kb_cas_int(&processor.sleeping, ASLEEP, LENT):
        return
    if not try_lock_ranked(&processor.turn, RANK_TURN):
        interrupt_sleep(processor)    # the thread goes to sleep just now, or another lets go
        return
    kb_count(&processor.turns_lent, 1)
    since_ns = kb_now_ns()
    _process_answers(processor, 1)
    _leave_idle_channels(processor)
    processor.lent_ns += kb_now_ns() - since_ns
    # As before every sleep: who comes from here on finds it asleep, who came before is seen.
    kb_cas_int(&processor.sleeping, LENT, ASLEEP)
    has_more = (
        processor.ready_head != NULL
        or processor.batch_head != NULL
        or processor.closed_head != processor.closed_before_sleep
        or processor.throttled != processor.throttled_before_sleep
        or kb_load_int(&processor.stopping)
        or unsent_are_too_many(processor.settings)
        or _something_waits(processor)
    )
    unlock_ranked(&processor.turn, RANK_TURN)
    if has_more:
        wake_processor(processor)


cdef void _leave_idle_channels(Processor* processor) noexcept nogil:
    # Of those that were answered, the ones of which nothing has come yet: epoll will tell.
    cdef Channel* channel = processor.ready_head
    cdef Channel* following
    processor.ready_head = NULL
    processor.ready_tail = NULL
    while channel != NULL:
        following = channel.next_ready
        channel.ready = 0
        if channel_has_work(channel):
            channel_make_ready(channel)
        channel = following


# --- the thread --------------------------------------------------------------------------------

cdef void _configure_new_connections(Processor* processor) noexcept nogil:
    cdef NewConnection taken[NEW_CONNECTIONS_MAX]
    cdef Channel* channel
    cdef int count
    cdef int i
    lock_ranked(&processor.lock, RANK_QUEUE)
    count = processor.new_count
    require(0 <= count <= NEW_CONNECTIONS_MAX, "new connections: no more than the ring has",
            count, NEW_CONNECTIONS_MAX)
    for i in range(count):
        taken[i] = processor.new_connections[i]
    processor.new_count = 0
    unlock_ranked(&processor.lock, RANK_QUEUE)
    for i in range(count):
        channel = channel_open(processor, &taken[i])
        if channel != NULL:
            close_crowding(processor, channel)
            channel_on_readable(channel, 0)


cdef void _process_answers(Processor* processor, int only_short) noexcept nogil:
    cdef Request* request
    cdef Request* local
    cdef Request* following
    lock_ranked(&processor.lock, RANK_QUEUE)
    if only_short and processor.has_long_answers:
        unlock_ranked(&processor.lock, RANK_QUEUE)
        return
    processor.has_long_answers = 0
    request = processor.answers_head
    local = processor.local_head
    processor.answers_head = NULL
    processor.answers_tail = NULL
    processor.local_head = NULL
    unlock_ranked(&processor.lock, RANK_QUEUE)
    if request != NULL or local != NULL:
        processor.now_ns = kb_now_ns()
    # Local ones first: an answer must find its slot. At most one of a channel is in the list.
    while local != NULL:
        following = local.local_next
        require_same(local.processor, processor, "answers: a wait is notified to its own Processor")
        channel_local_processed(local.channel, local)
        local = following
    while request != NULL:
        following = request.next
        require_same(request.processor, processor, "answers: each is for its own Processor")
        request.picked_ns = processor.now_ns
        channel_answer(request.channel, request)
        request = following


cdef void _hand_over(Processor* processor) noexcept nogil:
    # The turn's requests to the queue; what finds no room stays at the front of the batch.
    cdef Request* request = processor.batch_head
    cdef Request* rest
    cdef Request* last = NULL
    cdef Request* mark
    if request == NULL:
        return
    if _may_serve_at_once(processor):
        _serve_at_once(processor)
        request = processor.batch_head
        if request == NULL:
            return
    # REQUEST_RECEIVED is raised after the enqueue, but a handler may answer before this thread
    # goes on: the answer only queues up, so the order of events per channel holds. `next` is the
    # queue's from the push on, so the channels are noted through their stalled pointers.
    mark = processor.batch_tail
    _note_channels(processor)
    rest = request_channel_push(processor.request_channel, request, &last, processor.now_ns)
    processor.looked_ns = processor.now_ns
    processor.batch_head = rest
    processor.batch_tail = mark if rest != NULL else NULL
    _raise_received(processor, rest)


cdef int _may_serve_at_once(Processor* processor) noexcept nogil:
    # A few requests that need no handler, and none is awake: waking it would cost more than to
    # serve them here, and no other thread could do so faster.
    cdef RequestChannel* request_channel = processor.request_channel
    cdef Request* request = processor.batch_head
    cdef int count = 0
    if kb_load_ptr(<void**>&request_channel.serve_at_once) == NULL:
        return 0
    while request != NULL:
        count += 1
        if (
            count > AT_ONCE_MAX
            or not request_is_hot(request_channel, request)
            or not request_channel.at_once[request.api_key]
        ):
            return 0
        request = request.next
    return request_channel_sleeps(request_channel)


cdef void _serve_at_once(Processor* processor) noexcept nogil:
    # What is given back stays in the batch, in its order. An answer comes as a handler's would.
    cdef RequestChannel* request_channel = processor.request_channel
    cdef Request* request = processor.batch_head
    cdef Request* following
    cdef Channel* channel
    processor.batch_head = NULL
    processor.batch_tail = NULL
    while request != NULL:
        following = request.next
        request.next = NULL
        channel = request.channel
        request.dequeued_ns = processor.now_ns
        if request_channel.serve_at_once(request_channel.hot_context, processor, request):
            channel_received(channel, request)
        else:
            list_append(&processor.batch_head, &processor.batch_tail, request, &request.next,
                        "given back at once: nothing is after the last")
        request = following


cdef void _note_channels(Processor* processor) noexcept nogil:
    cdef Request* request = processor.batch_head
    processor.noted_head = NULL
    processor.noted_tail = NULL
    while request != NULL:
        list_append(&processor.noted_head, &processor.noted_tail, request.channel,
                    &request.channel.next_noted, "noted channels: nothing is after the last")
        request = request.next


cdef void _raise_received(Processor* processor, Request* rest) noexcept nogil:
    cdef Channel* channel = processor.noted_head
    cdef Channel* following
    while channel != NULL:
        if rest != NULL and channel == rest.channel:
            break
        following = channel.next_noted
        channel_received(channel, channel.stalled)
        channel = following
    processor.noted_head = NULL
    processor.noted_tail = NULL


cdef void _process_ready(Processor* processor) noexcept nogil:
    # Channels with something to do that no event will announce: one turn each.
    cdef Channel* channel = processor.ready_head
    cdef Channel* following
    processor.ready_head = NULL
    processor.ready_tail = NULL
    while channel != NULL:
        following = channel.next_ready
        require(channel.ready, "ready channels: each of them is one", channel.ready, 1)
        channel.ready = 0
        if not channel.closed:
            channel_turn(channel)
        channel = following


cdef void _process_events(Processor* processor, epoll_event* events, int count) noexcept nogil:
    cdef Channel* channel
    cdef uint64_t drained
    cdef int i
    for i in range(count):
        channel = <Channel*>events[i].data.ptr
        if channel == NULL:
            read(processor.event_fd, &drained, 8)
            continue
        if channel.closed:
            continue
        if events[i].events & EPOLLERR:
            channel_close(channel)
            continue
        if events[i].events & EPOLLOUT:
            channel_on_writable(channel)
        if not channel.closed and events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP):
            channel_on_readable(channel, events[i].events & (EPOLLRDHUP | EPOLLHUP))


cdef void _compact(Processor* processor) noexcept nogil:
    # Once a second: what slow peers have sent of a frame leaves the shared chunks, and those that
    # do not open are closed.
    cdef Channel* channel
    cdef Channel* following
    if processor.now_ns - processor.compacted_ns < <int64_t>COMPACT_NS:
        return
    processor.compacted_ns = processor.now_ns
    close_opening(processor)
    channel = processor.oldest
    while channel != NULL and processor.now_ns - channel.last_active_ns > <int64_t>COMPACT_NS:
        following = channel.newer
        if frames_compact(channel) == FRAMES_REFUSED:
            channel_close(channel)
        channel = following


cdef int _something_waits(Processor* processor) noexcept nogil:
    cdef int waits
    lock_ranked(&processor.lock, RANK_QUEUE)
    waits = (processor.answers_head != NULL or processor.local_head != NULL
             or processor.new_count > 0)
    unlock_ranked(&processor.lock, RANK_QUEUE)
    return waits


cdef int _looks(Processor* processor) noexcept nogil:
    # Whether requests that this Processor pushed may still be in the queue. If so it does not sleep
    # long: without a push, no other thread would see that the taker waits at a slow file.
    if processor.looked_ns != 0 and not request_channel_waits(processor.request_channel):
        processor.looked_ns = 0
    return processor.looked_ns != 0


cdef void _look(Processor* processor) noexcept nogil:
    if processor.looked_ns != 0 and processor.now_ns - processor.looked_ns > <int64_t>LOOK_NS:
        processor.looked_ns = processor.now_ns
        request_channel_look(processor.request_channel, processor.now_ns)


cdef int _poll(Processor* processor, epoll_event* events) noexcept nogil:
    cdef int timeout_ms = POLL_MS
    cdef int count
    cdef int64_t before_ns
    cdef int64_t slept_ns
    if processor.ready_head != NULL or processor.shaking != NULL:
        timeout_ms = 0
    else:
        kb_store_int(&processor.sleeping, ASLEEP)
        if _something_waits(processor):
            timeout_ms = 0
        elif kb_load_int(&processor.stopping):
            timeout_ms = STOPPING_POLL_MS
        elif processor.batch_head != NULL:
            timeout_ms = 1        # the queue was full; its wake-up may have come too early
        elif _looks(processor):
            timeout_ms = LOOK_MS
    if processor.throttled != NULL:
        timeout_ms = throttle_sleep_ms(processor, timeout_ms)
    processor.closed_before_sleep = processor.closed_head
    processor.throttled_before_sleep = processor.throttled
    processor.lent_ns = 0
    before_ns = kb_now_ns()
    unlock_ranked(&processor.turn, RANK_TURN)
    count = epoll_wait(processor.epoll_fd, events, EVENTS_MAX, timeout_ms)
    kb_store_int(&processor.sleeping, AWAKE)  # before it waits: no handler takes another turn
    slept_ns = kb_now_ns() - before_ns
    kb_count(&processor.turns, 1)
    lock_ranked(&processor.turn, RANK_TURN)
    processor.now_ns = kb_now_ns()
    if timeout_ms > 0 and processor.batch_head == NULL:  # not while the queue is full
        kb_count(&processor.idle_ns, max(slept_ns - processor.lent_ns, <int64_t>0))
    return count


cdef void* _main(void* argument) noexcept nogil:
    cdef Processor* processor = <Processor*>argument
    cdef epoll_event events[EVENTS_MAX]
    cdef int count
    cdef int64_t drain_until_ns = 0
    lock_ranked(&processor.turn, RANK_TURN)
    processor.now_ns = kb_now_ns()
    while True:
        _configure_new_connections(processor)
        _process_answers(processor, 0)
        if unsent_are_too_many(processor.settings):
            close_unread(processor)
        if processor.throttled != NULL:
            channel_end_throttles(processor)
        _process_ready(processor)
        _hand_over(processor)
        if kb_load_int(&processor.stopping) and has_stopped(processor, &drain_until_ns):
            break
        count = _poll(processor, events)
        if count > 0:
            _process_events(processor, events, count)
        _hand_over(processor)
        if processor.shaking != NULL:
            shake_hands(processor)
        _look(processor)
        if processor.closed_head != NULL:
            reap_closed(processor)
        if has_idle(processor):
            close_idle(processor)
        _compact(processor)
    unlock_ranked(&processor.turn, RANK_TURN)
    kb_store_i64(&processor.unread_since_ns, 0)  # it closes no connection any more: close_unread
    kb_store_int(&processor.ended, 1)
    return NULL
