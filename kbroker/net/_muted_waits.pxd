# cython: language_level=3
"""How long channels are muted with bytes waiting: what TotalTimeMs cannot see."""

from libc.stdint cimport int64_t

from kbroker.core._figures cimport kb_count
from kbroker.net._transport cimport transport_has_bytes
from kbroker.net._types cimport PEER_ENDED, WAIT_BUCKETS, Channel, MutedWaits


# A peer that only went away after its long poll has none.
cdef inline void note_waits(Channel* channel) noexcept nogil:
    if channel.waiting_since_ns != 0:
        return
    if (
        channel.rx == NULL and channel.readable == PEER_ENDED
        and not transport_has_bytes(channel)
    ):
        return
    channel.waiting_since_ns = channel.processor.now_ns
    kb_count(&channel.processor.muted[channel.listener].waiting, 1)


cdef inline void note_waited(Channel* channel) noexcept nogil:
    cdef MutedWaits* waits = &channel.processor.muted[channel.listener]
    cdef int64_t waited_ns
    cdef int64_t waited_us
    cdef int bucket = 0
    if channel.waiting_since_ns == 0:
        return
    waited_ns = channel.processor.now_ns - channel.waiting_since_ns
    waited_us = waited_ns // 1000
    while waited_us > 0 and bucket < WAIT_BUCKETS - 1:
        waited_us >>= 1
        bucket += 1
    kb_count(&waits.waiting, -1)
    kb_count(&waits.count, 1)
    kb_count(&waits.sum_ns, waited_ns)
    kb_count(&waits.buckets[bucket], 1)
    channel.waiting_since_ns = 0
