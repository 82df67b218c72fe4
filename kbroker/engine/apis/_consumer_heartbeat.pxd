# cython: language_level=3
from kbroker.net._types cimport Request
from kbroker.engine.worker._context cimport HotWorker

cdef void consumer_heartbeat_run(HotWorker* worker, Request* first) noexcept nogil
