"""How a client of ours comes in: between brokers, and of the command line.

Place in the flow: `peer/` sends SaslHandshake and then these, each when the one before has been
answered, over a blocking socket or on an event loop. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.limits import OAUTH_TOKEN_BYTES_MAX
from kbroker.security.oauth_messages import READ, encode_client_first
from kbroker.security.plain import PLAIN, plain_token
from kbroker.security.scram import SCRAM_MECHANISMS, ScramMechanism
from kbroker.security.scram_client import ScramClient
from kbroker.security.scram_messages import ScramMessageError

if TYPE_CHECKING:
    from kbroker.security.client_tls import ClientTls

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)


class ServerError(Exception):
    """The server's answer is none, or not of a server that knows the password."""


class ClientLogin(NamedTuple):
    """`mechanism` empty: without SASL. `tls` None: without TLS. `token_file`: of OAUTHBEARER, read
    at each login, since another program renews the token in it."""

    mechanism: str = ""
    name: str = ""
    password: str = ""
    is_token: bool = False
    tls: ClientTls | None = None
    token_file: str = ""

    def __repr__(self) -> str:
        return f"<ClientLogin {self.mechanism} of {self.name!r}>"  # its password is for no log

    def tokens(self) -> Generator[bytes, bytes, None]:
        """Yields each token and takes the answer to it. ServerError, also from the last answer."""
        if self.mechanism == PLAIN:
            yield plain_token(self.name, self.password)
            return
        if self.mechanism == OAUTHBEARER:
            refusal = yield _first_message(self.token_file)
            if refusal:
                yield READ  # whose answer says that the login has failed
                raise ServerError("the server has refused the token, and then let it in")
            return
        client = ScramClient(
            ScramMechanism(self.mechanism), self.name, self.password, is_token=self.is_token
        )
        try:
            last = yield client.final((yield client.first()))
            client.check(last)
        except ScramMessageError as error:
            raise ServerError(str(error)) from None


def _first_message(token_file: str) -> bytes:
    """ServerError: the file has no token."""
    try:
        with open(token_file, encoding="ascii") as file:
            token = file.read(OAUTH_TOKEN_BYTES_MAX + 1)
        if len(token) <= OAUTH_TOKEN_BYTES_MAX:
            return encode_client_first(token.strip())
        reason = "it is too large"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except ValueError:
        reason = "it holds no token"
    raise ServerError(f"cannot read a token from {token_file}: {reason}")
