# cython: language_level=3
"""The mark of a data directory: whether a write to one of its logs takes too long. See the .pyx."""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64, kb_store_i64


cdef struct DirectoryMark:
    int64_t late_from_ns          # atomic: from then on a write under way is late; 0: there is none
    DirectoryMark* next
    char* path


# The mark of the directory in which a log's directory is; it is never freed. NULL: no memory.
cdef DirectoryMark* directory_mark_of(const char* log_directory) noexcept nogil


# The caller begins a write that is late from that moment on. Returns its note, for mark_end().
cdef inline int64_t mark_begin(DirectoryMark* mark, int64_t late_from_ns) noexcept nogil:
    if kb_load_i64(&mark.late_from_ns) != 0:
        return 0                  # another write of the directory is noted
    kb_store_i64(&mark.late_from_ns, late_from_ns)
    return late_from_ns


cdef inline void mark_end(DirectoryMark* mark, int64_t noted_ns) noexcept nogil:
    if noted_ns != 0 and kb_load_i64(&mark.late_from_ns) == noted_ns:
        kb_store_i64(&mark.late_from_ns, 0)
