"""A socket that listens, on one address or on all."""

from __future__ import annotations

import errno
import socket


def listening_socket(host: str, port: int, backlog: int, beside_ipv4: bool) -> socket.socket:
    """An empty host is every address, of IPv4 and of IPv6; `beside_ipv4`: :: is IPv6 alone."""
    if not host:
        try:
            return listening_socket("::", port, backlog, beside_ipv4)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            host = "0.0.0.0"  # a machine without IPv6
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            takes_ipv4 = host == "::" and not beside_ipv4
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not takes_ipv4)
        listener.bind((host, port))
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
