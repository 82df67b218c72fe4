# cython: language_level=3
"""Time and futexes of native/sync.h, and POSIX threads; inline, without a module."""

from libc.stdint cimport int64_t

cdef extern from "sync.h" nogil:
    int64_t kb_now_ns()
    int64_t kb_wall_ms()
    void kb_futex_wait(int* word, int expected, int64_t timeout_ns)
    void kb_futex_wake(int* word, int count)
    void kb_tune_malloc()
    void kb_give_back_memory()
    int64_t kb_used_memory()

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_cond_t:
        pass
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_create(pthread_t* thread, void* attributes, void* (*start)(void*) noexcept nogil,
                       void* argument)
    int pthread_join(pthread_t thread, void** result)
    pthread_t pthread_self()
    int pthread_setname_np(pthread_t thread, const char* name)
