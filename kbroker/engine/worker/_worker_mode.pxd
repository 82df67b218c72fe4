# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker

# The work that a worker serves; two of them may hold together (see ROWS).
cdef enum WorkerMode:
    MODE_RUN = 0
    MODE_UNPACKING = 1            # produces of its run that were put off, since they are compressed
    MODE_ASIDE = 2                # requests that were set aside, and may wait for a slow file
    MODE_AT_ONCE = 4              # one fetch, on its Processor's thread
    WORKER_MODES = 5

cdef enum WorkerMay:
    MAY_WAIT_FOR_LOCKS = 1
    MAY_WAIT_FOR_DISK = 2
    MAY_PARK = 4                  # a request, which the worker lists with its deadline
    MAY_GATHER = 8                # it is the clock of a follower's fetch
    MAY_UNPACK = 16               # as much as a request has
    MAY_KEEP_DEADLINES = 32       # until it goes to Python; else they are another handler's
    MAY_USE_BLOCKS = 64           # of its Processor: it has the turn

# The mode becomes this one; that of before. `worker_add_mode`: this one as well.
cdef int worker_set_mode(HotWorker* worker, int mode) noexcept nogil
cdef int worker_add_mode(HotWorker* worker, int mode) noexcept nogil
