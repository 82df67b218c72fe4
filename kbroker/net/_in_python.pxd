# cython: language_level=3
from kbroker.net._types cimport Handler, InPython, Request

# All with the lock of the request channel held.

# Whether a request for Python has to wait; `handlers`: how many serve, and how many are at files.
cdef int python_is_full(InPython* python, int handlers, int at_files) noexcept nogil
cdef void python_enter(InPython* python, Handler* handler) noexcept nogil
# Nothing, if it was not there.
cdef inline void python_leave(InPython* python, Handler* handler) noexcept nogil:
    if handler.in_python:
        python_left(python, handler)


cdef void python_left(InPython* python, Handler* handler) noexcept nogil
# A list that ends with `last`.
cdef void python_add(InPython* python, Request* first, Request* last) noexcept nogil
# The one that has waited longest; there is one.
cdef Request* python_take(InPython* python) noexcept nogil
