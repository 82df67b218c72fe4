# cython: language_level=3
"""Where a reader that goes on in order begins its next read.

A slice ends where the reader's bytes end, most often inside of a batch. The reader drops that part
and asks for the batch again. Its place is known once the batches of the slice have been passed,
header by header. So the next read asks no index, which a Processor may not do, and a fetch needs
no handler (`engine/_at_once`).

Where the slice was copied its headers are in memory. Otherwise each is a read of its own, and of
small batches a read brings several. A long slice is not looked through: its next read asks the
index.

Any thread, without the lock, no GIL. Nothing here waits for the disk unless the reader may.
"""

from libc.stdint cimport int64_t, uint8_t

from kbroker.log.engine._records cimport (
    AT_LENGTH, HEADER_BYTES, LOG_OVERHEAD_BYTES, Header, header_plausible, header_read)
from kbroker.log.engine._segment cimport (
    SCAN_CHUNK_BYTES, Scan, scan_advance, scan_begin, scan_next)
from kbroker.log.engine._types cimport WAITS_FOR_DISK
from kbroker.protocol._cursor cimport get_i32

cdef enum:
    LOOKED_THROUGH_BYTES = 64 << 10  # of a slice; then waking a handler costs little beside it
    HEADERS_MAX = 8                  # to be read one by one; after them by the chunk


cdef int next_in_copy(const FileSlice* slice, Place* place) noexcept nogil:
    # What lies after the last whole batch. Sizes lead there: these bytes were checked when they
    # were written, or as far as they were not seen yet.
    cdef const uint8_t* at = slice.room
    cdef const uint8_t* last = NULL
    cdef int64_t left = slice.length
    cdef int64_t size_bytes
    cdef Header header
    while left >= HEADER_BYTES:
        size_bytes = <int64_t>get_i32(at + AT_LENGTH) + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size_bytes <= left:
            break
        last = at
        at += size_bytes
        left -= size_bytes
    if last == NULL:
        return 0
    header_read(last, &header)
    if not header_plausible(&header):
        return 0
    place.offset = header.base_offset + header.last_offset_delta + 1
    place.position = slice.position + (at - slice.room)
    return 1


cdef int find_next_place(
    const FileSlice* slice, int64_t limit, Patience patience, Place* place
) noexcept nogil:
    cdef int64_t end = slice.position + slice.length
    cdef int headers = 0
    cdef Scan scan
    if slice.is_copied:
        return next_in_copy(slice, place)
    if slice.length > LOOKED_THROUGH_BYTES:
        return 0
    scan_begin(&scan, slice.fd, slice.position, limit)
    scan.chunk_bytes_max = HEADER_BYTES
    scan.must_not_wait = patience < WAITS_FOR_DISK
    if place.offset >= 0:
        scan.position = place.position
    while scan.position < end:
        if scan_next(&scan) != 1:
            return 0
        headers += 1
        if scan.header.size_bytes > end - scan.position:
            break
        if headers == HEADERS_MAX or scan.header.size_bytes * HEADERS_MAX < end - scan.position:
            scan.chunk_bytes_max = SCAN_CHUNK_BYTES
        place.offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        scan_advance(&scan)
    place.position = scan.position
    return place.offset >= 0 and scan.position <= end
