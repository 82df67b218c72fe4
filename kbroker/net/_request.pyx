# cython: language_level=3
"""Receive chunks, requests and their answers: the memory that travels between the threads.

A chunk is one allocation with a count; the last one to let go frees it, whichever thread that is.
A request comes from its Processor's free list and returns to it, so neither needs a lock. The
answer is a list of parts: bytes in the request's own head buffer, and file ranges with a keeper
that holds the file open until the range has been sent, whatever happens to the log meanwhile.

Nothing here knows the protocol, a socket or a Python object; a failed allocation is a NULL that
the caller turns into a closed connection.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kbroker.core._figures cimport kb_count
from kbroker.core._live_objects cimport LIVE_CHUNKS, LIVE_FRAME_COPIES, live_add
from kbroker.core._require cimport drop_reference, require, take_reference
from kbroker.net._types cimport (
    ACTION_NONE,
    INLINE_BYTES,
    INLINE_PARTS,
    Chunk,
    Part,
    Processor,
    Request,
)

cdef enum:
    FREE_REQUESTS_MAX = 512       # per Processor: about 0.4 MB
    SIZE_FIELD_BYTES = 4          # before the first frame: counted in its bytes, not in its data


cdef enum:
    ANSWER_ROOM_BYTES = INLINE_PARTS * sizeof(Part) + INLINE_BYTES  # the end of a Request


cdef inline Part* _own_parts(Request* request) noexcept nogil:
    return NULL if request.compact else request.inline_parts


cdef inline uint8_t* _own_head(Request* request) noexcept nogil:
    return NULL if request.compact else request.inline_bytes


cdef Chunk* chunk_new(uint32_t capacity_bytes) noexcept nogil:
    cdef Chunk* chunk = <Chunk*>malloc(sizeof(Chunk) + capacity_bytes)
    if chunk == NULL:
        return NULL
    chunk.refs = 1
    chunk.capacity_bytes = capacity_bytes
    chunk.filled_bytes = 0
    chunk.data = <uint8_t*>chunk + sizeof(Chunk)
    live_add(LIVE_CHUNKS, 1)
    return chunk


cdef void chunk_acquire(Chunk* chunk) noexcept nogil:
    take_reference(&chunk.refs, "chunk: one with a reference gets another")


cdef void chunk_release(Chunk* chunk) noexcept nogil:
    if chunk != NULL and drop_reference(&chunk.refs, "chunk: references are dropped once") == 0:
        live_add(LIVE_CHUNKS, -1)
        free(chunk)


cdef Request* request_new(Processor* processor, int compact) noexcept nogil:
    """In the Processor's turn. NULL when memory is short.

    A compact one has no room for an answer: that is allocated with the answer.
    """
    cdef Request* request = NULL if compact else processor.free_requests
    if request != NULL:
        processor.free_requests = request.next
        processor.free_count -= 1
        require(processor.free_count >= 0, "request: free ones are counted",
                processor.free_count, 0)
        require(request.chunk == NULL and request.detached == NULL,
                "request: a free one has no frame", 0, 0)
    else:
        request = <Request*>malloc(sizeof(Request) - (ANSWER_ROOM_BYTES if compact else 0))
        if request == NULL:
            return NULL
    memset(request, 0, sizeof(Request) - ANSWER_ROOM_BYTES)  # the inline buffers need no clearing
    request.processor = processor
    request.compact = 1 if compact else 0
    request.parts = _own_parts(request)
    request.head = _own_head(request)
    request.action = ACTION_NONE
    kb_count(&processor.live_requests, 1)
    return request


cdef void request_free(Request* request) noexcept nogil:
    """In the Processor's turn: lets go of the frame and of every part not sent."""
    cdef Processor* processor = request.processor
    kb_count(&processor.live_requests, -1)
    require(processor.live_requests >= 0, "request: freed as often as made",
            processor.live_requests, 0)
    answer_reset(request)
    chunk_release(request.chunk)
    request.chunk = NULL
    if request.detached != NULL:
        live_add(LIVE_FRAME_COPIES, -1)
        free(request.detached)
        request.detached = NULL
    free(request.guards)
    request.guards = NULL
    free(request.rights)
    request.rights = NULL
    if not request.compact and processor.free_count < FREE_REQUESTS_MAX:
        request.next = processor.free_requests
        processor.free_requests = request
        processor.free_count += 1
    else:
        free(request)


