"""A request in a frame of an authentication, whose header was not read in C.

Place in the flow: `authentication.py` reads each such frame into one, asks the API's own code for a
response, and sends that with the response header before it. The response is kept in `answer`.

One thread at a time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kbroker.errors import InvariantError
from kbroker.protocol.versions import request_header_version, response_header_version
from kbroker.protocol.wire import Reader

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest
    from kbroker.security.session import Principal

_FLEXIBLE_REQUEST: Final = 2
_NO_TAGS: Final = b"\0"


class FramedRequest:
    """See the head of this file; `body` follows the header."""

    __slots__ = (
        "_frame", "answer", "api_key", "api_version", "body", "client_id", "correlation_id"
    )  # fmt: skip

    def __init__(self, frame: ColdRequest) -> None:
        """ProtocolError: the frame has no request header."""
        self._frame = frame
        self.answer: bytes | None = None  # with its header
        reader = Reader(frame.body, flexible=False)
        self.api_key = reader.int16()
        self.api_version = reader.int16()
        self.correlation_id = reader.int32()
        self.client_id = reader.nullable_string()
        body = reader.raw(reader.left)
        if request_header_version(self.api_key, self.api_version) == _FLEXIBLE_REQUEST:
            reader = Reader(body, flexible=True)
            reader.tags()
            body = reader.raw(reader.left)
        self.body = body

    @property
    def connection_id(self) -> str:
        return self._frame.connection_id

    @property
    def listener(self) -> str:
        return self._frame.listener

    @property
    def principal(self) -> Principal:
        return self._frame.principal

    @property
    def local_host(self) -> str:
        return self._frame.local_host

    @property
    def local_port(self) -> int:
        return self._frame.local_port

    @property
    def peer_host(self) -> str:
        return self._frame.peer_host

    @property
    def peer_port(self) -> int:
        return self._frame.peer_port

    def respond(self, body: bytes) -> None:
        header = struct.pack(">i", self.correlation_id)
        if response_header_version(self.api_key, self.api_version):
            header += _NO_TAGS
        self.answer = header + body

    def throttle(self, throttle_ms: int) -> None:
        raise InvariantError("a request of an authentication is not throttled")

    def close_connection(self, reason: str) -> None:
        raise InvariantError(f"a request of an authentication has no such end: {reason}")
