"""What `kbroker doctor` says about listeners: can they be bound, and do clients get back to them.

For every address of the configuration: whether it is free or a broker answers there. For every
broker of a cluster that answers: whether the address that it advertises can be reached from here,
with the line to add where it cannot (NAT, containers, port mappings).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kbroker.cli.connect import login
from kbroker.clock import NS_PER_MS, Clock
from kbroker.errors import KafkaError, UserError
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from kbroker.peer.address import reason

if TYPE_CHECKING:
    from kbroker.config.admin_listeners import AdminListener
    from kbroker.config.listeners import Endpoint, Listener, ListenerSet
    from kbroker.peer.client import Client

ANSWER_TIMEOUT_MS: Final = 2_000


def bindable(listeners: Iterable[Listener], clock: Clock) -> Iterator[Check]:
    for listener in listeners:
        if listener.port == 0:
            yield Check(OK, "listener", f"{listener} takes a free port")
            continue
        trouble = try_to_bind(listener.host, listener.port, ipv6=listener.is_ipv6)
        if trouble == 0:
            yield Check(OK, "listener", f"{listener} is free")
        elif trouble == errno.EADDRINUSE:
            yield _taken(listener, clock)
        else:
            yield Check(FAILING, "listener", f"{listener}: {_words(trouble)}", _fix(trouble))


def try_to_bind(host: str, port: int, *, ipv6: bool) -> int:
    """0, or the errno; -1 for a name that has no address."""
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if ipv6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind((host, port))
        except (socket.gaierror, UnicodeError):
            return -1
        except OSError as error:
            return error.errno or -1
    return 0


def _words(number: int) -> str:
    return os.strerror(number) if number > 0 else "that name is no address"


def _fix(number: int) -> str:
    if number == errno.EACCES:
        return "take a port from 1024 on, or give the process CAP_NET_BIND_SERVICE"
    return "set listeners to an address of this machine; its own names are in advertised.listeners"


def admin_ports(listeners: Iterable[AdminListener]) -> Iterator[Check]:
    """Those with https: free, or what a broker there says of itself."""
    from kbroker.cli.admin_checks import readiness

    for listener in listeners:
        if not listener.tls or listener.port == 0:
            continue
        trouble = try_to_bind(listener.host, listener.port, ipv6=":" in listener.host)
        if trouble == 0:
            yield Check(OK, "admin", f"{listener} is free")
        elif trouble == errno.EADDRINUSE:
            host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.host)
            reached = listener if host is None else listener._replace(host=host)
            yield from readiness(str(reached), ANSWER_TIMEOUT_MS)
        else:
            yield Check(FAILING, "admin", f"{listener}: {_words(trouble)}", _fix(trouble))


def _taken(listener: Listener, clock: Clock) -> Check:
    from kbroker.peer.address import Address
    from kbroker.peer.link import open_link

    host = listener.host or "127.0.0.1"
    if listener.is_wildcard:
        host = "::1" if listener.is_ipv6 else "127.0.0.1"
    if listener.security_protocol.value.endswith("SSL"):
        return _speaks_tls(listener, host)
    try:
        open_link(Address(host, listener.port), "kbroker-doctor", ANSWER_TIMEOUT_MS, clock).close()
    except KafkaError:
        fix = "stop that process, or set listeners to another port"
        return Check(FAILING, "listener", f"{listener} is taken by something else", fix)
    return Check(OK, "listener", f"{listener}: a broker answers there")


def _speaks_tls(listener: Listener, host: str) -> Check:
    # A certificate of ours may be needed for more than the handshake.
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, listener.port), ANSWER_TIMEOUT_MS / 1000) as plain:
            context.wrap_socket(plain).close()
    except OSError:
        fix = "stop that process, or set listeners to another port"
        return Check(FAILING, "listener", f"{listener} is taken by something without TLS", fix)
    return Check(OK, "listener", f"{listener}: something with TLS answers there")


def advertised(listeners: ListenerSet) -> Iterator[Check]:
    for name in listeners.names:
        endpoint = listeners.advertised_for(name)
        if endpoint is None:
            seen = f"{name}: each client gets the address that it connected to"
            yield Check(OK, "advertised", seen)
        else:
            yield resolvable(endpoint)


def resolvable(endpoint: Endpoint) -> Check:
    try:
        socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        seen = f"{endpoint}: {reason(error)}"
        fix = f"advertised.listeners={endpoint.name}://A-NAME-THAT-CLIENTS-RESOLVE:{endpoint.port}"
        return Check(FAILING, "advertised", seen, fix)
    return Check(OK, "advertised", f"{endpoint} resolves")


def round_trips(client: Client) -> Iterator[Check]:
    """Each broker at the address that it tells its clients, as one of them sees it."""
    from kbroker.peer.link import open_link

    ours = login()
    try:
        client.metadata([])
    except (UserError, KafkaError) as error:
        cause = error.cause if isinstance(error, UserError) else error.message
        fix = "kbroker start, or name one with -b host:port"
        yield Check(WARNING, "cluster", f"{cause}; its listeners could not be tried", fix)
        return
    clock = client.cluster.clock
    for node_id, address in sorted(client.cluster.brokers.items()):
        before_ns = clock.monotonic_ns()
        try:
            open_link(address, "kbroker-doctor", ANSWER_TIMEOUT_MS, clock, ours).close()
        except (KafkaError, UserError) as error:
            fix = f"on broker {node_id}: advertised.listeners=NAME://HOST:PORT as clients see it"
            yield Check(FAILING, "round trip", f"broker {node_id}: {error.message}", fix)
            continue
        taken_ms = (clock.monotonic_ns() - before_ns) / NS_PER_MS
        yield Check(OK, "round trip", f"broker {node_id} at {address} in {taken_ms:.1f} ms")


def backlog(wanted: int, kernel_max: int | None) -> Iterator[Check]:
    if kernel_max is None:
        return
    seen = f"socket.listen.backlog.size is {wanted}, net.core.somaxconn {kernel_max}"
    if wanted <= kernel_max:
        yield Check(OK, "backlog", seen)
    else:
        yield Check(WARNING, "backlog", seen, f"sysctl -w net.core.somaxconn={wanted}")
