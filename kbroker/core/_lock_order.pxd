# cython: language_level=3
"""Every C lock of kbroker, by its place in the one order: turn, table, session, partition, queue.

`lock_ranked` is a plain lock in a release build. In a debug build it also checks that this thread
holds no lock of the same or a later rank, and does not hold the GIL; see _lock_order.pyx.

In a debug build a test may also decide which thread runs, and what time it is for those that wait
for a lock: `kbroker.testing._schedule` puts functions of its own into `lock_schedule`.
"""

from libc.stdint cimport int64_t
from posix.unistd cimport usleep

from kbroker.core._sync cimport (
    kb_now_ns, pthread_cond_broadcast, pthread_cond_t, pthread_cond_wait, pthread_mutex_t)

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

cdef struct LockSchedule:
    # Takes the lock when it is this thread's turn.
    void (*lock)(pthread_mutex_t* mutex, int rank) noexcept nogil
    # It has been released.
    void (*unlocked)(pthread_mutex_t* mutex) noexcept nogil
    void (*wait)(pthread_cond_t* condition, pthread_mutex_t* mutex, int rank) noexcept nogil
    void (*wake)(pthread_cond_t* condition) noexcept nogil
    int64_t (*now_ns)() noexcept nogil
    void (*pause)(int64_t us) noexcept nogil

# Of a debug build. NULL: the locks are the kernel's.
cdef LockSchedule lock_schedule

cdef void lock_order_enter(int rank) noexcept nogil
cdef void lock_order_leave(int rank) noexcept nogil
# The ranks that this thread holds, which it returns, become these.
cdef int lock_order_replace(int ranks) noexcept nogil


cdef inline void lock_ranked(pthread_mutex_t* mutex, int rank) noexcept nogil:
    if KB_DEBUG_BUILD:
        lock_order_enter(rank)
        if lock_schedule.lock != NULL:
            lock_schedule.lock(mutex, rank)
            return
    kb_mutex_lock(mutex)


# Where it is free: 1, and it is held. Else 0; it does not wait.
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
        if lock_schedule.unlocked != NULL:
            lock_schedule.unlocked(mutex)


# With the lock held, which is free meanwhile; as pthread_cond_wait it may return for nothing.
cdef inline void wait_ranked(
    pthread_cond_t* condition, pthread_mutex_t* mutex, int rank
) noexcept nogil:
    if KB_DEBUG_BUILD and lock_schedule.wait != NULL:
        lock_schedule.wait(condition, mutex, rank)
        return
    pthread_cond_wait(condition, mutex)


cdef inline void wake_ranked(pthread_cond_t* condition) noexcept nogil:
    if KB_DEBUG_BUILD and lock_schedule.wake != NULL:
        lock_schedule.wake(condition)
    pthread_cond_broadcast(condition)


# The time by which a thread gives a lock up, and its pause between two tries.
cdef inline int64_t lock_now_ns() noexcept nogil:
    if KB_DEBUG_BUILD and lock_schedule.now_ns != NULL:
        return lock_schedule.now_ns()
    return kb_now_ns()


cdef inline void pause_for_lock(int64_t us) noexcept nogil:
    if KB_DEBUG_BUILD and lock_schedule.pause != NULL:
        lock_schedule.pause(us)
        return
    usleep(<unsigned int>us)
