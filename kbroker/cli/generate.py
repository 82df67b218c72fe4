"""`kbroker generate ...`: files for Prometheus and Grafana, from the catalogue of metrics.

Each command prints one file to standard output and asks no broker. Their contents are made in
`kbroker/metrics/`; this file only reads options.
"""

from __future__ import annotations

from typing import Final, cast

import click

from kbroker.cli.output import write_json
from kbroker.config.admin_listeners import ADMIN_PORT_DEFAULT
from kbroker.metrics.alerts import DISK_BYTES_PER_S_MAX, Disk
from kbroker.metrics.dashboard import dashboard
from kbroker.metrics.prometheus import alert_rules, scrape_config

DEFAULT_TARGET: Final = f"127.0.0.1:{ADMIN_PORT_DEFAULT}"


@click.group("generate")
def command() -> None:
    """Write files for Prometheus and Grafana."""


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
