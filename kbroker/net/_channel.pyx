# cython: language_level=3
"""One connection: frames out of its socket, answers back in request order.

Every function runs in the turn of the Processor that owns the channel, nearly always on its thread,
without the GIL and without another lock. The socket is edge-triggered: `readable` and `writable`
remember what epoll said until the socket itself says EAGAIN, so that muting costs no system call.

    channel_turn     reads once (fairness: one recv, one train a turn), takes the next frames
    channel_received the queue has them: REQUEST_RECEIVED
    channel_answer   an answer came back: FIFO, send at once, RESPONSE_SENT, unmute, turn again

A muted channel is not read: bytes after a frame stay where they are (`_frames`). A wrong frame or
an illegal event closes this one channel; its requests in service come back later and are dropped.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport close

from kbroker._state cimport (
    AUTHENTICATING, AUTHENTICATION_COMPLETE, FRAME_COMPLETE, HANDSHAKE_COMPLETE, HANDSHAKING,
    MACHINE_PIPELINED, MACHINE_STOCK, MUTED, NOT_MUTED, REQCACHED_AND_RESPONSE_PENDING,
    REQUEST_LOCAL_PROCESSED, REQUEST_RECEIVED, RESPONSE_SENT, RESPONSE_SENT_LAST, SLOT_OK, UNMUTE,
    THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING, THROTTLE_ENDED, THROTTLE_STARTED, Slot,
    channel_next, channel_readable, slots_count, slots_discard, slots_fill, slots_head_ready,
    slots_init, slots_pop, slots_push, slots_release)
from kbroker.core._figures cimport kb_count
from kbroker.core._list cimport list_append, list_remove_first
from kbroker.core._live_objects cimport LIVE_CONNECTIONS, live_add
from kbroker.core._require cimport OF_CONNECTION, require, require_failed, require_same
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._cached cimport cached_bytes, may_cache, note_cached
from kbroker.net._frames cimport (
    FRAMES_BAD, FRAMES_ENDED, FRAMES_GOT, FRAMES_NONE, frames_bad_cause, frames_bound, frames_drop,
    frames_next, frames_peer_name, frames_receive)
from kbroker.net._leaving cimport note_all_came_back, report_left
from kbroker.net._muted_waits cimport note_waited, note_waits
from kbroker.net._opening cimport (
    channel_is_opening, opening_add, opening_gives_back, opening_make_room, opening_remove)
from kbroker.net._processor_lists cimport (
    channel_make_ready, channel_note_step, channel_shake_soon, listener_opens, note_active,
    remove_recent, remove_shaking)
from kbroker.net._quotas cimport quota_release
from kbroker.net._request cimport chunk_release, request_free
from kbroker.net._request_times cimport request_note_sent
from kbroker.net._required cimport answer_is_whole, channel_requires
from kbroker.net._send cimport (
    SEND_BLOCKED, SEND_DONE, SEND_READS, send_piece, send_read_ahead_done, send_some)
from kbroker.net._channel_client cimport channel_drop_client
from kbroker.net._sessions cimport session_count, session_drop, session_take
from kbroker.net._state_times cimport state_times_begin, state_times_enter, state_times_use
from kbroker.net._throttle cimport throttle_over, throttle_until
from kbroker.net._transport cimport transport_close, transport_end, transport_wants
from kbroker.net._types cimport (
    ACTION_CLOSE, ACTION_OPEN, CAUSE_HANDSHAKE, CAUSE_NO_MEMORY, CAUSE_NOT_TAKEN, CAUSE_STATE, LEFT,
    LEFT_SENDING, PEER_ENDED, READ_AHEAD, SHAKES_SOON, TRANSPORT_ANSWERED, TRANSPORT_DONE,
    TRANSPORT_FAILED, Channel, Listener, NewConnection, Processor, Request)
from kbroker.net._unsent cimport (
    unsent_add, unsent_add_queued, unsent_may_read, unsent_remove, unsent_remove_all)

cdef extern from "socket_io.h" nogil:
    void kb_addresses(int fd, uint8_t* local, unsigned short* local_port, uint8_t* peer,
                      unsigned short* peer_port, signed char* is_ipv6)
    int kb_epoll_add(int epoll_fd, int fd, void* data)
    int kb_epoll_remove(int epoll_fd, int fd)

cdef enum:
    SEND_BYTES_PER_TURN = 4 << 20


cdef int _fire(Channel* channel, int event) noexcept nogil:
    # The one place where a channel's state moves. An illegal event ends this connection.
    cdef Processor* processor = channel.processor
    cdef int machine = MACHINE_PIPELINED if processor.settings.pipelined else MACHINE_STOCK
    cdef int state = channel_next(machine, channel.state, event)
    if state < 0:
        require_failed(OF_CONNECTION, <int64_t>channel.connection_id, NULL,
                       "channel: an event that its state allows", event, channel.state)
        kb_count(&processor.protocol_errors, 1)
        kb_count(&processor.closes[CAUSE_STATE], 1)
        channel_close(channel)
        return -1
    state_times_enter(channel, state)
    return 0


cdef int _may_read(Channel* channel) noexcept nogil:
    return (
        channel_readable(channel.state)
        and channel.stalled == NULL
        and not channel.closing
        and not channel.closed
        and (channel.cached_frames == 0 or may_cache(channel))
        and (channel.unsent_bytes == 0 or unsent_may_read(channel))
    )


# --- birth ---------------------------------------------------------------------------------------

cdef Channel* channel_open(Processor* processor, NewConnection* connection) noexcept nogil:
    """Takes over the socket; NULL (socket closed, quota given back) when it cannot be served."""
    cdef Channel* channel = <Channel*>calloc(1, sizeof(Channel))
    cdef const Listener* listener = connection.listener
    if channel == NULL:
        return _not_taken(processor, connection)
    channel.processor = processor
    channel.fd = connection.fd
    channel.listener = listener.index
    channel.ip_entry = connection.ip_entry
    channel.transport = listener.transport
    channel.authenticates = listener.authenticates
    channel.session = listener.session
    if channel.transport != NULL:
        channel.state = HANDSHAKING
    else:
        channel.state = AUTHENTICATING if channel.authenticates else NOT_MUTED
    frames_bound(channel)
    channel.writable = 1
    # Bytes are bounded by cached_bytes here; the slots bound the count.
    slots_init(&channel.slots, <uint32_t>processor.settings.pipelined_requests_max,
               <unsigned long long>processor.settings.pipelined_bytes_max)
    kb_addresses(channel.fd, channel.local_address, &channel.local_port, channel.peer_address,
                 &channel.peer_port, &channel.is_ipv6)
    channel.connection_id = _next_connection_id(processor)
    if (
        channel.transport != NULL
        and channel.transport.open(
            listener.transport_context, channel.fd, &channel.transport_own) != 0
    ) or opening_make_room(processor) or kb_epoll_add(processor.epoll_fd, channel.fd, channel):
        transport_close(channel)
        free(channel)
        return _not_taken(processor, connection)
    session_take(channel.session)
    session_count(channel.session, channel.listener, 1)
    live_add(LIVE_CONNECTIONS, 1)
    kb_count(&processor.connection_count, 1)
    kb_count(&processor.muted[channel.listener].connections, 1)
    state_times_begin(channel)
    note_active(channel)
    if channel_is_opening(channel):
        opening_add(channel)
    return channel


cdef Channel* _not_taken(Processor* processor, NewConnection* connection) noexcept nogil:
    kb_count(&processor.closes[CAUSE_NOT_TAKEN], 1)
    close(connection.fd)
    quota_release(connection.ip_entry, listener_opens(connection.listener))
    return NULL


cdef unsigned long long _next_connection_id(Processor* processor) noexcept nogil:
    # Never reused: the Processor's index below its own count.
    kb_count(&processor.connections_opened, 1)
    return <unsigned long long>processor.connections_opened * 64 + <unsigned>processor.index


cdef void channel_shake(Channel* channel) noexcept nogil:
    """A step of the transport's handshake; it says when it wants the next one."""
    cdef Processor* processor = channel.processor
    cdef int status
    if channel.closing or not channel.readable:
        return
    status = channel.transport.handshake(channel.transport_own)
    processor.now_ns = kb_now_ns()
    if status == TRANSPORT_FAILED:
        kb_count(&processor.closes[CAUSE_HANDSHAKE], 1)
        channel.closing = 1
        if transport_end(channel):  # else the peer is yet to read why it failed
            channel_close(channel)
    elif status != TRANSPORT_DONE:
        channel_note_step(channel, status == TRANSPORT_ANSWERED)
        transport_wants(channel, status)
    elif _fire(channel, HANDSHAKE_COMPLETE) == 0:
        note_active(channel)
        if not channel.authenticates:
            _identify(channel)
        channel_make_ready(channel)  # its transport may have received more than the handshake


