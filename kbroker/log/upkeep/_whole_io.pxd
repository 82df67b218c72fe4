# cython: language_level=3
"""Reads and writes of a file that do not end before all bytes are there; inline, no module."""

from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker.log.engine._file_operations cimport files, iovec

cdef extern from "<fcntl.h>" nogil:
    unsigned int SYNC_FILE_RANGE_WRITE
    int sync_file_range(int fd, int64_t offset, int64_t length, unsigned int flags)


cdef inline void begin_write_back(int fd, int64_t position, int64_t length) noexcept nogil:
    # The kernel is asked to begin to write; nothing is promised.
    sync_file_range(fd, position, length, SYNC_FILE_RANGE_WRITE)


cdef inline int write_whole(
    int fd, const uint8_t* data, int64_t length, int64_t position
) noexcept nogil:
    # 0 or an errno.
    cdef iovec vector
    cdef int64_t written
    while length > 0:
        vector.iov_base = <void*>data
        vector.iov_len = <size_t>length
        written = files.pwritev(fd, &vector, 1, position)
        if written < 0 and errno == EINTR:
            continue
        if written <= 0:
            return errno if written < 0 else EIO
        data += written
        length -= written
        position += written
    return 0


cdef inline int read_whole(int fd, uint8_t* data, int64_t length, int64_t position) noexcept nogil:
    # 0 or an errno.
    cdef int64_t got
    while length > 0:
        got = files.pread(fd, data, <size_t>length, position)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return errno if got < 0 else EIO      # EIO: the file has been cut meanwhile
        data += got
        length -= got
        position += got
    return 0
