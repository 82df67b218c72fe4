"""The network that a visitor comes from, as far as the bounds of logins and streams go, and whether
it comes by https.

The network is that of the connection. A proxy on this machine connects from a loopback address for
all of its visitors: then that of the last address which it names, since what is before it may be
what the visitor itself has sent. Of IPv6 its first 64 bits: the rest is a visitor's to choose. What
such a proxy says of https counts, too.

Pure. RFC 7239 section 4, RFC 4291 section 2.5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_FORWARDED_FOR: Final = b"x-forwarded-for"
_FORWARDED_PROTO: Final = b"x-forwarded-proto"
_FORWARDED: Final = b"forwarded"
_PREFIX_BITS: Final = 64
_SITE_BITS: Final = 48
_LOOPBACK: Final = "127.0.0.0/8"

Address = IPv4Address | IPv6Address


def network_of(peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """`headers` as they were sent, in their order. Other texts are returned unchanged."""
    found = _address(peer)
    if found is None:
        return peer
    if found.is_loopback:
        found = _named(headers) or found
    if isinstance(found, IPv4Address):
        return str(found)
    return str(IPv6Network((int(found), _PREFIX_BITS), strict=False))


def is_https(scheme: str, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the visitor speaks TLS, with this broker or with a proxy on this machine."""
    found = _address(peer)
    if scheme == "https" or found is None or not found.is_loopback:
        return scheme == "https"
    last = _last_of(headers)
    if _FORWARDED_PROTO in last:
        return last[_FORWARDED_PROTO].strip().lower() == "https"
    return _forwarded(last, "proto").lower() == "https"


def site_of(network: str) -> str:
    """What one visitor may have many networks of: of IPv6 its first 48 bits, and all addresses of
    this machine itself. Of other IPv4, and of other texts, the network."""
    if network.startswith("127."):
        return _LOOPBACK
    try:
        return str(IPv6Network(network).supernet(new_prefix=_SITE_BITS))
    except ValueError:
        return network


def _named(headers: Iterable[tuple[bytes, bytes]]) -> Address | None:
    last = _last_of(headers)
    if _FORWARDED_FOR in last:
        return _address(last[_FORWARDED_FOR])
    return _address(_forwarded(last, "for"))


def _last_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, str]:
    """What the nearest proxy has added to each."""
    last: dict[bytes, str] = {}
    for name, value in headers:
        last[name.lower()] = value.decode("latin-1").rpartition(",")[2]
    return last


def _forwarded(last: Mapping[bytes, str], wanted: str) -> str:
    for pair in last.get(_FORWARDED, "").split(";"):
        key, _, named = pair.strip().partition("=")
        if key.lower() == wanted:
            return named.strip('"')
    return ""


def _address(text: str) -> Address | None:
    """An IPv4 or IPv6 address, maybe with a port."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
