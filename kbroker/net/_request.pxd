# cython: language_level=3
from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t

from kbroker.net._types cimport Chunk, Part, Processor, Request

cdef enum:
    ANSWER_BYTES_MAX = 0x7fffffff  # what a frame's size can say; a request for more is hostile

cdef Chunk* chunk_new(uint32_t capacity_bytes) noexcept nogil
cdef void chunk_acquire(Chunk* chunk) noexcept nogil
cdef void chunk_release(Chunk* chunk) noexcept nogil

cdef Request* request_new(Processor* processor, int compact) noexcept nogil
cdef void request_free(Request* request) noexcept nogil
cdef void request_let_go(Request* request) noexcept nogil
cdef int request_detach(Request* request) noexcept nogil

cdef uint8_t* answer_reserve(Request* request, uint32_t head_bytes, int parts) noexcept nogil
cdef void answer_bytes(Request* request, uint8_t* data, int64_t length) noexcept nogil
cdef void answer_lent_bytes(
    Request* request, uint8_t* data, int64_t length, int64_t own_bytes, void* keeper,
    void (*release)(void*) noexcept nogil) noexcept nogil
cdef void answer_range(
    Request* request, int fd, int64_t position, int64_t length, int cold, void* keeper,
    void (*release)(void*) noexcept nogil) noexcept nogil
cdef void answer_reset(Request* request) noexcept nogil
