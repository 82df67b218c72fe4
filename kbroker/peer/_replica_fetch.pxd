# cython: language_level=3
"""For units of a follower: a request in a session, and the walk over an answer's partitions."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.protocol._cursor cimport Cursor
from kbroker.protocol._wire cimport Reader


cdef struct FetchBounds:
    # `FetchLimits`.
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t max_bytes
    int32_t partition_max_bytes


cdef FetchBounds bounds_of(limits) except *

# A request that names changed partitions alone: `Asked` by a topic's id and four bytes more.
cdef bytes encode_changed(
    int32_t replica_id, int64_t broker_epoch, const FetchBounds* bounds, int32_t session_id,
    int32_t epoch, dict changed)


cdef struct FetchedPart:
    # One partition; pointers are into the frame.
    const uint8_t* topic_id       # of 16 bytes
    int32_t partition
    int16_t error
    int64_t high_watermark
    int64_t log_start_offset
    const uint8_t* records        # NULL: null
    int64_t records_bytes         # -1: null
    int has_tags
    int32_t diverging_epoch       # -1: there is none
    int64_t diverging_end


cdef struct FetchedParts:
    # What is left of an answer. A copy is a second walk.
    Cursor cursor
    const uint8_t* topic_id
    int32_t topics_left
    int32_t parts_left            # of the topic
    int64_t items_left            # more in all arrays are refused


# The session's id; the reader is after the response's header and has to stay as long as the walk.
# KafkaError: the leader refused the fetch. ProtocolError: malformed.
cdef int32_t begin_parts(Reader reader, FetchedParts* out) except? -1

# 1: the next partition; 0: there is none, and it is not to be called again; -1: malformed.
cdef int next_part(FetchedParts* parts, FetchedPart* out) noexcept nogil

# As Python has it.
cdef object fetched_of(Reader reader, const FetchedPart* part)
cdef object malformed()
