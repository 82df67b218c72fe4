# cython: language_level=3
"""Hashes of native/keyed_hash.h for tables whose keys strangers choose; inline."""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from "keyed_hash.h" nogil:
    uint64_t kb_keyed_hash(uint64_t key, const uint8_t* data, size_t length)
    # The hash of (what `hash` is of, number).
    uint64_t kb_keyed_number(uint64_t key, uint64_t hash, uint64_t number)
    uint64_t kb_random_key()
