"""The command lines of `kbroker perf cluster`: several brokers, measured.

Each starts clusters of its own, with one ZooKeeper for kbroker and one quorum controller for Apache
Kafka, and ends them, whatever happens. Only click is imported before a verb runs.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.metrics import json_record
from perf.results_target import Target, results_options
from perf.studies.options import Seconds

if TYPE_CHECKING:
    from perf.measurement import Measurement
    from perf.results import Results

Function = Callable[..., Any]
BROKERS = ("kbroker", "kafka")


@click.group()
def cluster() -> None:
    """Several brokers: replication, catching up, failover, many partitions."""


def _say(text: str) -> None:
    click.echo(text, err=True)


_COMMON = (
    click.option(
        "--directory", type=click.Path(file_okay=False, path_type=Path), help="for data  [/tmp]"
    ),
    click.option("--json", "json_to", metavar="FILE", help="also as JSON; - for standard output"),
    click.option("--check", is_flag=True, help="exit with 1 unless every measured bar passes"),
    results_options,
)


def common_options(function: Function) -> Function:
    for option in reversed(_COMMON):
        function = option(function)
    return function


def rounds_option(default: int, what: str) -> Function:
    return click.option(
        "--rounds", type=click.IntRange(1, 1000), default=default, show_default=True, help=what
    )


def _partitions(default: int) -> Function:
    return click.option(
        "--partitions", type=click.IntRange(1, 100_000), default=default, show_default=True
    )


def brokers_option(default: str) -> Function:
    def known(context: click.Context, parameter: click.Parameter, given: str) -> tuple[str, ...]:
        names = tuple(given.split(","))
        if set(names) - set(BROKERS) or len(set(names)) != len(names):
            raise click.BadParameter(f"{given}: some of {','.join(BROKERS)}, each once")
        return names

    return click.option(
        "--brokers", default=default, show_default=True, callback=known, help="with commas"
    )


class Run:
    """One verb's measurement: where its data go, and how it ends."""

    study = "cluster"

    def __init__(
        self, directory: Path | None, json_to: str | None, check: bool, target: Target | None
    ) -> None:
        self._directory, self._json_to, self._check = directory, json_to, check
        self._target = target
        self._results: Results | None = None
        self._began_s = 0.0
        self._machine: dict[str, Any] = {}

    @contextmanager
    def measuring(self, brokers: tuple[str, ...]) -> Iterator[Path]:
        """A directory for data while it is measured, on a loopback of its own."""
        from lab.jars import KAFKA, ZOOKEEPER
        from perf import network
        from perf.machine import describe_machine
        from perf.results import Results

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # cut as by Ctrl-C
        self._began_s = time.monotonic()
        self._machine = describe_machine()
        if "kafka" in brokers:
            KAFKA.fetch()  # from the network, which is out of reach afterwards
        if "kbroker" in brokers:
            ZOOKEEPER.fetch()
        self._results = Results(self._target, self.study, _say)  # its sender stays in this network
        self._machine["network"] = network.enter()
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="kbroker-perf-", dir=self._directory, ignore_cleanup_errors=True
        ) as root:
            yield Path(root)

    def end(self, measured: Measurement) -> int:
        """Print, write, publish; the exit status."""
        took_s = time.monotonic() - self._began_s
        click.echo(measured.text(self._machine, took_s), err=self._json_to == "-")
        if self._json_to is not None:
            found = json_record.strict(measured.to_json(self._machine, took_s))
            text = json.dumps(found, indent=1, allow_nan=False)
            if self._json_to == "-":
                click.echo(text)
            else:
                Path(self._json_to).write_text(text + "\n", encoding="utf-8")
                _say(f"written to {self._json_to}")
        if self._results is not None:
            with self._results as results:
                for name, value, unit, dims in measured.figures:
                    results.figure(name, value, unit, **dims)
        return 1 if self._check and not measured.passes else 0


