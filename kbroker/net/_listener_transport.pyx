# cython: language_level=3
"""What Python hands to a listener that has another transport than the plain one.

A transport is a subclass in C. The server keeps the object as long as its connections.
"""


cdef class ListenerTransport:
    pass
