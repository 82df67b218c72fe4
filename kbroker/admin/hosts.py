"""Which `Host` a request on the admin port may name.

A web page that a person opens on this machine can have its own name resolve to a loopback address
(DNS rebinding): the browser then takes the admin port for the page's own server and lets the page
read what it answers. Such a request names the page's host. So where a connection came to a loopback
address, the request must name an address, `localhost` or this machine; a proxy here sends
`Host: localhost`. On other addresses names are the operator's: a scraper may use any.

Pure. RFC 9110 section 7.2.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import cache


def is_allowed(local_address: str, host: str | None) -> bool:
    """`local_address`: where the connection came to; `host`: the header, None if there is none,
    as before HTTP/1.1."""
    if host is None or not is_loopback(local_address):
        return True
    name = _without_port(host).lower().rstrip(".")
    return (
        _is_address(name) or name in ("", "localhost", *_own_names()) or name.endswith(".localhost")
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
