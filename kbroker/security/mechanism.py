"""A SASL mechanism: what the broker's side of one does with each token of a client.

Place in the flow: the exchange (`security/exchange.py`) makes a mechanism for each connection that
has named one, and gives it the tokens of the client one after the other. `evaluate` returns the
token to send back; when `login` is set the client is known.

One connection's mechanism is used by one thread at a time. It waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class CredentialsError(Exception):
    """The client is not let in, and its text does not say why: `args` are for the log alone."""


class AuthenticationError(CredentialsError):
    """The client is not let in; the text is sent to it as it is."""


class Login(NamedTuple):
    """A client that is known. `expires_ms`: when its credential ends, of the wall clock."""

    name: str
    by_token: bool = False
    expires_ms: int | None = None


class Mechanism(Protocol):
    @property
    def claimed(self) -> str:
        """The user that the client says it is, for the audit log; empty: not known."""

    @property
    def login(self) -> Login | None:
        """None until the client is known."""

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's next token. CredentialsError: it is not let in."""


MakeMechanism = Callable[[], Mechanism]
