"""What is sampled of failures, pauses, sizes and followers, and where the page shows it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.sections import inside
from spark_jobs.sections.silence import Listened
from tests.spark import landed
from tests.spark.landed import HOUR_MS, NOON_MS, Row, sample

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

STEP_MS = 30_000


def of_a_moment(broker: int, at: int, n: int) -> list[Row]:
    """The second broker refuses one partition of ten, and follows."""
    failed = 10 if broker == 2 else 0
    rows = [
        sample("BrokerTraffic", at, broker, produce_requests=100, failed_produce_requests=failed,
               fetch_requests=50, failed_fetch_requests=0),
        sample("Replicas", at, broker, replica_fetcher_bytes=1_500_000 * (broker - 1)),
        sample("GilWait", at, broker,
               waits_s=[{"le": 0.001, "count": 98}, {"le": 0.2, "count": 2}]),
        sample("PartitionLog", at, broker, topic="orders", partition=broker, directory="/d",
               size_bytes=(n + 1) * broker * 1_000_000, log_start_offset=5, log_end_offset=n + 10),
    ]  # fmt: skip
    for generation, pause in (("0", 0.001), ("2", 0.05)):
        rows.append({**sample("GarbageCollection", at, broker, generation=generation,
                              collections=3, pauses_s=[{"le": pause, "count": 3}]),
                     "interval_ms": STEP_MS})  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def found(spark: Any) -> Any:
    rows = [row for broker in (1, 2) for n in range(4)
            for row in of_a_moment(broker, NOON_MS + n * STEP_MS, n)]  # fmt: skip
    return landed.inputs(spark, metrics=rows, since_ms=NOON_MS, until_ms=NOON_MS + HOUR_MS)


def test_each_figure_and_its_rows(found: Any) -> None:
    section = inside.section(found, Listened(found.until_ms, 0, NOON_MS))
    failed, held, largest = section.tables
    assert section.words[0].startswith("40 of 1,200 partitions")
    by_broker = {row[0].text: dict(zip(failed.columns, row, strict=True)) for row in failed.rows}
    assert by_broker["1"]["produce, failed"].value == 0
    assert by_broker["2"]["of all produced"].value == pytest.approx(0.1)
    assert by_broker["2"]["of all produced"].verdict == "bad"
    assert by_broker["2"]["fetched from leaders"].value == 6_000_000
    assert by_broker["2"]["a second"].value == pytest.approx(100_000)  # samples of 15 s
    lines = {(row[0].text, row[1].text): [cell.value for cell in row[2:]] for row in held.rows}
    assert lines["garbage collections, generation 2", "1"] == [12, 50, 50, 50]
    assert lines["waits for the interpreter's lock", "2"] == [400, 1, 200, 200]
    first = dict(zip(largest.columns, largest.rows[0], strict=True))
    assert (first["partition"].text, first["size"].value) == ("2", 8_000_000)
    assert (first["grew in the span"].value, first["offsets"].value) == (6_000_000, 8)
    assert first["share of all"].value == pytest.approx(8 / 12)
    landed.check_rows(found, section)


def test_generations_are_not_averaged(found: Any) -> None:
    """Three collections in each generation's own half minute are 0.1 a second of each."""
    section = inside.section(found, Listened(found.until_ms, 0, NOON_MS))
    plots = {plot.title: plot for plot in section.plots}
    collections = plots["Garbage collections by generation"]
    assert {one.name: one.y[0] for one in collections.series} == {
        f"broker {broker} generation {generation}": pytest.approx(0.1)
        for broker in (1, 2) for generation in (0, 2)
    }  # fmt: skip
    assert {"Failed requests", "Fetched from leaders", "Largest partitions"} <= set(plots)


def test_lost_samples_and_those_never_taken(spark: Any) -> None:
    """A topic was deleted half an hour ago; of a third broker nothing is known of its requests."""
    log = {"partition": 0, "directory": "/d", "log_start_offset": 0, "log_end_offset": 1}
    rows = [
        sample("PartitionLog", NOON_MS, topic="deleted", size_bytes=10**9, **log),
        sample("PartitionLog", NOON_MS + 1_800_000, topic="orders", size_bytes=10**6, **log),
        sample("GilWait", NOON_MS, 3, waits_s=[{"le": 0.001, "count": 1}]),
        sample("GarbageCollection", NOON_MS, 3, generation="0", collections=1),
    ]
    inputs = landed.inputs(spark, metrics=rows)
    section = inside.section(inputs, Listened(inputs.until_ms, 0, NOON_MS))
    failed, _, largest = section.tables
    assert section.words[0] == "No data of requests."
    assert [[cell.text for cell in row] for row in failed.rows] == [["3", *"------"]]
    assert [row[0].text for row in largest.rows] == ["orders"]
    assert [row[5].text for row in largest.rows] == ["100 %"]
    landed.check_rows(inputs, section)


def test_nothing_was_sampled(spark: Any) -> None:
    section = inside.section(landed.inputs(spark), Listened(NOON_MS, 0))
    assert section.words == ("No data: no samples of a broker in this span.",)
