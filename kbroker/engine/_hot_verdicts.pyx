# cython: language_level=3
"""The authorizer's verdicts for the hot path, as Python puts them in: `HotVerdicts`.

A broker with an authorizer makes one before its handlers start. From then on C asks for the rights
that a request needs (`engine/worker/_verdicts`), and requests of which a verdict is not known come
to Python with the reason "rights" (`server/hot_rights.py`). Any thread that has the GIL may call
it.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import socket as _socket

from kbroker.core._keyed_hash cimport kb_random_key
from kbroker.core._sync cimport kb_now_ns
from kbroker.engine._hot cimport HotPath
from kbroker.engine.worker._asked_rights cimport AskedRight, AskedRights
from kbroker.engine.worker._context cimport REASON_NONE
from kbroker.engine.worker._verdicts cimport (
    VERDICT_ALLOWED, VERDICT_DENIED, VERDICT_UNKNOWN, VERDICT_WAYS, Asker, Replaced, Verdicts,
    asker_init, asker_of, verdicts_forget, verdicts_free, verdicts_new, verdicts_put,
    verdicts_take_denials)
from kbroker.errors import InvariantError
from kbroker.net._request_channel cimport request_channel_push
from kbroker.net._sessions cimport session_drop, session_intern
from kbroker.net._types cimport Request, RequestChannel, Session
from kbroker.net._wrapped_request cimport WrappedRequest


cdef class HotVerdicts:
    """See _hot_verdicts.pyi."""

    cdef Verdicts* verdicts

    def __cinit__(self, HotPath hot not None, int sets):
        if sets <= 0 or sets & (sets - 1):
            raise ValueError(f"{sets} sets of verdicts are no power of two")
        self.verdicts = verdicts_new(<unsigned int>sets, kb_random_key())
        if self.verdicts == NULL:
            raise MemoryError
        if hot.verdicts is not None:
            raise InvariantError("the hot path has verdicts already")

    def __init__(self, HotPath hot not None, int sets):
        # Not before the end of __cinit__: what is half made is freed.
        hot.verdicts = self
        hot.context.verdicts = self.verdicts

    def __dealloc__(self):
        verdicts_free(self.verdicts)

    @property
    def generation(self):
        return self.verdicts.generation

    def forget(self):
        verdicts_forget(self.verdicts)

    def asked(self, WrappedRequest request not None):
        cdef const AskedRights* asked
        cdef const AskedRight* right
        cdef int i
        if request.node == NULL or request.node.rights == NULL:
            raise InvariantError(f"request {request.correlation_id} asks for no rights")
        asked = <const AskedRights*>request.node.rights
        unknown = []
        for i in range(asked.count):
            right = &asked.rights[i]
            if right.verdict == VERDICT_UNKNOWN:
                name = (<const char*>right.name)[:right.length].decode("utf-8", "replace")
                unknown.append((right.operation, right.type_, name))
        return unknown

    def decided(self, WrappedRequest request not None, uint64_t generation, list numbers not None):
        cdef Request* node = request.node
        cdef AskedRights* asked
        cdef AskedRight* right
        cdef Asker asker
        cdef Replaced replaced
        cdef int64_t place
        cdef uint64_t number
        cdef int i
        if node == NULL or node.rights == NULL:
            raise InvariantError(f"request {request.correlation_id} asks for no rights")
        asked = <AskedRights*>node.rights
        asker_of(self.verdicts, node, &asker)
        outcomes = []
        left = iter(numbers)
        for i in range(asked.count):
            right = &asked.rights[i]
            if right.verdict != VERDICT_UNKNOWN:
                continue
            said = next(left)
            right.verdict = VERDICT_ALLOWED if said is None else VERDICT_DENIED
            number = 0 if said is None else said
            with nogil:
                place = verdicts_put(
                    self.verdicts, &asker, right.operation, right.type_, right.name, right.length,
                    right.verdict, generation, number, &replaced)
            outcomes.append((place, replaced.denied_as, replaced.denials))
        request.node = NULL
        _queue(request.request_channel, node)
        return outcomes

    def allow(
        self, principal, str host not None, uint64_t generation, int operation, int type_,
        str name not None,
    ):
        cdef Session* session
        cdef Asker asker
        cdef Replaced replaced
        cdef bytes encoded = name.encode()
        cdef const uint8_t* at = <const uint8_t*><const char*>encoded
        cdef int length = <int>len(encoded)
        cdef uint8_t[16] address
        cdef bytes packed
        cdef int is_ipv6 = ":" in host
        cdef int64_t place
        packed = _socket.inet_pton(_socket.AF_INET6 if is_ipv6 else _socket.AF_INET, host)
        for i in range(16):       # an IPv4 address as channels have it, mapped into IPv6
            address[i] = 0xff if 10 <= i < 12 else 0
        memcpy(&address[16 - len(packed)], <const char*>packed, <size_t>len(packed))
        session = session_intern(principal)
        asker_init(self.verdicts, session.number, address, is_ipv6, &asker)
        session_drop(session)
        with nogil:
            place = verdicts_put(
                self.verdicts, &asker, operation, type_, at, length, VERDICT_ALLOWED, generation, 0,
                &replaced)
        return place, replaced.denied_as, replaced.denials

    def take_denials(self, int64_t place, uint64_t number):
        cdef int64_t denials
        if not 0 <= place < (<int64_t>self.verdicts.mask + 1) * VERDICT_WAYS:
            raise InvariantError(f"there is no place {place} for a verdict")
        with nogil:
            denials = verdicts_take_denials(self.verdicts, place, number)
        return denials

    def statistics(self):
        return {
            "places": (self.verdicts.mask + 1) * VERDICT_WAYS,
            "kept": self.verdicts.kept,
            "replaced": self.verdicts.replaced,
        }


cdef int _queue(RequestChannel* request_channel, Request* node) except -1:
    # For a handler, as if it had just come; it has room, since it has rights.
    cdef Request* last = node
    node.next = NULL
    node.waiting_ns = 0
    node.cold_reason = REASON_NONE
    with nogil:
        request_channel_push(request_channel, node, &last, kb_now_ns())
    return 0
