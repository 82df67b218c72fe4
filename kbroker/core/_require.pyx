# cython: language_level=3
"""What happens when an invariant is broken: it is counted, named in one line, and ends something.

`require` is for invariants that only a bug of kbroker can break, never for bytes of a client or a
disk: those are validated, and refused with an error of the protocol. It is checked where a unit
takes over or hands on: before bytes go to a file or a socket, on every unlink, at every reference.
A wrong state is not mended; the smallest thing that holds it ends, before a wrong byte leaves:

    connection   closed, as after a frame that does not parse
    partition    its log goes offline: clients get KAFKA_STORAGE_ERROR, another replica leads
    process      what several share. It ends with SIGABRT and a core. An acknowledged record is in
                 the page cache, so nothing is lost that a kill would not lose
    count        nothing ends: a number that only a bound or a metric relies on is corrected

The line goes to standard error without the GIL, since a handler's thread may hold locks; after
REPORTS_MAX lines a process only counts, so that a bug met with every request does not fill a disk.
`kbroker_broken_invariants_total` in `/metrics` has the counts.
"""

from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport abort
from posix.unistd cimport write

from kbroker.core._atomics cimport kb_add_i64, kb_load_i64

cdef enum:
    REPORTS_MAX = 100
    REPORT_BYTES_MAX = 512
    SUBJECT_BYTES_MAX = 256
    STANDARD_ERROR = 2

cdef int64_t _counts[REQUIRE_KINDS]

cdef const char* _NAMES[REQUIRE_KINDS]
_NAMES[:] = [b"connection", b"partition", b"process", b"count"]

cdef const char* _ENDS[REQUIRE_KINDS]
_ENDS[:] = [b"it is closed", b"it goes offline", b"it ends", b"it is corrected"]


cdef int require_failed(
    int of, int64_t number, const char* name, const char* text, int64_t found, int64_t required
) noexcept nogil:
    cdef char line[REPORT_BYTES_MAX]
    cdef char subject[SUBJECT_BYTES_MAX]
    cdef int length
    if name != NULL:
        snprintf(subject, sizeof(subject), " %s", name)
    elif number >= 0:
        snprintf(subject, sizeof(subject), " %lld", <long long>number)
    else:
        subject[0] = 0
    if kb_add_i64(&_counts[of], 1) <= REPORTS_MAX or of == OF_PROCESS:
        length = snprintf(
            line, sizeof(line),
            "kbroker: broken invariant of the %s%s, so %s: %s (found %lld, required %lld)\n",
            _NAMES[of], subject, _ENDS[of], text, <long long>found, <long long>required)
        write(STANDARD_ERROR, line, <size_t>min(length, REPORT_BYTES_MAX - 1))
    if of == OF_PROCESS:
        abort()
    return 0


def broken_invariants() -> dict[str, int]:
    """How many this process has met, by the part that each of them has ended."""
    cdef int of
    return {_NAMES[of].decode(): kb_load_i64(&_counts[of]) for of in range(<int>REQUIRE_KINDS)}
