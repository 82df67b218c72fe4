# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.core._atomics cimport kb_load_i64, kb_load_int
from kbroker.net._types cimport Request
from kbroker.replica._partition cimport Partition
from kbroker.engine.worker._context cimport (
    WAITS_FOR_BYTES, HotContext, HotWorker, ParkedRequest, ParkedTable, ParkedWatch, WaiterKind)

cdef int parked_init(HotContext* context, int64_t bytes_max) noexcept nogil

# Adds it to the worker's list, unless it is in one. The worker then wakes the requests that wait.
cdef void note_advanced(HotWorker* worker, Partition* partition) noexcept nogil

# For APIs whose requests wait (_fetch_wait, _produce_wait; _group_write, there without a request,
# too): begun, with its watches to be filled; then it waits (not 0: it must not be used any more) or
# is given up. `in_half`: a client's fetch, which has half of the room.
cdef ParkedRequest* parked_new(
    HotWorker* worker, const WaiterKind* kind, Request* request, int count, int64_t kept_bytes,
    int32_t wait_ms, int in_half,
) noexcept nogil
# Its deadline becomes one of a wider tick: requests that may be late share them.
cdef void parked_widen(ParkedRequest* parked, uint64_t ticks) noexcept nogil
cdef int parked_wait(HotWorker* worker, ParkedRequest* parked) noexcept nogil
cdef void parked_abandon(ParkedRequest* parked) noexcept nogil

# For the completing side (_long_polls). Under the lock of the watch's partition. A write's watch
# leaves the partition's list once it is settled, so a caller that counts one has a reference.
cdef void watch_count_locked(ParkedWatch* watch) noexcept nogil
cdef int parked_has_enough(ParkedRequest* parked) noexcept nogil
# Where the deadline list of a tick begins.
cdef uint64_t parked_bucket(uint64_t tick) noexcept nogil
cdef int parked_complete(ParkedRequest** some, int count) noexcept nogil
cdef void parked_drop(ParkedRequest* parked) noexcept nogil
# One without a request is over: the next handler gets it, with a reference, among its `settled`.
cdef void parked_hand_over(HotContext* context, ParkedRequest* parked) noexcept nogil
cdef void parked_give_ticks(HotWorker* worker) noexcept nogil
# For Python to ask a coordinator: the worker's own, with a reference; for another handler; from it.
cdef void parked_ask(HotWorker* worker, ParkedRequest* parked) noexcept nogil
cdef void parked_give_asking(HotWorker* worker) noexcept nogil
cdef void parked_take_asking_locked(HotWorker* worker, ParkedTable* table) noexcept nogil
cdef void parked_take_ticks_locked(HotWorker* worker, ParkedTable* table) noexcept nogil

# Whether a request waits until the followers have the record at that offset.
cdef inline int is_awaited(Partition* partition, int64_t offset) noexcept nogil:
    return (
        kb_load_i64(&partition.awaited_end) > offset
        or kb_load_int(&partition.consumers_waiting) > 0
    )

cdef inline int parked_is_write(const ParkedRequest* parked) noexcept nogil:
    return parked.kind.waits_for != WAITS_FOR_BYTES
