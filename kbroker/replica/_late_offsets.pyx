# cython: language_level=3
"""Late offsets, for Python: how many there are, and a look for those of a replica."""

from kbroker.core._atomics cimport kb_load_int
from kbroker.replica._high_watermark cimport partition_find_late
from kbroker.replica._late cimport late_offsets_count
from kbroker.replica._partition_struct cimport Partition
from kbroker.replica._replica cimport Replica


def late_count() -> int:
    return late_offsets_count()


def what_is_late(Replica replica not None) -> str:
    cdef Partition* partition = replica.partition
    if kb_load_int(&partition.high_watermark_is_late):
        return "high watermark"
    return "last stable offset" if kb_load_int(&partition.last_stable_is_late) else ""


def find(Replica replica not None) -> bool:
    cdef int moved
    with nogil:
        moved = partition_find_late(replica.partition)
    return bool(moved)
