# cython: language_level=3
"""Answers to the socket: consecutive bytes gathered into one call, file ranges by sendfile.

Called by the channel on its Processor's thread. A head in front of a file range is corked with
MSG_MORE, so that both leave in one segment; what the socket does not take now is resumed where it
stopped, also in the middle of a range. A range that ends before its promised length means that a
file was cut under a promise: the connection must end, since the announced size is already out.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t

from kbroker._figures cimport kb_count
from kbroker.net._types cimport Channel, Part, Request

cdef extern from "socket_io.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t kb_send_vector(int fd, iovec* vector, int count, int more)
    ssize_t kb_send_file(int fd, int file, int64_t position, size_t length)

cdef enum:
    VECTOR_MAX = 64
    RANGE_BYTES_MAX = 1 << 20     # of one sendfile call


cdef int _gather(Channel* channel, iovec* vector, int* more, int64_t* total) noexcept nogil:
    # The bytes at the front of the queue, up to the first file range.
    cdef Request* request = channel.tx_head
    cdef Part* part
    cdef int count = 0
    cdef int i
    more[0] = 0
    total[0] = 0
    while request != NULL:
        for i in range(request.part_next, request.part_count):
            part = &request.parts[i]
            if part.fd >= 0:
                more[0] = 1
                return count
            if count == VECTOR_MAX:
                return count
            vector[count].iov_base = part.data
            vector[count].iov_len = <size_t>part.length
            total[0] += part.length
            count += 1
        request = request.next
    return count


cdef void _advance(Channel* channel, int64_t sent) noexcept nogil:
    # Marks so many bytes as sent, from the front of the queue.
    cdef Request* request = channel.tx_head
    cdef Part* part
    while request != NULL:
        while request.part_next < request.part_count:
            part = &request.parts[request.part_next]
            if part.fd >= 0 or sent < part.length:
                if part.fd < 0:
                    part.data += sent
                    part.length -= sent
                return
            sent -= part.length
            request.part_next += 1
        request = request.next


cdef int _send_range(Channel* channel, Request* request, int64_t* budget_bytes) noexcept nogil:
    cdef Part* part = &request.parts[request.part_next]
    cdef int64_t want = part.length if part.length < RANGE_BYTES_MAX else RANGE_BYTES_MAX
    cdef ssize_t sent = kb_send_file(channel.fd, part.fd, part.position, <size_t>want)
    if sent < 0:
        return SEND_BLOCKED if errno == EAGAIN else SEND_FAILED
    if sent == 0 and part.length > 0:
        return SEND_FAILED
    part.position += sent
    part.length -= sent
    kb_count(&channel.processor.sent_bytes, sent)
    budget_bytes[0] -= sent
    if part.length == 0:
        if part.keeper != NULL:
            part.release(part.keeper)
            part.keeper = NULL
        request.part_next += 1
    return SEND_DONE


cdef int send_some(Channel* channel, int64_t* budget_bytes) noexcept nogil:
    """One system call's worth of the queue, which must not be empty."""
    cdef iovec vector[VECTOR_MAX]
    cdef int more
    cdef int64_t total
    cdef ssize_t sent
    cdef int count = _gather(channel, vector, &more, &total)
    if count == 0:
        return _send_range(channel, channel.tx_head, budget_bytes)
    sent = kb_send_vector(channel.fd, vector, count, more)
    if sent < 0:
        return SEND_BLOCKED if errno == EAGAIN else SEND_FAILED
    kb_count(&channel.processor.sent_bytes, sent)
    budget_bytes[0] -= sent
    _advance(channel, sent)
    return SEND_DONE if sent == total else SEND_BLOCKED
