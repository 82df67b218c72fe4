# cython: language_level=3
"""Where a reader that goes on in order begins its next read.

A slice ends where the reader's bytes end, most often inside of a batch. The reader drops that part
and asks for the batch again. Its place is known once the batches of the slice have been passed,
header by header. So the next read asks no index, which a Processor may not do, and a fetch needs
no handler (`engine/_at_once`).

Each header is a read of its own. A slice of many batches, or a long one, is not looked through:
its next read asks the index.

Any thread, without the lock, no GIL. Nothing here waits for the disk unless the reader may.
"""

from libc.stdint cimport int64_t

from kbroker.log.engine._records cimport HEADER_BYTES
from kbroker.log.engine._segment cimport Scan, scan_advance, scan_begin, scan_next
from kbroker.log.engine._types cimport WAITS_FOR_DISK

cdef enum:
    LOOKED_THROUGH_BYTES = 64 << 10  # of a slice; then waking a handler costs little beside it
    HEADERS_MAX = 8                  # more reads than these cost as much as waking a handler


cdef int find_next_place(Found* found, const FileSlice* slice) noexcept nogil:
    cdef int64_t end = slice.position + slice.length
    cdef int headers = 0
    cdef Scan scan
    if slice.length > LOOKED_THROUGH_BYTES:
        return 0
    scan_begin(&scan, slice.fd, slice.position, found.limit)
    scan.chunk_bytes_max = HEADER_BYTES
    scan.must_not_wait = found.patience < WAITS_FOR_DISK
    if found.size_bytes > 0 and found.next_offset >= 0:
        scan.position += found.size_bytes
    else:
        found.next_offset = -1
    while scan.position < end:
        if headers == HEADERS_MAX or scan_next(&scan) != 1:
            return 0
        headers += 1
        if scan.header.size_bytes > end - scan.position:
            break
        if scan.header.size_bytes * HEADERS_MAX < end - scan.position:
            return 0
        found.next_offset = scan.header.base_offset + scan.header.last_offset_delta + 1
        scan_advance(&scan)
    found.position = scan.position
    return found.next_offset >= 0 and scan.position <= end
