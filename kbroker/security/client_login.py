"""How a client of ours comes in: between brokers, and of the command line.

Place in the flow: `peer/` sends SaslHandshake and then these, each when the one before has been
answered, over a blocking socket or on an event loop. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.security.plain import PLAIN, plain_token
from kbroker.security.scram import SCRAM_MECHANISMS, ScramMechanism
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_messages import ScramMessageError

if TYPE_CHECKING:
    from kbroker.security.client_tls import ClientTls

MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)


class ServerError(Exception):
    """The server's answer is none, or not of a server that knows the password."""


class ClientLogin(NamedTuple):
    """`mechanism` empty: without SASL. `tls` None: without TLS."""

    mechanism: str = ""
    name: str = ""
    password: str = ""
    is_token: bool = False
    tls: ClientTls | None = None

    def __repr__(self) -> str:
        return f"<ClientLogin {self.mechanism} of {self.name!r}>"  # its password is for no log

    def tokens(self) -> Generator[bytes, bytes, None]:
        """Yields each token and takes the answer to it. ServerError, also from the last answer."""
        if self.mechanism == PLAIN:
            yield plain_token(self.name, self.password)
            return
        client = ScramClient(
            ScramMechanism(self.mechanism), self.name, self.password, is_token=self.is_token
        )
        try:
            last = yield client.final((yield client.first()))
            client.check(last)
        except ScramMessageError as error:
            raise ServerError(str(error)) from None
