/* Monotonic time and futex waits, by name. See futex(2), clock_gettime(2). */
#ifndef KBROKER_SYNC_H
#define KBROKER_SYNC_H

#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline int64_t kb_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t kb_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Sleeps while *word == expected, at most timeout_ns. Returns at a wake, a change, a signal or the
 * timeout: the caller looks at the word again, whatever the reason. */
static inline void kb_futex_wait(int *word, int expected, int64_t timeout_ns) {
    struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &t, 0, 0);
}

static inline void kb_futex_wake(int *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0);
}

/* Receive chunks and frames come and go with every request, a follower's with all that a fetch may
 * bring (replica.fetch.response.max.bytes, 10 MB): kept in the heap, since an mmap's page faults
 * take longer than to receive what goes there; in few arenas (resident memory is a feature). */
static inline void kb_tune_malloc(void) {
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    mallopt(M_ARENA_MAX, 2);
}

/* What is free goes back to the kernel, which by itself only the end of the heap does, above the
 * threshold: for the end of a start. Some hundred microseconds, in which others wait to allocate. */
static inline void kb_give_back_memory(void) { malloc_trim(0); }

/* Bytes of the allocator's that are in use, in the heaps and by themselves; Python's small objects
 * have pools of their own and are not among them. Walks what is free, under the allocator's locks:
 * for a scrape. */
static inline int64_t kb_used_memory(void) {
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 found = mallinfo2();
    return (int64_t)(found.uordblks + found.hblkhd);
#else
    struct mallinfo found = mallinfo();  /* modulo 4 GB */
    return (int64_t)(unsigned)found.uordblks + (unsigned)found.hblkhd;
#endif
}

#endif
