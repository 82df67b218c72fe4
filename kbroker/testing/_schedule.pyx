# cython: language_level=3
"""Who runs is decided by a test: the C locks of a debug build ask its scheduler.

`install` puts functions into `core._lock_order.lock_schedule`. From then on a thread that takes
or releases a lock may hand over to another one there, and a thread whose lock is another's is not
stopped by the kernel: it hands over until it is free. Of the threads that come by here exactly one
runs at a time; each waits in Python for its turn. `tests/simulation/scheduler.py` is the scheduler.

It says with `hand_over_after` how many such places the running thread passes before it hands over.
Outside of a schedule a thread never does. A test's process only, and a debug build's.
"""

from libc.stdint cimport int64_t

from kbroker.core._lock_order cimport lock_order_replace, lock_schedule
from kbroker.core._sync cimport pthread_cond_t, pthread_mutex_t

cdef extern from "debug.h" nogil:
    int kb_mutex_try(pthread_mutex_t* mutex)
    void kb_mutex_unlock(pthread_mutex_t* mutex)
    int kb_mutex_owner(pthread_mutex_t* mutex)

cdef object scheduler = None
cdef int64_t places_left = 0      # before the running thread hands over; 0: it does not


cdef void hand_over() noexcept:
    scheduler.hand_over()


# While the simulated world itself waits, other brokers' events run on its thread: they hold none
# of the locks that it holds.
cdef void await_lock(pthread_mutex_t* mutex, int rank) noexcept:
    cdef int held = lock_order_replace(0)
    scheduler.await_c_lock(<size_t>mutex, rank, kb_mutex_owner(mutex))
    lock_order_replace(held)


cdef void note_released(pthread_mutex_t* mutex) noexcept:
    scheduler.released(<size_t>mutex)


cpdef void pass_place() noexcept nogil:
    """One of C's locks, or of Python's places, such as its locks."""
    global places_left
    if places_left > 0:
        places_left -= 1
        if places_left == 0:
            with gil:
                hand_over()


cdef void lock(pthread_mutex_t* mutex, int rank) noexcept nogil:
    pass_place()
    while not kb_mutex_try(mutex):
        with gil:
            await_lock(mutex, rank)


cdef void unlocked(pthread_mutex_t* mutex) noexcept nogil:
    with gil:
        note_released(mutex)
    pass_place()


cdef void wait(pthread_cond_t* condition, pthread_mutex_t* mutex, int rank) noexcept nogil:
    kb_mutex_unlock(mutex)
    with gil:
        note_released(mutex)
        await_condition(condition)
    while not kb_mutex_try(mutex):
        with gil:
            await_lock(mutex, rank)


cdef void await_condition(pthread_cond_t* condition) noexcept:
    cdef int held = lock_order_replace(0)
    scheduler.await_condition(<size_t>condition)
    lock_order_replace(held)


cdef void wake(pthread_cond_t* condition) noexcept nogil:
    with gil:
        note_woken(condition)


cdef void note_woken(pthread_cond_t* condition) noexcept:
    scheduler.released(<size_t>condition)


cdef int64_t now_ns() noexcept nogil:
    with gil:
        return ask_time()


cdef int64_t ask_time() noexcept:
    return scheduler.now_ns()


cdef void pause(int64_t us) noexcept nogil:
    with gil:
        pause_for(us)


cdef void pause_for(int64_t us) noexcept:
    cdef int held = lock_order_replace(0)
    scheduler.pause(us)
    lock_order_replace(held)


def install(object by) -> None:
    """`by` decides from now on; tests/simulation/scheduler.py has its methods."""
    global scheduler
    scheduler = by
    lock_schedule.lock = lock
    lock_schedule.unlocked = unlocked
    lock_schedule.wait = wait
    lock_schedule.wake = wake
    lock_schedule.now_ns = now_ns
    lock_schedule.pause = pause


def remove() -> None:
    """The locks are the kernel's again."""
    global scheduler
    lock_schedule.lock = NULL
    lock_schedule.unlocked = NULL
    lock_schedule.wait = NULL
    lock_schedule.wake = NULL
    lock_schedule.now_ns = NULL
    lock_schedule.pause = NULL
    scheduler = None
    hand_over_after(0)


def hand_over_after(int64_t places) -> int:
    """The running thread hands over at that place from here; 0: at none. Returns the last one."""
    global places_left
    before, places_left = places_left, places
    return before