cdef void _identify(Channel* channel) noexcept nogil:
    # The name that the transport has proved of the peer is for a handler, which opens the channel.
    cdef Request* request = NULL
    cdef int status = frames_peer_name(channel, &request)
    if status == FRAMES_GOT:
        _hand_over(channel, request)
    elif status == FRAMES_NONE:
        _open(channel)
    else:
        kb_count(&channel.processor.closes[CAUSE_NO_MEMORY], 1)
        channel_close(channel)


cdef void _hand_over(Channel* channel, Request* request) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.state != REQCACHED_AND_RESPONSE_PENDING and _fire(channel, FRAME_COMPLETE) != 0:
        request_free(request)
        return
    channel.in_flight += 1
    channel.stalled = request     # until the queue has it
    list_append(&processor.batch_head, &processor.batch_tail, request, &request.next,
                "a turn's requests: nothing is after the last")


cdef int _open(Channel* channel) noexcept nogil:
    # From now on requests are read. -1: the channel is closed.
    if _fire(channel, AUTHENTICATION_COMPLETE) != 0:
        return -1
    opening_remove(channel)
    frames_bound(channel)
    return 0


# --- reading -------------------------------------------------------------------------------------

cdef Request* _take(Channel* channel) noexcept nogil:
    # What is complete, after one recv at most; NULL: nothing, or the channel had to close.
    cdef Processor* processor = channel.processor
    cdef Request* request = NULL
    cdef int status = frames_next(channel, &request)
    if status == FRAMES_NONE and channel.readable:
        status = frames_receive(channel)
        if channel.send_wants_read:  # that may have received what the send waits for
            _may_send_again(channel)
        if status == FRAMES_GOT:
            note_active(channel)
            status = frames_next(channel, &request)
    if status == FRAMES_GOT:
        return request
    if status == FRAMES_ENDED:
        channel.ended = 1
        channel.closing = 1
        channel.readable = 0
        frames_drop(channel)
        _close_if_done(channel)
    elif status != FRAMES_NONE:
        kb_count(&processor.protocol_errors, status == FRAMES_BAD)
        kb_count(&processor.closes[frames_bad_cause(channel)], status == FRAMES_BAD)
        channel_close(channel)
    return NULL


