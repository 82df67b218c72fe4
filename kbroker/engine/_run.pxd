# cython: language_level=3
from kbroker.net._types cimport Request
from kbroker.engine.worker._context cimport HotWorker

# Serves a run; what Python must do is then in the worker's lists. The role of taker may be gone.
cdef void serve_run(HotWorker* worker, Request* run) noexcept nogil
