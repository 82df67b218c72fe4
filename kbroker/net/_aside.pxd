# cython: language_level=3
from libc.stdint cimport int64_t

from kbroker.net._types cimport AsideRequests, Request

# All with the lock of the request channel held.

# 0: there is no room.
cdef int aside_add(
    AsideRequests* aside, Request* request, void* file, int64_t* late_from_ns, int64_t count_max
) noexcept nogil
# Takes out what was set aside for writes to a directory in which none is late now, if it has no
# turn; a list in its order, or NULL.
cdef Request* aside_give_back(
    AsideRequests* aside, Request** last, int handlers, int elsewhere, int64_t now_ns
) noexcept nogil
# Whether what is added for that file now is served without waiting for other files.
# `elsewhere`: how many of the handlers are in Python, or stand in a run.
cdef int aside_has_turn(
    AsideRequests* aside, void* file, int handlers, int elsewhere) noexcept nogil
# Whether the handlers at files have been there for long: none is; or none comes back soon.
cdef int aside_hangs(const AsideRequests* aside, int64_t now_ns) noexcept nogil
# The file of the first request whose file no handler serves, noted as served from now on; or NULL.
cdef void* aside_next_file(
    AsideRequests* aside, int handlers, int elsewhere, int64_t now_ns) noexcept nogil
# The requests for a file, in order: at least one, if none was taken since aside_next_file.
cdef int aside_take(
    AsideRequests* aside, void* file, Request** run, int count_max, int64_t bytes_max
) noexcept nogil
cdef void aside_served(AsideRequests* aside, void* file) noexcept nogil
