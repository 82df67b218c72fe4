/* Figures that one thread writes and any thread reads, and histograms of times made of them.
 *
 * A count is a plain 64-bit word: its one writer loads, adds and stores it without a locked
 * instruction, and readers see some recent value, never a torn one.
 *
 * Times fall into 256 buckets in units of 128 ns: one each below 8 units, then 8 to every power of
 * two, up to 36 minutes. A bucket is at most an eighth of its lower bound wide, so its middle is
 * within 6.3 % of every time in it (from a microsecond on). Histograms of one kind add up. */
#ifndef KBROKER_FIGURES_H
#define KBROKER_FIGURES_H

#include <stdint.h>

enum { KB_TIME_BUCKETS = 256, KB_TIME_UNIT_BITS = 7 };

/* By the figure's one writer. */
static inline void kb_count(int64_t *figure, int64_t n) {
    __atomic_store_n(figure, __atomic_load_n(figure, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline int64_t kb_figure(const int64_t *figure) {
    return __atomic_load_n(figure, __ATOMIC_RELAXED);
}

static inline int kb_time_bucket(int64_t ns) {
    uint64_t units;
    int exponent, bucket;
    if (ns <= 0) return 0;
    units = (uint64_t)ns >> KB_TIME_UNIT_BITS;
    if (units < 8) return (int)units;
    exponent = 63 - __builtin_clzll(units);
    bucket = (exponent - 2) * 8 + (int)((units >> (exponent - 3)) & 7);
    return bucket < KB_TIME_BUCKETS ? bucket : KB_TIME_BUCKETS - 1;
}

/* The least time of a bucket, in ns. */
static inline int64_t kb_time_bucket_floor(int bucket) {
    if (bucket < 8) return (int64_t)bucket << KB_TIME_UNIT_BITS;
    return (int64_t)(8 + (bucket & 7)) << (bucket / 8 - 1 + KB_TIME_UNIT_BITS);
}

#endif
