"""The command lines of `kbroker perf consumer-groups`. Until a verb runs only click is imported."""

from __future__ import annotations

from typing import Any

import click

from perf.cluster.verbs import Run, brokers_option, common_options, rounds_option
from perf.studies.options import Seconds


@click.group("consumer-groups")
def consumer_groups() -> None:
    """Groups of the consumer protocol (KIP-848): heartbeats, and a second member."""


class ConsumerGroupsRun(Run):
    """As of a cluster."""

    study = "consumer-groups"


def _measured(common: dict[str, Any], work: Any, plan: Any) -> int:
    """Measure and report; the exit status."""
    run = ConsumerGroupsRun(**common)
    with run.measuring(plan.brokers) as root:
        found = work.measure(plan, root, lambda text: click.echo(text, err=True))
    return run.end(work.report(found, plan.to_json()))


@consumer_groups.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks; six decide")
@click.option("--seconds", type=Seconds(), default=3.0, show_default=True, help="of a block")
@click.option("--groups", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option(
    "--members", type=click.IntRange(1, 10_000), default=100, show_default=True, help="of a group"
)
@click.option("--connections", type=click.IntRange(1, 1_000), default=64, show_default=True)
@common_options
def heartbeats(
    brokers: tuple[str, ...], rounds: int, seconds: float, groups: int, members: int,
    connections: int, **common: Any,
) -> int:  # fmt: skip
    """CPU of a heartbeat that says nothing new, of 10,000 members.

    About 5 minutes.
    """
    from perf.consumer_groups import heartbeats as work

    plan = work.HeartbeatPlan(brokers, rounds, seconds, groups, members, connections)
    return _measured(common, work, plan)


@consumer_groups.command()
@brokers_option("kafka,kbroker")
@rounds_option(11, "groups; six decide")
@common_options
def second(brokers: tuple[str, ...], rounds: int, **common: Any) -> int:
    """From the join of a group's second member until its first record.

    About 3 minutes; needs librdkafka (confluent-kafka).
    """
    from perf.consumer_groups import second_member as work

    return _measured(common, work, work.SecondPlan(brokers, rounds))
