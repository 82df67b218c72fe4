# cython: language_level=3
"""Pieces of files that a Processor is about to send and that are not in memory: read, and let go.

The purpose is that the kernel has the pages. An error is ignored here: the send meets it again.
Each piece goes back as soon as it is there, since its channel waits for nothing else.
"""

from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from kbroker.core._arena cimport arena_take
from kbroker.log.engine._file_operations cimport files
from kbroker.net._types cimport ACTION_NO_OP, Part, Request
from kbroker.engine.worker._answers cimport worker_answer, worker_hand_over
from kbroker.engine.worker._context cimport HotWorker

cdef enum:
    STEP_BYTES = 128 << 10


cdef void _read(Part* piece, uint8_t* room) noexcept nogil:
    cdef int64_t done = 0
    cdef int64_t got
    while done < piece.length:
        got = files.pread(
            piece.fd, room, <size_t>min(piece.length - done, <int64_t>STEP_BYTES),
            piece.position + done)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return
        done += got


cdef void read_ahead_run(HotWorker* worker, Request* first) noexcept nogil:
    """Requests of Processors' own; see net/_send."""
    cdef uint8_t* room = <uint8_t*>arena_take(&worker.arena, STEP_BYTES)
    cdef Request* request = first
    cdef Request* following
    while request != NULL:
        following = request.next
        if room != NULL:
            _read(&request.parts[0], room)
        request.action = ACTION_NO_OP
        worker_answer(worker, request)
        worker_hand_over(worker)
        request = following
