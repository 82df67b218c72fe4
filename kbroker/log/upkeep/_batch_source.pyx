# cython: language_level=3
"""The batches of some segments, one after another, through a megabyte of memory or one batch.

Their files are read by pread, without a lock: the bytes within a segment's published size change by
truncation alone, which the caller finds out afterwards. A batch that is not sound ends the reading.
"""

from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._records cimport (
    HEADER_BYTES, batch_crc, header_plausible, header_read)
from kbroker.log.upkeep._buffer cimport buffer_close, buffer_reserve

cdef enum:
    READ_BYTES = 1 << 20          # at once, where a batch is not larger


cdef void source_begin(BatchSource* source, int32_t at, int32_t end) noexcept nogil:
    source.at = at
    source.end = end
    source.position = 0
    source.bytes_at = -1


cdef void source_close(BatchSource* source) noexcept nogil:
    buffer_close(&source.bytes)


cdef int read_from_here(BatchSource* source, int64_t length) noexcept nogil:
    # 0 or an errno.
    cdef int64_t got
    source.bytes.size = 0
    source.bytes_at = -1
    if buffer_reserve(&source.bytes, length) != 0:
        return ENOMEM
    while source.bytes.size < length:
        got = files.pread(
            source.segments[source.at].fd, source.bytes.data + source.bytes.size,
            <size_t>(length - source.bytes.size), source.position + source.bytes.size)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return errno if got < 0 else EIO      # EIO: the file has been cut meanwhile
        source.bytes.size += got
    source.bytes_at = source.at
    source.bytes_position = source.position
    return 0


cdef const uint8_t* bytes_here(
    BatchSource* source, int64_t length, int64_t left, Trouble* trouble
) noexcept nogil:
    # So many of the `left` ones at the position, or NULL.
    cdef int64_t inside = source.position - source.bytes_position
    if (source.bytes_at != source.at or inside < 0
            or inside + length > source.bytes.size):
        trouble.status = read_from_here(source, min(left, max(length, <int64_t>READ_BYTES)))
        if trouble.status != 0:
            return NULL
        inside = 0
    return source.bytes.data + inside


cdef inline Step damaged(Trouble* trouble, const char* how) noexcept nogil:
    trouble.damage = how
    return STEP_DAMAGED


cdef Step source_next(BatchSource* source, Trouble* trouble) noexcept nogil:
    cdef int64_t left = 0
    source.whole_header = 0
    while source.at < source.end:
        left = source.sizes[source.at] - source.position
        if left > 0:
            break
        source.at += 1
        source.position = 0
    if source.at >= source.end:
        return STEP_DONE
    if left < HEADER_BYTES:
        return damaged(trouble, "a batch is cut off")
    source.batch = bytes_here(source, HEADER_BYTES, left, trouble)
    if source.batch == NULL:
        return STEP_FAILED
    header_read(source.batch, &source.header)
    if not header_plausible(&source.header):
        return damaged(trouble, "there is no batch")
    if source.header.size_bytes > left:
        return damaged(trouble, "a batch is cut off")
    source.whole_header = 1
    source.batch = bytes_here(source, source.header.size_bytes, left, trouble)
    if source.batch == NULL:
        return STEP_FAILED
    if batch_crc(source.batch, source.header.size_bytes) != source.header.crc:
        return damaged(trouble, "a batch's CRC is wrong")
    return STEP_MORE


cdef void source_advance(BatchSource* source) noexcept nogil:
    source.position += source.header.size_bytes


cdef int source_is_at_last(const BatchSource* source) noexcept nogil:
    return (source.at == source.end - 1
            and source.position + source.header.size_bytes == source.sizes[source.at])
