# cython: language_level=3
"""How long channels are in each of their states: where a connection's time goes.

A channel of the stock machine that asks for acks=-1 is nearly always in MUTED_AND_RESPONSE_PENDING:
one request is in service, and nothing after it is read. In the pipelined machine the same channel
waits in REQCACHED_AND_RESPONSE_PENDING, in which it is read. No figure by request shows that.

A channel counts under what it asked for last, since a follower's long poll or an idle client would
hide a producer; the time for which it was silent before a request is of that request. Counted when
a state is left, by the Processor's clock, which is read once a turn: what happens within one takes
no time.

Threads: the Processor's own writes, anyone reads (`kb_figure`).
"""

from kbroker._state cimport NOT_MUTED
from kbroker.core._figures cimport kb_count
from kbroker.net._types cimport (
    USE_FETCH,
    USE_OTHER,
    USE_PRODUCE,
    Channel,
    Processor,
    Request,
)
from kbroker.protocol._versions cimport API_FETCH, API_PRODUCE


# It begins in the state that it has.
cdef inline void state_times_begin(Channel* channel) noexcept nogil:
    channel.state_since_ns = channel.processor.now_ns


cdef inline void count_state_time(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    kb_count(&processor.state_ns[channel.use][channel.state],
             processor.now_ns - channel.state_since_ns)
    channel.state_since_ns = processor.now_ns


# It leaves its state for this one.
cdef inline void state_times_enter(Channel* channel, int state) noexcept nogil:
    if state == channel.state:
        return
    count_state_time(channel)
    channel.state = <signed char>state


# It asks for this, and its times count for that from now on.
cdef inline void state_times_use(Channel* channel, const Request* request) noexcept nogil:
    cdef int use = USE_OTHER
    if request.api_key == API_PRODUCE:
        use = USE_PRODUCE
    elif request.api_key == API_FETCH:
        use = USE_FETCH
    if use != channel.use and channel.state != NOT_MUTED:
        count_state_time(channel)           # it has waited for its former request
    channel.use = <signed char>use
