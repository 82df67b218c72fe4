# cython: language_level=3
"""A log on its way into another directory, segment by segment, while it is appended to and read.

    SegmentCopy      one segment: its records are copied as far as they go, again and again where it
                     is appended to; `finish` adds its indexes and brings all of it to the disk
    begin_swap       from here on nothing is appended, cut or rolled, until `end_swap`; who reads
                     goes on
    put_in_place     the copies are the log's segments

Every place in a copy is the one that it has in the original, so what is known of places holds, and
so does what a slice has lent of the original, whose file lives as long as it is held.

`PartitionLog.changing` keeps trims, cuts and cleanings apart from `put_in_place`. Between
`begin_swap` and `end_swap` an append waits as for one that writes; the same thread may look at the
log meanwhile, and change nothing of it. No GIL.
"""

from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport strdup

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_load_i64, kb_load_int, kb_store_i64, kb_store_ptr
from kbroker.log.engine._directory_mark cimport DirectoryMark, directory_mark_of
from kbroker.log.engine._aborted_index cimport aborted_reset
from kbroker.log.engine._file_operations cimport files
from kbroker.log.engine._index cimport Index, index_close, index_open_readable
from kbroker.log.engine._segment cimport (
    SegmentPart, part_of, segment_activate, segment_add_reference, segment_create_named,
    segment_drop_reference, segment_file_bytes, segment_renamed, segment_sync,
    segment_sync_records)
from kbroker.log.engine._storage cimport (
    Log, active_of, begin_step_locked, end_step_locked, lock_log, lock_to_look,
    log_find_segment, log_has_segment, unlock_log)
from kbroker.log.engine._types cimport Segment
from kbroker.log.upkeep._aborted_copy cimport aborted_copy
from kbroker.log.upkeep._whole_io cimport read_whole, write_whole

import os

from kbroker.errors import InvariantError

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDONLY
        O_WRONLY
        O_CREAT
        O_TRUNC
        O_CLOEXEC

cdef extern from "<sys/stat.h>" nogil:
    struct timespec:
        pass
    struct stat_of "stat":
        timespec st_atim
        timespec st_mtim
    int fstat(int fd, stat_of* found)
    int futimens(int fd, timespec* times)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    COPY_BYTES = 1 << 18          # at once


