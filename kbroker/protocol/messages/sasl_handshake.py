"""SaslHandshake (17): the client names the mechanism with which it authenticates."""

from __future__ import annotations

from kbroker.protocol.messages.table import Message, array, int16, string
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    mechanism: str = string()


class Response(Message, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
