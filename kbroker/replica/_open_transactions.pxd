# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.replica._partition cimport Partition

# The first offset of the transaction in which a producer has written the batch at `offset`. That
# itself, if the marker of it has come since.
cdef int64_t transaction_begun(
    Partition* partition, int64_t producer_id, int64_t offset) noexcept nogil
