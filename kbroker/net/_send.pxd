# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport Channel

cdef enum SendStatus:
    SEND_DONE = 0                 # progress was made; there may be more
    SEND_BLOCKED = 1              # the socket is full; EPOLLOUT will tell
    SEND_FAILED = 2               # the peer is gone, or the file is shorter than was promised

cdef int send_some(Channel* channel, int64_t* budget_bytes) noexcept nogil
