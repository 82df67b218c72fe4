"""The address of this node that a client is given.

A configured `advertised.listeners` entry always wins. Without one, the client is given the address
that its own connection reached (getsockname), so that loopback, LAN, bridge networks and IPv6 work
without configuration. For each listener an address is registered, which brokers use and their
clients are given: the configured or the first bound one; a wildcard is registered under this host's
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.handlers import envelope
from kbroker.metadata.features import UNSTABLE_KEY, supported
from kbroker.metadata.image import BrokerEndpoint, BrokerImage
from kbroker.metadata.store.zookeeper_settings import CONNECT

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
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

    def broker(
        self, config: BrokerConfig, bound: dict[str, list[tuple[str, int]]], *, lossy: bool
    ) -> BrokerImage:
        """This start of the broker, as it registers; `config` as it was started with."""
        endpoints = self.registered(bound)
        _, host, port, _ = endpoints[0]
        node_id, rack = config.node_id, config["broker.rack"]
        settings: tuple[tuple[str, str], ...] = ()
        if config[CONNECT]:
            # Imported for a cluster: a broker without one is small.
            from kbroker.config.agreed import agreed_settings

            settings = tuple(agreed_settings(config).items())
        return BrokerImage(
            node_id, host, port, rack, lossy=lossy, endpoints=endpoints, settings=settings,
            envelope_version=envelope.VERSION, features=supported(unstable=config[UNSTABLE_KEY]),
        )  # fmt: skip

    def registered(self, bound: dict[str, list[tuple[str, int]]]) -> tuple[BrokerEndpoint, ...]:
        """The endpoints for the metadata store, of the addresses bound by listener name.

        The listener where brokers come is the first.
        """
        inside = self._listeners.inter_broker_name
        names = sorted(self._listeners.names, key=lambda name: name != inside)
        return tuple(self._registered(name, *bound[name][0]) for name in names)

    def _registered(self, name: str, host: str, port: int) -> BrokerEndpoint:
        endpoint = self._listeners.advertised_for(name)
        if endpoint is not None:
            host, port = endpoint.host, endpoint.port
        elif host in _WILDCARDS:
            import socket

            host = socket.gethostname()
        return BrokerEndpoint(name, host, port, self._listeners.protocol_of(name))


def secrets_of(config: BrokerConfig) -> Callable[[str], dict[str, str]]:
    """Gives what a broker of a cluster of this id registers in the place of its secrets."""

    def fingerprints(cluster_id: str) -> dict[str, str]:
        if not config[CONNECT]:
            return {}
        from kbroker.config.agreed import SECRETS, UNSET
        from kbroker.security.secret_fingerprint import fingerprint

        found = {}
        for name in SECRETS:
            secret = config[name]
            made = fingerprint(secret, name, cluster_id) if secret else UNSET
            if made:
                found[name] = made
        return found

    return fingerprints
