# cython: language_level=3
"""How many C objects of each kind there are: what is born adds one, what is freed takes one away.

Every unit that allocates something which outlives a run says so here, so that a test can ask
whether what connections have caused went with them, and `/metrics` can show what stays. The counts
are of the process, in every build: a relaxed addition on a cache line of the kind's own, for
objects that are rarer than requests. Requests themselves are counted by their Processor, without a
locked instruction (`Processor.live_requests`).

A leak is a count that does not come back; what may stay, and for how long, is in
observe/live_objects.py. Memory of other kinds shows in the bytes that the allocator has given out.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_add_i64, kb_load_i64
from kbroker.core._require cimport OF_COUNT, require_of
from kbroker.core._sync cimport kb_used_memory

cdef enum:
    LINE_WORDS = 8                # of a cache line: kinds do not share one

cdef int64_t _counts[LIVE_KINDS * LINE_WORDS]

KINDS = {
    "connections": LIVE_CONNECTIONS,
    "chunks": LIVE_CHUNKS,
    "frame_copies": LIVE_FRAME_COPIES,
    "slot_rings": LIVE_SLOT_RINGS,
    "parked_requests": LIVE_PARKED_REQUESTS,
    "watches": LIVE_WATCHES,
    "fetch_sessions": LIVE_FETCH_SESSIONS,
    "session_partitions": LIVE_SESSION_PARTITIONS,
    "groups": LIVE_GROUPS,
    "members": LIVE_MEMBERS,
    "partitions": LIVE_PARTITIONS,
    "segments": LIVE_SEGMENTS,
    "producers": LIVE_PRODUCERS,
    "logs": LIVE_LOGS,
}


cdef void live_add(int kind, int64_t change) noexcept nogil:
    cdef int64_t* place = &_counts[kind * LINE_WORDS]
    cdef int64_t count = kb_add_i64(place, change)
    if not require_of(OF_COUNT, kind, NULL, count >= 0,
                      "live objects: no more of a kind were freed than made", count, 0):
        kb_add_i64(place, -count)


def live_counts() -> dict[str, int]:
    """How many of each kind there are in this process."""
    return {name: kb_load_i64(&_counts[<int>kind * LINE_WORDS]) for name, kind in KINDS.items()}


def used_memory() -> int:
    """Bytes that the allocator has given out; Python's small objects are not among them."""
    cdef int64_t used
    with nogil:
        used = kb_used_memory()
    return used
