"""Envelope (58): a client's request that a broker forwards to the controller (KIP-590).

`request_data` is a request with its header, `response_data` a response with its header; neither has
a size in front. `request_principal` is a `Principal` with its version in front.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, boolean, bytes_, int16, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.ENVELOPE, versions=(0, 0)):
    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(null=0)
    client_host_address: bytes = bytes_()


class Response(Message, api=ApiKey.ENVELOPE, versions=(0, 0)):
    response_data: bytes | None = bytes_(null=0, default=None)
    error_code: int = int16()


class Principal(Message, flexible=0):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
