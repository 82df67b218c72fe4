# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.engine.worker._context cimport HotContext, HotWorker

cdef dict hot_statistics(
    HotContext* context, HotWorker** workers, int count, HotWorker* own, HotWorker* cold)
cdef void note_gil_wait(HotWorker* worker, int64_t waited_ns) noexcept
