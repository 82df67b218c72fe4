# cython: language_level=3
"""A frame on its way in: received where it stays, so that a follower's megabytes are copied once.

`bytes` that no other code has yet are written in place, as C may do with them: a `bytearray`
would be filled with zeros first, and copied to be read.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size


cdef class FrameIn:
    """Made with the frame's size, filled through its buffer, then `take`n."""

    cdef bytes _frame
    cdef Py_ssize_t _filled

    def __cinit__(self, Py_ssize_t size):
        if size < 0:
            raise ValueError(f"a frame of {size} bytes")
        self._frame = PyBytes_FromStringAndSize(NULL, size)
        self._filled = 0

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        # What is missing. The view keeps this object, and so the bytes.
        if self._frame is None:
            raise BufferError("the frame has been taken")
        PyBuffer_FillInfo(
            buffer, self, PyBytes_AsString(self._frame) + self._filled,
            PyBytes_Size(self._frame) - self._filled, 0, flags)

    def note(self, Py_ssize_t count) -> bool:
        """So many bytes more are there; whether that is all. ValueError beyond the frame's end."""
        if self._frame is None or not 0 <= count <= PyBytes_Size(self._frame) - self._filled:
            raise ValueError(f"{count} bytes for a frame that lacks fewer")
        self._filled += count
        return self._filled == PyBytes_Size(self._frame)

    def take(self) -> bytes:
        """The frame, once it is whole. Nothing is written to it any more."""
        frame = self._frame
        if frame is None or self._filled < PyBytes_Size(frame):
            raise ValueError("the frame is not whole")
        self._frame = None
        return frame
