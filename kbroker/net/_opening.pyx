# cython: language_level=3
"""A Processor's connections that are not open yet: they shake hands, or authenticate.

**Which one gives way.** In a crowd one of them is closed for each that comes. Not the oldest: it is
the nearest to the end of its login, so if more connections come within the time of a login than the
bound has places, no login ends, and all clients connect again. Not the one that comes: silent
connections would keep all places until their time is over. So it is one at random, and then each
login has a chance: of two that are drawn, the one whose address has more connections that are not
open. A few addresses with very many keep no client of another address out. Nor do very many
addresses keep out one with many clients (NAT): two are drawn and not all compared, so a connection
is closed at most twice as often as if it were drawn alone.

They are in an array, in any order. In the Processor's turn.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport realloc

from kbroker._state cimport HANDSHAKING
from kbroker.core._atomics cimport kb_add_i64
from kbroker.core._keyed_hash cimport kb_keyed_hash
from kbroker.core._require cimport require_same
from kbroker.net._quotas cimport quota_is_crowded, quota_opened, quota_opening
from kbroker.net._types cimport Channel, Processor, Request

cdef enum:
    ROOM_FIRST = 16
    FRAMES_FREE = 16


cdef int channel_is_opening(const Channel* channel) noexcept nogil:
    return channel.state >= HANDSHAKING


cdef int opening_make_room(Processor* processor) noexcept nogil:
    cdef int room = max(<int>ROOM_FIRST, 2 * processor.opening_room)
    cdef Channel** grown
    if processor.opening_count == processor.opening_room:
        grown = <Channel**>realloc(processor.opening, <size_t>room * sizeof(Channel*))
        if grown == NULL:
            return -1
        processor.opening = grown
        processor.opening_room = room
    return 0


cdef void opening_add(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    channel.opening_since_ns = processor.now_ns
    channel.opening_at = processor.opening_count
    processor.opening[processor.opening_count] = channel
    processor.opening_count += 1


cdef void opening_gives_back(Channel* channel, const Request* request) noexcept nogil:
    """A frame of its authentication has come back: the time in which a handler had it was not the
    client's. Of the first frames, which are more than any mechanism has: for a client that sends
    its frames ahead a handler nearly always has one."""
    if request.request_id < FRAMES_FREE:
        channel.opening_since_ns += channel.processor.now_ns - request.received_ns


cdef void opening_remove(Channel* channel) noexcept nogil:
    """The last one takes its place, so a walk from the last to the first may remove any."""
    cdef Processor* processor = channel.processor
    cdef Channel* last = processor.opening[processor.opening_count - 1]
    require_same(processor.opening[channel.opening_at], channel,
                 "opening channels: each is at its place")
    processor.opening[channel.opening_at] = last
    last.opening_at = channel.opening_at
    processor.opening_count -= 1
    kb_add_i64(&processor.settings.opening_total, -channel.opening_bytes)
    channel.opening_bytes = 0
    quota_opened(channel.ip_entry)


cdef Channel* opening_to_close(Processor* processor, const Channel* newest) noexcept nogil:
    """The one that gives way to `newest`; NULL: there is room, or this Processor has no other."""
    cdef Channel* one
    cdef Channel* other
    if (
        not channel_is_opening(newest) or processor.opening_count < 2
        or not quota_is_crowded(newest.ip_entry)
    ):
        return NULL
    one = _drawn(processor, newest)
    other = _drawn(processor, newest)
    return other if quota_opening(other.ip_entry) > quota_opening(one.ip_entry) else one


cdef Channel* _drawn(Processor* processor, const Channel* newest) noexcept nogil:
    # Any but the newest: where its place is drawn, the last one is meant.
    cdef uint64_t others = <uint64_t>(processor.opening_count - 1)
    cdef uint64_t key = processor.settings.draw_key + <uint64_t>processor.index
    cdef uint64_t drawn
    processor.draws += 1
    drawn = kb_keyed_hash(
        key, <const uint8_t*>&processor.draws, sizeof(processor.draws)) % others
    return processor.opening[others if <int>drawn == newest.opening_at else drawn]
