# cython: language_level=3
"""Where fetches have found their first entries in an index of aborted transactions."""

from libc.stdint cimport int64_t

from kbroker.log.engine._aborted_index cimport AbortedIndex, AbortedPlace

# Copies the place that is nearest below an offset, or at it. 1, or 0: there is none. It holds for
# this offset, too: the entries before its `first` do not matter.
cdef int aborted_place(AbortedIndex* index, int64_t offset, AbortedPlace* place) noexcept nogil
# Keeps a place for later fetches, if it can without waiting.
cdef void aborted_note_place(AbortedIndex* index, const AbortedPlace* place) noexcept nogil
