# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.net._types cimport Channel
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._metadata_plan cimport MetadataPlan


cdef enum:
    NO_NODE = -1                  # in the place of a broker's id
    HOST_BYTES = 64               # the text of any IPv6 address

cdef int64_t metadata_answer_bound(HotWorker* worker, MetadataPlan* plan) noexcept nogil
cdef void metadata_answer(HotWorker* worker, MetadataPlan* plan, int64_t bound) noexcept nogil
cdef void own_address(
    HotWorker* worker, Channel* channel, char* text, const uint8_t** host, int32_t* host_length,
    int32_t* port) noexcept nogil
