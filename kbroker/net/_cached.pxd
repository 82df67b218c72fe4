# cython: language_level=3
"""What a channel has cached: requests that are locally processed, their answers not yet sent.

The bounds of the pipeline are the connection's by count and bytes, and all connections' by bytes.
Inline, no module of its own. In the Processor's turn; only the total is shared.
"""

from libc.stdint cimport int64_t, uint32_t

from kbroker.core._atomics cimport kb_add_i64, kb_load_i64
from kbroker.net._types cimport Channel, NetworkSettings, Request

cdef enum:
    # What a frame whose answer waits counts for at least: it is let go, its request, its watches
    # and what the answer will say are kept.
    CACHED_BYTES_MIN = 2048


# A channel that caches nothing may always be read, or no answer would wake it.
cdef inline int may_cache(const Channel* channel) noexcept nogil:
    cdef NetworkSettings* settings = channel.processor.settings
    return (
        channel.cached_frames < settings.pipelined_requests_max
        and channel.cached_bytes < settings.pipelined_bytes_max
        and kb_load_i64(&settings.pipelined_total) < settings.pipelined_total_max
    )


cdef inline uint32_t cached_bytes(const Request* request) noexcept nogil:
    return max(request.total_bytes, <uint32_t>request.frames * <uint32_t>CACHED_BYTES_MIN)


cdef inline void note_cached(Channel* channel, int64_t delta_bytes) noexcept nogil:
    channel.cached_bytes += delta_bytes
    kb_add_i64(&channel.processor.settings.pipelined_total, delta_bytes)
