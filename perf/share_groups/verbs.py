"""The command lines of `kbroker perf share-groups`. Until a verb runs only click is imported."""

from __future__ import annotations

from typing import Any

import click

from perf.cluster.verbs import Run, brokers_option, common_options, rounds_option


@click.group("share-groups")
def share_groups() -> None:
    """Share groups (KIP-932): records a second, and acknowledgements."""


class ShareGroupsRun(Run):
    """As of a cluster."""

    study = "share-groups"


@share_groups.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks; six decide")
@click.option(
    "--records",
    type=click.IntRange(1_000, 10_000_000),
    default=50_000,
    show_default=True,
    help="of a block",
)
@common_options
def delivery(brokers: tuple[str, ...], rounds: int, records: int, **common: Any) -> int:
    """Records a second of 1, 10 and 100 members on one partition; p50 and p99 of an
    acknowledgement.

    About 4 minutes.
    """
    from perf.share_groups import delivery as work

    plan = work.DeliveryPlan(brokers, rounds, records)
    run = ShareGroupsRun(**common)
    with run.measuring(plan.brokers) as root:
        found = work.measure(plan, root, lambda text: click.echo(text, err=True))
    return run.end(work.report(found, plan.to_json()))
