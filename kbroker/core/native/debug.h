/* Asserts of the debug build (KBROKER_DEBUG=1); nothing at all in a release.
 *
 * A broken invariant in C ends the process with a line that names it: the state behind it can no
 * longer be trusted, and a core file says more than a wrong answer would. */
#ifndef KBROKER_DEBUG_H
#define KBROKER_DEBUG_H

#include <pthread.h>

#ifdef KBROKER_DEBUG
#include <Python.h>
#include <stdio.h>
#include <stdlib.h>
#define KB_ASSERT(condition, text)                                                     \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "kbroker: invariant broken: %s (%s:%d)\n", text, __FILE__, \
                    __LINE__);                                                         \
            abort();                                                                   \
        }                                                                              \
    } while (0)
#else
#define KB_ASSERT(condition, text) ((void)0)
#endif

#ifdef KBROKER_DEBUG
#define KB_DEBUG_BUILD 1
#else
#define KB_DEBUG_BUILD 0
#endif

/* The ranks of the locks that this thread holds, as bits. One unit (_lock_order) uses it. */
static __thread int kb_ranks_of_thread;
static inline int kb_held_ranks(void) { return kb_ranks_of_thread; }
static inline void kb_set_held_ranks(int ranks) { kb_ranks_of_thread = ranks; }

static inline void kb_assert(int condition, const char *text) {
    (void)condition;
    (void)text;
    KB_ASSERT(condition, text);
}

/* Who waits for a C lock must not hold the GIL: its holder may want the GIL itself. In a debug
 * build taking a lock twice and releasing one that is not held are found as well. */
static inline int kb_mutex_init(pthread_mutex_t *mutex) {
#ifdef KBROKER_DEBUG
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    int status = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return status;
#else
    return pthread_mutex_init(mutex, NULL);
#endif
}

static inline void kb_mutex_lock(pthread_mutex_t *mutex) {
    KB_ASSERT(!PyGILState_Check(), "a C lock is waited for with the GIL held");
    int status = pthread_mutex_lock(mutex);
    (void)status;
    KB_ASSERT(status == 0, "a lock is taken twice by one thread");
}

/* 1: it is held now. Whoever waits for nothing may hold the GIL. */
static inline int kb_mutex_try(pthread_mutex_t *mutex) {
    return pthread_mutex_trylock(mutex) == 0;
}

/* The system's number of the thread that holds it; 0: nobody, or this is a release. */
static inline int kb_mutex_owner(pthread_mutex_t *mutex) {
#ifdef KBROKER_DEBUG
    return mutex->__data.__owner;
#else
    (void)mutex;
    return 0;
#endif
}

static inline void kb_mutex_unlock(pthread_mutex_t *mutex) {
    int status = pthread_mutex_unlock(mutex);
    (void)status;
    KB_ASSERT(status == 0, "a lock is released by a thread that does not hold it");
}

#endif
