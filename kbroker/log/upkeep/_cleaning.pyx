# cython: language_level=3
"""One cleaning of a compacted log: of every key the last record stays.

    map_keys     reads what is dirty, and notes the last offset of each key, of as many as there is
                 room for
    clean        reads a group of segments from its beginning, and writes what stays into one new
                 segment, whose files end with `.cleaned`
    finish       that segment is whole and on the disk
    swap_in      it takes the place of its group in the log; the caller gives the files their names

`_batch_filter.pyx` says which part of a batch stays. A batch of which nothing stays goes, but for
the one that a producer's sequence is known by, and the last that is cleaned, so that the log's end
is in its files: those stay, without records. A group may become a segment without bytes, which the
next cleaning merges with others. Records of an aborted transaction are no values for their keys,
and go; nothing is cleaned that is not decided. `_cleaned_markers.pyx` says which markers go, and
their entries in `.txnindex` with them; one that a producer's epoch is known by stays. A batch that
keeps all of its records keeps its bytes; others are packed again with their codec.

`map_keys` and `clean` return after so many bytes, so that their caller can hold them back, or stop.
A batch that is not sound ends it all (`Uncleanable`), and nothing has been touched.

One thread owns a cleaning. The log's lock is held to look at its segments and to swap them; their
files are read without it, through references. No GIL, but to pack, and to unpack what C cannot.
"""

from libc.errno cimport EFAULT, EFBIG, ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, strdup

cimport cython

from kbroker._log cimport LocalLog
from kbroker.core._atomics cimport kb_store_int
from kbroker.core._limits cimport UNPACKED_PIECE_BYTES
from kbroker.core._sync cimport kb_wall_ms
from kbroker.log.engine._index cimport OFFSET_ENTRY_BYTES
from kbroker.log.engine._records cimport (
    CODEC_MASK, CONTROL_BIT, HEADER_BYTES, TRANSACTIONAL_BIT, Header, header_read)
from kbroker.log.engine._segment cimport (
    part_of, segment_add_reference, segment_create_named, segment_drop_reference,
    segment_file_bytes, segment_note_batch, segment_renamed, segment_reserve, segment_seal,
    segment_sync, segment_unlink)
from kbroker.log.engine._storage cimport (
    Log, lock_log, lock_to_look, log_find_sealed, log_replace_segments, unlock_log)
from kbroker.log.engine._types cimport Segment
from kbroker.log.upkeep._aborted_copy cimport (
    AbortedSet, aborted_copy, aborted_set_close, aborted_set_has, aborted_set_open)
from kbroker.log.upkeep._batch_filter cimport (
    BatchFilter, filter_batch, filter_close, filter_make_empty, filter_map, filter_write)
from kbroker.log.upkeep._batch_source cimport (
    STEP_DAMAGED, STEP_DONE, STEP_FAILED, STEP_MORE, STEP_PACK, STEP_UNPACK, BatchSource, Step,
    Trouble, source_advance, source_begin, source_close, source_is_at_last, source_next)
from kbroker.log.upkeep._buffer cimport Buffer, buffer_close, buffer_reserve
from kbroker.log.upkeep._cleaned_markers cimport (
    CleanedMarkers, filter_marker, markers_close, markers_note_data)
from kbroker.log.upkeep._key_map cimport key_map_open
from kbroker.log.upkeep._known_producers cimport (
    KnownProducers, known_producers_end_with, known_producers_free, known_producers_take)
from kbroker.log.upkeep._whole_io cimport begin_write_back, write_whole

import os

from kbroker.compression import PACKINGS, Codec, CompressionError, decompress_in_python
from kbroker.log.engine._results import Uncleanable
from kbroker.protocol.record_batch import repacked

cdef enum:
    WRITE_BYTES = 1 << 20         # are written at once


