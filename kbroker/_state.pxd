# cython: language_level=3
"""The channel state machine and its FIFO of response slots, for other compiled units.

    from kbroker._state cimport channel_next, MACHINE_PIPELINED, NOT_MUTED, FRAME_COMPLETE

Everything is `noexcept nogil`, keeps no state of its own and takes no lock: a channel's state and
its SlotQueue belong to the one thread that owns the channel at that moment (its Processor, or the
handler that was handed a train), and only its owner calls.
"""

from libc.stdint cimport uint32_t, uint64_t


cdef enum ChannelMachine:
    MACHINE_STOCK = 0
    MACHINE_PIPELINED = 1
    CHANNEL_MACHINES = 2


cdef enum ChannelState:
    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4
    # Pipelined machine only.
    REQCACHED_AND_RESPONSE_PENDING = 5
    REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING = 6
    THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING = 7
    THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING = 8
    # Before the channel is open, in both machines.
    HANDSHAKING = 9
    AUTHENTICATING = 10
    AUTHENTICATING_AND_RESPONSE_PENDING = 11
    CHANNEL_STATES = 12


cdef enum ChannelEvent:
    FRAME_COMPLETE = 0            # a whole frame was read on an open channel: read interest off
    REQUEST_RECEIVED = 1          # raised after the enqueue
    REQUEST_LOCAL_PROCESSED = 2   # done locally, its slot is made; pipelined only
    RESPONSE_SENT = 3             # the head of the FIFO left, others are still cached
    RESPONSE_SENT_LAST = 4        # a response left and nothing is cached after it
    THROTTLE_STARTED = 5          # before the response that carries throttle_time_ms is sent
    THROTTLE_ENDED = 6            # once, when the channel's latest throttle deadline has passed
    UNMUTE = 7                    # read interest on again
    HANDSHAKE_COMPLETE = 8        # of the transport
    AUTHENTICATION_COMPLETE = 9   # before the response that says so is sent
    CHANNEL_EVENTS = 10


cdef enum ChannelVerdict:
    CHANNEL_ILLEGAL = -1


# The next state, or CHANNEL_ILLEGAL (also for any number out of range); the caller then keeps the
# old state, counts an invariant error and closes this one connection.
cdef int channel_next(int machine, int state, int event) noexcept nogil

# 1 when the state allows reading frames. The owner also wants slots_room() > 0 and no frame in hand
# that found the request queue full.
cdef int channel_readable(int state) noexcept nogil

# 1 when the FIFO must hold at least one slot in this state: the pair assertion to slots_count().
cdef int channel_cached(int state) noexcept nogil


cdef enum SlotStatus:
    SLOT_OK = 0
    SLOT_FULL = -1                # at the bound by count or by bytes: nothing was pushed
    SLOT_BAD_ID = -2              # not the successor (push) or not in the queue (fill)
    SLOT_ALREADY_FILLED = -3
    SLOT_EMPTY = -4
    SLOT_NOT_READY = -5           # the head's response is not there yet
    SLOT_NOT_EMPTY = -6           # release refused: responses would be lost
    SLOT_NO_MEMORY = -7
    SLOT_BAD_ARGUMENT = -8


cdef struct Slot:
    uint64_t request_id
    void* response                # NULL until filled; the queue never frees what it points to
    uint32_t bytes                # held by the request until its response leaves


cdef struct SlotQueue:
    Slot* ring                    # NULL until the first push, so an idle channel pays nothing
    uint32_t capacity             # slots allocated, a power of two
    uint32_t head
    uint32_t count
    uint32_t count_max
    uint64_t bytes                # sum over the slots
    uint64_t bytes_max
    uint64_t next_id              # the smallest request id that the next push may carry


# Allocates nothing. SLOT_BAD_ARGUMENT unless 1 <= count_max <= SLOTS_LIMIT and bytes_max >= 1.
cdef int slots_init(SlotQueue* queue, uint32_t count_max, uint64_t bytes_max) noexcept nogil

# A slot at the tail. Ids grow by exactly 1 while anything is cached; into an empty queue any id
# above the ones seen may go (requests answered at once take no slot). A queue whose bytes are
# below bytes_max takes one more request of any size, so that a large one is not refused for ever.
# `response` is NULL, or the answer itself when it is ready at once after cached ones.
cdef int slots_push(
    SlotQueue* queue, uint64_t request_id, uint32_t bytes, void* response) noexcept nogil

# O(1): the slot's place is its id's distance from the head's.
cdef int slots_fill(SlotQueue* queue, uint64_t request_id, void* response) noexcept nogil

# 1 when the head's response may be sent.
cdef int slots_head_ready(const SlotQueue* queue) noexcept nogil

# Removes the head into `out`: SLOT_OK, SLOT_EMPTY or SLOT_NOT_READY.
cdef int slots_pop(SlotQueue* queue, Slot* out) noexcept nogil

# The same whether or not the head is filled: for a connection that is closing.
cdef int slots_discard(SlotQueue* queue, Slot* out) noexcept nogil

# Pushes that the bounds still allow (0 at a bound): 0 means do not read.
cdef uint32_t slots_room(const SlotQueue* queue) noexcept nogil
cdef uint32_t slots_count(const SlotQueue* queue) noexcept nogil
cdef uint64_t slots_bytes(const SlotQueue* queue) noexcept nogil

# Gives the ring back when nothing is in it (idle or closing); the queue stays usable.
cdef int slots_release(SlotQueue* queue) noexcept nogil
