# cython: language_level=3
from kbroker.net._types cimport Request
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker

cdef void fetch_run(HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
cdef int fetch_at_once(HotWorker* worker, Snapshot* snapshot, Request* request) noexcept nogil
