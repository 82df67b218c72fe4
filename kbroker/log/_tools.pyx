# cython: language_level=3
"""Pieces of the log that Python wants by themselves: the CRC, the codecs, the walk over records.

For producer snapshots, for the batches whose codec has no library here (`validator`), for a clean
stop, and for tests that hold each piece against another implementation. Nothing of the request path
comes here. The GIL is released over the bytes.
"""

from os import fsencode, strerror
from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kbroker.log cimport _records
from kbroker.log._codecs cimport (
    KB_STREAM_NO_CODEC, KB_STREAM_NO_MEMORY, KB_STREAM_OK,
    KB_STREAM_TOO_LONG, kb_stream, kb_stream_close, kb_stream_open, kb_stream_refill)
from kbroker.log._file_operations cimport files
from kbroker.log._records cimport Rules, Walk, records_walk, rules_none

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "crc32c.h" nogil:
    uint32_t kb_crc32c(uint32_t crc, const uint8_t* data, size_t length)
    uint32_t kb_crc32c_of_kind(int kind, uint32_t crc, const uint8_t* data, size_t length)


class RecordsWalk(NamedTuple):
    """What a walk over a batch's records found; `error` is a Kafka error code."""

    error: int
    record: int
    message: str
    max_timestamp_ms: int
    max_timestamp_delta: int
    found_delta: int
    found_timestamp_ms: int


class CodecMissing(Exception):
    """No library for this codec here."""


class CodecError(ValueError):
    """The bytes are not what the codec makes."""


class CodecTooLong(CodecError):
    """The bytes unpack to more than was allowed."""


def unpacked_bytes_max(int64_t packed_bytes) -> int:
    """The most that the records of a batch of this size may unpack to."""
    return _records.unpacked_bytes_max(packed_bytes)


def crc32c(const uint8_t[::1] data not None, uint32_t crc = 0, int kind = -1) -> int:
    """The CRC-32C of `data`, continued from `crc`. `kind` picks one implementation, for tests."""
    cdef const uint8_t* at = &data[0] if data.shape[0] else NULL
    cdef size_t length = <size_t>data.shape[0]
    cdef uint32_t result
    with nogil:
        if kind < 0:
            result = kb_crc32c(crc, at, length)
        else:
            result = kb_crc32c_of_kind(kind, crc, at, length)
    return result


def walk_records(
    const uint8_t[::1] records not None, int codec, int32_t count, int64_t base_timestamp_ms, *,
    bint compacted = False, bint gaps = False, int64_t timestamp_min_ms = INT64_MIN,
    int64_t timestamp_max_ms = INT64_MAX, int64_t wanted_timestamp_ms = INT64_MAX,
    int32_t wanted_delta_min = 0,
) -> RecordsWalk:
    """Walks the records behind a batch's header as validation does."""
    cdef const uint8_t* at = &records[0] if records.shape[0] else NULL
    cdef int64_t length = records.shape[0]
    cdef Rules rules
    cdef Walk walk
    cdef int missing
    rules_none(&rules)
    rules.compacted = compacted
    rules.gaps = gaps
    rules.wanted_delta_min = wanted_delta_min
    rules.timestamp_min_ms = timestamp_min_ms
    rules.timestamp_max_ms = timestamp_max_ms
    rules.wanted_timestamp_ms = wanted_timestamp_ms
    with nogil:
        missing = records_walk(at, length, codec, count, base_timestamp_ms, &rules, &walk)
    if missing:
        raise CodecMissing(f"codec {codec}")
    return RecordsWalk(
        walk.error, walk.record, walk.message.decode("ascii") if walk.message != NULL else "",
        walk.max_timestamp_ms, walk.max_timestamp_delta, walk.found_delta,
        walk.found_timestamp_ms)


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
        cdef char* to = PyBytes_AS_STRING(out)
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


def sync_volume(str directory) -> None:
    """Brings everything on the volume that holds `directory` to the disk; OSError if it fails.

    One commit of the file system instead of one for each of thousands of files.
    """
    cdef bytes path = fsencode(directory)
    cdef const char* name = path
    cdef int fd, status = 0
    with nogil:
        fd = files.open(name, O_RDONLY | O_CLOEXEC, 0)
        if fd < 0:
            status = errno
        else:
            if files.syncfs(fd) < 0:
                status = errno
            close(fd)
    if status:
        raise OSError(status, strerror(status), directory)
