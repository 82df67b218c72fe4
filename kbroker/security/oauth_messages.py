"""The messages of OAUTHBEARER (RFC 7628), as Apache Kafka has them.

    client   n,[a=NAME],^A auth=Bearer TOKEN^A [KEY=VALUE^A ...] ^A      ^A is the byte 1, no spaces
    server   nothing; or {"status":"invalid_token"}, which the client answers with ^A

Extensions are read, and mean nothing here, as in Apache Kafka. Bytes from a socket are not trusted:
`OAuthMessageError` for all that is no such message, and never with the token in it.

Pure functions; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kbroker.limits import OAUTH_EXTENSIONS_MAX, OAUTH_MESSAGE_BYTES_MAX, USER_NAME_BYTES_MAX

SEPARATOR: Final = "\x01"
# The client's word that it has read why its token is refused.
READ: Final = b"\x01"
_AUTH: Final = "auth"
_NAME: Final = re.compile(r"(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
_BEARER: Final = re.compile(r"bearer +([-_.A-Za-z0-9]+)", re.IGNORECASE)


class OAuthMessageError(Exception):
    """These bytes are no such message."""


class ClientFirst(NamedTuple):
    authorization_id: str
    token: str
    extensions: Mapping[str, str]


def parse_client_first(data: bytes) -> ClientFirst:
    if len(data) > OAUTH_MESSAGE_BYTES_MAX:
        raise OAuthMessageError(f"a message of {len(data)} bytes")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise OAuthMessageError("a message that is not ASCII") from None
    head, *pairs = text.split(SEPARATOR, OAUTH_EXTENSIONS_MAX + 3)
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise OAuthMessageError("a message has few pairs, and ends with two separators")
    authorization_id = _authorization_id(head)
    values: dict[str, str] = {}
    for pair in pairs[:-2]:
        key, found, value = pair.partition("=")
        if not found or _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise OAuthMessageError("a pair is no KEY=VALUE")
        if key in values:
            raise OAuthMessageError("a key comes twice")
        values[key] = value
    bearer = _BEARER.fullmatch(values.pop(_AUTH, ""))
    if bearer is None:
        raise OAuthMessageError("a message has auth=Bearer and a token")
    return ClientFirst(authorization_id, bearer[1], values)


def encode_client_first(token: str) -> bytes:
    """ValueError: it is no token."""
    if _BEARER.fullmatch(f"bearer {token}") is None:
        raise ValueError("a token has letters, digits, '-', '_' and '.' only")
    return f"n,,{SEPARATOR}{_AUTH}=Bearer {token}{SEPARATOR}{SEPARATOR}".encode("ascii")


def _authorization_id(head: str) -> str:
    if not head.startswith("n,") or not head.endswith(",") or len(head) < 3:
        raise OAuthMessageError("a message begins with n, and has no channel binding")
    name = head[2:-1]
    if not name:
        return ""
    if not name.startswith("a=") or _NAME.fullmatch(name[2:]) is None:
        raise OAuthMessageError("an authorization id begins with a=")
    if len(name) > USER_NAME_BYTES_MAX:
        raise OAuthMessageError("an authorization id that is too long")
    return name[2:].replace("=2C", ",").replace("=3D", "=")
