# cython: language_level=3
"""How connections end, and a Processor with them. In the Processor's turn.

Where unsent answers hold more memory than queued.max.response.bytes, the connection that has some
and has taken nothing for longest is closed, whichever Processor's it is: each tells the others
since when that is so of its own, and wakes the one with an earlier time. Not the one with most: a
client that reads a long answer would be closed for many short ones that are never read. One that
alone has such answers is left: an answer may be longer than the bound.

One that stops lets answers that are queued leave, for at most a second (STOP_SEND), or closes at
once (STOP_AT_ONCE). Its thread ends when every request that it lent has come back. STOP_RETIRE is
for a Processor that others outlive: it takes no new connections and reads no more; each connection
gets the answers of the requests read, then the end of the stream, and is closed when the peer has
closed it or a second later, so that no answer on its way is lost to a reset. A request that is
parked for longer than RETIRE_NS_MAX loses its connection.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_store_i64
from kbroker.core._figures cimport kb_count
from kbroker.core._lock_order cimport RANK_QUEUE, lock_ranked, unlock_ranked
from kbroker.core._sync cimport kb_now_ns
from kbroker.net._channel cimport channel_close, channel_reap
from kbroker.net._opening cimport opening_to_close
from kbroker.net._sleep cimport wake_processor
from kbroker.net._transport cimport transport_end
from kbroker.net._types cimport (
    CAUSE_CROWDED, CAUSE_OPENING, CAUSE_UNREAD, STOP_AT_ONCE, STOP_RETIRE, Channel, Processor)
from kbroker.net._unsent cimport unsent_are_too_many, unsent_is_alone

cdef enum:
    DRAIN_NS_MAX = 1000000000     # for answers that are on their way when the broker stops
    RETIRE_NS_MAX = 30000000000   # for requests that wait, when a Processor is taken away
    LINGER_NS = 1000000000        # for a peer to take its last answers and close
    ABANDON_NS = 3000000000       # a request lent for longer than this is given up with its memory


cdef void close_idle(Processor* processor) noexcept nogil:
    while has_idle(processor):
        kb_count(&processor.idle_closed, 1)
        channel_close(processor.oldest)


cdef void close_opening(Processor* processor) noexcept nogil:
    cdef Channel* channel
    cdef int at
    for at in range(processor.opening_count - 1, -1, -1):
        channel = processor.opening[at]
        if channel.ended_ns != 0:
            if processor.now_ns - channel.ended_ns > <int64_t>LINGER_NS:
                channel_close(channel)
        elif (
            channel.in_flight == 0  # else a handler has its frame
            and processor.now_ns - channel.opening_since_ns > processor.settings.opening_ns_max
        ):
            kb_count(&processor.closes[CAUSE_OPENING], 1)
            channel_close(channel)


cdef void close_crowding(Processor* processor, const Channel* newest) noexcept nogil:
    """Where too many connections have not authenticated, one that comes has another closed."""
    cdef Channel* channel = opening_to_close(processor, newest)
    if channel != NULL:
        kb_count(&processor.closes[CAUSE_CROWDED], 1)
        channel_close(channel)


cdef void close_unread(Processor* processor) noexcept nogil:
    cdef Channel* channel
    cdef Processor* other
    while unsent_are_too_many(processor.settings):
        if kb_load_i64(&processor.unread_since_ns) == 0:
            return                # it has none; a Processor that adds some looks by itself
        channel = _longest_unread(processor)
        other = _is_unread_for_longer(processor)
        if other != NULL:
            wake_processor(other)
            return
        if channel == NULL or unsent_is_alone(channel):
            return
        kb_count(&processor.closes[CAUSE_UNREAD], 1)
        channel_close(channel)


cdef Channel* _longest_unread(Processor* processor) noexcept nogil:
    cdef Channel* channel = processor.oldest
    while channel != NULL and channel.unsent_bytes == 0:
        channel = channel.newer
    kb_store_i64(&processor.unread_since_ns, channel.last_active_ns if channel != NULL else 0)
    return channel


cdef Processor* _is_unread_for_longer(Processor* processor) noexcept nogil:
    # Its time may be too early, since a send does not move it: then it looks, and wakes this one.
    cdef Processor** others = processor.request_channel.processors
    cdef Processor* longest = NULL
    cdef int64_t since_ns = kb_load_i64(&processor.unread_since_ns)
    cdef int64_t other_ns
    cdef int index
    for index in range(kb_load_int(&processor.request_channel.processor_count)):
        other_ns = kb_load_i64(&others[index].unread_since_ns)
        if other_ns != 0 and (since_ns == 0 or other_ns < since_ns):
            longest = others[index]
            since_ns = other_ns
    return longest


cdef void reap_closed(Processor* processor) noexcept nogil:
    cdef Channel** place = &processor.closed_head
    cdef Channel* following
    while place[0] != NULL:
        following = place[0].next_closed
        if channel_reap(place[0]):
            place[0] = following
        else:
            place = &place[0].next_closed


cdef int has_stopped(Processor* processor, int64_t* drain_until_ns) noexcept nogil:
    cdef Channel* channel = processor.oldest
    cdef Channel* following
    cdef int how = kb_load_int(&processor.stopping)
    processor.now_ns = kb_now_ns()
    if how == STOP_RETIRE:
        return _retired(processor, drain_until_ns)
    if drain_until_ns[0] == 0 or drain_until_ns[0] > processor.now_ns + <int64_t>DRAIN_NS_MAX:
        drain_until_ns[0] = processor.now_ns + <int64_t>DRAIN_NS_MAX
    while channel != NULL:
        following = channel.newer
        channel.closing = 1       # nothing more is read
        if (
            how == STOP_AT_ONCE
            or processor.now_ns > drain_until_ns[0]
            or (channel.tx_head == NULL and channel.in_flight == 0)
        ):
            channel_close(channel)
        channel = following
    reap_closed(processor)
    if processor.now_ns > drain_until_ns[0] + <int64_t>ABANDON_NS:
        processor.abandoned = 1
        return 1
    return (processor.closed_head == NULL and processor.oldest == NULL
            and not _is_offered_some(processor))


cdef int _is_offered_some(Processor* processor) noexcept nogil:
    # Once not, never again: who offers a connection looks at `stopping` under the lock.
    cdef int count
    lock_ranked(&processor.lock, RANK_QUEUE)
    count = processor.new_count
    unlock_ranked(&processor.lock, RANK_QUEUE)
    return count > 0


cdef int _retired(Processor* processor, int64_t* drain_until_ns) noexcept nogil:
    # One look at every connection of a Processor that is taken away: 1 when none is left.
    cdef Channel* channel = processor.oldest
    cdef Channel* following
    if drain_until_ns[0] == 0:
        drain_until_ns[0] = processor.now_ns + <int64_t>RETIRE_NS_MAX
    while channel != NULL:
        following = channel.newer
        _retire_channel(processor, channel, processor.now_ns > drain_until_ns[0])
        channel = following
    reap_closed(processor)
    return (processor.closed_head == NULL and processor.oldest == NULL
            and not _is_offered_some(processor))


cdef void _retire_channel(Processor* processor, Channel* channel, int overdue) noexcept nogil:
    channel.closing = 1           # nothing more is read
    if overdue:
        channel_close(channel)
        return
    if channel.in_flight > 0 or channel.tx_head != NULL:
        return
    if transport_end(channel) or processor.now_ns - channel.ended_ns > <int64_t>LINGER_NS:
        channel_close(channel)
