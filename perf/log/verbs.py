"""The command lines of `kbroker perf log`: what a log costs beside its requests.

Only click is imported before a verb runs.
"""

from __future__ import annotations

from typing import Any

import click

from perf.cluster.verbs import Run, brokers_option, common_options, rounds_option


@click.group()
def log() -> None:
    """What a log costs beside its requests: cleaning."""


class LogRun(Run):
    """As of a cluster."""

    study = "log"


def _say(text: str) -> None:
    click.echo(text, err=True)


@log.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "six decide")
@click.option("--gigabytes", type=click.FloatRange(0.001, 100), default=2.0, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True)
@common_options
def cleaning(
    brokers: tuple[str, ...], rounds: int, gigabytes: float, keys: int, rate: float, **common: Any
) -> int:
    """CPU and memory of a compaction, and the p99 of produce beside it.

    About half a minute for each round.
    """
    from perf.log import cleaning as work

    plan = work.CleaningPlan(brokers, rounds, gigabytes, keys, rate)
    run = LogRun(**common)
    with run.measuring(brokers) as root:
        found = work.measure(plan, root, _say)
    return run.end(work.tell(found, dict(plan.__dict__)))
