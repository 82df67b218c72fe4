# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.net._types cimport Request
from kbroker.replica._snapshot cimport Snapshot

cdef void add_partitions_run(
    HotWorker* worker, Snapshot* snapshot, Request* first) noexcept nogil
