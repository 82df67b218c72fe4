# cython: language_level=3, auto_pickle=False
"""The channel state machine, as one table, and the FIFO of response slots beside it.

A channel answers in request order and is read only when its state says so. The stock machine has
one request per connection in service: later ones wait in the socket's receive buffer.
The pipelined machine keeps every stock cell and adds that a request which is done locally, but
whose response is not due yet, is *cached*: its response gets a slot in the connection's FIFO and
the socket is readable again.

STOCK and PIPELINED below are the whole truth: (state, event, next state). What they do not list is
illegal; it changes nothing, and in Python it raises. `docs/channel.md` is drawn from them and the
tests walk every cell of both machines.

Throttling in the pipelined states. A channel has one throttle deadline, the latest asked for. A
throttle begins with the response that carries its time, and by then other requests of the same
channel may be cached, in processing, or both, so both new states have a throttled twin, in which
the channel is not read. A second THROTTLE_STARTED inside a throttled pipelined state moves the
deadline and keeps the state; THROTTLE_ENDED comes once. Cached responses leave during the throttle
(their clients' delay is about new requests), and a request already in processing may still become
cached; none may be received: nothing new is pipelined while throttled. The mute ends when the
last response was sent *and* the delay is over, whichever comes last.

Before it is open a channel is HANDSHAKING, while its transport agrees on keys with the peer, then
AUTHENTICATING, in which one frame after the other is answered. A transport without a handshake, or
a listener without authentication, has its state passed at once.

FRAME_COMPLETE belongs to an open, empty channel. With requests cached there is no mute to make:
the frame goes straight to the queue and REQUEST_RECEIVED closes the channel for reading; if the
queue is full the owner keeps the frame and stops reading by itself. A disconnect is no event: it
ends the machine in any state.

Owner: the thread that owns the channel. No locks, no state at module level but constant tables.
It never touches a socket and never frees a response.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from enum import IntEnum

from kbroker.core._live_objects cimport LIVE_SLOT_RINGS, live_add
from kbroker.core._require cimport require, require_count
from kbroker.errors import InvariantError

STOCK = (
    (NOT_MUTED, FRAME_COMPLETE, MUTED),
    (MUTED, REQUEST_RECEIVED, MUTED_AND_RESPONSE_PENDING),
    (MUTED, UNMUTE, NOT_MUTED),
    (MUTED_AND_RESPONSE_PENDING, RESPONSE_SENT_LAST, MUTED),
    (MUTED_AND_RESPONSE_PENDING, THROTTLE_STARTED, MUTED_AND_THROTTLED_AND_RESPONSE_PENDING),
    (MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, RESPONSE_SENT_LAST, MUTED_AND_THROTTLED),
    (MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, THROTTLE_ENDED, MUTED_AND_RESPONSE_PENDING),
    (MUTED_AND_THROTTLED, THROTTLE_ENDED, MUTED),
    (HANDSHAKING, HANDSHAKE_COMPLETE, AUTHENTICATING),
    (AUTHENTICATING, FRAME_COMPLETE, AUTHENTICATING_AND_RESPONSE_PENDING),
    (AUTHENTICATING, AUTHENTICATION_COMPLETE, NOT_MUTED),
    (AUTHENTICATING_AND_RESPONSE_PENDING, REQUEST_RECEIVED, AUTHENTICATING_AND_RESPONSE_PENDING),
    (AUTHENTICATING_AND_RESPONSE_PENDING, RESPONSE_SENT_LAST, AUTHENTICATING),
    (AUTHENTICATING_AND_RESPONSE_PENDING, AUTHENTICATION_COMPLETE, MUTED_AND_RESPONSE_PENDING),
)

# Added to STOCK. Short names for the long states, local to the table.
cdef int _CACHED = REQCACHED_AND_RESPONSE_PENDING
cdef int _BOTH = REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING
cdef int _T_PENDING = MUTED_AND_THROTTLED_AND_RESPONSE_PENDING
cdef int _T_CACHED = THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING
cdef int _T_BOTH = THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING

PIPELINED = (
    (MUTED_AND_RESPONSE_PENDING, REQUEST_LOCAL_PROCESSED, _CACHED),
    (_CACHED, REQUEST_RECEIVED, _BOTH),
    (_CACHED, RESPONSE_SENT, _CACHED),
    (_CACHED, RESPONSE_SENT_LAST, MUTED),
    (_CACHED, THROTTLE_STARTED, _T_CACHED),
    (_BOTH, REQUEST_LOCAL_PROCESSED, _CACHED),
    (_BOTH, RESPONSE_SENT, _BOTH),
    (_BOTH, RESPONSE_SENT_LAST, MUTED_AND_RESPONSE_PENDING),
    (_BOTH, THROTTLE_STARTED, _T_BOTH),
    (_T_PENDING, REQUEST_LOCAL_PROCESSED, _T_CACHED),
    (_T_PENDING, THROTTLE_STARTED, _T_PENDING),
    (_T_CACHED, RESPONSE_SENT, _T_CACHED),
    (_T_CACHED, RESPONSE_SENT_LAST, MUTED_AND_THROTTLED),
    (_T_CACHED, THROTTLE_STARTED, _T_CACHED),
    (_T_CACHED, THROTTLE_ENDED, _CACHED),
    (_T_BOTH, REQUEST_LOCAL_PROCESSED, _T_CACHED),
    (_T_BOTH, RESPONSE_SENT, _T_BOTH),
    (_T_BOTH, RESPONSE_SENT_LAST, _T_PENDING),
    (_T_BOTH, THROTTLE_STARTED, _T_BOTH),
    (_T_BOTH, THROTTLE_ENDED, _BOTH),
)

# The table as the C side reads it: filled once, at import, and constant from then on.
cdef signed char _NEXT[CHANNEL_MACHINES][16][16]  # powers of two: a place is shifts alone

cdef enum:
    READABLE = (  # a bit for each state
        1 << NOT_MUTED | 1 << REQCACHED_AND_RESPONSE_PENDING | 1 << AUTHENTICATING)

cdef const char* _STATE_NAMES[CHANNEL_STATES]
_STATE_NAMES[:] = [
    b"NOT_MUTED",
    b"MUTED",
    b"MUTED_AND_RESPONSE_PENDING",
    b"MUTED_AND_THROTTLED",
    b"MUTED_AND_THROTTLED_AND_RESPONSE_PENDING",
    b"REQCACHED_AND_RESPONSE_PENDING",
    b"REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING",
    b"THROTTLED_AND_REQCACHED_AND_RESPONSE_PENDING",
    b"THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING",
    b"HANDSHAKING",
    b"AUTHENTICATING",
    b"AUTHENTICATING_AND_RESPONSE_PENDING",
]
cdef const char* _EVENT_NAMES[CHANNEL_EVENTS]
_EVENT_NAMES[:] = [
    b"FRAME_COMPLETE",
    b"REQUEST_RECEIVED",
    b"REQUEST_LOCAL_PROCESSED",
    b"RESPONSE_SENT",
    b"RESPONSE_SENT_LAST",
    b"THROTTLE_STARTED",
    b"THROTTLE_ENDED",
    b"UNMUTE",
    b"HANDSHAKE_COMPLETE",
    b"AUTHENTICATION_COMPLETE",
]

cdef enum:
    SLOTS_INITIAL = 8             # 192 bytes: what a producer with five in flight needs
    SLOTS_LIMIT = 1 << 20         # per connection; keeps capacity * sizeof(Slot) from wrapping


def _fill_table():
    cdef int machine
    memset(_NEXT, CHANNEL_ILLEGAL, sizeof(_NEXT))
    for machine, rows in ((MACHINE_STOCK, STOCK), (MACHINE_PIPELINED, STOCK + PIPELINED)):
        for state, event, next_state in rows:
            if _NEXT[machine][<int>state][<int>event] != CHANNEL_ILLEGAL:
                raise InvariantError(f"channel table lists {(state, event)} twice")
            _NEXT[machine][<int>state][<int>event] = next_state


_fill_table()


# --- the machine, for C -------------------------------------------------------------------------

cdef int channel_next(int machine, int state, int event) noexcept nogil:
    if <unsigned int>machine >= CHANNEL_MACHINES or <unsigned int>state >= CHANNEL_STATES:
        return CHANNEL_ILLEGAL
    if <unsigned int>event >= CHANNEL_EVENTS:
        return CHANNEL_ILLEGAL
    return _NEXT[machine][state][event]


cdef int channel_readable(int state) noexcept nogil:
    return READABLE >> state & 1


cdef int channel_cached(int state) noexcept nogil:
    return (REQCACHED_AND_RESPONSE_PENDING <= state
            <= THROTTLED_AND_REQPROCESSING_AND_REQCACHED_AND_RESPONSE_PENDING)


# --- response slots, for C ----------------------------------------------------------------------

cdef int slots_init(SlotQueue* queue, uint32_t count_max, uint64_t bytes_max) noexcept nogil:
    memset(queue, 0, sizeof(SlotQueue))
    if count_max < 1 or count_max > SLOTS_LIMIT or bytes_max < 1:
        return SLOT_BAD_ARGUMENT
    queue.count_max = count_max
    queue.bytes_max = bytes_max
    return SLOT_OK


cdef int _grow(SlotQueue* queue) noexcept nogil:
    # Doubles and straightens the ring. count_max <= SLOTS_LIMIT bounds the product.
    cdef uint32_t capacity = queue.capacity * 2 if queue.capacity else SLOTS_INITIAL
    cdef Slot* ring = <Slot*>malloc(capacity * sizeof(Slot))
    cdef uint32_t i
    if ring == NULL:
        return SLOT_NO_MEMORY
    if queue.ring == NULL:
        live_add(LIVE_SLOT_RINGS, 1)
    for i in range(queue.count):
        ring[i] = queue.ring[(queue.head + i) & (queue.capacity - 1)]
    free(queue.ring)
    queue.ring = ring
    queue.capacity = capacity
    queue.head = 0
    return SLOT_OK


cdef int slots_push(
    SlotQueue* queue, uint64_t request_id, uint32_t bytes, void* response
) noexcept nogil:
    cdef Slot* slot
    if slots_room(queue) == 0:
        return SLOT_FULL
    if request_id < queue.next_id or (queue.count != 0 and request_id != queue.next_id):
        return SLOT_BAD_ID
    if request_id + 1 == 0:
        return SLOT_BAD_ID
    if queue.count == queue.capacity and _grow(queue) != SLOT_OK:
        return SLOT_NO_MEMORY
    require(queue.count < queue.capacity and queue.head < queue.capacity,
            "slots: a new one is in the ring", queue.count, queue.capacity)
    slot = &queue.ring[(queue.head + queue.count) & (queue.capacity - 1)]
    slot.request_id = request_id
    slot.response = response
    slot.bytes = bytes
    queue.count += 1
    queue.bytes += bytes
    queue.next_id = request_id + 1
    return SLOT_OK


cdef int slots_fill(SlotQueue* queue, uint64_t request_id, void* response) noexcept nogil:
    cdef uint64_t head_id
    cdef Slot* slot
    if response == NULL:
        return SLOT_BAD_ARGUMENT
    if queue.count == 0:
        return SLOT_BAD_ID
    require(queue.count <= queue.capacity and queue.head < queue.capacity,
            "slots: one that is filled is in the ring", queue.count, queue.capacity)
    head_id = queue.ring[queue.head].request_id
    if request_id < head_id or request_id - head_id >= queue.count:
        return SLOT_BAD_ID
    slot = &queue.ring[(queue.head + <uint32_t>(request_id - head_id)) & (queue.capacity - 1)]
    require(slot.request_id == request_id, "slots: ids increase by one",
            <int64_t>slot.request_id, <int64_t>request_id)
    if slot.response != NULL:
        return SLOT_ALREADY_FILLED
    slot.response = response
    return SLOT_OK


cdef int slots_head_ready(const SlotQueue* queue) noexcept nogil:
    return queue.count != 0 and queue.ring[queue.head].response != NULL


cdef int slots_pop(SlotQueue* queue, Slot* out) noexcept nogil:
    if queue.count == 0:
        return SLOT_EMPTY
    if queue.ring[queue.head].response == NULL:
        return SLOT_NOT_READY
    return slots_discard(queue, out)


cdef int slots_discard(SlotQueue* queue, Slot* out) noexcept nogil:
    if queue.count == 0:
        return SLOT_EMPTY
    require(queue.head < queue.capacity, "slots: the head is in the ring",
            queue.head, queue.capacity)
    require(queue.count <= queue.capacity, "slots: as many as the ring has, at most",
            queue.count, queue.capacity)
    out[0] = queue.ring[queue.head]
    queue.head = (queue.head + 1) & (queue.capacity - 1)
    queue.count -= 1
    queue.bytes = <uint64_t>require_count(
        <int64_t>queue.bytes - <int64_t>out.bytes, "slots: the head's bytes are counted")
    return SLOT_OK


cdef uint32_t slots_room(const SlotQueue* queue) noexcept nogil:
    if queue.bytes >= queue.bytes_max:
        return 0
    return queue.count_max - queue.count


cdef uint32_t slots_count(const SlotQueue* queue) noexcept nogil:
    return queue.count


cdef uint64_t slots_bytes(const SlotQueue* queue) noexcept nogil:
    return queue.bytes


cdef int slots_release(SlotQueue* queue) noexcept nogil:
    if queue.count != 0:
        return SLOT_NOT_EMPTY
    if queue.ring != NULL:
        live_add(LIVE_SLOT_RINGS, -1)
    free(queue.ring)
    queue.ring = NULL
    queue.capacity = 0
    queue.head = 0
    return SLOT_OK


# --- the Python face: tests, docs, tools --------------------------------------------------------

State = IntEnum(
    "State", {_STATE_NAMES[i].decode(): i for i in range(CHANNEL_STATES)}, module=__name__)
Event = IntEnum(
    "Event", {_EVENT_NAMES[i].decode(): i for i in range(CHANNEL_EVENTS)}, module=__name__)


class IllegalTransition(InvariantError):
    """An event that the state does not list. Ends the connection it happened on, nothing else."""

    def __init__(self, state, event, connection_id=""):
        self.state = state
        self.event = event
        self.connection_id = connection_id
        super().__init__(f"channel {connection_id or '?'}: {event.name} is illegal in {state.name}")


def next_state(bint pipelined, int state, int event):
    """The C function as it is: the next state's number, or -1."""
    return channel_next(MACHINE_PIPELINED if pipelined else MACHINE_STOCK, state, event)


