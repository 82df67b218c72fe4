# cython: language_level=3
"""The kinds of C objects that are counted while they live; see _live_objects.pyx."""

from libc.stdint cimport int64_t

cdef enum LiveKind:
    LIVE_CONNECTIONS = 0          # channels, until their last request is back
    LIVE_CHUNKS = 1               # receive chunks, but for the one each Processor reads into
    LIVE_FRAME_COPIES = 2         # of requests that wait
    LIVE_SLOT_RINGS = 3           # of connections with requests in the pipeline
    LIVE_PARKED_REQUESTS = 4
    LIVE_WATCHES = 5              # of parked requests, one for each partition
    LIVE_FETCH_SESSIONS = 6       # in the cache, or still served
    LIVE_SESSION_PARTITIONS = 7
    LIVE_GROUPS = 8               # in the shards
    LIVE_MEMBERS = 9
    LIVE_PARTITIONS = 10
    LIVE_SEGMENTS = 11            # open files of logs
    LIVE_PRODUCERS = 12           # with state, of all partitions
    LIVE_LOGS = 13
    LIVE_KINDS = 14

cdef void live_add(int kind, int64_t change) noexcept nogil
