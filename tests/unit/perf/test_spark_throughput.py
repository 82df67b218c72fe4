"""What the throughput command makes of the connector's lines and of two brokers' runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf import spark_probe, spark_throughput
from perf.spark_throughput import Landing, Plan

LOG = """
26/11/22 01:55:27 INFO KafkaDataConsumer: From Kafka topicPartition=bench-3 groupId=g read 48909 \
records through 145 polls (polled out 48514 records), taking 741.5 ms, during time span of 1 ms
[Stage 4:====>   (3 + 1) / 4]
26/11/22 01:55:28 INFO KafkaDataConsumer: From Kafka topicPartition=bench-2 groupId=g read 18 \
records through 0 polls (polled out 0 records), taking 2500000 nanos, during time span of 1 nanos
"""


def landing(broker: str, number: int = 0, **changes: object) -> Landing:
    found = {
        "records": 1000, "table_bytes": 1_100_000, "stream_s": 2.0, "session_s": 4.0,
        "task_s": 4.0, "wait_s": 1.0, "poll_s": 2.0, "fetches": 10, "covered": True,
        "broker_cpu_s": 0.5, "job_cpu_s": 3.0, "raw_read_s": 0.1, "others_cpu": 0.0, "steal": 0.0,
    }  # fmt: skip
    return Landing(broker=broker, round=number, **{**found, **changes})  # type: ignore[arg-type]


def test_lines_of_all_tasks_are_summed() -> None:
    found = spark_probe.polls(LOG)
    assert found == spark_probe.Polls(48927, 145, pytest.approx(0.744))


def test_shares_are_of_task_time() -> None:
    one = landing("kbroker")
    assert (one.wait_share, one.poll_share) == (0.25, 0.5)
    assert one.records_per_s == 500
    assert one.megabytes_per_s == pytest.approx(0.512)


def test_a_line_names_the_reasons_to_distrust_it() -> None:
    assert "something else" not in spark_throughput.line(landing("kafka"))
    assert "something else ran (50%" in spark_throughput.line(landing("kafka", others_cpu=0.5))
    assert "not in waits" in spark_throughput.line(landing("kafka", covered=False))


def test_beside_pairs_rounds_and_gives_no_verdict_on_few() -> None:
    found = [landing("kafka", stream_s=4.0), landing("kbroker", stream_s=2.0)]
    assert "seconds no result: 0.50 times" in spark_throughput.beside(found)
    assert "1 of 6 rounds needed" in spark_throughput.beside(found)
    six = [landing("kafka", n, stream_s=4.0) for n in range(6)]
    six += [landing("kbroker", n, stream_s=2.0) for n in range(6)]
    assert "seconds 0.50 times (0.50 to 0.50, n=6)" in spark_throughput.beside(six)
    assert spark_throughput.beside([landing("kbroker")]) == ""


def test_rows_are_those_of_the_footers(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    assert spark_throughput.table_rows(tmp_path) == (0, 0)
    for number, rows in enumerate((3, 4)):
        place = tmp_path / "plain" / "data" / f"unit={number}" / "event_date=2026-01-01"
        place.mkdir(parents=True)
        parquet.write_table(pyarrow.table({"value": [b"x"] * rows}), place / "part.parquet")
    rows, size = spark_throughput.table_rows(tmp_path)
    assert rows == 7
    assert size == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))


def test_the_raw_generator_fills_with_batches_that_differ(tmp_path: Path) -> None:
    from perf.brokers import KINDS

    with KINDS["kbroker"](tmp_path / "broker") as broker:
        spark_throughput.fill(Plan(records=2_000), broker, lambda text: None)
        with broker.client() as client:
            topic = client.topic(spark_throughput.TOPIC)
            assert topic.partitions == spark_throughput.PARTITIONS
            ends = client.offsets(topic)
        assert sum(ends) >= 2_000 and min(ends) > 0
        logs = (tmp_path / "broker").rglob(f"{spark_throughput.TOPIC}-*/*.log")
        data = b"".join(path.read_bytes() for path in logs)
    # The first 16 bytes of a value are noise: were all batches one, 63 values would come again.
    from perf import batch

    first = {
        batch.payload(spark_throughput.RECORD_BYTES, seed=7 + number)[:16] for number in range(20)
    }
    assert len(first) == 20 and sum(value in data for value in first) >= 2
