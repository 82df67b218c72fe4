/* The few atomic operations that the compiled core uses, by name, so that Cython can call them.
 * Sequentially consistent unless the name says otherwise: the hot path has few enough of them. */
#ifndef KBROKER_ATOMICS_H
#define KBROKER_ATOMICS_H

#include <stdint.h>

static inline int kb_load_int(int *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline void kb_store_int(int *p, int v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
static inline int kb_add_int(int *p, int v) { return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST); }
static inline int kb_cas_int(int *p, int expected, int desired) {
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline int kb_cas_i64(int64_t *p, int64_t expected, int64_t desired) {
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline int64_t kb_load_i64(int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void kb_store_i64(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
static inline int64_t kb_add_i64(int64_t *p, int64_t v) { return __atomic_add_fetch(p, v, __ATOMIC_RELAXED); }
static inline uint64_t kb_load_u64(uint64_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline void kb_store_u64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
static inline uint64_t kb_add_u64(uint64_t *p, uint64_t v) { return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST); }

static inline void *kb_load_ptr(void **p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline void kb_store_ptr(void **p, void *v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }

#endif
