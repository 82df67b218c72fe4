# cython: language_level=3
from libc.stdint cimport int32_t, uint8_t

from kbroker.net._types cimport Channel
from kbroker.replica._metadata_view cimport MetadataView
from kbroker.replica._partition cimport Partition
from kbroker.engine.worker._context cimport HotWorker


cdef enum:
    NAMED_LEADERS_MAX = 16        # nodes of one answer; a client asks Metadata for the rest


# Leaders that one answer has named, and whose addresses end it.
cdef struct NamedLeaders:
    int32_t ids[NAMED_LEADERS_MAX]
    int count
    MetadataView* view            # which the bound was computed from, so the addresses are its


# A partition as the request names it, and as it is known here.
cdef struct AskedPartition:
    Partition* partition          # NULL: not on this broker
    const uint8_t* topic_id       # or NULL, and then
    const uint8_t* name
    int32_t name_length
    int32_t index


# The most bytes that the tag of one partition takes.
cdef enum:
    LEADER_TAG_BYTES = 16

cdef uint8_t* put_leader(
    uint8_t* at, int tag, HotWorker* worker, const AskedPartition* asked, NamedLeaders* named,
) noexcept nogil
cdef size_t nodes_bound(HotWorker* worker, NamedLeaders* named) noexcept nogil
cdef uint8_t* put_nodes(
    uint8_t* at, HotWorker* worker, Channel* channel, const NamedLeaders* named) noexcept nogil
