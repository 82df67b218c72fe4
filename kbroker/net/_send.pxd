# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Channel, Request

cdef enum SendStatus:
    SEND_DONE = 0                 # progress was made; there may be more
    SEND_BLOCKED = 1              # the socket is full; EPOLLOUT will tell
    SEND_FAILED = 2               # the peer is gone, or the file is shorter than was promised
    SEND_READS = 3                # what comes next is on the disk, and being read


# What tests make fail, as `log/engine/_file_operations` for the log's: filled when the module is
# imported, and constant in a broker.
cdef struct SendOperations:
    ssize_t (*send_file)(int fd, int file, int64_t position, size_t length) noexcept nogil

cdef SendOperations sends

# A read-ahead has come back.
cdef void send_read_ahead_done(Channel* channel, Request* request) noexcept nogil
cdef int send_piece(Channel* channel, int64_t* budget_bytes) noexcept nogil
cdef int send_some(Channel* channel, int64_t* budget_bytes) noexcept nogil
