# cython: language_level=3
"""The system calls of the log: one table, through which every C unit that touches a file goes.

    got = files.pread(fd, buffer, length, position)

Each entry behaves as the call of its name, errno included. A call costs what a library call costs.
"""

from libc.stdint cimport int64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len


cdef struct FileOperations:
    int (*open)(const char* path, int flags, int mode) noexcept nogil
    # To read, without waiting for the disk: -1 and EAGAIN where that would be, or cannot be said.
    int (*open_now)(const char* path, int flags) noexcept nogil
    int64_t (*size)(int fd) noexcept nogil                    # in bytes, or -1
    int64_t (*pread)(int fd, void* buffer, size_t length, int64_t position) noexcept nogil
    # Without waiting for the disk: -1 and EAGAIN where that would be.
    int64_t (*pread_now)(int fd, void* buffer, size_t length, int64_t position) noexcept nogil
    int64_t (*pwritev)(
        int fd, const iovec* vectors, int count, int64_t position) noexcept nogil
    int (*ftruncate)(int fd, int64_t length) noexcept nogil
    int (*allocate)(int fd, int64_t offset, int64_t length) noexcept nogil    # answers an errno
    void* (*mmap)(
        void* address, size_t length, int protection, int flags, int fd, int64_t offset
    ) noexcept nogil
    int (*unlink)(const char* path) noexcept nogil
    int (*fdatasync)(int fd) noexcept nogil
    int (*fsync)(int fd) noexcept nogil
    int (*syncfs)(int fd) noexcept nogil
    int (*sync_file_range)(
        int fd, int64_t offset, int64_t length, unsigned int flags) noexcept nogil


cdef FileOperations files
