"""`kbroker start`: from arguments to a configuration, and from there to a running broker.

`run_start` is on the way from exec to the first acknowledged produce: it imports the configuration
and the broker, nothing else. Click is imported only when `command` is asked for, which the module's
`__getattr__` does, so that the ordinary start never pays for it.

Warnings of the configuration are the broker's to log; this file only builds and hands over.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kbroker.cli.start_arguments import (
    LOG_FORMATS,
    OPTIONS,
    PORT_MAX,
    REPEATED,
    StartArguments,
)
from kbroker.config import BrokerConfig, ConfigSource
from kbroker.config.admin_listeners import ADMIN_LISTENERS, default_admin_listeners
from kbroker.config.listeners import ADVERTISED, format_address
from kbroker.config.sources import CONTAINER
from kbroker.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from kbroker.server.admin_port import AdminSocket, HttpServer, Run
    from kbroker.server.broker import Broker


def run_start(arguments: StartArguments) -> int:
    """Runs a broker until it is stopped; returns the exit status."""
    config = prepare(arguments)
    from kbroker.server.running import run

    ready_file = arguments.ready_file
    return run(
        config,
        data_dir=config.log_dirs[0],
        ready_file=None if ready_file is None else os.path.abspath(ready_file),
        serve_admin=serve_admin,
    )


def prepare(arguments: StartArguments) -> BrokerConfig:
    """The configuration, when the users that are to be there are."""
    config = build_config(arguments)
    if arguments.add_scram:
        from kbroker.cli.first_users import add_first_users

        add_first_users(config, arguments.add_scram)
    return config


def serve_admin(broker: Broker, sockets: Sequence[AdminSocket], run: Run) -> HttpServer:
    """The HTTP side, imported when a client connects to the admin port."""
    from kbroker.admin.console_mount import ConsoleMount
    from kbroker.admin.server import AdminServer
    from kbroker.server.console_port import ConsolePort

    console = ConsoleMount(ConsolePort(broker))
    return AdminServer(broker, sockets, run, broker.admin_context, console)


def build_config(
    arguments: StartArguments, environment: Mapping[str, str] = os.environ
) -> BrokerConfig:
    """The configuration that `arguments`, the environment and the file add up to."""
    overrides = list(arguments.overrides)
    # The short options are overrides with a name of their own, and as strong.
    if arguments.data_dir is not None:
        overrides.append(f"log.dirs={_one_directory(arguments.data_dir)}")
    if arguments.log_format is not None:
        overrides.append(f"logging.format={arguments.log_format}")
    if CONTAINER in environment:
        return _in_a_container(arguments, environment, overrides)
    config = BrokerConfig.load(arguments.file, environment, overrides)
    return config if arguments.port is None else with_port(config, arguments.port)


def _in_a_container(
    arguments: StartArguments, environment: Mapping[str, str], overrides: Sequence[str]
) -> BrokerConfig:
    from kbroker.config import container

    file, variables, defaults = container.settings_of(environment, arguments.file, overrides)
    if arguments.port is not None:  # which the image does not know
        defaults = {each: setting for each, setting in defaults.items() if each != ADVERTISED}
    config = BrokerConfig.load(file, variables, overrides, defaults)
    if arguments.port is not None:
        config = with_port(config, arguments.port)
    advice = container.advice_of(config)
    return config if advice is None else config.with_warning(advice)


def _one_directory(path: str) -> str:
    absolute = os.path.abspath(os.path.expanduser(path))
    if "," in absolute:
        raise UsageError(
            f"--data-dir {path!r} has a comma, which separates directories in log.dirs",
            "choose another name",
        )
    return absolute


def with_port(config: BrokerConfig, port: int) -> BrokerConfig:
    """`config` with its listeners moved to `port`; a free port for Kafka's clients is one for
    the admin side too, unless its address was given."""
    listeners = config.listeners
    if len(listeners.names) > 1:
        raise UsageError(
            f"--port {port} fits one listener name, and there are {', '.join(listeners.names)}",
            "set listeners instead",
        )
    moved = ",".join(
        f"{listener.name}://{format_address(listener.host, port)}"
        for listener in listeners.listeners
    )
    values = {"listeners": moved}
    if port == 0 and config.source(ADMIN_LISTENERS) is ConfigSource.DEFAULT_CONFIG:
        values[ADMIN_LISTENERS] = ",".join(default_admin_listeners(0))
    return config.with_values(values, origin="--port")


def _make_command() -> click.Command:
    import click

    parameters: list[click.Parameter] = [
        click.Argument(["file"], required=False, metavar="[FILE]"),
    ]
    kinds: dict[str, Any] = {
        "port": click.IntRange(0, PORT_MAX),
        "log_format": click.Choice(LOG_FORMATS),
    }
    for option in OPTIONS:
        parameters.append(
            click.Option(
                [option.flag, option.field],
                type=kinds.get(option.field, str),
                multiple=option.field in REPEATED,
                metavar=option.metavar,
                help=option.help,
            )
        )
    return click.Command(
        "start",
        params=parameters,
        callback=lambda **fields: run_start(StartArguments(**fields)),
        help="Run a broker in the foreground until SIGTERM or Ctrl-C.\n\n"
        "FILE is a server.properties file; without one the defaults hold: one node on"
        " 127.0.0.1:9092 and [::1]:9092 with its data in ~/.local/share/kbroker.",
    )


def __getattr__(name: str) -> Any:
    if name == "command":
        return _make_command()
    raise AttributeError(name)
