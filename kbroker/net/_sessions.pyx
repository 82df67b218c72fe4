# cython: language_level=3
"""The sessions of connections: one structure for all that have authenticated as the same principal.

Whatever holds the GIL makes and frees them; a network thread takes and drops references. One
without references stays until as many others have come as there were: clients come back.
"""

from kbroker.core._atomics cimport kb_add_int, kb_load_int
from kbroker.net._types cimport Session

cdef enum:
    KEPT_MIN = 256                # sessions, before any is freed


cdef class _Interned:
    cdef Session session
    cdef object principal


cdef dict _interned = {}
cdef Py_ssize_t _kept_max = KEPT_MIN


cdef Session* session_intern(object principal) except NULL:
    cdef _Interned found = _interned.get(principal)
    if found is None:
        _free_unused()
        found = _Interned()
        found.principal = principal
        found.session.principal = <void*>principal
        _interned[principal] = found
    kb_add_int(&found.session.refs, 1)
    return &found.session


cdef object session_principal(const Session* session):
    return <object>session.principal


cdef _free_unused():
    global _interned, _kept_max
    cdef _Interned each
    if len(_interned) < _kept_max:
        return
    _interned = {
        principal: each for principal, each in _interned.items()
        if kb_load_int(&each.session.refs) > 0
    }
    _kept_max = max(<Py_ssize_t>KEPT_MIN, 2 * len(_interned))


def references(principal):
    """How many listeners and connections have the session of this principal; None: it is none."""
    cdef _Interned found = _interned.get(principal)
    return None if found is None else kb_load_int(&found.session.refs)
