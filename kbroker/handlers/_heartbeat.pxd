# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.net._types cimport Request

cdef void heartbeat_run(HotWorker* worker, Request* first) noexcept nogil
