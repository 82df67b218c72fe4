# cython: language_level=3
from kbroker.handlers._context cimport HotWorker
from kbroker.handlers._fetch cimport FetchPlan

cdef void fetch_answer(HotWorker* worker, FetchPlan* plan) noexcept nogil
cdef void fetch_drop_slices(FetchPlan* plan) noexcept nogil
