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
    from kbroker.security.client_login import ClientLogin

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "KBROKER_BOOTSTRAP"
COMMAND_CONFIG_VARIABLE: Final = "KBROKER_COMMAND_CONFIG"
_KEPT: Final = "kbroker.command_config"


def bootstrap_option(function: Command) -> Command:
    """Adds `-b/--bootstrap-server`, which arrives as `bootstrap`, and `--command-config`, which
    `connect` finds by itself."""
    function = click.option(
        "--command-config",
        metavar="FILE",
        envvar=COMMAND_CONFIG_VARIABLE,
        show_envvar=True,
        expose_value=False,
        callback=_keep,
        help="How to authenticate, in the form of Apache Kafka's tools.",
    )(function)
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


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[_KEPT] = value


def command_config() -> str | None:
    """The file of --command-config of the command that runs."""
    context = click.get_current_context(silent=True)
    file: str | None = None if context is None else context.meta.get(_KEPT)
    return file


def login() -> ClientLogin | None:
    """With which the command that runs authenticates. ConfigError: its file is wrong."""
    file = command_config()
    if file is None:
        return None
    from kbroker.cli.command_config import login_of_file

    return login_of_file(file)


def connect(bootstrap: str, *, timeout_ms: int = 30_000) -> Client:
    """A client of that cluster; nothing is sent before it is used."""
    from kbroker.peer.client import Client

    return Client(bootstrap, timeout_ms=timeout_ms, login=login())


def refuse(error: ErrorCode, subject: str, message: str | None) -> KafkaError:
    """The error of one item of an answer, so that its line names the item."""
    return KafkaError(error, f"{subject}: {message}" if message else subject)
