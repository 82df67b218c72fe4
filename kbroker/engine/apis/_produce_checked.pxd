# cython: language_level=3
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._produce_plan cimport ProducePlan

# The batches of a plan for Python, those with a known partition: (ordinal, frame, what that frame
# may unpack to, topic id, position in the request, size).
cdef list produce_unchecked(ProducePlan* plan)

# Checks them with the results of Python, by ordinal: see `HotPath.produce_checked`. Returns the
# ordinals that have no result of Python and that C cannot walk.
cdef list produce_check(ProducePlan* plan, dict twins, dict stored, dict errors)

# Appends and answers a plan that was checked.
cdef void produce_finish_checked(
    HotWorker* worker, Snapshot* snapshot, ProducePlan* plan) noexcept nogil
