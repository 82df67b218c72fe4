# cython: language_level=3
"""A slice of a segment as a Python object."""

from kbroker.log.engine._types cimport FileSlice


cdef class Slice:
    cdef FileSlice piece