cdef void _may_send_again(Channel* channel) noexcept nogil:
    channel.send_wants_read = 0
    channel.writable = 1
    channel_make_ready(channel)


cdef void channel_turn(Channel* channel) noexcept nogil:
    """Takes the next frames of a channel that may be read; one recv at most."""
    cdef Request* request
    if channel.tx_head != NULL and channel.writable:
        _send_queued(channel)
    if channel.closed:
        return
    if not _may_read(channel):
        if channel.ended_ns != 0:
            if transport_end(channel):
                channel_close(channel)
        elif channel.state == HANDSHAKING:
            if channel.readable and not channel.closing:
                channel_shake_soon(channel)
        elif channel.readable or channel.rx != NULL:
            note_waits(channel)
        return
    note_waited(channel)
    request = _take(channel)
    if request == NULL:
        if channel.readable and not channel.closed:
            channel_make_ready(channel)
        return
    state_times_use(channel, request)
    _hand_over(channel, request)


cdef int channel_has_work(Channel* channel) noexcept nogil:
    """Whether a turn would find something to send or to read."""
    return not channel.closed and (
        (channel.tx_head != NULL and channel.writable and not channel.reads_ahead)
        or channel.readable != 0
        or channel.rx != NULL
    )


cdef void channel_received(Channel* channel, Request* request) noexcept nogil:
    """The request queue has it."""
    channel.stalled = NULL
    if channel.closed:
        return
    _fire(channel, REQUEST_RECEIVED)
    if channel.throttle_due and not channel.closed:
        channel.throttle_due = 0
        _fire(channel, THROTTLE_STARTED)
    if channel.rx != NULL or channel.readable:
        note_waits(channel)


