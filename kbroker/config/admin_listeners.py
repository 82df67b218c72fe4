"""admin.listeners: from its text to the addresses that the admin port binds.

`BrokerConfig.admin_listeners` calls this once at start, so that a mistake ends a start with one
line that names the key. Entries are http://host:port or https://host:port; port 0
is a free port, which all entries of a scheme that ask for it share; an empty host means every
address of the machine; the one word `none`, or nothing, means that there is no admin port. Values
are immutable. Nothing here opens a socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kbroker.config.listeners import format_address
from kbroker.errors import ConfigError

ADMIN_LISTENERS: Final = "admin.listeners"
NONE: Final = "none"
ADMIN_PORT_DEFAULT: Final = 9644
# The name in the keys of TLS: listener.name.admin.ssl.keystore.location.
ADMIN: Final = "ADMIN"

_PORT_MAX: Final = 65_535
_PORT_DIGITS_MAX: Final = 5
_SCHEMES: Final = ("http", "https")


class AdminListener(NamedTuple):
    """An address to bind, the host without brackets."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"{_SCHEMES[self.tls]}://{format_address(self.host, self.port)}"


def default_admin_listeners(port: int = ADMIN_PORT_DEFAULT) -> tuple[str, ...]:
    """Both loopback addresses on `port`."""
    return (f"http://127.0.0.1:{port}", f"http://[::1]:{port}")


def parse_admin_listeners(texts: Sequence[str]) -> tuple[AdminListener, ...]:
    """What to bind, in order; raises ConfigError for anything else."""
    if [text.lower() for text in texts] == [NONE]:
        return ()
    return tuple(_parse_entry(text) for text in texts)


def _parse_entry(text: str) -> AdminListener:
    if text.lower() == NONE:
        raise ConfigError(f"{ADMIN_LISTENERS}: none excludes other entries", "remove one")
    # By hand: a regular expression would cost every start a compilation.
    scheme, _, address = text.partition("://")
    host, colon, port = address.removesuffix("/").rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    plain = host.replace(".", "").replace("-", "").replace("_", "")
    named = host.isascii() and (bracketed or not plain or plain.isalnum())
    numbered = port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS_MAX
    if scheme not in _SCHEMES or not colon or not named or not numbered:
        raise ConfigError(
            f"{ADMIN_LISTENERS}: {text!r} is no address",
            "write http://host:port or https://host:port",
        )
    if int(port) > _PORT_MAX:
        raise ConfigError(f"{ADMIN_LISTENERS}: port {port} is too large", "use 0 to 65535")
    return AdminListener(host.strip("[]"), int(port), scheme == "https")
