# cython: language_level=3
from kbroker.replica._snapshot cimport Snapshot
from kbroker.engine.apis._fetch_plan cimport FetchPlan


cdef void fetch_look_up(Snapshot* snapshot, FetchPlan* plan) noexcept nogil
