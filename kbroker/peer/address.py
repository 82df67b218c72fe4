"""Where brokers are: `host:port` as people write it, and as a value; why they cannot be reached.

Pure, any thread.
"""

from __future__ import annotations

import os
import socket
from typing import Final, NamedTuple

from kbroker.errors import UserError

DEFAULT_PORT: Final = 9092
_PORT_DIGITS_MAX: Final = 5


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(bootstrap: str) -> list[Address]:
    """`host:port,[::1]:9092,host` as addresses; `UserError` for anything else."""
    addresses: list[Address] = []
    for entry in bootstrap.split(","):
        text = entry.strip()
        if text.startswith("["):
            host, closed, rest = text[1:].partition("]")
            port_text = rest.removeprefix(":") if closed and rest[:1] in ("", ":") else "?"
        elif text.count(":") > 1:
            host, port_text = "", "?"
        else:
            host, _, port_text = text.partition(":")
        port = DEFAULT_PORT if port_text == "" else -1
        if port_text.isascii() and port_text.isdigit() and len(port_text) <= _PORT_DIGITS_MAX:
            port = int(port_text)
        if not host or not 0 < port < 65536:
            raise UserError(
                f"'{text}' is no broker address", "write host:port, for IPv6 [address]:port"
            )
        addresses.append(Address(host, port))
    return addresses


def reason(error: OSError | UnicodeError) -> str:
    """The system's words without its number; what resolves names, and TLS, have numbers of their
    own. UnicodeError: a label of a name is empty or has more than 63 characters."""
    if isinstance(error, UnicodeError):
        return "that is no name of a host"
    if type(error).__module__ == "ssl":
        words = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        return str(words).lower().replace("_", " ")
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)
