"""What a token of a client comes to: the answer, the login, or why the client is not let in.

Place in the flow: `handlers/authentication.py` and `reauthentication.py` have a mechanism take a
token here. What a mechanism says for the log alone stays there: a client gets the same text for an
unknown user and for a wrong password.

Any thread that has the mechanism.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from kbroker.security.exchange import Event
from kbroker.security.mechanism import AuthenticationError, CredentialsError, Login, Mechanism

logger: Final = logging.getLogger("kbroker.security")


class Turn(NamedTuple):
    """What a frame is, the answer to it, and why it is refused, for the log. `claimed`: the user
    that a client which is refused said it is, if it did."""

    event: Event
    answer: bytes | None = None
    why: str = ""
    login: Login | None = None
    claimed: str = ""


def denied(mechanism: str) -> str:
    """The text for a client that is not let in, which does not say why."""
    return (
        "Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism {mechanism}"
    )


def token_turn(name: str, mechanism: Mechanism, token: bytes) -> Turn:
    """`name` is the mechanism's."""
    try:
        answer = mechanism.evaluate(token)
    except CredentialsError as error:
        if isinstance(error, AuthenticationError):
            return Turn(Event.TOKEN_DENIED, why=str(error), claimed=mechanism.claimed)
        logger.debug("a login with %s failed: %s", name, error)
        return Turn(Event.TOKEN_DENIED, why=denied(name), claimed=mechanism.claimed)
    login = mechanism.login
    event = Event.TOKEN_ANSWERED if login is None else Event.TOKEN_ACCEPTED
    return Turn(event, answer, login=login)
