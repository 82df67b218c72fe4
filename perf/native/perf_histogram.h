/* A histogram with logarithmic buckets: 128 to each power of two, so a value is known to 0.8 %.
 *
 * Adding is one count-leading-zeros and one increment; two histograms merge by adding their counts,
 * which is why percentiles of several blocks are never averaged. perf/histogram.py holds the other
 * half (merging, percentiles, JSON) and the same bucket rule; a test compares the two.
 * One writer; no locks. */
#ifndef PERF_HISTOGRAM_H
#define PERF_HISTOGRAM_H

#include <stdint.h>

#define PH_SUB_BITS 7
#define PH_SUB (1 << PH_SUB_BITS)
#define PH_BUCKETS ((64 - PH_SUB_BITS + 1) * PH_SUB)

typedef struct {
    uint64_t counts[PH_BUCKETS];
    uint64_t total, sum, min, max;
} ph_histogram;

static inline int ph_bucket(uint64_t value) {
    if (value < PH_SUB) return (int)value;
    int shift = 63 - __builtin_clzll(value) - PH_SUB_BITS;
    return (shift << PH_SUB_BITS) + (int)(value >> shift);
}

static inline void ph_add(ph_histogram *h, uint64_t value) {
    h->counts[ph_bucket(value)]++;
    if (!h->total || value < h->min) h->min = value;
    if (value > h->max) h->max = value;
    h->total++;
    h->sum += value;
}

#endif
