"""The jobs on a standalone master and two workers, by spark-submit: equal to what they do alone.

Output and checkpoint are URIs that only Hadoop's file systems resolve (support/spark_cluster.py),
the workers have of our sources what --py-files ships, and of the connector what --jars ships.

The job is the streaming one. With KBROKER_CLUSTER_REPORT=1 it is the report, which lands first; its
sections are held against those of a report that was made alone. That takes minutes on two cores, so
it is not part of every run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbroker.metrics import samples
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from perf import results_table
from spark_jobs import connector, package, report, schema, tables
from spark_jobs.errors import EXIT_ALARM
from spark_jobs.report_model import Report
from tests.spark.conftest import Landing
from tests.support import requirements
from tests.support import spark as spark_jars
from tests.support.spark_cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    requirements.java()
    spark_jars.jars()  # or a skip
    with Cluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


# --- the streaming job ---------------------------------------------------------------------------

MINUTE_MS = 60_000
BEGIN_MS = int(time.time()) * 1000 - 40 * 60 * MINUTE_MS  # in the past, over two days
SPAN = [
    word
    for name, ms in (("--since", BEGIN_MS), ("--until", BEGIN_MS + 40 * 60 * MINUTE_MS))
    for word in (name, datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat())
]
TOPICS = (samples.TOPIC, results_table.TOPIC)
SECTIONS = ("hot", "forecast", "latency", "brokers", "studies", "alerts")


def sample(number: int) -> bytes:
    """The broker's samples of two partitions and a histogram, a minute apart, over two days."""
    common = {
        "schema_version": samples.SCHEMA_VERSION, "broker_id": 1, "run_ms": BEGIN_MS,
        "sequence": number, "event_time_ms": BEGIN_MS + number * 5 * MINUTE_MS,
        "interval_ms": 15_000,
    }  # fmt: skip
    if number % 3:
        own = {"metric_name": "PartitionMessages", "topic": "orders", "partition": number % 2,
               "message_count": number, "bytes_in": 100 * number}  # fmt: skip
    else:
        buckets = [{"le": 1.0, "count": number + 1}, {"le": float("inf"), "count": 1}]
        own = {"metric_name": "RequestTime", "request": "Produce", "part": "TotalTimeMs",
               "count": number + 2, "buckets": buckets}  # fmt: skip
    return schema.METRICS.encode({**common, **own})


def result(number: int) -> bytes:
    """Blocks of two brokers in rounds, so that there is something to compare."""
    kind = {"kind": "block", "broker": ("kbroker", "kafka")[number % 2], "round": number // 2,
            "acks": 1, "cell": "p", "study": "compare", "requests": 100, "records": 100,
            "wall_s": 1.0, "broker_cpu_s": 0.1 * (1 + number % 2), "measure": "request",
            "quiet": True, "min_ns": 1, "max_ns": 1_000_000, "sum_ns": 50_000,
            "buckets": [{"le": 1000.0 + 8 * (number % 7), "count": 100}]}  # fmt: skip
    return schema.RESULTS.encode({
        "schema_version": results_table.SCHEMA_VERSION, "run_id": "r", "sequence": number,
        "event_time_ms": BEGIN_MS + number, **kind,
    })  # fmt: skip


class Writer:
    """Records into the two topics, half by half."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._client = Client(bootstrap)
        self._client.create_topics([NewTopic(topic, 2) for topic in TOPICS])

    def write(self, first: int, until: int) -> None:
        numbers = range(first, until)
        self._send(samples.TOPIC, [sample(number) for number in numbers] + [b"no JSON", b"{}"])
        self._send(results_table.TOPIC, [result(number) for number in numbers])

    def _send(self, topic: str, values: list[bytes]) -> None:
        for partition in (0, 1):
            records = [Record(key=b"k", value=value) for value in values[partition::2]]
            Producer(self._client, topic, partition=partition).send(records)

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def writer() -> Iterator[Writer]:
    with PlainBroker({"auto.create.topics.enable": False}) as broker:
        made = Writer(broker.bootstrap)
        yield made
        made.close()


def submit(cluster: Cluster, place: Path, name: str, *arguments: str) -> Any:
    """A job from a file that stands alone: its sources are in the archive."""
    archive = place / "jobs.zip"
    package.write(archive)
    job = Path(shutil.copy(Path(package.__file__).with_name(f"{name}.py"), place))
    return cluster.submit(job, *arguments, jars=connector.jars(), py_files=[archive])


@pytest.fixture
def sees_shared(spark: Any, cluster: Cluster) -> Iterator[None]:
    """This process's session knows the cluster's URIs too: a driver somewhere else."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = cluster.hadoop_settings()
    for name, value in settings.items():
        hadoop.set(name, value)
    yield
    for name in settings:
        hadoop.unset(name)


