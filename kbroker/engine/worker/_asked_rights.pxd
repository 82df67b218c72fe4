# cython: language_level=3
"""The rights that one request asks for; see _asked_rights.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.net._types cimport Request
from kbroker.engine.worker._context cimport HotContext
from kbroker.engine.worker._verdicts cimport Asker


cdef struct AskedRight:
    int operation
    int type_                     # of the resource
    int verdict                   # Verdict; unknown: Python is to decide
    int32_t length
    uint8_t* name                 # in the same allocation


cdef struct AskedRights:
    uint64_t hash_key
    int32_t count
    int32_t capacity
    uint32_t mask                 # places - 1
    AskedRight* rights
    uint32_t* places              # of rights, by the hash of all but the verdict: index + 1, or 0
    uint8_t* names_end


# Room for so many with so many bytes of names; NULL: no memory. To be freed with free().
cdef AskedRights* asked_rights_new(
    int64_t capacity, size_t names_bytes, uint64_t hash_key) noexcept nogil
# One that is there already stays as it is.
cdef void asked_rights_add(
    AskedRights* asked, int operation, int type_, const uint8_t* name, int32_t length, int verdict
) noexcept nogil
# With its client's verdict, as it is known.
cdef void asked_rights_add_known(
    AskedRights* asked, HotContext* context, const Request* request, const Asker* asker,
    int operation, int type_, const uint8_t* name, int32_t length) noexcept nogil
# These are the request's from now on.
cdef void asked_rights_keep(Request* request, AskedRights* asked) noexcept nogil
# Nothing that was decided for it holds any more: it begins to wait.
cdef void asked_rights_drop(Request* request) noexcept nogil

# The verdict for the client of a request: of the request itself, else of those that are kept.
cdef int right_to(
    HotContext* context, const Request* request, const Asker* asker, int operation, int type_,
    const uint8_t* name, int32_t length, int counts) noexcept nogil


cdef int right_is_known(
    HotContext* context, const Request* request, int operation, int type_, const uint8_t* name,
    int32_t length) noexcept nogil


# Whether the client of a request is known to have this right. Where not, Python, which serves the
# request in place of C, is to decide.
cdef inline int client_may(
    HotContext* context, const Request* request, int operation, int type_, const uint8_t* name,
    int32_t length
) noexcept nogil:
    return context.verdicts == NULL or right_is_known(
        context, request, operation, type_, name, length)
