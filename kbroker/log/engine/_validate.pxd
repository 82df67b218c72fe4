# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.log.engine._storage cimport Log
from kbroker.log.engine._types cimport Batch

# Whether the topic stores this batch under another codec than its own, which is for Python.
cdef int log_repacks(Log* log, const Batch* batch) noexcept nogil

# CRC-32C, header, every record walked (compressed ones through a fixed window). A ValidateVerdict.
cdef int log_validate(Log* log, Batch* batch, int64_t now_ms) noexcept nogil
