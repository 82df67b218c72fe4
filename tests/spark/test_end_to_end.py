"""From a broker and perf to the report: every number is what plain Python makes of the topics.

A broker with its metrics topic takes a known load, perf's results are published to it; the topics
are landed, the tables maintained, the report made. The oracle is librdkafka, which reads the topics
to their ends, and a few lines of Python over the JSON: no Spark, no code of the jobs.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbroker.metrics import samples
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from lab.ports import free_port
from perf import results_table
from perf.histogram import Histogram
from perf.results import Results
from spark_jobs import maintain, report, rows, tables
from spark_jobs.errors import EXIT_ALARM
from spark_jobs.ledger import now_ms
from spark_jobs.report_model import Cell, Report, Table
from tests.spark.conftest import Landing
from tests.support.read_topic import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "orders"
LOAD = {0: 3000, 1: 600, 2: 300}  # records by partition
ROUNDS = 3
DAY_MS = 24 * 3_600_000


@dataclass
class Block:
    """What was published of a measured block."""

    broker: str
    acks: int
    round: int
    latency: Histogram
    cpu_s: float


def write_load(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        client.create_topics([NewTopic(TOPIC, len(LOAD))])
        for partition, count in LOAD.items():
            records = [Record(key=None, value=b"%d" % number) for number in range(count)]
            Producer(client, TOPIC, partition=partition).send(records)


def publish(bootstrap: str) -> list[Block]:
    """Two brokers, two acks, three rounds; seeded, and kbroker clearly the quicker."""
    source = random.Random(5)
    blocks = []
    with Results(bootstrap, "compare", lambda line: None) as results:
        for number in range(ROUNDS):
            for broker, slower in (("kbroker", 1.0), ("kafka", 3.0)):
                for acks in (1, -1):
                    times = [int(source.lognormvariate(12, 0.5) * slower) for _ in range(500)]
                    cpu_s = slower * source.uniform(0.09, 0.11)
                    block = Block(broker, acks, number, Histogram.of(times), cpu_s)
                    results.block(
                        latency=block.latency, broker=broker, acks=acks, round=number,
                        cell=f"produce-{acks}", work="produce", size_bytes=1024, in_flight=5,
                        connections=4, requests=500, records=500, bytes=512_000, wall_s=1.0,
                        broker_cpu_s=cpu_s, quiet=True, others_cpu=0.0, steal=0.0,
                    )  # fmt: skip
                    blocks.append(block)
        results.figure("start", 0.25, "s", broker="kbroker")
    assert not results.failed
    return blocks


def write_what_is_wrong(bootstrap: str) -> None:
    """A record of results once more, as a writer does that missed its answer; and no JSON."""
    first = read_topic(bootstrap, results_table.TOPIC)[0]
    with Client(bootstrap) as client:
        values = [first.value, b"{not JSON"]
        Producer(client, results_table.TOPIC, partition=0).send(
            [Record(key=b"k", value=value) for value in values]
        )


@dataclass
class World:
    """What there was: the topics as they are, and where the report is."""

    landing: Landing
    report: Report
    exit_code: int
    blocks: list[Block]
    samples: list[dict[str, Any]]
    results: int  # records, wrong ones included


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("end-to-end")
    overrides = {"metrics.topic.enable": True, "auto.create.topics.enable": False}
    with PlainBroker(overrides, port=free_port()) as broker:
        write_load(broker.bootstrap)
        blocks = publish(broker.bootstrap)
        write_what_is_wrong(broker.bootstrap)
        broker.stop()  # takes the last samples
        broker.overrides["metrics.topic.enable"] = "false"  # so that the topic stays as it is
        broker.start()
        landing = Landing(spark, broker.bootstrap, place)
        landing.run("--progress", "--max-records", "60")  # a few batches, to be merged
        landing.run()  # the job's own records of the first run
        sampled = read_topic(broker.bootstrap, samples.TOPIC)
        measured = read_topic(broker.bootstrap, results_table.TOPIC)
        tomorrow = maintain.Plan(grace_ms=0), lambda: now_ms() + 2 * DAY_MS
        maintain.maintain(spark, landing.tables, tomorrow[0], say=print, clock_ms=tomorrow[1])
        code, made = make_report(spark, landing, place)
        yield World(landing, made, code, blocks, [json.loads(one.value) for one in sampled],
                    len(measured))  # fmt: skip


def make_report(spark: Any, landing: Landing, place: Path) -> tuple[int, Report]:
    options = report.arguments(
        [
            "--tables",
            landing.tables,
            "--out",
            str(place / "r.html"),
            "--json",
            str(place / "r.json"),
        ]
    )
    code = report.make(spark, options, time.time_ns() // 1_000_000 + 1000, print)
    assert "<html" in (place / "r.html").read_text()
    return code, Report.from_json((place / "r.json").read_bytes())


def table(made: Report, section: str, title: str) -> Table:
    found = [one for part in made.sections if part.key == section for one in part.tables]
    return next(one for one in found if one.title.startswith(title))


def lines(made: Table) -> list[dict[str, Cell]]:
    return [dict(zip(made.columns, row, strict=True)) for row in made.rows]


def test_hot_partitions_match_the_records_sent(world: World) -> None:
    counted: Counter[tuple[str, int]] = Counter()
    for one in world.samples:
        if one["metric_name"] == "PartitionMessages":
            counted[one["topic"], one["partition"]] += one["message_count"]
    assert {p: counted[TOPIC, p] for p in LOAD} == LOAD  # the samples themselves are right
    found = lines(table(world.report, "hot", "The 10 hottest"))
    by_place = {(one["topic"].text, int(one["partition"].text)): one for one in found}
    everything = sum(counted.values())
    for partition, sent in LOAD.items():
        line = by_place[TOPIC, partition]
        assert line["messages"].value == sent
        assert line["share of all"].value == pytest.approx(sent / everything)
    assert [one["messages"].value for one in found] == sorted(counted.values(), reverse=True)[:10]
    for (topic, _), line in by_place.items():
        assert ("pipeline" in line["whose"].text) == (topic != TOPIC), topic


def test_rows_are_those_of_the_topics(world: World) -> None:
    """Less the repetition and what was no JSON, both of which the report counts."""
    found = {
        one["table"].text: one for one in lines(table(world.report, "pipeline", "What landed"))
    }
    assert found["metrics"]["rows"].value == len(world.samples)
    assert found["results"]["rows"].value == len(world.blocks) + 1 == world.results - 2
    assert found["results"]["repetitions taken out"].value == 1
    assert found["metrics"]["repetitions taken out"].value == 0
    assert "1 records could not be read" in " ".join(
        word for part in world.report.sections if part.key == "pipeline" for word in part.words
    )
    progress = lines(table(world.report, "pipeline", "Queries"))
    assert {"metrics-v1", "results-v1"} <= {one["query"].text for one in progress}


def test_a_figure_keeps_its_unit(world: World) -> None:
    """A directory's name must not stand in for a column of the row."""
    (figure,) = [row for row in world.landing.rows("results") if row.kind == "figure"]
    assert (figure.name, figure.value, figure.unit) == ("start", 0.25, "s")


