# cython: language_level=3
"""Who is in Python, and which requests wait until one of them is back.

Handlers in Python share one lock, so more of them hardly get more done; but each is one less for
what needs no Python, and when all of them are there a produce waits for whatever takes long. So one
handler of four (one at least, if there are two) stays out. What needs Python meanwhile leaves the
queue and waits here in its order; a handler that comes back from Python takes it, before anything
else.

It is so beside slow files, too (_aside): of BOUNDED_FROM handlers or more one that is neither at a
file nor in Python is left for the queue, and one place at a file is kept free of Python.

So while a request waits here a handler is in Python and will look, or all handlers are busy (one of
them with something slow, before which it left this here) and look when they are back: a sleeping
handler that may enter is woken. Requests that wait count as queued, so the queue's bounds hold for
both together. Everything is under the request channel's lock.
"""

from kbroker.core._list cimport list_append_all, list_remove_first
from kbroker.core._require cimport require, require_count
from kbroker.net._request cimport request_detach
from kbroker.net._types cimport BOUNDED_FROM, Handler, InPython, Request

cdef enum:
    ONE_STAYS_OF = 4
    COPIED_BYTES_MAX = 4096


cdef int python_is_full(InPython* python, int handlers, int at_files) noexcept nogil:
    cdef int most = max(1, handlers - max(1, handlers // <int>ONE_STAYS_OF))
    if handlers >= BOUNDED_FROM:
        most = max(1, min(most, handlers - 1 - max(1, at_files)))
    return python.handlers >= most


cdef void python_enter(InPython* python, Handler* handler) noexcept nogil:
    # Else it goes again, without having taken anything meanwhile; or it counts nowhere any more.
    if not handler.in_python and not handler.retired:
        handler.in_python = 1
        python.handlers += 1


cdef void python_left(InPython* python, Handler* handler) noexcept nogil:
    handler.in_python = 0
    python.handlers = <int>require_count(
        python.handlers - 1, "in Python: handlers there are counted")


cdef void python_add(InPython* python, Request* first, Request* last) noexcept nogil:
    cdef Request* request = first
    while request != NULL:
        # Produces go past it: a whole chunk of theirs is not to be kept by its few bytes.
        if request.compact and request.total_bytes <= COPIED_BYTES_MAX:
            request_detach(request)
        request = request.next
    list_append_all(&python.head, &python.tail, first, last, &last.next,
                    "in Python: nothing is after the last")


cdef Request* python_take(InPython* python) noexcept nogil:
    cdef Request* request = python.head
    require(request != NULL, "in Python: what is taken waits there", 0, 1)
    list_remove_first(&python.head, &python.tail, request, &request.next,
                      "in Python: what is taken is the first")
    return request
