"""Which `Host` a request on the admin port may name, and whether it comes from this machine.

A web page that a person opens on this machine can have its own name resolve to a loopback address
(DNS rebinding): the browser then takes the admin port for the page's own server and lets the page
read what it answers. Such a request names the page's host. So where a connection came to a loopback
address, the request must name an address, `localhost` or this machine; a proxy here sends
`Host: localhost`. On other addresses names are the operator's: a scraper may use any.

Some pages are for clients of this machine only: of connections that came to a loopback address. A
reverse proxy on the machine connects there, too, for clients of anywhere. It names them in fields
of the request's head, so a request that has such a field does not come from this machine. nginx
adds none unless it is configured to, but then speaks HTTP/1.0, which browsers and tools do not:
such a request does not come from this machine either. A proxy of HTTP/1.1 that adds no field is not
noticed.

Pure. RFC 9110 sections 7.2 and 7.6.3, RFC 7239 section 4.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from functools import cache
from typing import Final

# As proxies write them, in lower case; also each name that begins with x-forwarded-.
_OF_PROXIES: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))
_FORWARDED: Final = b"x-forwarded-"
_OLD_VERSIONS: Final = ("", "0.9", "1.0")


def is_allowed(local_address: str, host: str | None) -> bool:
    """`local_address`: where the connection came to; `host`: the header, None if there is none,
    as before HTTP/1.1."""
    if host is None or not is_loopback(local_address):
        return True
    name = _without_port(host).lower().rstrip(".")
    return (
        _is_address(name) or name in ("", "localhost", *_own_names()) or name.endswith(".localhost")
    )


def is_from_here(local_address: str, http_version: str, header_names: Iterable[bytes]) -> bool:
    """Whether a client of this machine asks, as far as the request says so; `header_names` in
    lower case."""
    return (
        is_loopback(local_address)
        and http_version not in _OLD_VERSIONS
        and not any(name in _OF_PROXIES or name.startswith(_FORWARDED) for name in header_names)
    )


def _without_port(host: str) -> str:
    name, bracket, rest = host.removeprefix("[").rpartition("]")
    if bracket:
        return name if rest.partition(":")[0] == "" else host
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


@cache
def _own_names() -> tuple[str, ...]:
    return (socket.gethostname().lower(),)
