# cython: language_level=3
"""One hash for the tables of names and ids that peers choose; see _name_hash.pyx."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef uint32_t name_hash(const uint8_t* data, int32_t length) noexcept nogil
