"""The broker's side of a SCRAM login, for one connection.

Place in the flow: `exchange.py` gives it the client's two messages. Whether the name is known, and
whether the password is right, a client learns at the same point, in the same words and after the
same work: a name that is not there has a credential that no proof fits. So does a name whose own
credential has too few iterations.

The final message must repeat the broker's nonce (CVE-2024-56128), and the header of the first one.

With the extension `tokenauth=true` the name is that of a delegation token: `Users.token` says its
credential, its owner and when it expires.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from kbroker.limits import SCRAM_ITERATIONS_MIN
from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login
from kbroker.security.plain import OTHER_AUTHORIZATION_ID
from kbroker.security.scram import ScramCredential, ScramMechanism, is_proof
from kbroker.security.scram_messages import (
    ClientFirst,
    ScramMessageError,
    encode_base64,
    parse_client_final,
    parse_client_first,
)

_NONCE_BYTES: Final = 24
_WRONG: Final = "an unknown user or a wrong password"


class TokenCredential(NamedTuple):
    """Of a delegation token. `expires_ms` is of the wall clock."""

    credential: ScramCredential
    owner: str
    expires_ms: int


class Users(Protocol):
    """Where credentials come from; any thread."""

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None: ...

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """One that no password fits, the same for a name each time."""

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None: ...


class _State(Enum):
    FIRST = 1
    FINAL = 2
    OVER = 3


def new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


class ScramServer:
    __slots__ = (
        "_credential",
        "_first",
        "_found",
        "_mechanism",
        "_message",
        "_new_nonce",
        "_nonce",
        "_state",
        "_users",
        "_why",
        "claimed",
        "login",
    )  # fmt: skip

    def __init__(
        self,
        mechanism: ScramMechanism,
        users: Users,
        make_nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._mechanism, self._users, self._new_nonce = mechanism, users, make_nonce
        self._state = _State.FIRST
        self.login: Login | None = None
        self.claimed = ""

    def evaluate(self, token: bytes) -> bytes:
        state, self._state = self._state, _State.OVER  # a failed login is not tried again
        try:
            if state is _State.FIRST:
                answer = self._begin(parse_client_first(token))
                self._state = _State.FINAL
                return answer
            if state is _State.FINAL:
                return self._finish(token)
        except ScramMessageError as error:
            raise CredentialsError(str(error)) from None
        raise CredentialsError("a message after the end of a login")

    def _begin(self, first: ClientFirst) -> bytes:
        self.claimed = first.name
        if first.authorization_id not in ("", first.name):
            raise AuthenticationError(OTHER_AUTHORIZATION_ID)
        self._found, self._why = self._look_up(first), _WRONG
        # Made where it is not used, too: it takes time.
        self._credential = self._users.fake(self._mechanism, first.name)
        if self._found is not None and self._found[0].iterations < SCRAM_ITERATIONS_MIN:
            self._why = (
                f"the credential of {first.name!r} has {self._found[0].iterations} "
                f"iterations, less than {SCRAM_ITERATIONS_MIN}"
            )
            self._found = None
        if self._found is not None:
            self._credential = self._found[0]
        self._first = first
        self._nonce = first.nonce + self._new_nonce()
        self._message = (
            f"r={self._nonce},s={encode_base64(self._credential.salt)}"
            f",i={self._credential.iterations}"
        )
        return self._message.encode()

    def _look_up(self, first: ClientFirst) -> tuple[ScramCredential, Login] | None:
        if first.extensions.get("tokenauth", "").lower() == "true":
            token = self._users.token(self._mechanism, first.name)
            if token is None:
                return None
            return token.credential, Login(token.owner, True, token.expires_ms)
        credential = self._users.credential(self._mechanism, first.name)
        return None if credential is None else (credential, Login(first.name))

    def _finish(self, token: bytes) -> bytes:
        final = parse_client_final(token)
        if final.nonce != self._nonce:
            raise CredentialsError("the nonce of the final message is not the server's")
        if final.channel_binding != self._first.gs2_header.encode():
            raise CredentialsError("c= of the final message is not the first message's header")
        message = f"{self._first.bare},{self._message},{final.without_proof}".encode()
        fits = is_proof(self._mechanism, self._credential, message, final.proof)
        if self._found is None or not fits:
            raise CredentialsError(self._why)
        self.login = self._found[1]
        signature = self._mechanism.hmac(self._credential.server_key, message)
        return f"v={encode_base64(signature)}".encode()
