"""Envelopes (KIP-590): puts a client's request into one, and takes it out at the controller.

Place in the flow: `forwarding.py` puts a request into an Envelope request, with its client's
principal, address and client id. The controller takes it out and serves it as a `Forwarded`
request; the response goes back within the response to the Envelope.

A connection between two brokers carries the requests of many clients. So an error in the request
inside is the error of its envelope alone, and does not close the connection.

Any handler thread; holds no lock.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import TEXT_BYTES_MAX
from kbroker.protocol import messages
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import ProtocolError, Reader, encode_string
from kbroker.security.session import Principal, Session, session_of

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest
    from kbroker.protocol.messages.envelope import Request

VERSION: Final = 0

_HEADER: Final = struct.Struct(">hhi")  # key, version, correlation id
_PRINCIPAL: Final = struct.Struct(">h")  # version
_PRINCIPAL_VERSION: Final = 0
_NO_TAGS: Final = b"\x00"
_ADDRESS_BYTES: Final = (4, 16)
# As Apache Kafka answers an envelope with something inside that it cannot read.
_UNREADABLE: Final = ErrorCode.UNSUPPORTED_VERSION


class Forwarded:
    """The request inside an envelope, as a handler sees it."""

    __slots__ = (
        "_call",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "correlation_id",
        "session",
    )

    def __init__(self, call: Call[Request]) -> None:
        """KafkaError: the request, the principal or the address inside cannot be read."""
        envelope = call.message
        self._call = call
        principal = _principal_of(envelope.request_principal)
        host = _host_of(envelope.client_host_address)
        try:
            reader = Reader(envelope.request_data, flexible=False)
            self.api_key = reader.int16()
            self.api_version = reader.int16()
            self.correlation_id = reader.int32()
            self.client_id = reader.nullable_string()
            body = reader.raw(reader.left)
            if is_flexible(self.api_key, self.api_version):
                reader = Reader(body, flexible=True)
                reader.tags()
                body = reader.raw(reader.left)
        except ProtocolError as error:
            raise KafkaError(_UNREADABLE, str(error)) from None
        self.body = body
        self.session = session_of(principal, self.client_id, call.request.listener, host)

    @property
    def connection_id(self) -> str:
        return self._call.request.connection_id

    @property
    def listener(self) -> str:
        return self._call.request.listener

    @property
    def local_host(self) -> str:
        return self._call.request.local_host

    @property
    def local_port(self) -> int:
        return self._call.request.local_port

    @property
    def principal(self) -> Principal:
        return self.session.principal

    @property
    def peer_host(self) -> str:
        return self.session.client_host

    @property
    def peer_port(self) -> int:
        return self._call.request.peer_port

    def respond(self, body: bytes) -> None:
        header = struct.pack(">i", self.correlation_id)
        if is_flexible(self.api_key, self.api_version):
            header += _NO_TAGS
        self._call.answer(
            messages.envelope.Response(response_data=header + body, error_code=ErrorCode.NONE)
        )

    def throttle(self, throttle_ms: int) -> None:
        """The broker that has forwarded it reads the time in the answer."""

    def close_connection(self, reason: str) -> None:
        """The client's connection is at another broker, so this is an error of the envelope."""
        self._call.fail(_UNREADABLE, reason)


def sealed(request: ColdRequest, session: Session) -> bytes:
    """An Envelope request with this request inside. KafkaError: the client id is too long."""
    if len((session.client_id or "").encode()) > TEXT_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client id is too long to be forwarded")
    header = _HEADER.pack(request.api_key, request.api_version, request.correlation_id)
    header += encode_string(session.client_id, flexible=False)
    if is_flexible(request.api_key, request.api_version):
        header += _NO_TAGS
    principal = messages.envelope.Principal(
        type=session.principal.type,
        name=session.principal.name,
        token_authenticated=session.principal.by_token,
    )
    envelope = messages.envelope.Request(
        request_data=header + request.body,
        request_principal=_PRINCIPAL.pack(_PRINCIPAL_VERSION) + principal.encode(0),
        client_host_address=_address_of(session.client_host),
    )
    return envelope.encode(VERSION)


def opened(answer: bytes, request: ColdRequest) -> bytes | KafkaError:
    """The body of the response inside, or the error of the request."""
    try:
        response = messages.envelope.Response.decode(answer, VERSION)
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode.for_code(response.error_code)
            return KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered {code.name}"
            )
        flexible = is_flexible(request.api_key, request.api_version)
        reader = Reader(response.response_data or b"", flexible=flexible)
        if reader.int32() != request.correlation_id:
            raise ProtocolError("the response in the envelope is of another request")
        if flexible:
            reader.tags()
        return reader.raw(reader.left)
    except ProtocolError as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _principal_of(data: bytes | None) -> Principal:
    try:
        if data is None or _PRINCIPAL.unpack_from(data) != (_PRINCIPAL_VERSION,):
            raise ProtocolError("an envelope of an unknown principal")
        found = messages.envelope.Principal.decode(data[_PRINCIPAL.size :], 0)
    except (ProtocolError, struct.error) as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return Principal(found.type, found.name, found.token_authenticated)


def _address_of(host: str) -> bytes:
    import socket  # not before a request is forwarded

    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)


def _host_of(address: bytes) -> str:
    import socket

    if len(address) not in _ADDRESS_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"an address of {len(address)} bytes")
    return socket.inet_ntop(socket.AF_INET6 if len(address) == 16 else socket.AF_INET, address)
