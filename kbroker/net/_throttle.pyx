# cython: language_level=3
"""Channels that are not read for a time, since their client has to wait (KIP-219).

A Processor lists those of its own with the time until which they are throttled, the latest that
was asked for. It looks through the list with each turn and sleeps no longer than to the first:
there are as many as quotas are exceeded, not as many as connections. What a throttle means for a
channel is the table's affair (`_state`). A closed channel leaves the list at the next look, and is
not freed before. When quotas have changed all channels leave it: who is over a new quota is
throttled with its next answer, and who has none does not wait for the end of an old one.

Threads: who has the Processor's turn.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.core._require cimport require_same
from kbroker.net._types cimport Channel, Processor


cdef inline int64_t _changes(const Processor* processor) noexcept nogil:
    return kb_load_i64(&processor.request_channel.quota_changes)


cdef int throttle_until(Channel* channel, int64_t until_ns) noexcept nogil:
    cdef Processor* processor = channel.processor
    cdef int is_new = channel.throttled_until_ns == 0
    if until_ns > channel.throttled_until_ns:
        channel.throttled_until_ns = until_ns
    channel.throttled_in = _changes(processor)
    if is_new:
        channel.next_throttled = processor.throttled
        processor.throttled = channel
    return is_new


cdef Channel* throttle_over(Processor* processor) noexcept nogil:
    cdef Channel** place = &processor.throttled
    cdef Channel* channel
    while place[0] != NULL:
        channel = place[0]
        require_same(channel.processor, processor, "throttled channels: each is of its Processor")
        if (
            channel.closed
            or channel.throttled_until_ns <= processor.now_ns
            or channel.throttled_in != _changes(processor)
        ):
            place[0] = channel.next_throttled
            channel.throttled_until_ns = 0
            return channel
        place = &channel.next_throttled
    return NULL


cdef int throttle_sleep_ms(Processor* processor, int timeout_ms) noexcept nogil:
    cdef Channel* channel = processor.throttled
    cdef int64_t left_ms
    while channel != NULL:
        left_ms = (channel.throttled_until_ns - processor.now_ns + 999999) // 1000000
        if left_ms < timeout_ms:
            timeout_ms = <int>max(left_ms, 0)
        channel = channel.next_throttled
    return timeout_ms
