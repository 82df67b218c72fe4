"""The network core as a configuration asks for it: bounds, buffers, which APIs are hot, addresses;
and the hot path over it.

Built once, by the broker; what may change while it runs is the broker's to tell it
(`Broker._network_follows`).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker._net import SocketServer
from kbroker.config.key import INT_MAX
from kbroker.config.keys_replication import RACK_AWARE_SELECTOR
from kbroker.config.listeners import SecurityProtocol
from kbroker.engine._hot import HotPath
from kbroker.errors import AddressInUse, UserError
from kbroker.handlers.registry import REGISTRY, Throttle
from kbroker.observe.resources import memory_limit
from kbroker.protocol.versions import FLEXIBLE_SINCE, SERVED, THROTTLE_FIRST_SINCE
from kbroker.replica.throttled_replicas import LEADER_RATE
from kbroker.security.session import ANONYMOUS
from kbroker.server.sasl_listeners import uses_sasl
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.net._listener_transport import ListenerTransport
    from kbroker.replica._topic_table import TopicTable

logger: Final = logging.getLogger("kbroker.server")

# Served in C, in runs.
HOT: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.HEARTBEAT,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
)
# Where C has not all served versions: the last one. Later ones are brokers'.
HOT_UNTIL: Final = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}


CONNECTION_RATE: Final = "max.connection.creation.rate"
VERIFIES: Final = "transaction.partition.verification.enable"

# Of the memory that the process may use, for answers that wait for their sockets.
UNSENT_SHARE: Final = 8


def hot_path(config: BrokerConfig, server: SocketServer, table: TopicTable) -> HotPath:
    hot = HotPath(
        server,
        table,
        session_slots_max=config["max.incremental.fetch.session.cache.slots"],
        session_eviction_ms_min=limits.FETCH_SESSION_EVICTION_MS_MIN,
        fetch_bytes_max=config["fetch.max.bytes"],
        rack_aware=config["replica.selector.class"] == RACK_AWARE_SELECTOR,
        verification_ms=config["request.timeout.ms"],
    )
    hot.verify_transactions(config[VERIFIES])
    return hot


def hot_path_follows(hot: HotPath, config: BrokerConfig) -> None:
    """Settings that may change while it runs."""
    hot.throttle_leader(config[LEADER_RATE])
    hot.verify_transactions(config[VERIFIES])


def socket_server(config: BrokerConfig) -> SocketServer:
    """Not started, and not bound to anything yet."""
    server = SocketServer(
        processors=config["num.network.threads"],
        queued_requests_max=config["queued.max.requests"],
        queued_bytes_max=config["queued.max.request.bytes"],
        request_bytes_max=config["socket.request.max.bytes"],
        idle_ms_max=config["connections.max.idle.ms"],
        connections_max=config["max.connections"],
        connections_per_ip_max=config["max.connections.per.ip"],
        pipelined=config["channel.pipelining.enable"],
        pipelined_requests_max=config["channel.pipelining.max.requests"],
        pipelined_bytes_max=config["channel.pipelining.max.bytes"],
        pipelined_total_bytes_max=config["channel.pipelining.total.bytes"],
        unsent_bytes_max=unsent_bytes_max(config),
        send_buffer_bytes=config["socket.send.buffer.bytes"],
        receive_buffer_bytes=config["socket.receive.buffer.bytes"],
        opening_ms_max=config["kbroker.authentication.timeout.ms"],
        opening_max=config["kbroker.max.unauthenticated.connections"],
        opening_per_ip_max=config["kbroker.max.unauthenticated.connections.per.ip"],
    )
    bound_connections(server, config)
    for key in HOT:
        set_hot(server, key)
    for api_key, version in FLEXIBLE_SINCE.items():
        server.set_flexible_from(api_key, version)
    for api_key, version in THROTTLE_FIRST_SINCE.items():
        server.set_throttle_from(api_key, version)
    for row in REGISTRY.apis:
        if row.throttle is Throttle.EXEMPT:
            server.set_between_brokers(row.key)
    return server


def bound_connections(server: SocketServer, config: BrokerConfig) -> None:
    """Those that are made from now on."""
    server.bound_connections(
        config["max.connections"], config["max.connections.per.ip"],
        config.connections_per_ip_overrides,
    )  # fmt: skip
    rate = config[CONNECTION_RATE]
    server.bound_connection_rate(rate if rate < INT_MAX else -1)


def set_hot(server: SocketServer, key: ApiKey) -> None:
    server.set_hot(key, SERVED[key].min, HOT_UNTIL.get(key, SERVED[key].max))


def is_hot(key: ApiKey, version: int) -> bool:
    return key in HOT and version <= HOT_UNTIL.get(key, SERVED[key].max)


def unsent_bytes_max(config: BrokerConfig) -> int:
    """Of answers that wait in memory, over all connections."""
    bound = config["queued.max.response.bytes"]
    return bound if bound > 0 else memory_limit() // UNSENT_SHARE


def listen(
    server: SocketServer,
    name: str,
    addresses: list[tuple[str, int]],
    backlog: int,
    ipv4_ports: frozenset[int],
    transport: ListenerTransport | None = None,
    *,
    authenticates: bool = False,
    counts: bool = True,
) -> list[tuple[str, int]]:
    """Binds a listener; a second address that this machine does not have (no IPv6) is left out."""
    while True:
        try:
            return server.listen(
                name, addresses, backlog, ipv4_ports, principal=ANONYMOUS, transport=transport,
                authenticates=authenticates, counts=counts,
            )  # fmt: skip
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                places = ", ".join(f"{host}:{port}" for host, port in addresses)
                raise AddressInUse(
                    f"a port of {name} ({places}) is taken by another process",
                    "stop it, or start with --port 0 or another port",
                ) from error
            v4 = [address for address in addresses if ":" not in address[0]]
            absent = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
            if absent and v4 and len(v4) < len(addresses):
                logger.warning("this machine has no IPv6 address for %s", name)
                addresses = v4
                continue
            raise UserError(
                f"cannot listen on {addresses}: {error.strerror}",
                "set listeners to addresses of this machine",
            ) from error


# For a listener with TLS.
TransportOf = Callable[["ListenerSecurity"], "ListenerTransport"]


def listen_all(
    server: SocketServer, config: BrokerConfig, tls: TransportOf
) -> dict[str, list[tuple[str, int]]]:
    """Every listener of the configuration; the addresses that were bound, by its name."""
    listeners = config.listeners
    ipv4_ports = frozenset(
        each.port for each in listeners.listeners if each.host and not each.is_ipv6 and each.port
    )
    bound: dict[str, list[tuple[str, int]]] = {}
    for name in listeners.names:
        addresses = [(each.host, each.port) for each in listeners.listeners if each.name == name]
        backlog = config["socket.listen.backlog.size"]
        plain = listeners.protocol_of(name) == SecurityProtocol.PLAINTEXT.value
        security = None if plain else config.security_of(name)  # which imports more
        transport = tls(security) if security is not None and security.uses_tls else None
        bound[name] = listen(
            server, name, addresses, backlog, ipv4_ports, transport,
            authenticates=uses_sasl(config, name),
            counts=name != listeners.inter_broker_name or len(listeners.names) == 1,
        )  # fmt: skip
    return bound