def test_percentiles_are_those_of_all_values_together(world: World) -> None:
    found = lines(table(world.report, "latency", "By acks, size"))
    assert len(found) == 4
    for line in found:
        broker, acks = line["broker"].text, int(line["acks"].text.split()[0])
        merged = Histogram.merge(
            one.latency for one in world.blocks if (one.broker, one.acks) == (broker, acks)
        )
        for name, percent in (
            ("p50, ms", 50),
            ("p95, ms", 95),
            ("p99, ms", 99),
            ("p99.9, ms", 99.9),
        ):
            assert line[name].value == pytest.approx(merged.percentile(percent) / 1e6), (line, name)


def test_kbroker_beside_kafka_is_the_median_of_the_rounds(world: World) -> None:
    found = {one["work"].text: one for one in lines(table(world.report, "brokers", "kbroker /"))}
    for acks in (1, -1):
        line = next(one for name, one in found.items() if f"produce-{acks}" in name.split("(")[0])
        cpu = {(one.broker, one.round): one.cpu_s for one in world.blocks if one.acks == acks}
        ratios = [cpu["kbroker", n] / cpu["kafka", n] for n in range(ROUNDS)]
        column = next(name for name in line if name.startswith("CPU"))
        assert line[column].value == pytest.approx(statistics.median(ratios))


def test_maintenance_merged_parts_and_lost_nothing(world: World) -> None:
    spark, root = world.landing.spark, world.landing.tables
    assert len({unit.unit for unit in tables.ledger(spark, root, "metrics").state().units}) == 1
    landed = world.landing.offsets("metrics")
    assert len(landed) == len(set(landed)) == len(world.samples)


def test_every_number_leads_to_its_rows(world: World) -> None:
    """As `spark_jobs.rows --all` asks: many numbers in one pass over a table."""
    numbers = [cell for _, cell in world.report.cells() if cell.value is not None]
    assert len(numbers) > 100
    assert all(cell.rows is not None for cell in numbers)
    assert rows.audit(world.landing.spark, world.report, world.landing.tables) == []


def test_the_exit_code_says_whether_there_is_an_alarm(world: World) -> None:
    """A disk that is nearly full may be the machine's own; a gap there is none."""
    assert world.exit_code == (EXIT_ALARM if world.report.alarms else 0)
    assert not [line for line in world.report.alarms if "never landed" in line]
