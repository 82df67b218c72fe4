# cython: language_level=3
"""What Python hands to a listener that has another transport than the plain one."""

from kbroker.net._types cimport Transport


cdef class ListenerTransport:
    cdef const Transport* operations
    cdef void* context            # of `open`; kept by the object
