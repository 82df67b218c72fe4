# cython: language_level=3
from kbroker.handlers._context cimport HotContext, HotWorker

cdef dict hot_statistics(
    HotContext* context, HotWorker** workers, int count, HotWorker* own, HotWorker* cold)
