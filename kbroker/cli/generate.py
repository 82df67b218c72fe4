"""`kbroker generate ...`: files for Prometheus and Grafana, for shells and for `man`.

No command asks a broker, and all but `man-pages` print one file to standard output. The contents
are made in `kbroker/metrics/` and `manual.py`; this file only reads options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import click

from kbroker.cli.output import say, write_json
from kbroker.config.admin_listeners import ADMIN_PORT_DEFAULT
from kbroker.errors import UserError
from kbroker.metrics.alerts import DISK_BYTES_PER_S_MAX, Disk
from kbroker.metrics.dashboard import dashboard
from kbroker.metrics.prometheus import alert_rules, scrape_config

DEFAULT_TARGET: Final = f"127.0.0.1:{ADMIN_PORT_DEFAULT}"
SHELLS: Final = ("bash", "zsh", "fish")


@click.group("generate")
def command() -> None:
    """Write files for Prometheus and Grafana, for shells and for man."""


@command.command("prometheus-config")
@click.option(
    "--target", "targets", metavar="HOST:PORT", multiple=True, default=(DEFAULT_TARGET,),
    show_default=True, help="The admin port of a broker; may be repeated.",
)  # fmt: skip
@click.option("--plain", is_flag=True, help="One job that takes every metric.")
@click.option("--rules", metavar="FILE", help="A file with alert rules to load.")
def prometheus_config(targets: tuple[str, ...], plain: bool, rules: str | None) -> None:
    """What Prometheus is to scrape: network and requests every 15 s, resources every 30 s."""
    for line in scrape_config(targets, plain=plain, rules=rules):
        click.echo(line)


@command.command("alert-rules")
@click.option(
    "--disk", type=click.Choice(list(DISK_BYTES_PER_S_MAX)), default="ssd", show_default=True,
    help="The kind of disk under the logs: the limit of its throughput depends on it.",
)  # fmt: skip
def alerts(disk: str) -> None:
    """Alert rules for Prometheus."""
    for line in alert_rules(cast(Disk, disk)):
        click.echo(line)


@command.command("grafana-dashboard")
def grafana_dashboard() -> None:
    """A dashboard to import into Grafana."""
    write_json(dashboard())


@command.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """A script with which Tab completes commands and options.

    \b
    source <(kbroker generate completion bash)
    """
    from kbroker.cli import manual
    from kbroker.cli.commands import root

    click.echo(manual.completion(root(), shell), nl=False)


@command.command("man-pages")
@click.argument("directory", metavar="DIRECTORY")
def man_pages(directory: str) -> None:
    """A manual page for each command, below DIRECTORY/man1.

    \b
    kbroker generate man-pages ~/.local/share/man
    """
    from kbroker.cli import manual
    from kbroker.cli.commands import root

    place = Path(directory).expanduser() / f"man{manual.SECTION}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in manual.pages(root()):
            (place / f"{name}.{manual.SECTION}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {place}: {error.strerror}", "check it") from None
    say(f"written to {place}")
