# cython: language_level=3
"""Reading and writing the fixed-width fields of a record batch; inline, no module behind it.

All numbers are big-endian and may lie at any address. These functions do not check bounds: the
caller has compared the length with the whole fixed header once (`header_read`), and everything
of variable length goes through a `kb_stream`, which never reads past its end.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "bytes.h" nogil:
    uint16_t kb_get_u16(const uint8_t* at)
    uint32_t kb_get_u32(const uint8_t* at)
    uint64_t kb_get_u64(const uint8_t* at)
    void kb_put_u16(uint8_t* at, uint16_t value)
    void kb_put_u32(uint8_t* at, uint32_t value)
    void kb_put_u64(uint8_t* at, uint64_t value)

cdef inline int16_t get_i16(const uint8_t* at) noexcept nogil:
    return <int16_t>kb_get_u16(at)

cdef inline int32_t get_i32(const uint8_t* at) noexcept nogil:
    return <int32_t>kb_get_u32(at)

cdef inline int64_t get_i64(const uint8_t* at) noexcept nogil:
    return <int64_t>kb_get_u64(at)
