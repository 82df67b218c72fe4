"""The jobs on a standalone master and two workers, by spark-submit: equal to a run alone.

Landing, maintenance and the report, one after the other in one application on the cluster and, at
the same time and from the same topics, in this process: the tables are equal row for row, and the
reports number for number. Each job is a file that runs as `__main__`, as spark-submit runs it; an
application for each would start two drivers and four executors more. Output and checkpoint are URIs
that only Hadoop's file systems resolve (support/spark_cluster.py), the workers have of our sources
what --py-files ships, and of the connector what --jars ships. In the end the tables are read with
this process's session.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kbroker.metrics import samples
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from perf import results_table
from spark_jobs import connector, maintain, package, report, schema, stream, tables
from spark_jobs.errors import EXIT_ALARM
from tests.spark.conftest import Landing
from tests.support import requirements
from tests.support import spark as spark_jars
from tests.support.source_tree import ROOT
from tests.support.spark_cluster import Cluster, signal_group

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
JOB_TIMEOUT_S = 480.0
COUNT = 300  # samples, five minutes apart, and as many results; of two dates, both over
BEGIN_MS = int(time.time()) * 1000 // DAY_MS * DAY_MS - 3 * DAY_MS + DAY_MS // 2
END_MS = BEGIN_MS + (COUNT + 100) * 5 * MINUTE_MS
SPAN = [
    word
    for name, ms in (("--since", BEGIN_MS), ("--until", END_MS))
    for word in (name, datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat())
]
TOPICS = (samples.TOPIC, results_table.TOPIC)
# Two batches of each topic, so that there is something to merge.
IN_A_BATCH = ("--max-records", "200")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    requirements.java()
    spark_jars.jars()  # or a skip
    with Cluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


# --- what is in the topics ------------------------------------------------------------------------


def sample(number: int) -> bytes:
    """The broker's samples of two partitions and a histogram, five minutes apart."""
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
    """Blocks of two brokers in rounds, so that there is something to compare.

    Fractions are of powers of two: their sums do not depend on the order.
    """
    kind = {"kind": "block", "broker": ("kbroker", "kafka")[number % 2], "round": number // 2,
            "acks": 1, "cell": "p", "study": "compare", "requests": 100, "records": 100,
            "wall_s": 1.0, "broker_cpu_s": 0.125 * (1 + number % 2), "measure": "request",
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
    with PlainBroker({**KEEPS_WHAT_IS_OLD, "auto.create.topics.enable": False}) as broker:
        made = Writer(broker.bootstrap)
        yield made
        made.close()


# --- jobs on the cluster and alone ----------------------------------------------------------------

IN_TURN = """
import itertools, json, runpy, sys, time
from pathlib import Path
from pyspark.sql import SparkSession

SparkSession.stop = lambda session: None  # at the end of a job: the next one has the same session
place = Path(sys.argv[1])
for number in itertools.count():
    asked = place / f"{number}.json"
    while not asked.exists():
        time.sleep(0.05)
    sys.argv = json.loads(asked.read_text())
    if not sys.argv:
        break
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code or 0
    (place / "code").write_text(str(code))
    (place / "code").rename(place / f"{number}.code")
"""


class Application:
    """A driver on the cluster that runs one job after the other; a context manager."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self._place = place / "in-turn"
        self._place.mkdir()
        archive, runner = place / "jobs.zip", self._place / "in_turn.py"
        package.write(archive)
        runner.write_text(IN_TURN)
        self._count = 0
        with (self._place / "said").open("w") as said:
            self._driver = cluster.begin(
                runner, str(self._place), said=said, jars=connector.jars(), py_files=[archive]
            )

    def said(self) -> str:
        return (self._place / "said").read_text(errors="replace")[-5000:]

    def run(self, words: Sequence[str]) -> int:
        """The job's exit status."""
        number, self._count = self._count, self._count + 1
        self._ask(number, words)
        code, give_up_s = self._place / f"{number}.code", time.monotonic() + JOB_TIMEOUT_S
        while not code.exists():
            assert self._driver.poll() is None and time.monotonic() < give_up_s, self.said()
            time.sleep(0.05)
        return int(code.read_text())

    def _ask(self, number: int, words: Sequence[str]) -> None:
        (self._place / "asked").write_text(json.dumps(words))
        (self._place / "asked").rename(self._place / f"{number}.json")

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *failed: object) -> None:
        try:
            if failed[0] is None:
                self._ask(self._count, [])
                assert self._driver.wait(JOB_TIMEOUT_S) == 0, self.said()
        finally:
            signal_group(self._driver.pid, signal.SIGKILL)
            self._driver.wait()


