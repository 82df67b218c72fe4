# cython: language_level=3
"""Invariants of a channel and of the answers that it sends; inline, without a module.

Each function answers 0 where it does not: that is counted and reported, and the caller closes the
channel before it sends, or reads, anything more.
"""

from libc.stdint cimport int64_t

from kbroker.core._figures cimport kb_count
from kbroker.core._require cimport OF_CONNECTION, require_of
from kbroker.net._types cimport (
    ACTION_NO_OP, ACTION_NONE, ACTION_SEND, CAUSE_INVARIANT, Channel, Part, Request)
from kbroker.protocol._cursor cimport kb_get_u32


cdef inline int channel_requires(
    const Channel* channel, int holds, const char* text, int64_t found, int64_t required
) noexcept nogil:
    if require_of(
        OF_CONNECTION, <int64_t>channel.connection_id, NULL, holds, text, found, required
    ):
        return 1
    kb_count(&channel.processor.closes[CAUSE_INVARIANT], 1)
    return 0


# Before anything of it goes out.
cdef inline int answer_is_whole(const Channel* channel, const Request* request) noexcept nogil:
    cdef int64_t length = 0
    cdef int64_t announced
    cdef int at
    if not (
        channel_requires(channel, request.request_id < channel.next_request_id,
                         "channel: an answer is to a request that was read",
                         <int64_t>request.request_id, <int64_t>channel.next_request_id)
        and channel_requires(channel, request.frames >= 1, "channel: an answer is to a frame",
                             request.frames, 1)
        and channel_requires(channel, request.part_next == 0,
                             "channel: nothing of a new answer was sent", request.part_next, 0)
        and channel_requires(channel, request.action != ACTION_NONE,
                             "channel: an answer has an action", request.action, ACTION_SEND)
        and channel_requires(channel, request.action != ACTION_NO_OP or request.part_count == 0,
                             "channel: no answer has no parts", request.part_count, 0)
    ):
        return 0
    if request.part_count == 0:
        return 1
    for at in range(request.part_count):
        length += request.parts[at].length
    if not channel_requires(
        channel,
        request.parts[0].fd < 0 and request.parts[0].data != NULL and request.parts[0].length >= 4,
        "channel: an answer begins with its size", request.parts[0].length, 4
    ):
        return 0
    # A train's frames are in one part: its first size is of the first alone.
    announced = 4 + <int64_t>kb_get_u32(request.parts[0].data)
    return channel_requires(
        channel, announced == length or (request.frames > 1 and announced < length),
        "channel: an answer is as long as its size says", length, announced)


# Before a part goes to the socket: bytes in memory, or a range of a file that is open.
cdef inline int part_is_sound(const Channel* channel, const Part* part) noexcept nogil:
    if part.fd < 0:
        return channel_requires(channel, part.data != NULL and part.length >= 0,
                                "channel: bytes that are sent are there", part.length, 0)
    return channel_requires(channel, part.position >= 0 and part.length >= 0,
                            "channel: a range that is sent is in its file",
                            part.position, part.length)
