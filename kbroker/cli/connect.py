"""What the commands that talk to a broker share: the option `-b`, and the client made from it.

The client's module is imported when a command runs, not when its help is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.peer.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "KBROKER_BOOTSTRAP"


def bootstrap_option(function: Command) -> Command:
    """Adds `-b/--bootstrap-server`, which arrives as `bootstrap`."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT,...",
        envvar=BOOTSTRAP_VARIABLE,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="Brokers to ask first.",
    )(function)


def connect(bootstrap: str, *, timeout_ms: int = 30_000) -> Client:
    """A client of that cluster; nothing is sent before it is used."""
    from kbroker.peer.client import Client

    return Client(bootstrap, timeout_ms=timeout_ms)


def refuse(error: ErrorCode, subject: str, message: str | None) -> KafkaError:
    """The error of one item of an answer, so that its line names the item."""
    return KafkaError(error, f"{subject}: {message}" if message else subject)
