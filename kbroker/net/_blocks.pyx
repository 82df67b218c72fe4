# cython: language_level=3
"""Blocks: memory for records that are copied into an answer, used again and again.

A Processor has a few. They are made when they are needed, and stay: memory that was just used is in
the caches, and memory that is allocated for each answer costs more than the copy (ADR 11). A client
that does not read keeps those of its answers. Then there is none for others, and their records
are sent from their files, so the number is the bound.

In the Processor's turn, no lock, no GIL.
"""

from libc.stdlib cimport free, malloc

from kbroker.core._require cimport require
from kbroker.net._types cimport BLOCKS_MAX, Block, Processor


cdef Block* block_new(Processor* processor) noexcept nogil:
    cdef Block* block
    if processor.blocks_made == BLOCKS_MAX:
        return NULL
    block = <Block*>malloc(sizeof(Block))
    if block == NULL:
        return NULL
    block.processor = processor
    block.next = NULL
    processor.blocks_made += 1
    processor.free_blocks = block
    return block


cdef Block* block_take(Processor* processor) noexcept nogil:
    cdef Block* block = processor.free_blocks
    processor.free_blocks = block.next
    block.next = block            # lent
    processor.blocks_lent += 1
    return block


cdef void block_give(void* given) noexcept nogil:
    cdef Block* block = <Block*>given
    cdef Processor* processor = block.processor
    processor.blocks_lent -= 1
    require(processor.blocks_lent >= 0 and block.next == block, "blocks: each is given back once",
            processor.blocks_lent, 0)
    block.next = processor.free_blocks
    processor.free_blocks = block


cdef void blocks_free(Processor* processor) noexcept nogil:
    cdef Block* block
    require(processor.blocks_lent == 0, "blocks: an answer is gone before its Processor",
            processor.blocks_lent, 0)
    while processor.free_blocks != NULL:
        block = processor.free_blocks
        processor.free_blocks = block.next
        processor.blocks_made -= 1
        free(block)
