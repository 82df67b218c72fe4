# cython: language_level=3
"""A transport for tests that is as awkward as TLS may be, and that masks every byte.

A peer that meets a byte which did not go through the transport reads nonsense. What it does:

- a handshake in three steps: the client sends HELO, the server OLEH, the client `final_bytes`, one
  if not said otherwise, of which the last is the mask;
- records of at most `record_bytes`, a length of two bytes before each, in both directions; a send
  takes one, and after a full socket it insists on the same bytes;
- one receive of the socket fetches many records, and a receive of the channel gets at most
  `move_bytes` of them: no event announces the rest;
- a record of UPDATE makes the server send UPDATE_BYTES before it receives anything else;
- with `says_late` it wants to write only when all of an UPDATE has been sent;
- after `acks_every` records (0: never) it waits for a record of ACK before it sends the next;
- an empty record is the end;
- with `opens` false it opens for no connection;
- from the step of handshakes that `hold` names, steps wait, and the thread of their Processor with
  them, until another one is named, or none.

A test's process only: the broker never imports it.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset

from posix.unistd cimport usleep

from kbroker.core._atomics cimport kb_add_i64, kb_load_i64, kb_store_i64
from kbroker.net._listener_transport cimport ListenerTransport
from kbroker.net._types cimport (
    TRANSPORT_ANSWERED, TRANSPORT_DONE, TRANSPORT_FAILED, TRANSPORT_WANTS_READ,
    TRANSPORT_WANTS_WRITE, Transport)

cdef extern from "socket_io.h" nogil:
    ssize_t kb_recv(int fd, void* data, size_t length)
    int kb_has_bytes(int fd)
    ssize_t send(int fd, const void* data, size_t length, int flags)
    enum: MSG_NOSIGNAL

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    enum: POLLOUT

cdef enum:
    WAITS_MS_MAX = 60000
    HOLD_US = 100
    RAW_BYTES = 64 << 10
    PLAIN_BYTES = 256 << 10       # a test sends no more while the server waits for an ACK
    RECORD_BYTES_MAX = 16 << 10
    C_UPDATE = 0xffff
    C_ACK = 0xfffe
    C_UPDATE_BYTES = 512 << 10

UPDATE = C_UPDATE
ACK = C_ACK
UPDATE_BYTES = C_UPDATE_BYTES


cdef struct Options:
    int64_t record_bytes
    int64_t move_bytes
    int64_t acks_every
    int64_t opened
    int64_t closed
    int64_t changed               # sends that were given other bytes than before
    int64_t starved               # sends that waited for an ACK
    int64_t receives
    int64_t says_late             # of an UPDATE: it wants to write when all of it has been sent
    int64_t opens
    int64_t final_bytes           # of the client's last step
    int64_t held_from             # atomic: so many steps do not wait; -1: none does
    int64_t steps                 # of handshakes
    int64_t steps_at_receive      # so many when bytes were received last


cdef struct Masked:
    Options* options
    int fd
    int step                      # of the handshake
    uint8_t mask
    int ended
    int64_t update_left           # of the bytes that an UPDATE asks for
    int64_t unacked
    int64_t raw_start
    int64_t raw_end
    int64_t plain_start
    int64_t plain_end
    int64_t out_start             # of a record on its way
    int64_t out_end
    int64_t out_taken             # of the bytes given
    uint8_t raw[RAW_BYTES]
    uint8_t plain[PLAIN_BYTES]
    uint8_t out[RECORD_BYTES_MAX + 2]
    uint8_t given[RECORD_BYTES_MAX]


cdef int _open(void* context, int fd, void** own) noexcept nogil:
    cdef Masked* masked
    if not (<Options*>context).opens:
        return -1
    masked = <Masked*>calloc(1, sizeof(Masked))
    if masked == NULL:
        return -1
    masked.options = <Options*>context
    masked.fd = fd
    kb_add_i64(&masked.options.opened, 1)
    own[0] = masked
    return 0


cdef int64_t _fill(Masked* masked) noexcept nogil:
    # More raw bytes; 0: the peer has ended.
    cdef int64_t got
    if masked.raw_start > 0:
        memmove(masked.raw, masked.raw + masked.raw_start,
                <size_t>(masked.raw_end - masked.raw_start))
        masked.raw_end -= masked.raw_start
        masked.raw_start = 0
    if masked.raw_end == RAW_BYTES:
        return TRANSPORT_FAILED
    got = kb_recv(masked.fd, masked.raw + masked.raw_end, <size_t>(RAW_BYTES - masked.raw_end))
    if got < 0:
        return TRANSPORT_WANTS_READ if errno == EAGAIN else TRANSPORT_FAILED
    masked.raw_end += got
    return got


cdef int _flush(Masked* masked) noexcept nogil:
    cdef int64_t sent
    while masked.out_start < masked.out_end:
        sent = send(masked.fd, masked.out + masked.out_start,
                    <size_t>(masked.out_end - masked.out_start), MSG_NOSIGNAL)
        if sent < 0:
            return TRANSPORT_WANTS_WRITE if errno == EAGAIN else TRANSPORT_FAILED
        masked.out_start += sent
    return TRANSPORT_DONE


cdef int _handshake(void* own) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    cdef int64_t status
    cdef int answers = masked.step < 2
    kb_add_i64(&masked.options.steps, 1)
    while 0 <= kb_load_i64(&masked.options.held_from) < kb_load_i64(&masked.options.steps):
        usleep(HOLD_US)
    if masked.step == 0:
        while masked.raw_end < 4:
            status = _fill(masked)
            if status <= 0:
                return TRANSPORT_FAILED if status == 0 else <int>status
        if memcmp(masked.raw, b"HELO", 4) != 0:
            return TRANSPORT_FAILED
        masked.raw_start = 4
        memcpy(masked.out, b"OLEH", 4)
        masked.out_end = 4
        masked.step = 1
    if masked.step == 1:
        status = _flush(masked)
        if status != TRANSPORT_DONE:
            return <int>status
        masked.step = 2
    while masked.raw_end - masked.raw_start < masked.options.final_bytes:
        status = _fill(masked)
        if status == TRANSPORT_WANTS_READ and answers:
            return TRANSPORT_ANSWERED
        if status <= 0:
            return TRANSPORT_FAILED if status == 0 else <int>status
    masked.raw_start += masked.options.final_bytes
    masked.mask = masked.raw[masked.raw_start - 1]
    masked.step = 3
    return TRANSPORT_DONE


cdef int _unmask(Masked* masked) noexcept nogil:
    # The next whole record among the raw bytes; 0: there is none, or no room for it.
    cdef uint8_t* at = masked.raw + masked.raw_start
    cdef int64_t have = masked.raw_end - masked.raw_start
    cdef int64_t length
    cdef int64_t i
    if have < 2:
        return 0
    length = (<int64_t>at[0] << 8) | at[1]
    if length == C_UPDATE or length == C_ACK:
        if length == C_ACK:
            masked.unacked = 0
        else:
            masked.update_left = C_UPDATE_BYTES
        masked.raw_start += 2
        return 1
    if have < 2 + length:
        return 0
    if length == 0:
        masked.ended = 1
        return 0
    if PLAIN_BYTES - masked.plain_end < length:
        memmove(masked.plain, masked.plain + masked.plain_start,
                <size_t>(masked.plain_end - masked.plain_start))
        masked.plain_end -= masked.plain_start
        masked.plain_start = 0
    if PLAIN_BYTES - masked.plain_end < length:
        return 0
    for i in range(length):
        masked.plain[masked.plain_end + i] = at[2 + i] ^ masked.mask
    masked.plain_end += length
    masked.raw_start += 2 + length
    return 1


cdef int _update(Masked* masked) noexcept nogil:
    # Zeros, which no record begins with: the peer knows how many.
    cdef uint8_t zeros[4096]
    cdef int64_t sent
    memset(zeros, 0, sizeof(zeros))
    while masked.update_left > 0:
        sent = send(masked.fd, zeros, <size_t>min(masked.update_left, <int64_t>sizeof(zeros)),
                    MSG_NOSIGNAL)
        if sent < 0:
            return TRANSPORT_WANTS_WRITE if errno == EAGAIN else TRANSPORT_FAILED
        masked.update_left -= sent
    return TRANSPORT_DONE


cdef void _update_waiting(Masked* masked) noexcept nogil:
    # As if the peer were so fast: there is room again before the channel knows of none.
    cdef pollfd fds
    fds.fd = masked.fd
    fds.events = POLLOUT
    while _update(masked) == TRANSPORT_WANTS_WRITE:
        fds.revents = 0
        poll(&fds, 1, WAITS_MS_MAX)


cdef int64_t _receive(void* own, uint8_t* into, int64_t room, int* drained) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    cdef int64_t got = _received(masked, into, room)
    if got > 0:
        kb_store_i64(&masked.options.steps_at_receive, kb_load_i64(&masked.options.steps))
    drained[0] = 0 < got < room and not _has_bytes(own) and not kb_has_bytes(masked.fd)
    return got


cdef int64_t _received(Masked* masked, uint8_t* into, int64_t room) noexcept nogil:
    cdef int64_t status
    cdef int64_t count
    kb_add_i64(&masked.options.receives, 1)
    while True:
        while masked.update_left == 0 and _unmask(masked):
            pass
        if masked.update_left > 0:
            if masked.out_start < masked.out_end:
                return TRANSPORT_WANTS_WRITE
            status = _update(masked)
            if status == TRANSPORT_WANTS_WRITE and masked.options.says_late:
                _update_waiting(masked)
            if status != TRANSPORT_DONE:
                return status
            continue
        count = min(min(room, masked.options.move_bytes), masked.plain_end - masked.plain_start)
        if count > 0:
            memcpy(into, masked.plain + masked.plain_start, <size_t>count)
            masked.plain_start += count
            return count
        if masked.ended:
            return TRANSPORT_DONE
        status = _fill(masked)
        if status <= 0:
            return status


cdef int64_t _send(void* own, const uint8_t* data, int64_t length, int more) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    cdef int64_t status
    cdef int64_t i
    if masked.out_start == masked.out_end:
        while masked.options.acks_every and masked.unacked >= masked.options.acks_every:
            if not _unmask(masked):
                status = _fill(masked)
                if status == TRANSPORT_WANTS_READ:
                    kb_add_i64(&masked.options.starved, 1)
                if status <= 0:
                    return TRANSPORT_FAILED if status == 0 else status
        if masked.update_left > 0:
            status = _update(masked)
            if status != TRANSPORT_DONE:
                return status
        masked.out_taken = min(length, masked.options.record_bytes)
        memcpy(masked.given, data, <size_t>masked.out_taken)
        masked.out[0] = <uint8_t>(masked.out_taken >> 8)
        masked.out[1] = <uint8_t>masked.out_taken
        for i in range(masked.out_taken):
            masked.out[2 + i] = data[i] ^ masked.mask
        masked.out_start = 0
        masked.out_end = 2 + masked.out_taken
    elif length < masked.out_taken or memcmp(
        masked.given, data, <size_t>masked.out_taken
    ) != 0:
        kb_add_i64(&masked.options.changed, 1)
        return TRANSPORT_FAILED
    status = _flush(masked)
    if status != TRANSPORT_DONE:
        return status
    masked.unacked += 1
    return masked.out_taken


cdef int _has_bytes(void* own) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    return masked.plain_start < masked.plain_end or masked.raw_start < masked.raw_end


cdef void _end_sending(void* own) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    cdef uint8_t end[2]
    memset(end, 0, sizeof(end))
    if masked.step == 3 and masked.out_start == masked.out_end:
        send(masked.fd, end, sizeof(end), MSG_NOSIGNAL)


cdef void _close(void* own) noexcept nogil:
    cdef Masked* masked = <Masked*>own
    _end_sending(own)
    kb_add_i64(&masked.options.closed, 1)
    free(masked)


cdef Transport OPERATIONS
OPERATIONS.open = _open
OPERATIONS.handshake = _handshake
OPERATIONS.receive = _receive
OPERATIONS.send = _send
OPERATIONS.has_bytes = _has_bytes
OPERATIONS.end_sending = _end_sending
OPERATIONS.close = _close


cdef class MaskedTransport(ListenerTransport):
    """Give it to `SocketServer.listen`."""

    cdef Options options

    def __cinit__(
        self, int record_bytes=1000, int move_bytes=700, int acks_every=0, bint says_late=False,
        bint opens=True, int final_bytes=1,
    ):
        if not (0 < record_bytes <= RECORD_BYTES_MAX and move_bytes > 0 and 0 < final_bytes < 100):
            raise ValueError(f"records of {record_bytes} bytes, moves of {move_bytes}")
        memset(&self.options, 0, sizeof(Options))
        self.options.record_bytes = record_bytes
        self.options.move_bytes = move_bytes
        self.options.acks_every = acks_every
        self.options.says_late = says_late
        self.options.opens = opens
        self.options.final_bytes = final_bytes
        self.options.held_from = -1
        self.operations = &OPERATIONS
        self.context = &self.options

    def hold(self, int64_t steps):
        """So many steps of handshakes do not wait; -1: none does."""
        kb_store_i64(&self.options.held_from, steps)

    @property
    def steps(self):
        """Of handshakes, the one that waits among them."""
        return kb_load_i64(&self.options.steps)

    @property
    def steps_at_receive(self):
        """How many there had been when bytes of an open connection were received last."""
        return kb_load_i64(&self.options.steps_at_receive)

    @property
    def opened(self):
        return kb_load_i64(&self.options.opened)

    @property
    def closed(self):
        return kb_load_i64(&self.options.closed)

    @property
    def starved(self):
        return kb_load_i64(&self.options.starved)

    @property
    def receives(self):
        return kb_load_i64(&self.options.receives)

    @property
    def changed(self):
        return kb_load_i64(&self.options.changed)
