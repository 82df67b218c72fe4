# cython: language_level=3
"""A look into an index of a segment that does not keep the log's lock while a file is read.

An index that is mapped is looked up in memory, under the lock. Any other is read from its file,
which on a disk that hangs does not end: all that want the log would hang with it. So the data for
the look is copied under the lock, the file is opened and read without it, and then the lock is
taken again to see whether the file was this index's all the while. A compaction, a cut or a move
may have put another one's under its name meanwhile, whose positions mean nothing here. But a
segment leaves its log, under the lock, before its names are another's: a segment that is still the
log's, and still has that name, was read from its own file. One that has left is scanned from its
beginning.

Any thread, no GIL.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free
from libc.string cimport strcmp, strdup

from kbroker.log.engine._index cimport BY_KEY, Index, index_in_memory, index_look_up
from kbroker.log.engine._segment cimport SegmentPart, part_of, scan_start_at
from kbroker.log.engine._storage cimport Log, lock_to_look, log_has_segment, unlock_log
from kbroker.log.engine._types cimport Segment

cdef enum:
    LOOKS_MAX = 3                 # a segment has two names in its life, one after the other

# What became of one look:
cdef enum Looked:
    FOUND
    CHANGED                       # its file has another name by now, or was cut
    GONE                          # the segment has left the log


cdef inline const Index* index_of(Segment* segment, WhichIndex which) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    return &part.times if which == OF_TIMES else &part.offsets


cdef inline const char* path_of(Segment* segment, WhichIndex which) noexcept nogil:
    cdef SegmentPart* part = part_of(segment)
    return part.times_path if which == OF_TIMES else part.offsets_path


cdef Looked look_once(
    Log* log, Segment* segment, WhichIndex which, IndexColumn column, int64_t target,
    IndexEntry* found
) noexcept nogil:
    cdef const Index* index = index_of(segment, which)
    cdef Index copy
    cdef char* path = NULL
    cdef Looked looked = FOUND
    lock_to_look(log)
    if index_in_memory(index):
        found[0] = index_look_up(index, path_of(segment, which), column, target)
        unlock_log(log)
        return FOUND
    copy.map = NULL
    copy.entry_bytes = index.entry_bytes
    copy.entries = index.entries
    if log_has_segment(log, segment):
        path = strdup(path_of(segment, which))
    unlock_log(log)
    if path == NULL:
        return GONE
    found[0] = index_look_up(&copy, path, column, target)
    lock_to_look(log)
    if not log_has_segment(log, segment):
        looked = GONE
    elif strcmp(path, path_of(segment, which)) != 0 or index.entries < copy.entries:
        looked = CHANGED
    unlock_log(log)
    free(path)
    return looked


cdef IndexEntry log_look_up(
    Log* log, Segment* segment, WhichIndex which, IndexColumn column, int64_t target
) noexcept nogil:
    cdef IndexEntry found
    cdef Looked looked = CHANGED
    cdef int looks = 0
    while looked == CHANGED and looks < LOOKS_MAX:
        looked = look_once(log, segment, which, column, target, &found)
        looks += 1
    if looked != FOUND:
        found.key = -1
        found.value = 0
    return found


cdef int64_t log_scan_start(Log* log, Segment* segment, int64_t offset) noexcept nogil:
    return scan_start_at(segment, log_look_up(
        log, segment, OF_OFFSETS, BY_KEY, offset - segment.base_offset).value)
