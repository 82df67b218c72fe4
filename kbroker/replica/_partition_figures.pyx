# cython: language_level=3
"""The counters of many partitions at once, for a scrape.

One call reads up to 128 partitions without the GIL, each under its lock for as long as its numbers
are copied, and then makes the Python numbers: about 0.2 ms with the GIL. The caller lets others
run between two calls. From any thread that holds no lock of kind partition or queue.
"""

from libc.stdint cimport int64_t

from collections import namedtuple

from kbroker.core._atomics cimport kb_load_i64
from kbroker.log.engine._storage cimport Log, lock_to_look, log_size_bytes, unlock_log
from kbroker.replica._partition cimport Partition
from kbroker.replica._replica cimport Replica

cdef enum:
    BATCH_MAX = 128

BATCH = BATCH_MAX

PartitionFigures = namedtuple("PartitionFigures", (
    "online", "is_leader", "in_sync_count", "min_in_sync", "log_start_offset", "log_end_offset",
    "high_watermark", "size_bytes", "segments", "appended_bytes", "appended_records", "produces",
    "refused_produces", "rejected_bytes", "fetches", "refused_fetches", "fetched_bytes",
    "last_stable_offset"))


cdef struct Numbers:
    int online
    int is_leader
    int in_sync_count
    int min_in_sync
    int64_t log_start_offset
    int64_t log_end_offset
    int64_t high_watermark
    int64_t size_bytes
    int64_t segments
    int64_t appended_bytes
    int64_t appended_records
    int64_t produces
    int64_t refused_produces
    int64_t rejected_bytes
    int64_t fetches
    int64_t refused_fetches
    int64_t fetched_bytes
    int64_t last_stable_offset


cdef void _read(Partition* partition, Numbers* out) noexcept nogil:
    cdef Log* log = partition.log
    lock_to_look(log)
    out.online = log.online
    out.is_leader = partition.is_leader
    out.in_sync_count = partition.in_sync_count
    out.min_in_sync = log.settings.min_in_sync
    out.log_start_offset = log.log_start_offset
    out.log_end_offset = log.log_end_offset
    out.high_watermark = partition.high_watermark.offset
    out.last_stable_offset = partition.last_stable.offset
    out.size_bytes = log_size_bytes(log)
    out.segments = log.segment_count
    out.produces = log.duplicates
    unlock_log(log)
    out.appended_bytes = kb_load_i64(&log.appended_bytes)
    out.appended_records = kb_load_i64(&log.appended_records)
    out.refused_produces = kb_load_i64(&partition.refused_produces)
    out.rejected_bytes = kb_load_i64(&partition.rejected_bytes)
    out.fetches = kb_load_i64(&partition.fetches)
    out.refused_fetches = kb_load_i64(&partition.refused_fetches)
    out.fetched_bytes = kb_load_i64(&partition.fetched_bytes)
    out.produces += kb_load_i64(&log.appended_batches) + out.refused_produces


def read(replicas):
    """The figures of at most BATCH replicas, in their order."""
    cdef Partition* partitions[BATCH_MAX]
    cdef Numbers numbers[BATCH_MAX]
    cdef Numbers* at
    cdef Replica replica
    cdef int count = 0
    cdef int i
    if len(replicas) > BATCH_MAX:
        raise ValueError(f"at most {BATCH_MAX} partitions at once")
    for replica in replicas:
        partitions[count] = replica.partition
        count += 1
    with nogil:
        for i in range(count):
            _read(partitions[i], &numbers[i])
    found = []
    for i in range(count):
        at = &numbers[i]
        found.append(PartitionFigures(
            at.online != 0, at.is_leader != 0, at.in_sync_count, at.min_in_sync,
            at.log_start_offset, at.log_end_offset, at.high_watermark, at.size_bytes, at.segments,
            at.appended_bytes, at.appended_records, at.produces, at.refused_produces,
            at.rejected_bytes, at.fetches, at.refused_fetches, at.fetched_bytes,
            at.last_stable_offset))
    return found
