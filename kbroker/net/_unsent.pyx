# cython: language_level=3
"""Answers that wait in memory because their peers do not read them, over all connections.

A request of a few bytes may have an answer of megabytes, and a peer that takes none of it costs
nothing but a connection. So the bytes that such answers hold are counted together, and bounded by
queued.max.response.bytes: beyond half of that a connection with such answers is not read, beyond
it those are closed whose peers have taken nothing for longest (`_ending`).

What is counted is the memory of an answer, whole, from the first attempt to send it until all of it
has left: one that its socket takes at once costs a comparison. A range of a file is not in memory.
In the Processor's turn; only the total is shared.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_add_i64, kb_cas_i64, kb_load_i64, kb_store_i64
from kbroker.core._require cimport OF_COUNT, require_of
from kbroker.net._types cimport Channel, NetworkSettings, Request


cdef void _add(Channel* channel, int64_t delta_bytes) noexcept nogil:
    cdef int64_t total = kb_add_i64(&channel.processor.settings.unsent_total, delta_bytes)
    channel.unsent_bytes += delta_bytes
    if not require_of(OF_COUNT, <int64_t>channel.connection_id, NULL,
                      total >= channel.unsent_bytes >= 0,
                      "unsent answers: a channel's are among all", channel.unsent_bytes, total):
        _correct(channel)


cdef void _correct(Channel* channel) noexcept nogil:
    # The total by as much as the channel's, and to that at least: other channels add meanwhile, or
    # correct it as well.
    cdef int64_t* total = &channel.processor.settings.unsent_total
    cdef int64_t known_bytes = max(<int64_t>0, channel.unsent_bytes)
    cdef int64_t found = kb_add_i64(total, known_bytes - channel.unsent_bytes)
    channel.unsent_bytes = known_bytes
    while found < known_bytes and not kb_cas_i64(total, found, known_bytes):
        found = kb_load_i64(total)


cdef void unsent_add(Channel* channel, Request* request) noexcept nogil:
    cdef int64_t since_ns
    if request.is_unsent or request.own_bytes == 0:
        return
    request.is_unsent = 1
    _add(channel, request.own_bytes)
    since_ns = kb_load_i64(&channel.processor.unread_since_ns)
    if since_ns == 0 or channel.last_active_ns < since_ns:
        kb_store_i64(&channel.processor.unread_since_ns, channel.last_active_ns)


cdef void unsent_add_queued(Channel* channel) noexcept nogil:
    cdef Request* request = channel.tx_head
    while request != NULL:
        unsent_add(channel, request)
        request = request.next


cdef void unsent_remove(Channel* channel, const Request* request) noexcept nogil:
    _add(channel, -request.own_bytes)


cdef void unsent_remove_all(Channel* channel) noexcept nogil:
    if channel.unsent_bytes:
        _add(channel, -channel.unsent_bytes)


cdef int unsent_may_read(const Channel* channel) noexcept nogil:
    cdef NetworkSettings* settings = channel.processor.settings
    return kb_load_i64(&settings.unsent_total) <= settings.unsent_max // 2


cdef int unsent_is_alone(const Channel* channel) noexcept nogil:
    return kb_load_i64(&channel.processor.settings.unsent_total) == channel.unsent_bytes
