"""The session of a client: principal, client id, listener and address.

Place in the flow: a handler gets the session from its `Call`. Requests of one client on connections
from one address share one session. A request that another broker has forwarded has the session of
its client at that broker (`handlers/envelope.py`).

A client that has authenticated by nothing, no certificate and no SASL, is ANONYMOUS. Immutable; any
thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from kbroker.limits import KEPT_CLIENT_ID_CHARS_MAX, SESSIONS_KEPT_MAX


class Principal(NamedTuple):
    """A user, as ACLs and quotas name it. `by_token`: authenticated by a delegation token."""

    type: str
    name: str
    by_token: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Session(NamedTuple):
    """`client_host` is an IPv4 or IPv6 address as text."""

    principal: Principal
    client_id: str | None
    listener: str
    client_host: str


def session_of(
    principal: Principal, client_id: str | None, listener: str, client_host: str
) -> Session:
    """The session with these facts; a shared one if it is among those used last."""
    if (
        (client_id is not None and len(client_id) > KEPT_CLIENT_ID_CHARS_MAX)
        or len(principal.type) > KEPT_CLIENT_ID_CHARS_MAX
        or len(principal.name) > KEPT_CLIENT_ID_CHARS_MAX
    ):
        return Session(principal, client_id, listener, client_host)
    return _kept(principal, client_id, listener, client_host)


@lru_cache(SESSIONS_KEPT_MAX)
def _kept(principal: Principal, client_id: str | None, listener: str, client_host: str) -> Session:
    return Session(principal, client_id, listener, client_host)
