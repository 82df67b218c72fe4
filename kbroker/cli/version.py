"""`kbroker version`, and the version itself for other commands.

The number is in `kbroker` and in pyproject.toml; a test compares the two. Reading it from
installed metadata would fail in a source tree and cost more than the rest of the command.
"""

from __future__ import annotations

import platform

import click

from kbroker import __version__
from kbroker.cli.output import output_option, write_json

VERSION = __version__
PROTOCOL = "Apache Kafka 4.3"


@click.command("version")
@output_option
def command(output: str) -> None:
    """Print the version."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    if output == "json":
        write_json({"version": VERSION, "protocol": PROTOCOL, "python": python})
    else:
        click.echo(f"kbroker {VERSION} ({PROTOCOL} protocol, {python})")