cdef int write_index(
    const Index* index, const char* path, const char* fresh_path
) noexcept nogil:
    # The entries that an index has, into a new file; 0 or an errno.
    cdef int64_t size_bytes = <int64_t>index.entries * index.entry_bytes
    cdef uint8_t* entries = NULL
    cdef int fd, status = 0
    if index.map == NULL:
        fd = files.open(path, O_RDONLY | O_CLOEXEC, 0)
        if fd < 0:
            return 0 if errno == ENOENT and size_bytes == 0 else errno
        entries = <uint8_t*>malloc(<size_t>size_bytes + 1)
        status = ENOMEM if entries == NULL else read_whole(fd, entries, size_bytes, 0)
        close(fd)
    if status == 0:
        fd = files.open(fresh_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        status = errno if fd < 0 else write_whole(
            fd, index.map if index.map != NULL else entries, size_bytes, 0)
        if fd >= 0:
            close(fd)
    free(entries)
    return status


cdef class SegmentCopy:
    """See the head of this file."""

    cdef LocalLog log
    cdef Segment* segment         # with a reference
    cdef Segment* fresh           # its copy; a reference, until it is the log's
    cdef uint8_t* buffer
    cdef readonly int64_t base_offset
    cdef readonly int64_t copied_bytes
    cdef readonly bint finished   # sealed, whole, and on the disk

    def __init__(self, LocalLog log not None, int64_t base_offset, str directory not None):
        """Into `directory`, which has none of it. KeyError: there is no such segment; OSError."""
        cdef Log* storage = log.storage
        cdef bytes path = os.fsencode(directory)
        cdef const char* c_path = path
        cdef int status = 0
        cdef int at
        self.log = log
        self.base_offset = base_offset
        with nogil:
            lock_to_look(storage)
            at = log_find_segment(storage, base_offset)
            if at >= 0 and storage.segments[at].base_offset == base_offset:
                self.segment = storage.segments[at]
                segment_add_reference(self.segment)
            unlock_log(storage)
        if self.segment == NULL:
            raise KeyError(base_offset)
        with nogil:
            self.fresh = segment_create_named(c_path, base_offset, b"", 0, 0, &status)
            if self.fresh != NULL:
                index_close(&part_of(self.fresh).offsets)
                index_close(&part_of(self.fresh).times)
        if self.fresh == NULL:
            raise OSError(status, os.strerror(status), directory)
        self.buffer = <uint8_t*>malloc(COPY_BYTES)
        if self.buffer == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.segment != NULL:
            segment_drop_reference(self.segment)
        if self.fresh != NULL:
            segment_drop_reference(self.fresh)
        free(self.buffer)

    @property
    def still_there(self) -> bool:
        """Whether what is copied is the log's: what was cut or trimmed is not."""
        cdef int found
        with nogil:
            lock_to_look(self.log.storage)
            found = self.log.storage.online and log_has_segment(self.log.storage, self.segment)
            unlock_log(self.log.storage)
        return bool(found)

    @property
    def left_bytes(self) -> int:
        return segment_file_bytes(self.segment) - self.copied_bytes

    def copy(self) -> int:
        """The next bytes to copy, 256 KB at most; how many. OSError."""
        cdef int64_t length = min(self.left_bytes, <int64_t>COPY_BYTES)
        cdef int status
        if length <= 0:
            return 0
        with nogil:
            status = read_whole(self.segment.fd, self.buffer, length, self.copied_bytes)
            if status == 0:
                status = write_whole(self.fresh.fd, self.buffer, length, self.copied_bytes)
        if status:
            raise self._os_error(status)
        self.copied_bytes += length
        return length

    def sync(self) -> None:
        """What is copied is on the disk. OSError."""
        cdef int status
        with nogil:
            status = segment_sync_records(self.fresh)
        if status:
            raise self._os_error(status)

    def finish(self) -> None:
        """All of it is copied, and nothing is appended to it: with its indexes it is on the disk on
        return. Of the active one, between `begin_swap` and `end_swap`. OSError."""
        cdef SegmentPart* ours = part_of(self.segment)
        cdef SegmentPart* part = part_of(self.fresh)
        cdef Log* storage = self.log.storage
        cdef stat_of found
        cdef timespec times[2]
        cdef int status, active
        if self.left_bytes:
            raise InvariantError(f"{self.left_bytes} bytes of {self._name()} are not copied")
        with nogil:
            lock_to_look(storage)
            active = storage.segment_count > 0 and active_of(storage) == self.segment
            part.max_timestamp_ms = ours.max_timestamp_ms
            part.max_timestamp_offset = ours.max_timestamp_offset
            part.believed_offset = ours.believed_offset
            part.believed_ms = ours.believed_ms
            part.first_timestamp_ms = ours.first_timestamp_ms
            part.created_ms = ours.created_ms
            part.bytes_since_entry = ours.bytes_since_entry
            part.largest_batch_bytes = kb_load_i64(&ours.largest_batch_bytes)
            part.unseen_end = ours.unseen_end
            unlock_log(storage)
            part.stray_bytes = ours.stray_bytes
            part.may_hold_empty = kb_load_int(&ours.may_hold_empty)
            self.fresh.size_bytes = self.copied_bytes - part.stray_bytes
            index_close(&part.offsets)
            index_close(&part.times)
            status = write_index(&ours.offsets, ours.offsets_path, part.offsets_path)
            if status == 0:
                status = write_index(&ours.times, ours.times_path, part.times_path)
            if status == 0:
                status = aborted_reset(&part.aborted, part.aborted_path)
            if status == 0:
                status = aborted_copy(&self.segment, 1, self.fresh, NULL, 0)
            if status == 0:
                status = index_open_readable(
                    &part.offsets, part.offsets_path, ours.offsets.entry_bytes)
            if status == 0:
                status = index_open_readable(&part.times, part.times_path, ours.times.entry_bytes)
            if status == 0 and active:
                status = segment_activate(self.fresh, storage.settings.index_bytes)
            # Records without a timestamp are as old as the file.
            if status == 0 and fstat(self.segment.fd, &found) == 0:
                times[0] = found.st_atim
                times[1] = found.st_mtim
                futimens(self.fresh.fd, times)
            if status == 0:
                status = segment_sync(self.fresh)
        if status:
            raise self._os_error(status)
        self.finished = not active
        if self.finished:
            free(self.buffer)         # a log has thousands
            self.buffer = NULL

    def take_name(self, str directory not None) -> None:
        """Its files are in the directory of that name from now on, or will be. MemoryError."""
        cdef bytes path = os.fsencode(directory)
        cdef const char* c_path = path
        cdef int status
        with nogil:
            status = segment_renamed(self.fresh, c_path, b"")
        if status:
            raise MemoryError

    cdef object _os_error(self, int status):
        return OSError(status, os.strerror(status), self._name())

    cdef str _name(self):
        return f"{self.log.directory}/{self.base_offset:020d}.log"


def begin_swap(LocalLog log not None) -> None:
    """See the head of this file; `end_swap` follows, on the same thread."""
    cdef Log* storage = log.storage
    with nogil:
        lock_log(storage)
        begin_step_locked(storage)


def end_swap(LocalLog log not None) -> None:
    """What waits to append goes on."""
    cdef Log* storage = log.storage
    with nogil:
        end_step_locked(storage)
        unlock_log(storage)


def put_in_place(LocalLog log not None, list copies not None, str directory not None) -> None:
    """The copies of all segments, oldest first, each finished and with its new name, are the log's,
    which is in that directory now. InvariantError, MemoryError: nothing has changed."""
    cdef Log* storage = log.storage
    cdef bytes path = os.fsencode(directory)
    cdef const char* c_path = path
    cdef DirectoryMark* mark
    cdef char* fresh_path
    cdef Segment** segments       # the copies', then those whose place they have taken
    cdef SegmentCopy copy
    cdef int32_t at, count = storage.segment_count
    fits = len(copies) == count
    for at, copy in enumerate(copies):
        fits = fits and copy.segment == storage.segments[at] and copy.left_bytes == 0
    if not fits:
        raise InvariantError(f"{log.directory} was changed while it was moved")
    with nogil:
        mark = directory_mark_of(c_path)
        fresh_path = strdup(c_path)
    segments = <Segment**>malloc(<size_t>count * sizeof(Segment*))
    if mark == NULL or fresh_path == NULL or segments == NULL:
        free(fresh_path)
        free(segments)
        raise MemoryError
    for at, copy in enumerate(copies):
        segments[at] = copy.fresh
        copy.fresh = NULL
    with nogil:
        lock_to_look(storage)     # for a moment: its holders only look
        for at in range(count):
            storage.segments[at], segments[at] = segments[at], storage.segments[at]
        storage.directory, fresh_path = fresh_path, storage.directory
        kb_store_ptr(<void**>&storage.mark, mark)
        kb_store_i64(&storage.slow_until_ns, 0)      # the other disk's
        free(storage.warm)        # of pages of the other files
        storage.warm = NULL
        storage.warm_next = 0
        unlock_log(storage)
        for at in range(count):
            segment_drop_reference(segments[at])
        free(segments)
        free(fresh_path)
    log.directory = directory
