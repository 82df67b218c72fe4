"""How fast the streaming job lands a topic in Parquet, and how long it waits for the broker.

    python -m perf.spark_throughput [--records 10000000] [--brokers kafka,kbroker] [--rounds 1]

For each broker in turn (reversed in every other round): a fresh broker is filled by the raw
generator with records of 1 KB of noise, what was written goes to the disk, and `spark_jobs.stream`
lands the topic as table `plain` with `--trigger available-now` on local[2]. Then the rows in the
table are counted by the files' own footers, and the raw generator reads the topic once, which is
how fast this broker sends it when the reader does nothing with it. Ten million records need
25 GB of disk and about five minutes for each broker.

What is reported of the job, beside seconds, records and bytes a second:
- *waits*: share of the tasks' time in which the connector's consumer waited for bytes. The broker
  can shorten the job by this much at most;
- *in poll*: share inside the connector's fetch: the waiting and the consumer's own work;
- processor time of the broker and of the job, and whether anything else was running.

See perf/spark_probe.py for where the figures come from. The values are noise that differs from
batch to batch, or Parquet's dictionaries would store a few of them once; the table's bytes tell.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from perf import brokers, network, process, results_target, tool
from perf.brokers import Broker, BrokerError
from perf.judge import judge
from perf.measurement import beside_kafka
from perf.process import Guard
from perf.results import Results

TOPIC: Final = "spark-throughput"
RECORDS: Final = 10_000_000
RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 64 << 10
CONNECTIONS: Final = 80  # each repeats a batch of its own: 5 MB before anything comes again
PARTITIONS: Final = 4
JOB_TIMEOUT_S: Final = 3600.0
MEGABYTE: Final = 1e6

Say = Callable[[str], None]


class ThroughputError(Exception):
    """The job failed or landed something else than the topic; one line."""


@dataclass(frozen=True)
class Plan:
    records: int = RECORDS
    kinds: tuple[str, ...] = ("kafka", "kbroker")
    rounds: int = 1
    source: str = "kafka"
    master: str = "local[2]"
    driver_memory: str = "2g"
    records_per_batch: int = 0  # of Spark's batches; 0: the job's own
    directory: Path | None = None


@dataclass(frozen=True)
class Landing:
    """One run of the job against one broker; seconds unless the name says otherwise."""

    broker: str
    round: int
    records: int
    table_bytes: int
    stream_s: float
    session_s: float
    task_s: float
    wait_s: float
    poll_s: float
    fetches: int
    covered: bool  # whether the consumers' figures are of all records
    broker_cpu_s: float
    job_cpu_s: float
    raw_read_s: float
    others_cpu: float
    steal: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.stream_s

    @property
    def megabytes_per_s(self) -> float:
        return self.records * RECORD_BYTES / self.stream_s / MEGABYTE

    @property
    def wait_share(self) -> float:
        return self.wait_s / self.task_s

    @property
    def poll_share(self) -> float:
        return self.poll_s / self.task_s

    @property
    def quiet(self) -> bool:
        return Guard(self.others_cpu, self.steal).quiet


def job_command(plan: Plan, broker: Broker, tables: Path, figures: Path) -> list[str]:
    """The streaming job under the probe."""
    command = [
        sys.executable, "-m", "perf.spark_probe", str(figures), "spark_jobs.stream",
        "--bootstrap-server", broker.address, "--topic", TOPIC, "--tables", tables.as_uri(),
        "--trigger", "available-now", "--source", plan.source, "--master", plan.master,
    ]  # fmt: skip
    if plan.records_per_batch:
        command += ["--max-records", str(plan.records_per_batch)]
    return command


def fill(plan: Plan, broker: Broker, say: Say) -> None:
    """The topic, by the raw generator; then what it wrote goes to the disk."""
    done = tool.produce(
        tool.Work(
            broker.host, broker.port, TOPIC, plan.records, record_bytes=RECORD_BYTES,
            batch_bytes=BATCH_BYTES, connections=CONNECTIONS, partitions=PARTITIONS, distinct=True,
        )
    )  # fmt: skip
    say(f"{broker.name}: {done.records} records written in {done.wall_s:.1f} s")
    began = time.monotonic()
    os.sync()
    say(f"{broker.name}: on the disk {time.monotonic() - began:.1f} s later")


def table_rows(tables: Path) -> tuple[int, int]:
    """Rows and bytes of the Parquet files of table `plain`, by their footers."""
    from pyarrow import parquet

    rows = size = 0
    for path in (tables / "plain" / "data").rglob("*.parquet"):
        rows += parquet.read_metadata(path).num_rows
        size += path.stat().st_size
    return rows, size


def land(plan: Plan, broker: Broker, number: int, place: Path, say: Say) -> Landing:
    """Fill, run the job, check what it wrote, read the topic raw."""
    fill(plan, broker, say)
    with broker.client() as client:
        held = sum(client.offsets(client.topic(TOPIC)))
    tables, figures, log = place / "tables", place / "figures.json", place / "job.log"
    tables.mkdir(parents=True)
    broker_cpu_ns, box = process.cpu_ns(broker.pid), process.box_time()
    with log.open("wb") as to:
        done = subprocess.run(
            job_command(plan, broker, tables, figures),
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=to,
            timeout=JOB_TIMEOUT_S,
            env={**os.environ, "PYSPARK_SUBMIT_ARGS":
                 f"--driver-memory {plan.driver_memory} pyspark-shell"},
        )  # fmt: skip
    broker_cpu_s = (process.cpu_ns(broker.pid) - broker_cpu_ns) / 1e9
    now = process.box_time()
    text = log.read_text(errors="replace")
    if done.returncode or not figures.exists():
        raise ThroughputError(f"the job ended with {done.returncode}: {text[-2000:].strip()}")
    noted: dict[str, Any] = json.loads(figures.read_text())
    rows, size = table_rows(tables)
    if rows != held:
        raise ThroughputError(f"{held} records in the topic, {rows} rows in the table")
    shutil.rmtree(tables)
    raw = tool.consume(tool.Work(broker.host, broker.port, TOPIC, 0))
    span_s = (now.wall_s - box.wall_s) * (os.cpu_count() or 1)
    own_s = broker_cpu_s + noted["cpu_s"]
    return Landing(
        broker=broker.name,
        round=number,
        records=rows,
        table_bytes=size,
        stream_s=noted["stream_s"],
        session_s=noted["session_s"],
        task_s=noted["task_s"],
        wait_s=noted["wait_s"],
        poll_s=noted["poll_s"],
        fetches=noted["fetches"],
        covered=min(noted["records"], noted["poll_records"]) >= rows,
        broker_cpu_s=broker_cpu_s,
        job_cpu_s=noted["cpu_s"],
        raw_read_s=raw.wall_s,
        others_cpu=max(0.0, now.busy_s - box.busy_s - own_s) / span_s,
        steal=(now.steal_s - box.steal_s) / span_s,
    )


def measure(plan: Plan, say: Say, results: Results) -> list[Landing]:
    """All rounds; one broker lives at a time, since a topic and its table are large."""
    found: list[Landing] = []
    with tempfile.TemporaryDirectory(prefix="kbroker-spark-", dir=plan.directory) as root:
        for number in range(plan.rounds):
            order = plan.kinds if number % 2 == 0 else tuple(reversed(plan.kinds))
            for kind in order:
                place = Path(root) / f"{number}-{kind}"
                with brokers.KINDS[kind](place / "broker") as broker:
                    one = land(plan, broker, number, place, say)
                shutil.rmtree(place, ignore_errors=True)
                found.append(one)
                say(line(one))
                publish(one, results)
    return found


def publish(one: Landing, results: Results) -> None:
    common: dict[str, Any] = {"broker": one.broker, "round": one.round, "cell": "spark-land"}
    results.block(
        records=one.records, bytes=one.records * RECORD_BYTES, wall_s=one.stream_s,
        broker_cpu_s=one.broker_cpu_s, own_cpu_s=one.job_cpu_s, others_cpu=one.others_cpu,
        steal=one.steal, quiet=one.quiet, requests=one.fetches, size_bytes=RECORD_BYTES,
        batch_bytes=BATCH_BYTES, partitions=PARTITIONS, codec="none", **common,
    )  # fmt: skip
    results.figure("waits for the broker", one.wait_share, "of task time", **common)
    results.figure("inside poll", one.poll_share, "of task time", **common)
    results.figure("raw read", one.raw_read_s, "s", **common)


def line(one: Landing) -> str:
    remark = "" if one.quiet else f"; something else ran ({one.others_cpu:.0%} of the box)"
    if not one.covered:
        remark += "; some tasks are not in waits and polls"
    return (
        f"{one.broker}: {one.records} records in {one.stream_s:.1f} s, "
        f"{one.records_per_s:,.0f} records/s, {one.megabytes_per_s:.0f} MB/s "
        f"({one.table_bytes / MEGABYTE:,.0f} MB of Parquet); waits {one.wait_share:.1%}, "
        f"in poll {one.poll_share:.1%} of {one.task_s:.0f} s of tasks; CPU: broker "
        f"{one.broker_cpu_s:.1f} s, job {one.job_cpu_s:.0f} s; raw read {one.raw_read_s:.1f} s"
        f"{remark}"
    )


def beside(found: list[Landing]) -> str:
    """kbroker's seconds and waiting against Apache Kafka's, round by round."""
    figures: dict[str, Callable[[Landing], float]] = {
        "seconds": lambda one: one.stream_s,
        "waiting": lambda one: one.wait_s,
        "broker's CPU": lambda one: one.broker_cpu_s,
    }
    parts = []
    for name, figure in figures.items():
        both = beside_kafka(found, figure)
        if not both.rounds:
            return ""
        parts.append(f"{name} {judge(both).words()}")
    return f"kbroker / Kafka: {'; '.join(parts)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perf.spark_throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--brokers", default="kafka,kbroker", help="one after the other")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--source", default="kafka", choices=("kafka", "kbroker"))
    parser.add_argument("--records-per-batch", type=int, default=0, help="of Spark's batches")
    parser.add_argument("--directory", type=Path, help="for data")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--results-bootstrap", metavar="HOST:PORT")
    parser.add_argument("--results-config", metavar="FILE", help="client properties: TLS, SASL")
    chosen = parser.parse_args()
    kinds = tuple(chosen.brokers.split(","))
    if unknown := set(kinds) - {"kafka", "kbroker"}:
        parser.error(f"{', '.join(sorted(unknown))}: not a broker")
    if chosen.records < 1 or chosen.rounds < 1:
        parser.error("--records and --rounds begin at 1")
    plan = Plan(chosen.records, kinds, chosen.rounds, chosen.source,
                records_per_batch=chosen.records_per_batch, directory=chosen.directory)  # fmt: skip
    try:
        target = results_target.made(chosen.results_bootstrap, chosen.results_config)
    except click.UsageError as error:
        parser.error(error.message)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        with Results(target, "spark", say) as results:
            say(f"network: {network.enter()}")
            found = measure(plan, say, results)
    except (ThroughputError, BrokerError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for one in found:
        print(line(one))
    if compared := beside(found):
        print(compared)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
