# cython: language_level=3
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.apis._fetch_plan cimport FetchPlan, FetchTarget


# `target.error` says why nothing of it is read.
cdef void fetch_note_not_there(FetchPlan* plan, FetchTarget* target) noexcept nogil
cdef void fetch_look_up(Snapshot* snapshot, FetchPlan* plan) noexcept nogil
