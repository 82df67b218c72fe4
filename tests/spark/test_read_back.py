"""What the writers write is what the tables hold: JSON of each table, read as the job reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kbroker.metrics.model import Histogram as Measured
from kbroker.metrics.model import Meter
from kbroker.observe.metrics_sampler import RequestTimes
from lab.ports import free_port
from perf import results
from perf.histogram import Histogram
from perf.results import Results
from spark_jobs.decode import decoder, wall_ms
from spark_jobs.schema import TABLES, TableSchema
from tests.unit.observe.test_metrics_sampler import Log, Rounds
from tests.unit.spark_jobs.test_schema import records

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

NOW_MS = 1_800_000_000_000
EXAMPLES, RECORDS = 2, 20  # the first example is always the simplest
KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


def read(
    spark: Any, table: TableSchema, values: Sequence[bytes], now_ms: int = NOW_MS
) -> list[dict[str, Any]]:
    """The rows of these records, in order; none of them is quarantined."""
    rows = [(None, bytearray(value), table.topic, 0, n, None, 0) for n, value in enumerate(values)]
    decoded = decoder(table.name, lambda: now_ms)(spark.createDataFrame(rows, KAFKA))
    assert decoded.quarantine is not None
    assert [(row.reason, bytes(row.value)) for row in decoded.quarantine.collect()] == []
    found = decoded.good.orderBy("source_offset").collect()
    assert [row.source_offset for row in found] == list(range(len(values)))
    return [row.asDict(recursive=True) for row in found]


def wanted(table: TableSchema, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a row has it: every column, bounds as numbers."""
    row = {name: record.get(name) for name in table.json_columns}
    for name, kind in table.json_columns.items():
        if kind == "buckets" and row[name] is not None:
            row[name] = [{"le": float(one["le"]), "count": one["count"]} for one in row[name] or ()]
    return row


def fields(table: TableSchema, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in table.json_columns}


def test_the_types_of_the_rows_are_the_tables(spark: Any) -> None:
    """What from_json makes of a value, but for null, has the declared types."""
    for table in TABLES.values():
        frame = spark.createDataFrame([], KAFKA)
        good = decoder(table.name)(frame).good.schema
        declared = table.row_type()
        assert {f.name: f.dataType for f in good} == {
            f.name: f.dataType for f in declared if f.name in good.fieldNames()
        }
        assert set(declared.fieldNames()) - set(good.fieldNames()) == {
            "source_topic_id", "landed_at", "late", "event_date",
        }  # fmt: skip


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_any_record_of_a_table_reads_back_equal(spark: Any, table: TableSchema) -> None:
    base = {"schema_version": table.version, "event_time_ms": NOW_MS}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),  # shrinking takes Spark many minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(records(table), min_size=RECORDS, max_size=RECORDS))
    def check(drawn: list[dict[str, Any]]) -> None:
        made = [{**record, **base} for record in drawn]
        rows = read(spark, table, [table.encode(record) for record in made])
        for record, row in zip(made, rows, strict=True):
            assert fields(table, row) == wanted(table, record)

    check()


def test_samples_of_the_broker_read_back_equal(spark: Any) -> None:
    rounds = Rounds()
    rounds.source.logs = [Log("größe", 0, 5, 500), Log('q"\\', 1, 2, 2**40)]
    rounds.source.times = [
        RequestTimes("Produce", "TotalTimeMs", [(0.5, 3), (2.0, 1), (math.inf, 1)])
    ]
    rounds.source.measured = {
        "messages_in": [((), Meter(7, 0.1, 0.1))],
        "network_idle": [((), 0.75)],
        "gc_pause": [(("2",), Measured(((0.001, 1), (math.inf, 4)), 4, 0.5))],
        "gc_collections": [(("2",), 4)],
    }
    rounds.next(seldom=True, dropped=3)
    values = [sample.value for sample in rounds.raw]
    table = TABLES["metrics"]
    rows = read(spark, table, values, now_ms=rounds.clock.wall_ms())
    for value, row in zip(values, rows, strict=True):
        assert fields(table, row) == wanted(table, json.loads(value))
    names = {row["metric_name"] for row in rows}
    assert {"PartitionMessages", "PartitionLog", "RequestTime", "Sampling"} <= names
    (timed,) = (row for row in rows if row["metric_name"] == "RequestTime")
    assert timed["buckets"][-1] == {"le": math.inf, "count": 1}


def test_results_that_perf_publishes_read_back_equal(spark: Any, tmp_path: Path) -> None:
    latency = Histogram.of([1, 999, 70_000, 70_001, 2**50])
    address = f"127.0.0.1:{free_port()}"
    with Results(address, "tune", lambda _: None, directory=tmp_path) as run:
        run.block(latency=latency, broker="kbroker", acks=-1, baseline=False, rate=0.0, cell="é")
        run.verdict("does it?", "no result", decided=False, evidence={"why": "n < 3", "n": 2})
        run.figure("start", 0.25, "s", broker="kafka")
    table = TABLES["results"]
    made = results.read_file(Path(run.failed))
    rows = read(spark, table, [table.encode(record) for record in made], now_ms=wall_ms())
    for record, row in zip(made, rows, strict=True):
        assert fields(table, row) == wanted(table, record)
    assert json.loads(rows[1]["evidence"]) == {"why": "n < 3", "n": 2}
    assert sum(one["count"] for one in rows[0]["buckets"]) == latency.total
