# cython: language_level=3
"""One sealed segment, read and checked as it lies on the disk, a step at a time.

Every batch by its CRC and its place among the others. After one whose CRC is wrong the next one is
looked for at the place that its length gives; if no batch is there, the rest is not read.

One thread owns a scrub. The log's lock is held to look for the segment alone; its file is read
without it, through a reference. No GIL. What takes a damaged batch's place is written by
`PartitionLog.restore`, which sees to it that the segment is the log's meanwhile.
"""

from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker._log cimport LocalLog
from kbroker.log.engine._file_operations cimport files, iovec
from kbroker.log.engine._segment cimport (
    segment_add_reference, segment_drop_reference, segment_file_bytes)
from kbroker.log.engine._storage cimport (
    Log, lock_to_look, log_find_segment, log_has_segment, unlock_log)
from kbroker.log.engine._types cimport Segment
from kbroker.log.upkeep._batch_source cimport (
    STEP_DAMAGED, STEP_DONE, STEP_FAILED, STEP_MORE, BatchSource, Step, Trouble, source_advance,
    source_begin, source_close, source_next)
from kbroker.log.upkeep._flush cimport log_sync_segment

import os

from kbroker.log.engine._results import DamagedBatch

cdef enum:
    DAMAGED_BATCHES_MAX = 100     # of one segment


cdef class SegmentScrub:
    """See the head of this file."""

    cdef LocalLog log
    cdef Segment* segment         # with a reference, or NULL
    cdef int64_t size_bytes
    cdef int64_t next_offset      # after the last batch read
    cdef BatchSource source
    cdef readonly list damage
    cdef readonly int64_t bytes_read

    def __init__(self, LocalLog log not None, int64_t base_offset):
        """KeyError: there is no such segment, or it is appended to."""
        cdef Log* storage = log.storage
        cdef int at
        self.log = log
        self.damage = []
        with nogil:
            lock_to_look(storage)
            at = log_find_segment(storage, base_offset)
            if 0 <= at < storage.segment_count - 1:
                self.segment = storage.segments[at]
                segment_add_reference(self.segment)
            unlock_log(storage)
        if self.segment == NULL or self.segment.base_offset != base_offset:
            raise KeyError(base_offset)
        self.size_bytes = segment_file_bytes(self.segment)
        self.next_offset = base_offset
        self.source.segments = &self.segment
        self.source.sizes = &self.size_bytes
        source_begin(&self.source, 0, 1)

    def __dealloc__(self):
        source_close(&self.source)
        if self.segment != NULL:
            segment_drop_reference(self.segment)

    @property
    def still_there(self) -> bool:
        """Whether the segment is the log's: what was found in one that is not says nothing."""
        cdef int found
        with nogil:
            lock_to_look(self.log.storage)
            found = self.log.storage.online and log_has_segment(self.log.storage, self.segment)
            unlock_log(self.log.storage)
        return bool(found)

    def step(self, int64_t bytes_max) -> bool:
        """Reads so many bytes, or one batch that has more; False: the segment is read. OSError if
        the disk does not answer."""
        cdef Trouble trouble
        cdef Step found
        cdef int64_t bytes_most = self.bytes_read + bytes_max
        cdef int64_t first
        trouble.status = 0
        trouble.damage = NULL
        while True:
            with nogil:
                found = self._go_on(bytes_most, &trouble)
            if found != STEP_DAMAGED:
                break
            first = self.next_offset
            self._note(first, trouble.damage)
            if not self._can_go_on():
                found = STEP_DONE
                break
            self._advance()
        if found == STEP_FAILED:
            raise self._os_error(trouble.status)
        return found == STEP_MORE

    # --- What takes its place ---

    def bytes_at(self, int64_t position, int64_t length) -> bytes:
        """So many of the file, fewer where the segment ends. OSError."""
        cdef bytearray found = bytearray(max(0, min(length, self.size_bytes - position)))
        cdef uint8_t[::1] into = found
        cdef int64_t done = 0, got
        while done < len(found):
            with nogil:
                got = files.pread(
                    self.segment.fd, &into[done], <size_t>(into.shape[0] - done), position + done)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                raise self._os_error(errno if got < 0 else EIO)
            done += got
        return bytes(found)

    def write(self, int64_t position, const uint8_t[::1] batch not None) -> None:
        """In the place of the present bytes. OSError: any part of it may have been written."""
        cdef iovec vector
        cdef int64_t done = 0, size = batch.shape[0], written
        if position < 0 or position + size > self.size_bytes:
            raise ValueError(f"{size} bytes from {position} on are not in {self._name()}")
        while done < size:
            vector.iov_base = <void*>&batch[done]
            vector.iov_len = <size_t>(size - done)
            with nogil:
                written = files.pwritev(self.segment.fd, &vector, 1, position + done)
            if written < 0 and errno == EINTR:
                continue
            if written <= 0:
                raise self._os_error(errno if written < 0 else EIO)
            done += written

    def sync(self) -> None:
        """Brings it to the disk. OSError: it may not be there, and the log is offline."""
        cdef int status
        with nogil:
            status = log_sync_segment(self.log.storage, self.segment)
        if status != 0:
            raise self._os_error(status)

    cdef object _os_error(self, int status):
        return OSError(status, os.strerror(status), self._name())

    cdef void _advance(self) noexcept nogil:
        self.bytes_read += self.source.header.size_bytes
        source_advance(&self.source)

    cdef Step _go_on(self, int64_t bytes_most, Trouble* trouble) noexcept nogil:
        cdef Step found
        while self.bytes_read < bytes_most:
            found = source_next(&self.source, trouble)
            if found != STEP_MORE:
                return found
            if self.source.header.base_offset < self.next_offset:
                trouble.damage = "an offset goes back"
                return STEP_DAMAGED
            self.next_offset = (
                self.source.header.base_offset + self.source.header.last_offset_delta + 1)
            self._advance()
        return STEP_MORE

    cdef bint _can_go_on(self):
        # Whether the header at hand says where the next batch would be.
        return (
            self.source.whole_header and len(self.damage) < DAMAGED_BATCHES_MAX)

    cdef object _note(self, int64_t offset, const char* what):
        self.damage.append(
            DamagedBatch(self.segment.base_offset, offset, self.source.position,
                         what.decode("ascii")))

    cdef str _name(self):
        return f"{self.log.directory}/{self.segment.base_offset:020d}.log"
