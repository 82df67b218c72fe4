# cython: language_level=3
"""A request that the hot path does not take ("cold"), as Python sees it: a body and `respond`.

A WrappedRequest may be answered from any thread, exactly once. One that is dropped without an
answer closes its connection, so that no client waits for ever. Whatever takes a C lock releases the
GIL first. It never interprets a body.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

import socket as _socket

from kbroker.errors import InvariantError

from kbroker.core._sync cimport kb_now_ns
from kbroker.net._charges cimport (
    charges_in_force, request_charge_answer, request_tell_throttle)
from kbroker.net._processor cimport processor_push, processor_notify
from kbroker.net._request cimport answer_bytes, answer_reserve, request_let_go
from kbroker.net._sessions cimport session_drop, session_intern, session_principal
from kbroker.net._types cimport (
    ACTION_CLOSE, ACTION_OPEN, ACTION_SEND, API_KEYS_MAX, AUTHENTICATION, CAUSE_AUTHENTICATION,
    CAUSE_HEADER, CAUSE_PYTHON, PEER_NAME, Channel, Processor, Request, RequestChannel, RequestList,
    Session)
from kbroker.protocol._cursor cimport Cursor, RequestHeader, kb_put_u32, take_header
from kbroker.protocol._versions cimport API_PRODUCE, API_VERSIONS
from kbroker.quota._quota_table cimport REQUEST_IN_FORCE


cdef class WrappedRequest:
    """One request for Python. `body` begins after the request header.

    `authenticates`: it is a frame of an authentication. `body` is all of it, and so is the answer.
    `names_peer`: no client sent it. `body` is what the transport has proved about the peer, in the
    transport's own form; the channel opens, or ends, without an answer.
    """

    def __init__(self):
        raise InvariantError("requests come from the network core")

    def __dealloc__(self):
        if self.node != NULL:
            _finish(self, None, ACTION_CLOSE, CAUSE_PYTHON)

    @property
    def connection_id(self):
        """Unique for the life of the broker: local address, peer address, number."""
        cdef Channel* channel = self._channel()
        return (
            f"{self.local_host}:{channel.local_port}-{self.peer_host}:{channel.peer_port}"
            f"-{channel.connection_id}"
        )

    @property
    def listener(self):
        return self.listeners[self._channel().listener]

    @property
    def principal(self):
        """Whose request it is; the listener's where the client has not authenticated."""
        return session_principal(self._channel().session)

    @property
    def session_ends(self):
        """Whether the channel's session has an end, at which its client authenticates again."""
        return self._channel().expires_ns != 0

    @property
    def local_host(self):
        cdef Channel* channel = self._channel()
        return _host(channel.local_address, channel.is_ipv6)

    @property
    def local_port(self):
        return self._channel().local_port

    @property
    def peer_host(self):
        cdef Channel* channel = self._channel()
        return _host(channel.peer_address, channel.is_ipv6)

    @property
    def peer_port(self):
        return self._channel().peer_port

    @property
    def frames(self):
        """How many Produce frames it is, one after the other; 0 once it is answered."""
        return self.node.frames if self.node != NULL else 0

    @property
    def answered(self):
        return self.node == NULL

    cdef Channel* _channel(self) except NULL:
        # The channel outlives its requests in service, and its addresses never change.
        if self.node == NULL:
            raise InvariantError("the request has been answered; read its addresses before")
        return self.node.channel

    def respond(self, bytes body not None):
        """Sends the answer; header and size are added here. Once, from any thread."""
        self._require_unanswered()
        if self.names_peer:
            raise InvariantError("no client waits for an answer to the name in its certificate")
        _finish(self, body, ACTION_SEND, CAUSE_PYTHON)

    def open_channel(self, bytes body, principal, int64_t expires_ns=0):
        """Sends the answer, if there is one, to the frame that completed the authentication:
        requests follow, and they are the principal's. A request after `expires_ns` of the monotonic
        clock ends the connection, unless it authenticates again; 0: none does."""
        cdef Session* session
        self._require_unanswered()
        if not (self.authenticates or self.names_peer):
            raise InvariantError(f"request {self.correlation_id} is of an open channel")
        session = session_intern(principal)
        if self.node == NULL:     # answered meanwhile
            session_drop(session)
        self._require_unanswered()
        self.node.opens_as = session
        self.node.channel.expires_ns = expires_ns
        _finish(self, body, ACTION_OPEN, CAUSE_PYTHON)

    def renew_session(self, bytes body not None, int64_t expires_ns):
        """Sends the answer to the request with which the client of an open channel authenticated
        again, as the same principal: its session is over later now."""
        self._require_unanswered()
        # The network thread takes no request of the channel before it has this answer.
        self.node.channel.expires_ns = expires_ns
        _finish(self, body, ACTION_SEND, CAUSE_PYTHON)

    def refuse(self, bytes body=None):
        """The authentication has failed: sends this answer, if there is one, and ends the
        connection."""
        self._require_unanswered()
        _finish(self, body, ACTION_CLOSE, CAUSE_AUTHENTICATION)

    cdef int _require_unanswered(self) except -1:
        if self.node == NULL:
            raise InvariantError(f"request {self.correlation_id} was answered twice")
        return 0

    def throttle(self, int throttle_ms):
        """Its answer says so, if C writes it, and the client is not read for so long after it
        (KIP-219). Call this before it is answered or passed on."""
        if self.node == NULL:
            raise InvariantError(f"request {self.correlation_id} was answered already")
        if self.authenticates or self.names_peer:
            raise InvariantError("a frame of an authentication is not throttled")
        self.node.throttle_ms = max(throttle_ms, 0)

    def note_waiting(self):
        """Its handler has done its part; what is to come counts as remote time."""
        if self.node != NULL and self.node.waiting_ns == 0:
            self.node.waiting_ns = kb_now_ns()

    def close_connection(self, str reason=""):
        """Ends the connection; answers before this one are sent first."""
        self._require_unanswered()
        _finish(self, None, ACTION_CLOSE, CAUSE_PYTHON)


