# cython: language_level=3
"""Bounded reading of hostile bytes and writing of answers; inline, without a module.

A `Cursor` always has the number of bytes left. A read beyond the end, a negative length or a varint
that is too long sets `failed` and gives zero or NULL from then on, so that a parser may check once
at the end of a structure. Counts are compared with the bytes left before anything is reserved.

Writers are plain pointers: the caller has reserved an upper bound computed from the parsed request.
Fields at fixed places (`get_i32` and its like) are read after the caller has compared the length.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker.core._limits cimport TAGGED_FIELDS_MAX

cdef extern from "bytes.h" nogil:
    uint16_t kb_get_u16(const uint8_t* at)
    uint32_t kb_get_u32(const uint8_t* at)
    uint64_t kb_get_u64(const uint8_t* at)
    void kb_put_u16(uint8_t* at, uint16_t value)
    void kb_put_u32(uint8_t* at, uint32_t value)
    void kb_put_u64(uint8_t* at, uint64_t value)


cdef struct Cursor:
    uint8_t* at
    size_t left
    int failed


cdef inline uint8_t* take(Cursor* cursor, size_t count) noexcept nogil:
    cdef uint8_t* at = cursor.at
    if cursor.failed or count > cursor.left:
        cursor.failed = 1
        return NULL
    cursor.at += count
    cursor.left -= count
    return at


cdef inline int8_t take_i8(Cursor* cursor) noexcept nogil:
    cdef uint8_t* at = take(cursor, 1)
    return <int8_t>at[0] if at != NULL else 0


cdef inline int16_t take_i16(Cursor* cursor) noexcept nogil:
    cdef uint8_t* at = take(cursor, 2)
    return <int16_t>kb_get_u16(at) if at != NULL else 0


cdef inline int32_t take_i32(Cursor* cursor) noexcept nogil:
    cdef uint8_t* at = take(cursor, 4)
    return <int32_t>kb_get_u32(at) if at != NULL else 0


cdef inline int64_t take_i64(Cursor* cursor) noexcept nogil:
    cdef uint8_t* at = take(cursor, 8)
    return <int64_t>kb_get_u64(at) if at != NULL else 0


cdef inline uint32_t take_uvarint(Cursor* cursor) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while not cursor.failed:
        if cursor.left == 0 or shift > 28:
            cursor.failed = 1
            return 0
        byte = cursor.at[0]
        cursor.at += 1
        cursor.left -= 1
        value |= <uint64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            if value >> 32:
                cursor.failed = 1
                return 0
            return <uint32_t>value
        shift += 7
    return 0


cdef inline int64_t take_length(Cursor* cursor, int flexible, int wide) noexcept nogil:
    # The length in front of a string (wide 0) or of bytes (wide 1); -1: null, which Apache Kafka
    # takes every negative length for.
    cdef int64_t length
    if flexible:
        length = <int64_t>take_uvarint(cursor) - 1
    elif wide:
        length = take_i32(cursor)
    else:
        length = take_i16(cursor)
    if length > <int64_t>cursor.left:
        cursor.failed = 1
        return -1
    return length if length >= 0 else -1


cdef inline uint8_t* take_string(Cursor* cursor, int flexible, int64_t* length) noexcept nogil:
    length[0] = take_length(cursor, flexible, 0)
    if cursor.failed or length[0] < 0:
        return NULL
    return take(cursor, <size_t>length[0])


cdef inline uint8_t* take_bytes(Cursor* cursor, int flexible, int64_t* length) noexcept nogil:
    length[0] = take_length(cursor, flexible, 1)
    if cursor.failed or length[0] < 0:
        return NULL
    return take(cursor, <size_t>length[0])


cdef inline int32_t take_count(Cursor* cursor, int flexible, size_t item_bytes_min) noexcept nogil:
    # The count of an array that may not be null, bounded by the bytes left.
    cdef int64_t count
    if flexible:
        count = <int64_t>take_uvarint(cursor) - 1
    else:
        count = take_i32(cursor)
    if cursor.failed or count < 0:
        cursor.failed = 1
        return 0
    if <uint64_t>count > cursor.left // item_bytes_min:
        cursor.failed = 1
        return 0
    return <int32_t>count


cdef inline uint32_t take_tag_count(Cursor* cursor) noexcept nogil:
    # How many tagged fields follow; a structure with more than any client sends is malformed.
    cdef uint32_t count = take_uvarint(cursor)
    if count > TAGGED_FIELDS_MAX:
        cursor.failed = 1
    return count


cdef inline void skip_tags(Cursor* cursor, int flexible) noexcept nogil:
    cdef uint32_t count
    cdef uint32_t size
    if not flexible:
        return
    count = take_tag_count(cursor)
    while count > 0 and not cursor.failed:
        count -= 1
        take_uvarint(cursor)
        size = take_uvarint(cursor)
        take(cursor, size)


cdef struct RequestHeader:
    int16_t api_key
    int16_t api_version
    int32_t correlation_id
    uint8_t* client_id            # NULL: null
    int64_t client_id_length


cdef inline void take_header(
    Cursor* cursor, RequestHeader* header, uint8_t* frame, size_t length, int flexible,
) noexcept nogil:
    # A cursor at the body of a frame, after header v1 or, where the version is flexible, v2. The
    # client's id has the older encoding in both.
    cursor.at = frame
    cursor.left = length
    cursor.failed = 0
    header.api_key = take_i16(cursor)
    header.api_version = take_i16(cursor)
    header.correlation_id = take_i32(cursor)
    header.client_id = take_string(cursor, 0, &header.client_id_length)
    skip_tags(cursor, flexible)


# --- Fixed places: of big-endian numbers at any address, without a look at bounds -----------------

cdef inline int16_t get_i16(const uint8_t* at) noexcept nogil:
    return <int16_t>kb_get_u16(at)


cdef inline int32_t get_i32(const uint8_t* at) noexcept nogil:
    return <int32_t>kb_get_u32(at)


cdef inline int64_t get_i64(const uint8_t* at) noexcept nogil:
    return <int64_t>kb_get_u64(at)


# --- Writing -------------------------------------------------------------------------------------

cdef inline uint8_t* put_i8(uint8_t* at, int8_t value) noexcept nogil:
    at[0] = <uint8_t>value
    return at + 1


cdef inline uint8_t* put_i16(uint8_t* at, int16_t value) noexcept nogil:
    kb_put_u16(at, <uint16_t>value)
    return at + 2


cdef inline uint8_t* put_i32(uint8_t* at, int32_t value) noexcept nogil:
    kb_put_u32(at, <uint32_t>value)
    return at + 4


cdef inline uint8_t* put_i64(uint8_t* at, int64_t value) noexcept nogil:
    kb_put_u64(at, <uint64_t>value)
    return at + 8


cdef inline uint8_t* put_raw(uint8_t* at, const uint8_t* data, size_t length) noexcept nogil:
    memcpy(at, data, length)
    return at + length


cdef inline uint8_t* put_uvarint(uint8_t* at, uint32_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value
    return at + 1


cdef inline uint8_t* put_count(uint8_t* at, int flexible, int32_t count) noexcept nogil:
    # An array's count; -1: null.
    if flexible:
        return put_uvarint(at, <uint32_t>(count + 1))
    return put_i32(at, count)


cdef inline uint8_t* put_string(
    uint8_t* at, int flexible, const uint8_t* text, int32_t length,
) noexcept nogil:
    # length -1: null.
    if flexible:
        at = put_uvarint(at, <uint32_t>(length + 1))
    else:
        at = put_i16(at, <int16_t>length)
    if length > 0:
        at = put_raw(at, text, <size_t>length)
    return at


cdef inline uint8_t* put_no_tags(uint8_t* at, int flexible) noexcept nogil:
    if flexible:
        at[0] = 0
        at += 1
    return at
