# cython: language_level=3
"""The transport of a channel: how its bytes reach the socket. Inline, no module after it.

The plain transport is the socket itself: no structure, no call through a pointer, one comparison.
Any other is a table of operations (`Transport`) that its listener names. It may move fewer bytes
than it could, hold bytes that no event of the socket announces, and want to write in order to read
or to read in order to write; it never waits. In the Processor's turn, without the GIL.

Epoll is edge-triggered. So of a transport that is not the plain one a channel stays `readable`
until the transport wants a read, or has drained the socket and itself, which it says: else a thread
would look once more for each request. A short write does not mean that the socket is full.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker.net._types cimport (
    TRANSPORT_FAILED, TRANSPORT_WANTS_READ, TRANSPORT_WANTS_WRITE, Channel)

cdef extern from "socket_io.h" nogil:
    ssize_t kb_recv(int fd, void* data, size_t length)
    int kb_has_bytes(int fd)
    void kb_end_sending(int fd)
    int kb_discard(int fd)


# Whether there are bytes to be received, and not just the end.
cdef inline int transport_has_bytes(Channel* channel) noexcept nogil:
    return (
        channel.transport != NULL and channel.transport.has_bytes(channel.transport_own)
    ) or kb_has_bytes(channel.fd)


# The bytes that came, 0 at the peer's end, or a TransportStatus below 0; `drained`: the next byte
# will be a new edge.
cdef inline int64_t transport_receive(
    Channel* channel, uint8_t* into, int64_t room, int* drained
) noexcept nogil:
    cdef int64_t got
    if channel.transport != NULL:
        return channel.transport.receive(channel.transport_own, into, room, drained)
    got = kb_recv(channel.fd, into, <size_t>room)
    drained[0] = got < room
    if got < 0:
        return TRANSPORT_WANTS_READ if errno == EAGAIN else TRANSPORT_FAILED
    return got


# Notes what the transport waits for: nothing is received before that.
cdef inline void transport_wants(Channel* channel, int64_t status) noexcept nogil:
    channel.readable = 0
    if status == TRANSPORT_WANTS_WRITE:
        channel.writable = 0
        channel.receive_wants_write = 1


# Ends the sending side, after everything that was sent.
cdef inline void transport_end_sending(Channel* channel) noexcept nogil:
    if channel.transport != NULL:
        channel.transport.end_sending(channel.transport_own)
    kb_end_sending(channel.fd)


# After the last answer. 1: the peer has ended its side, too. A socket that is closed while bytes
# wait in it resets the connection, and the peer may lose what it has not read: they are discarded.
cdef inline int transport_end(Channel* channel) noexcept nogil:
    if channel.ended_ns == 0:
        channel.ended_ns = channel.processor.now_ns
        transport_end_sending(channel)
    return kb_discard(channel.fd)


# Before the socket is closed.
cdef inline void transport_close(Channel* channel) noexcept nogil:
    if channel.transport != NULL and channel.transport_own != NULL:
        channel.transport.close(channel.transport_own)
        channel.transport_own = NULL
