# cython: language_level=3
"""A slice of a segment as a Python object, for tests and tools.

It owns one reference to its segment and gives it back when released or collected. The request path
lends slices without an object around them.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t

from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._segment cimport slice_release


cdef class Slice:
    """Bytes of a segment that were promised: they can be read whatever becomes of the log."""

    def __dealloc__(self):
        slice_release(&self.piece)

    def release(self) -> None:
        """Gives the file back; the slice is empty afterwards."""
        slice_release(&self.piece)

    @property
    def segment_base(self) -> int:
        """The base offset of its segment, -1 if it is empty."""
        return self.piece.segment.base_offset if self.piece.segment != NULL else -1

    @property
    def position(self) -> int:
        return self.piece.position

    def __len__(self) -> int:
        return self.piece.length

    def read(self) -> bytes:
        """Its bytes."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, self.piece.length)
        cdef char* at = PyBytes_AsString(data)
        cdef int64_t total = 0, got = 0
        with nogil:
            while total < self.piece.length:
                got = files.pread(
                    self.piece.fd, at + total, <size_t>(self.piece.length - total),
                    self.piece.position + total)
                if got < 0 and errno == EINTR:
                    continue
                if got <= 0:
                    break
                total += got
        if total < self.piece.length:
            raise OSError("a slice is shorter than was promised")
        return data