class Jobs:
    """Each job twice at once: there, on the cluster into its URI, and here, into a directory."""

    def __init__(self, cluster: Cluster, it: Application, spark: Any, place: Path) -> None:
        self.tables = {"there": cluster.uri("tables"), "here": str(place / "tables")}
        self._application = it
        self._spark = spark
        self._place = place

    def land(self, *arguments: str) -> None:
        def here(words: list[str]) -> int:
            options = stream.arguments(words)
            stream.land(self._spark, options, stop=threading.Event(), say=print)
            return 0

        self._run("stream", here, arguments)

    def maintain(self) -> None:
        def here(words: list[str]) -> int:
            options = maintain.arguments(words)
            plan = maintain.Plan(options.raw_days, options.dry_run)
            maintain.maintain(self._spark, options.tables, plan, say=print)
            return 0

        self._run("maintain", here, ())

    def report(self, *arguments: str) -> None:
        def here(words: list[str]) -> int:
            now_ms = time.time_ns() // 1_000_000
            return report.make(self._spark, report.arguments(words), now_ms, print)

        self._run("report", here, arguments, may_be=(0, EXIT_ALARM))

    def _run(
        self,
        name: str,
        here: Callable[[list[str]], int],
        arguments: Sequence[str],
        may_be: Sequence[int] = (0,),
    ) -> None:
        """In an argument, {side} becomes there or here."""
        words = {
            side: ["--tables", root, *(one.replace("{side}", side) for one in arguments)]
            for side, root in self.tables.items()
        }
        # From a file by itself: its sources are in the archive.
        job = Path(shutil.copy(ROOT / "spark_jobs" / f"{name}.py", self._place))
        with ThreadPoolExecutor(1) as pool:
            there = pool.submit(self._application.run, [str(job), *words["there"]])
            code = here(words["here"])
            done = there.result()
        assert done in may_be, self._application.said()
        assert code == done


def rows_of(spark: Any, root: str, name: str) -> list[dict[str, Any]]:
    """In one order, without the time at which they landed."""
    frame = tables.read(spark, root, name, repeats=True)
    left_out = {"landed_at"} | ({tables.DATE} if name == "quarantine" else set())
    columns = [column for column in frame.columns if column not in left_out]
    found = [row.asDict(recursive=True) for row in frame.select(*columns).collect()]
    return sorted(found, key=repr)


def assert_same_rows(spark: Any, roots: Mapping[str, str], counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        found, wanted = (rows_of(spark, root, name) for root in roots.values())
        assert len(found) == count, name
        assert found == wanted, name


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


@pytest.fixture
def application(cluster: Cluster, tmp_path: Path) -> Iterator[Application]:
    with Application(cluster, tmp_path) as running:
        yield running


@pytest.mark.usefixtures("sees_shared")
def test_the_cluster_has_the_results_of_one_machine(
    cluster: Cluster, application: Application, writer: Writer, spark: Any, tmp_path: Path
) -> None:
    jobs = Jobs(cluster, application, spark, tmp_path)
    writer.write(0, COUNT)
    jobs.land("--bootstrap-server", writer.bootstrap, "--no-progress", *IN_A_BATCH)
    assert_workers_worked(cluster)
    landed = {"metrics": COUNT, "results": COUNT, "quarantine": 2}
    assert_same_rows(spark, jobs.tables, landed)
    assert any(n > 1 for n in dates(spark, jobs.tables["there"], "metrics").values())

    jobs.maintain()
    hours = len(rows_of(spark, jobs.tables["here"], "hourly"))
    assert hours > 25
    assert_same_rows(spark, jobs.tables, {**landed, "hourly": hours})
    assert set(dates(spark, jobs.tables["there"], "metrics").values()) == {1}

    jobs.report(*SPAN, "--out", str(tmp_path / "{side}.html"))
    there, here = (json.loads((tmp_path / f"{side}.json").read_bytes()) for side in jobs.tables)
    assert {"latency", "history", "hot"} <= {section["key"] for section in here["sections"]}
    for of_its_making in ("made_at_ms", "root"):
        assert there.pop(of_its_making) != here.pop(of_its_making)
    assert there == here

    elsewhere = Landing(spark, writer.bootstrap, tmp_path)
    elsewhere.tables = jobs.tables["there"]
    writer.write(COUNT, COUNT + 100)
    assert not [line for line in elsewhere.run() if "a new one begins" in line]
    assert len(rows_of(spark, elsewhere.tables, "metrics")) == COUNT + 100


def dates(spark: Any, root: str, name: str) -> Counter[str]:
    """How many parts a table has of each date."""
    return Counter(unit.date for unit in tables.ledger(spark, root, name).state().units)


def assert_workers_worked(cluster: Cluster) -> None:
    """Each had an executor, which was given the archive and the connector, and ran tasks."""
    executors = cluster.executors_used()
    assert len({place.parents[2].name for place in executors}) == 2
    for place in executors:
        names = {path.name for path in place.iterdir()}
        assert "jobs.zip" in names and len([n for n in names if n.endswith(".jar")]) == 4
        assert "Running task" in (place / "stderr").read_text(errors="replace")
