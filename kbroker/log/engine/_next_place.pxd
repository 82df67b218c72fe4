# cython: language_level=3
from kbroker.log.engine._read cimport Found
from kbroker.log.engine._types cimport FileSlice

# Where the first batch that is not whole in a short slice begins: `next_offset` and `position` of
# `found`. 0: that is not known without much reading.
cdef int find_next_place(Found* found, const FileSlice* slice) noexcept nogil
