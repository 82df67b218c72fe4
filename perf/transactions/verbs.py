"""The command lines of `kbroker perf transactions`. Only click is imported before a verb runs."""

from __future__ import annotations

from pathlib import Path
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


@transactions.command()
@brokers_option("kbroker")
@rounds_option(7, "starts with the ids and without; six decide")
@click.option("--ids", type=click.IntRange(50), default=100_000, show_default=True)
@common_options
def ids(brokers: tuple[str, ...], rounds: int, ids: int, **common: Any) -> int:
    """Memory of an idle transactional id after a load, and the time of the load.

    About 2 minutes for each kind of broker.
    """
    from perf.transactions import idle_ids as work

    return _measured(common, work, work.IdsPlan(brokers, rounds, ids))


@transactions.command()
@brokers_option("kbroker")
@rounds_option(6, "walks of each log; six decide")
@common_options
def sendfile(brokers: tuple[str, ...], rounds: int, **common: Any) -> int:
    """Bytes that a read_committed fetch sends by sendfile, by those of an uncommitted one.

    About half a minute; needs strace.
    """
    from perf.transactions import sendfiles as work

    return _measured(common, work, work.SendfilePlan(brokers, rounds))


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each kind of client; six decide")
@click.option("--seconds", type=Seconds(), default=2.0, show_default=True, help="of a block")
@click.option("--warm-commits", type=click.IntRange(1), default=1_000, show_default=True)
@common_options
def visible(
    brokers: tuple[str, ...], rounds: int, seconds: float, warm_commits: int, **common: Any
) -> int:
    """From a commit until its record can be read, with three brokers of each.

    About 3 minutes.
    """
    from perf.transactions import visible as work

    plan = work.VisiblePlan(brokers, rounds, seconds, warm_commits=warm_commits)
    return _measured(common, work, plan)


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(6, "coordinators killed; six decide")
@click.option("--ids", type=click.IntRange(2), default=10_000, show_default=True)
@click.option(
    "--prepared", type=click.IntRange(1), default=1_000, show_default=True, help="of the ids"
)
@common_options
def failover(brokers: tuple[str, ...], rounds: int, ids: int, prepared: int, **common: Any) -> int:
    """Another coordinator after kill -9: until ids are served, and until outcomes are complete.

    About 4 minutes; a cluster of each kind has four brokers.
    """
    from perf.transactions import failover as work

    return _measured(common, work, work.FailoverPlan(brokers, rounds, ids, prepared))


@transactions.command()
@click.option(
    "--baseline",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="another checkout, built: from before transactions",
)
@rounds_option(6, "starts of each build; six decide")
@common_options
def unused(baseline: Path, rounds: int, **common: Any) -> int:
    """Memory and modules more than an old build's, of a broker without transactions.

    About a minute.
    """
    from perf.brokers.kbroker import built
    from perf.transactions import unused as work

    built(baseline)
    return _measured(common, work, work.UnusedPlan(baseline, rounds))


@transactions.command()
@rounds_option(15, "blocks of each kind; fifteen decide")
@click.option("--seconds", type=Seconds(), default=2.0, show_default=True, help="of a block")
@click.option("--partitions", type=click.IntRange(8, 100_000), default=1_000, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=2_000.0, show_default=True)
@common_options
def hanging(rounds: int, seconds: float, partitions: int, rate: float, **common: Any) -> int:
    """p99 of others beside one transaction that stays open.

    About 2 minutes.
    """
    from perf.transactions import hanging as work

    return _measured(common, work, work.HangingPlan(rounds, seconds, partitions, rate))


@transactions.command()
@brokers_option("kafka,kbroker")
@rounds_option(6, "copies by each client; six decide")
@click.option(
    "--records", type=click.IntRange(8), default=20_000, show_default=True, help="of a copy"
)
@click.option("--records-each", type=click.IntRange(1), default=200, show_default=True,
              help="in a transaction")  # fmt: skip
@common_options
def copy(
    brokers: tuple[str, ...], rounds: int, records: int, records_each: int, **common: Any
) -> int:
    """Records a second that are consumed and produced in transactions: Java's client, librdkafka.

    About 3 minutes.
    """
    from perf.transactions import copying as work

    return _measured(common, work, work.CopyPlan(brokers, rounds, records, records_each))
