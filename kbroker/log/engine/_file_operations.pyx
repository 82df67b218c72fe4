# cython: language_level=3
"""The system calls of the log in one table, so that a test can make any of them fail.

The table is filled when the module is imported, before any other unit of the log, and never changes
in a broker. `kbroker.testing._file_faults` puts functions of its own into it. Closing, unmapping
and advice are not in it: their failure changes nothing. The log's Python has the same seam in
`file_operations.py`.
"""

from libc.stdint cimport int64_t

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int posix_fallocate(int fd, int64_t offset, int64_t length)
    int sync_file_range(int fd, int64_t offset, int64_t length, unsigned int flags)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, int64_t offset)

cdef extern from "<sys/uio.h>" nogil:
    int64_t pwritev(int fd, const iovec* vectors, int count, int64_t position)

cdef extern from "page_cache.h" nogil:
    int kb_open_now(const char* path, int flags)
    int64_t kb_pread_now(int fd, void* buffer, size_t length, int64_t position)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int fd)
    int fsync(int fd)
    int ftruncate(int fd, int64_t length)
    int64_t lseek(int fd, int64_t offset, int whence)
    int64_t pread(int fd, void* buffer, size_t length, int64_t position)
    int syncfs(int fd)
    int unlink(const char* path)
    int SEEK_END


cdef int open_file(const char* path, int flags, int mode) noexcept nogil:
    return c_open(path, flags, mode)


cdef int64_t size_of(int fd) noexcept nogil:
    return lseek(fd, 0, SEEK_END)


files.open = open_file
files.open_now = kb_open_now
files.size = size_of
files.pread = pread
files.pread_now = kb_pread_now
files.pwritev = pwritev
files.ftruncate = ftruncate
files.allocate = posix_fallocate
files.mmap = mmap
files.unlink = unlink
files.fdatasync = fdatasync
files.fsync = fsync
files.syncfs = syncfs
files.sync_file_range = sync_file_range
