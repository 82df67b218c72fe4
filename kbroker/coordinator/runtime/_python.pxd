# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.coordinator.runtime._batches cimport Records, Text
from kbroker.coordinator.runtime._structs cimport Shard
from kbroker.core._arena cimport Arena

# String.hashCode of Java.
cdef int java_hash(str text) except? -1
cdef Text text_of(bytes data) noexcept
# Of None: a length of -1.
cdef Text nullable_text_of(bytes data) noexcept
# Keys and values in turn, good while the list lives; a value may be None.
cdef Text* texts_of(Arena* arena, list pairs) except NULL
# The same, with memory for a batch of them.
cdef int records_take(Arena* arena, list pairs, Records* records) except -1
cdef bytes name_bytes(str text)
cdef str str_of(const Text* text)

# The batch at a place of `data`: its size, or 0 if it is cut off. What C does not apply goes to
# `found`, what cannot be read to `left_out`, as (offset of the batch, why); `open_transactions`
# holds what waits for a marker.
cdef int load_batch(
    Shard* shard, bytes data, Py_ssize_t at, list found, list left_out, open_transactions,
    int64_t* next_offset) except -1
