"""Who the client of a TLS connection is: its certificate's name, by the rules of its listener.

Place in the flow: where a client has sent a certificate, and its listener does not use SASL, the
network core hands its subject up as a request that `names_peer`, before anything that the client
sends. The channel is opened as the principal's, or ended. A client without a certificate is
ANONYMOUS, and opens without a request.

Any handler thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from kbroker.log_lines import LogLines
from kbroker.security.distinguished_name import name_of
from kbroker.security.principal_rules import PrincipalRules
from kbroker.security.session import Principal

logger: Final = logging.getLogger("kbroker.security")
lines: Final = LogLines(logger)

Dispatch = Callable[[Any], None]
_NAMES_KEPT: Final = 1000


class PeerRequest(Protocol):
    """As the compiled core hands it up."""

    @property
    def names_peer(self) -> bool: ...
    @property
    def body(self) -> bytes: ...
    @property
    def listener(self) -> str: ...
    @property
    def peer_host(self) -> str: ...
    def open_channel(self, body: bytes | None, principal: Principal) -> None: ...
    def refuse(self, body: bytes | None = None) -> None: ...


class CertificatePrincipals:
    """Of all listeners; `rules` by a listener's name."""

    def __init__(self, rules: Mapping[str, PrincipalRules]) -> None:
        self._rules = rules
        # Clients come back, and every connection has its certificate's name again.
        self._kept = lru_cache(_NAMES_KEPT)(self._principal_of)

    def before(self, dispatch: Dispatch) -> Dispatch:
        """This dispatch, with the names of peers taken out."""

        def identify_or(request: PeerRequest) -> None:
            if request.names_peer:
                self.identify(request)
            else:
                dispatch(request)

        return identify_or

    def identify(self, request: PeerRequest) -> None:
        """Opens the channel, or ends it: then its client has a certificate and is no user."""
        listener, host = request.listener, request.peer_host
        try:
            principal = self._kept(listener, request.body)
        except ValueError as error:
            request.refuse()
            cause = f"{listener}: the certificate of a client is no user's"
            lines.write(logging.INFO, cause, "%s, from %s: %s", cause, host, str(error))
        else:
            request.open_channel(None, principal)

    def _principal_of(self, listener: str, der: bytes) -> Principal:
        return Principal("User", self._rules[listener].user_of(name_of(der)))
