"""Addresses as Apache Kafka's ACLs have them: the text that Java prints for an address.

Java prints the groups of an IPv6 address in full (`0:0:0:0:0:0:0:1`), and an IPv4 address that is
mapped into IPv6 as IPv4. ACLs compare this text with the host of an entry, without any range.

Any thread.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from kbroker.limits import SESSIONS_KEPT_MAX

_GROUPS: Final = struct.Struct(">8H")


@lru_cache(SESSIONS_KEPT_MAX)
def java_host(host: str) -> str:
    """`host` is an IPv4 or IPv6 address as text; any other text is returned as it is."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = ":".join(f"{group:x}" for group in _GROUPS.unpack(address.packed))
    return groups if address.scope_id is None else f"{groups}%{address.scope_id}"
