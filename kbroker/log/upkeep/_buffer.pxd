# cython: language_level=3
"""Bytes that grow; inline, without a module."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc


cdef struct Buffer:
    uint8_t* data
    int64_t size
    int64_t room


cdef inline int buffer_reserve(Buffer* buffer, int64_t more) noexcept nogil:
    # Room for so many more. 0 or ENOMEM.
    cdef int64_t wanted = buffer.size + more
    cdef uint8_t* data
    if wanted <= buffer.room:
        return 0
    if wanted < 2 * buffer.room:
        wanted = 2 * buffer.room
    data = <uint8_t*>realloc(buffer.data, <size_t>wanted)
    if data == NULL:
        return ENOMEM
    buffer.data = data
    buffer.room = wanted
    return 0


cdef inline void buffer_close(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.size = 0
    buffer.room = 0
