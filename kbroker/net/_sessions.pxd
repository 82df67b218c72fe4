# cython: language_level=3
"""The sessions of connections: one structure for all that have authenticated as the same principal.

A channel has a pointer to its session, and its requests reach it through the channel. So who a
client is costs a pointer, and two clients are the same principal if their pointers are equal.
"""

from libc.stdint cimport uint32_t

from kbroker.core._atomics cimport kb_add_int
from kbroker.core._require cimport drop_reference, take_reference
from kbroker.net._types cimport Session


# The session of a principal, with a reference for the caller, which holds the GIL.
cdef Session* session_intern(object principal) except NULL
cdef object session_principal(const Session* session)


cdef inline void session_take(Session* session) noexcept nogil:
    take_reference(&session.refs, "session: one with a reference gets another")


# A connection of this listener has the session from now on (1), or no more (-1): for the figures
# alone. It keeps a reference meanwhile.
cdef inline void session_count(Session* session, uint32_t listener, int change) noexcept nogil:
    kb_add_int(&session.connections[listener], change)


cdef inline void session_drop(Session* session) noexcept nogil:
    if session != NULL:
        drop_reference(&session.refs, "session: references are dropped once")
