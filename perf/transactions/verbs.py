"""The command lines of `kbroker perf transactions`. Only click is imported before a verb runs."""

from __future__ import annotations

from typing import Any

import click

from perf.cluster.verbs import Run, brokers_option, common_options, rounds_option
from perf.studies.options import Seconds


@click.group()
def transactions() -> None:
    """Transactions: small ones, large batches, reading what is committed."""


class TransactionsRun(Run):
    """As of a cluster."""

    study = "transactions"


def _measured(common: dict[str, Any], work: Any, plan: Any) -> int:
    """Measure and report; the exit status."""
    run = TransactionsRun(**common)
    with run.measuring(plan.brokers) as root:
        found = work.measure(plan, root, lambda text: click.echo(text, err=True))
    return run.end(work.report(found, plan.to_json()))


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each cell; six decide")
@click.option("--seconds", type=Seconds(), default=3.0, show_default=True, help="of a block")
@click.option(
    "--producers", type=click.IntRange(0, 1000), default=100, show_default=True, help="0: one alone"
)
@click.option("--warm-commits", type=click.IntRange(1), default=1_000, show_default=True)
@common_options
def commits(
    brokers: tuple[str, ...], rounds: int, seconds: float, producers: int, warm_commits: int,
    **common: Any,
) -> int:  # fmt: skip
    """Commits a second: of 1, 10 and 100 records, and of many producers.

    About 10 minutes.
    """
    from perf.transactions import commits as work

    plan = work.CommitPlan(brokers, rounds, seconds, producers=producers, warm_commits=warm_commits)
    return _measured(common, work, plan)


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each kind; six decide")
@click.option("--seconds", type=Seconds(), default=3.0, show_default=True, help="of a block")
@common_options
def batches(brokers: tuple[str, ...], rounds: int, seconds: float, **common: Any) -> int:
    """Batches of 16 KB with a commit each 100 ms, and without transactions.

    About 4 minutes.
    """
    from perf.transactions import pacing as work

    return _measured(common, work, work.PacingPlan(brokers, rounds, seconds))


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each cell; six decide")
@click.option("--seconds", type=Seconds(), default=1.6, show_default=True, help="of a block")
@click.option(
    "--megabytes", type=click.IntRange(1, 10_000), default=64, show_default=True, help="of a log"
)
@common_options
def read(
    brokers: tuple[str, ...], rounds: int, seconds: float, megabytes: int, **common: Any
) -> int:
    """CPU of a read_committed fetch with none, 1 % and half aborted, by that of an uncommitted one.

    About 8 minutes.
    """
    from perf.transactions import reading as work

    plan = work.ReadingPlan(brokers, rounds, seconds, log_bytes=megabytes << 20)
    return _measured(common, work, plan)
