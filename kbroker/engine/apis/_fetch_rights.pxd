# cython: language_level=3
from kbroker.engine.worker._context cimport HotWorker
from kbroker.engine.apis._fetch_plan cimport FetchPlan

# A follower's fetch on a listener where no broker comes gets an error for each partition.
cdef void fetch_refuse_stranger(HotWorker* worker, FetchPlan* plan) noexcept nogil
# Where there is an authorizer: topics that its client may not read get an error. 1: Python is to
# decide first; then the targets are not to be used.
cdef int fetch_rights_are_unknown(HotWorker* worker, FetchPlan* plan) noexcept nogil
# The request has all rights that it asks for from now on, with the known verdicts. -1: no memory.
cdef int fetch_keep_rights(HotWorker* worker, FetchPlan* plan) noexcept nogil
