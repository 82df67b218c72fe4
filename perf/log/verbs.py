"""The command lines of `kbroker perf log`: what a log costs beside its requests.

Only click is imported before a verb runs.
"""

from __future__ import annotations

from typing import Any

import click

from perf.cluster.verbs import Function, Run, brokers_option, common_options, rounds_option
from perf.studies.options import Seconds


@click.group()
def log() -> None:
    """What a log costs beside its requests: cleaning, recovery, start, fsync, soak."""


class LogRun(Run):
    """As of a cluster."""

    study = "log"


def _measured(common: dict[str, Any], work: Any, plan: Any, said: Any) -> int:
    """Measure and report; `said`: the plan as the report has it. The exit status."""
    run = LogRun(**common)
    with run.measuring(plan.brokers) as root:
        found = work.measure(plan, root, lambda text: click.echo(text, err=True))
    return run.end(work.report(found, said))


def _partitions_option(default: str) -> Function:
    def numbers(_: click.Context, __: click.Parameter, given: str) -> tuple[int, ...]:
        words = given.split(",")
        if not all(word.isascii() and word.isdecimal() and int(word) >= 1 for word in words):
            raise click.BadParameter(f"{given}: numbers from 1 on, with commas")
        return tuple(map(int, words))

    return click.option(
        "--partitions", default=default, show_default=True, callback=numbers, help="with commas"
    )


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
    return _measured(common, work, plan, dict(plan.__dict__))


@log.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "six decide")
@click.option("--gigabytes", type=click.FloatRange(0.001, 100), default=5.0, show_default=True)
@_partitions_option("1,100")
@click.option(
    "--threads", type=click.IntRange(1, 100), default=2, show_default=True,
    help="num.recovery.threads.per.data.dir",
)  # fmt: skip
@common_options
def recovery(
    brokers: tuple[str, ...], rounds: int, gigabytes: float, partitions: tuple[int, ...],
    threads: int, **common: Any,
) -> int:  # fmt: skip
    """Seconds from exec until all records are there again, after kill -9.

    Needs room for twice the gigabytes, on the disk and in the page cache.
    """
    from perf.log import recovery as work

    plan = work.RecoveryPlan(brokers, rounds, gigabytes, partitions, threads)
    return _measured(common, work, plan, plan.to_json())


@log.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "starts of each broker; six decide")
@click.option("--partitions", type=click.IntRange(1, 100_000), default=10_000, show_default=True)
@common_options
def start(brokers: tuple[str, ...], rounds: int, partitions: int, **common: Any) -> int:
    """Seconds from exec until many partitions answer, and memory of each.

    After a clean stop. Without Apache Kafka (--brokers kbroker) it is over much sooner.
    """
    from perf.log import start as work

    plan = work.StartPlan(brokers, rounds, partitions)
    return _measured(common, work, plan, dict(plan.__dict__))


@log.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each broker; six decide")
@click.option("--seconds", type=Seconds(), default=5.0, show_default=True, help="of a block")
@click.option("--connections", type=click.IntRange(1, 1000), default=16, show_default=True)
@_partitions_option("16,1")
@common_options
def fsync(
    brokers: tuple[str, ...], rounds: int, seconds: float, connections: int,
    partitions: tuple[int, ...], **common: Any,
) -> int:  # fmt: skip
    """Requests a second where every batch is on the disk before its answer."""
    from perf.log import fsync as work

    plan = work.FsyncPlan(brokers, rounds, seconds, connections, partitions)
    return _measured(common, work, plan, dict(plan.__dict__))


@log.command()
@brokers_option("kbroker")
@click.option(
    "--minutes",
    type=click.IntRange(6, 100_000),
    default=60,
    show_default=True,
    help="six sixths of it; sixty decide",
)
@click.option("--topics", type=click.IntRange(3, 1000), default=24, show_default=True)
@click.option(
    "--load",
    type=click.FloatRange(0.01, 1),
    default=0.5,
    show_default=True,
    help="share of the highest rate",
)
@click.option(
    "--minute", "window_s", type=Seconds(), default=60.0, show_default=True, help="of each"
)
@common_options
def soak(
    brokers: tuple[str, ...], minutes: int, topics: int, load: float, window_s: float, **common: Any
) -> int:
    """Does anything grow, or become slower: retention, compaction and groups for an hour."""
    from perf.log import soak as work

    plan = work.SoakPlan(brokers, minutes, topics, load, window_s)
    return _measured(common, work, plan, plan)
