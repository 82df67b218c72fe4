"""Listeners: from the texts of five keys to the addresses to bind and to advertise.

Place in the flow: `BrokerConfig.listeners` calls `parse_listeners` once at start; the network layer
binds each `Listener`, and the advertiser answers clients from `ListenerSet.advertised`, or, where
that is empty, with the address that the client's own connection reached.

Values here are immutable and shared freely: named tuples, since importing dataclasses costs a start
10 ms. Nothing here opens a socket or asks a name server.

Rules, where they differ from Apache Kafka's: one listener name may stand for several addresses, as
long as their ports are equal (the default is the IPv4 and the IPv6 loopback), and any two listeners
may share a port on different addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from kbroker.errors import ConfigError

_ENTRY: Final = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:\[\]/]*):(\d{1,5})", re.ASCII)
ADVERTISED: Final = "advertised.listeners"
_PORT_MAX: Final = 65_535
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


class SecurityProtocol(Enum):
    """What is spoken on a listener before Kafka's protocol begins."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Endpoint(NamedTuple):
    """NAME://host:port, the host without brackets and the name in capitals."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


class Listener(NamedTuple):
    """An address to bind. An empty host means every address, port 0 a free port.

    Listeners of one name that ask for port 0 are to share the port that the first one gets.
    """

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    @property
    def is_wildcard(self) -> bool:
        return self.host in _WILDCARDS

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


class ListenerSet(NamedTuple):
    """All listeners of a broker and what it tells others about them."""

    listeners: tuple[Listener, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker_name: str

    @property
    def names(self) -> tuple[str, ...]:
        """Each listener name once, in the order of the configuration."""
        return tuple(dict.fromkeys(listener.name for listener in self.listeners))

    def protocol_of(self, name: str) -> str:
        """Of a listener, as Kafka calls it."""
        return next(each.security_protocol.value for each in self.listeners if each.name == name)

    def advertised_for(self, name: str) -> Endpoint | None:
        """The address to advertise on listener `name`; None: the one the client reached."""
        return next((endpoint for endpoint in self.advertised if endpoint.name == name), None)


def format_address(host: str, port: int) -> str:
    """host:port, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoint(key: str, text: str) -> Endpoint:
    """One NAME://host:port of configuration key `key`."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ConfigError(f"{key}: {text!r} is no listener", "write NAME://host:port")
    name, host, port = match.group(1).upper(), match.group(2), int(match.group(3))
    if port > _PORT_MAX:
        raise ConfigError(f"{key}: port {port} of {text!r} is too large", "use 0 to 65535")
    if host.startswith("["):
        host = _ipv6_host(key, text, host[1:-1])
    return Endpoint(name, host, port)


def _ipv6_host(key: str, text: str, host: str) -> str:
    import socket  # only for a bracketed host

    address, percent, zone = host.partition("%")
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):
        raise ConfigError(f"{key}: {text!r} has no IPv6 address in its brackets") from None
    return address + percent + zone


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """The pairs of listener.security.protocol.map, names in capitals."""
    key = "listener.security.protocol.map"
    pairs: dict[str, SecurityProtocol] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (piece.strip() for piece in part.partition(":"))
        if not colon or not name or name.upper() in pairs:
            raise ConfigError(f"{key}: {part!r} is no new pair", "write NAME:PROTOCOL once a name")
        try:
            pairs[name.upper()] = SecurityProtocol(protocol.upper())
        except ValueError:
            known = ", ".join(each.value for each in SecurityProtocol)
            cause = f"{key}: {protocol!r} is no protocol"
            raise ConfigError(cause, f"use one of {known}") from None
    return pairs


def parse_listeners(
    *,
    listeners: Sequence[str],
    advertised: Sequence[str] | None,
    protocol_map: str,
    inter_broker_name: str | None,
    inter_broker_protocol: str,
    controller_names: Iterable[str] = (),
) -> ListenerSet:
    """The listeners of a broker; raises ConfigError for anything that can not be served."""
    protocols = parse_protocol_map(protocol_map)
    closed = {name.upper() for name in controller_names}
    bound: list[Listener] = []
    for text in listeners:
        endpoint = parse_endpoint("listeners", text)
        if endpoint.name not in closed:
            bound.append(_listener(endpoint, protocols))
    if not bound:
        raise ConfigError("listeners: there is none to open", "name at least one")
    _check_ports(bound)
    names = {listener.name for listener in bound}
    return ListenerSet(
        listeners=tuple(bound),
        advertised=_parse_advertised(advertised, names, closed),
        inter_broker_name=_inter_broker(bound, inter_broker_name, inter_broker_protocol),
    )


def _listener(endpoint: Endpoint, protocols: dict[str, SecurityProtocol]) -> Listener:
    protocol = protocols.get(endpoint.name)
    if protocol is None:
        raise ConfigError(
            f"listeners: nothing says what {endpoint.name} speaks",
            f"add {endpoint.name}:PLAINTEXT to listener.security.protocol.map",
        )
    return Listener(endpoint.name, protocol, endpoint.host, endpoint.port)


def _check_ports(listeners: Sequence[Listener]) -> None:
    for index, one in enumerate(listeners):
        for other in listeners[:index]:
            if one.name == other.name and one.port != other.port:
                raise ConfigError(
                    f"listeners: {one.name} has the ports {other.port} and {one.port}",
                    "give one of the two another name",
                )
            if one.port == other.port and one.port != 0 and _overlap(one, other):
                raise ConfigError(
                    f"listeners: {other} and {one} take the same address", "change one port"
                )
            if one.port == 0 and one.name == other.name and _overlap(one, other):
                raise ConfigError(f"listeners: {one} is there twice", "remove one")


def _overlap(one: Listener, other: Listener) -> bool:
    """Whether two listeners of one port would be in each other's way."""
    if one.host == other.host or "" in (one.host, other.host):
        return True
    same_family = one.is_ipv6 == other.is_ipv6
    return same_family and (one.is_wildcard or other.is_wildcard)


def _parse_advertised(
    texts: Sequence[str] | None, names: set[str], closed: set[str]
) -> tuple[Endpoint, ...]:
    endpoints: dict[str, Endpoint] = {}
    for text in texts or ():
        endpoint = parse_endpoint("advertised.listeners", text)
        if endpoint.name in closed:
            continue
        if endpoint.name not in names:
            raise ConfigError(
                f"advertised.listeners: no listener is named {endpoint.name}",
                f"use {', '.join(sorted(names))}",
            )
        if endpoint.name in endpoints:
            raise ConfigError(f"advertised.listeners: {endpoint.name} is there twice")
        if endpoint.host in _WILDCARDS:
            raise ConfigError(
                f"advertised.listeners: no client can connect to {text!r}",
                "name a host, or leave the key unset: clients then get the address they used",
            )
        endpoints[endpoint.name] = endpoint
    return tuple(endpoints.values())


def _inter_broker(listeners: Sequence[Listener], name: str | None, protocol: str) -> str:
    if name is not None:
        if name.upper() not in {listener.name for listener in listeners}:
            raise ConfigError(f"inter.broker.listener.name: no listener is named {name}")
        return name.upper()
    for listener in listeners:
        if listener.security_protocol.value == protocol:
            return listener.name
    raise ConfigError(
        f"security.inter.broker.protocol: no listener speaks {protocol}",
        "set inter.broker.listener.name",
    )
