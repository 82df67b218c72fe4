# cython: language_level=3
from kbroker.engine.apis._produce_plan cimport ProducePlan

# References to all partitions of a plan, which its answer may have to ask for their leaders.
cdef void produce_acquire_partitions(ProducePlan* plan) noexcept nogil
cdef void produce_release_partitions(ProducePlan* plan) noexcept nogil

# What an answer needs of a plan, in memory of its own and with references to the partitions, so
# that the run's arena and the request's frame may go. NULL: no memory. Its size is asked for first.
cdef size_t produce_kept_bytes(const ProducePlan* plan) noexcept nogil
cdef ProducePlan* produce_keep(ProducePlan* plan, size_t size_bytes) noexcept nogil
cdef void produce_kept_free(ProducePlan* kept) noexcept nogil
