# cython: language_level=3
from kbroker.net._types cimport Block, Processor

# One more that is free; NULL: so many are on their way that records are better left in their file.
cdef Block* block_new(Processor* processor) noexcept nogil
# The one that is taken next, to be written into first.
cdef inline Block* block_next(Processor* processor) noexcept nogil:
    return processor.free_blocks if processor.free_blocks != NULL else block_new(processor)

# It goes with the records in it. `block_give`, the `release` of a Part: they have been sent, or
# will not be.
cdef Block* block_take(Processor* processor) noexcept nogil
cdef void block_give(void* block) noexcept nogil
# Those that are not on their way, with their Processor.
cdef void blocks_free(Processor* processor) noexcept nogil
