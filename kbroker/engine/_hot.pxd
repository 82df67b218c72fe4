# cython: language_level=3
from libc.stdint cimport int32_t, int64_t

from kbroker._net cimport SocketServer
from kbroker.coordinator.group._groups cimport GroupTable
from kbroker.core._limits cimport WORKERS_MAX
from kbroker.log.engine._types cimport Batch
from kbroker.replica._replica cimport Replica
from kbroker.replica._topic_table cimport TopicTable
from kbroker.engine.apis._produce_question cimport ProduceQuestions
from kbroker.engine.worker._context cimport HotContext, HotWorker


cdef class HotPath:
    cdef HotContext context
    cdef SocketServer server
    cdef TopicTable table
    cdef GroupTable groups        # or None
    cdef HotWorker* workers[WORKERS_MAX]
    cdef int worker_count
    cdef HotWorker* own_worker
    cdef object own_lock
    cdef HotWorker* cold_worker
    cdef object cold_lock
    cdef list own_hosts
    cdef dict awaiting            # who waits for a write to have its followers, by number
    cdef int64_t last_number      # under own_lock
    cdef ProduceQuestions questions
    cdef object transactions      # HotTransactions, or None; C points into it
    cdef object verdicts          # HotVerdicts, or None; C points into it
    cdef public object watch_deadline  # of parked requests: the handlers' own, set by their pool
    cdef list _wrap_cold(self, HotWorker* worker)
    cdef int _await(
        self, Replica replica, Batch* batch, int deletes, int32_t timeout_ms, object done,
    ) except -1
    cdef _count_worker(self, int index)
    cdef list _take_ticks(self, HotWorker* worker)
