# cython: language_level=3
"""A bump allocator for the memory of one run; inline, without a module.

One per handler, never shared. `arena_take` is a pointer bump; `arena_reset` after the run gives
back every block but the first, so that one large run does not stay in memory. `arena_back_to` gives
back the memory taken after a mark: requests that may be large and many in a run are served one in
the place of the other. It is zeroed and lives until then. NULL means that memory is short.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbroker.core._require cimport require

cdef enum:
    ARENA_BLOCK_BYTES = 64 << 10


cdef struct ArenaBlock:
    ArenaBlock* older
    size_t capacity
    size_t used


cdef struct Arena:
    ArenaBlock* block


cdef struct ArenaMark:
    ArenaBlock* block
    size_t used


cdef inline void* arena_take(Arena* arena, size_t count) noexcept nogil:
    cdef ArenaBlock* block = arena.block
    cdef size_t capacity
    cdef void* taken
    count = (count + 15) & ~<size_t>15
    if block == NULL or block.capacity - block.used < count:
        capacity = count if count > ARENA_BLOCK_BYTES else ARENA_BLOCK_BYTES
        block = <ArenaBlock*>malloc(sizeof(ArenaBlock) + 16 + capacity)
        if block == NULL:
            return NULL
        block.older = arena.block
        block.capacity = capacity
        block.used = 0
        arena.block = block
    require(block.used + count <= block.capacity, "arena: what is taken fits its block",
            <int64_t>(block.used + count), <int64_t>block.capacity)
    taken = <uint8_t*>block + ((sizeof(ArenaBlock) + 15) & ~<size_t>15) + block.used
    block.used += count
    memset(taken, 0, count)
    return taken


cdef inline void arena_reset(Arena* arena) noexcept nogil:
    cdef ArenaBlock* block = arena.block
    cdef ArenaBlock* older
    if block == NULL:
        return
    while block.older != NULL:
        older = block.older
        free(block)
        block = older
    if block.capacity > ARENA_BLOCK_BYTES:
        free(block)
        arena.block = NULL
        return
    block.used = 0
    arena.block = block


cdef inline ArenaMark arena_mark(Arena* arena) noexcept nogil:
    cdef ArenaMark mark
    mark.block = arena.block
    mark.used = arena.block.used if arena.block != NULL else 0
    return mark


cdef inline void arena_back_to(Arena* arena, ArenaMark mark) noexcept nogil:
    # A mark of an empty arena keeps what is the first block by now, as a reset would.
    cdef ArenaBlock* block
    if mark.block == NULL:
        arena_reset(arena)
        return
    while arena.block != mark.block:
        block = arena.block
        require(block != NULL, "arena: it has the block of a mark", 0, 1)
        arena.block = block.older
        free(block)
    require(mark.used <= arena.block.used, "arena: a mark is below what is used",
            <int64_t>mark.used, <int64_t>arena.block.used)
    arena.block.used = mark.used


cdef inline void arena_free(Arena* arena) noexcept nogil:
    arena_reset(arena)
    free(arena.block)
    arena.block = NULL
