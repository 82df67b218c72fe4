# cython: language_level=3
"""Pieces of the log that Python wants by themselves: the CRC, the walk over records.

For producer snapshots, for the batches whose codec has no library here (`validator`), for a clean
stop, and for tests that hold each piece against another implementation. Nothing of the request path
comes here. The GIL is released over the bytes.
"""

from os import fsencode, strerror
from typing import NamedTuple

from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t

from kbroker.log.engine cimport _records
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._records cimport Rules, Walk, records_walk, rules_none
from kbroker.protocol._unpacking import CodecMissing

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
    """Walks the records after a batch's header as validation does."""
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
