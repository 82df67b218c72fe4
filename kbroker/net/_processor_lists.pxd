# cython: language_level=3
"""The lists of a Processor's open channels: by their last activity, and those that are ready.

Inline, no module of its own. In the Processor's turn.
"""

from kbroker.core._require cimport require, require_same
from kbroker.net._types cimport Channel, Processor


# The most recently active: it goes to the end.
cdef inline void note_active(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    channel.last_active_ns = processor.now_ns
    if processor.newest == channel:
        return
    if channel.older != NULL:
        require_same(channel.older.newer, channel, "channel: the less recent one names it")
        channel.older.newer = channel.newer
    elif processor.oldest == channel:
        processor.oldest = channel.newer
    if channel.newer != NULL:
        require_same(channel.newer.older, channel, "channel: the more recent one names it")
        channel.newer.older = channel.older
    channel.older = processor.newest
    channel.newer = NULL
    if processor.newest != NULL:
        processor.newest.newer = channel
    processor.newest = channel
    if processor.oldest == NULL:
        processor.oldest = channel


cdef inline void remove_recent(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.older != NULL:
        require_same(channel.older.newer, channel, "closed channel: the less recent names it")
        channel.older.newer = channel.newer
    else:
        require_same(processor.oldest, channel, "closed channel: the least recent is first")
        processor.oldest = channel.newer
    if channel.newer != NULL:
        require_same(channel.newer.older, channel, "closed channel: the more recent names it")
        channel.newer.older = channel.older
    else:
        require_same(processor.newest, channel, "closed channel: the most recent is last")
        processor.newest = channel.older
    channel.older = NULL
    channel.newer = NULL


# It has something to do that no event will announce.
cdef inline void channel_make_ready(Channel* channel) noexcept nogil:
    cdef Processor* processor = channel.processor
    if channel.ready or channel.closed:
        return
    channel.ready = 1
    channel.next_ready = NULL
    if processor.ready_tail == NULL:
        require(processor.ready_head == NULL, "ready channels: none without a last", 0, 0)
        processor.ready_head = channel
    else:
        require(processor.ready_tail.ready, "ready channels: the last one is one", 0, 1)
        processor.ready_tail.next_ready = channel
    processor.ready_tail = channel
