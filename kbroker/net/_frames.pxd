# cython: language_level=3
from kbroker.net._types cimport Channel, Request

cdef enum FramesStatus:
    FRAMES_GOT = 0
    FRAMES_NONE = 1               # nothing more for now
    FRAMES_GONE = 2               # the peer, or memory, is gone
    FRAMES_BAD = 3                # a size that is not acceptable
    FRAMES_ENDED = 4              # the peer sends no more; it may still read
    FRAMES_LATE = 5               # a request after the end of its session
    FRAMES_REFUSED = 6            # too many bytes of all that have not authenticated

cdef void frames_bound(Channel* channel) noexcept nogil
cdef int frames_receive(Channel* channel) noexcept nogil
cdef int frames_next(Channel* channel, Request** taken) noexcept nogil
# The name that the transport has proved of the peer, as a request; FRAMES_NONE: there is none.
cdef int frames_peer_name(Channel* channel, Request** taken) noexcept nogil
# Why a frame is not acceptable.
cdef int frames_bad_cause(const Channel* channel) noexcept nogil
cdef void frames_drop(Channel* channel) noexcept nogil
# FRAMES_REFUSED: the connection is to end.
cdef int frames_compact(Channel* channel) noexcept nogil
