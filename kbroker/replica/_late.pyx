# cython: language_level=3
"""Offsets that are late: the disk has to be asked where they lie, and has not been yet.

Who holds the log's lock does not ask it: appends would wait for the disk, and all that want the log
for one that hangs. The high watermark of a leader and the last stable offset stay where they are
until a task of the scheduler has looked (`late_offsets.py`), or memory knows.

The count is atomic, so that the task costs a load where nothing is late. No GIL.
"""

from kbroker.core._atomics cimport kb_add_int, kb_load_int, kb_store_int

cdef int late_count = 0           # atomic


cdef void note_late(int* is_late, int now) noexcept nogil:
    if kb_load_int(is_late) == now:
        return
    kb_store_int(is_late, now)
    kb_add_int(&late_count, 1 if now else -1)


cdef int late_offsets_count() noexcept nogil:
    return kb_load_int(&late_count)
