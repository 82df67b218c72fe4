# cython: language_level=3
"""Frames on their way in: the receiving half of one connection of ours.

Bytes are received into one piece of memory, and a frame that is longer than that into a place of
its own, once its size is known, so that a follower's megabytes are copied once: `bytes` that no
other code has yet are written in place, as C may do with them. A size out of bounds is an error
after the frames before it.

A view of the room keeps this object, whose piece never moves. Owner: one asyncio loop.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromObject
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memmove

from kbroker.protocol._cursor cimport get_i32
from kbroker.protocol._wire cimport Reader, reader_of

cdef enum:
    SIZE_BYTES = 4
    ID_BYTES = 4


class FrameSizeError(Exception):
    """The next frame's size, which is out of bounds."""


cdef class FramesIn:
    """See the module. `room`: of the piece; the others bound a frame's size."""

    cdef uint8_t* _piece
    cdef Py_ssize_t _room
    cdef Py_ssize_t _at           # in the piece: where the next frame begins
    cdef Py_ssize_t _held         # and where what was received ends
    cdef Py_ssize_t _bytes_min
    cdef Py_ssize_t _bytes_max
    cdef bytes _frame             # one with a place of its own
    cdef Py_ssize_t _filled

    def __cinit__(self, Py_ssize_t room, Py_ssize_t bytes_min, Py_ssize_t bytes_max):
        if room <= SIZE_BYTES or not 0 <= bytes_min <= bytes_max:
            raise ValueError(f"a room of {room} bytes, frames of {bytes_min} to {bytes_max}")
        self._piece = <uint8_t*>PyMem_Malloc(room)
        if self._piece == NULL:
            raise MemoryError
        self._room, self._bytes_min, self._bytes_max = room, bytes_min, bytes_max

    def __dealloc__(self):
        PyMem_Free(self._piece)

    cdef uint8_t* _free(self, Py_ssize_t* size) except NULL:
        # Where the next bytes go.
        if self._frame is not None:
            size[0] = PyBytes_Size(self._frame) - self._filled
            return <uint8_t*>PyBytes_AsString(self._frame) + self._filled
        size[0] = self._room - self._held
        return self._piece + self._held

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef Py_ssize_t size
        cdef uint8_t* at = self._free(&size)
        PyBuffer_FillInfo(buffer, self, at, size, 0, flags)

    def get_buffer(self, sizehint):
        return PyMemoryView_FromObject(self)

    def note(self, Py_ssize_t count) -> None:
        cdef Py_ssize_t size
        self._free(&size)
        if not 0 <= count <= size:
            raise ValueError(f"{count} bytes, where {size} have a place")
        if self._frame is not None:
            self._filled += count
        else:
            self._held += count

    def take(self) -> bytes | None:
        cdef Py_ssize_t left = self._held - self._at
        cdef int32_t size
        if self._frame is not None:
            if self._filled < PyBytes_Size(self._frame):
                return None
            frame = self._frame
            self._frame = None    # it is the caller's: nothing is written to it any more
            return frame
        if left < SIZE_BYTES:
            self._move_to_begin(left)
            return None
        size = get_i32(self._piece + self._at)
        if not self._bytes_min <= size <= self._bytes_max:
            raise FrameSizeError(size)
        if size <= left - SIZE_BYTES:
            frame = PyBytes_FromStringAndSize(
                <const char*>self._piece + self._at + SIZE_BYTES, size)
            self._at += SIZE_BYTES + size
            return frame
        if size > self._room - SIZE_BYTES:
            self._frame = PyBytes_FromStringAndSize(NULL, size)
            self._filled = left - SIZE_BYTES
            memcpy(PyBytes_AsString(self._frame), self._piece + self._at + SIZE_BYTES, self._filled)
            self._at = self._held = 0
        else:
            self._move_to_begin(left)
        return None

    cdef void _move_to_begin(self, Py_ssize_t left) noexcept:
        if self._at:
            memmove(self._piece, self._piece + self._at, left)
            self._at, self._held = 0, left


def answer_in(bytes frame not None, int32_t correlation_id, bint flexible, bint has_tags):
    cdef Reader reader = reader_of(frame, flexible)
    if get_i32(reader._take(ID_BYTES)) != correlation_id:
        return None
    if has_tags:
        reader.tags()
    return reader