cdef void channel_on_readable(Channel* channel, int ended) noexcept nogil:
    if ended:
        if channel.readable != PEER_ENDED:
            report_left(channel, LEFT_SENDING)
        channel.readable = PEER_ENDED
    elif not channel.readable:
        channel.readable = 1
    if channel.send_wants_read:   # it had read all there was, so this is more
        _may_send_again(channel)
    channel_turn(channel)


# --- answering ------------------------------------------------------------------------------------

cdef void channel_local_processed(Channel* channel, Request* request) noexcept nogil:
    """Its answer comes later; meanwhile the channel may be read on."""
    if channel.closed:
        return
    if _cache(channel, request, NULL) == 0:
        channel_make_ready(channel)


cdef int _cache(Channel* channel, Request* request, Request* answer) noexcept nogil:
    # REQUEST_LOCAL_PROCESSED for each frame; a slot where others wait before it or it must wait.
    # -1: the channel is closed and `answer` freed.
    cdef int in_slot = 0
    cdef int frame
    if answer == NULL or slots_count(&channel.slots) > 0:
        if slots_push(
            &channel.slots, request.request_id, cached_bytes(request), answer
        ) == SLOT_OK:
            in_slot = 1
        else:
            channel_close(channel)
    if not channel.closed:
        request.cached = 1
        channel.cached_frames += request.frames
        note_cached(channel, cached_bytes(request))
        for frame in range(request.frames):
            # Its frames were read together, and a throttle may have begun since.
            if frame > 0 and (channel.state == THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING
                              or _fire(channel, REQUEST_RECEIVED) != 0):
                break
            if _fire(channel, REQUEST_LOCAL_PROCESSED) != 0:
                break
    if not channel.closed:
        return 0
    if answer != NULL and not in_slot:
        request_free(answer)
    return -1


cdef void _queue_send(Channel* channel, Request* request) noexcept nogil:
    list_append(&channel.tx_head, &channel.tx_tail, request, &request.next,
                "channel: no answer is after the last")


