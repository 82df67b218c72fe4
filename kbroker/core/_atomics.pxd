# cython: language_level=3
"""Atomic operations of native/atomics.h; inline, without a module."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from "atomics.h" nogil:
    int kb_load_int(int* p)
    void kb_store_int(int* p, int v)
    int kb_add_int(int* p, int v)
    int kb_cas_int(int* p, int expected, int desired)
    int kb_cas_i64(int64_t* p, int64_t expected, int64_t desired)
    int64_t kb_load_i64(int64_t* p)
    void kb_store_i64(int64_t* p, int64_t v)
    int64_t kb_add_i64(int64_t* p, int64_t v)
    uint64_t kb_load_u64(uint64_t* p)
    void kb_store_u64(uint64_t* p, uint64_t v)
    uint64_t kb_add_u64(uint64_t* p, uint64_t v)
    void* kb_load_ptr(void** p)
    void kb_store_ptr(void** p, void* v)
