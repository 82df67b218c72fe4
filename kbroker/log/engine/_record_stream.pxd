# cython: language_level=3
"""Numbers and bytes of records, read from a `kb_stream`; inline, without a module.

All that reads records in C reads them with these: what one reader takes, every other one takes too.
Of each, 0 is good and -1 is not: the stream ended, or a number is too long. Lengths are zigzag
varints of 32 bits, as in Apache Kafka: of the fifth byte only the low bits count, and no sixth one
is read. Timestamps have 64. https://kafka.apache.org/documentation/#record
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker.core._codecs cimport kb_stream, kb_stream_refill


cdef inline int take_unsigned(kb_stream* stream, int bytes_max, uint64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int taken = 0
    while taken < bytes_max:
        if stream.at == stream.end and not kb_stream_refill(stream):
            return -1
        byte = stream.at[0]
        stream.at += 1
        value |= <uint64_t>(byte & 0x7F) << (7 * taken)
        taken += 1
        if byte < 0x80:
            out[0] = value
            return 0
    return -1


cdef inline int take_varint(kb_stream* stream, int32_t* out) noexcept nogil:
    cdef uint64_t raw
    if stream.at < stream.end and stream.at[0] < 0x80:
        raw = stream.at[0]
        stream.at += 1
    elif take_unsigned(stream, 5, &raw) < 0:
        return -1
    out[0] = <int32_t>((<uint32_t>raw >> 1) ^ (0 - (<uint32_t>raw & 1)))
    return 0


cdef inline int take_varlong(kb_stream* stream, int64_t* out) noexcept nogil:
    cdef uint64_t raw
    if stream.at < stream.end and stream.at[0] < 0x80:
        raw = stream.at[0]
        stream.at += 1
    elif take_unsigned(stream, 10, &raw) < 0:
        return -1
    out[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return 0


cdef inline int skip_far(kb_stream* stream, int64_t length) noexcept nogil:
    while length > stream.end - stream.at:
        length -= stream.end - stream.at
        stream.at = stream.end
        if not kb_stream_refill(stream):
            return -1
    stream.at += length
    return 0


cdef inline int skip(kb_stream* stream, int64_t length) noexcept nogil:
    if length <= stream.end - stream.at:
        stream.at += length
        return 0
    return skip_far(stream, length)


cdef inline int64_t position(const kb_stream* stream) noexcept nogil:
    return stream.end_offset - (stream.end - stream.at)


cdef inline int take_bytes(kb_stream* stream, uint8_t* to, int64_t length) noexcept nogil:
    cdef int64_t piece
    while length > 0:
        piece = min(length, <int64_t>(stream.end - stream.at))
        if piece == 0:
            if not kb_stream_refill(stream):
                return -1
            continue
        memcpy(to, stream.at, <size_t>piece)
        to += piece
        stream.at += piece
        length -= piece
    return 0


cdef inline int take_length(kb_stream* stream, int64_t end, int32_t* length) noexcept nogil:
    # Of a field inside the record that ends at `end`; -1 is null.
    if take_varint(stream, length) < 0 or length[0] < -1:
        return -1
    return -1 if length[0] > end - position(stream) else 0


cdef inline int skip_field(kb_stream* stream, int64_t end, int32_t* length) noexcept nogil:
    if take_length(stream, end, length) < 0:
        return -1
    return skip(stream, length[0]) if length[0] > 0 else 0


cdef inline int skip_headers(kb_stream* stream, int64_t end) noexcept nogil:
    cdef int32_t count, length, _at
    if take_varint(stream, &count) < 0 or count < 0 or count > (end - position(stream)) / 2:
        return -1
    for _at in range(count):
        if skip_field(stream, end, &length) < 0 or length < 0:    # a header's key is never null
            return -1
        if skip_field(stream, end, &length) < 0:
            return -1
    return 0