@cython.final
cdef class Cleaning:
    """See the head of this file."""

    cdef LocalLog log
    cdef Log* storage
    cdef Segment** segments       # a reference to each, oldest first
    cdef int64_t* sizes
    cdef int32_t count
    cdef int64_t end_offset       # after the last of them
    cdef int64_t cuts             # of the log, when they were taken
    cdef int64_t index_bytes, index_interval_bytes
    cdef KnownProducers producers
    cdef AbortedSet aborted       # the aborted transactions of its segments
    cdef CleanedMarkers markers
    cdef BatchSource source
    cdef BatchFilter filter
    cdef Trouble trouble
    cdef Buffer waiting           # whole batches, to be written
    cdef Segment* fresh           # the new one; NULL: there is none
    cdef int64_t fresh_bytes      # in its file
    cdef int64_t fresh_bytes_max, group_bytes  # to be read, with the batch at hand
    cdef int32_t group_at, group_end
    cdef int32_t cleaned_end      # after the last segment of the last group
    cdef bint swapped_in          # the new one is the log's, whatever its files are called
    cdef readonly int64_t bytes_mapped
    cdef readonly int64_t bytes_read
    cdef readonly int64_t bytes_written
    cdef readonly int64_t records_read
    cdef readonly int64_t records_written

    def __cinit__(self, LocalLog log not None, *unused, **rest):
        self.log = log
        self.storage = log.storage

    def __init__(
        self, log, int64_t first_dirty, int64_t end_offset, *, int64_t map_bytes_max,
        double load_factor, int64_t now_ms, int64_t delete_retention_ms,
        int64_t segment_bytes_max = INT32_MAX,
    ):
        """Of the segments that end at or below `end_offset`, where one begins.

        What lies below `first_dirty` was cleaned before. No segment becomes larger than
        `segment_bytes_max`, the most that its indexes can say. OSError, MemoryError.
        """
        cdef int status
        self.end_offset = end_offset
        self.fresh_bytes_max = segment_bytes_max
        self.filter.first_dirty = first_dirty
        self.filter.mapped_end = first_dirty
        self.filter.now_ms = now_ms
        self.filter.delete_retention_ms = delete_retention_ms
        self._take_segments()
        known_producers_take(&self.producers, self.log)
        with nogil:
            status = aborted_set_open(&self.aborted, self.storage, self.end_offset)
        if status:
            raise self._os_error(status)
        # No more keys than there are offsets.
        if key_map_open(
                &self.filter.map, map_bytes_max, load_factor,
                max(0, end_offset - first_dirty)) != 0:
            raise MemoryError
        self.source.segments = self.segments
        self.source.sizes = self.sizes
        source_begin(&self.source, self._first_from(first_dirty), self.count)

    def __dealloc__(self):
        cdef int32_t at
        for at in range(self.count):
            if self.segments[at] != NULL:
                segment_drop_reference(self.segments[at])
        self._drop_fresh()
        source_close(&self.source)
        filter_close(&self.filter)
        buffer_close(&self.waiting)
        free(self.segments)
        free(self.sizes)
        known_producers_free(&self.producers)
        aborted_set_close(&self.aborted)
        markers_close(&self.markers)

    cdef int _take_segments(self) except -1:
        cdef Log* log = self.storage
        cdef int64_t taken_end = self.filter.first_dirty
        cdef int32_t at
        cdef int fits = 0
        with nogil:
            lock_to_look(log)
            self.cuts = log.cuts
            self.index_bytes = log.settings.index_bytes
            self.index_interval_bytes = log.settings.index_interval_bytes
            self.segments = <Segment**>calloc(<size_t>log.segment_count + 1, sizeof(Segment*))
            self.sizes = <int64_t*>calloc(<size_t>log.segment_count + 1, sizeof(int64_t))
            fits = self.segments != NULL and self.sizes != NULL
            if fits and log.online:
                for at in range(log.segment_count - 1):      # the last one is active
                    if log.segments[at + 1].base_offset > self.end_offset:
                        break
                    if log.segments[at + 1].base_offset <= log.log_start_offset:
                        continue      # on its way out
                    self.segments[self.count] = log.segments[at]
                    # With stray bytes, which may have been batches: they end the cleaning.
                    self.sizes[self.count] = segment_file_bytes(log.segments[at])
                    segment_add_reference(log.segments[at])
                    self.count += 1
                    taken_end = log.segments[at + 1].base_offset
            self.end_offset = min(self.end_offset, taken_end)
            unlock_log(log)
        if not fits:
            raise MemoryError
        return 0

    cdef int _was_aborted(self) noexcept nogil:
        # The batch at hand.
        return self.aborted.count and aborted_set_has(&self.aborted, &self.source.header)

    cdef int32_t _first_from(self, int64_t offset) noexcept nogil:
        # The segment in which an offset lies, the first where it lies below all.
        cdef int32_t at = 0
        while at + 1 < self.count and self.segments[at + 1].base_offset <= offset:
            at += 1
        return at

    @property
    def mapped_end(self) -> int:
        """Of all records below it the keys are in the map, or were cleaned before."""
        return self.filter.mapped_end

    @property
    def keys(self) -> int:
        return self.filter.map.count

    @property
    def map_share(self) -> float:
        """How full the map is."""
        return <double>self.filter.map.count / <double>self.filter.map.slots

    # --- The map ----------------------------------------------------------------------------------

    cdef Step _map_batch(self, const uint8_t* records, int64_t length, int codec) noexcept nogil:
        cdef Header* header = &self.source.header
        cdef int64_t end = header.base_offset + header.last_offset_delta + 1
        cdef Step step
        if header.attributes & CONTROL_BIT or self._was_aborted():
            self.filter.mapped_end = max(self.filter.mapped_end, end)
            step = STEP_DONE
        elif end <= self.filter.first_dirty:
            step = STEP_DONE
        else:
            step = filter_map(&self.filter, header, records, length, codec, &self.trouble)
        if step == STEP_DONE:
            self.bytes_mapped += header.size_bytes
            source_advance(&self.source)
        return step

    cdef Step _map_some(self, int64_t bytes_max) noexcept nogil:
        cdef int64_t enough = self.bytes_mapped + bytes_max
        cdef Step step = STEP_DONE
        while step == STEP_DONE and self.bytes_mapped < enough:
            step = source_next(&self.source, &self.trouble)
            if step != STEP_MORE:
                return step
            step = self._map_batch(
                self.source.batch + HEADER_BYTES, self.source.header.size_bytes - HEADER_BYTES,
                self.source.header.attributes & CODEC_MASK)
        return STEP_MORE if step == STEP_DONE else step

    def map_keys(self, int64_t bytes_max) -> bool:
        """Reads on in what is dirty; False: no more, there is an end of it or of the map.

        Uncleanable, OSError, MemoryError.
        """
        cdef Step step
        cdef bytes records
        with nogil:
            step = self._map_some(bytes_max)
        if step == STEP_UNPACK:
            records = self._unpacked()
            step = self._map_batch(records, len(records), 0)
            if step == STEP_DONE:
                step = STEP_MORE
        self._raise_if_bad(step)
        if step == STEP_DONE and self.count:
            self.filter.mapped_end = max(self.filter.mapped_end, self.end_offset)
        return step == STEP_MORE

    # --- What stays -------------------------------------------------------------------------------

    cdef int64_t _end_of(self, int32_t at) noexcept nogil:
        return self.segments[at + 1].base_offset if at + 1 < self.count else self.end_offset

    def groups(self, int64_t segment_bytes) -> list:
        """(first, after the last) of the segments that become one each, as far as keys were mapped:
        no more of them than fit into one, with its indexes."""
        cdef int64_t entries_max = self.index_bytes / OFFSET_ENTRY_BYTES, size_bytes, entries
        cdef int32_t first = 0, end
        found = []
        while first < self.count and self.segments[first].base_offset < self.filter.mapped_end:
            end = first
            size_bytes = entries = 0
            while end < self.count and self.segments[end].base_offset < self.filter.mapped_end:
                size_bytes += self.sizes[end]
                entries += max(
                    part_of(self.segments[end]).offsets.entries,
                    part_of(self.segments[end]).times.entries)
                if end > first and (
                        size_bytes > segment_bytes or entries >= entries_max
                        or self._end_of(end) - self.segments[first].base_offset > INT32_MAX):
                    break
                end += 1
            found.append((first, end))
            first = end
        self.cleaned_end = first
        return found

    def begin_group(self, int32_t first, int32_t end) -> None:
        """What `clean` reads from now on, and `swap_in` replaces. OSError, MemoryError."""
        cdef int status = ENOMEM
        cdef char* directory
        cdef int32_t at
        self._drop_fresh()
        self.swapped_in = False
        self.group_at = first
        self.group_end = end
        self.waiting.size = 0
        self.fresh_bytes = 0
        self.group_bytes = 0
        for at in range(first, end):
            self.group_bytes += self.sizes[at]
        self.markers.gone_count = 0
        source_begin(&self.source, first, end)
        with nogil:
            lock_to_look(self.storage)
            directory = strdup(self.storage.directory)    # the log may be moved meanwhile
            unlock_log(self.storage)
            if directory != NULL:
                self.fresh = segment_create_named(
                    directory, self.segments[first].base_offset, b".cleaned",
                    self.index_bytes, kb_wall_ms(), &status)
            free(directory)
        if self.fresh == NULL:
            raise self._os_error(status)

    cdef int _stays_empty(self) noexcept nogil:
        if self.group_end == self.cleaned_end and source_is_at_last(&self.source):
            return 1
        return known_producers_end_with(&self.producers, &self.source.header)

    cdef Step _emit_empty(self) noexcept nogil:
        # Nothing of the batch at hand stays: but itself, where it has to.
        if not self._stays_empty():
            return STEP_DONE
        self.trouble.status = filter_make_empty(
            &self.filter, &self.source.header, self.source.batch)
        if self.trouble.status != 0:
            return STEP_FAILED
        return self._emit(self.filter.out.data, self.filter.out.size)

    cdef Step _clean_batch(self, const uint8_t* records, int64_t length, int codec) noexcept nogil:
        # STEP_DONE: what stays of the batch at hand is among what waits to be written.
        cdef const Header* header = &self.source.header
        cdef Step step
        # Where no byte more fits a delete horizon is left for a later cleaning.
        self.filter.room_bytes = (
            self.fresh_bytes_max - self.fresh_bytes - self.waiting.size - self.group_bytes)
        if header.attributes & CONTROL_BIT:
            step = filter_marker(
                &self.markers, &self.filter, header, self.source.batch, records, length,
                known_producers_end_with(&self.producers, header), &self.trouble)
        else:
            if (header.attributes & TRANSACTIONAL_BIT
                    and markers_note_data(&self.markers, header) != 0):
                self.trouble.status = ENOMEM
                return STEP_FAILED
            if self._was_aborted():
                self.records_read += header.record_count
                return self._emit_empty()
            step = filter_batch(
                &self.filter, header, self.source.batch, records, length, codec, &self.trouble)
        if step == STEP_DONE or step == STEP_PACK:
            self.records_read += self.filter.passed.seen
            self.records_written += self.filter.passed.kept
        if step != STEP_DONE:
            return step
        if self.filter.out.size:
            return self._emit(self.filter.out.data, self.filter.out.size)
        if self.filter.passed.kept:
            return self._emit(self.source.batch, header.size_bytes)
        return self._emit_empty()

    cdef void _advance(self) noexcept nogil:
        self.bytes_read += self.source.header.size_bytes
        self.group_bytes -= self.source.header.size_bytes
        source_advance(&self.source)

    cdef Step _clean_some(self, int64_t bytes_max) noexcept nogil:
        cdef int64_t enough = self.bytes_read + bytes_max
        cdef Step step
        while self.bytes_read < enough:
            step = source_next(&self.source, &self.trouble)
            if step != STEP_MORE:
                return step
            step = self._clean_batch(
                self.source.batch + HEADER_BYTES, self.source.header.size_bytes - HEADER_BYTES,
                self.source.header.attributes & CODEC_MASK)
            if step != STEP_DONE:
                return step
            self._advance()
        return STEP_MORE

    def clean(self, int64_t bytes_max) -> bool:
        """Reads on in the group; False: it has been read, and may be finished.

        Uncleanable, OSError, MemoryError.
        """
        cdef Step step
        cdef bytes records
        cdef int for_python
        with nogil:
            step = self._clean_some(bytes_max)
        for_python = step == STEP_UNPACK or step == STEP_PACK
        if step == STEP_UNPACK:
            records = self._unpacked()
            step = self._clean_batch(records, len(records), 0)
        if step == STEP_PACK:
            step = self._emit_packed()
        if for_python and step == STEP_DONE:
            self._advance()
            step = STEP_MORE
        self._raise_if_bad(step)
        return step == STEP_MORE

    cdef object _codec(self):
        return Codec(self.source.header.attributes & CODEC_MASK)

    cdef bytes _unpacked(self):
        cdef bytes packed = self.source.batch[HEADER_BYTES:self.source.header.size_bytes]
        try:
            return decompress_in_python(self._codec(), packed)
        except (ValueError, CompressionError) as error:
            raise Uncleanable(self._where(str(error))) from error

    cdef Step _emit_packed(self):
        cdef bytes header = self.filter.out.data[:HEADER_BYTES]
        cdef bytearray packed
        self.filter.out.size = 0
        packed = repacked(header, PACKINGS[self._codec()], self._pieces(), INT32_MAX)
        return self._emit(<const uint8_t*><char*>packed, len(packed))

    def _pieces(self):
        """The records that stay of the batch at hand, of one length each but the last."""
        cdef Buffer* out = &self.filter.out
        cdef Step step = STEP_MORE
        cdef bytes piece
        while step == STEP_MORE:
            with nogil:
                step = filter_write(
                    &self.filter, &self.source.header, UNPACKED_PIECE_BYTES, &self.trouble)
            self._raise_if_bad(step)
            piece = out.data[:min(out.size, UNPACKED_PIECE_BYTES)]
            out.size -= len(piece)
            memmove(out.data, out.data + len(piece), <size_t>out.size)
            if piece:
                yield piece
        if out.size:
            yield out.data[:out.size]

    # --- Writing ----------------------------------------------------------------------------------

    cdef Step _emit(self, const uint8_t* data, int64_t size_bytes) noexcept nogil:
        cdef int64_t at = self.fresh_bytes + self.waiting.size
        cdef Header header
        self.trouble.status = EFBIG if at + size_bytes > self.fresh_bytes_max else 0
        if self.trouble.status == 0:
            self.trouble.status = segment_reserve(self.fresh, 1)
        if self.trouble.status == 0:
            self.trouble.status = buffer_reserve(&self.waiting, size_bytes)
        if self.trouble.status != 0:
            return STEP_FAILED
        header_read(data, &header)
        if not segment_note_batch(self.fresh, at, &header, self.index_interval_bytes):
            kb_store_int(&self.storage.online, 0)
            self.trouble.status = EFAULT
            return STEP_FAILED
        memcpy(self.waiting.data + self.waiting.size, data, <size_t>size_bytes)
        self.waiting.size += size_bytes
        return self._write_waiting() if self.waiting.size >= WRITE_BYTES else STEP_DONE

    cdef Step _write_waiting(self) noexcept nogil:
        cdef int64_t size_bytes = self.waiting.size
        self.trouble.status = write_whole(
            self.fresh.fd, self.waiting.data, size_bytes, self.fresh_bytes)
        if self.trouble.status != 0:
            return STEP_FAILED
        # Now, or the sync of the segment waits for all of it, and new writes of producers with it.
        begin_write_back(self.fresh.fd, self.fresh_bytes, size_bytes)
        self.fresh_bytes += size_bytes
        self.bytes_written += size_bytes
        self.waiting.size = 0
        return STEP_DONE

    def finish(self) -> None:
        """What was written of the group is on the disk, with its indexes. OSError."""
        cdef Step step
        with nogil:
            step = self._write_waiting()
            if step == STEP_DONE:
                self.fresh.size_bytes = self.fresh_bytes
                self.trouble.status = (
                    aborted_copy(self.segments + self.group_at, self.group_end - self.group_at,
                                 self.fresh, self.markers.gone, self.markers.gone_count)
                    or segment_seal(self.fresh) or segment_sync(self.fresh))
                if self.trouble.status != 0:
                    step = STEP_FAILED
        self._raise_if_bad(step)
        # The age of one without timestamps.
        modified_ns = os.fstat(self.segments[self.group_end - 1].fd).st_mtime_ns
        os.utime(self.fresh.fd, ns=(modified_ns, modified_ns))

    def give_up(self) -> None:
        """Removes the files of a group that was not finished, or not swapped in."""
        if self.fresh != NULL and not self.swapped_in:
            segment_unlink(self.fresh)
        self._drop_fresh()

    cdef void _drop_fresh(self) noexcept:
        if self.fresh != NULL:
            segment_drop_reference(self.fresh)
            self.fresh = NULL

    # --- The swap ---------------------------------------------------------------------------------

    @property
    def group_bases(self) -> list:
        """Base offsets of the group's segments; the new one has the first of them."""
        return [self.segments[at].base_offset for at in range(self.group_at, self.group_end)]

    cdef int32_t _found_in_log_locked(self) noexcept nogil:
        # Where the group is in the log; -1: it is no longer what was read.
        if not self.storage.online or self.storage.cuts != self.cuts:
            return -1
        return log_find_sealed(
            self.storage, self.segments + self.group_at, self.group_end - self.group_at)

    @property
    def same_history(self) -> bool:
        """Whether the log's end was not taken away since its segments were looked at."""
        cdef int same
        with nogil:
            lock_to_look(self.storage)
            same = self.storage.cuts == self.cuts
            unlock_log(self.storage)
        return bool(same)

    @property
    def still_there(self) -> bool:
        """Whether the group's segments are still the log's."""
        cdef int32_t at
        with nogil:
            lock_to_look(self.storage)
            at = self._found_in_log_locked()
            unlock_log(self.storage)
        return at >= 0

    def swap_in(self) -> bool:
        """The new segment, whose files end with `.swap` by now, takes its group's place.

        False: the log was cut or trimmed there meanwhile, or is offline; nothing has changed.
        MemoryError.
        """
        cdef Log* log = self.storage
        cdef int32_t at
        cdef int status = 0
        with nogil:
            lock_log(log)
            at = self._found_in_log_locked()
            if at >= 0:
                status = segment_renamed(self.fresh, log.directory, b".swap")
            if at >= 0 and status == 0:
                self.swapped_in = log_replace_segments(
                    log, at, self.group_end - self.group_at, self.fresh)
                if self.swapped_in:
                    segment_add_reference(self.fresh)
            unlock_log(log)
        if status:
            raise MemoryError
        if self.swapped_in:
            self._drop_group()
        return self.swapped_in

    cdef void _drop_group(self) noexcept:
        # Their files can go while others are cleaned.
        cdef int32_t at
        for at in range(self.group_at, self.group_end):
            segment_drop_reference(self.segments[at])
            self.segments[at] = NULL

    def has_its_names(self) -> None:
        """The new segment's files have their own names now. MemoryError."""
        cdef int status
        with nogil:
            lock_log(self.storage)
            status = segment_renamed(self.fresh, self.storage.directory, b"")
            unlock_log(self.storage)
        self._drop_fresh()
        if status:
            raise MemoryError

    # --- What went wrong --------------------------------------------------------------------------

    cdef object _os_error(self, int status):
        if status == ENOMEM:
            return MemoryError()
        return OSError(status, os.strerror(status), self.log.directory)

    cdef str _where(self, str what):
        return (
            f"{self.log.directory}/{self.segments[self.source.at].base_offset:020d}.log, byte"
            f" {self.source.position}: {what}")

    cdef int _raise_if_bad(self, Step step) except -1:
        if step == STEP_DAMAGED:
            raise Uncleanable(self._where(self.trouble.damage.decode("ascii")))
        if step == STEP_UNPACK:
            raise Uncleanable(self._where("its records cannot be unpacked"))
        if step == STEP_FAILED:
            raise self._os_error(self.trouble.status)
        return 0
