"""`kbroker perf ...`: the command line of the measuring harness.

Only click is imported here; numpy, the generator and the rest come with the verb that needs them.
Errors that a person can do something about are one line and exit status 1; a wrong option is 2.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.metrics import json_record
from perf.before_after.verbs import before_after
from perf.cluster.verbs import cluster
from perf.consumer_groups.verbs import consumer_groups
from perf.log.verbs import log
from perf.results_target import Target, results_options
from perf.share_groups.verbs import share_groups
from perf.studies.options import Seconds
from perf.studies.verbs import latency_study, pipelining, show, tune
from perf.transactions.verbs import transactions

if TYPE_CHECKING:
    from perf.brokers import Broker
    from perf.results import Results
    from perf.tool import Summary

Function = Callable[..., Any]
KINDS = ("kbroker", "kafka", "limit")


def main(argv: list[str] | None = None) -> int:
    """Run a verb; the exit status."""
    try:
        status = cli.main(args=argv, prog_name="kbroker perf", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except ModuleNotFoundError as error:
        click.echo(f"error: {error.name} is missing: pip install 'kbroker[perf]'", err=True)
        return 1
    except Exception as error:
        if not _is_expected(error):
            raise
        click.echo(f"error: {error}", err=True)
        return 1


def _is_expected(error: Exception) -> bool:
    from perf._load import LoadError
    from perf.brokers import BrokerError
    from perf.cells import CellError
    from perf.client import ClientError
    from perf.publishing import ResultsError
    from perf.studies.study import StudyError
    from perf.wire import WireError

    ours = LoadError | BrokerError | CellError | ClientError | ResultsError | StudyError
    return isinstance(error, ours | WireError | OSError)


@click.group()
def cli() -> None:
    """Measure a broker: load, latency, limits, comparison."""


def _say(text: str) -> None:
    click.echo(text, err=True)


def _write_json(where: str | None, data: dict[str, Any]) -> None:
    """To a file, or to standard output for "-"."""
    if where is None:
        return
    text = json.dumps(json_record.strict(data), indent=1, allow_nan=False)
    if where == "-":
        click.echo(text)
    else:
        Path(where).write_text(text + "\n")
        _say(f"written to {where}")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _with(*options: Function) -> Function:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_ADDRESS = click.option(
    "--bootstrap-server", "-b", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT"
)
_PID = click.option("--broker-pid", type=int, default=0, help="count this process's CPU")
_JSON = click.option("--json", "as_json", is_flag=True, help="then print the figures as JSON")
_NAME = click.option(
    "--broker-name", default="attached", show_default=True, help="what the results call it"
)
_PATH = click.option(
    "--path",
    type=click.Choice(["plain", "java"]),
    default="plain",
    show_default=True,
    help="java: what the Java client does by default (topic ids, idempotent, sessions)",
)


def _results(target: Target | None, study: str) -> Results:
    """Where a verb puts what it measured; made before measuring begins, left after it."""
    from perf.results import Results

    return Results(target, study, _say)


def _print_summary(summary: Summary, as_json: bool) -> None:
    click.echo(summary.line())
    if as_json:
        click.echo(json.dumps(summary.to_json()))
    else:
        click.echo(summary.detail())


@cli.command()
@_with(_ADDRESS, _PID, _JSON, _PATH, results_options, _NAME)
@click.option("--topic", required=True)
@click.option("--num-records", type=click.IntRange(1), required=True)
@click.option("--record-size", type=click.IntRange(1), default=100, show_default=True)
@click.option("--payload-file", type=click.Path(exists=True, dir_okay=False), help="lines to send")
@click.option("--throughput", type=float, default=-1, help="records per second; -1: no limit")
@click.option("--batch-size", type=click.IntRange(0), default=16384, show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "-1", "all"]), default="1", show_default=True)
@click.option("--compression", default="none", help="none, gzip, snappy, lz4 or zstd")
@click.option("--connections", type=click.IntRange(1), default=1, show_default=True)
@click.option("--in-flight", type=click.IntRange(1), default=5, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1, help="of a topic to be created")
@click.option("--coalesce", is_flag=True, help="requests of one moment leave in one send")
def produce(
    bootstrap_server: str, acks: str, payload_file: str | None, throughput: float, **options: Any
) -> None:
    """Send records and print the usual summary line."""
    from perf import measured, tool

    host, port = _address(bootstrap_server)
    work = tool.Work(
        host,
        port,
        options["topic"],
        options["num_records"],
        record_bytes=options["record_size"],
        batch_bytes=options["batch_size"],
        rate=max(0.0, throughput),
        acks=-1 if acks == "all" else int(acks),
        connections=options["connections"],
        in_flight=options["in_flight"],
        partitions=options["partitions"],
        path=options["path"],
        codec=options["compression"],
        coalesce=options["coalesce"],
        broker_pid=options["broker_pid"],
        values=tool.read_values(payload_file) if payload_file else (),
    )
    with _results(options["target"], "produce") as results:
        summary = tool.produce(work)
        measured.add_summary(results, work, summary, options["broker_name"])
        _print_summary(summary, options["as_json"])


@cli.command()
@_with(_ADDRESS, _PID, _JSON, _PATH, results_options, _NAME)
@click.option("--topic", required=True)
@click.option("--num-records", type=click.IntRange(0), default=0, help="0: all there are")
@click.option("--fetch-bytes", type=click.IntRange(1), default=1 << 20, help="of a partition")
def consume(bootstrap_server: str, **options: Any) -> None:
    """Read a topic from its beginning and print the same line."""
    from perf import measured, tool

    host, port = _address(bootstrap_server)
    work = tool.Work(
        host,
        port,
        options["topic"],
        options["num_records"],
        path=options["path"],
        fetch_bytes=options["fetch_bytes"],
        broker_pid=options["broker_pid"],
    )
    with _results(options["target"], "consume") as results:
        summary = tool.consume(work)
        measured.add_summary(results, work, summary, options["broker_name"])
        _print_summary(summary, options["as_json"])


# Verbs that may start a broker of their own.

_BROKER = click.option(
    "--broker",
    "kind",
    type=click.Choice(KINDS),
    default="kbroker",
    show_default=True,
    help="start one of these for the measurement",
)
_ATTACH = click.option("--bootstrap-server", "-b", metavar="HOST:PORT", help="use this one instead")


def _made(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """A directory that is named is made, rather than found missing when a long run needs it."""
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
    return path


_DIRECTORY = click.option(
    "--directory", type=click.Path(file_okay=False), callback=_made, help="for data"
)


@contextmanager
def _broker(kind: str, address: str | None, pid: int, directory: str | None) -> Iterator[Broker]:
    from perf import brokers

    if address:
        host, port = _address(address)
        attached = brokers.AttachedBroker(host, port, pid)
        attached.start()
        yield attached
        return
    with (
        tempfile.TemporaryDirectory(prefix="kbroker-perf-", dir=directory) as root,
        brokers.KINDS[kind](Path(root) / kind) as own,
    ):
        yield own


@cli.command()
@_with(_BROKER, _ATTACH, _PID, _DIRECTORY, _PATH, _JSON, results_options)
@click.option("--rate", type=float, default=200.0, show_default=True, help="records per second")
@click.option("--record-size", type=click.IntRange(8), default=100, show_default=True)
@click.option("--seconds", type=Seconds(), default=5.0, show_default=True)
def e2e(
    kind: str, bootstrap_server: str | None, broker_pid: int, directory: str | None, **options: Any
) -> None:
    """Time from the intended send to the arrival at a long-polling consumer."""
    from perf.cells import Bench, Cell

    cell = Cell(
        "e2e", "end to end", "e2e", options["record_size"], rate=options["rate"],
        path=options["path"],
    )  # fmt: skip
    with _results(options["target"], "e2e") as results:
        with _broker(kind, bootstrap_server, broker_pid, directory) as broker:
            block = Bench(broker, seconds=options["seconds"]).run(cell)
        results.block(block, cell)
    click.echo(
        f"{block.records} records at {options['rate']:.0f}/s, p50 {block.percentile_us(50):,.0f} "
        f"us, p99 {block.percentile_us(99):,.0f} us, p99.9 {block.percentile_us(99.9):,.0f} us"
    )
    if options["as_json"]:
        click.echo(json.dumps(block.to_json()))


@cli.command()
@_with(_BROKER, _ATTACH, _PID, _DIRECTORY, _JSON, results_options)
@click.option("--connections", type=click.IntRange(1), default=10_000, show_default=True)
def idle(
    kind: str,
    bootstrap_server: str | None,
    broker_pid: int,
    directory: str | None,
    as_json: bool,
    target: Target | None,
    connections: int,
) -> None:
    """What idle connections cost, and whether an active client notices them."""
    from perf import measured
    from perf.cells import Bench
    from perf.idle import measure_idle

    with _results(target, "idle") as results:
        with _broker(kind, bootstrap_server, broker_pid, directory) as broker:
            result = measure_idle(Bench(broker), connections)
        measured.add_idle(results, result)
    held = "no telling what each holds (a JVM: it takes the JDK's jcmd and one of our own)"
    if result.bytes_each is not None:
        held = f"{result.bytes_each:,.0f} B of user space each"
    click.echo(
        f"{result.connections} idle connections: {held}, "
        f"{result.cpu_share:.1%} of a CPU; active client p99 {result.p99_before_us:,.0f} us "
        f"before, {result.p99_beside_us:,.0f} us beside them"
    )
    if as_json:
        click.echo(json.dumps(result.to_json()))


@cli.command()
@_with(_BROKER, _DIRECTORY, _JSON, results_options)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True)
def start(
    kind: str, directory: str | None, as_json: bool, target: Target | None, repeats: int
) -> None:
    """Seconds from exec to the first acknowledged produce."""
    from perf import measured
    from perf.brokers import KINDS as STARTED
    from perf.brokers import KafkaBroker
    from perf.startup import measure_start

    starts = []
    with (
        _results(target, "start") as results,
        tempfile.TemporaryDirectory(prefix="kbroker-perf-", dir=directory) as root,
    ):
        for number in range(repeats):
            where = Path(root) / str(number)
            # Apache Kafka with its own session timeout: a restart after kill -9 waits for it.
            broker = KafkaBroker(where, holdable=False) if kind == "kafka" else STARTED[kind](where)
            starts.append(measure_start(broker, _say))
            measured.add_start(results, starts[-1], number)
    for key, what in (
        ("empty_s", "empty directory"),
        ("again_s", "after a clean stop"),
        ("killed_s", "after kill -9"),
    ):
        values = sorted(getattr(one, key) for one in starts)
        click.echo(
            f"{what}: median {values[len(values) // 2]:.3f} s ({values[0]:.3f} to {values[-1]:.3f})"
        )
    if as_json:
        click.echo(json.dumps([one.to_json() for one in starts]))


@cli.command()
@_with(_DIRECTORY, _JSON, results_options)
@click.option("--brokers", default="kafka,kbroker", show_default=True, help="one after the other")
@click.option("--scale", type=click.FloatRange(0.001, 1), default=1.0, help="of members, groups...")
def groups(
    directory: str | None, as_json: bool, target: Target | None, brokers: str, scale: float
) -> None:
    """Consumer groups: rebalances, many members and groups, a start with 100,000 commits."""
    from perf import measured
    from perf.brokers import KINDS as STARTED
    from perf.brokers import KafkaBroker
    from perf.groups import measure_groups

    found = []
    with (
        _results(target, "groups") as results,
        tempfile.TemporaryDirectory(prefix="kbroker-perf-", dir=directory) as root,
    ):
        for kind in brokers.split(","):
            where = Path(root) / kind
            broker = KafkaBroker(where, holdable=False) if kind == "kafka" else STARTED[kind](where)
            found.append(measure_groups(broker, _say, scale).to_json())
            measured.add_groups(results, found[-1], scale)
    for name in (key for key in found[0] if key != "broker"):
        click.echo(f"{name:>18}" + "".join(f"  {one['broker']} {one[name]:9.3f}" for one in found))
    if as_json:
        click.echo(json.dumps(found))


@cli.command()
@_with(_DIRECTORY, results_options)
@click.option("--serve", type=int, metavar="PORT", help="only serve, until ended")
@click.option("--seconds", type=Seconds(), default=1.0, show_default=True, help="of each cell")
@click.option("--json", "json_to", metavar="FILE", help="also as JSON; - for standard output")
def limit(
    directory: str | None,
    target: Target | None,
    serve: int | None,
    seconds: float,
    json_to: str | None,
) -> None:
    """What this machine allows: every cell on a server that does the work only."""
    if serve is not None:
        from perf.brokers.limit import main as serve_limit

        serve_limit(serve, directory or tempfile.gettempdir())
        return
    changes = {"brokers": ("limit",), "rounds": 1, "seconds": seconds, "extras": False,
               "directory": Path(directory) if directory else None}  # fmt: skip
    with _results(target, "limit") as results:
        _compare(changes, False, json_to, results)


@cli.command()
@_with(_DIRECTORY, results_options)
@click.option("--quick", is_flag=True, help="five minutes, a look that decides nothing")
@click.option(
    "--rounds", type=click.IntRange(1), help="blocks of each cell and broker  [7, quick 3]"
)
@click.option("--seconds", type=Seconds(), help="of a block  [1.6, quick 0.6]")
@click.option("--brokers", help="some of limit,kafka,kbroker  [all]")
@click.option("--cells", help="keys of cells, with commas  [all, quick: half]")
@click.option("--no-extras", is_flag=True, help="without idle, neighbour, start and librdkafka")
@click.option("--json", "json_to", metavar="FILE", help="also as JSON; - for standard output")
@click.option("--check", is_flag=True, help="exit with 1 unless every measured bar passes")
def compare(
    directory: str | None,
    target: Target | None,
    quick: bool,
    rounds: int | None,
    seconds: float | None,
    brokers: str | None,
    cells: str | None,
    no_extras: bool,
    json_to: str | None,
    check: bool,
) -> int:
    """The limit, Apache Kafka and kbroker in alternating blocks, with bars.

    About half an hour. With --quick five minutes: of three rounds no bar has a result.
    """
    from perf.cells import BY_KEY

    changes: dict[str, Any] = {"directory": Path(directory) if directory else None}
    if rounds:
        changes["rounds"] = rounds
    if seconds:
        changes["seconds"] = seconds
    if brokers:
        changes["brokers"] = tuple(brokers.split(","))
        if unknown := set(changes["brokers"]) - set(KINDS):
            raise click.BadParameter(f"{', '.join(sorted(unknown))}: not a broker")
    if cells:
        changes["cells"] = tuple(cells.split(","))
        if unknown := set(changes["cells"]) - set(BY_KEY):
            raise click.BadParameter(
                f"{', '.join(sorted(unknown))}: not a cell; there are {', '.join(BY_KEY)}"
            )
        changes["null_cells"] = tuple(c for c in changes["cells"] if c in ("p-1k-4x5", "f-16k"))
    if no_extras:
        changes["extras"] = False
    with _results(target, "compare") as results:
        return _compare(changes, quick, json_to, results, check)


def _compare(
    changes: dict[str, Any],
    quick: bool,
    json_to: str | None,
    results: Results,
    check: bool = False,
) -> int:
    from perf import bars, measured, report
    from perf.compare import Comparison, Plan

    plan = Plan.quick(**changes) if quick else Plan(**changes)
    outcome = Comparison(plan, _say).run()
    measured.add_outcome(results, outcome)
    click.echo(report.to_text(outcome), err=json_to == "-")
    _write_json(json_to, report.to_json(outcome))
    missed = [bar for bar in bars.bars(outcome) if not bar.fine]
    return 1 if check and (missed or outcome.faults) else 0


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@results_options
def publish(files: tuple[str, ...], target: Target | None) -> None:
    """Send results that a run could not publish and kept in a file."""
    from perf.publishing import send
    from perf.results import read_file

    if target is None:
        raise click.UsageError("--results-bootstrap HOST:PORT says where to")
    for file in files:
        sent = send(target, read_file(Path(file)))
        click.echo(f"{file}: {sent.records} records published to {target.bootstrap}")
        if sent.note:
            _say(sent.note)


# An older build beside this one, the studies, and what is measured of several brokers.

cli.add_command(before_after)
cli.add_command(tune)
cli.add_command(latency_study)
cli.add_command(show)
cli.add_command(cluster)
cli.add_command(consumer_groups)
cli.add_command(share_groups)
cli.add_command(pipelining)
cli.add_command(log)
cli.add_command(transactions)


if __name__ == "__main__":
    sys.exit(main())