@cluster.command("shared-load")
@brokers_option("kafka,kbroker")
@rounds_option(7, "blocks of each cell; six decide")
@click.option("--cells", help="keys of cells, with commas  [all]")
@click.option("--seconds", type=Seconds(), default=2.0, show_default=True, help="of a block")
@click.option("--warm-requests", type=click.IntRange(1), help="of a JVM  [200,000]")
@common_options
def shared_load(
    brokers: tuple[str, ...],
    rounds: int,
    cells: str | None,
    seconds: float,
    warm_requests: int | None,
    **common: Any,
) -> int:
    """CPU of a leader and its follower for each request, acks=1.

    About ten minutes.
    """
    from perf.cluster import shared_load as work
    from perf.cluster.shared_report import report

    changes: dict[str, Any] = {"brokers": brokers, "rounds": rounds, "seconds": seconds}
    if cells:
        changes["cells"] = tuple(cells.split(","))
        if unknown := set(changes["cells"]) - set(work.BY_KEY):
            raise click.BadParameter(
                f"{', '.join(sorted(unknown))}: not a cell; there are {', '.join(work.BY_KEY)}"
            )
    if warm_requests:
        changes["warm_requests"] = warm_requests
    run = Run(**common)
    with run.measuring(brokers) as root:
        outcome = work.measure(work.SharedPlan(**changes), root, _say)
    return run.end(report(outcome))


@cluster.command("catch-up")
@brokers_option("kafka,kbroker")
@rounds_option(7, "six decide")
@click.option("--gigabytes", type=click.FloatRange(0.001, 100), default=2.0, show_default=True)
@_partitions(4)
@click.option("--rate", type=click.FloatRange(1), default=500.0, show_default=True)
@common_options
def catch_up(
    brokers: tuple[str, ...], rounds: int, gigabytes: float, partitions: int, rate: float,
    **common: Any,
) -> int:  # fmt: skip
    """MB/s of a follower that was away, and the leader's p99 of produce beside it.

    About a minute for each round.
    """
    from perf.cluster import catch_up as work

    plan = work.CatchUpPlan(brokers, rounds, gigabytes, partitions, rate)
    run = Run(**common)
    with run.measuring(brokers) as root:
        found, faults = work.measure(plan, root, _say)
    return run.end(work.report(found, faults, plan))


@cluster.command()
@rounds_option(9, "brokers killed, by turns")
@_partitions(1000)
@common_options
def failover(rounds: int, partitions: int, **common: Any) -> int:
    """Seconds until others lead what a killed broker led, of three kbrokers.

    About half a minute for each round.
    """
    from perf.cluster import failover as work

    run = Run(**common)
    with run.measuring(("kbroker",)) as root:
        found = work.measure(root, _say, rounds=rounds, partitions=partitions)
    return run.end(work.report(found, {"rounds": rounds, "partitions": partitions}))


@cluster.command()
@rounds_option(7, "returns of a broker, with and without; six decide")
@_partitions(100)
@click.option("--rate", type=click.FloatRange(1), default=10_000.0, show_default=True)
@click.option("--seconds", type=Seconds(), default=5.0, show_default=True, help="of load")
@common_options
def rebalance(rounds: int, partitions: int, rate: float, seconds: float, **common: Any) -> int:
    """What auto.leader.rebalance.enable is worth after a broker's return.

    The leaders then, and what the same load costs each of two kbrokers, with it and without. About
    twenty seconds for each round.
    """
    from perf.cluster import rebalance as work

    plan = work.RebalancePlan(rounds, partitions, rate, seconds)
    run = Run(**common)
    with run.measuring(("kbroker",)) as root:
        found = work.measure(plan, root, _say)
    return run.end(work.report(found, plan))


@cluster.command()
@brokers_option("kbroker")
@rounds_option(7, "starts of each kind; six decide")
@_partitions(10_000)
@common_options
def start(brokers: tuple[str, ...], rounds: int, partitions: int, **common: Any) -> int:
    """Seconds from exec until one broker leads many partitions.

    About three minutes for each kind of broker.
    """
    from perf.cluster import start_many as work

    plan = {"brokers": brokers, "rounds": rounds, "partitions": partitions}
    run = Run(**common)
    with run.measuring(brokers) as root:
        found = work.measure(root, _say, brokers=brokers, rounds=rounds, partitions=partitions)
    return run.end(work.report(found, plan))


@cluster.command()
@brokers_option("kbroker")
@rounds_option(7, "windows; six decide")
@click.option("--seconds", type=Seconds(), default=20.0, show_default=True, help="of a window")
@_partitions(1000)
@common_options
def idle(
    brokers: tuple[str, ...], rounds: int, seconds: float, partitions: int, **common: Any
) -> int:
    """CPU and memory of a broker that follows many partitions without traffic.

    About three minutes for each kind of broker.
    """
    from perf.cluster import idle_followers as work

    how = {"brokers": brokers, "rounds": rounds, "seconds": seconds, "partitions": partitions}
    run = Run(**common)
    with run.measuring(brokers) as root:
        found = work.measure(
            root, _say, brokers=brokers, rounds=rounds, seconds=seconds, partitions=partitions
        )
    return run.end(work.report(found, how))
