"""`kbroker health --here`: whether the broker of this container can be used, without the others.

It is process 1, whose arguments say which file it was started with; the variables are those of this
process, too. Its admin port is asked if that speaks plain HTTP on an address; else its first
listener has to accept a connection, which needs no certificate and no login.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.cli.start import build_config
from kbroker.cli.start_arguments import StartArguments, parse_plain
from kbroker.config.listeners import format_address
from kbroker.findings.checks import FAILING, OK, Check
from kbroker.peer.address import reason

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

FIRST_PROCESS: Final = Path("/proc/1/cmdline")
_START: Final = "start"
_EVERYWHERE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def config_here() -> BrokerConfig:
    """As the broker was started. ConfigError: it was not, with these settings."""
    try:
        words = FIRST_PROCESS.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        words = []
    arguments = parse_plain(words[words.index(_START) + 1 :]) if _START in words else None
    return build_config(arguments or StartArguments())


def check_here(timeout_ms: int) -> list[Check]:
    config = config_here()
    plain = [each for each in config.admin_listeners if each.port and not each.tls]
    if plain:
        from kbroker.cli.admin_checks import readiness

        return list(readiness(f"http://{_address(plain[0].host, plain[0].port)}", timeout_ms))
    return list(_accepts(config, timeout_ms))


def _accepts(config: BrokerConfig, timeout_ms: int) -> Iterator[Check]:
    listener = config.listeners.listeners[0]
    host = _EVERYWHERE.get(listener.host, listener.host)
    try:
        socket.create_connection((host, listener.port), timeout_ms / 1000).close()
    except (OSError, UnicodeError) as error:
        seen = f"{listener}: {reason(error)}"
        yield Check(FAILING, "listener", seen, "see the broker's log")
        return
    yield Check(OK, "listener", f"{listener} accepts connections")


def _address(host: str, port: int) -> str:
    return format_address(_EVERYWHERE.get(host, host), port)
