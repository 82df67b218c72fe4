# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t

from kbroker.log.engine._types cimport Batch
from kbroker.net._types cimport Request
from kbroker.replica._partition cimport Partition
from kbroker.engine.worker._context cimport HotWorker


cdef struct GroupWrite:
    Batch batch                   # what it waits with; its records are in the log
    int64_t number                # Python's, of a write without a request
    int deletes                   # it waits for a low watermark: replica/_partition.pxd
    int32_t error                 # as who asked for it says it, once it is over
    int32_t place_count
    uint32_t* places              # in the same allocation: of the errors in the request's answer


cdef enum:
    WRITE_WAITS = -2

# For an answer with so many errors; free() it, unless it waits. NULL: no memory.
cdef GroupWrite* group_write_new(const Batch* batch, int32_t place_count) noexcept nogil

# The answer is in the request, and leaves when the followers have the batch. Takes the write over.
cdef void group_write_answer(
    HotWorker* worker, Request* request, GroupWrite* write, Partition* partition) noexcept nogil

# Without a request: WRITE_WAITS, and a handler finds it in `worker.settled` when it is over; else
# its error. Takes the write over.
cdef int group_write_wait(
    HotWorker* worker, GroupWrite* write, Partition* partition, int32_t timeout_ms) noexcept nogil
