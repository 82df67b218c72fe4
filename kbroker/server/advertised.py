"""Which address of this node a client is told.

A configured `advertised.listeners` entry always wins. Without one, the client is told the address
that its own connection reached (getsockname), so that loopback, LAN, bridge networks and IPv6 work
without configuration. The registered address, which peers use, is the configured or the first bound
one; a wildcard is registered under this host's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config.listeners import ListenerSet
    from kbroker.handlers.services import ColdRequest

_WILDCARDS = ("", "0.0.0.0", "::")


class Advertised:
    """Answers per connection; immutable."""

    def __init__(self, listeners: ListenerSet) -> None:
        self._listeners = listeners

    def __call__(self, request: ColdRequest) -> tuple[str, int]:
        endpoint = self._listeners.advertised_for(request.listener)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        return request.local_host, request.local_port

    def by_listener(self, names: Iterable[str]) -> list[tuple[str, int] | None]:
        """What is configured for each listener; None: the address that a connection used."""
        endpoints = [self._listeners.advertised_for(name) for name in names]
        return [None if each is None else (each.host, each.port) for each in endpoints]

    def registered(self, bound: dict[str, list[tuple[str, int]]]) -> tuple[str, int]:
        """What goes into the metadata store, from what was bound by listener name."""
        name = self._listeners.inter_broker_name
        endpoint = self._listeners.advertised_for(name)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        host, port = bound[name][0]
        if host in _WILDCARDS:
            import socket

            host = socket.gethostname()
        return host, port