cdef object _host(const uint8_t* address, int is_ipv6):
    # As inet_ntop has it; an IPv4 address, of which most are, without a call of it.
    cdef char[16] text
    cdef int length = 0
    cdef int i
    cdef int byte
    if is_ipv6:
        return _socket.inet_ntop(
            _socket.AF_INET6, PyBytes_FromStringAndSize(<char*>address, 16))
    for i in range(12, 16):
        byte = address[i]
        if byte >= 100:
            text[length] = <char>(48 + byte // 100)
            length += 1
        if byte >= 10:
            text[length] = <char>(48 + byte // 10 % 10)
            length += 1
        text[length] = <char>(48 + byte % 10)
        length += 1
        text[length] = b"."
        length += 1
    return text[:length - 1].decode("ascii")


cdef int _finish(WrappedRequest self, bytes body, int action, int cause) except -1:
    # The node goes back to its Processor, whatever happens.
    cdef Request* node = self.node
    cdef Processor* processor = node.processor
    cdef bytes encoded
    cdef const uint8_t* client = NULL
    cdef int32_t client_length = 0
    self.node = NULL
    if body is not None and _write(self.request_channel, node, body) != 0:
        action = ACTION_CLOSE
        session_drop(node.opens_as)
        node.opens_as = NULL
    node.action = action
    if node.cause != CAUSE_HEADER:
        node.cause = cause
    if charges_in_force(self.request_channel) & REQUEST_IN_FORCE and node.kind == 0:
        encoded = (self.client_id or "").encode("utf-8", "replace")
        client = encoded
        client_length = <int32_t>len(encoded)
    with nogil:
        node.completed_ns = kb_now_ns()
        if client != NULL and action == ACTION_SEND:
            _charge(self.request_channel, node, client, client_length)
        elif node.throttle_ms > 0:
            request_tell_throttle(self.request_channel, node)
        processor_push(processor, RequestList(node, node), RequestList(NULL, NULL), 0)
        processor_notify(processor)
    return 0


cdef void _charge(
    RequestChannel* request_channel, Request* node, const uint8_t* client, int32_t length
) noexcept nogil:
    # The time that its handler took, without that for which it waited.
    cdef int64_t until_ns = node.waiting_ns if node.waiting_ns > 0 else node.completed_ns
    cdef int64_t from_ns = node.dequeued_ns if node.dequeued_ns > 0 else until_ns
    request_charge_answer(
        request_channel, node, client, length, until_ns - from_ns, node.completed_ns)


cdef int _write(RequestChannel* request_channel, Request* node, bytes body):
    # Size, header and body; -1: there is no memory for them.
    cdef Py_ssize_t length = len(body)
    cdef uint32_t header = 4
    cdef uint8_t* head
    if node.kind == AUTHENTICATION:
        header = 0
    # An answer of ApiVersions always has header v0.
    elif node.api_key != API_VERSIONS and _is_flexible(request_channel, node):
        header = 5                # an empty buffer of tagged fields
    if length >= 0x7ffffff0:
        return -1
    head = answer_reserve(node, <uint32_t>(4 + header + length), 1)
    if head == NULL:
        return -1
    kb_put_u32(head, <uint32_t>(header + length))
    if header > 0:
        kb_put_u32(head + 4, <uint32_t>node.correlation_id)
    if header == 5:
        head[8] = 0
    memcpy(head + 4 + header, <const char*>body, <size_t>length)
    answer_bytes(node, head, 4 + header + length)
    return 0


cdef WrappedRequest request_wrap(
    object owner, RequestChannel* request_channel, list listeners, Request** place, object reason,
):
    """The Python side of a list's first request, which leaves the list. A header that does not
    parse closes the connection, and so does an exception after that."""
    cdef WrappedRequest request = WrappedRequest.__new__(WrappedRequest)
    cdef Request* node = place[0]
    cdef Cursor cursor
    cdef RequestHeader header
    place[0] = node.next
    node.next = NULL
    request.node = node
    request.owner = owner
    request.request_channel = request_channel
    request.listeners = listeners
    request.reason = reason
    request.authenticates = node.kind == AUTHENTICATION
    request.names_peer = node.kind == PEER_NAME
    request.api_key = node.api_key
    request.api_version = node.api_version
    request.correlation_id = node.correlation_id
    request.received_ns = node.received_ns
    if request.authenticates or request.names_peer:  # it has no header
        request.body = PyBytes_FromStringAndSize(<char*>node.data, node.length_bytes)
        request_let_go(node)
        return request
    take_header(&cursor, &header, node.data, node.length_bytes, _is_flexible(request_channel, node))
    if cursor.failed:
        node.cause = CAUSE_HEADER
        request.close_connection("a request header that does not parse")
        return None
    if header.client_id != NULL:
        request.client_id = header.client_id[:header.client_id_length].decode("utf-8", "replace")
    request.body = PyBytes_FromStringAndSize(<char*>cursor.at, <Py_ssize_t>cursor.left)
    if not _returns_to_c(request_channel, node, reason):
        request_let_go(node)
    return request


cdef int _is_flexible(RequestChannel* request_channel, Request* node) noexcept:
    cdef int flexible_from = -1
    if 0 <= node.api_key < API_KEYS_MAX:
        flexible_from = request_channel.flexible_from[node.api_key]
    return 0 <= flexible_from <= node.api_version


cdef int _returns_to_c(
    RequestChannel* request_channel, Request* node, object reason,
) except -1:
    # A Produce that Python looks into, a request whose rights are asked for, and what a debugger
    # took out of the hot path (`set_cold`).
    if reason == "rights":
        return 1
    if reason == "cold":
        return 0 <= node.api_key < API_KEYS_MAX and request_channel.flows_back[node.api_key]
    return node.api_key == API_PRODUCE
