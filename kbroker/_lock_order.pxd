# cython: language_level=3
"""Every C lock of kbroker, by its place in the one order: turn, table, session, partition, queue.

`lock_ranked` is a plain lock in a release build. In a debug build it also checks that this thread
holds no lock of the same or a later rank, and does not hold the GIL; see _lock_order.pyx.
"""

from kbroker._sync cimport pthread_mutex_t

cdef enum LockRank:
    RANK_TURN = 0                 # a Processor's: its thread's, but while it sleeps
    RANK_TABLE = 1                # the snapshot's publisher, the session cache
    RANK_SESSION = 2              # one fetch session
    RANK_PARTITION = 3            # one partition's log and watch list
    RANK_QUEUE = 4                # request queue, answers, deadlines, connection quotas

cdef extern from "debug.h" nogil:
    enum: KB_DEBUG_BUILD
    int kb_mutex_init(pthread_mutex_t* mutex)
    void kb_mutex_lock(pthread_mutex_t* mutex)
    int kb_mutex_try(pthread_mutex_t* mutex)
    void kb_mutex_unlock(pthread_mutex_t* mutex)

cdef void lock_order_enter(int rank) noexcept nogil
cdef void lock_order_leave(int rank) noexcept nogil


cdef inline void lock_ranked(pthread_mutex_t* mutex, int rank) noexcept nogil:
    if KB_DEBUG_BUILD:
        lock_order_enter(rank)
    kb_mutex_lock(mutex)


# Where it is free: 1, and it is held. Else 0; nobody waits.
cdef inline int try_lock_ranked(pthread_mutex_t* mutex, int rank) noexcept nogil:
    if not kb_mutex_try(mutex):
        return 0
    if KB_DEBUG_BUILD:
        lock_order_enter(rank)
    return 1


cdef inline void unlock_ranked(pthread_mutex_t* mutex, int rank) noexcept nogil:
    kb_mutex_unlock(mutex)
    if KB_DEBUG_BUILD:
        lock_order_leave(rank)
