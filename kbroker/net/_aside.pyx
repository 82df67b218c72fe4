# cython: language_level=3
"""Requests that wait for slow files, set aside file by file, so that no other waits for them.

A run of the hot path answers together, so one request at a file that is slow would hold up all of
the run, and each run its handler. A request that is known to be in for that is set aside instead: a
produce to a partition whose writes are slow or under way, a heartbeat or a commit to a shard of
groups that waits for such a write, a fetch of bytes that are not in memory, a range that sendfile
would wait for. A file (whatever has that address) is served by one handler at a time, which takes
along the requests that have gathered: so one handler waits at one slow file, however many requests
there are, and half of the handlers at slow files altogether; fewer, where others are in Python or
wait in a run, so that one is left for the queue. A handler that takes from a queue that is never
empty serves a file between two runs, if none has begun to serve one of late: those at which
handlers wait for long are no reason for the others to wait.

A request that waits for a write (`late_from_ns`) may be without a turn when that write ends, since
the handlers at files are at others, for good perhaps. It goes back to the queue then, and is looked
at anew: by each handler that comes back from a write or from Python, or has slept for its time.

A handler that is retired while it is at a file is at that file still, so no other goes there; but
it counts no more among those that may be at files.

Bounds: as many requests as the queue may hold, and ASIDE_BYTES_MAX; then the handler that has the
next one does it itself. So it does where a file was slow of late, no more, while half of the
handlers are at others: it must not wait for handlers that may be there for good. Everything is
under the request channel's lock; lists are searched from the front.
"""

from libc.stdint cimport int64_t

from kbroker.core._atomics cimport kb_load_i64
from kbroker.core._limits cimport ASIDE_BYTES_MAX, WORKERS_MAX
from kbroker.core._list cimport list_append
from kbroker.core._require cimport require, require_count
from kbroker.net._types cimport BOUNDED_FROM, SLOW_FILES_MAX, AsideRequests, Request

cdef enum:
    HANGS_NS = 10000000          # at a file: its handler is not back soon


cdef int aside_add(
    AsideRequests* aside, Request* request, void* file, int64_t* late_from_ns, int64_t count_max,
) noexcept nogil:
    if aside.count > 0 and (
        aside.count + request.frames > count_max
        or aside.bytes + request.total_bytes > ASIDE_BYTES_MAX
    ):
        return 0
    request.slow_file = file
    request.late_from_ns = late_from_ns
    list_append(&aside.head, &aside.tail, request, &request.next,
                "set aside: nothing is after the last")
    aside.count += request.frames
    aside.bytes += request.total_bytes
    aside.total += 1
    return 1


cdef int _is_served(AsideRequests* aside, void* file) noexcept nogil:
    cdef int i
    for i in range(aside.file_count):
        if aside.files[i] == file:
            return 1
    return 0


cdef inline int _has_room(const AsideRequests* aside, int handlers, int elsewhere) noexcept nogil:
    cdef int most = min(<int>SLOW_FILES_MAX, max(1, handlers // 2))
    if handlers >= BOUNDED_FROM:
        most = min(most, handlers - 1 - elsewhere)
    return aside.file_count - aside.retired < most


cdef int aside_has_turn(
    AsideRequests* aside, void* file, int handlers, int elsewhere
) noexcept nogil:
    return _has_room(aside, handlers, elsewhere) or _is_served(aside, file)


cdef int aside_hangs(const AsideRequests* aside, int64_t now_ns) noexcept nogil:
    cdef int i
    for i in range(aside.file_count):
        if now_ns - aside.since_ns[i] < HANGS_NS:
            return 0
    return 1


cdef void* aside_next_file(
    AsideRequests* aside, int handlers, int elsewhere, int64_t now_ns
) noexcept nogil:
    cdef Request* request = aside.head
    if not _has_room(aside, handlers, elsewhere):
        return NULL
    while request != NULL:
        if not _is_served(aside, request.slow_file):
            require(0 <= aside.file_count < WORKERS_MAX, "set aside: one more file has a place",
                    aside.file_count, WORKERS_MAX)
            aside.files[aside.file_count] = request.slow_file
            aside.since_ns[aside.file_count] = now_ns
            aside.file_count += 1
            return request.slow_file
        request = request.next
    return NULL


cdef inline void _take_out(AsideRequests* aside, Request** place, Request* before) noexcept nogil:
    cdef Request* request = place[0]
    place[0] = request.next
    if aside.tail == request:
        aside.tail = before
    request.next = NULL
    aside.count = require_count(aside.count - request.frames, "set aside: requests are counted")
    aside.bytes = require_count(
        aside.bytes - request.total_bytes, "set aside: their bytes are counted")


cdef int aside_take(
    AsideRequests* aside, void* file, Request** run, int count_max, int64_t bytes_max,
) noexcept nogil:
    cdef Request** place = &aside.head
    cdef Request** end = run
    cdef Request* before = NULL
    cdef Request* request
    cdef int64_t bytes_taken = 0
    cdef int taken = 0
    while place[0] != NULL and taken < count_max and bytes_taken < bytes_max:
        request = place[0]
        if request.slow_file != file:
            before = request
            place = &request.next
            continue
        _take_out(aside, place, before)
        end[0] = request
        end = &request.next
        taken += 1
        bytes_taken += request.total_bytes
    return taken


cdef inline int _answers(const Request* request, int64_t now_ns) noexcept nogil:
    # Whether the data directory that it was to write to does.
    cdef int64_t late_from_ns
    if request.late_from_ns == NULL:
        return 0
    late_from_ns = kb_load_i64(<int64_t*>request.late_from_ns)
    return late_from_ns == 0 or now_ns <= late_from_ns


cdef Request* aside_give_back(
    AsideRequests* aside, Request** last, int handlers, int elsewhere, int64_t now_ns,
) noexcept nogil:
    cdef Request** place = &aside.head
    cdef Request* first = NULL
    cdef Request* before = NULL
    cdef Request* request
    last[0] = NULL
    if _has_room(aside, handlers, elsewhere):
        return NULL
    while place[0] != NULL:
        request = place[0]
        # A handler that was sent to a file finds there what it was sent for.
        if not _answers(request, now_ns) or _is_served(aside, request.slow_file):
            before = request
            place = &request.next
            continue
        _take_out(aside, place, before)
        list_append(&first, last, request, &request.next, "given back: nothing is after the last")
    return first


cdef void aside_served(AsideRequests* aside, void* file) noexcept nogil:
    cdef int i
    for i in range(aside.file_count):
        if aside.files[i] == file:
            aside.file_count -= 1
            aside.files[i] = aside.files[aside.file_count]
            aside.since_ns[i] = aside.since_ns[aside.file_count]
            return
    require(0, "set aside: a file that was served is among them", aside.file_count, 1)