def is_readable(int state):
    """Whether the state by itself allows reading."""
    return bool(channel_readable(state))


cdef class ChannelStateMachine:
    """One channel's state; what the compiled core keeps as a number in its channel struct."""

    cdef int _machine
    cdef int _state
    cdef readonly str connection_id

    def __cinit__(self, bint pipelined, str connection_id="", int state=NOT_MUTED):
        self._machine = MACHINE_PIPELINED if pipelined else MACHINE_STOCK
        self._state = State(state)
        self.connection_id = connection_id

    @property
    def pipelined(self):
        return self._machine == MACHINE_PIPELINED

    @property
    def state(self):
        return State(self._state)

    @property
    def readable(self):
        return bool(channel_readable(self._state))

    @property
    def cached(self):
        return bool(channel_cached(self._state))

    def fire(self, event):
        cdef int reached = channel_next(self._machine, self._state, event)
        if reached == CHANNEL_ILLEGAL:
            raise IllegalTransition(State(self._state), Event(event), self.connection_id)
        self._state = reached
        return State(reached)

    def transitions(self):
        # Read back from the C table, so that tests and docs see the table that the core follows.
        cdef int reached
        legal = {}
        for state in State:
            for event in Event:
                reached = channel_next(self._machine, state, event)
                if reached != CHANNEL_ILLEGAL:
                    legal[state, event] = State(reached)
        return legal


