"""PLAIN (RFC 4616): name and password in one token, as Apache Kafka takes it.

Names and passwords come from the configuration (`config/jaas.py`). They are compared in constant
time, and an unknown name takes as long as a wrong password does. Both are UTF-8, and nothing is
normalised.

The texts that a client gets are Apache Kafka's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from kbroker.limits import USER_NAME_BYTES_MAX
from kbroker.security.mechanism import AuthenticationError, Login

PLAIN: Final = "PLAIN"

_TOKENS: Final = 3
_WRONG: Final = "Authentication failed: Invalid username or password"
_UNKNOWN: Final = "\0no password has this character"

OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class PlainServer:
    """The broker's side for one connection; `passwords` by user."""

    __slots__ = ("_passwords", "claimed", "login")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.login: Login | None = None
        self.claimed = ""

    def evaluate(self, token: bytes) -> bytes:
        authorization_id, name, password = _fields(token)
        self.claimed = name
        expected = self._passwords.get(name, _UNKNOWN)
        if not (_is_same(password, expected) and expected is not _UNKNOWN):
            raise AuthenticationError(_WRONG)
        if authorization_id not in ("", name):
            raise AuthenticationError(OTHER_AUTHORIZATION_ID)
        self.login = Login(name)
        return b""


def plain_token(name: str, password: str) -> bytes:
    """The one token of a client. ValueError: a NUL would end the name."""
    if "\0" in name or "\0" in password:
        raise ValueError("a name or password for PLAIN has no NUL")
    return f"\0{name}\0{password}".encode()


def _fields(token: bytes) -> tuple[str, str, str]:
    fields = token.split(b"\0", _TOKENS)
    if len(fields) != _TOKENS:
        raise AuthenticationError(
            f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(fields)}"
        )
    try:
        authorization_id, name, password = (field.decode() for field in fields)
    except UnicodeDecodeError:
        raise AuthenticationError(_WRONG) from None
    if not name:
        raise AuthenticationError("Authentication failed: username not specified")
    if not password:
        raise AuthenticationError("Authentication failed: password not specified")
    if len(fields[1]) > USER_NAME_BYTES_MAX:
        raise AuthenticationError(_WRONG)
    return authorization_id, name, password


def _is_same(one: str, other: str) -> bool:
    """In a time that depends on no byte of the expected one, nor on its length."""
    return hmac.compare_digest(_digest(one), _digest(other))


def _digest(text: str) -> bytes:
    # Half a surrogate pair, which a file may have in a password, is "?" as in Java.
    return hashlib.sha256(text.encode(errors="replace")).digest()
