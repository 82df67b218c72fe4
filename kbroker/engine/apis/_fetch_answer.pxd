# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan

cdef void fetch_answer(HotWorker* worker, FetchPlan* plan) noexcept nogil
# Its bytes as Kafka counts them, without those of leaders and brokers that it may have.
cdef int64_t fetch_answer_size(FetchPlan* plan) noexcept nogil
cdef void fetch_count_reads(HotWorker* worker, FetchPlan* plan) noexcept nogil
cdef void fetch_drop_slices(FetchPlan* plan) noexcept nogil
