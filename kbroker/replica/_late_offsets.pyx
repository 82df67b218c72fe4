# cython: language_level=3
"""Late last stable offsets, for Python: how many there are, and a look for one of them."""

from kbroker.core._atomics cimport kb_load_int
from kbroker.replica._last_stable cimport last_stable_late_count
from kbroker.replica._partition cimport partition_find_last_stable
from kbroker.replica._replica cimport Replica


def late_count() -> int:
    return last_stable_late_count()


def is_late(Replica replica not None) -> bool:
    return bool(kb_load_int(&replica.partition.last_stable_is_late))


def find(Replica replica not None) -> bool:
    cdef int moved
    with nogil:
        moved = partition_find_last_stable(replica.partition)
    return bool(moved)