cdef void channel_answer(Channel* channel, Request* request) noexcept nogil:
    """A request has come back: its place in the FIFO, then to the socket at once."""
    cdef Slot slot
    cdef int waits_for_others, status
    channel.in_flight -= 1
    require(channel.in_flight >= 0, "channel: requests come back once", channel.in_flight, 0)
    require_same(request.processor, channel.processor, "channel: a request of its Processor")
    if request.kind == READ_AHEAD:
        send_read_ahead_done(channel, request)
        if not channel.closed:
            _send_queued(channel)
            channel_make_ready(channel)
        note_all_came_back(channel)
        return
    elif request.kind != 0:
        opening_gives_back(channel, request)
    if channel.closed:
        session_drop(request.opens_as)
        request_note_sent(request, channel.processor.now_ns)  # as far as it came
        request_free(request)
        note_all_came_back(channel)
        return
    if not answer_is_whole(channel, request):
        session_drop(request.opens_as)
        request_free(request)
        channel_close(channel)
        return
    if request.action == ACTION_CLOSE:
        channel.closing = 1
        kb_count(&channel.processor.closes[request.cause], 1)
    elif request.action == ACTION_OPEN:
        if _open(channel) != 0:
            session_drop(request.opens_as)
            request_free(request)
            return
        session_count(channel.session, channel.listener, -1)
        session_drop(channel.session)
        channel.session = request.opens_as
        session_count(channel.session, channel.listener, 1)
    if request.throttle_ms > 0 and _throttle(channel, request.throttle_ms) != 0:
        request_free(request)
        return
    if request.cached:
        status = slots_fill(&channel.slots, request.request_id, request)
        if not channel_requires(channel, status == SLOT_OK,
                                "channel: a cached answer has its slot", status, SLOT_OK):
            request_free(request)
            channel_close(channel)
            return
    else:
        waits_for_others = slots_count(&channel.slots) > 0
        if (
            waits_for_others or request.frames > 1 or channel.cached_frames > 0
        ) and _cache(channel, request, request) != 0:
            return
        if not waits_for_others:
            _queue_send(channel, request)
    if slots_count(&channel.slots) > 0 and not slots_head_ready(&channel.slots):
        unsent_add(channel, request)  # it waits for an earlier one
    while slots_head_ready(&channel.slots):
        slots_pop(&channel.slots, &slot)
        _queue_send(channel, <Request*>slot.response)
    _send_queued(channel)
    if channel.tx_head != NULL:
        unsent_add_queued(channel)
    if not channel.closed:
        channel_make_ready(channel)


cdef int _throttle(Channel* channel, int64_t throttle_ms) noexcept nogil:
    # Before the answer that says so; -1: the channel is closed. A frame read before is received.
    throttle_until(channel, channel.processor.now_ns + throttle_ms * 1000000)
    if channel.stalled != NULL:
        channel.throttle_due = 1
        return 0
    return _fire(channel, THROTTLE_STARTED)


cdef void _throttle_over(Channel* channel) noexcept nogil:
    if channel.closed:
        return
    if channel.throttle_due:      # the queue was full for as long
        channel.throttle_due = 0
    elif _fire(channel, THROTTLE_ENDED) != 0:
        return
    if channel.state == MUTED and channel.stalled == NULL:
        _fire(channel, UNMUTE)
    channel_make_ready(channel)


cdef void channel_end_throttles(Processor* processor) noexcept nogil:
    """Those whose delay is over are read again."""
    cdef Channel* channel = throttle_over(processor)
    while channel != NULL:
        _throttle_over(channel)
        channel = throttle_over(processor)


cdef void _sent(Channel* channel, Request* request) noexcept nogil:
    # The answer has left, whole. Its frames' events; the request is free again.
    cdef int closes = request.action == ACTION_CLOSE
    cdef int _frame
    if request.is_unsent:
        unsent_remove(channel, request)
    if request.cached:
        if not channel_requires(channel, channel.cached_frames >= request.frames,
                                "channel: cached frames are counted", channel.cached_frames,
                                request.frames):
            request_free(request)
            channel_close(channel)
            return
        note_cached(channel, -<int64_t>cached_bytes(request))
        for _frame in range(request.frames):
            channel.cached_frames -= 1
            if _fire(channel, RESPONSE_SENT if channel.cached_frames else RESPONSE_SENT_LAST):
                break
    else:
        _fire(channel, RESPONSE_SENT_LAST)
    request_note_sent(request, channel.processor.now_ns)
    kb_count(&channel.processor.responses, request.frames)  # who sees it finds the times, too
    request_free(request)
    if closes:
        # A client that was refused may have sent more, and is to get the answer that says why.
        if not channel_is_opening(channel) or transport_end(channel):
            channel_close(channel)
    elif channel.state == MUTED and channel.stalled == NULL:
        # A frame in hand has no room in the queue: it stays muted, REQUEST_RECEIVED comes next.
        _fire(channel, UNMUTE)


