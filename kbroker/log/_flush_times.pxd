# cython: language_level=3
from libc.stdint cimport int64_t

cdef void flush_note(int64_t took_ns) noexcept nogil
