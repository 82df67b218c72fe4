"""`make report`: from nothing to a report that one can open, on this machine.

    python -m spark_jobs.first_report                                    # a broker of its own
    python -m spark_jobs.first_report --bootstrap-server HOST:PORT       # one that is running
    python -m spark_jobs.first_report --seconds 16 --no-kafka            # a small one, sooner

Without a broker's address it starts one that writes its samples to a topic, gives it a short load
and measures it while it does; where Apache Kafka's jars are in the cache, it measures a broker of
each kind in alternating blocks, as many as the report needs to say which is faster. Then it lands
the topics in tables and makes the report of them. With an address it only lands and reports: the
report has the records of the topics, and every run adds those that came since.

Each step is a command of its own that is named, so that one can run it by hand; what it said is in
DIRECTORY/log. Everything that was started is stopped, whatever happens: each is a process group of
its own, known by its id. Exit codes: 0 a report was made, with alarms or without; 1 not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kbroker.errors import UserError
from perf.stats import PAIRS_MIN
from spark_jobs import connector
from spark_jobs.errors import EXIT_ALARM
from spark_jobs.html.words import clean
from spark_jobs.report_model import Report
from spark_jobs.session import need_java

DIRECTORY: Final = Path("build/report")
MARKER: Final = ".kbroker-first-report"  # in directories that a run may empty
KAFKA_CELLS: Final = "p-1k-4x5,p-1k-4x5-all,e2e-200"  # throughput by acks, and latency
KAFKA_ROUNDS: Final = PAIRS_MIN + 1  # one may be noisy: fewer than PAIRS_MIN give no verdict
LOAD_ROUNDS: Final = 3
RECORDS: Final = 30_000
RECORDS_PER_S: Final = 20_000
SAMPLED_S: Final = 60.0
SAMPLE_MS: Final = 1_000  # curves of a minute, not single dots
SECONDS_MAX: Final = 3600.0
START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 15.0
STEP_S_MAX: Final = 600.0
FETCH_S_MAX: Final = 900.0
TAIL_LINES: Final = 12
KEYS: Final = ("anna", "bert", "carla", "dan", "eve", "fritz", "gina", "hans")


class Run:
    """One run: its directory, its clock, the processes it started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = directory / "log"
        self.logs.mkdir(parents=True, exist_ok=True)
        for old in self.logs.glob("*.log"):
            old.unlink()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        print(f"[{self.seconds:5.1f} s] {text}", flush=True)

    def step(
        self,
        what: str,
        name: str,
        command: Sequence[str],
        *,
        given: bytes = b"",
        fine: Sequence[int] = (0,),
        seconds_max: float = STEP_S_MAX,
        quiet: bool = False,
    ) -> int:
        """Run one command to its end; UserError with its last lines if it fails."""
        if not quiet:
            self.say(what)
        log = self.logs / f"{name}.log"
        with log.open("ab") as out, _started(command, out, given=bool(given)) as process:
            try:
                process.communicate(given or None, timeout=seconds_max)
            except subprocess.TimeoutExpired:
                raise UserError(
                    f"{what}: not done after {seconds_max:.0f} s", f"see {log}"
                ) from None
        if process.returncode not in fine:
            tail = log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]
            print(*(f"    {line}" for line in tail), sep="\n", file=sys.stderr)
            raise UserError(f"{what}: failed ({process.returncode})", f"all it said is in {log}")
        return int(process.returncode)


@contextmanager
def _started(
    command: Sequence[str], out: IO[bytes], *, given: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; the whole group is gone afterwards."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE if given else subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # as Ctrl-C: it stops what it started itself
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _kbroker(*words: object) -> list[str]:
    return [sys.executable, "-m", "kbroker", *map(str, words)]


def _job(name: str, *words: object) -> list[str]:
    return [sys.executable, "-m", f"spark_jobs.{name}", *map(str, words)]


def emptied(directory: Path) -> Path:
    """The directory, new; UserError where something else than an earlier run filled it."""
    if directory.exists() and any(directory.iterdir()) and not (directory / MARKER).exists():
        raise UserError(f"{directory} holds something else", "name another with --directory")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / MARKER).touch()
    return directory


@contextmanager
def broker(run: Run, place: Path) -> Iterator[tuple[str, int]]:
    """A broker with its samples on, on any free port: its address and its process id."""
    ready = place / "ready.json"
    log = run.logs / "broker.log"
    command = _kbroker(
        "start", "--port", 0, "--data-dir", place / "data", "--ready-file", ready,
        "--override", "metrics.topic.enable=true",
        "--override", f"metrics.topic.interval.ms={SAMPLE_MS}",
    )  # fmt: skip
    run.say("a broker that writes its samples to a topic")
    with log.open("ab") as out, _started(command, out) as process:
        nothing = threading.Event()
        deadline = time.monotonic() + START_S_MAX
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise UserError("the broker did not start", f"see {log}")
            nothing.wait(0.05)
        yield str(json.loads(ready.read_text())["bootstrap"]), process.pid