cdef void _send_queued(Channel* channel) noexcept nogil:
    # Sends what is queued until the socket is full or others should have their turn.
    cdef Request* request
    cdef int64_t budget_bytes = SEND_BYTES_PER_TURN
    cdef int status
    while channel.tx_head != NULL and not channel.closed:
        request = channel.tx_head
        if request.part_next == request.part_count:
            list_remove_first(&channel.tx_head, &channel.tx_tail, request, &request.next,
                              "channel: the answer that has left is the first")
            _sent(channel, request)
            continue
        if not channel.writable or channel.reads_ahead:
            return
        if budget_bytes <= 0:
            channel_make_ready(channel)
            return
        if channel.transport == NULL:
            status = send_some(channel, &budget_bytes)
        else:
            status = send_piece(channel, &budget_bytes)
        channel.processor.now_ns = kb_now_ns()
        if status == SEND_READS:
            return
        if status == SEND_BLOCKED:
            channel.writable = 0
        elif status != SEND_DONE:
            channel_close(channel)
            return
        note_active(channel)
    _close_if_done(channel)


cdef void _close_if_done(Channel* channel) noexcept nogil:
    # A peer that has shut its sending side gets what it asked for; it is closed then, or when idle.
    if (
        channel.ended and channel.tx_head == NULL and channel.in_flight == 0
        and slots_count(&channel.slots) == 0
    ):
        channel_close(channel)


cdef void channel_on_writable(Channel* channel) noexcept nogil:
    if channel.receive_wants_write:  # a send may have found room before this event came
        channel.receive_wants_write = 0
        channel.readable = 1
        channel_make_ready(channel)
    if channel.writable:
        return
    channel.writable = 1
    _send_queued(channel)
    if not channel.closed:
        channel_make_ready(channel)


# --- death ----------------------------------------------------------------------------------------

cdef void channel_close(Channel* channel) noexcept nogil:
    """Closes the socket now; the struct lives until its requests have come back."""
    cdef Processor* processor = channel.processor
    cdef Request* request
    cdef Slot slot
    if channel.closed:
        return
    channel.closed = 1
    note_cached(channel, -channel.cached_bytes)
    unsent_remove_all(channel)
    # Taken out by name: a process that was forked and has not yet called exec holds the socket too,
    # and until then closing it here would leave this struct's address in the epoll set.
    kb_epoll_remove(processor.epoll_fd, channel.fd)
    transport_close(channel)
    close(channel.fd)
    channel.fd = -1
    if channel_is_opening(channel):
        opening_remove(channel)
    if channel.shakes & SHAKES_SOON:
        remove_shaking(channel)
    quota_release(channel.ip_entry, 0)
    channel.ip_entry = NULL
    note_waited(channel)
    kb_count(&processor.connection_count, -1)
    kb_count(&processor.muted[channel.listener].connections, -1)
    session_count(channel.session, channel.listener, -1)
    remove_recent(channel)
    if channel.rx != NULL:
        chunk_release(channel.rx)
        channel.rx = NULL
    while channel.tx_head != NULL:
        request = channel.tx_head
        channel.tx_head = request.next
        request_note_sent(request, processor.now_ns)
        request_free(request)
    channel.tx_tail = NULL
    while slots_count(&channel.slots) > 0:
        if slots_discard(&channel.slots, &slot) == SLOT_OK and slot.response != NULL:
            request_free(<Request*>slot.response)
    slots_release(&channel.slots)
    channel.next_closed = processor.closed_head
    processor.closed_head = channel
    report_left(channel, LEFT)
    note_all_came_back(channel)


cdef int channel_reap(Channel* channel) noexcept nogil:
    """1 when the closed channel's memory could be given back."""
    if channel.in_flight > 0 or channel.stalled != NULL:
        return 0
    note_all_came_back(channel)
    if channel.ready or channel.throttled_until_ns != 0:
        return 0
    require(channel.closed and channel.tx_head == NULL, "freed channel: it is closed", 0, 1)
    require(channel.parked == NULL, "freed channel: nothing of it waits", 0, 0)
    live_add(LIVE_CONNECTIONS, -1)
    channel_drop_client(channel)
    free(channel)
    return 1
