# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.net._types cimport Request

cdef void read_ahead_run(HotWorker* worker, Request* first) noexcept nogil
