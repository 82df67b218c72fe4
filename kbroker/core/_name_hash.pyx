# cython: language_level=3
"""The hash of names and ids that peers choose: topics, groups, members, producers, addresses.

Under a key that is drawn when the process starts and never sent, so that no client can choose names
which fall into one place of a table. It is the same for every table, since names carry their hash
from one version of a table to the next. Not for values that are stored or agreed upon: another
process has another key. Any thread, no lock: the key is set before anything can call.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from kbroker.core._keyed_hash cimport kb_keyed_hash, kb_random_key

cdef uint64_t _key = kb_random_key()


cdef uint32_t name_hash(const uint8_t* data, int32_t length) noexcept nogil:
    return <uint32_t>kb_keyed_hash(_key, data, <size_t>length)
