# cython: language_level=3
"""Compressed records through the compiled decoders, for Python: whole, or piece by piece.

The same decoders as the log's, so that what one reader takes every other one takes, too. The GIL is
released over the bytes.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kbroker.core._codecs cimport (
    KB_STREAM_NO_CODEC, KB_STREAM_NO_MEMORY, KB_STREAM_OK, KB_STREAM_TOO_LONG, kb_stream,
    kb_stream_close, kb_stream_open, kb_stream_refill, kb_zstd_version)


class CodecMissing(Exception):
    """No library for this codec here."""


class CodecError(ValueError):
    """The bytes are not what the codec makes."""


class CodecTooLong(CodecError):
    """The bytes unpack to more than was allowed."""


def zstd_version() -> int:
    """Of the system's libzstd: 10506 is 1.5.6; 0: there is none."""
    return kb_zstd_version()


def unpack(const uint8_t[::1] data not None, int codec, int64_t output_bytes_max) -> bytes:
    """All that the stream gives, in one piece."""
    cdef const uint8_t* at = &data[0] if data.shape[0] else NULL
    cdef size_t length = <size_t>data.shape[0]
    cdef kb_stream stream
    cdef char* out = NULL
    cdef char* larger
    cdef int64_t size = 0, room = 0, piece
    with nogil:
        kb_stream_open(&stream, codec, at, length, output_bytes_max)
        while stream.status == KB_STREAM_OK:
            piece = stream.end - stream.at
            if size + piece > room:
                room = 2 * (size + piece)
                larger = <char*>realloc(out, <size_t>room)
                if larger == NULL:
                    stream.status = KB_STREAM_NO_MEMORY
                    break
                out = larger
            if piece:
                memcpy(out + size, stream.at, <size_t>piece)
            size += piece
            stream.at = stream.end
            if not kb_stream_refill(&stream):
                break
        kb_stream_close(&stream)
    try:
        if stream.status == KB_STREAM_NO_CODEC:
            raise CodecMissing(f"codec {codec}")
        if stream.status == KB_STREAM_NO_MEMORY:
            raise MemoryError
        if stream.status == KB_STREAM_TOO_LONG:
            raise CodecTooLong(f"more than {output_bytes_max} bytes")
        if stream.status != KB_STREAM_OK:
            raise CodecError(f"not sound in codec {codec}")
        return PyBytes_FromStringAndSize(out, size)
    finally:
        free(out)


cdef class Unpacking:
    """The same in pieces: a window of memory for output of any length."""

    cdef const uint8_t[::1] data  # the stream points into it
    cdef kb_stream stream
    cdef int codec
    cdef int64_t output_bytes_max

    def __cinit__(
        self, const uint8_t[::1] data not None, int codec, int64_t output_bytes_max,
    ) -> None:
        cdef const uint8_t* at = &data[0] if data.shape[0] else NULL
        self.data = data
        self.codec = codec
        self.output_bytes_max = output_bytes_max
        kb_stream_open(&self.stream, codec, at, <size_t>data.shape[0], output_bytes_max)

    def __dealloc__(self):
        kb_stream_close(&self.stream)

    def read(self, Py_ssize_t count) -> bytes:
        """The next `count` bytes; fewer, down to none, at the end."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, count)
        cdef char* to = PyBytes_AsString(out)
        cdef Py_ssize_t filled = 0, piece
        with nogil:
            while filled < count:
                piece = min(self.stream.end - self.stream.at, count - filled)
                if piece:
                    memcpy(to + filled, self.stream.at, <size_t>piece)
                    self.stream.at += piece
                    filled += piece
                elif not kb_stream_refill(&self.stream):
                    break
        if filled < count:
            self._raise_unless_sound()
        return out if filled == count else out[:filled]

    cdef int _raise_unless_sound(self) except -1:
        if self.stream.status == KB_STREAM_OK:
            return 0
        if self.stream.status == KB_STREAM_NO_CODEC:
            raise CodecMissing(f"codec {self.codec}")
        if self.stream.status == KB_STREAM_NO_MEMORY:
            raise MemoryError
        if self.stream.status == KB_STREAM_TOO_LONG:
            raise CodecTooLong(f"more than {self.output_bytes_max} bytes")
        raise CodecError(f"not sound in codec {self.codec}")
