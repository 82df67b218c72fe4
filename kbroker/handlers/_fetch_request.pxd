# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.handlers._fetch cimport FetchPlan

cdef int fetch_parse(HotWorker* worker, FetchPlan* plan) noexcept nogil