Status = IntEnum(
    "Status",
    {
        "OK": SLOT_OK, "FULL": SLOT_FULL, "BAD_ID": SLOT_BAD_ID,
        "ALREADY_FILLED": SLOT_ALREADY_FILLED, "EMPTY": SLOT_EMPTY, "NOT_READY": SLOT_NOT_READY,
        "NOT_EMPTY": SLOT_NOT_EMPTY, "NO_MEMORY": SLOT_NO_MEMORY, "BAD_ARGUMENT": SLOT_BAD_ARGUMENT,
    },
    module=__name__,
)


cdef class ResponseSlots:
    """A SlotQueue whose responses are Python objects; it holds one reference to each."""

    cdef SlotQueue _queue

    def __cinit__(self, uint32_t count_max, uint64_t bytes_max):
        if slots_init(&self._queue, count_max, bytes_max) != SLOT_OK:
            raise ValueError(f"bounds of a slot queue: count {count_max}, bytes {bytes_max}")

    def __dealloc__(self):
        cdef Slot slot
        while slots_discard(&self._queue, &slot) == SLOT_OK:
            if slot.response != NULL:
                Py_DECREF(<object>slot.response)
        slots_release(&self._queue)

    def push(self, uint64_t request_id, uint32_t bytes, response=None):
        cdef void* answer = NULL if response is None else <void*>response
        cdef int status = slots_push(&self._queue, request_id, bytes, answer)
        if status == SLOT_OK and answer != NULL:
            Py_INCREF(response)
        return Status(status)

    def fill(self, uint64_t request_id, response):
        cdef void* answer = NULL if response is None else <void*>response
        cdef int status = slots_fill(&self._queue, request_id, answer)
        if status == SLOT_OK:
            Py_INCREF(response)
        return Status(status)

    def pop(self):
        cdef Slot slot
        cdef int status = slots_pop(&self._queue, &slot)
        if status != SLOT_OK:
            return Status(status)
        return self._taken(&slot)

    def discard(self):
        cdef Slot slot
        cdef int status = slots_discard(&self._queue, &slot)
        if status != SLOT_OK:
            return Status(status)
        return self._taken(&slot)

    cdef tuple _taken(self, Slot* slot):
        # The queue's reference becomes the tuple's.
        if slot.response == NULL:
            return slot.request_id, None, slot.bytes
        response = <object>slot.response
        Py_DECREF(response)
        return slot.request_id, response, slot.bytes

    def release(self):
        return Status(slots_release(&self._queue))

    @property
    def head_ready(self):
        return bool(slots_head_ready(&self._queue))

    @property
    def room(self):
        return slots_room(&self._queue)

    @property
    def bytes(self):
        return slots_bytes(&self._queue)

    @property
    def capacity(self):
        return self._queue.capacity

    def __len__(self):
        return slots_count(&self._queue)
