# cython: language_level=3
"""Which ranks of C locks the calling thread holds: the debug build's check of the lock order.

The ranks held are bits of a thread-local word, so it is one unit's, shared by all others through
their calls. A lock taken out of order ends the process with a line that names both ranks: such a
thread may wait for one that waits for it. Release builds never call in here (`lock_ranked` compiles
to a bare mutex), except the test, which asks `order_allows`.
"""

cdef extern from "debug.h" nogil:
    int kb_held_ranks()
    void kb_set_held_ranks(int ranks)
    void kb_assert(int condition, const char* text)

DEBUG_BUILD = bool(KB_DEBUG_BUILD)
RANKS = {
    "turn": RANK_TURN,
    "table": RANK_TABLE,
    "session": RANK_SESSION,
    "partition": RANK_PARTITION,
    "queue": RANK_QUEUE,
}


cdef int _allows(int held, int rank) noexcept nogil:
    return held >> rank == 0


cdef void lock_order_enter(int rank) noexcept nogil:
    cdef int held = kb_held_ranks()
    kb_assert(_allows(held, rank), "a lock was taken against the order turn, table, session, "
              "partition, queue")
    kb_set_held_ranks(held | 1 << rank)


cdef void lock_order_leave(int rank) noexcept nogil:
    kb_set_held_ranks(kb_held_ranks() & ~(1 << rank))


cdef int lock_order_replace(int ranks) noexcept nogil:
    cdef int held = kb_held_ranks()
    kb_set_held_ranks(ranks)
    return held


def order_allows(held: list[str], wanted: str) -> bool:
    """Whether a thread that holds locks of these ranks may wait for one of the wanted rank."""
    cdef int ranks = 0
    for name in held:
        ranks |= 1 << <int>RANKS[name]
    return bool(_allows(ranks, RANKS[wanted]))
