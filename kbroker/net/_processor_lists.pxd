# cython: language_level=3
"""The lists of a Processor's channels: by their last activity, those that are ready, and those
that shake hands. Those that are not open yet: `_opening`.

Inline, no module of its own. In the Processor's turn.
"""

from kbroker.core._list cimport linked_append, linked_insert, linked_remove, list_append
from kbroker.net._types cimport SHAKES_FIRST, SHAKES_SOON, Channel, Listener, Processor


cdef inline void _move_to_newest(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.newer != NULL:     # else it is new
        linked_remove(&processor.oldest, &processor.newest, channel, &channel.older,
                      "channel: neighbours by activity name each other")
    linked_append(&processor.oldest, &processor.newest, channel, &channel.older,
                  "channel: nothing is more recent than the newest")


# The most recently active: it goes to the end.
cdef inline void note_active(Channel* channel) noexcept nogil:
    channel.last_active_ns = channel.processor.now_ns
    if channel.processor.newest != channel:
        _move_to_newest(channel)


cdef inline void remove_recent(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    linked_remove(&processor.oldest, &processor.newest, channel, &channel.older,
                  "closed channel: neighbours by activity name each other")


# Whether its connections are to shake hands or to authenticate before their first request.
cdef inline int listener_opens(const Listener* listener) noexcept nogil:
    return listener.transport != NULL or listener.authenticates


cdef enum:
    # Above SHAKES_*: how many steps of it were before those of others.
    SHAKES_STEP = 4
    SHAKES_STEPS_MAX = 12


# Its handshake can go on: it waits for its turn among others (_shaking).
cdef inline void channel_shake_soon(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    cdef int is_first = channel.shakes & SHAKES_FIRST
    if (channel.shakes & SHAKES_SOON) or channel.closed:
        return
    channel.shakes |= SHAKES_SOON
    if is_first:
        linked_insert(&processor.shaking, &processor.shaking_last, channel,
                      &channel.shaking_before, NULL,
                      "channels that shake hands: nothing is before the first")
        return
    linked_append(&processor.shaking, &processor.shaking_last, channel, &channel.shaking_before,
                  "channels that shake hands: nothing is after the last")


cdef inline void remove_shaking(Channel* channel) noexcept nogil:
    channel.shakes &= ~SHAKES_SOON
    linked_remove(&channel.processor.shaking, &channel.processor.shaking_last, channel,
                  &channel.shaking_before, "channels that shake hands: neighbours name each other")


# After a step: whether its next one is before those of others.
cdef inline void channel_note_step(Channel* channel, int is_answered) noexcept nogil:
    if is_answered:
        channel.shakes |= SHAKES_FIRST
    elif channel.shakes & SHAKES_FIRST:
        channel.shakes += SHAKES_STEP
    if channel.shakes >= SHAKES_STEP * SHAKES_STEPS_MAX:
        channel.shakes &= ~SHAKES_FIRST


# It has something to do that no event will announce.
cdef inline void channel_make_ready(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.ready or channel.closed:
        return
    channel.ready = 1
    list_append(&processor.ready_head, &processor.ready_tail, channel, &channel.next_ready,
                "ready channels: nothing is after the last")