cdef void request_let_go(Request* request) noexcept nogil:
    """Its frame has been read for good: a request that waits must not hold a whole chunk."""
    chunk_release(request.chunk)
    request.chunk = NULL
    if request.detached == NULL:
        request.data = NULL
        request.length_bytes = 0


cdef int request_detach(Request* request) noexcept nogil:
    """Copies its frames and lets go of their chunk; for a request that will wait. -1: no memory."""
    cdef size_t count = request.total_bytes - SIZE_FIELD_BYTES
    cdef uint8_t* copy
    if request.detached != NULL:
        return 0
    copy = <uint8_t*>malloc(count)
    if copy == NULL:
        return -1
    memcpy(copy, request.data, count)
    live_add(LIVE_FRAME_COPIES, 1)
    request.detached = copy
    request.data = copy
    chunk_release(request.chunk)
    request.chunk = NULL
    return 0


cdef uint8_t* answer_reserve(Request* request, uint32_t head_bytes, int parts) noexcept nogil:
    """Room for an answer: head_bytes of memory and so many parts. NULL: no memory, nothing changed.

    To be called once per answer, before its first part.
    """
    cdef uint8_t* head = _own_head(request)
    cdef Part* array = _own_parts(request)
    cdef int64_t own_bytes = 0
    if head == NULL or head_bytes > INLINE_BYTES:
        own_bytes = head_bytes
        head = <uint8_t*>malloc(head_bytes)
        if head == NULL:
            return NULL
    if array == NULL or parts > INLINE_PARTS:
        own_bytes += sizeof(Part) * parts
        array = <Part*>malloc(sizeof(Part) * <size_t>parts)
        if array == NULL:
            if head != _own_head(request):
                free(head)
            return NULL
    answer_reset(request)
    request.head = head
    request.parts = array
    request.own_bytes = own_bytes
    return head


cdef inline void _require_room(const Request* request) noexcept nogil:
    # What a part says is required before it is sent (_required).
    require(request.parts != NULL, "answer: it was reserved", 0, 1)
    require(request.part_count < INLINE_PARTS or request.parts != request.inline_parts,
            "answer: a part of its own for each piece", request.part_count, INLINE_PARTS)


cdef void answer_bytes(Request* request, uint8_t* data, int64_t length) noexcept nogil:
    cdef Part* part = &request.parts[request.part_count]
    _require_room(request)
    part.data = data
    part.length = length
    part.fd = -1
    part.keeper = NULL
    request.part_count += 1


cdef void answer_lent_bytes(
    Request* request, uint8_t* data, int64_t length, int64_t own_bytes, void* keeper,
    void (*release)(void*) noexcept nogil,
) noexcept nogil:
    """Bytes in memory that the keeper has, `own_bytes` of it, until they have been sent."""
    cdef Part* part = &request.parts[request.part_count]
    answer_bytes(request, data, length)
    part.keeper = keeper
    part.release = release
    request.own_bytes += own_bytes


cdef void answer_range(
    Request* request, int fd, int64_t position, int64_t length, int cold, void* keeper,
    void (*release)(void*) noexcept nogil,
) noexcept nogil:
    """A range of a file; the keeper's reference passes to the request."""
    cdef Part* part = &request.parts[request.part_count]
    _require_room(request)
    part.data = NULL
    part.length = length
    part.fd = fd
    part.position = position
    part.warm_until = position if cold else position + length
    part.keeper = keeper
    part.release = release
    request.part_count += 1


cdef void answer_reset(Request* request) noexcept nogil:
    """Back to no answer; keepers of parts that were not sent are released."""
    cdef int i
    require(0 <= request.part_next <= request.part_count, "answer: the next part is one of it",
            request.part_next, request.part_count)
    for i in range(request.part_count):
        if request.parts[i].keeper != NULL:
            request.parts[i].release(request.parts[i].keeper)
            request.parts[i].keeper = NULL
    request.part_count = 0
    request.part_next = 0
    request.own_bytes = 0
    if request.parts != _own_parts(request):
        free(request.parts)
        request.parts = _own_parts(request)
    if request.head != _own_head(request):
        free(request.head)
        request.head = _own_head(request)
