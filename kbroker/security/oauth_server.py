"""OAUTHBEARER (RFC 7628), the broker's side of one login.

A token that is not accepted is answered with `{"status":"invalid_token"}`, as a message of the
exchange; the client says that it has read it, and then the login fails with the same text. Why the
token is not accepted is in the log, without the token.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from kbroker.log_lines import LogLines
from kbroker.outside_text import printable
from kbroker.security.jws import TokenError
from kbroker.security.jwt import Accepted
from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login
from kbroker.security.oauth_messages import READ, OAuthMessageError, parse_client_first

OAUTHBEARER: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = '{"status":"invalid_token"}'

lines: Final = LogLines(logging.getLogger("kbroker.security"))


class Validator(Protocol):
    def accept(self, token: str) -> Accepted:
        """TokenError: it is not accepted, and why."""


class OAuthServer:
    __slots__ = ("_over", "_refused", "_validator", "claimed", "login")

    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        self._refused = self._over = False
        self.login: Login | None = None
        self.claimed = ""

    def evaluate(self, token: bytes) -> bytes:
        if self._refused and token == READ:
            self._refused, self._over = False, True
            raise AuthenticationError(INVALID_TOKEN)
        if self._refused or self._over:
            raise CredentialsError("a message after the end of a login")
        try:
            first = parse_client_first(token)
            accepted = self._validator.accept(first.token)
        except OAuthMessageError as error:
            self._over = True
            raise CredentialsError(str(error)) from None
        except TokenError as error:
            self._refused = True
            why = str(error)
            lines.write(logging.INFO, why, "a bearer token is refused: %s", why)
            return INVALID_TOKEN.encode()
        self._over = True
        self.claimed = accepted.user
        if first.authorization_id not in ("", accepted.user):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id"
                f" ({printable(first.authorization_id)}) that is different from the token's"
                f" principal name ({printable(accepted.user)})"
            )
        self.login = Login(accepted.user, expires_ms=accepted.expires_ms)
        return b""