def rows_of(spark: Any, root: str, name: str) -> list[dict[str, Any]]:
    """By source, without the time at which they landed."""
    order = ("source_topic", "source_partition", "source_offset")
    found = tables.read(spark, root, name, repeats=True).orderBy(*order).drop("landed_at").collect()
    return [row.asDict(recursive=True) for row in found]


@pytest.mark.usefixtures("sees_shared")
def test_what_lands_is_what_lands_alone(
    cluster: Cluster, writer: Writer, spark: Any, tmp_path: Path
) -> None:
    """Then a driver somewhere else goes on from the URIs that the cluster's left."""
    with_report = os.environ.get("KBROKER_CLUSTER_REPORT") == "1"
    alone = Landing(spark, writer.bootstrap, tmp_path)
    shared = Landing(spark, writer.bootstrap, tmp_path)
    shared.tables = cluster.uri("tables")
    writer.write(0, 200)
    more = ["--no-progress"]
    if with_report:
        more = [
            *SPAN,
            "--json",
            str(tmp_path / "there.json"),
            "--out",
            str(tmp_path / "there.html"),
        ]
    done = submit(cluster, tmp_path, "report" if with_report else "stream", "--bootstrap-server",
                  writer.bootstrap, "--tables", shared.tables, *more)  # fmt: skip
    may_be = (0, EXIT_ALARM) if with_report else (0,)
    assert done.returncode in may_be, done.stdout[-2000:] + done.stderr[-3000:]
    assert_workers_worked(cluster)
    alone.run()
    assert_same_rows(spark, shared, alone, {"metrics": 200, "results": 200, "quarantine": 2})
    if with_report:
        assert_same_report(tmp_path / "there.json", report_of(spark, alone, tmp_path))

    writer.write(200, 300)
    alone.run()
    assert not [line for line in shared.run() if "a new one begins" in line]
    assert_same_rows(spark, shared, alone, {"metrics": 300, "results": 300, "quarantine": 4})
    checkpoints = cluster.files / "tables" / "_checkpoints"
    assert list(checkpoints.rglob("offsets/1"))


def assert_workers_worked(cluster: Cluster) -> None:
    """Each had an executor, which was given the archive and the connector, and ran tasks."""
    executors = cluster.executors_used()
    assert len({place.parents[2].name for place in executors}) == 2
    for place in executors:
        names = {path.name for path in place.iterdir()}
        assert "jobs.zip" in names and len([n for n in names if n.endswith(".jar")]) == 4
        assert "Running task" in (place / "stderr").read_text(errors="replace")


def assert_same_rows(spark: Any, one: Landing, other: Landing, counts: dict[str, int]) -> None:
    for name, count in counts.items():
        found, wanted = rows_of(spark, one.tables, name), rows_of(spark, other.tables, name)
        assert len(found) == count, name
        differ = [
            {key: (value, there[key]) for key, value in here.items() if value != there[key]}
            for here, there in zip(found, wanted, strict=True)
        ]
        assert not any(differ), (name, next(filter(None, differ)))


def report_of(spark: Any, landing: Landing, place: Path) -> Path:
    to = place / "alone.json"
    options = report.arguments(["--tables", landing.tables, *SPAN, "--json", str(to),
                                "--out", str(place / "alone.html")])  # fmt: skip
    report.make(spark, options, time.time_ns() // 1_000_000, print)
    return to


def assert_same_report(one: Path, other: Path) -> None:
    """All but the moments and what the pipeline tells of itself."""
    first, second = (Report.from_json(path.read_bytes()) for path in (one, other))
    sections = {part.key: part.tables for part in first.sections}
    assert sections.keys() == {part.key for part in second.sections}
    compared = [part for part in second.sections if part.key in SECTIONS]
    assert len(compared) == len(SECTIONS)
    for part in compared:
        assert sections[part.key] == part.tables, part.key
