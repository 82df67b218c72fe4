# cython: language_level=3
"""A slice of a segment as a Python object."""

from kbroker.log._types cimport FileSlice


cdef class Slice:
    cdef FileSlice piece
