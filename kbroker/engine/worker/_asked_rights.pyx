# cython: language_level=3
"""The rights that one request asks for, and the verdict on each.

A request of which C does not know all verdicts gets a list of them and goes to Python, which
decides those that are unknown and queues the request once more. Then it has all verdicts with it,
whatever the cache keeps (`_verdicts`) and however many resources it names: it goes to Python once.
They are those of the moment at which it came. A request that begins to wait drops its list, so
that its client is checked again when the wait ends.

Of the APIs that Python can serve whole, C serves only what its client is known to be allowed
(`client_may`); Python does the rest, logs denials, and puts what it allows into the cache.

No lock: the list is its request's.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.core._keyed_hash cimport kb_keyed_hash
from kbroker.core._require cimport require
from kbroker.engine.worker._verdicts cimport (
    VERDICT_ALLOWED, VERDICT_UNKNOWN, asker_of, verdicts_find)


cdef AskedRights* asked_rights_new(
    int64_t capacity, size_t names_bytes, uint64_t hash_key
) noexcept nogil:
    """Empty."""
    cdef uint32_t places = 4
    cdef AskedRights* asked
    cdef uint8_t* at
    while places < 2 * capacity:
        places *= 2
    at = <uint8_t*>calloc(
        1, sizeof(AskedRights) + sizeof(AskedRight) * <size_t>capacity
        + sizeof(uint32_t) * places + names_bytes)
    if at == NULL:
        return NULL
    asked = <AskedRights*>at
    asked.hash_key = hash_key
    asked.capacity = <int32_t>capacity
    asked.mask = places - 1
    at += sizeof(AskedRights)
    asked.rights = <AskedRight*>at
    at += sizeof(AskedRight) * <size_t>capacity
    asked.places = <uint32_t*>at
    at += sizeof(uint32_t) * places
    asked.names_end = at
    return asked


cdef inline uint32_t* _place(
    const AskedRights* asked, int operation, int type_, const uint8_t* name, int32_t length
) noexcept nogil:
    # Where it is, or would be.
    cdef uint64_t number = kb_keyed_hash(
        asked.hash_key ^ <uint64_t>(operation << 8 | type_), name, <size_t>length)
    cdef const AskedRight* right
    cdef uint32_t* place
    while True:
        place = &asked.places[number & asked.mask]
        if place[0] == 0:
            return place
        right = &asked.rights[place[0] - 1]
        if (right.operation == operation and right.type_ == type_ and right.length == length
                and memcmp(right.name, name, <size_t>length) == 0):
            return place
        number += 1


cdef void asked_rights_add(
    AskedRights* asked, int operation, int type_, const uint8_t* name, int32_t length, int verdict
) noexcept nogil:
    """The name is copied."""
    cdef uint32_t* place = _place(asked, operation, type_, name, length)
    cdef AskedRight* right
    if place[0] != 0:
        return
    require(asked.count < asked.capacity, "asked rights: there is room for each",
            asked.count, asked.capacity)
    right = &asked.rights[asked.count]
    asked.count += 1
    place[0] = <uint32_t>asked.count
    right.operation = operation
    right.type_ = type_
    right.verdict = verdict
    right.length = length
    right.name = asked.names_end
    memcpy(right.name, name, <size_t>length)
    asked.names_end += length


cdef void asked_rights_add_known(
    AskedRights* asked, HotContext* context, const Request* request, const Asker* asker,
    int operation, int type_, const uint8_t* name, int32_t length
) noexcept nogil:
    """Denials are not counted: the request's own look does that."""
    asked_rights_add(
        asked, operation, type_, name, length,
        right_to(context, request, asker, operation, type_, name, length, 0))


cdef void asked_rights_keep(Request* request, AskedRights* asked) noexcept nogil:
    """In place of those that it had."""
    free(request.rights)
    request.rights = asked


cdef void asked_rights_drop(Request* request) noexcept nogil:
    free(request.rights)
    request.rights = NULL


cdef int right_to(
    HotContext* context, const Request* request, const Asker* asker, int operation, int type_,
    const uint8_t* name, int32_t length, int counts
) noexcept nogil:
    """A Verdict; `counts`: a denial by a verdict that is kept is one more."""
    cdef const AskedRights* asked = <const AskedRights*>request.rights
    cdef uint32_t place
    cdef int verdict
    if asked != NULL:
        place = _place(asked, operation, type_, name, length)[0]
        if place != 0:
            verdict = asked.rights[place - 1].verdict
            if verdict != VERDICT_UNKNOWN:
                return verdict
    return verdicts_find(
        context.verdicts, asker, operation, type_, name, length, counts)


cdef int right_is_known(
    HotContext* context, const Request* request, int operation, int type_, const uint8_t* name,
    int32_t length
) noexcept nogil:
    """And allows. There is an authorizer."""
    cdef Asker asker
    asker_of(context.verdicts, request, &asker)
    return verdicts_find(
        context.verdicts, &asker, operation, type_, name, length, 0) == VERDICT_ALLOWED
