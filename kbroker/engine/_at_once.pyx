# cython: language_level=3
"""Fetches that are served where they come in: on their Processor's thread, without a handler.

A fetch of records in memory costs a handler less work than waking it and being woken by its answer.
So while all handlers sleep, a Processor serves the few fetches of a turn itself (`net/_processor`
says which). A Processor waits for nothing but its sockets, and so does a fetch here: for no disk,
no roll, no other request of its session. A fetch that would wait or has to park is given back, and
the Processor queues it for a handler (`fetch_at_once`).

Every Processor has a worker of its own. The thread that made the Processor makes it: a new worker
waits for a publication of metadata. A Processor that has none yet queues everything. No GIL.
"""

from kbroker.core._arena cimport arena_reset
from kbroker.core._atomics cimport kb_load_int, kb_load_ptr, kb_store_ptr
from kbroker.core._limits cimport PROCESSORS_MAX
from kbroker.net._types cimport Processor, Request
from kbroker.protocol._versions cimport API_FETCH
from kbroker.replica._snapshot cimport Snapshot, snapshot_enter, snapshot_leave
from kbroker.engine.worker._answers cimport worker_free, worker_hand_over, worker_new
from kbroker.engine.worker._charges cimport charges_begin
from kbroker.engine.worker._context cimport HotContext, HotWorker
from kbroker.engine.apis._fetch cimport fetch_at_once
from kbroker.engine.worker._worker_mode cimport MODE_AT_ONCE, worker_set_mode

cdef enum:
    FRAME_BYTES_MAX = 2048        # a longer one names many partitions


cdef int _serve(void* context, Processor* processor, Request* request) noexcept nogil:
    # 1: it is answered; 0: it is to be queued.
    cdef HotContext* hot = <HotContext*>context
    cdef HotWorker* worker = <HotWorker*>kb_load_ptr(<void**>&hot.at_once[processor.index])
    cdef Snapshot* snapshot
    cdef int served
    if worker == NULL or request.length_bytes > FRAME_BYTES_MAX:
        return 0
    snapshot = snapshot_enter(hot.registry, worker.reader)
    charges_begin(worker, request)
    served = fetch_at_once(worker, snapshot, request)
    charges_begin(worker, NULL)
    snapshot_leave(worker.reader)
    worker_hand_over(worker)
    arena_reset(&worker.arena)
    return served


cdef int at_once_cover(HotContext* context) noexcept nogil:
    """A worker for every Processor that there is by now. -1: no memory for one of them.

    To be called after Processors are made, by one thread at a time.
    """
    cdef int count = kb_load_int(&context.request_channel.processor_count)
    cdef HotWorker* worker
    cdef int index
    for index in range(min(count, <int>PROCESSORS_MAX)):
        if context.at_once[index] != NULL:
            continue
        worker = worker_new(context, -1)
        if worker == NULL:
            return -1
        worker_set_mode(worker, MODE_AT_ONCE)
        kb_store_ptr(<void**>&context.at_once[index], worker)
    if context.request_channel.serve_at_once == NULL:  # the first time, before there are threads
        context.request_channel.at_once[API_FETCH] = 1
        context.request_channel.hot_context = context
        kb_store_ptr(<void**>&context.request_channel.serve_at_once, <void*>_serve)
    return 0


cdef void at_once_end(HotContext* context) noexcept nogil:
    """When the Processors have ended, or will without a fetch."""
    cdef int index
    kb_store_ptr(<void**>&context.request_channel.serve_at_once, NULL)
    for index in range(PROCESSORS_MAX):
        worker_free(context.at_once[index])
        context.at_once[index] = NULL
