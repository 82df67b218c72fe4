# cython: language_level=3
"""The sessions of connections: one structure for all that have authenticated as the same principal.

Threads that hold the GIL make and free them, and keep it from a look at the references to the end
of a change, since hashes and comparisons of principals run no Python. A network thread takes and
drops references. One without references stays until as many others have come as there were: clients
come back.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t

from kbroker.clock import let_go_of_gil
from kbroker.core._atomics cimport kb_add_int, kb_load_int
from kbroker.core._limits cimport LISTENERS_MAX
from kbroker.net._types cimport Session

cdef enum:
    KEPT_MIN = 256                # sessions, before any is freed
    EACH_PAUSE = 1000             # principals that are looked at without a pause


cdef class _Interned:
    cdef Session session
    cdef object principal
    cdef bytes user


cdef dict _interned = {}
cdef Py_ssize_t _kept_max = KEPT_MIN
cdef uint64_t _last_number = 0


cdef Session* session_intern(object principal) except NULL:
    global _last_number
    cdef _Interned found = _interned.get(principal)
    cdef _Interned made
    if found is None:
        _free_unused()
        made = _Interned()        # a collection may run here, and another thread in it
        made.principal = principal
        _last_number += 1
        made.session.number = _last_number
        made.session.principal = <void*>principal
        made.user = str(getattr(principal, "name", "")).encode("utf-8", "replace")
        made.session.user = <const uint8_t*>made.user
        made.session.user_length = <int32_t>len(made.user)
        found = _interned.setdefault(principal, made)
    kb_add_int(&found.session.refs, 1)
    return &found.session


cdef object session_principal(const Session* session):
    return <object>session.principal


cdef _free_unused():
    # One by one: another thread may take a session between two of them, not within one.
    global _kept_max
    cdef _Interned each
    if len(_interned) < _kept_max:
        return
    for principal in list(_interned):
        each = _interned.get(principal)
        if each is not None and kb_load_int(&each.session.refs) == 0:
            _interned.pop(principal, None)
    _kept_max = max(<Py_ssize_t>KEPT_MIN, 2 * len(_interned))


def references(principal):
    """How many listeners and connections have the session of this principal; None: it is none."""
    cdef _Interned found = _interned.get(principal)
    return None if found is None else kb_load_int(&found.session.refs)


def connections(int listeners):
    """(principal, index of the listener, open connections), of those that have any; of so many
    listeners. Of all servers of this process, which is one but in tests."""
    cdef _Interned each
    cdef int at, count
    cdef Py_ssize_t seen = 0
    found = []
    for principal in list(_interned):
        seen += 1
        if seen % EACH_PAUSE == 0:
            let_go_of_gil()
        each = _interned.get(principal)
        if each is None:
            continue
        for at in range(min(listeners, LISTENERS_MAX)):
            count = kb_load_int(&each.session.connections[at])
            if count > 0:
                found.append((principal, at, count))
    return found
