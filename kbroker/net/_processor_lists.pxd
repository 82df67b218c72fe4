# cython: language_level=3
"""The lists of a Processor's open channels: by their last activity, and those that are ready.

Inline, no module of its own. In the Processor's turn.
"""

from kbroker.core._list cimport linked_append, linked_remove, list_append
from kbroker.net._types cimport Channel, Processor


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


# It has something to do that no event will announce.
cdef inline void channel_make_ready(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.ready or channel.closed:
        return
    channel.ready = 1
    list_append(&processor.ready_head, &processor.ready_tail, channel, &channel.next_ready,
                "ready channels: nothing is after the last")