def load(run: Run, bootstrap: str, pid: int, seconds: float) -> None:
    """Blocks of produce by acks and size, a topic with one busy key, a reader."""
    records = max(1, round(RECORDS * min(1.0, seconds / SAMPLED_S)))
    to = ("--bootstrap-server", bootstrap)
    measured = (*to, "--broker-pid", pid, "--broker-name", "kbroker",
                "--results-bootstrap", bootstrap)  # fmt: skip
    run.say(f"load: produce by acks and size, {LOAD_ROUNDS} times; records with keys; a reader")
    for round_number in range(LOAD_ROUNDS):
        kinds = [(acks, size) for size in (100, 1024) for acks in (1, -1)]
        for acks, size in kinds if round_number % 2 == 0 else reversed(kinds):
            command = _kbroker(
                "perf", "produce", *measured, "--topic", f"load-{size}", "--partitions", 3,
                "--connections", 3, "--num-records", records, "--record-size", size,
                "--throughput", RECORDS_PER_S, f"--acks={acks}",
            )  # fmt: skip
            run.step(f"produce, acks={acks}", "load", command, quiet=True)
    command = _kbroker("topic", "create", "orders", "--partitions", 6, *to)
    run.step("topic", "load", command, quiet=True)
    command = _kbroker("produce", "orders", *to, "-K", ":")
    run.step("orders", "load", command, given=orders(), quiet=True)
    command = _kbroker("perf", "consume", *measured, "--topic", "load-1024")
    run.step("consume", "load", command, quiet=True)


def orders(count: int = 20_000) -> bytes:
    """Records with keys, half of them of one: a partition of its topic is hot."""
    lines = (f"{KEYS[0] if n % 2 else KEYS[n // 2 % len(KEYS)]}:order {n}" for n in range(count))
    return ("\n".join(lines) + "\n").encode()


def beside_kafka(run: Run, bootstrap: str) -> None:
    """Apache Kafka and kbroker in alternating blocks, where Kafka is on this machine already."""
    cache = os.environ.get("KBROKER_CACHE") or Path.home() / ".cache" / "kbroker"
    if not any(Path(cache).glob("kafka-*/libs/kafka_*.jar")):
        run.say("without Apache Kafka beside: its jars are not here (`make setup` brings them)")
        return
    command = _kbroker(
        "perf", "compare", "--brokers", "kafka,kbroker", "--cells", KAFKA_CELLS,
        "--rounds", KAFKA_ROUNDS, "--seconds", 0.5, "--no-extras", "--results-bootstrap", bootstrap,
    )  # fmt: skip
    run.step("Apache Kafka and kbroker in alternating blocks, two minutes", "compare", command)


def source(run: Run) -> str:
    """Spark's Kafka connector if it is here or can be brought, otherwise our own source."""
    if not connector.find():
        if shutil.which("mvn") is None:
            run.say("no jars of Spark's Kafka connector and no Maven: our own source reads instead")
            return "kbroker"
        try:
            run.step("fetching Spark's Kafka connector", "connector", _job("connector"),
                     seconds_max=FETCH_S_MAX)  # fmt: skip
        except UserError as error:
            run.say(f"{error.cause}: our own source reads instead")
            return "kbroker"
    return "kafka"


def report(run: Run, bootstrap: str, tables: Path, how: str, *more: str) -> int:
    """Land what the topics hold and report it: 0, or EXIT_ALARM if the report has alarms."""
    page, data = run.directory / "report.html", run.directory / "report.json"
    command = _job(
        "report", "--bootstrap-server", bootstrap, "--source", how, "--tables", tables.absolute(),
        "--out", page, "--json", data, *more,
    )  # fmt: skip
    status = run.step("Spark: topics to tables, tables to a report", "report", command,
                      fine=(0, EXIT_ALARM))  # fmt: skip
    for text in Report.from_json(data.read_bytes()).alarms:
        run.say(f"alarm: {clean(text)}")
    run.say(f"done: {page.absolute()}")
    python = os.path.relpath(sys.executable)
    run.say(f"its numbers: {data}; the rows of one: {python} -m spark_jobs.rows {data} ADDRESS")
    return status


def first_report(
    run: Run, bootstrap: str | None, *, seconds: float = SAMPLED_S, kafka: bool = True
) -> None:
    """See the module."""
    need_java()
    how = source(run)
    if bootstrap is not None:
        report(run, bootstrap, run.directory / "tables", how)
        return
    place = emptied(run.directory / "own")
    with broker(run, place) as (address, pid):
        began = run.seconds
        load(run, address, pid, seconds)
        if kafka:
            beside_kafka(run, address)
        left = seconds - (run.seconds - began)
        if left > 0:
            run.say(f"{left:.0f} s more, for the broker's samples of every second")
            threading.Event().wait(left)
        # Not the day that is the default: what there is would be one point of each plot.
        minutes = math.ceil(run.seconds / 60) + 1
        report(run, address, place / "tables", how, "--since", f"{minutes}m")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"seconds from 1 to {SECONDS_MAX:g}")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        "python -m spark_jobs.first_report", description="A report of this machine, from nothing."
    )
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="a running broker's")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help=f"default: {DIRECTORY}")
    parser.add_argument("--seconds", type=_seconds, default=SAMPLED_S, metavar="S",
                        help="load and sample the broker for so long; less makes the load smaller"
                        f" (default: {SAMPLED_S:g})")  # fmt: skip
    parser.add_argument("--no-kafka", dest="kafka", action="store_false",
                        help="without Apache Kafka, which takes two minutes")  # fmt: skip
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        first_report(Run(options.directory), options.bootstrap_server or None,
                     seconds=options.seconds, kafka=options.kafka)  # fmt: skip
    except (UserError, OSError) as error:
        text = error.message if isinstance(error, UserError) else str(error)
        print(f"error: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
